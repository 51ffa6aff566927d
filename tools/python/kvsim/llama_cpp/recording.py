"""record(): runs a GGUF file in llama.cpp and writes a trace of it."""
import datetime
import os
import platform
import time
import uuid
from dataclasses import dataclass

import h5py
import numpy as np

from .ggml_tensor import TESTED, widened  # noqa: F401 - before the rest, as it says what is missing
from .graph_recorder import GraphRecorder
from .loaded_model import LoadedModel
from .state_file import CACHE_TYPES, StateFile
from ..hf.sampling import Sampling
from ..hf.token_text import text_flags
from ..writing.marks import Marks
from ..writing.stored_elements import WORDS, narrow, widen
from ..writing.token_selection import SelectionError
from ..writing.trace_error import TraceError
from ..writing.trace_file import TraceWriter
from ..writing.trace_header import DECODE, FLAGS, PROMPT, TEACHER_FORCED, Capture, Header, Model, Pass, Segment

import llama_cpp


@dataclass
class Recorded:
    """What record() did. `text`: of the generated tokens, None without a tokenizer. `kept_layers`: those that have a cache."""
    prompt: list
    generated: list
    text: str
    kept_layers: list
    layers: int


def record(model, path, prompt=None, *, tokens=None, messages=None, state=None, max_new_tokens=64, answer_tokens=None, ignore_eos=False,
           temperature=0.0, top_k=0, top_p=1.0, seed=0, prefill_chunk=512, cache="f16", flash=None, threads=None, overwrite=False,
           context=(), question=(), evidence=(), occurrence=None, on_tokens=lambda count: None):
    """Runs the GGUF file `model` in llama.cpp and writes the queries, keys and values of its attention to `path`.

    prompt, tokens, messages, state  one of them: text as it is, token ids, [{"role": ..., "content": ...}] for the file's chat template,
                     or a file in which llama.cpp saved a cache: the run goes on from there. Queries of what the file holds do not
                     exist, but for its last token's, which is read again; `cache` and `flash` are those of the file
    answer_tokens    ids to go on with instead of generating
    temperature, top_k, top_p, seed   as in kvsim capture; 0: the likeliest token
    prefill_chunk    prompt tokens per pass
    cache            type of llama.cpp's cache: f32, f16, bf16, q8_0, q5_1, q5_0, q4_1, q4_0. The trace has what attention reads: keys
                     and values as they come out of this cache
    flash            flash attention: None is llama.cpp's own choice
    context, question, evidence, occurrence   parts of the prompt to mark, as in kvsim.hf.trace
    on_tokens        called after each pass with its number of tokens

    Returns Recorded. Raises TraceError, and SelectionError for a part that is not found: the trace is then written without marks."""
    marks = Marks({"context": context, "question": question, "evidence": evidence}, occurrence)
    if sum(given is not None for given in (prompt, tokens, messages, state)) != 1:
        raise TraceError("give one of prompt, tokens, messages and state", "record")
    if cache not in CACHE_TYPES:
        raise TraceError(f"\"{cache}\" is no type of a cache", "cache", f"Expected one of {', '.join(CACHE_TYPES)}.")
    saved, types = None, (cache, cache)
    if state is not None:
        saved = StateFile(state)
        tokens, types, flash = saved.tokens, (saved.type_of("k"), saved.type_of("v") or saved.type_of("k")), not saved.transposed
    with LoadedModel(model) as loaded:
        if tokens is None and not loaded.has_tokenizer():
            raise TraceError("has no tokenizer", loaded.path, "Give token ids instead.")
        ids = list(tokens) if tokens is not None else loaded.tokenize(loaded.render(messages), beginning=False) if messages is not None \
            else loaded.tokenize(prompt)
        if not ids or not all(0 <= token_id < loaded.vocabulary for token_id in (*ids, *(answer_tokens or ()))):
            raise TraceError(f"expected token ids below {loaded.vocabulary}" if ids else "holds no token", "the prompt")
        sampling = Sampling(temperature, top_k, top_p, seed)
        run = _Run(loaded, path, ids, sampling, prefill_chunk, types, flash, threads or os.cpu_count(), overwrite, on_tokens, saved)
        try:
            run.read(answer_tokens, len(answer_tokens) if answer_tokens else max_new_tokens, ignore_eos)
            unmarked = run.finish(marks)
        finally:
            run.discard()
        if unmarked is not None:
            raise unmarked
        text = b"".join(map(loaded.spelled, run.ids[len(ids):])).decode(errors="replace") if loaded.has_tokenizer() else None
        return Recorded(ids, run.ids[len(ids):], text, run.kept, run.n_layers)


