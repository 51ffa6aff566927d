"""trace(): a context manager that records every forward call of a model while it is open."""
import datetime
import time
import uuid
import weakref

import numpy as np
import torch

from . import attention, refusals
from .column_statistics import ColumnStatistics
from ..writing.marks import Marks
from .latent_attention import LatentAttention
from .model_description import (attention_modules, decoder_of, describe_capture, describe_model, describe_tokenizer, leaves_pairs_apart,
                                output_weights)
from .row_choice import parse_attention, parse_queries
from .sampling import sampling_of_generate
from ..writing.token_selection import SelectionError
from .token_text import TokenText
from ..writing.token_tree import ROOT, Note, TokenTree
from ..writing.trace_error import TraceError
from ..writing.trace_file import TraceWriter
from ..writing.trace_header import DECODE, FLAGS, PROMPT, TEACHER_FORCED, Header
from .writer_thread import ELEMS, WriterThread, stored_words

PATH_OF_CACHE = "_kvsim_path"  # on a cache: (session, token that ends the path whose keys it holds); copies keep it
NAN = float("nan")


def trace(model, path, tokenizer=None, *, queries="all", attention="none", column_statistics=False, output_weights=False,
          seed=0, overwrite=False, directory=None, reproducible=False, context=(), question=(), evidence=(), occurrence=None):
    """Records the tensors of attention in every forward call of `model` inside the `with` to a kvsim trace at `path`:

        with trace(model, "run.h5", tokenizer=tokenizer):
            model.generate(**tokenizer(text, return_tensors="pt"), max_new_tokens=64)

    Several calls form one trace: where a call repeats earlier tokens (the next turn of a chat, another question about a
    document), they are stored once, and the new tokens branch off after them. The file appears when the `with` ends,
    unless it ends with an exception; the model is then restored.

    tokenizer       its tokens' text goes into the trace
    queries            rows of queries to store: all | window:W (the last W of each prompt and all generated ones) |
                       sample:K (K others, drawn by `seed`) | window:W,sample:K
    attention          attention rows to store, recomputed in float32: none | window:W | full
    column_statistics  store what the first prompt's keys received in sum; done anyway where queries are left out
    output_weights     store each layer's output projection as well
    directory          of the checkpoint: its config.json verbatim and the digest of its weights go into the trace
    reproducible       leave out what another run would not repeat: times, dates, threads
    context, question, evidence
                       parts of the prompt to mark as such: text that it holds, or token numbers such as "120:135,300"
                       (120 to 134, and 300; text of that form: "text:300"); or a list of these. If they cannot be found when
                       the `with` ends, the trace is written without them, and SelectionError says so
    occurrence         which one is meant of such a text that occurs several times, from 1, or "all"
    """
    marks = Marks({"context": context, "question": question, "evidence": evidence}, occurrence)
    if marks.need_text and tokenizer is None:
        raise SelectionError("text is looked for in what tokens spell, and no tokenizer says that", "tokenizer",
                             "Give one, or say token numbers, such as 120:135,300.")
    query_rows = parse_queries(queries, "queries", seed)
    return Session(model, path, tokenizer, query_rows, parse_attention(attention, "attention"),
                   column_statistics or not query_rows.everything, output_weights, seed, overwrite, directory,
                   reproducible, marks)


class _Call:
    """One forward call of the decoder while it passes through the layers."""

    def __init__(self, count, past, first, new, start):
        self.count, self.past = count, past      # tokens of this call, tokens before them on the path
        self.first, self.new = first, new        # first new token (file order), new tokens: the last of the call
        self.start = start
        self.layers = set()
        self.query_rows, self.attention_rows = [], []  # stored rows of this call
        self.counted = False  # whether its new tokens are counted in the column statistics


