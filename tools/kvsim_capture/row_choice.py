"""Which rows of queries or attention a trace stores: the words of kvsim capture, and its draws."""
from .trace_file import TraceError

BITS = (1 << 64) - 1


def _mix(x):
    """SplitMix64's finaliser, as kvsim's sim/base/rng.hpp has it."""
    x = (x + 0x9E3779B97F4A7C15) & BITS
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & BITS
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & BITS
    return x ^ (x >> 31)


def _combine(*keys):
    state = 0x243F6A8885A308D3
    for key in keys:
        state = _mix(state ^ _mix(key))
    return state


def _key_of(name):
    """FNV-1a."""
    state = 0xCBF29CE484222325
    for byte in name.encode():
        state = ((state ^ byte) * 0x100000001B3) & BITS
    return state


def _uniform01(key):
    return (_mix(key) >> 11) * 2.0 ** -53


def sampled_positions(count, positions, seed):
    """One position of each of `count` equal stretches of [0, positions)."""
    count = min(count, positions)
    drawn = []
    for i in range(count):
        begin, end = positions * i // count, positions * (i + 1) // count
        drawn.append(begin + int(_uniform01(_combine(seed, _key_of("sampled queries"), i)) * (end - begin)))
    return drawn


class RowChoice:
    """Rows of the last `window` prompt tokens, of `sample` others, and of every generated one; or of all; or of none."""

    def __init__(self, text, window=0, sample=0, everything=False, nothing=False, seed=0):
        self.text, self.everything, self.nothing = text, everything, nothing
        self._window, self._sample, self._seed = window, sample, seed
        self._drawn = (None, frozenset())  # prompt length, its sampled positions

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
    """The number behind "word:"; 0: it is no such text."""
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
