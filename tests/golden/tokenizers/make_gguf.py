#!/usr/bin/env python3
"""Writes gguf/: small tokenizers as GGUF files (by the package gguf), 1,000 texts of many scripts, and what the package tokenizers makes
of them: the first 8 digits of the SHA-256 of each text's ids, written as decimals with a comma between. Needs gguf and tokenizers.

smollm, llama-bpe, qwen2: the golden tokenizer.json beside this file, without what GGUF cannot say (white space that an added token takes).
default, gpt-2: the vocabulary of gpt2, cut as llama.cpp cuts for tokenizer.ggml.pre. llama, llama-plain: the pieces of llama2 with
scores; plain: no space before a text, none of the tokens around it. Merges of pieces follow as transformers makes them of a
SentencePiece model.
"""
import hashlib
import json
import pathlib
import random

from gguf import GGUFWriter
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from make_tokenizers import ALPHABET, HARD, MULTILINGUAL

HERE = pathlib.Path(__file__).parent
OUT = HERE / "gguf"
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
DEFAULT = [r"[\p{P}\$\+<=>\^~\|]+", r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)", r"\p{N}+", r"[0-9][0-9][0-9]"]
# Where letters of 40 scripts begin, and how many follow.
SCRIPTS = [(0x41, 26), (0x61, 26), (0xC0, 23), (0x100, 60), (0x250, 60), (0x391, 17), (0x3B1, 25), (0x410, 64), (0x531, 38), (0x5D0, 27), (0x620, 40),
           (0x660, 10), (0x710, 30), (0x780, 38), (0x904, 50), (0x985, 30), (0xA05, 30), (0xA85, 30), (0xB05, 30), (0xB85, 30), (0xC05, 30), (0xC85, 30),
           (0xD05, 30), (0xD85, 30), (0xE01, 46), (0xE81, 30), (0xF40, 30), (0x1000, 40), (0x10D0, 33), (0x1100, 90), (0x1200, 70), (0x13A0, 80), (0x1780, 50),
           (0x1820, 80), (0x3041, 86), (0x30A1, 90), (0x3105, 40), (0x4E00, 400), (0xAC00, 400), (0x10400, 40), (0x1F600, 70), (0x2190, 100), (0x300, 50)]


def texts():
    draw = random.Random(46)

    def word():
        first, count = draw.choice(SCRIPTS)
        return "".join(chr(first + draw.randrange(count)) for _ in range(draw.randrange(1, 9)))

    def part():
        return draw.choice(ALPHABET) if draw.random() < 0.3 else word() if draw.random() < 0.6 else draw.choice([" ", " ", " ", "\n", ", ", ". ", " (", "1984"])

    out = HARD + MULTILINGUAL
    return out + ["".join(part() for _ in range(draw.randrange(1, 24))) for _ in range(1000 - len(out))]


def from_json(name):
    whole = json.loads((HERE / name / "tokenizer.json").read_text())
    whole["added_tokens"] = [t | {"normalized": False} for t in whole["added_tokens"] if not (t["lstrip"] or t["rstrip"] or t["single_word"]) and t["content"].isascii()]
    types = {t["id"]: CONTROL if t["special"] else USER_DEFINED for t in whole["added_tokens"]}
    vocabulary = whole["model"]["vocab"] | {t["content"]: t["id"] for t in whole["added_tokens"]}
    return Tokenizer.from_str(json.dumps(whole)), vocabulary, types, whole["model"]["merges"]


def write(name, kind, pre, vocabulary, types, more):
    writer = GGUFWriter(OUT / f"{name}.gguf", "llama")
    writer.add_tokenizer_model(kind)
    if pre is not None:
        writer.add_tokenizer_pre(pre)
    tokens = {i: t for t, i in vocabulary.items()}
    listed = [tokens.get(i, f"[PAD{i}]") for i in range(max(tokens) + 1)]
    writer.add_token_list(listed)
    writer.add_token_types([types.get(i, NORMAL) if i in tokens else UNUSED for i in range(len(listed))])
    more(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def byte_level(name, pre, golden, bos=None):
    tokenizer, vocabulary, types, merges = from_json(golden)

    def more(writer):
        writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in merges])
        if bos is not None:
            writer.add_bos_token_id(vocabulary[bos])
    write(name, "gpt2", pre, vocabulary, types, more)
    if pre in ("default", "gpt-2"):
        cuts = [pre_tokenizers.Split(Regex(p), "isolated") for p in DEFAULT] if pre == "default" else []
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(cuts + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not cuts)])
    return tokenizer


