"""Which rows of queries or attention a trace stores: the words of kvsim capture."""
from dataclasses import dataclass

from .trace_file import TraceError


@dataclass
class RowChoice:
    """Rows of the last `window` prompt tokens and of every generated one; None: of every token, 0: of no token."""
    text: str
    window: int = None

    def keeps(self, length, prompt_length):
        """Whether the token that ends a path of `length` tokens has a row."""
        if self.window is None:
            return True
        return self.window > 0 and length > prompt_length - self.window


def parse_rows(text, option, everything, allow_none):
    if text == everything:
        return RowChoice(text)
    if allow_none and text == "none":
        return RowChoice(text, 0)
    expected = f"Expected {'none, ' if allow_none else ''}window:W or {everything}, such as window:64."
    word, _, number = text.partition(":")
    if word != "window" or not number.isascii() or not number.isdigit() or int(number) < 1:
        raise TraceError(f"\"{text}\" is not a choice of rows", option, expected)
    return RowChoice(f"window:{int(number)}", int(number))
