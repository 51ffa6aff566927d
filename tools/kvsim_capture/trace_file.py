"""Writes trace files (`kvtrace`, traces/SCHEMA.md) with h5py and numpy alone.

    with TraceWriter("run.h5", model, "bf16") as writer:
        writer.append("k", layer, words)        # [heads, n, dim], as often as wanted, in token order
        ...
        writer.finish(header)                   # the file gets its name here, and only here

Tensors are handed over as they are stored: float32, float16, or uint16 holding bfloat16 bits (`narrow` makes any of
them from floats). Memory: one chunk of every tensor, about 128 KiB per head.
"""
import contextlib
import errno
import fcntl
import hashlib
import os
from dataclasses import dataclass, field

import numpy as np
from h5py import h5a, h5d, h5f, h5g, h5p, h5s, h5t

SCHEMA_MAJOR, SCHEMA_MINOR = 1, 3
MAX_TEXT = 32768
MAX_CONFIG = 1 << 20
MAX_TOKENS = 1 << 24
ATTENTION_CHUNK = 65536

# Bits of the root attribute `features`.
ALL_QUERIES, SOME_QUERIES, ATTENTION_ROWS, TIMES = 1 << 0, 1 << 1, 1 << 2, 1 << 4
COLUMN_STATISTICS, TEXT, OUTPUT_WEIGHTS = 1 << 5, 1 << 6, 1 << 7

# Phases of segments and passes, roles of segments, flags of tokens.
PROMPT, DECODE, TEACHER_FORCED = 0, 1, 2
ROLES = {"none": 0, "system": 1, "user": 2, "assistant": 3, "tool": 4, "document": 5}
FLAGS = {"special": 1 << 0, "markup": 1 << 1, "generated": 1 << 2, "question": 1 << 3, "context": 1 << 4,
         "evidence": 1 << 5, "white_space": 1 << 8, "punctuation": 1 << 9, "digit": 1 << 10, "end_of_turn": 1 << 11}

WORDS = {"f32": np.dtype("<f4"), "f16": np.dtype("<f2"), "bf16": np.dtype("<u2")}


class TraceError(Exception):
    """What is wrong, where, and what to do about it."""

    def __init__(self, what, where="", hint=""):
        super().__init__((f"{where}: " if where else "") + what + (f"\n  {hint}" if hint else ""))


@dataclass
class Model:
    """Shape and arithmetic of the recorded model: the attributes of /model by the same names."""
    n_layers: int
    n_q_heads: int
    n_kv_heads: int
    head_dim: int
    vocab_size: int
    v_head_dim: int = 0      # 0: as head_dim
    rotary_dim: int = -1     # -1: all of head_dim
    hidden_size: int = 0     # 0: unknown
    attn_scale: float = 0.0  # 0: 1 / sqrt(head_dim)
    norm_eps: float = 0.0
    rope_theta: float = 0.0
    rope_attention_factor: float = 1.0
    logit_softcap: float = 0.0
    rope_type: str = "default"
    rope_layout: str = "half_split"
    qk_norm: bool = False
    qkv_bias: bool = False
    tied_embeddings: bool = False
    name: str = ""
    revision: str = ""
    model_type: str = ""
    architecture: str = ""
    weights_sha256: str = ""
    layer_window: list = None  # [n_layers], -1: full attention; None: all full
    inv_freq: list = None      # [rotary_dim / 2], after scaling; None: rope_theta ^ (-2 i / rotary_dim)
    config_json: bytes = b""

    def __post_init__(self):
        self.v_head_dim = self.v_head_dim or self.head_dim
        self.attn_scale = self.attn_scale or self.head_dim ** -0.5
        if self.rotary_dim < 0:
            self.rotary_dim = self.head_dim
        if self.layer_window is None:
            self.layer_window = [-1] * self.n_layers
        if self.inv_freq is None:
            exponents = np.arange(0, self.rotary_dim, 2) / max(self.rotary_dim, 1)
            self.inv_freq = (self.rope_theta or 10000.0) ** -exponents


