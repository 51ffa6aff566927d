"""How a layer turns its keys, from the ROPE operation in the graph: ggml-cpu's rope_yarn, in float64."""
import math
from dataclasses import dataclass

import numpy as np

from ..writing.trace_error import TraceError

NORM, NEOX = 0, 2  # pairs (2i, 2i + 1), and (i, i + dims / 2)


@dataclass
class Rotation:
    """`first`: the first of the components that turn. `inv_freq`: [turning components / 2]."""
    interleaved: bool = False
    first: int = 0
    inv_freq: np.ndarray = None
    factor: float = 1.0
    theta: float = 0.0

    @property
    def dims(self):
        return 0 if self.inv_freq is None else 2 * len(self.inv_freq)

    def half_split(self, rows):
        """Rows [..., dim] with the components that turn in front, component i paired with i + dims / 2. Products of queries and
        keys stay what they were."""
        if not self.dims or (not self.interleaved and not self.first):
            return rows
        turned = rows[..., self.first:self.first + self.dims]
        parts = [turned[..., 0::2], turned[..., 1::2]] if self.interleaved else [turned]
        return np.concatenate([*parts, rows[..., :self.first], rows[..., self.first + self.dims:]], axis=-1)


def rotation_of(op_params, factors, first):
    """The rotation by a ROPE operation: its 16 parameters (some of them the bits of floats), what it divides its frequencies by, or
    None, and the first component that it turns."""
    (_, dims, mode, _, trained), floats = op_params[:5], np.array(op_params, "<i4").view("<f4")
    base, scale, extrapolation, factor, fast, slow = (float(value) for value in floats[5:11])
    if mode not in (NORM, NEOX):
        raise TraceError(f"rotates keys in mode {mode} (images have positions on several axes)", "llama.cpp", "Text models are recorded.")
    pairs = np.arange(dims // 2)
    unscaled = base ** (-2.0 * pairs / dims)
    if factors is not None:
        unscaled = unscaled / factors[:dims // 2]
    inv_freq = scale * unscaled
    if extrapolation:  # YaRN
        low, high = (dims * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(base)) for turns in (fast, slow))
        low, high = max(0, math.floor(low)), min(dims - 1, math.ceil(high))
        ramp = extrapolation * (1 - np.clip((pairs - low) / max(0.001, high - low), 0, 1))
        inv_freq = inv_freq * (1 - ramp) + unscaled * ramp
        factor *= 1 + 0.1 * math.log(1 / scale)
    return Rotation(mode == NORM, first, inv_freq.astype("<f4"), factor, base)
