"""Converts a run given as arrays (array_files.py) to a trace. tools/python/import_arrays.py --help explains the names
of the arrays."""
import re

import numpy as np

from .array_files import open_arrays
from ..writing.stored_elements import narrow, widen
from ..writing.trace_error import TraceError
from ..writing.trace_file import TraceWriter
from ..writing.trace_header import DECODE, FLAGS, MAX_TOKENS, Capture, Header, Model, Segment

BLOCK_ROWS = 4096
LISTS = ("token_ids", "positions", "q_token", "attention_token", "inv_freq")
DESCRIBING = ("flags", "text_offset", "text_bytes", "description")  # of kvsim trace export: nothing that attention reads
COLUMNS = ("column_sum", "column_sum_squares")
TENSORS = ("q", "k", "v", "q_pre", "k_pre", "wo", "attention", *COLUMNS)


class Run:
    """The tensors of all layers, whose shapes agree."""

    def __init__(self, arrays):
        self.lists = {name: arrays[name] for name in LISTS if name in arrays}
        stacked = {name: arrays[name] for name in TENSORS if name in arrays}
        layered = {name: found for name, found in ((name, re.fullmatch(r"layers\.([0-9]{1,4})\.(\w+)", name))
                                                   for name in arrays) if found and found[2] in TENSORS}
        strange = set(arrays) - set(self.lists) - set(stacked) - set(layered) - set(DESCRIBING)
        if strange:
            name = min(strange)
            raise TraceError("is no name of an array to import", arrays[name].where,
                             f"Expected layers.N.q and so on, or {', '.join(TENSORS + LISTS)}.")
        if bool(stacked) == bool(layered):
            raise TraceError("layers are named one by one (layers.0.q) or stacked (q), not both or neither",
                             ", ".join(sorted({array.where.rpartition(":")[0] for array in arrays.values()})) or "arrays")
        if stacked:
            self.n_layers = next(iter(stacked.values())).shape[0] if next(iter(stacked.values())).shape else 0
            self._tensors = {(name, layer): (array, layer) for name, array in stacked.items() for layer in range(self.n_layers)}
            for array in stacked.values():
                if array.shape[:1] != (self.n_layers,):
                    raise TraceError(f"has shape {list(array.shape)}, where others begin with {self.n_layers} layers",
                                     array.where)
        else:
            self.n_layers = 1 + max(int(found[1]) for found in layered.values())
            self._tensors = {(found[2], int(found[1])): (arrays[name], None) for name, found in layered.items()}
        if not 1 <= self.n_layers <= 1024:
            raise TraceError(f"{self.n_layers} layers, not within 1 to 1024")
        self._check()

    def _check(self):
        names = {name for name, _ in self._tensors}
        self.attention = "attention" in names
        self.names = {"q": "q_pre" if "q_pre" in names else "q", "k": "k_pre" if "k_pre" in names else "k", "v": "v"}
        self.queries = self.names["q"] in names or not self.attention
        if not self.queries:
            del self.names["q"]
        for short in ("q", "k"):
            if {short, short + "_pre"} <= names:
                raise TraceError(f"both {short} and {short}_pre are given", "arrays", "One of them says it all.")
        if self.queries and ("q_pre" in names) != ("k_pre" in names):
            raise TraceError("one of q and k is before RoPE, the other after it", "arrays", "Give both in one state.")
        self.rotate = "k_pre" in names
        self.shapes = {short: self._shape(name) for short, name in self.names.items()}
        self.output_weights = "wo" in names
        if self.output_weights:
            self.shapes["wo"] = self._shape("wo")
        kv_heads, tokens, key_dim = self.shapes["k"]
        if self.attention:
            self.shapes["attention"] = self._shape("attention")
            if self.shapes["attention"][2] != tokens or self.shapes["attention"][1] > tokens:
                raise TraceError(f"attention {list(self.shapes['attention'])} and k {list(self.shapes['k'])} do not belong together",
                                 "arrays", "Expected attention [Hq, R, N], the rows of the last R tokens, and k [Hkv, N, d].")
        self.heads, rows, dim = self.shapes["q"] if self.queries else (self.shapes["attention"][0], tokens, key_dim)
        value_heads, value_tokens, value_dim = self.shapes["v"]
        if (kv_heads, tokens, dim) != (value_heads, value_tokens, key_dim) or rows > tokens or not 1 <= tokens <= MAX_TOKENS:
            raise TraceError(f"q {[self.heads, rows, dim]}, k {list(self.shapes['k'])} and v {list(self.shapes['v'])} do not "
                             "belong together", "arrays", "Expected q [Hq, Nq, d], k [Hkv, N, d] and v [Hkv, N, dv].")
        self.columns = bool(names & set(COLUMNS))
        for name in COLUMNS if self.columns else ():
            self.shapes[name] = self._shape(name, 2)
            if self.shapes[name][0] != self.heads or self.shapes[name] != self.shapes[COLUMNS[0]]:
                raise TraceError(f"{name} {list(self.shapes[name])} is not [Hq, C], as of all {self.heads} query heads", "arrays")
        if self.output_weights and self.shapes["wo"][:2] != (self.heads, value_dim):
            raise TraceError(f"wo {list(self.shapes['wo'])} is not [Hq, dv, hidden]", "arrays")

    def _shape(self, name, axes=3):
        """The shape of a tensor, the same in every layer, without the axis of a batch of one."""
        first = None
        for layer in range(self.n_layers):
            if (name, layer) not in self._tensors:
                raise TraceError(f"there is no {name} of layer {layer}", "arrays")
            array, index = self._tensors[name, layer]
            shape = array.shape if index is None else array.shape[1:]
            shape = shape[1:] if len(shape) == axes + 1 and shape[0] == 1 else shape
            if len(shape) != axes or 0 in shape:
                raise TraceError(f"has shape {list(array.shape)}; heads, tokens and components are three axes" if axes == 3 else
                                 f"has shape {list(array.shape)}; heads and tokens are two axes", array.where,
                                 "Import one sequence at a time." if len(shape) == axes + 1 else "")
            first = first or shape
            if shape != first:
                raise TraceError(f"is {list(shape)} in layer {layer}, {list(first)} in the first", array.where)
        return first

    def elem_of(self, name):
        """The element type of a tensor in all layers; None if layers differ or a trace does not have that type."""
        kinds = set()
        for layer in range(self.n_layers):
            array, _ = self._tensors[name, layer]
            kinds.add("bf16" if array.bf16 else {"<f4": "f32", "<f2": "f16"}.get(array.dtype.str))
        return kinds.pop() if len(kinds) == 1 else None

    def read(self, name, layer, elem):
        """The tensor as [heads, rows, dim], and whether its elements are bfloat16 words."""
        array, index = self._tensors[name, layer]
        values = array.read(index)
        words = array.bf16 or (values.dtype == np.uint16 and elem == "bf16")
        if not words and values.dtype.kind != "f":
            raise TraceError(f"holds {values.dtype}, which is no type of a tensor", array.where,
                             "Expected float32 or float16; bfloat16 as its bits in uint16, with --elem bf16."
                             if values.dtype.itemsize == 2 else "")
        return values.reshape(values.shape[-3:]), words, array.where


