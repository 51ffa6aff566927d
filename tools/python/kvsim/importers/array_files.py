"""Reads named arrays from untrusted .npz and .safetensors files: no size is allocated before it was compared with the
file, nothing is executed, and one array is in memory at a time.

An array is read in a type that a trace stores (numpy float32, float16, or uint16 holding bfloat16 bits) or as integers.
"""
import json
import math
import os
import zipfile

import numpy as np

from ..writing.trace_error import TraceError

MAX_HEADER = 16 << 20
MAX_RANK, MAX_DIM, MAX_NAME = 6, 1 << 32, 512
SAFETENSORS = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "F64": "<f8", "I64": "<i8", "I32": "<i4", "U64": "<u8",
               "U32": "<u4", "U16": "<u2", "I16": "<i2", "I8": "i1", "U8": "u1"}


class Array:
    """Shape and type of a named array; read() returns its values."""

    def __init__(self, where, shape, dtype, bf16, read):
        self.where, self.shape, self.dtype, self.bf16 = where, tuple(shape), np.dtype(dtype), bf16
        self._read = read

    def read(self, index=None):
        """The whole array, or one entry of the first axis."""
        return self._read(index)


def open_arrays(paths):
    """{name: Array} over all files."""
    found = {}
    for path in paths:
        try:
            with open(path, "rb") as file:
                begin = file.read(4)
        except OSError as error:
            raise TraceError(error.strerror, path) from error
        arrays = _open_npz(path) if begin == b"PK\x03\x04" else _open_safetensors(path)
        for name, array in arrays.items():
            if name in found:
                raise TraceError(f"holds {name}, as {found[name].where} does", path)
            found[name] = array
    return found


def _check_shape(shape, where):
    if len(shape) > MAX_RANK or any(type(n) is not int or not 0 <= n <= MAX_DIM for n in shape):
        raise TraceError(f"has no acceptable shape: {list(shape)[:MAX_RANK + 1]}", where)


def _open_npz(path):
    try:
        with zipfile.ZipFile(path) as archive:
            members = [info for info in archive.infolist() if info.filename.endswith(".npy")]
            if len({info.filename for info in members}) != len(members):
                raise TraceError("holds a name twice", path)
            return {info.filename[:-4]: _npy(path, archive, info) for info in members}
    except zipfile.BadZipFile as error:
        raise TraceError(f"is a damaged zip file: {error}", path) from error


def _npy(path, archive, info):
    where = f"{path}:{info.filename[:-4]}"
    try:
        with archive.open(info) as file:
            shape, fortran, dtype = _npy_header(file)
            data_bytes = info.file_size - file.tell()
    except (ValueError, NotImplementedError, RuntimeError, zipfile.BadZipFile) as error:
        raise TraceError(f"is no array: {str(error).splitlines()[0]}", where) from error
    _check_shape(shape, where)
    if dtype.hasobject or dtype.kind not in "fiuV":
        raise TraceError(f"holds {dtype}, not numbers", where)
    # A stored member cannot be larger than the file; deflate expands a byte to at most 1032.
    if math.prod(shape) * dtype.itemsize != data_bytes or info.file_size > 1100 * os.path.getsize(path):
        raise TraceError("claims another size than it has", where)

    def read(index):
        """Reads only the requested entry of a stacked array in C order into memory."""
        one = index is not None and not fortran
        wanted = data_bytes // shape[0] if one else data_bytes
        try:
            with zipfile.ZipFile(path) as source, source.open(info.filename) as file:
                _npy_header(file)
                if one:
                    file.seek(index * wanted, os.SEEK_CUR)
                data = file.read(wanted)
        except zipfile.BadZipFile as error:
            raise TraceError(f"is damaged: {error}", where) from error
        if len(data) != wanted:
            raise TraceError("is cut short", where)
        values = np.frombuffer(data, dtype).reshape(shape[1:] if one else shape, order="F" if fortran else "C")
        return values if one or index is None else values[index]

    return Array(where, shape, dtype, False, read)


def _npy_header(file):
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(file)
    if version == (2, 0):
        return np.lib.format.read_array_header_2_0(file)
    raise ValueError(f"npy version {version} is not known")


def _unique(pairs):
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice")
    return found


def _open_safetensors(path):
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or not 2 <= length <= min(MAX_HEADER, size - 8):
            raise TraceError("is neither npz nor safetensors", path)
        text = file.read(length)
    try:
        entries = json.loads(text.decode(), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise TraceError(f"has no safetensors header: {error}", path) from error
    if not isinstance(entries, dict):
        raise TraceError("has no safetensors header", path)
    entries.pop("__metadata__", None)
    arrays, spans = {}, []
    for name, entry in entries.items():
        arrays[name], span = _safetensors_array(path, name, entry, 8 + length)
        spans.append(span)
    # Tensors tile the file: no holes, no overlaps, no tail.
    end = 0
    for begin, stop in sorted(spans):
        if begin != end:
            raise TraceError("has tensors that leave holes or overlap", path)
        end = stop
    if 8 + length + end != size:
        raise TraceError(f"is {size} bytes long, its header tells of {8 + length + end}", path)
    return arrays


def _safetensors_array(path, name, entry, base):
    where = f"{path}:{name[:MAX_NAME]}"
    try:
        dtype, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        known = len(name) <= MAX_NAME and isinstance(shape, list) and type(begin) is int and type(end) is int
    except (KeyError, TypeError, ValueError):
        known = False
    if not known or not 0 <= begin <= end:
        raise TraceError("has no sound entry in the header", where)
    _check_shape(shape, where)
    if not isinstance(dtype, str) or dtype not in SAFETENSORS:
        def refuse(_):
            raise TraceError(f"holds {dtype}", where, f"Expected {', '.join(SAFETENSORS)}.")
        return Array(where, shape, "V1", False, refuse), (begin, end)
    stored = np.dtype(SAFETENSORS[dtype])
    if math.prod(shape) * stored.itemsize != end - begin:
        raise TraceError(f"takes {end - begin} bytes, not those of {dtype} {shape}", where)

    def read(index):
        values = np.memmap(path, stored, "r", base + begin, tuple(shape)) if end > begin else np.zeros(shape, stored)
        return np.array(values if index is None else values[index])

    return Array(where, shape, stored, dtype == "BF16", read), (begin, end)
