"""Chooses the rows of queries or attention that a trace stores, with the options and draws of kvsim capture."""
from .draws import combine, key_of, uniform01
from ..writing.trace_error import TraceError


def sampled_positions(count, positions, seed):
    """One position from each of `count` strata of [0, positions), drawn uniformly."""
    count = min(count, positions)
    drawn = []
    for i in range(count):
        begin, end = positions * i // count, positions * (i + 1) // count
        drawn.append(begin + int(uniform01(combine(seed, key_of("sampled queries"), i)) * (end - begin)))
    return drawn


class RowChoice:
    """The rows of the last `window` prompt tokens, of `sample` others, and of every generated token; or all rows; or
    none."""

    def __init__(self, text, window=0, sample=0, everything=False, nothing=False, seed=0):
        self.text, self.everything, self.nothing = text, everything, nothing
        self._window, self._sample, self._seed = window, sample, seed
        self._drawn = (None, frozenset())  # (prompt length, its sampled positions)

    def keeps(self, position, prompt_length):
        """Whether the token at `position` of a path has a row; generated tokens follow the prompt."""
        if self.everything or self.nothing:
            return self.everything
        others = max(prompt_length - self._window, 0)
        if position >= others:
            return True
        if self._sample and self._drawn[0] != prompt_length:
            self._drawn = prompt_length, frozenset(sampled_positions(self._sample, others, self._seed))
        return position in self._drawn[1]


def _number_after(part, word):
    """The number N of a text "word:N"; 0 for any other text."""
    name, _, number = part.partition(":")
    return int(number) if name == word and number.isascii() and number.isdigit() else 0


def parse_queries(text, option, seed):
    if text == "all":
        return RowChoice(text, everything=True)
    expected = "Expected all, window:W, sample:K or window:W,sample:K, such as window:64,sample:256."
    window = sample = 0
    for part in text.split(","):
        found = _number_after(part, "window"), _number_after(part, "sample")
        if not any(found) or window and found[0] or sample and found[1]:
            raise TraceError(f"\"{text}\" is not a choice of queries", option, expected)
        window, sample = window + found[0], sample + found[1]
    words = [f"window:{window}"] * bool(window) + [f"sample:{sample}"] * bool(sample)
    return RowChoice(",".join(words), window, sample, seed=seed)


def parse_attention(text, option):
    if text in ("none", "full"):
        return RowChoice(text, everything=text == "full", nothing=text == "none")
    window = _number_after(text, "window")
    if not window:
        raise TraceError(f"\"{text}\" is not a choice of rows", option,
                         "Expected none, window:W or full, such as window:64.")
    return RowChoice(f"window:{window}", window)