def widened(values, words):
    return widen(values, "bf16") if words else values


def stored(values, words, elem, where):
    """The values in the trace's element type. Raises TraceError for values that are not finite before or after
    rounding."""
    with np.errstate(over="ignore"):  # checked below
        made = values if words and elem == "bf16" else narrow(widened(values, words), elem)
    if not np.isfinite(widened(made, elem == "bf16")).all():
        raise TraceError(f"holds values that are not finite as {elem}", where)
    return np.ascontiguousarray(made)


def rotated(rows, positions, inv_freq, layout):
    """Rows [heads, n, dim] rotated by RoPE, in float64: the pair (a, b) by angle t becomes (a cos t - b sin t, a sin t
    + b cos t)."""
    out = rows.astype("f8")
    angle = positions[:, None].astype("f8") * inv_freq[None, :].astype("f8")
    half = len(inv_freq)
    first, second = (slice(0, half), slice(half, 2 * half)) if layout == "half_split" else \
        (slice(0, 2 * half, 2), slice(1, 2 * half, 2))
    a, b = out[..., first].copy(), out[..., second].copy()
    out[..., first] = a * np.cos(angle) - b * np.sin(angle)
    out[..., second] = a * np.sin(angle) + b * np.cos(angle)
    return out.astype("f4")


