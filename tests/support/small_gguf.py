"""Writes small GGUF files, also wrong ones, byte by byte."""
import struct

UINT8, INT32, UINT32, FLOAT32, BOOL, TEXT, ARRAY, UINT64 = 0, 5, 4, 6, 7, 8, 9, 10
F32, F16, Q8_0, BF16 = 0, 1, 8, 30


def text(value):
    value = value.encode()
    return struct.pack("<Q", len(value)) + value


def entry(key, value):
    """A key with a value of the type that llama.cpp's converter gives it."""
    if isinstance(value, bytes):  # type and value as they are
        return text(key) + value
    if isinstance(value, bool):
        return text(key) + struct.pack("<IB", BOOL, value)
    if isinstance(value, int):
        return text(key) + struct.pack("<II", UINT32, value)
    if isinstance(value, float):
        return text(key) + struct.pack("<If", FLOAT32, value)
    if isinstance(value, str):
        return text(key) + struct.pack("<I", TEXT) + text(value)
    kind, code = ("i", INT32) if isinstance(value[0], int) else ("f", FLOAT32) if isinstance(value[0], float) else (None, TEXT)
    items = b"".join(text(item) if kind is None else struct.pack("<" + kind, item) for item in value)
    return text(key) + struct.pack("<IIQ", ARRAY, code, len(value)) + items


def padded(data, alignment=32):
    return data + bytes(-len(data) % alignment)


def gguf(keys, tensors=(), version=3, offsets=None, counts=None):
    """keys: {key: value}. tensors: [(name, shape as the file has it, type code, data)]. offsets, counts: in place of the right
    ones."""
    table, data = b"", b""
    for index, (name, shape, code, stored) in enumerate(tensors):
        data = padded(data)
        table += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, code,
                                          offsets[index] if offsets else len(data))
        data += stored
    head = b"GGUF" + struct.pack("<IQQ", version, *(counts or (len(tensors), len(keys))))
    head += b"".join(entry(key, value) for key, value in keys.items()) + table
    return padded(head) + data if data else head
