"""Checkpoints of Llama's kin in llama.cpp's order of the numbers of a query and a key: two that rotate together lie side by side, where
checkpoints have them half a head apart. The codes of llama.cpp's caches are of blocks of neighbours, and so depend on it."""
import json
import shutil

import numpy as np


def without_first(tensors):
    """These with nothing as what token 0 says: its keys and values are 0 in each layer, whatever they are stored as."""
    name = "model.embed_tokens.weight"
    return {**tensors, name: np.concatenate([np.zeros_like(tensors[name][:1]), tensors[name][1:]])}


def write_plain(config, tensors, folder, tokenizer):
    """Writes a checkpoint in F32."""
    folder.mkdir(exist_ok=True)
    shutil.copy(tokenizer, folder / "tokenizer.json")
    (folder / "config.json").write_text(json.dumps(config))
    header, data, end = {}, [], 0
    for name, values in tensors.items():
        data.append(np.ascontiguousarray(values, "<f4").tobytes())
        header[name] = {"dtype": "F32", "shape": values.shape, "data_offsets": (end, end + len(data[-1]))}
        end += len(data[-1])
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(b"".join((len(text).to_bytes(8, "little"), text, *data)))
    return folder


def write_glm(config, ordered, folder, tokenizer):
    """Writes tensors in that order as a checkpoint of GLM's, a Llama whose heads are in it: what kvsim then codes is what llama.cpp
    codes."""
    tensors = {name: values for name, values in ordered.items() if ".up_proj" not in name}
    for name in [name for name in tensors if ".gate_proj" in name]:
        tensors[name.replace(".gate_proj", ".gate_up_proj")] = np.concatenate([tensors.pop(name),
                                                                               ordered[name.replace(".gate_proj", ".up_proj")]])
    return write_plain({**config, "model_type": "glm", "architectures": ["GlmForCausalLM"], "partial_rotary_factor": 1.0,
                        "attention_bias": False}, tensors, folder, tokenizer)
