"""Chooses tokens as kvsim capture does, so that the same seed draws the same tokens from the same logits."""
from dataclasses import dataclass

import numpy as np

from .draws import combine, key_of, uniform01
from ..writing.trace_error import TraceError


@dataclass
class Sampling:
    """temperature 0: the most probable token, the lowest id among equals. Otherwise the logits are divided by the
    temperature, the `top_k` most probable tokens are kept (0: all), of these the fewest whose probabilities add up to
    the share `top_p`, and one is drawn in proportion."""
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    def __str__(self):
        if self.temperature == 0:
            return "greedy"
        parts = [f"temperature {self.temperature:g}"]
        parts += [f"top-k {self.top_k}"] if self.top_k else []
        parts += [f"top-p {self.top_p:g}"] if self.top_p < 1 else []
        return ", ".join(parts)

    def choose(self, logits, step):
        """The token for `logits`, float32 [vocabulary], at `step` of the answer, from 0."""
        largest = logits.max()
        if not np.isfinite(largest) or np.isnan(logits).any():
            raise TraceError("the logits are not finite", "model", "The checkpoint holds NaN, or overflows in this type.")
        if self.temperature == 0:
            return int(logits.argmax())
        ids = np.argsort(-logits, kind="stable")[:self.top_k or len(logits)]
        cumulative = np.cumsum(np.exp((logits[ids].astype(np.float64) - float(largest)) / self.temperature))
        last = min(int(np.searchsorted(cumulative, self.top_p * cumulative[-1])), len(ids) - 1)
        draw = uniform01(combine(self.seed, key_of("sampling"), step)) * cumulative[last]
        return int(ids[min(int(np.searchsorted(cumulative[:last + 1], draw, side="right")), last)])


def sampling_of_generate(option):
    """The text for model.generate(), which chooses by itself; `option(name)` is the value of its option, None if
    unset."""
    if not option("do_sample"):
        return "greedy"
    off = {"temperature": None, "top_k": 0, "top_p": 1.0, "min_p": None}
    said = [f"{name.replace('_', '-')} {option(name):g}" for name in off if option(name) not in (None, off[name])]
    return ", ".join(said) or "from the whole distribution"
