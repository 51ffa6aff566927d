#!/usr/bin/python3
"""Writes a Llama checkpoint with random weights: any shape, for runs whose cost and memory matter, not their text.

    python3 tests/support/random_checkpoint.py OUT --like llama-3-8b --layers 1 --vocab 512 --tokens 131072

OUT/config.json and OUT/model.safetensors (or shards and their index), with --tokens also OUT/tokens.txt: that many random
token ids for `kvsim capture --tokens`. The same arguments give the same bytes. Needs numpy.
"""

import argparse
import json
import os
import struct

import numpy as np

# Rows drawn at a time, so that the largest matrix never exists as floats.
BLOCK_ROWS = 256

# Shapes of published models.
SHAPES = {
    "smollm2-135m": {"layers": 30, "hidden": 576, "heads": 9, "kv_heads": 3, "head_dim": 64, "intermediate": 1536,
                     "vocab": 49152, "rope_theta": 1e5, "tied": True},
    "llama-3.2-1b": {"layers": 16, "hidden": 2048, "heads": 32, "kv_heads": 8, "head_dim": 64, "intermediate": 8192,
                     "vocab": 128256, "rope_theta": 5e5, "tied": True},
    "llama-3-8b": {"layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "head_dim": 128, "intermediate": 14336,
                   "vocab": 128256, "rope_theta": 5e5},
}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--like", choices=SHAPES, help="a model's shape; what is said besides replaces parts of it")
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--kv-heads", type=int, default=2)
    parser.add_argument("--head-dim", type=int, help="default: hidden / heads")
    parser.add_argument("--intermediate", type=int, default=128)
    parser.add_argument("--vocab", type=int, default=256)
    parser.add_argument("--rope-theta", type=float, default=500000.0)
    parser.add_argument("--dtype", choices=["bf16", "f32"], default="bf16")
    parser.add_argument("--tied", action="store_true", help="the embedding is the output projection, too")
    parser.add_argument("--shards", type=int, default=1, help="files to spread the weights over")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tokens", type=int, default=0)
    parser.set_defaults(**SHAPES.get(parser.parse_known_args()[0].like, {}))
    arguments = parser.parse_args()
    if arguments.head_dim is None:
        arguments.head_dim = arguments.hidden // arguments.heads
    return arguments


def config_of(shape):
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "vocab_size": shape.vocab,
        "max_position_embeddings": max(8192, 2 * shape.tokens),
        "rms_norm_eps": 1e-5,
        "rope_theta": shape.rope_theta,
        "hidden_act": "silu",
        "attention_bias": False,
        "tie_word_embeddings": shape.tied,
        "torch_dtype": "bfloat16" if shape.dtype == "bf16" else "float32",
    }


def tensors_of(shape):
    """Name, shape and standard deviation (None: a norm, all ones) of every tensor."""
    width, inner = shape.hidden, shape.intermediate
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    # Logits of unit variance need small rows if the embedding is also the output projection.
    yield "model.embed_tokens.weight", (shape.vocab, width), 1 / width**0.5 if shape.tied else 1.0
    for layer in range(shape.layers):
        prefix = f"model.layers.{layer}."
        yield prefix + "input_layernorm.weight", (width,), None
        # Scores of unit variance spread attention evenly; queries twice as large make some keys stand out.
        yield prefix + "self_attn.q_proj.weight", (queries, width), 2 / width**0.5
        yield prefix + "self_attn.k_proj.weight", (keys, width), 1 / width**0.5
        yield prefix + "self_attn.v_proj.weight", (keys, width), 1 / width**0.5
        yield prefix + "self_attn.o_proj.weight", (width, queries), 1 / queries**0.5
        yield prefix + "post_attention_layernorm.weight", (width,), None
        yield prefix + "mlp.gate_proj.weight", (inner, width), 1 / width**0.5
        yield prefix + "mlp.up_proj.weight", (inner, width), 1 / width**0.5
        yield prefix + "mlp.down_proj.weight", (width, inner), 1 / inner**0.5
    yield "model.norm.weight", (width,), None
    if not shape.tied:
        yield "lm_head.weight", (shape.vocab, width), 1 / width**0.5


def stored(values, dtype):
    """Bytes of float32 values, unchanged or rounded to bf16 (to nearest even)."""
    if dtype == "f32":
        return values.astype("<f4").tobytes()
    bits = values.astype("<f4").view("<u4").astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()


def shards_of(tensors, count):
    """The tensors with their index, divided into `count` lists of about the same number of elements."""
    sizes = np.cumsum([int(np.prod(dims)) for _, dims, _ in tensors])
    shards = [[] for _ in range(count)]
    for index, tensor in enumerate(tensors):
        before = sizes[index - 1] if index > 0 else 0
        shards[int(before * count // sizes[-1])].append((index, tensor))
    return [shard for shard in shards if shard]


def write_shard(path, shard, shape):
    bytes_each = 2 if shape.dtype == "bf16" else 4
    header, offset = {}, 0
    for _, (name, dims, _) in shard:
        end = offset + bytes_each * int(np.prod(dims))
        header[name] = {"dtype": shape.dtype.upper(), "shape": list(dims), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for index, (_, dims, deviation) in shard:
            draw = np.random.Generator(np.random.Philox(key=[shape.seed, index]))
            rows, row_size = dims[0], int(np.prod(dims[1:]))
            for first in range(0, rows, BLOCK_ROWS):
                n = min(BLOCK_ROWS, rows - first) * row_size
                values = np.ones(n) if deviation is None else deviation * draw.standard_normal(n, dtype=np.float32)
                file.write(stored(values, shape.dtype))
    return offset


def write_weights(shape):
    shards = shards_of(list(tensors_of(shape)), shape.shards)
    if len(shards) == 1:
        write_shard(os.path.join(shape.out, "model.safetensors"), shards[0], shape)
        return
    index, total = {}, 0
    for number, shard in enumerate(shards, 1):
        file = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        total += write_shard(os.path.join(shape.out, file), shard, shape)
        index.update((name, file) for _, (name, _, _) in shard)
    with open(os.path.join(shape.out, "model.safetensors.index.json"), "w", encoding="utf-8") as file:
        json.dump({"metadata": {"total_size": total}, "weight_map": index}, file, indent=1)
        file.write("\n")


def main():
    shape = parse_arguments()
    os.makedirs(shape.out, exist_ok=True)
    with open(os.path.join(shape.out, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config_of(shape), file, indent=1)
        file.write("\n")
    write_weights(shape)
    if shape.tokens > 0:
        draw = np.random.Generator(np.random.Philox(key=[shape.seed, 1 << 32]))
        ids = draw.integers(0, shape.vocab, shape.tokens)
        np.savetxt(os.path.join(shape.out, "tokens.txt"), ids, fmt="%d")


if __name__ == "__main__":
    main()