@dataclass
class Capture:
    """Who recorded it, how: the attributes of /capture by the same names."""
    source: str
    device_name: str = ""
    device_kind: str = ""
    cpu_model: str = ""
    software: str = ""
    compute_dtype: str = ""
    accum_dtype: str = ""
    math_mode: str = ""
    attention_kernel: str = ""
    sampling: str = "greedy"
    q_policy: str = "all"
    row_policy: str = "none"
    verified: str = ""
    workload: str = ""
    workload_item: str = ""
    driver: str = ""
    cuda_version: str = ""
    threads: int = 0
    prefill_chunk: int = 0
    seed: int = 0
    rope_fp32: bool = True
    teacher_forced: bool = False


@dataclass
class Segment:
    """A contiguous computed span of tokens. Its first token and its path follow from the order of segments."""
    count: int
    parent: int = -1  # index of an earlier segment; -1: root
    phase: int = PROMPT
    turn: int = 0
    role: int = 0


@dataclass
class Pass:
    """One forward call over tokens [begin, begin + q_len) of a segment."""
    segment: int
    begin: int
    q_len: int
    start_ns: int = 0
    dur_ns: int = 0


@dataclass
class Header:
    """Everything a trace says besides tensors and model."""
    capture: Capture
    token_id: list
    segments: list
    passes: list = field(default_factory=list)
    sequence_leaf: list = None  # None: every segment that no other continues
    token_position: list = None  # None: the place along the path
    token_flags: list = None
    flags_known: int = 0
    token_logprob: list = None  # NaN: the token was given
    token_text: list = None     # bytes of each token
    query_token: list = None    # token of each stored query row, ascending; None: every token has one
    attention_token: list = None
    layer_ns: list = None  # [passes][layers]: whole layer
    attn_ns: list = None   # [passes][layers]: its attention
    tokenizer_name: str = ""
    tokenizer_sha256: str = ""
    file_uuid: str = ""
    created_utc: str = ""
    writer: str = "kvsim_capture"


def narrow(values, elem):
    """Floats as they are stored: float32, float16, or the bits of bfloat16 (nearest, ties to even) as uint16."""
    values = np.ascontiguousarray(values)
    if elem != "bf16":
        return values.astype(WORDS[elem], copy=False)
    bits = values.astype("<f4", copy=False).view("<u4")
    rounded = ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype("<u2")
    return np.where(np.isnan(values), ((bits >> 16) | 0x40).astype("<u2"), rounded)


