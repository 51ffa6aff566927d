#!/usr/bin/env python3
"""Writes a checkpoint of a given shape with random bfloat16 weights, for benchmarks.

    python3 tests/bench/make_checkpoint.py DIR smollm2-135m|llama-3.2-1b|llama-3-8b [--layers N]        (needs numpy)

Llama's decoder, config.json as transformers writes it. Weights are normal with standard deviation
1/sqrt(inputs), so that activations neither vanish nor grow.
"""
import argparse
import json
import pathlib
import struct

import numpy

#                    layers heads kv  dim hidden inner  vocab   theta   tied
SHAPES = {
    "smollm2-135m": (30, 9, 3, 64, 576, 1536, 49152, 1e5, True),
    "llama-3.2-1b": (16, 32, 8, 64, 2048, 8192, 128256, 5e5, True),
    "llama-3-8b": (32, 32, 8, 128, 4096, 14336, 128256, 5e5, False),
}


def config(shape, layers):
    _, heads, kv_heads, dim, hidden, inner, vocab, theta, tied = shape
    return dict(architectures=["LlamaForCausalLM"], model_type="llama", hidden_size=hidden, intermediate_size=inner,
                num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=dim,
                vocab_size=vocab, rope_theta=theta, rms_norm_eps=1e-5, hidden_act="silu", tie_word_embeddings=tied,
                max_position_embeddings=131072, bos_token_id=0, eos_token_id=1, torch_dtype="bfloat16")


def tensors(shape, layers):
    """Name and shape of every tensor, in file order."""
    _, heads, kv_heads, dim, hidden, inner, vocab, _, tied = shape
    yield "model.embed_tokens.weight", (vocab, hidden)
    for layer in range(layers):
        prefix = f"model.layers.{layer}."
        yield prefix + "input_layernorm.weight", (hidden,)
        yield prefix + "post_attention_layernorm.weight", (hidden,)
        for name, rows in (("q", heads), ("k", kv_heads), ("v", kv_heads)):
            yield prefix + f"self_attn.{name}_proj.weight", (rows * dim, hidden)
        yield prefix + "self_attn.o_proj.weight", (hidden, heads * dim)
        yield prefix + "mlp.gate_proj.weight", (inner, hidden)
        yield prefix + "mlp.up_proj.weight", (inner, hidden)
        yield prefix + "mlp.down_proj.weight", (hidden, inner)
    yield "model.norm.weight", (hidden,)
    if not tied:
        yield "lm_head.weight", (vocab, hidden)


def bfloat16(values):
    """The upper halves of floats, rounded to nearest even."""
    bits = values.astype(numpy.float32).view(numpy.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(numpy.uint16)


def draw(rng, shape):
    if len(shape) == 1:
        return bfloat16(numpy.ones(shape))
    return bfloat16(rng.standard_normal(shape, dtype=numpy.float32) / numpy.float32(shape[1] ** 0.5))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("--layers", type=int)
    arguments = parser.parse_args()
    shape = SHAPES[arguments.shape]
    layers = arguments.layers or shape[0]
    arguments.directory.mkdir(parents=True, exist_ok=True)
    (arguments.directory / "config.json").write_text(json.dumps(config(shape, layers), indent=1) + "\n")
    header, end = {}, 0
    for name, size in tensors(shape, layers):
        begin, end = end, end + 2 * int(numpy.prod(size))
        header[name] = dict(dtype="BF16", shape=size, data_offsets=[begin, end])
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    rng = numpy.random.default_rng(1)
    with open(arguments.directory / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, size in tensors(shape, layers):
            draw(rng, size).tofile(file)


if __name__ == "__main__":
    main()