def scored(name, plain):
    whole = json.loads((HERE / "llama2" / "tokenizer.json").read_text())
    vocabulary, ranks = whole["model"]["vocab"], {}
    for rank, merge in enumerate(whole["model"]["merges"]):
        ranks.setdefault("".join(merge if isinstance(merge, list) else merge.split(" ")), rank)
    def kind(token):
        return UNKNOWN if token == "<unk>" else CONTROL if token in ("<s>", "</s>") else BYTE if len(token) == 6 and token.startswith("<0x") else NORMAL
    types = {i: kind(t) for t, i in vocabulary.items()}
    types[len(vocabulary)] = USER_DEFINED
    all_tokens = vocabulary | {"[INST]": len(vocabulary)}
    # As SentencePiece's: 0, -1, -2, ... in the order of merges, then single characters; some have equal scores here.
    scores = {t: 0.0 if types[i] in (UNKNOWN, CONTROL, BYTE) else -float(ranks.get(t, len(ranks) + i) // (3 if i % 5 == 0 else 1)) for t, i in all_tokens.items()}
    known = {t: i for t, i in all_tokens.items() if types[i] in (NORMAL, USER_DEFINED)}
    merges = []
    for piece in known:
        splits = [(piece[:at], piece[at:], scores[piece]) for at in range(1, len(piece)) if piece[:at] in known and piece[at:] in known]
        merges += sorted(splits, key=lambda s: (known[s[0]], known[s[1]]))
    merges.sort(key=lambda s: (s[2], len(s[0]), len(s[1])), reverse=True)

    def more(writer):
        writer.add_token_scores([scores[t] for t in sorted(all_tokens, key=all_tokens.get)])
        if plain:
            writer.add_add_space_prefix(False)
            writer.add_add_bos_token(False)
        else:
            writer.add_bos_token_id(all_tokens["<s>"])
            writer.add_eos_token_id(all_tokens["</s>"])
            writer.add_add_eos_token(True)
    write(name, "llama", "default", all_tokens, types, more)
    tokenizer = Tokenizer(models.BPE(vocab=all_tokens, merges=[m[:2] for m in merges], unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence(([] if plain else [normalizers.Prepend("▁")]) + [normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    from tokenizers import AddedToken
    tokenizer.add_tokens([AddedToken("[INST]", normalized=False)])
    if not plain:
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", all_tokens["<s>"]), ("</s>", all_tokens["</s>"])])
    return tokenizer


def main():
    OUT.mkdir(exist_ok=True)
    made = {"smollm": byte_level("smollm", "smollm", "smollm2"), "llama-bpe": byte_level("llama-bpe", "llama-bpe", "llama3", bos="<|begin_of_text|>"),
            "qwen2": byte_level("qwen2", "qwen2", "qwen2"), "default": byte_level("default", "default", "gpt2"), "gpt-2": byte_level("gpt-2", "gpt-2", "gpt2"),
            "llama": scored("llama", False), "llama-plain": scored("llama-plain", True)}
    all_texts = texts()
    def digest(ids):
        return hashlib.sha256(",".join(map(str, ids)).encode()).hexdigest()[:8]
    golden = {"texts": all_texts, "ids": {name: " ".join(digest(tokenizer.encode(text).ids) for text in all_texts) for name, tokenizer in made.items()}}
    (OUT / "golden.json").write_text(json.dumps(golden, ensure_ascii=False, indent=0) + "\n")


if __name__ == "__main__":
    main()
