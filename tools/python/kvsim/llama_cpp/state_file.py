"""Reads files in which llama.cpp saves a cache: of a sequence (slots of llama-server, llama_state_seq_save_file) and of a whole context
(--prompt-cache, llama_state_save_file). Needs numpy alone."""
import os
import struct

import numpy as np

from ..writing.stored_elements import WORDS
from ..writing.trace_error import TraceError

SEQUENCE, SESSION = 0x67677371, 0x6767736E
VERSIONS = {SEQUENCE: 3, SESSION: 10}
CACHE_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "bf16": 30}  # ggml's numbers
NAMES = {number: name for name, number in CACHE_TYPES.items()}
MAX_LAYERS = 1024


class StateFile:
    """`tokens`: the ids that the file names. `layers`: how many have a cache. `transposed`: how values lay, which says that there was no
    flash attention. `whole_context`: whether it is of a context. Raises TraceError for what is no whole cache of one
    sequence from position 0 on."""

    def __init__(self, path):
        self.path = os.fspath(path)
        try:
            self._data = np.fromfile(self.path, np.uint8)
        except OSError as error:
            raise TraceError(f"cannot be read: {error.strerror}", self.path) from error
        self._at = 0
        magic, version = self._numbers("II") if len(self._data) >= 8 else (0, 0)
        if magic not in VERSIONS:
            raise TraceError("is no state file of llama.cpp", self.path, "llama-server's slots and --prompt-cache write such files.")
        if version != VERSIONS[magic]:
            raise TraceError(f"has version {version} of llama.cpp's state files; {VERSIONS[magic]} is read", self.path)
        self.tokens = self._take(4 * self._number("I")).view("<i4").tolist()
        self.whole_context = magic == SESSION
        if self.whole_context:
            self._take(self._number("I"))  # the architecture's name
        streams = self._number("I")
        if streams != 1:
            raise TraceError(f"holds {streams} streams of cells", self.path, "A file of one sequence has one.")
        self._order = self._read_cells()
        self._rows = {}
        self._read_layers()

    def _refuse_end(self):
        raise TraceError("ends too early", self.path, "It is cut off, or of a model that saves more than keys and values.")

    def _take(self, count):
        if count > len(self._data) - self._at:
            self._refuse_end()
        self._at += count
        return self._data[self._at - count:self._at]

    def _numbers(self, form):
        return struct.unpack("<" + form, self._take(struct.calcsize("<" + form)))

    def _number(self, form):
        return self._numbers(form)[0]

    def _read_cells(self):
        """The cells in the order of their positions."""
        cells = self._take(12 * self._number("I")).view("<i4").reshape(-1, 3)  # position, how many sequences have it, the first of them
        if len(cells) and not (cells[:, 1] == 1).all():
            raise TraceError("has cells of several sequences, or positions on several axes", self.path,
                             "Save one sequence of a text model.")
        order = np.argsort(cells[:, 0], kind="stable")
        if len(cells) == 0 or len(np.unique(cells[:, 2])) != 1 or not np.array_equal(cells[order, 0], np.arange(len(cells))):
            raise TraceError("does not hold one sequence whole, from position 0 on", self.path,
                             "Windows and shifts of the context leave tokens out.")
        if len(self.tokens) != len(cells):
            raise TraceError(f"holds {len(cells)} tokens' keys and values, and {len(self.tokens)} token ids", self.path)
        return order

    def _read_layers(self):
        transposed, self.layers = self._numbers("II")
        self.transposed = transposed == 1
        if transposed > 1 or not 1 <= self.layers <= MAX_LAYERS:
            self._refuse_end()
        count = len(self._order)
        for layer in range(self.layers):
            name, size = self._type(), self._number("Q")
            self._rows["k", layer] = name, self._take(count * size).reshape(count, size)
        for layer in range(self.layers):
            if self._at == len(self._data) and layer == 0:
                return  # latent keys: values are parts of them
            name = self._type()
            if transposed:
                size, width = self._numbers("II")
                if name not in WORDS or size != WORDS[name].itemsize:
                    raise TraceError(f"has values of type {name}, transposed", self.path)
                raw = self._take(count * width * size).reshape(width, count, size)
                self._rows["v", layer] = name, raw.transpose(1, 0, 2).reshape(count, width * size)
            else:
                size = self._number("Q")
                self._rows["v", layer] = name, self._take(count * size).reshape(count, size)
        if self._at != len(self._data):
            raise TraceError("holds more than one cache, such as those of windows and of states", self.path,
                             "What such a model saves is not all of its keys and values.")

    def _type(self):
        number = self._number("i")
        if number not in NAMES:
            raise TraceError(f"holds a tensor of ggml's type {number}", self.path, f"Known are {', '.join(NAMES.values())}.")
        return NAMES[number]

    def type_of(self, kind):
        """The type of all keys, or values."""
        found = {name for (of, _), (name, _) in self._rows.items() if of == kind}
        if len(found) > 1:
            raise TraceError(f"holds tensors of types {', '.join(sorted(found))}", self.path)
        return found.pop() if found else None

    def raw(self, kind, layer):
        """The bytes of k or v, [tokens, bytes], in the order of positions."""
        return np.ascontiguousarray(self._rows[kind, layer][1][self._order])
