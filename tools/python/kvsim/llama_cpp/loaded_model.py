"""A GGUF file loaded by llama.cpp: its tokens, its metadata and its passes."""
import collections
import ctypes
import hashlib
import json
import os

import llama_cpp
import numpy as np

from .ggml_tensor import TESTED
from .state_file import CACHE_TYPES
from ..writing.trace_error import TraceError
from ..writing.trace_header import MAX_CONFIG

_said = collections.deque(maxlen=200)  # the latest lines of llama.cpp's log


@llama_cpp.llama_log_callback
def _listen(level, text, _):
    if level >= 3:  # warnings and errors; 5 goes on with the line before
        _said.append(text.decode(errors="replace"))


def _complaint():
    lines = [line.strip() for line in "".join(_said).splitlines() if line.strip()]
    return next((line for line in lines if "error" in line or "fail" in line), lines[-1] if lines else "it does not say why")


class LoadedModel:
    """Closes with the `with`. `vocabulary`: number of tokens."""

    def __init__(self, path):
        self.path = os.fspath(path)
        if not os.path.isfile(self.path):
            raise TraceError("no such file", self.path, "Expected a GGUF file.")
        _said.clear()
        llama_cpp.llama_log_set(_listen, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        self.model = llama_cpp.llama_model_load_from_file(self.path.encode(), llama_cpp.llama_model_default_params())
        self._context = None
        if not self.model:
            raise TraceError(f"llama.cpp cannot load it: {_complaint()}", self.path)
        self._vocab = llama_cpp.llama_model_get_vocab(self.model)
        self.vocabulary = llama_cpp.llama_vocab_n_tokens(self._vocab)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._context:
            llama_cpp.llama_free(self._context)
        llama_cpp.llama_model_free(self.model)

    # What the file says.

    def metadata(self):
        """Its plain entries as texts; llama.cpp shortens lists."""
        found = {}
        for index in range(llama_cpp.llama_model_meta_count(self.model)):
            key, value = (self._text(call, index) for call in (llama_cpp.llama_model_meta_key_by_index,
                                                               llama_cpp.llama_model_meta_val_str_by_index))
            found[key] = value
        return found

    def _text(self, call, *where):
        """What a call of llama.cpp writes into a buffer."""
        size = 256
        while True:
            buffer = ctypes.create_string_buffer(size)
            length = call(self.model, *where, buffer, size)
            if length < size:
                return buffer.value.decode(errors="replace")
            size = length + 1

    def config_json(self):
        """The metadata without templates and lists of tokens."""
        short = {key: value for key, value in self.metadata().items() if len(value) < 1000 and not key.startswith("tokenizer.ggml.t")}
        return json.dumps({"gguf": short}).encode()[:MAX_CONFIG]

    def sha256(self):
        digest = hashlib.sha256()
        with open(self.path, "rb") as file:
            while block := file.read(1 << 22):
                digest.update(block)
        return digest.hexdigest()

    # Tokens.

    def tokenize(self, text, beginning=True):
        """Its ids; `beginning` as the file says, such as a token of beginning before them."""
        data = text.encode()
        room = len(data) + 16
        ids = (llama_cpp.llama_token * room)()
        count = llama_cpp.llama_tokenize(self._vocab, data, len(data), ids, room, beginning, True)
        if count < 0:
            raise TraceError("llama.cpp cannot tokenize with it", self.path, "Give token ids instead.")
        return list(ids[:count])

    def has_tokenizer(self):
        return llama_cpp.llama_vocab_type(self._vocab) != llama_cpp.LLAMA_VOCAB_TYPE_NONE

    def spelled(self, token_id):
        """The bytes of a token."""
        size = 64
        while True:
            buffer = ctypes.create_string_buffer(size)
            length = llama_cpp.llama_token_to_piece(self._vocab, token_id, buffer, size, 0, True)
            if length >= 0:
                return buffer.raw[:length]
            size = -length

    def is_special(self, token_id):
        return llama_cpp.llama_vocab_is_control(self._vocab, token_id)

    def ends(self, token_id):
        """Whether the token ends an answer."""
        return llama_cpp.llama_vocab_is_eog(self._vocab, token_id)

    def render(self, messages):
        """A conversation as text by the file's own chat template, up to where the answer begins."""
        template = self.metadata().get("tokenizer.chat_template")
        if not template:
            raise TraceError("has no chat template", self.path, "Give the text as it is.")
        from llama_cpp.llama_chat_format import Jinja2ChatFormatter
        pieces = [self.spelled(token_id).decode(errors="replace") if token_id >= 0 else "" for token_id in
                  (llama_cpp.llama_vocab_eos(self._vocab), llama_cpp.llama_vocab_bos(self._vocab))]
        try:
            return Jinja2ChatFormatter(template, *pieces)(messages=messages).prompt
        except Exception as error:  # the template's code can raise anything
            raise TraceError(f"its chat template refuses these messages: {error}", self.path) from error

    # Passes.

    def open_context(self, tokens, chunk, cache_types, flash, threads, callback):
        """Makes room for `tokens` tokens in passes of at most `chunk`, with keys and values of two types. Caches of windows are smaller
        than others, which tells their layers apart."""
        params = llama_cpp.llama_context_default_params()
        window = llama_cpp.llama_model_n_swa(self.model)
        params.n_ctx = max(tokens, 2 * (window + chunk) + 512 if window else 0)
        params.n_batch = params.n_ubatch = chunk
        params.n_threads = params.n_threads_batch = threads
        params.type_k, params.type_v = (CACHE_TYPES[name] for name in cache_types)
        params.flash_attn_type = {None: -1, False: 0, True: 1}[flash]
        params.swa_full = False
        params.cb_eval = callback
        _said.clear()
        self._context = llama_cpp.llama_init_from_model(self.model, params)
        if not self._context:
            raise TraceError(f"llama.cpp makes no context: {_complaint()}", self.path,
                             "Quantised caches need flash attention." if "q" in cache_types[1] else "")
        return llama_cpp.llama_n_ctx(self._context)

    def load(self, saved, count):
        """Loads the `count` tokens of a StateFile, but for the last."""
        path, loaded, found = saved.path.encode(), (llama_cpp.llama_token * count)(), ctypes.c_size_t()
        _said.clear()
        done = llama_cpp.llama_state_load_file(self._context, path, loaded, count, ctypes.byref(found)) if saved.whole_context else \
            llama_cpp.llama_state_seq_load_file(self._context, path, 0, loaded, count, ctypes.byref(found))
        memory = llama_cpp.llama_get_memory(self._context)
        if not done or llama_cpp.llama_memory_seq_pos_max(memory, 0) != count - 1:
            raise TraceError(f"llama.cpp cannot load it: {_complaint()}", saved.path, f"Is it of {self.path}?")
        llama_cpp.llama_memory_seq_rm(memory, 0, count - 1, -1)

    def run(self, ids):
        """Reads `ids` after what was read before. Returns the logits of the last."""
        array = (llama_cpp.llama_token * len(ids))(*ids)
        failed = llama_cpp.llama_decode(self._context, llama_cpp.llama_batch_get_one(array, len(ids)))
        if failed:
            raise TraceError(f"llama.cpp failed with {failed}: {_complaint()}", self.path)
        return np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(self._context, -1), (self.vocabulary,)).copy()

    def software(self):
        return f"llama-cpp-python {llama_cpp.__version__}" + ("" if llama_cpp.__version__ == TESTED else f", tested {TESTED}")
