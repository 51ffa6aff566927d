"""Recorded runs as arrays."""
from __future__ import annotations

import os
from typing import Any

import numpy as np

from . import _core


def _whole(text: str) -> str:
    """The text, which is read up to a zero byte where files are opened: another file then."""
    if "\0" in text:
        _core.refuse("holds a zero byte, behind which no name of a file goes on", repr(text), "Leave it out.")
    return text


class Trace:
    """A trace file. Structure is checked when it is opened; tensors are read, and their digests verified, when they are asked for.

    Tokens come in file order, keys after RoPE. `model` and `capture` say what was recorded and how; `segments` how tokens follow
    each other (traces/format/SCHEMA.md).
    """

    def __init__(self, path: str | os.PathLike):
        self.path = _whole(os.fsdecode(path))
        self._open = _core.OpenTrace(self.path)
        self.model: dict[str, Any] = self._open.model
        self.capture: dict[str, Any] = self._open.capture
        self.segments: list[dict[str, Any]] = self._open.segments
        self.content_sha256: str = self._open.content_sha256
        self.elem: str = self._open.elem
        """The type that tensors are stored in: f32, f16 or bf16."""

    def __fspath__(self) -> str:
        return self.path

    def __reduce__(self):
        return (Trace, (self.path,))

    @property
    def n_layers(self) -> int:
        return self.model["n_layers"]

    @property
    def n_tokens(self) -> int:
        return len(self._open.token_id)

    @property
    def tokens(self) -> np.ndarray:
        """Token ids, int32 [n_tokens]; -1 where withheld."""
        return self._open.token_id

    @property
    def positions(self) -> np.ndarray:
        """RoPE positions, int32 [n_tokens]."""
        return self._open.token_position

    @property
    def flags(self) -> np.ndarray:
        """What kinds of text tokens are, as bits, uint32 [n_tokens] (traces/format/SCHEMA.md)."""
        return self._open.token_flags

    @property
    def query_tokens(self) -> np.ndarray:
        """The token of each stored query row, uint64."""
        stored = self._open.query_token
        return stored if len(stored) else np.arange(self.n_tokens, dtype=np.uint64)

    def text(self) -> list[str]:
        """The text of every token; empty if the trace does not store it."""
        at, text = self._open.text_offset, self._open.text
        return [text[a:b].decode(errors="replace") for a, b in zip(at[:-1], at[1:])]

    def key(self, layer: int, head: int | None = None, dtype: str = "float32") -> np.ndarray:
        """Keys after RoPE, [kv_heads, n_tokens, head_dim], or [n_tokens, head_dim] of one KV head.

        dtype: "float32", or "stored": float16 of an f16 trace; of a bf16 trace bfloat16 if ml_dtypes is installed, else the
        patterns as uint16.
        """
        return self._read(_core.Tensor.key, layer, head, dtype)

    def value(self, layer: int, head: int | None = None, dtype: str = "float32") -> np.ndarray:
        """Values, [kv_heads, n_tokens, v_head_dim], or of one KV head; dtype as of `key`."""
        return self._read(_core.Tensor.value, layer, head, dtype)

    def query(self, layer: int, head: int | None = None, dtype: str = "float32") -> np.ndarray:
        """Queries after RoPE, [q_heads, rows, head_dim], or of one query head; rows: `query_tokens`; dtype as of `key`."""
        return self._read(_core.Tensor.query, layer, head, dtype)

    def to_xarray(self, layer: int):
        """A layer as an xarray.Dataset: q [q_head, row, dim], k [kv_head, token, dim], v [kv_head, token, v_dim] as float32, beside
        id, position and flags of each token and the token of each row. It needs xarray.
        """
        import xarray
        tensors = {"k": (("kv_head", "token", "dim"), self.key(layer)), "v": (("kv_head", "token", "v_dim"), self.value(layer))}
        of_tokens = {"id": ("token", self.tokens), "position": ("token", self.positions), "flags": ("token", self.flags)}
        if self.capture["q_policy"] != "none":
            tensors["q"] = (("q_head", "row", "dim"), self.query(layer))
            of_tokens["row_token"] = ("row", self.query_tokens)
        return xarray.Dataset(tensors, of_tokens, {"layer": layer, "model": self.model["name"], "attn_scale": self.model["attn_scale"]})

    def _read(self, tensor, layer: int, head: int | None, dtype: str) -> np.ndarray:
        if dtype not in ("float32", "stored"):
            raise ValueError(f"dtype is 'float32' or 'stored', not {dtype!r}")
        if dtype == "float32" or self.elem == "f32":
            return self._open.floats(tensor, layer, head)
        patterns = self._open.halves(tensor, layer, head)
        if self.elem == "f16":
            return patterns.view(np.float16)
        try:
            import ml_dtypes
        except ImportError:
            return patterns
        return patterns.view(ml_dtypes.bfloat16)

    def __repr__(self) -> str:
        model = self.model
        name = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in model["name"])  # from a file, on its way to a terminal
        return (f"<kvsim.Trace {self.path}: {name or 'unnamed model'}, {self.n_tokens} tokens, {model['n_layers']} layers, "
                f"{model['n_q_heads']} query and {model['n_kv_heads']} KV heads of {model['head_dim']}, {self.elem}>")
