"""Selects tokens of a prompt by their numbers or by the text that they spell, with the rules of `kvsim trace mark`."""
import bisect
import itertools
import re

from .trace_error import TraceError
from .trace_header import PROMPT, segment_begins

TEXT_PREFIX = "text:"
EVERY_OCCURRENCE = "all"


class SelectionError(TraceError):
    """What was said means no tokens, or not clearly which."""


def is_numbers(said):
    return re.fullmatch(r"[0-9:,]+", said) is not None


def select_tokens(segments, token_text, said, occurrence=None, where=""):
    """Tokens of the prompt, ascending, in file order.

    said         digits, colons and commas alone are token numbers: `300`, `120:135` (120 to 134), commas join several;
                 anything else is text, and so is everything after `text:`. Text selects each token that spells a part of
                 it. It is searched for along every path of `segments`, answers aside.
    token_text   bytes of each token; None if they are not known
    occurrence   the number, from 1, of one occurrence of text that occurs several times, or "all"
    """
    if is_numbers(said):
        return _numbered(segments, said, where)
    return _spelling(segments, token_text, said.removeprefix(TEXT_PREFIX), occurrence, where)


def _numbered(segments, said, where):
    begins, tokens = segment_begins(segments).tolist(), set()
    for part in said.split(","):
        if not re.fullmatch(r"[0-9]{1,18}(:[0-9]{1,18})?", part):
            raise SelectionError(f"\"{said}\" names no tokens", where,
                                 "Expected numbers and ranges such as 120:135,300. For text put text: before it.")
        first, _, end = part.partition(":")
        first, end = int(first), int(end) if end else int(first) + 1
        if end <= first:
            raise SelectionError(f"the range {part} holds no token", where)
        if end > begins[-1]:
            raise SelectionError(f"{part} is beyond the trace's {begins[-1]} tokens, which are numbered from 0", where,
                                 "For text put text: before it.")
        for token in range(first, end):
            if segments[bisect.bisect_right(begins, token) - 1].phase != PROMPT:
                raise SelectionError(f"token {token} belongs to an answer, not to the prompt", where)
            tokens.add(token)
    return sorted(tokens)


def _spelling(segments, token_text, text, occurrence, where):
    if not text:
        raise SelectionError("the text is empty", where)
    shown = f"\"{text if len(text) <= 80 else text[:80] + '...'}\""
    if token_text is None:
        raise SelectionError(f"the trace stores no text to find {shown} in", where,
                             "Say token numbers, such as 120:135,300.")
    found = _occurrences(segments, token_text, text.encode())
    if not found:
        raise SelectionError(f"{shown} is not in the prompt", where,
                             "It is compared byte by byte: white space and ends of lines count.")
    if len(found) == 1:
        return found[0]
    if occurrence is None:
        raise SelectionError(f"{shown} is in the prompt {len(found)} times, first at tokens {found[0][0]} and {found[1][0]}",
                             where, "Say more of it, or which occurrence: its number from 1, or all.")
    if occurrence == EVERY_OCCURRENCE:
        return sorted(set().union(*found))
    if occurrence > len(found):
        raise SelectionError(f"{shown} is in the prompt {len(found)} times", f"{where} occurrence {occurrence}")
    return found[occurrence - 1]


def _occurrences(segments, token_text, text):
    """The tokens of each occurrence of `text` in a prompt, ordered by its end. An occurrence is found once, in the
    segment where it ends, however many paths continue from there."""
    begins, found = segment_begins(segments).tolist(), []
    for index, segment in enumerate(segments):
        if segment.phase != PROMPT:
            continue
        before = _end_of_path(segments, begins, token_text, segment.parent, len(text) - 1)
        tokens = before + list(range(begins[index], begins[index + 1]))
        data = [token_text[token] for token in tokens]
        offset = [0, *itertools.accumulate(map(len, data))]
        own, data = offset[len(before)], b"".join(data)
        at = data.find(text)
        while at >= 0:
            end = at + len(text)
            if end > own:
                first, last = bisect.bisect_right(offset, at) - 1, bisect.bisect_left(offset, end)
                found.append([tokens[i] for i in range(first, last) if offset[i + 1] > offset[i]])
            at = data.find(text, at + 1)
    return found


def _end_of_path(segments, begins, token_text, segment, length):
    """The last tokens of the path that ends with `segment`, at least `length` bytes of them; fewer if the path begins
    or an answer ends within them."""
    tokens, found = [], 0
    while segment >= 0 and found < length and segments[segment].phase == PROMPT:
        for token in reversed(range(begins[segment], begins[segment + 1])):
            if found >= length:
                break
            tokens.append(token)
            found += len(token_text[token])
        segment = segments[segment].parent
    return tokens[::-1]
