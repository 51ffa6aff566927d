"""The bytes of single tokens, and the flags that follow from them (traces/format/SCHEMA.md, token flags)."""
import json
import unicodedata

from ..writing.trace_header import FLAGS

WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200b))) + "\u2028\u2029\u202f\u205f\u3000"


def _byte_level_alphabet():
    """The character that byte-level BPE writes for each byte: the byte's own character if it is printable, else one
    from 256 on."""
    shown = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {chr(byte): byte for byte in shown} | {chr(256 + i): byte for i, byte in enumerate(hidden)}


def _kinds(part):
    """The types of a decoder and of its parts."""
    if not part:
        return set()
    return {part.get("type")}.union(*(_kinds(inner) for inner in part.get("decoders", [])))


class TokenText:
    """`tokenizer`: a tokenizer of transformers, fast or not."""

    def __init__(self, tokenizer):
        self._tokenizer = tokenizer
        self._special = set(tokenizer.all_special_ids)
        added = getattr(tokenizer, "added_tokens_decoder", {})
        self._special |= {token_id for token_id, token in added.items() if getattr(token, "special", False)}
        self._verbatim = {token_id: str(token).encode() for token_id, token in added.items()}
        backend = getattr(tokenizer, "backend_tokenizer", None)
        self._kinds = _kinds(json.loads(backend.to_str()).get("decoder")) if backend is not None else set()
        self._alphabet = _byte_level_alphabet()

    def is_special(self, token_id):
        return token_id in self._special

    def bytes(self, token_id):
        if token_id in self._verbatim:
            return self._verbatim[token_id]
        token = self._tokenizer.convert_ids_to_tokens(token_id)
        if token is None:
            return b""
        if "ByteLevel" in self._kinds and all(c in self._alphabet for c in token):
            return bytes(self._alphabet[c] for c in token)
        if "ByteFallback" in self._kinds and len(token) == 6 and token.startswith("<0x"):
            return bytes([int(token[3:5], 16)])
        if self._kinds & {"ByteFallback", "Metaspace", "Replace"}:
            return token.replace("\u2581", " ").encode()
        return self._tokenizer.decode([token_id], clean_up_tokenization_spaces=False).encode()

    def flags(self, token_id):
        return FLAGS["special"] if self.is_special(token_id) else text_flags(self.bytes(token_id))


def text_flags(data):
    """The flag for white space, punctuation or digits, from the text alone; a part of a character has no such flag."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return 0
    if not text:
        return 0
    core = text.strip(WHITE_SPACE)
    if not core:
        return FLAGS["white_space"]
    categories = {unicodedata.category(c) for c in core}
    if all(c[0] in "PS" for c in categories):
        return FLAGS["punctuation"]
    return FLAGS["digit"] if categories == {"Nd"} else 0
