"""Marks the tokens of a prompt that are its context, the question, and the evidence of the answer, as the user names
them."""
from .token_selection import EVERY_OCCURRENCE, SelectionError, is_numbers, select_tokens
from .trace_header import FLAGS

PARTS = ("context", "question", "evidence")


class Marks:
    """`said`: for each of PARTS a text for select_tokens, or a list of texts. `occurrence`: as in select_tokens.
    `option`: the name of a part in messages."""

    def __init__(self, said, occurrence=None, option="{}"):
        self._said = {part: [texts] if isinstance(texts, str) else list(texts or ()) for part, texts in said.items()}
        self._occurrence, self._option = occurrence, option
        for part, texts in self._said.items():
            for text in texts:
                if not isinstance(text, str):
                    raise SelectionError(f"is {text!r}, not a text", option.format(part))
        if occurrence not in (None, EVERY_OCCURRENCE) and (type(occurrence) is not int or occurrence < 1):
            raise SelectionError(f"{occurrence!r} is neither a number from 1 nor \"all\"", "occurrence")

    def __bool__(self):
        return any(self._said.values())

    @property
    def need_text(self):
        return any(not is_numbers(text) for texts in self._said.values() for text in texts)

    def tokens(self, segments, token_text, with_numbers=True):
        """{part: tokens} of the parts that were named; token numbers are left out unless `with_numbers`."""
        return {part: {token for text in texts if with_numbers or not is_numbers(text)
                       for token in select_tokens(segments, token_text, text, self._occurrence, self._option.format(part))}
                for part, texts in self._said.items() if texts}

    def put(self, header):
        """Sets the flags of a trace_header.Header. If it raises, no flag is set."""
        for part, tokens in self.tokens(header.segments, header.token_text).items():
            header.flags_known |= FLAGS[part]
            for token in tokens:
                header.token_flags[token] |= FLAGS[part]
