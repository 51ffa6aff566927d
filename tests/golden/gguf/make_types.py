"""Writes types.gguf: blocks of every element type that kvsim widens, as random bytes, and beside each tensor TYPE its
elements as the package gguf of PyPI widens them, TYPE.values in F32; and a metadata value of every type. To make it again:

    python -m pip install gguf==0.19.0 numpy && python tests/golden/gguf/make_types.py
"""
import pathlib

import numpy as np
from gguf import GGUFWriter, GGUFValueType
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

# Where the halves of a block are that scale it. Infinities and not-a-numbers are left out: which not-a-number comes of them is
# the processor's choice.
HALVES = {"F16": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q4_K": [0, 2], "Q5_K": [0, 2],
          "Q6_K": [208]}
TYPES = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "MXFP4"]
ROWS = 2


def random_blocks(name, items, width, random):
    blocks = random.integers(0, 256, (ROWS * 512 // items, width), np.uint8)
    for at in HALVES.get(name, []):
        halves = blocks[:, at:at + 2].copy().view("<u2")
        halves[(halves & 0x7c00) == 0x7c00] ^= 0x4000
        unusual = [0x83ff, 0x0000, 0x8000, 0x0001][:len(halves) // 4]  # zeros and subnormal numbers
        halves[:len(unusual), 0] = unusual
        blocks[:, at:at + 2] = halves.view(np.uint8)
    if name in ("F32", "BF16"):
        blocks[(blocks[:, -1] & 0x7f == 0x7f), -1] ^= 0x40
    return blocks.reshape(ROWS, -1)


def main():
    random = np.random.default_rng(20261125)
    writer = GGUFWriter(pathlib.Path(__file__).with_name("types.gguf"), "none")
    for kind, value in {"UINT8": 200, "INT8": -3, "UINT16": 60_000, "INT16": -7, "UINT32": 4_000_000_000, "INT32": -5,
                        "FLOAT32": 1e-5, "BOOL": True, "STRING": "na\u00efve\n", "UINT64": 1 << 62, "INT64": -9,
                        "FLOAT64": 0.1}.items():
        writer.add_key_value(kind.lower(), value, GGUFValueType[kind])
    writer.add_array("texts", ["", "na\u00efve", "z"])
    writer.add_array("integers", [-1, 2, 70_000])
    writer.add_array("floats", [0.5, -2.0])
    for name in TYPES:
        kind = GGMLQuantizationType[name]
        items, width = GGML_QUANT_SIZES[kind]
        stored = random_blocks(name, items, width, random)
        values = dequantize(stored.view("<f4") if name == "F32" else stored.view("<f2") if name == "F16" else stored, kind)
        assert values.shape == (ROWS, 512) and np.isfinite(values).all()
        writer.add_tensor(name, stored, raw_dtype=kind)
        writer.add_tensor(name + ".values", np.ascontiguousarray(values, "<f4"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


main()
