"""Writes small GGUF files, also wrong ones, byte by byte."""
import json
import struct

import numpy as np

UINT8, INT32, UINT32, FLOAT32, BOOL, TEXT, ARRAY, UINT64 = 0, 5, 4, 6, 7, 8, 9, 10
F32, F16, Q8_0, BF16 = 0, 1, 8, 30

KINDS = (bool, ("?", BOOL)), (int, ("i", INT32)), (float, ("f", FLOAT32)), (str, (None, TEXT))  # of items; a bool is an int, too


def text(value):
    value = value.encode()
    return struct.pack("<Q", len(value)) + value


def entry(key, value):
    """A key with a value of the type that llama.cpp's converter gives it."""
    if isinstance(value, bytes):  # type and value as they are
        return text(key) + value
    if isinstance(value, bool):
        return text(key) + struct.pack("<IB", BOOL, value)
    if isinstance(value, int):
        return text(key) + struct.pack("<II", UINT32, value)
    if isinstance(value, float):
        return text(key) + struct.pack("<If", FLOAT32, value)
    if isinstance(value, str):
        return text(key) + struct.pack("<I", TEXT) + text(value)
    kind, code = next(of_type for known, of_type in KINDS if isinstance(value[0], known))
    items = b"".join(text(item) if kind is None else struct.pack("<" + kind, item) for item in value)
    return text(key) + struct.pack("<IIQ", ARRAY, code, len(value)) + items


def padded(data, alignment=32):
    return data + bytes(-len(data) % alignment)


def gguf(keys, tensors=(), version=3, offsets=None, counts=None):
    """keys: {key: value}. tensors: [(name, shape as the file has it, type code, data)]. offsets, counts: in place of the right
    ones."""
    table, data = b"", b""
    for index, (name, shape, code, stored) in enumerate(tensors):
        data = padded(data)
        table += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, code,
                                          offsets[index] if offsets else len(data))
        data += stored
    head = b"GGUF" + struct.pack("<IQQ", version, *(counts or (len(tensors), len(keys))))
    head += b"".join(entry(key, value) for key, value in keys.items()) + table
    return padded(head) + data if data else head


PARTS = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
         "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}


def checkpoint(folder):
    """config.json of a checkpoint, and its tensors as F32."""
    stored = (folder / "model.safetensors").read_bytes()
    length, = struct.unpack_from("<Q", stored)
    entries, tensors = json.loads(stored[8:8 + length]), {}
    entries.pop("__metadata__", None)
    for name, found in entries.items():
        begin, end = (8 + length + offset for offset in found["data_offsets"])
        words = np.frombuffer(stored[begin:end], "<u2" if found["dtype"] == "BF16" else "<f4")
        values = (words.astype("<u4") << 16).view("<f4") if found["dtype"] == "BF16" else words
        tensors[name] = values.reshape(found["shape"])
    return json.loads((folder / "config.json").read_text()), tensors


def side_by_side(config, tensors):
    """The tensors of a checkpoint with the numbers of a query and a key in llama.cpp's order for Llama's kin: two that rotate together are
    neighbours, where checkpoints have them half a head apart."""
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    return {name: values.reshape(heads[part], 2, -1, values.shape[1]).swapaxes(1, 2).reshape(values.shape)
            if (part := name.split(".")[-2]) in heads else values for name, values in tensors.items()}


def llama(config, tensors, more=(), architecture="llama", matrices=F32):
    """The file that llama.cpp's converter makes of such a checkpoint, in F32 or with matrices of F16. Of another `architecture`, such as
    exaone, which is Llama's but for the order of numbers within heads, queries and keys stay as they are."""
    keys = {"general.architecture": architecture, "general.name": "golden", "llama.block_count": config["num_hidden_layers"],
            "llama.context_length": config["max_position_embeddings"], "llama.embedding_length": config["hidden_size"],
            "llama.feed_forward_length": config["intermediate_size"],
            "llama.attention.head_count": config["num_attention_heads"],
            "llama.attention.head_count_kv": config["num_key_value_heads"],
            "llama.attention.key_length": config["head_dim"], "llama.attention.value_length": config["head_dim"],
            "llama.attention.layer_norm_rms_epsilon": config["rms_norm_eps"], "llama.rope.freq_base": config["rope_theta"],
            "llama.vocab_size": config["vocab_size"], "tokenizer.ggml.eos_token_id": config["eos_token_id"]}
    keys = {key.replace("llama.", architecture + "."): value for key, value in keys.items()} | dict(more)
    stored = []
    for name, values in (side_by_side(config, tensors) if architecture == "llama" else tensors).items():
        for ours, theirs in {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
                             "model.layers": "blk", **PARTS}.items():
            name = name.replace(ours, theirs)
        kind = matrices if values.ndim == 2 else F32
        stored.append((name, values.shape[::-1], kind, np.ascontiguousarray(values, "<f2" if kind == F16 else "<f4").tobytes()))
    return gguf(keys, stored)