def chunk_rows(dim, elem):
    """Rows per chunk: about 128 KiB of one head, a power of two."""
    rows = max(131072 // (dim * WORDS[elem].itemsize), 1)
    return min(max(1 << (rows.bit_length() - 1), 64), 4096)


def _file_type(elem):
    """The HDF5 type of stored elements. Before 1.14 HDF5 has no name for the 16-bit ones."""
    if elem == "f32":
        return h5t.IEEE_F32LE
    exponent, bias = (8, 127) if elem == "bf16" else (5, 15)
    made = h5t.IEEE_F32LE.copy()
    made.set_fields(15, 15 - exponent, exponent, 0, 15 - exponent)  # before the size, which may not cut fields
    made.set_size(2)
    made.set_ebias(bias)
    return made


def _put_text(place, name, text):
    text = text.encode() if isinstance(text, str) else bytes(text)
    if len(text) > MAX_TEXT or b"\0" in text:
        raise TraceError("is longer than 32 KiB or holds a NUL", f"attribute {name}")
    kind = h5t.C_S1.copy()
    kind.set_size(max(len(text), 1))
    kind.set_strpad(h5t.STR_NULLPAD)
    kind.set_cset(h5t.CSET_UTF8)
    attribute = h5a.create(place, name.encode(), kind, h5s.create(h5s.SCALAR))
    attribute.write(np.array(text, dtype=f"S{max(len(text), 1)}"), mtype=kind)


def _put(place, name, dtype, value):
    value = np.array(value, dtype=dtype)
    h5a.create(place, name.encode(), h5t.py_create(value.dtype), h5s.create(h5s.SCALAR)).write(value)


def _without_times(list_class):
    """A creation list that records no times: the same run gives the same bytes."""
    creation = h5p.create(list_class)
    creation.set_obj_track_times(False)
    return creation


def _put_list(place, name, dtype, values, shape=None):
    """A whole dataset at once, contiguous."""
    values = np.ascontiguousarray(values, dtype=dtype)
    values = values.reshape(shape if shape is not None else (-1,))
    creation = _without_times(h5p.DATASET_CREATE)
    creation.set_fill_time(h5d.FILL_TIME_NEVER)
    dataset = h5d.create(place, name.encode(), h5t.py_create(values.dtype), h5s.create_simple(values.shape),
                         dcpl=creation)
    if values.size:
        dataset.write(h5s.ALL, h5s.ALL, values)


def _create_group(place, name):
    return h5g.create(place, name.encode(), gcpl=_without_times(h5p.GROUP_CREATE))


class _RowStream:
    """Rows of all heads of one dataset on their way to the file, in whole chunks. The dataset is created with its first
    chunk, so that a short trace gets one chunk of just its size."""

    def __init__(self, group, name, elem, heads, dim, rows_per_chunk, checksum, third_axis=True):
        self._group, self._name, self._elem, self._checksum = group, name, elem, checksum
        self._heads, self._dim, self._chunk = heads, dim, rows_per_chunk
        self._third_axis = third_axis
        self._buffer = None
        self._filled = self._flushed = 0
        self._dataset = None
        self._digests = [hashlib.sha256() for _ in range(heads)]

    @property
    def rows(self):
        return self._flushed + self._filled

    def append(self, rows):
        """`rows`: [heads, n, dim] of the stored type."""
        if rows.dtype != WORDS[self._elem] or rows.ndim != 3 or rows.shape[0] != self._heads or rows.shape[2] != self._dim:
            raise TraceError(f"takes {WORDS[self._elem]} [{self._heads}, n, {self._dim}], not {rows.dtype} "
                             f"{list(rows.shape)}", self._name, "narrow(values, elem) gives the stored type.")
        if self._buffer is None:
            self._buffer = np.zeros((self._heads, self._chunk, self._dim), WORDS[self._elem])
        done = 0
        while done < rows.shape[1]:
            take = min(rows.shape[1] - done, self._chunk - self._filled)
            block = self._buffer[:, self._filled:self._filled + take]
            block[...] = rows[:, done:done + take]
            for head, digest in enumerate(self._digests):
                digest.update(block[head])
            self._filled += take
            done += take
            if self._filled == self._chunk:
                self._flush()

    def finish(self):
        """Stores what is left and returns the digest."""
        total = self.rows
        if self._dataset is None:
            self._chunk = max(self._filled, 1)
            if self._buffer is not None:
                self._buffer = np.ascontiguousarray(self._buffer[:, :self._chunk])
            self._create()
            if self._filled:
                self._flush()
        elif self._filled:
            self._buffer[:, self._filled:] = 0
            self._flush()
            self._dataset.set_extent(self._extent(total))
        digest = hashlib.sha256("".join(head.hexdigest() for head in self._digests).encode()).hexdigest()
        _put_text(self._dataset, "elem", self._elem)
        _put_text(self._dataset, "sha256", digest)
        self._dataset = self._buffer = None
        return digest

    def _extent(self, rows):
        return (self._heads, rows, self._dim)[:3 if self._third_axis else 2]

    def _create(self):
        creation = _without_times(h5p.DATASET_CREATE)
        creation.set_chunk((1,) + self._extent(self._chunk)[1:])
        creation.set_fill_time(h5d.FILL_TIME_NEVER)
        if self._checksum:
            creation.set_fletcher32()
        # Whole chunks gain nothing from a cache, and without one a full disk shows at the write that met it.
        access = h5p.create(h5p.DATASET_ACCESS)
        access.set_chunk_cache(1, 0, 0.0)
        limit = list(self._extent(0))
        limit[1] = h5s.UNLIMITED
        self._dataset = h5d.create(self._group, self._name.encode(), _file_type(self._elem),
                                   h5s.create_simple(self._extent(0), tuple(limit)), dcpl=creation, dapl=access)

    def _flush(self):
        if self._dataset is None:
            self._create()
        count = self._extent(self._chunk)
        start = tuple(self._flushed if axis == 1 else 0 for axis in range(len(count)))
        self._dataset.set_extent(self._extent(self._flushed + self._chunk))
        space = self._dataset.get_space()
        space.select_hyperslab(start, count)
        # Memory type = stored type: libhdf5 converts nothing.
        self._dataset.write(h5s.create_simple(count), space, self._buffer, _file_type(self._elem))
        self._flushed += self._filled
        self._filled = 0


class _Layer:
    def __init__(self, group, model, elem, checksum):
        def stream(name, heads, dim):
            return _RowStream(group, name, elem, heads, dim, chunk_rows(dim, elem), checksum)

        self.group = group
        self.streams = {"k": stream("k", model.n_kv_heads, model.head_dim),
                        "v": stream("v", model.n_kv_heads, model.v_head_dim),
                        "q": stream("q", model.n_q_heads, model.head_dim)}
        self.rows_group = self.rows = None
        self.first_key, self.ptr = [], [0]
        self.has_output_weights = False
        self.counted_tokens = 0


class TraceWriter:
    """A new trace. It grows as PATH.partial; finish() gives it its name. Left without finish() (by an exception, or
    discard()) the partial is removed. Not for several threads at once.

    `elem`: f32, f16 or bf16, of every q, k and v. Raises TraceError; OSError where the disk fails.
    """

    def __init__(self, path, model, elem, overwrite=False, checksum=True):
        self.path, self.model, self.elem = os.fspath(path), model, elem
        self._partial, self._overwrite, self._checksum = self.path + ".partial", overwrite, checksum
        self._file = None
        _check_model(model, self.path)
        if elem not in WORDS:
            raise TraceError(f"unknown element type \"{elem}\"", self.path, "Expected f32, f16 or bf16.")
        if not overwrite and os.path.lexists(self.path):
            raise TraceError("exists already", self.path, "Choose another name, or overwrite it on purpose.")
        if not os.path.isdir(os.path.dirname(self.path) or "."):
            raise TraceError("cannot be created: its folder does not exist", self.path)
        _claim(self._partial, overwrite)
        access = h5p.create(h5p.FILE_ACCESS)
        # From 1.10 on metadata carry checksums and an unclosed file refuses to open.
        access.set_libver_bounds(h5f.LIBVER_V110, h5f.LIBVER_V110)
        access.set_alignment(65536, 4096)
        access.set_fclose_degree(h5f.CLOSE_STRONG)
        self._file = h5f.create(self._partial.encode(), h5f.ACC_EXCL, _without_times(h5p.FILE_CREATE), access)
        try:
            _put(self._file, "complete", "u1", 0)
            self._layers_group = _create_group(self._file, "layers")
            self._layers = [_Layer(_create_group(self._layers_group, f"{layer:04d}"), model, elem, checksum)
                            for layer in range(model.n_layers)]
        except BaseException:
            self.discard()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.discard()

    def discard(self):
        """Removes what was written, unless finish() came first."""
        if self._file is None:
            return
        self._layers = self._layers_group = None
        with contextlib.suppress(Exception):
            self._file.close()
        self._file = None
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._partial)

    def append(self, tensor, layer, rows):
        """The next rows of q, k or v of a layer: [heads, n, dim] of the stored type."""
        self._layers[layer].streams[tensor].append(rows)

    def append_attention(self, layer, first_key, p):
        """The next attention row of a layer: probabilities [n_q_heads, n] (float32) of the keys from `first_key`,
        counted along the path of the row's token, up to the token itself."""
        target = self._layers[layer]
        if target.rows is None:
            target.rows_group = _create_group(target.group, "rows")
            target.rows = _RowStream(target.rows_group, "p", "f32", self.model.n_q_heads, 1, ATTENTION_CHUNK,
                                     self._checksum, third_axis=False)
        target.rows.append(np.ascontiguousarray(p, dtype="<f4")[:, :, None])
        target.first_key.append(first_key)
        target.ptr.append(target.ptr[-1] + p.shape[1])

    def put_output_weights(self, layer, weights, elem):
        """A layer's output projection: [n_q_heads, v_head_dim, hidden_size] of the stored type of `elem`."""
        model, target = self.model, self._layers[layer]
        stream = _RowStream(target.group, "wo", elem, model.n_q_heads, model.hidden_size,
                            chunk_rows(model.hidden_size, elem), self._checksum)
        stream.append(weights)
        stream.finish()
        target.has_output_weights = True

    def put_column_statistics(self, layer, total, squares):
        """Sum and sum of squares of the attention that each of the first C tokens received from all of them: float32
        [n_q_heads, C]."""
        target = self._layers[layer]
        group = _create_group(target.group, "column")
        for name, values in (("sum", total), ("sum_squares", squares)):
            stream = _RowStream(group, name, "f32", self.model.n_q_heads, 1, ATTENTION_CHUNK, self._checksum,
                                third_axis=False)
            stream.append(np.ascontiguousarray(values)[:, :, None])
            stream.finish()
        target.counted_tokens = total.shape[1]

    def finish(self, header):
        """Writes `header`, closes the file and gives it its name."""
        _check_header(header, self.model, self.path)
        self._check_rows(header)
        digests = [self._finish_layer(index, layer, header) for index, layer in enumerate(self._layers)]
        token_id = np.ascontiguousarray(header.token_id, dtype="<i4")
        content = hashlib.sha256(hashlib.sha256(token_id).hexdigest().encode())
        for digest in digests:
            content.update(digest.encode())
        self._write_root(header, content.hexdigest())
        self._layers = self._layers_group = None
        _write_model(_create_group(self._file, "model"), self.model)
        _write_capture(_create_group(self._file, "capture"), header.capture)
        tokenizer = _create_group(self._file, "tokenizer")
        _put_text(tokenizer, "name", header.tokenizer_name)
        _put_text(tokenizer, "sha256", header.tokenizer_sha256)
        _write_tokens(self._file, header)
        _write_segments(self._file, header, token_id)
        _write_passes(self._file, header, self.model.n_layers)
        self._commit()

    def _check_rows(self, header):
        n_queries = len(header.token_id) if header.query_token is None else len(header.query_token)
        n_attention = 0 if header.attention_token is None else len(header.attention_token)
        expected = {"k": len(header.token_id), "v": len(header.token_id), "q": n_queries}
        for index, layer in enumerate(self._layers):
            found = {name: stream.rows for name, stream in layer.streams.items()}
            if found != expected or len(layer.first_key) != n_attention:
                raise TraceError(f"layer {index} has {found} rows and {len(layer.first_key)} attention rows, not "
                                 f"{expected} and {n_attention}", self.path)
            if layer.has_output_weights != self._layers[0].has_output_weights:
                raise TraceError("output weights are in some layers only", self.path)
            if layer.counted_tokens != self._layers[0].counted_tokens:
                raise TraceError("column statistics are in some layers only", self.path)
        self._check_counted(header)

    def _check_counted(self, header):
        """The first tokens: the whole prompt of the first sequence, its segments one after the other."""
        counted = self._layers[0].counted_tokens
        for index, segment in enumerate(header.segments):
            if counted <= 0:
                break
            _require(segment.phase == PROMPT and segment.parent == index - 1,
                     "column statistics count tokens that are not of one prompt", self.path)
            counted -= segment.count
        _require(counted == 0, "column statistics count a part of a segment", self.path)

    def _finish_layer(self, index, layer, header):
        """Returns the digests of k, v and q as one text."""
        model = self.model
        _put(layer.group, "layer", "<u4", index)
        for name in ("n_q_heads", "n_kv_heads", "head_dim"):
            _put(layer.group, name, "<u4", getattr(model, name))
        _put(layer.group, "window", "<i4", model.layer_window[index])
        digests = "".join(layer.streams[name].finish() for name in ("k", "v", "q"))
        if header.query_token is not None:
            _put_list(layer.group, "q_token", "<u8", header.query_token)
        if layer.rows is not None:
            layer.rows.finish()
            _put_list(layer.rows_group, "token", "<u8", header.attention_token)
            _put_list(layer.rows_group, "first_key", "<u8", layer.first_key)
            _put_list(layer.rows_group, "ptr", "<u8", layer.ptr)
        return digests

    def _write_root(self, header, content_sha256):
        features = ALL_QUERIES if header.query_token is None else SOME_QUERIES
        features |= ATTENTION_ROWS if self._layers[0].rows is not None else 0
        features |= TIMES if header.layer_ns is not None or header.attn_ns is not None else 0
        features |= COLUMN_STATISTICS if self._layers[0].counted_tokens else 0
        features |= TEXT if header.token_text is not None else 0
        features |= OUTPUT_WEIGHTS if self._layers[0].has_output_weights else 0
        root = self._file
        _put_text(root, "format", "kvtrace")
        _put(root, "schema_major", "<u2", SCHEMA_MAJOR)
        _put(root, "schema_minor", "<u2", SCHEMA_MINOR)
        for name in ("file_uuid", "created_utc", "writer"):
            _put_text(root, name, getattr(header, name))
        _put(root, "n_tokens", "<u8", len(header.token_id))
        _put(root, "n_segments", "<u4", len(header.segments))
        _put(root, "n_passes", "<u4", len(header.passes))
        _put(root, "features", "<u8", features)
        _put_text(root, "content_sha256", content_sha256)

    def _commit(self):
        h5f.flush(self._file)
        h5a.open(self._file, b"complete").write(np.array(1, "u1"))
        h5f.flush(self._file)
        self._file.close()
        descriptor = os.open(self._partial, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if not self._overwrite and os.path.lexists(self.path):
            raise TraceError("appeared while this run was writing it", self.path)
        os.rename(self._partial, self.path)
        self._file = None
        directory = os.open(os.path.dirname(self.path) or ".", os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
        finally:
            os.close(directory)


def _claim(partial, overwrite):
    """Makes sure that `partial` does not exist. Its lock tells a file being written from one left by a killed run."""
    try:
        descriptor = os.open(partial, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise TraceError("is being written by another process", partial) from None
    finally:
        os.close(descriptor)
    if not overwrite:
        raise TraceError("is left over from a run that was killed", partial, "Remove it, or overwrite it on purpose.")
    os.unlink(partial)


def _write_model(place, model):
    for name in ("name", "revision", "model_type", "architecture", "rope_type", "rope_layout", "weights_sha256"):
        _put_text(place, name, getattr(model, name))
    for name in ("n_layers", "n_q_heads", "n_kv_heads", "head_dim", "v_head_dim", "rotary_dim", "hidden_size",
                 "vocab_size"):
        _put(place, name, "<u4", getattr(model, name))
    for name in ("attn_scale", "norm_eps", "rope_theta", "rope_attention_factor", "logit_softcap"):
        _put(place, name, "<f8", getattr(model, name))
    for name in ("qk_norm", "qkv_bias", "tied_embeddings"):
        _put(place, name, "u1", getattr(model, name))
    _put_list(place, "layer_window", "<i4", model.layer_window)
    _put_list(place, "inv_freq", "<f4", model.inv_freq)
    _put_list(place, "config_json", "u1", np.frombuffer(model.config_json, "u1"))


def _write_capture(place, capture):
    for name in ("source", "device_name", "device_kind", "cpu_model", "software", "compute_dtype", "accum_dtype",
                 "math_mode", "attention_kernel", "sampling", "q_policy", "row_policy", "verified"):
        _put_text(place, name, getattr(capture, name))
    _put_text(place, "layers_kept", "all")
    for name in ("workload", "workload_item", "driver", "cuda_version"):
        if getattr(capture, name):
            _put_text(place, name, getattr(capture, name))
    _put(place, "threads", "<u4", capture.threads)
    _put(place, "prefill_chunk", "<u4", capture.prefill_chunk)
    _put(place, "seed", "<u8", capture.seed)
    _put(place, "rope_fp32", "u1", capture.rope_fp32)
    _put(place, "teacher_forced", "u1", capture.teacher_forced)


def _begins(segments):
    return np.concatenate([[0], np.cumsum([segment.count for segment in segments])])


def _path_lengths(segments):
    """Tokens in all ancestors of each segment."""
    lengths = []
    for segment in segments:
        parent = segment.parent
        lengths.append(0 if parent < 0 else lengths[parent] + segments[parent].count)
    return lengths


def _positions(header):
    if header.token_position is not None:
        return np.asarray(header.token_position)
    return np.concatenate([np.arange(first, first + segment.count)
                           for first, segment in zip(_path_lengths(header.segments), header.segments)])


def _write_tokens(file, header):
    count = len(header.token_id)
    place = _create_group(file, "tokens")
    _put(place, "flags_known", "<u4", header.flags_known)
    _put_list(place, "id", "<i4", header.token_id)
    _put_list(place, "segment", "<u4", np.repeat(np.arange(len(header.segments)), [s.count for s in header.segments]))
    _put_list(place, "position", "<i4", _positions(header))
    _put_list(place, "flags", "<u4", np.zeros(count) if header.token_flags is None else header.token_flags)
    if header.token_logprob is not None:
        _put_list(place, "logprob", "<f4", header.token_logprob)
    if header.token_text is not None:
        text = _create_group(file, "text")
        _put_list(text, "offset", "<u8", np.concatenate([[0], np.cumsum([len(t) for t in header.token_text])]))
        _put_list(text, "bytes", "u1", np.frombuffer(b"".join(header.token_text), "u1"))


def _write_segments(file, header, token_id):
    segments, begins = header.segments, _begins(header.segments)
    place = _create_group(file, "segments")
    for name, dtype in (("parent", "<i4"), ("count", "<u4"), ("phase", "u1"), ("turn", "<u2"), ("role", "u1")):
        _put_list(place, name, dtype, [getattr(segment, name) for segment in segments])
    _put_list(place, "begin", "<u8", begins[:-1])
    _put_list(place, "path_len", "<u4", _path_lengths(segments))
    digests = []
    for index, segment in enumerate(segments):
        path = hashlib.sha256(digests[segment.parent] if segment.parent >= 0 else b"")
        path.update(token_id[begins[index]:begins[index + 1]])
        digests.append(path.digest())
    _put_list(place, "sha256", "u1", np.frombuffer(b"".join(digests), "u1"), (len(segments), 32))
    leaves = header.sequence_leaf
    if leaves is None:
        leaves = sorted(set(range(len(segments))) - {segment.parent for segment in segments})
    _put_list(_create_group(file, "sequences"), "leaf", "<u4", leaves)


def _write_passes(file, header, n_layers):
    place = _create_group(file, "passes")
    begins, paths = _begins(header.segments), _path_lengths(header.segments)
    passes = header.passes
    past = [paths[p.segment] + p.begin - begins[p.segment] for p in passes]
    _put_list(place, "segment", "<u4", [p.segment for p in passes])
    _put_list(place, "begin", "<u8", [p.begin for p in passes])
    _put_list(place, "q_len", "<u4", [p.q_len for p in passes])
    _put_list(place, "past_len", "<u4", past)
    _put_list(place, "phase", "u1", [header.segments[p.segment].phase for p in passes])
    _put_list(place, "start_ns", "<i8", [p.start_ns for p in passes])
    _put_list(place, "dur_ns", "<i8", [p.dur_ns for p in passes])
    times = {name: getattr(header, name) for name in ("layer_ns", "attn_ns") if getattr(header, name) is not None}
    timing = _create_group(file, "timing") if times else None
    for name, values in times.items():
        _put_list(timing, name, "<f4", values, (len(passes), n_layers))


def _require(holds, what, where):
    if not holds:
        raise TraceError(what, where)


def _check_model(model, where):
    _require(1 <= model.n_layers <= 1024, f"n_layers is {model.n_layers}, not within 1 to 1024", where)
    _require(1 <= model.n_kv_heads <= model.n_q_heads <= 1024 and model.n_q_heads % model.n_kv_heads == 0,
             f"{model.n_q_heads} query heads do not share {model.n_kv_heads} KV heads evenly, or are over 1024", where)
    _require(1 <= model.head_dim <= 1024 and 1 <= model.v_head_dim <= 1024, "head_dim is not within 1 to 1024", where)
    _require(model.rotary_dim <= model.head_dim and model.rotary_dim % 2 == 0,
             "rotary_dim is odd or larger than head_dim", where)
    _require(len(model.inv_freq) == model.rotary_dim // 2, "inv_freq has not rotary_dim / 2 entries", where)
    _require(len(model.layer_window) == model.n_layers and all(w == -1 or w > 0 for w in model.layer_window),
             "layer_window is not -1 or a window for each layer", where)
    _require(len(model.config_json) <= MAX_CONFIG, "config_json is larger than 1 MiB", where)
    _require(model.rope_layout in ("half_split", "interleaved"), "rope_layout is neither half_split nor interleaved",
             where)


def _check_header(header, model, where):
    """What kvsim would refuse, found before the file gets its name."""
    count = len(header.token_id)
    ids = np.asarray(header.token_id)
    _require(1 <= count <= MAX_TOKENS, f"{count} tokens, not within 1 to {MAX_TOKENS}", where)
    _require(ids.min() >= -1 and ids.max() < model.vocab_size, "a token id is outside the vocabulary", where)
    _require(sum(segment.count for segment in header.segments) == count, "segments do not cover the tokens", where)
    for index, segment in enumerate(header.segments):
        _require(segment.count > 0 and -1 <= segment.parent < index,
                 f"segment {index} is empty or comes before its parent", where)
    positions, begins = _positions(header), _begins(header.segments)
    for name in ("token_position", "token_flags", "token_logprob", "token_text"):
        values = getattr(header, name)
        _require(values is None or len(values) == count, f"{name} has not one entry per token", where)
    for index, segment in enumerate(header.segments):
        path = positions[begins[index]:begins[index + 1]]
        before = positions[begins[segment.parent + 1] - 1] if segment.parent >= 0 else -1
        _require(path[0] > before and np.all(np.diff(path) > 0), f"positions of segment {index} do not ascend", where)
    for name in ("query_token", "attention_token"):
        rows = getattr(header, name)
        if rows is not None and len(rows):
            rows = np.asarray(rows)
            _require(rows[0] >= 0 and rows[-1] < count and np.all(np.diff(rows) > 0),
                     f"{name} are not ascending tokens of the trace", where)
    _require(header.query_token is None or len(header.query_token) > 0, "no query row is stored", where)
