"""The numpy types of a trace's tensors."""
import numpy as np

WORDS = {"f32": np.dtype("<f4"), "f16": np.dtype("<f2"), "bf16": np.dtype("<u2")}


def widen(words, elem):
    """The float32 values of a stored type: the reverse of narrow()."""
    return (words.astype("<u4") << 16).view("<f4") if elem == "bf16" else words.astype("<f4", copy=False)


def narrow(values, elem):
    """Converts floats to the stored type: float32, float16, or the bits of bfloat16 (nearest, ties to even) as
    uint16."""
    values = np.ascontiguousarray(values)
    if elem != "bf16":
        return values.astype(WORDS[elem], copy=False)
    bits = values.astype("<f4", copy=False).view("<u4")
    rounded = ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype("<u2")
    return np.where(np.isnan(values), ((bits >> 16) | 0x40).astype("<u2"), rounded)