def whole_list(run, name, count, default):
    if name not in run.lists:
        return default
    array = run.lists[name]
    if len(array.shape) != 1 or (count is not None and array.shape[0] != count) or array.dtype.kind not in "iu":
        raise TraceError(f"is {array.dtype} {list(array.shape)}, not {count if count is not None else ''} whole numbers",
                         array.where)
    values = array.read()
    if values.size and (values.min() < -1 or values.max() >= 1 << 31):
        raise TraceError("holds numbers out of range", array.where)
    return values.astype("i8")


def frequencies(run, options, config, head_dim):
    """(rotary_dim, inv_freq, theta)"""
    if options.layout == "none":
        return 0, np.zeros(0, "f4"), 0.0
    theta = options.theta
    if "inv_freq" in run.lists:
        array = run.lists["inv_freq"]
        if len(array.shape) != 1 or array.dtype.kind != "f" or array.bf16 or not 2 <= 2 * array.shape[0] <= head_dim:
            raise TraceError(f"is no list of at most {head_dim // 2} frequencies", array.where)
        return 2 * array.shape[0], array.read().astype("f4"), theta or 0.0
    rope = config.get("rope_parameters") or config
    if theta is None and (config.get("rope_scaling") or rope.get("rope_type", "default") != "default"):
        raise TraceError("scales RoPE; its frequencies are not computed here", options.config,
                         "Add an array inv_freq: the frequencies as the model used them.")
    theta = theta or rope.get("rope_theta")
    if not isinstance(theta, (int, float)) or not theta >= 1:
        raise TraceError("nothing says how fast RoPE turns", "--theta", "Add an array inv_freq, --theta, or --config.")
    dim = options.rotary_dim or head_dim
    return dim, (float(theta) ** -(np.arange(0, dim, 2) / dim)).astype("f4"), float(theta)


def model_of(run, options, config_text, config, ids):
    heads, head_dim = run.heads, run.shapes["k"][2]
    rotary_dim, inv_freq, theta = frequencies(run, options, config, head_dim)
    window = options.window * run.n_layers if len(options.window) == 1 else options.window
    if len(window) != run.n_layers:
        raise TraceError(f"{len(window)} windows for {run.n_layers} layers", "--window")

    def taken(name):
        value = config.get(name, 0)
        return value if type(value) is int and 0 < value < 1 << 31 else 0

    vocabulary = options.vocab_size or taken("vocab_size") or int(ids.max()) + 1
    hidden = run.shapes["wo"][2] if run.output_weights else taken("hidden_size")
    return Model(run.n_layers, heads, run.shapes["k"][0], head_dim, max(vocabulary, 1), v_head_dim=run.shapes["v"][2],
                 rotary_dim=rotary_dim, hidden_size=hidden, attn_scale=options.scale or 0.0, rope_theta=theta,
                 logit_softcap=options.softcap, rope_layout="half_split" if options.layout == "none" else options.layout,
                 name=options.name, model_type=str(config.get("model_type", "")), layer_window=window, inv_freq=inv_freq,
                 config_json=config_text)


def query_policy(query_token, tokens, prompt):
    """The name that kvsim capture gives to the stored queries: the last rows of the prompt, or a sample of them, and
    all generated ones."""
    if query_token is None:
        return "all"
    rows = int((query_token < prompt).sum())
    last = np.array_equal(query_token, np.arange(tokens - len(query_token), tokens))
    return f"window:{rows}" if last else f"sample:{rows}"


def write_rows(writer, run, tensor, layer, positions):
    """Writes all rows of q, k or v of a layer; rotates rows from before RoPE to their `positions`."""
    name, elem, model = run.names[tensor], writer.elem, writer.model
    values, words, where = run.read(name, layer, elem)
    for begin in range(0, values.shape[1], BLOCK_ROWS):
        block = values[:, begin:begin + BLOCK_ROWS]
        if name.endswith("_pre"):
            block = rotated(widened(block, words), positions[begin:begin + BLOCK_ROWS], model.inv_freq, model.rope_layout)
        writer.append(tensor, layer, stored(block, words and not name.endswith("_pre"), elem, where))


def write_output_weights(writer, run, layer):
    elem = run.elem_of("wo")
    if elem is None:
        raise TraceError("wo is not of one type that traces store", "arrays")
    values, words, where = run.read("wo", layer, elem)
    writer.put_output_weights(layer, stored(values, words, elem, where), elem)


