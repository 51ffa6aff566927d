"""Writes trace files (`kvtrace`, traces/format/SCHEMA.md) with h5py, numpy and xxhash alone.

    with TraceWriter("run.h5", model, "bf16") as writer:
        writer.append("k", layer, words)        # [heads, n, dim], as often as wanted, in token order
        ...
        writer.finish(header)                   # the file gets its name here, and only here

Tensors are given in the stored type: float32, float16, or uint16 holding bfloat16 bits (`narrow` converts floats to any
of them). The memory needed is one chunk of every tensor, about 128 KiB per head.
"""
import contextlib
import hashlib
import os

import numpy as np
from h5py import h5a, h5f, h5p

from .hdf5_layout import (RowStream, chunk_rows, create_group, put_block_digests, put_list, put_number, put_text,
                          without_times)
from .header_groups import write_header
from .partial_file import PartialFile
from .stored_elements import WORDS
from .trace_error import TraceError
from .trace_header import PROMPT, check_header, check_model, require

SCHEMA, SCHEMA_WITHOUT_QUERIES, SCHEMA_OF_NEEDED = (1, 4), (1, 5), (2, 0)
LAYER_ROTATIONS, SINKS, VALUES_IN_KEYS, CHUNKS = 1 << 0, 1 << 1, 1 << 2, 1 << 3  # bits of the root attribute `needs`
ATTENTION_CHUNK = 65536

# Bits of the root attribute `features`.
ALL_QUERIES, SOME_QUERIES, ATTENTION_ROWS, TIMES = 1 << 0, 1 << 1, 1 << 2, 1 << 4
BLOCK_DIGESTS, COLUMN_STATISTICS, TEXT, OUTPUT_WEIGHTS = 1 << 3, 1 << 5, 1 << 6, 1 << 7


class _Layer:
    def __init__(self, group, model, elem, checksum, queries):
        def stream(name, heads, dim):
            return RowStream(group, name, elem, heads, dim, chunk_rows(dim, elem), checksum)

        self.group = group
        self.streams = {"k": stream("k", model.n_kv_heads, model.head_dim)}
        if not model.values_in_keys:
            self.streams["v"] = stream("v", model.n_kv_heads, model.v_head_dim)
        if queries:
            self.streams["q"] = stream("q", model.n_q_heads, model.head_dim)
        self.rows_group = self.rows = None
        self.first_key, self.ptr = [], [0]
        self.has_output_weights = False
        self.counted_tokens = 0
        self.finished = []  # (name, stream) of what is stored beside q, k and v


