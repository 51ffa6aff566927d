#!/usr/bin/env python3
"""Makes small random checkpoints with weights in 8 and 4 bits, and beside each what transformers dequantises it to.

    python3 tests/golden/quantised/make_quantised.py   (needs torch, transformers, accelerate, safetensors; wrote with 5.23 / 2.15)

NAME/model.safetensors is quantised, NAME/dequantised/model.safetensors the same in bfloat16:
    deepseek_v3_fp8   blocks of 4 x 4, by transformers' Fp8Dequantize
    llama_fp8_ragged  blocks of 24 x 10, which divide few shapes, scales in bfloat16; transformers wants them divided evenly, so what is
                      expected is NumPy's product of each number with the scale of its block
    llama_fp8_whole   a scale for each matrix
    gpt_oss_mxfp4     experts in 4 bits, by transformers' convert_moe_packed_tensors
"""
import json
import pathlib
import shutil
import sys

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers.integrations.finegrained_fp8 import Fp8Dequantize
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "capture"))
from make_golden import VARIANTS, SHAPE, randomise  # noqa: E402

LARGEST = 448  # of e4m3


def fp8(weight, size):
    """The matrix in e4m3, and a scale for each block of `size`."""
    rows, columns = size
    padded = torch.nn.functional.pad(weight.float(), (0, -weight.shape[1] % columns, 0, -weight.shape[0] % rows))
    blocks = padded.unflatten(1, (-1, columns)).unflatten(0, (-1, rows)).abs().amax((1, 3))
    scales = blocks / LARGEST
    wide = scales.repeat_interleave(rows, 0).repeat_interleave(columns, 1)[:weight.shape[0], :weight.shape[1]]
    return (weight.float() / wide).to(torch.float8_e4m3fn), scales


def ragged(numbers, scales, size):
    number, scale = numbers.float().numpy(), scales.float().numpy()
    row, column = np.indices(number.shape)
    return torch.from_numpy(number * scale[row // size[0], column // size[1]]).bfloat16()


def write(name, config, quantised, dequantised, method):
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "dequantised").mkdir(parents=True)
    for path, tensors, more in (folder, quantised, {"quantization_config": method}), (folder / "dequantised", dequantised, {}):
        save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
        (path / "config.json").write_text(json.dumps(config | more, indent=2) + "\n")


def make_fp8(name, source, size, scales_dtype, **fields):
    folder = HERE.parent / "capture" / source
    quantised, dequantised = {}, {}
    for key, tensor in load_file(folder / "model.safetensors").items():
        quantised[key] = dequantised[key] = tensor
        if "_proj." not in key or tensor.ndim != 2:
            continue  # embeddings, norms, biases and routers stay
        block = size or list(tensor.shape)
        numbers, scales = fp8(tensor, block)
        scales = scales.to(scales_dtype)
        quantised[key], quantised[key + "_scale_inv"] = numbers, scales if size else scales.reshape(())
        even = tensor.shape[0] % block[0] == 0 and tensor.shape[1] % block[1] == 0
        dequantised[key] = Fp8Dequantize(None)._dequantize_one(numbers, scales, torch.bfloat16) if even \
            else ragged(numbers, scales, block)
    if size:
        fields["weight_block_size"] = size
    write(name, json.loads((folder / "config.json").read_text()), quantised, dequantised,
          {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic"} | fields)


def make_mxfp4(name):
    config_class, model_class, dtype, changes = VARIANTS["gpt_oss_sinks"]
    config = config_class(**SHAPE | changes | dict(hidden_size=64, intermediate_size=32, swiglu_limit=2.0))
    model = model_class(config)
    randomise(model, 7, dtype)
    tensors = {key: tensor.to(dtype) for key, tensor in model.state_dict().items() if key != "lm_head.weight"}
    random = np.random.default_rng(7)
    quantised, dequantised = {}, {}
    for key, tensor in tensors.items():
        quantised[key] = dequantised[key] = tensor
        if not key.endswith(("experts.gate_up_proj", "experts.down_proj")):
            continue
        count, inputs, outputs = tensor.shape
        blocks = torch.from_numpy(random.integers(0, 256, (count, outputs, inputs // 32, 16), np.uint8))
        scales = torch.from_numpy(random.integers(121, 124, (count, outputs, inputs // 32), np.uint8))
        del quantised[key]
        quantised[key + "_blocks"], quantised[key + "_scales"] = blocks, scales
        dequantised[key] = convert_moe_packed_tensors(blocks, scales, dtype=torch.bfloat16)
        assert dequantised[key].shape == tensor.shape
    write(name, config.to_dict() | {"architectures": ["GptOssForCausalLM"]}, quantised, dequantised,
          {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]})


if __name__ == "__main__":
    make_fp8("deepseek_v3_fp8", "deepseek_v3_latent", [4, 4], torch.float32)
    make_fp8("llama_fp8_ragged", "llama_rope_yarn", [24, 10], torch.bfloat16, modules_to_not_convert=["lm_head"])
    make_fp8("llama_fp8_whole", "llama_rope_yarn", None, torch.float32)
    make_mxfp4("gpt_oss_mxfp4")