def write_attention(writer, run, layer):
    """Writes the attention rows of the last tokens, each up to its own token."""
    values, words, where = run.read("attention", layer, "f32")
    rows, tokens = values.shape[1:]
    for i in range(rows):
        end = tokens - rows + i + 1
        p = widened(values[:, i, :end], words).astype("<f4")
        if not (p >= 0).all() or not (np.abs(p.sum(axis=1, dtype="f8") - 1) <= 1e-3).all():
            raise TraceError(f"the row of token {end - 1} is no distribution over the {end} tokens up to it", where,
                             "Expected softmax weights in float32, with what is beyond a row's own token at its end.")
        writer.append_attention(layer, 0, p)


def write_columns(writer, run, layer, prompt):
    """Writes the attention that each token of the prompt received from all of them."""
    found = []
    for name in COLUMNS:
        values, words, where = run.read(name, layer, "f32")
        values = widened(values, words).astype("<f4").reshape(run.shapes[name])
        if values.shape[1] != prompt:
            raise TraceError(f"counts {values.shape[1]} tokens; the prompt has {prompt}", where, "Column statistics are of a whole prompt.")
        if not (values >= 0).all() or not np.isfinite(values).all():
            raise TraceError("holds sums that are negative or not finite", where)
        found.append(values)
    writer.put_column_statistics(layer, *found)


def import_run(options, config_text, config):
    """Writes options.output; returns its model and its number of tokens."""
    run = Run(open_arrays(options.arrays))
    tokens = run.shapes["k"][1]
    rows = run.shapes["q"][1] if run.queries else tokens
    ids = whole_list(run, "token_ids", tokens, np.full(tokens, -1))
    positions = whole_list(run, "positions", tokens, np.arange(tokens))
    query_token = whole_list(run, "q_token", rows, None)
    if query_token is None and rows != tokens:
        raise TraceError(f"there are {rows} query rows for {tokens} tokens, and nothing says whose they are", "arrays",
                         "Add an array q_token: the token of each row.")
    if query_token is not None and not (np.diff(query_token, prepend=-1, append=tokens) > 0).all():
        raise TraceError(f"does not ascend within the {tokens} tokens", run.lists["q_token"].where)
    if rows == tokens:
        query_token = None
    attended = run.shapes["attention"][1] if run.attention else 0
    last = np.arange(tokens - attended, tokens)
    if not np.array_equal(whole_list(run, "attention_token", attended, last), last):
        raise TraceError(f"is not the last {attended} tokens", run.lists["attention_token"].where)
    prompt = options.prompt_tokens or tokens
    if prompt > tokens:
        raise TraceError(f"there are {tokens} tokens", "--prompt-tokens")
    kinds = {run.elem_of(name) for name in run.names.values()}
    elem = options.elem if options.elem != "auto" else kinds.pop() if len(kinds) == 1 else None
    if elem is None:
        raise TraceError("q, k and v are not of one type that traces store", "arrays", "Choose one: --elem f32, f16 or bf16.")
    model = model_of(run, options, config_text, config, ids)
    if run.rotate and model.rotary_dim == 0:
        raise TraceError("q_pre and k_pre are before RoPE, and there is none", "--layout none", "Call them q and k.")

    flags = np.where(np.arange(tokens) >= prompt, FLAGS["generated"], 0)
    segments = [Segment(prompt)] + ([Segment(tokens - prompt, 0, DECODE)] if prompt < tokens else [])
    source = options.source or ("npz" if options.arrays[0].endswith(".npz") else "safetensors")
    row_policy = "none" if attended == 0 else "full" if attended == tokens else f"window:{max(attended - tokens + prompt, 1)}"
    queried = query_policy(query_token, tokens, prompt) if run.queries else "none"
    header = Header(Capture("converted:" + source, q_policy=queried, row_policy=row_policy, sampling="unknown"),
                    ids, segments, token_position=positions, token_flags=flags, flags_known=FLAGS["generated"],
                    query_token=query_token, attention_token=last if attended else None,
                    writer="import_arrays")
    with TraceWriter(options.output, model, elem, overwrite=options.overwrite, queries=run.queries) as writer:
        for layer in range(run.n_layers):
            for short in run.names:
                at = positions if short != "q" or query_token is None else positions[query_token]
                write_rows(writer, run, short, layer, at)
            if run.output_weights:
                write_output_weights(writer, run, layer)
            if run.attention:
                write_attention(writer, run, layer)
            if run.columns:
                write_columns(writer, run, layer, prompt)
        writer.finish(header)
    return model, tokens
