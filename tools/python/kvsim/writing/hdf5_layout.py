"""Writes attributes, lists and streams of rows in kvsim's HDF5 layout (traces/format/SCHEMA.md) with h5py's low-level
calls."""
import hashlib

import numpy as np
import xxhash
from h5py import h5a, h5d, h5g, h5p, h5s, h5t

from .stored_elements import WORDS
from .trace_error import TraceError

MAX_TEXT = 32768


def chunk_rows(dim, elem):
    """Rows per chunk: a power of two that gives about 128 KiB of one head."""
    rows = max(131072 // (dim * WORDS[elem].itemsize), 1)
    return min(max(1 << (rows.bit_length() - 1), 64), 4096)


def _file_type(elem):
    """The HDF5 type of stored elements. HDF5 before 1.14 has no name for the 16-bit types."""
    if elem == "f32":
        return h5t.IEEE_F32LE
    exponent, bias = (8, 127) if elem == "bf16" else (5, 15)
    made = h5t.IEEE_F32LE.copy()
    made.set_fields(15, 15 - exponent, exponent, 0, 15 - exponent)  # before the size, which must not cut a type below
                                                                    # its fields
    made.set_size(2)
    made.set_ebias(bias)
    return made


def put_text(place, name, text):
    text = text.encode() if isinstance(text, str) else bytes(text)
    if len(text) > MAX_TEXT or b"\0" in text:
        raise TraceError("is longer than 32 KiB or holds a NUL", f"attribute {name}")
    kind = h5t.C_S1.copy()
    kind.set_size(max(len(text), 1))
    kind.set_strpad(h5t.STR_NULLPAD)
    kind.set_cset(h5t.CSET_UTF8)
    attribute = h5a.create(place, name.encode(), kind, h5s.create(h5s.SCALAR))
    attribute.write(np.array(text, dtype=f"S{max(len(text), 1)}"), mtype=kind)


def put_number(place, name, dtype, value):
    value = np.array(value, dtype=dtype)
    h5a.create(place, name.encode(), h5t.py_create(value.dtype), h5s.create(h5s.SCALAR)).write(value)


def without_times(list_class):
    """A creation list that records no times, so that the same run gives the same bytes."""
    creation = h5p.create(list_class)
    creation.set_obj_track_times(False)
    return creation


def put_list(place, name, dtype, values, shape=None):
    """Writes a whole dataset at once, contiguous, and its digest as attribute sha256; returns the digest."""
    values = np.ascontiguousarray(values, dtype=dtype)
    values = values.reshape(shape if shape is not None else (-1,))
    creation = without_times(h5p.DATASET_CREATE)
    creation.set_fill_time(h5d.FILL_TIME_NEVER)
    dataset = h5d.create(place, name.encode(), h5t.py_create(values.dtype), h5s.create_simple(values.shape),
                         dcpl=creation)
    if values.size:
        dataset.write(h5s.ALL, h5s.ALL, values)
    digest = hashlib.sha256(values).hexdigest()
    put_text(dataset, "sha256", digest)
    return digest


def put_block_digests(group, streams):
    """Writes the digests of the blocks of a layer's tensors, given as (name, finished RowStream), as group xxh3; returns
    the digest of each list by the tensor's name."""
    place, digests = create_group(group, "xxh3"), {}
    for name, stream in streams:
        digests[name] = put_list(place, name, "<u8", stream.blocks, (len(stream.blocks), -1))
        put_number(h5d.open(place, name.encode()), "rows", "<u8", stream.block_rows)
    return digests


def create_group(place, name):
    return h5g.create(place, name.encode(), gcpl=without_times(h5p.GROUP_CREATE))


class RowStream:
    """Buffers rows of all heads of one dataset and writes them in whole chunks. The dataset is created with its first
    chunk, so that a short trace gets a single chunk of exactly its size."""

    def __init__(self, group, name, elem, heads, dim, rows_per_chunk, checksum, third_axis=True):
        self._group, self._name, self._elem, self._checksum = group, name, elem, checksum
        self._heads, self._dim, self._chunk = heads, dim, rows_per_chunk
        self.block_rows = rows_per_chunk  # of a whole chunk: a dataset shorter than one has a chunk of its size
        self.blocks = [[] for _ in range(heads)]  # XXH3-64 of the blocks of every head
        self._third_axis = third_axis
        self._buffer = None
        self._filled = self._flushed = 0
        self._dataset = None
        self._digests = [hashlib.sha256() for _ in range(heads)]

    @property
    def rows(self):
        return self._flushed + self._filled

    def append(self, rows):
        """Appends `rows`, [heads, n, dim] of the stored type."""
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
        """Writes the remaining rows and returns the digest."""
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
        put_text(self._dataset, "elem", self._elem)
        put_text(self._dataset, "sha256", digest)
        self._dataset = self._buffer = None
        return digest

    def _extent(self, rows):
        return (self._heads, rows, self._dim)[:3 if self._third_axis else 2]

    def _create(self):
        creation = without_times(h5p.DATASET_CREATE)
        creation.set_chunk((1,) + self._extent(self._chunk)[1:])
        creation.set_fill_time(h5d.FILL_TIME_NEVER)
        if self._checksum:
            creation.set_fletcher32()
        # Whole chunks gain nothing from a cache, and without a cache a full disk is detected at the write that hits it.
        access = h5p.create(h5p.DATASET_ACCESS)
        access.set_chunk_cache(1, 0, 0.0)
        limit = list(self._extent(0))
        limit[1] = h5s.UNLIMITED
        self._dataset = h5d.create(self._group, self._name.encode(), _file_type(self._elem),
                                   h5s.create_simple(self._extent(0), tuple(limit)), dcpl=creation, dapl=access)

    def _flush(self):
        if self._dataset is None:
            self._create()
        for head, blocks in enumerate(self.blocks):
            blocks.append(xxhash.xxh3_64_intdigest(self._buffer[head, :self._filled]))
        count = self._extent(self._chunk)
        start = tuple(self._flushed if axis == 1 else 0 for axis in range(len(count)))
        self._dataset.set_extent(self._extent(self._flushed + self._chunk))
        space = self._dataset.get_space()
        space.select_hyperslab(start, count)
        # The memory type is the stored type, so libhdf5 converts nothing.
        self._dataset.write(h5s.create_simple(count), space, self._buffer, _file_type(self._elem))
        self._flushed += self._filled
        self._filled = 0
