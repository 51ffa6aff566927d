"""Tensors of ggml, the library under llama.cpp, read through its own calls from whatever device holds them."""
import ctypes
import functools
import pathlib

import llama_cpp
import numpy as np

from ..writing.trace_error import TraceError

TESTED = "0.3.36"  # of llama-cpp-python


class Tensor(ctypes.Structure):
    """struct ggml_tensor. `ne` and `nb`: elements and bytes per step of each axis, the fastest axis first."""


Tensor._fields_ = [
    ("type", ctypes.c_int), ("buffer", ctypes.c_void_p), ("ne", ctypes.c_int64 * 4), ("nb", ctypes.c_size_t * 4), ("op", ctypes.c_int),
    ("op_params", ctypes.c_int32 * 16), ("flags", ctypes.c_int32), ("src", ctypes.POINTER(Tensor) * 10),
    ("view_src", ctypes.POINTER(Tensor)), ("view_offs", ctypes.c_size_t), ("data", ctypes.c_void_p), ("name", ctypes.c_char * 64),
    ("extra", ctypes.c_void_p), ("padding", ctypes.c_char * 8)]


class _Arena(ctypes.Structure):
    _fields_ = [("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool)]


class _TypeTraits(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("block", ctypes.c_int64), ("interleave", ctypes.c_int64), ("size", ctypes.c_size_t),
                ("quantised", ctypes.c_bool), ("to_float", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64))]


@functools.cache
def _ggml():
    """libggml-base, once its tensors are known to lie in memory as Tensor says."""
    library = ctypes.CDLL(str(pathlib.Path(llama_cpp.__file__).parent / "lib/libggml-base.so"))
    tensor = ctypes.POINTER(Tensor)
    for name, result, arguments in (
            ("ggml_init", ctypes.c_void_p, [_Arena]), ("ggml_free", None, [ctypes.c_void_p]),
            ("ggml_new_tensor_2d", tensor, [ctypes.c_void_p, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]),
            ("ggml_transpose", tensor, [ctypes.c_void_p, tensor]), ("ggml_set_name", tensor, [tensor, ctypes.c_char_p]),
            ("ggml_op_name", ctypes.c_char_p, [ctypes.c_int]), ("ggml_nbytes", ctypes.c_size_t, [tensor]),
            ("ggml_backend_tensor_get", None, [tensor, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t]),
            ("ggml_tensor_overhead", ctypes.c_size_t, []), ("ggml_get_type_traits", ctypes.POINTER(_TypeTraits), [ctypes.c_int])):
        try:
            call = getattr(library, name)
        except AttributeError as error:
            raise _unknown(f"lacks {name}") from error
        call.restype, call.argtypes = result, arguments
    arena = library.ggml_init(_Arena(1 << 16, None, False))
    try:
        made = library.ggml_set_name(library.ggml_new_tensor_2d(arena, 0, 3, 5), b"kvsim")
        view = library.ggml_transpose(arena, made).contents
        made = made.contents
        found = (library.ggml_tensor_overhead() - ctypes.sizeof(Tensor), made.name, list(made.ne), list(made.nb), list(view.ne),
                 library.ggml_op_name(view.op), view.view_src and view.view_src.contents.name, view.src[0] and view.src[0].contents.data)
        if found != (32, b"kvsim", [3, 5, 1, 1], [4, 12, 60, 60], [5, 3, 1, 1], b"TRANSPOSE", b"kvsim", made.data):
            raise _unknown("lays its tensors out in a way that kvsim does not know")
    finally:
        library.ggml_free(arena)
    return library


def _unknown(what):
    return TraceError(what, f"llama-cpp-python {llama_cpp.__version__}", f"pip install llama-cpp-python=={TESTED}, which is tested.")


def operations(*names):
    """The numbers of operations such as FLASH_ATTN_EXT."""
    found, number = {}, 0
    while len(found) < len(names):  # ggml does not say how many there are, so no name behind the last wanted one is read
        name = _ggml().ggml_op_name(number)
        if name is None or number > 200:
            raise _unknown(f"lacks {' or '.join(sorted(set(names) - set(found)))}")
        if name.decode() in names:
            found[name.decode()] = number
        number += 1
    return [found[name] for name in names]


def _bytes(tensor, begin, count):
    raw = np.empty(count, np.uint8)
    _ggml().ggml_backend_tensor_get(ctypes.byref(tensor), raw.ctypes.data, begin, count)
    return raw


def type_of(tensor):
    """f32, f16, bf16, q8_0, ..."""
    return _ggml().ggml_get_type_traits(tensor.type).contents.name.decode()


def widened(raw, number):
    """Rows of bytes, [rows, bytes], of ggml's type of that number as float32."""
    traits = _ggml().ggml_get_type_traits(number).contents
    out = np.empty((len(raw), raw.shape[1] // traits.size * traits.block), "<f4")
    traits.to_float(raw.ctypes.data, out.ctypes.data, out.size)
    return out


def read(tensor):
    """The elements of a tensor of plain numbers, in ggml's order of axes reversed. Views may have gaps."""
    dtype = {"f32": "<f4", "f16": "<f2", "i32": "<i4", "i64": "<i8"}[type_of(tensor)]
    raw = _bytes(tensor, 0, _ggml().ggml_nbytes(ctypes.byref(tensor))).view(dtype)
    return np.lib.stride_tricks.as_strided(raw, tuple(reversed(tensor.ne)), tuple(reversed(tensor.nb))).copy()


def read_rows(tensor, rows):
    """Rows of a matrix of any type, [len(rows), ne[0]] float32."""
    width, step = tensor.ne[0], tensor.nb[1]
    first, last = int(rows.min()), int(rows.max())
    raw = _bytes(tensor, first * step, (last - first + 1) * step).reshape(-1, step)[rows - first]
    raw = np.ascontiguousarray(raw)
    if type_of(tensor) == "f32":
        return raw.view("<f4")[:, :width]
    return widened(raw, tensor.type)[:, :width]


def floats_of(tensor):
    """op_params as floats; some operations keep whole numbers and floats side by side there."""
    return np.frombuffer(tensor.op_params, "<f4")