class _Run:
    """cache: the types of keys and of values. saved: a StateFile that holds the prompt's, or None."""

    def __init__(self, loaded, path, prompt, sampling, chunk, cache, flash, threads, overwrite, on_tokens, saved):
        self._loaded, self._path, self._overwrite, self._on_tokens = loaded, os.fspath(path), overwrite, on_tokens
        self.ids, self._prompt, self._logprob = list(prompt), len(prompt), [np.nan] * len(prompt)
        self._sampling, self._chunk, self._cache, self._flash, self._threads = sampling, chunk, cache, flash, threads
        self._recorder, self._writer, self.kept, self._passes = GraphRecorder(), None, None, []
        self.n_layers = llama_cpp.llama_model_n_layer(loaded.model)
        self._origin = time.monotonic_ns()
        self._given, self._saved = False, saved

    def read(self, given, count, ignore_eos):
        """Reads the prompt and `count` more tokens: those given, or those that the model chooses."""
        trained = llama_cpp.llama_model_n_ctx_train(self._loaded.model)
        if trained and self._prompt + count > trained:
            raise TraceError(f"{self._prompt} prompt tokens and {count} new ones are more than the model's {trained} positions",
                             self._loaded.path, "Shorten the prompt, or generate fewer.")
        self._given = bool(given)
        self._cells = self._loaded.open_context(self._prompt + count, self._chunk, self._cache, self._flash, self._threads,
                                                self._recorder.callback)
        logits = self._read_prompt() if self._saved is None else self._read_saved()
        for step in range(count):
            token_id = given[step] if given else self._sampling.choose(logits, step)
            self._logprob.append(float(logits[token_id] - np.logaddexp.reduce(logits, dtype="f8")))
            self.ids.append(token_id)
            logits = self._pass([token_id], len(self.ids) - 1)
            if not given and not ignore_eos and self._loaded.ends(token_id):
                break

    def _read_prompt(self):
        for first in range(0, self._prompt, self._chunk):
            logits = self._pass(self.ids[first:min(first + self._chunk, self._prompt)], first)
        return logits

    def _read_saved(self):
        """Lets llama.cpp load what it saved and read the last token of that again, whose query and logits are new; keys and values are
        those of the file."""
        self._loaded.load(self._saved, self._prompt)
        logits = self._pass(self.ids[-1:], self._prompt - 1, "q")
        for index, layer in enumerate(self.kept):
            for kind in "kv":
                of = "k" if self._recorder.layers[layer].latent else kind
                name, raw = self._saved.type_of(of), self._saved.raw(of, index)
                rows = widen(raw.view(WORDS[name]), name) if name in WORDS else widened(raw, CACHE_TYPES[name])
                self._writer.append(kind, index, narrow(self._recorder.taken(layer, kind, rows), self._elem))
        return logits

    def _pass(self, ids, past, kinds="qkv"):
        start, recorder = time.monotonic_ns(), self._recorder
        recorder.begin(len(ids))
        try:
            logits = self._loaded.run(ids)
        finally:
            recorder.end()  # what it found is why llama.cpp failed
        phase = 0 if past < self._prompt else 1
        self._passes.append(Pass(phase, past, len(ids), start - self._origin, time.monotonic_ns() - start))
        if self._writer is None:
            types = recorder.read_types  # what comes out of a quantised cache is stored as it is, in float32
            self._elem = next(iter(types)) if len(types) == 1 and types <= WORDS.keys() else "f32"
            self._writer = TraceWriter(self._path, self._describe(), self._elem, self._overwrite)
        self._check_windows(past + len(ids))
        for index, layer in enumerate(self.kept):
            for kind in kinds:
                self._writer.append(kind, index, narrow(recorder.taken(layer, kind), self._elem))
        self._on_tokens(len(ids))
        return logits

    def _describe(self):
        """The trace's model, by what the first pass has shown."""
        layers = self._recorder.layers
        self.kept = sorted(layer for layer, facts in layers.items() if facts.q_heads)
        if not self.kept:
            raise TraceError("no layer of it has keys and values in a cache", self._loaded.path, "There is nothing to record.")
        every = [layers[layer] for layer in self.kept]
        first = every[0]
        if not first.latent and "v" not in self._recorder.rows[self.kept[0]]:
            raise TraceError("keeps latent keys, whose values are told with flash attention alone", self._loaded.path,
                             "Leave flash attention to llama.cpp, or turn it on.")
        for name in ("q_heads", "kv_heads", "head_dim", "v_head_dim", "scale", "latent"):
            if any(getattr(facts, name) != getattr(first, name) for facts in every):
                raise TraceError(f"its layers differ in {name}, which a trace has once", self._loaded.path)
        window = llama_cpp.llama_model_n_swa(self._loaded.model)
        self._windows = {layer: window if window and facts.cells < self._cells else -1 for layer, facts in zip(self.kept, every)}
        turned = [facts.rotation for facts in every if facts.rotation.dims]
        pairs = turned[0].dims // 2 if turned else 0
        if any(rotation.dims != 2 * pairs for rotation in turned):
            raise TraceError("rotates keys of some layers by more components than those of others", self._loaded.path)
        turns = {layer: (tuple(facts.rotation.inv_freq if facts.rotation.dims else [0.0] * pairs), facts.rotation.factor)
                 for layer, facts in zip(self.kept, every)}
        # Rotation 0 is that of layers with full attention, as in traces of kvsim capture.
        rotations = list(dict.fromkeys(turns[layer] for layer in sorted(self.kept, key=lambda layer: self._windows[layer])))
        several = len(rotations) > 1
        metadata = self._loaded.metadata()
        value_dim = first.v_head_dim or self._recorder.rows[self.kept[0]]["v"].shape[1] // first.kv_heads
        return Model(
            n_layers=len(every), n_q_heads=first.q_heads, n_kv_heads=first.kv_heads, head_dim=first.head_dim, v_head_dim=value_dim,
            vocab_size=self._loaded.vocabulary, rotary_dim=2 * pairs, hidden_size=llama_cpp.llama_model_n_embd(self._loaded.model),
            attn_scale=first.scale, layer_window=list(self._windows.values()),
            rope_theta=next((facts.rotation.theta for layer, facts in zip(self.kept, every) if turns[layer] == rotations[0]), 0.0),
            rope_attention_factor=rotations[0][1], inv_freq=np.array([frequencies for frequencies, _ in rotations], "<f4").ravel(),
            layer_rotation=[rotations.index(turns[layer]) for layer in self.kept] if several else None,
            rotation_factor=[factor for _, factor in rotations] if several else None,
            name=os.path.basename(self._loaded.path), model_type=metadata.get("general.architecture", ""),
            weights_sha256=self._loaded.sha256(), config_json=self._loaded.config_json())

    def _check_windows(self, seen):
        """Checks that the last token of a pass sees as many keys as the layer's window says."""
        for layer, window in self._windows.items():
            found, expected = self._recorder.visible[layer], seen if window < 0 else min(seen, window)
            if found != expected:
                raise TraceError(f"the last of {seen} tokens attends to {found} in layer {layer}, not to {expected}", self._loaded.path,
                                 "Full attention and sliding windows are recorded.")

    def finish(self, marks):
        """Writes the file. Returns what marks could not be found."""
        new, loaded = len(self.ids) - self._prompt, self._loaded
        flags = [0] * self._prompt + [FLAGS["generated"]] * new
        phase = TEACHER_FORCED if self._given else DECODE
        capture = Capture(
            "converted:llama.cpp", device_name="cpu", device_kind="cpu",
            software=f"{loaded.software()}, h5py {h5py.__version__}, numpy {np.__version__}, Python {platform.python_version()}",
            compute_dtype=f"weights as in the file, cache {' and '.join(dict.fromkeys(self._cache))}", accum_dtype="f32",
            attention_kernel="llama.cpp " + ("flash attention" if self._recorder.flash else "softmax"),
            sampling="given" if self._given else str(self._sampling), q_policy="all" if self._saved is None else "window:1",
            threads=self._threads, prefill_chunk=self._chunk, seed=self._sampling.seed, teacher_forced=self._given)
        header = Header(
            capture, self.ids, [Segment(self._prompt, phase=PROMPT)] + ([Segment(new, 0, phase)] if new else []), self._passes,
            token_flags=flags, flags_known=FLAGS["generated"], file_uuid=str(uuid.uuid4()), writer="kvsim.llama_cpp",
            created_utc=datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"))
        if self._saved is not None and self._prompt > 1:
            header.query_token = range(self._prompt - 1, len(self.ids))
        if new:
            header.token_logprob = self._logprob
        if loaded.has_tokenizer():
            header.token_text = [loaded.spelled(token_id) for token_id in self.ids]
            header.flags_known |= FLAGS["special"] | FLAGS["white_space"] | FLAGS["punctuation"] | FLAGS["digit"]
            header.token_flags = [known | (FLAGS["special"] if loaded.is_special(token_id) else text_flags(text))
                                  for known, token_id, text in zip(flags, self.ids, header.token_text)]
            header.tokenizer_name = os.path.basename(loaded.path)
        try:
            marks.put(header)
            unmarked = None
        except SelectionError as error:
            unmarked = SelectionError(f"{error}\n  {self._path} is written, without marks. Add them with kvsim trace mark.")
        self._writer.finish(header)
        return unmarked

    def discard(self):
        if self._writer is not None:
            self._writer.discard()
