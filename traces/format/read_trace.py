"""Reads a kvtrace file with h5py alone (SCHEMA.md): tokens, tensors, and attention rows computed from them."""
import h5py
import numpy as np


def read_trace(path):
    """Tokens, and per layer q [Hq, Nq, d], k [Hkv, N, d], v [Hkv, N, dv], wo [Hq, dv, hidden_size] or None as float32."""
    with h5py.File(path, "r") as file:
        if file.attrs["format"] != b"kvtrace" or file.attrs["schema_major"] > 2 or not file.attrs["complete"]:
            raise ValueError(f"{path} is not a complete kvtrace file of schema 1 or 2")
        if int(file.attrs.get("needs", 0)) > 15:
            raise ValueError(f"{path} says what this reader does not know")
        model = dict(file["model"].attrs)
        layers = []
        for layer in range(model["n_layers"]):
            group = file[f"layers/{layer:04d}"]
            tensors = {name: np.asarray(group[name][...], dtype=np.float32) for name in ("q", "k", "v") if name in group}
            tensors.setdefault("v", tensors["k"][..., :model["v_head_dim"]])
            tensors["wo"] = np.asarray(group["wo"][...], dtype=np.float32) if "wo" in group else None
            tensors["q_token"] = group["q_token"][...] if "q_token" in group else np.arange(file.attrs["n_tokens"])
            tensors["window"] = int(file["model/layer_window"][layer])
            tensors["chunked"] = int(file.attrs.get("needs", 0)) & 8 != 0
            tensors["sinks"] = file["model/sinks"][layer] if "sinks" in file["model"] else None
            tensors["column"] = {name: data[...] for name, data in group["column"].items()} if "column" in group else None
            layers.append(tensors)
        tokens = {name: file["tokens"][name][...] for name in ("id", "segment", "position", "flags")}
        segments = {name: file["segments"][name][...] for name in ("parent", "begin", "count", "phase")}
        return {"model": model, "layers": layers, "tokens": tokens, "segments": segments}


def path_of(trace, token):
    """Tokens that `token` can see, itself last: its segment up to itself, after all ancestors."""
    segments = trace["segments"]
    begin, count = segments["begin"].astype(int), segments["count"].astype(int)
    segment = trace["tokens"]["segment"][token]
    parts = [np.arange(begin[segment], token + 1)]
    while (segment := segments["parent"][segment]) >= 0:
        parts.insert(0, np.arange(begin[segment], begin[segment] + count[segment]))
    return np.concatenate(parts)


def visible_means(trace, layer):
    """Mean attention [Hq, C] of each counted token over the counted ones that see it, from column statistics."""
    tensors = trace["layers"][layer]
    sums = tensors["column"]["sum"].astype(np.float64)
    viewers, window = np.arange(sums.shape[1], 0, -1), tensors["window"]
    if window > 0:
        viewers = np.minimum(viewers, window - np.arange(sums.shape[1]) % window if tensors["chunked"] else window)
    return sums / viewers


def attention_row(trace, layer, head, row):
    """Probabilities of stored query row `row` over path_of() its token."""
    model, tensors = trace["model"], trace["layers"][layer]
    path = path_of(trace, int(tensors["q_token"][row]))
    keys = tensors["k"][head // (model["n_q_heads"] // model["n_kv_heads"])][path]
    scores = keys.astype(np.float64) @ tensors["q"][head, row].astype(np.float64) * model["attn_scale"]
    if model["logit_softcap"] > 0:
        scores = model["logit_softcap"] * np.tanh(scores / model["logit_softcap"])
    if tensors["window"] > 0:
        own = (len(path) - 1) % tensors["window"] + 1 if tensors["chunked"] else tensors["window"]
        scores[: max(0, len(path) - own)] = -np.inf
    sink = -np.inf if tensors["sinks"] is None else float(tensors["sinks"][head])
    largest = max(scores.max(), sink)
    weights = np.exp(scores - largest)
    return weights / (weights.sum() + np.exp(sink - largest))