class Session:
    """Use trace()."""

    def __init__(self, model, path, tokenizer, queries, attention_rows, with_columns, with_output_weights, seed, overwrite,
                 directory, reproducible, marks):
        self._model, self._path, self._tokenizer = model, path, tokenizer
        self._queries, self._attention_rows = queries, attention_rows
        self._with_columns, self._with_output_weights, self._overwrite = with_columns, with_output_weights, overwrite
        self._directory, self._reproducible, self._marks = directory, reproducible, marks
        self._id = uuid.uuid4().hex
        self._tree = TokenTree()
        self._query_token, self._attention_token = [], []
        self._caches = weakref.WeakSet()
        self._call = self._prompt_length = self._chosen = None
        self._notes, self._flags_known = {}, FLAGS["generated"]
        self._sampling, self._prefill_chunk, self._seed, self._answer_phase = "greedy", 0, seed, DECODE
        self._undo, self._ran = [], False
        self._writer = self._thread = self._latent = None

    # Opening and closing.

    def __enter__(self):
        model = self._model
        refusals.check_model(model)
        if attention.current_session() is not None or "kvsim_traced" in str(model.config._attn_implementation):
            raise TraceError("is being traced already", type(model).__name__)
        self._decoder = decoder_of(model)
        self._kind = attention.kind_of(self._decoder)
        modules = attention_modules(self._decoder)
        self._dtype = next(model.parameters()).dtype
        if self._dtype not in ELEMS:
            raise TraceError(f"computes in {self._dtype}; float32, float16 and bfloat16 are traced", type(model).__name__)
        self._capture = describe_capture(model, ELEMS[self._dtype], self._kind)
        try:
            self._install_attention()
            self._about, self._rotations = describe_model(model, self._directory)
            if self._about.values_in_keys:
                self._latent = LatentAttention(modules, leaves_pairs_apart(model.config.get_text_config(), self._rotations))
                self._undo += [hook.remove for hook in self._latent.hooks]
            self._columns = ColumnStatistics(self._about) if self._with_columns else None
            self._writer = TraceWriter(self._path, self._about, ELEMS[self._dtype], self._overwrite)
            if self._with_output_weights:
                for layer, module in enumerate(modules):
                    weights = output_weights(module, self._about.n_q_heads).contiguous().cpu()
                    self._writer.put_output_weights(layer, stored_words(weights), ELEMS[weights.dtype])
            self._thread = WriterThread(self._writer)
            self._install_hooks()
        except BaseException:
            self._restore()
            if self._thread is not None:
                self._thread.abandon()
            if self._writer is not None:
                self._writer.discard()
            raise
        self._origin = time.monotonic_ns()
        return self

    def __exit__(self, kind, error, place):
        self._restore()
        try:
            if kind is not None:
                self._thread.abandon()
                return
            self._thread.close()
            self._require_whole_calls()
            if len(self._tree) == 0:
                raise TraceError("no forward call ran inside the with: there is nothing to trace", self._path)
            if self._columns is not None and self._columns.tokens:
                self._columns.store(self._writer)
            self._finish(self._header())
        finally:
            self._writer.discard()

    def _finish(self, header):
        """Finishes the trace even if a part cannot be marked, so that the recorded run is not lost."""
        unmarked = None
        try:
            self._marks.put(header)
        except SelectionError as error:
            unmarked = error
        self._writer.finish(header)
        if unmarked is not None:
            raise SelectionError(f"{unmarked}\n  {self._path} is written, without marks. Add them with kvsim trace mark.")

    def _install_attention(self):
        configs = {id(config): config for config in (self._model.config, self._decoder.config)}
        for config in configs.values():
            before = config._attn_implementation
            self._undo.append(lambda config=config, before=before: setattr(config, "_attn_implementation", before))
            config._attn_implementation = attention.register(self._kind)

    def _install_hooks(self):
        model = self._model
        hooks = [self._decoder.register_forward_pre_hook(self._before_decoder, with_kwargs=True),
                 self._decoder.register_forward_hook(self._after_decoder, with_kwargs=True)]
        if self._decoder is not model:
            hooks.append(model.register_forward_hook(self._after_model))
        self._undo += [hook.remove for hook in hooks]
        if hasattr(model, "generate"):
            had = model.__dict__.get("generate")
            self._generate = model.generate
            model.generate = self._traced_generate
            self._undo.append(lambda: setattr(model, "generate", had) if had else model.__dict__.pop("generate", None))

    def _restore(self):
        attention.set_current_session(None)
        while self._undo:
            self._undo.pop()()
        for cache in self._caches:
            cache.__dict__.pop(PATH_OF_CACHE, None)

    # Descriptions that the caller may add.

    def describe_prompt(self, notes, flags_known=0, first=0):
        """Sets role, flags and turn of the tokens of the next prompt: `notes`, a list of Note, from path position
        `first` on. `flags_known`: the meaningful bits of the flags."""
        self._notes = {first + i: note for i, note in enumerate(notes)}
        self._prompt_length = first + len(notes)
        self._flags_known |= flags_known

    def describe_run(self, sampling, prefill_chunk, given=False):
        """Sets how tokens are chosen, the largest number of prompt tokens per call (0: all), and whether tokens after
        the prompt are given (teacher forcing)."""
        self._sampling, self._prefill_chunk = sampling, prefill_chunk
        self._answer_phase = TEACHER_FORCED if given else DECODE

    # One call of generate().

    def _traced_generate(self, *arguments, **options):
        refusals.check_generate(self._model, options)
        ids = arguments[0] if arguments else options.get("inputs", options.get("input_ids"))
        config = arguments[1] if len(arguments) > 1 else options.get("generation_config") or self._model.generation_config
        self._prompt_length = ids.shape[-1] if torch.is_tensor(ids) else None
        self._sampling = sampling_of_generate(lambda name: options.get(name, getattr(config, name, None)))
        try:
            result = self._generate(*arguments, **options)
        finally:
            self._prompt_length, self._notes = None, {}
        sequence = getattr(result, "sequences", result)
        if torch.is_tensor(sequence) and sequence.ndim == 2 and self._chosen is not None:
            self._chosen = (*self._chosen[:2], int(sequence[0, -1]))
        return result

    # One forward call.

    def _before_decoder(self, module, arguments, keywords):
        self._require_whole_calls()
        cache = keywords.get("past_key_values")
        refusals.check_cache(cache)
        past = int(cache.get_seq_length()) if cache is not None else 0
        ids = keywords.get("input_ids", arguments[0] if arguments else None)
        refusals.check_call(ids, past, keywords)
        start = self._clock(ids.device)
        tip, known = self._tree.follow(self._tip_of(cache, past), ids[0].tolist())
        self._call = _Call(ids.shape[1], past, len(self._tree), ids.shape[1] - known, start)
        self._append_tokens(tip, ids[0, known:].tolist())
        attention.set_current_session(self)

    def _append_tokens(self, tip, new):
        call, linear = self._call, tip == len(self._tree) - 1
        prompt = self._prompt_length
        if prompt is None:  # a forward call by the user: a single token after others counts as generated
            prompt = call.past + (0 if call.count == 1 and call.past > 0 else call.count)
        for token_id in new:
            position = self._tree.path_length(tip)
            chosen = self._chosen is not None and self._chosen[0] == tip and self._chosen[2] in (None, token_id)
            generated = position >= prompt or (chosen and self._chosen[2] is not None)
            logprob = NAN
            if generated and chosen and self._chosen[1] is not None:
                logprob = float(self._chosen[1].float().log_softmax(-1)[token_id])
            note = self._notes.get(position, Note()) if not generated else Note(self._role_after(tip))
            row = call.count - call.new + len(self._tree) - call.first
            if self._queries.keeps(position, prompt):
                call.query_rows.append(row)
                self._query_token.append(len(self._tree))
            if self._attention_rows.keeps(position, prompt):
                call.attention_rows.append(row)
                self._attention_token.append(len(self._tree))
            tip = self._tree.append(tip, token_id, self._answer_phase if generated else PROMPT, note, logprob)
        call.tip = tip
        if self._columns is not None:
            prompt_only = not any(self._tree.phase[call.first:])
            call.counted = self._columns.counts(linear, prompt_only, call.new)
        self._chosen = None

    def _role_after(self, tip):
        """The role of a token after `tip`: a generated token has the role of the message that the prompt ended with."""
        return self._tree.role[tip] if tip != ROOT else 0

    @torch.no_grad()
    def on_attention(self, module, query, key, value, keywords):
        """Handles a call of the attention function: [1, heads, tokens, d] each, keys and values including earlier
        tokens."""
        call, layer, about = self._call, module.layer_idx, self._about
        refusals.check_attention(about, keywords)
        query, keywords = attention.unscaled(module, query, keywords)
        if layer in call.layers:
            raise TraceError(f"layer {layer} ran twice in one call", "attention", "This architecture is not traced.")
        call.layers.add(layer)
        latent = self._latent
        refusals.check_tensors(about, layer, (query, key, value), self._dtype, call.past, call.count, keywords,
                               latent and latent.shapes(module))
        query, key, value = query[0], key[0], value[0]
        if call.new:
            new = key[:, -call.new:]
            self._thread.append("k", layer, latent.keys(module, new) if latent else new)
            if not latent:
                self._thread.append("v", layer, value[:, -call.new:])
        if call.query_rows:
            rows = _rows(query, call.query_rows)
            self._thread.append("q", layer, latent.queries(module, rows) if latent else rows)
        if call.counted:
            self._columns.add(layer, query[:, -call.new:], key, call.past + call.count - call.new)
        step = attention.rows_per_block(about.n_q_heads, key.shape[1])
        for begin in range(0, len(call.attention_rows), step):
            self._store_attention(layer, query, key, call.attention_rows[begin:begin + step], about)

    def _store_attention(self, layer, query, key, rows, about):
        call = self._call
        positions = [call.past + row for row in rows]
        first = about.first_seen(layer, positions[0])
        end, held = positions[-1] + 1, call.past + call.count - key.shape[1]  # the path position of the first key
        p = attention.probabilities(_rows(query, rows), key[:, first - held:end - held], positions, first, about, layer)
        spans = [(about.first_seen(layer, position), position + 1) for position in positions]
        self._thread.append_attention(layer, first, spans, p)

    def _after_decoder(self, module, arguments, keywords, output):
        attention.set_current_session(None)
        call, self._call = self._call, None
        missing = self._about.n_layers - len(call.layers)
        if missing:
            raise TraceError(f"{missing} of {self._about.n_layers} layers did not call the attention function",
                             type(self._model).__name__, "This architecture does not use transformers' AttentionInterface.")
        cache = getattr(output, "past_key_values", None)
        cache = keywords.get("past_key_values") if cache is None else cache
        if cache is not None:
            refusals.check_cache(cache)
            setattr(cache, PATH_OF_CACHE, (self._id, call.tip))
            self._caches.add(cache)
        self._chosen = (call.tip, None, None)
        self._check_frequencies()
        self._ran = True
        self._tree.called(call.first, *self._since(call.start))

    def _after_model(self, module, arguments, output):
        logits = getattr(output, "logits", None)
        if self._chosen is not None and logits is not None and logits.shape[1] > 0:
            self._chosen = (self._chosen[0], logits[0, -1].detach(), None)

    def _tip_of(self, cache, past):
        """The last token of the path whose keys the cache holds."""
        if past == 0:
            return ROOT
        session, tip = getattr(cache, PATH_OF_CACHE, (None, ROOT))
        if session != self._id or self._tree.path_length(tip) < past:
            raise TraceError(f"holds {past} tokens that did not run inside this trace", "past_key_values",
                             "Fill the cache inside the with, too: a trace holds all keys of a path.")
        return self._tree.cut(tip, past)

    def _check_frequencies(self):
        """Checks that the frequencies are still those of the first call, because longrope chooses them by the length of
        a call."""
        found = self._rotations.frequencies().ravel()
        if not self._ran:
            self._about.inv_freq = found
        if not np.array_equal(found, self._about.inv_freq):
            raise TraceError(f"RoPE of type {self._about.rope_type} changed its frequencies at this length: keys before and "
                             "after do not fit", type(self._model).__name__,
                             "Stay below the original context length, or begin with one call that is beyond it.")

    def _require_whole_calls(self):
        if self._call is not None:
            raise TraceError("a forward call failed midway: the trace would lack its last layers", self._path,
                             "Let the exception end the with.")

    # Time.

    def _clock(self, device):
        """The time now, after synchronising a GPU, whose calls return before they are computed."""
        if device.type == "cuda":
            torch.cuda.current_stream(device).synchronize()
        return time.monotonic_ns()

    def _since(self, start):
        now = self._clock(next(self._model.parameters()).device)
        return (0, 0) if self._reproducible else (start - self._origin, now - start)

    # The end.

    def _header(self):
        tree, capture = self._tree, self._capture
        segments, owner = tree.segments()
        capture.q_policy, capture.row_policy = self._queries.text, self._attention_rows.text
        capture.sampling, capture.prefill_chunk, capture.seed = self._sampling, self._prefill_chunk, self._seed
        capture.teacher_forced = self._answer_phase == TEACHER_FORCED
        if self._reproducible:
            capture.threads = 0
        header = Header(capture, tree.id, segments, tree.passes(owner), token_flags=tree.flags,
                        flags_known=self._flags_known, writer="kvsim_capture")
        if any(value == value for value in tree.logprob):
            header.token_logprob = tree.logprob
        if len(self._query_token) < len(tree):
            header.query_token = self._query_token
        if not self._attention_rows.nothing:
            header.attention_token = self._attention_token
        if not self._reproducible:
            header.file_uuid = str(uuid.uuid4())
            header.created_utc = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        if self._tokenizer is not None:
            self._add_text(header)
        return header

    def _add_text(self, header):
        text = TokenText(self._tokenizer)
        header.token_text = [text.bytes(token_id) for token_id in header.token_id]
        header.flags_known |= FLAGS["special"] | FLAGS["white_space"] | FLAGS["punctuation"] | FLAGS["digit"]
        header.token_flags = [known | text.flags(token_id) for known, token_id in zip(header.token_flags, header.token_id)]
        header.tokenizer_name, header.tokenizer_sha256 = describe_tokenizer(self._tokenizer, self._directory)


def _rows(query, rows):
    """The `rows` of [heads, n, d]; a slice if they are consecutive."""
    if rows[-1] - rows[0] + 1 == len(rows):
        return query[:, rows[0]:rows[-1] + 1]
    return query[:, rows]