class TraceWriter:
    """A new trace, which gets its name from finish() (partial_file.py). Without finish() (after an exception, or by
    discard()) no file remains. Not for concurrent use by several threads.

    `elem` is the type of every q, k and v: f32, f16 or bf16; without `queries` there is no q. Raises TraceError, and OSError when the disk fails.
    """

    def __init__(self, path, model, elem, overwrite=False, checksum=True, queries=True):
        self.path, self.model, self.elem = os.fspath(path), model, elem
        self._file, self._partial, self._checksum = None, None, checksum
        check_model(model, self.path)
        if elem not in WORDS:
            raise TraceError(f"unknown element type \"{elem}\"", self.path, "Expected f32, f16 or bf16.")
        access = h5p.create(h5p.FILE_ACCESS)
        # From version 1.10 on, metadata carries checksums and a file that was not closed cannot be opened.
        access.set_libver_bounds(h5f.LIBVER_V110, h5f.LIBVER_V110)
        access.set_alignment(65536, 4096)
        access.set_fclose_degree(h5f.CLOSE_STRONG)
        access.set_file_locking(False, False)
        self._partial = PartialFile(self.path, overwrite)
        try:
            self._file = h5f.create(os.fsencode(self._partial.name), h5f.ACC_TRUNC, without_times(h5p.FILE_CREATE), access)
            put_number(self._file, "complete", "u1", 0)
            self._layers_group = create_group(self._file, "layers")
            self._layers = [_Layer(create_group(self._layers_group, f"{layer:04d}"), model, elem, checksum, queries)
                            for layer in range(model.n_layers)]
        except BaseException:
            self.discard()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.discard()

    def discard(self):
        """Removes the partial file unless finish() ran."""
        if self._partial is None:
            return
        self._layers = self._layers_group = None
        with contextlib.suppress(Exception):
            self._file.close()
        self._file = None
        self._partial.discard()
        self._partial = None

    def append(self, tensor, layer, rows):
        """Appends rows of q, k or v of a layer: [heads, n, dim] of the stored type."""
        self._layers[layer].streams[tensor].append(rows)

    def append_attention(self, layer, first_key, p):
        """Appends an attention row of a layer: probabilities [n_q_heads, n] (float32) of the keys from `first_key`,
        counted along the path of the row's token, up to the token itself."""
        target = self._layers[layer]
        if target.rows is None:
            target.rows_group = create_group(target.group, "rows")
            target.rows = RowStream(target.rows_group, "p", "f32", self.model.n_q_heads, 1, ATTENTION_CHUNK,
                                    self._checksum, third_axis=False)
        target.rows.append(np.ascontiguousarray(p, dtype="<f4")[:, :, None])
        target.first_key.append(first_key)
        target.ptr.append(target.ptr[-1] + p.shape[1])

    def put_output_weights(self, layer, weights, elem):
        """Stores a layer's output projection: [n_q_heads, v_head_dim, hidden_size] of the stored type of `elem`."""
        model, target = self.model, self._layers[layer]
        stream = RowStream(target.group, "wo", elem, model.n_q_heads, model.hidden_size,
                           chunk_rows(model.hidden_size, elem), self._checksum)
        stream.append(weights)
        stream.finish()
        target.finished.append(("wo", stream))
        target.has_output_weights = True

    def put_column_statistics(self, layer, total, squares):
        """Stores the sum and the sum of squares of the attention that each of the first C tokens received from all of
        them: float32 [n_q_heads, C]."""
        target = self._layers[layer]
        group = create_group(target.group, "column")
        for name, values in (("sum", total), ("sum_squares", squares)):
            stream = RowStream(group, name, "f32", self.model.n_q_heads, 1, ATTENTION_CHUNK, self._checksum,
                               third_axis=False)
            stream.append(np.ascontiguousarray(values)[:, :, None])
            stream.finish()
            target.finished.append((f"column_{name}", stream))
        target.counted_tokens = total.shape[1]

    def finish(self, header):
        """Writes `header`, closes the file and renames it to its final name."""
        check_header(header, self.model, self.path)
        self._check_rows(header)
        digests = [self._finish_layer(index, layer, header) for index, layer in enumerate(self._layers)]
        token_id = np.ascontiguousarray(header.token_id, dtype="<i4")
        content = hashlib.sha256(hashlib.sha256(token_id).hexdigest().encode())
        for part in (*(tensors for tensors, _ in digests), *(lists for _, lists in digests)):
            content.update(part.encode())
        self._write_root(header, content.hexdigest())
        self._layers = self._layers_group = None
        write_header(self._file, self.model, header)
        self._commit()

    def _check_rows(self, header):
        n_queries = len(header.token_id) if header.query_token is None else len(header.query_token)
        n_attention = 0 if header.attention_token is None else len(header.attention_token)
        expected = {name: n_queries if name == "q" else len(header.token_id) for name in self._layers[0].streams}
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
        """Checks that the counted tokens are the first tokens of the file and the whole prompt of the first sequence,
        segment after segment."""
        counted = self._layers[0].counted_tokens
        for index, segment in enumerate(header.segments):
            if counted <= 0:
                break
            require(segment.phase == PROMPT and segment.parent == index - 1,
                    "column statistics count tokens that are not of one prompt", self.path)
            counted -= segment.count
        require(counted == 0, "column statistics count a part of a segment", self.path)

    def _finish_layer(self, index, layer, header):
        """Returns the digests of k, v and q as one text, and those of the lists of their blocks' digests."""
        model = self.model
        put_number(layer.group, "layer", "<u4", index)
        for name in ("n_q_heads", "n_kv_heads", "head_dim"):
            put_number(layer.group, name, "<u4", getattr(model, name))
        put_number(layer.group, "window", "<i4", model.layer_window[index])
        digests = "".join(stream.finish() for stream in layer.streams.values())
        if header.query_token is not None:
            put_list(layer.group, "q_token", "<u8", header.query_token)
        if layer.rows is not None:
            layer.rows.finish()
            put_list(layer.rows_group, "token", "<u8", header.attention_token)
            put_list(layer.rows_group, "first_key", "<u8", layer.first_key)
            put_list(layer.rows_group, "ptr", "<u8", layer.ptr)
            layer.finished.append(("rows_p", layer.rows))
        lists = put_block_digests(layer.group, sorted([*layer.streams.items(), *layer.finished]))
        return digests, "".join(lists[name] for name in layer.streams)

    def _write_root(self, header, content_sha256):
        queries = "q" in self._layers[0].streams
        features = BLOCK_DIGESTS | (0 if not queries else ALL_QUERIES if header.query_token is None else SOME_QUERIES)
        features |= ATTENTION_ROWS if self._layers[0].rows is not None else 0
        features |= TIMES if header.layer_ns is not None or header.attn_ns is not None else 0
        features |= COLUMN_STATISTICS if self._layers[0].counted_tokens else 0
        features |= TEXT if header.token_text is not None else 0
        features |= OUTPUT_WEIGHTS if self._layers[0].has_output_weights else 0
        root = self._file
        put_text(root, "format", "kvtrace")
        needs = LAYER_ROTATIONS if self.model.layer_rotation is not None else 0
        needs |= SINKS if self.model.sinks is not None else 0
        needs |= VALUES_IN_KEYS if self.model.values_in_keys else 0
        needs |= CHUNKS if self.model.chunked else 0
        major, minor = SCHEMA_OF_NEEDED if needs else SCHEMA if queries else SCHEMA_WITHOUT_QUERIES
        put_number(root, "schema_major", "<u2", major)
        put_number(root, "schema_minor", "<u2", minor)
        if needs:
            put_number(root, "needs", "<u8", needs)
        for name in ("file_uuid", "created_utc", "writer"):
            put_text(root, name, getattr(header, name))
        put_number(root, "n_tokens", "<u8", len(header.token_id))
        put_number(root, "n_segments", "<u4", len(header.segments))
        put_number(root, "n_passes", "<u4", len(header.passes))
        put_number(root, "features", "<u8", features)
        put_text(root, "content_sha256", content_sha256)

    def _commit(self):
        h5f.flush(self._file)
        h5a.open(self._file, b"complete").write(np.array(1, "u1"))
        h5f.flush(self._file)
        self._file.close()
        self._partial.commit()
        self._file = self._partial = None
