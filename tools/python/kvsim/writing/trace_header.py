"""The header of a trace, everything besides its tensors (traces/format/SCHEMA.md): model, capture, segments, passes,
tokens."""
from dataclasses import dataclass, field

import numpy as np

from .trace_error import TraceError

MAX_CONFIG = 1 << 20
MAX_TOKENS = 1 << 24

# Phases of segments and passes, roles of segments, flags of tokens.
PROMPT, DECODE, TEACHER_FORCED = 0, 1, 2
ROLES = {"none": 0, "system": 1, "user": 2, "assistant": 3, "tool": 4, "document": 5}
FLAGS = {"special": 1 << 0, "markup": 1 << 1, "generated": 1 << 2, "question": 1 << 3, "context": 1 << 4,
         "evidence": 1 << 5, "white_space": 1 << 8, "punctuation": 1 << 9, "digit": 1 << 10, "end_of_turn": 1 << 11}


@dataclass
class Model:
    """Shape and arithmetic of the recorded model; the fields have the names of the attributes of /model."""
    n_layers: int
    n_q_heads: int
    n_kv_heads: int
    head_dim: int
    vocab_size: int
    v_head_dim: int = 0      # 0: the same as head_dim
    values_in_keys: bool = False  # values are the first v_head_dim components of keys, and are not stored
    rotary_dim: int = -1     # -1: all of head_dim
    first_rotated: int = 0   # the first component that RoPE turns
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
    chunked: bool = False      # windows are chunks: key j is seen by i iff j <= i and j // W == i // W
    inv_freq: list = None      # [rotations * rotary_dim / 2], after scaling; None: rope_theta ^ (-2 i / rotary_dim)
    layer_rotation: list = None   # [n_layers], which of several rotations; None: there is one
    rotation_factor: list = None  # rope_attention_factor of each of several
    sinks: list = None  # [n_layers * n_q_heads], the logit of each query head's sink; None: there are none
    config_json: bytes = b""

    def first_seen(self, layer, position):
        """The first key that the query at a position of its path sees; `position` may be an array of torch or numpy."""
        window = self.layer_window[layer]
        if window < 0:
            return position * 0
        first = position - position % window if self.chunked else position + 1 - window
        return first * (first > 0)

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
    """Provenance: what recorded the trace, and how; the fields have the names of the attributes of /capture."""
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
    rank: str = ""
    threads: int = 0
    prefill_chunk: int = 0
    seed: int = 0
    rope_fp32: bool = True
    teacher_forced: bool = False


@dataclass
class Segment:
    """A contiguous span of computed tokens. Its first token and its path follow from the order of segments."""
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
    """Everything a trace stores besides tensors and model."""
    capture: Capture
    token_id: list
    segments: list
    passes: list = field(default_factory=list)
    sequence_leaf: list = None  # None: every segment without a child
    token_position: list = None  # None: the index along the path
    token_flags: list = None
    flags_known: int = 0
    token_logprob: list = None  # NaN for a given token
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


def segment_begins(segments):
    return np.concatenate([[0], np.cumsum([segment.count for segment in segments])])


def path_lengths(segments):
    """Number of tokens in all ancestors of each segment."""
    lengths = []
    for segment in segments:
        parent = segment.parent
        lengths.append(0 if parent < 0 else lengths[parent] + segments[parent].count)
    return lengths


def token_positions(header):
    if header.token_position is not None:
        return np.asarray(header.token_position)
    return np.concatenate([np.arange(first, first + segment.count)
                           for first, segment in zip(path_lengths(header.segments), header.segments)])


def require(holds, what, where):
    if not holds:
        raise TraceError(what, where)


def check_model(model, where):
    require(1 <= model.n_layers <= 1024, f"n_layers is {model.n_layers}, not within 1 to 1024", where)
    require(1 <= model.n_kv_heads <= model.n_q_heads <= 1024 and model.n_q_heads % model.n_kv_heads == 0,
            f"{model.n_q_heads} query heads do not share {model.n_kv_heads} KV heads evenly, or are over 1024", where)
    require(1 <= model.head_dim <= 1024 and 1 <= model.v_head_dim <= 1024, "head_dim is not within 1 to 1024", where)
    require(model.rotary_dim + model.first_rotated <= model.head_dim and model.rotary_dim % 2 == 0,
            "rotary_dim is odd or larger than head_dim", where)
    require(model.v_head_dim <= model.head_dim if model.values_in_keys else model.first_rotated == 0,
            "values_in_keys, v_head_dim and first_rotated do not fit", where)
    rotations = 1 if model.layer_rotation is None else len(model.rotation_factor)
    require(len(model.inv_freq) == rotations * (model.rotary_dim // 2),
            "inv_freq has not rotary_dim / 2 entries for each rotation", where)
    require(model.layer_rotation is None or len(model.layer_rotation) == model.n_layers
            and all(0 <= rotation < rotations for rotation in model.layer_rotation),
            "layer_rotation is not the number of a rotation for each layer", where)
    require(len(model.layer_window) == model.n_layers and all(w == -1 or w > 0 for w in model.layer_window),
            "layer_window is not -1 or a window for each layer", where)
    require(model.sinks is None or (len(model.sinks) == model.n_layers * model.n_q_heads and np.isfinite(model.sinks).all()),
            "sinks are not a finite number for each query head of each layer", where)
    require(len(model.config_json) <= MAX_CONFIG, "config_json is larger than 1 MiB", where)
    require(model.rope_layout in ("half_split", "interleaved"), "rope_layout is neither half_split nor interleaved",
            where)


def check_header(header, model, where):
    """Raises TraceError for a header that kvsim would refuse, before the file gets its name."""
    count = len(header.token_id)
    ids = np.asarray(header.token_id)
    require(1 <= count <= MAX_TOKENS, f"{count} tokens, not within 1 to {MAX_TOKENS}", where)
    require(ids.min() >= -1 and ids.max() < model.vocab_size, "a token id is outside the vocabulary", where)
    require(sum(segment.count for segment in header.segments) == count, "segments do not cover the tokens", where)
    for index, segment in enumerate(header.segments):
        require(segment.count > 0 and -1 <= segment.parent < index,
                f"segment {index} is empty or comes before its parent", where)
    positions, begins = token_positions(header), segment_begins(header.segments)
    for name in ("token_position", "token_flags", "token_logprob", "token_text"):
        values = getattr(header, name)
        require(values is None or len(values) == count, f"{name} has not one entry per token", where)
    for index, segment in enumerate(header.segments):
        path = positions[begins[index]:begins[index + 1]]
        before = positions[begins[segment.parent + 1] - 1] if segment.parent >= 0 else -1
        require(path[0] > before and np.all(np.diff(path) > 0), f"positions of segment {index} do not ascend", where)
    for name in ("query_token", "attention_token"):
        rows = getattr(header, name)
        if rows is not None and len(rows):
            rows = np.asarray(rows)
            require(rows[0] >= 0 and rows[-1] < count and np.all(np.diff(rows) > 0),
                    f"{name} are not ascending tokens of the trace", where)
    require(header.query_token is None or len(header.query_token) > 0, "no query row is stored", where)
