"""One request of vLLM on its way into a trace."""
import datetime
import uuid

from ..hf.writer_thread import WriterThread
from ..writing.token_tree import Note, TokenTree
from ..writing.trace_file import TraceWriter
from ..writing.trace_header import DECODE, FLAGS, PROMPT, Header


class RequestRecording:
    """`known`: tokens recorded so far; rows of later positions are appended in order. Drafts and their rows wait until settle() knows which
    of them were accepted."""

    def __init__(self, request, path, prompt, sampling, model, overwrite):
        self.request, self.path, self.problem = request, path, None
        self._prompt, self._sampling, self._model = prompt, sampling, model
        self._tree, self._asked = TokenTree(), []
        self._drafts, self._waiting = [], {}  # token ids, and their rows of each tensor and layer
        self._call = None  # the pass over them
        self.from_cache = self.computed_again = self.drafted = self.rejected = 0
        self._writer = TraceWriter(path, model.about, model.elem, overwrite)
        self._thread = WriterThread(self._writer)

    @property
    def known(self):
        return len(self._tree)

    def found(self, ids):
        """Adds tokens whose keys and values the prefix cache has."""
        self.from_cache += len(ids)
        self._add(ids)

    def computed(self, ids, drafts=0):
        """Adds tokens that a pass computes, and returns the first. The last `drafts` may be rejected."""
        first, sure = self.known, len(ids) - min(drafts, len(ids))
        self._drafts = ids[sure:]
        self._asked += range(first, first + sure)
        self._add(ids[:sure])
        return first

    def settle(self, output):
        """Keeps those of the last pass's drafts that were accepted. `output`: gives what was generated, from a token on."""
        drafts, self._drafts = self._drafts, []
        if not drafts:
            return
        there = output(self.known - self._prompt)
        kept = next((at for at, draft in enumerate(drafts) if at >= len(there) or there[at] != draft), len(drafts))
        self.drafted += len(drafts)
        self.rejected += len(drafts) - kept
        self.computed(drafts[:kept])
        if self._call:
            self._tree.called(*self._call)
        for (tensor, layer), rows in self._waiting.items():
            if kept:
                self._thread.append(tensor, layer, rows[:, :kept])
        self._waiting, self._call = {}, None

    def _add(self, ids):
        for token_id in ids:
            tip = self.known - 1
            self._tree.append(tip, token_id, PROMPT if self.known < self._prompt else DECODE, Note(), float("nan"))

    def ran(self, first, start_ns, dur_ns):
        """Says when the pass over the tokens from `first` on ran."""
        self._call = first, start_ns, dur_ns
        if not self._drafts:
            self._tree.called(*self._call)

    def append(self, tensor, layer, rows, kept=False):
        """`rows`: [heads, n, dim], on any device. `kept`: as of WriterThread."""
        sure = rows.shape[1] - len(self._drafts)
        if sure < rows.shape[1]:
            self._waiting[tensor, layer] = rows[:, sure:].detach().clone()
        if sure:
            self._thread.append(tensor, layer, rows[:, :sure], kept)

    def discard(self):
        self._thread.abandon()
        self._writer.discard()

    def finish(self):
        """Writes the file."""
        try:
            self._thread.close()
            segments, owner = self._tree.segments()
            capture = self._model.capture(self._sampling)
            if self.from_cache:  # queries are those behind what the cache had
                last = next((i for i in range(1, len(self._asked)) if self._asked[-i - 1] != self._asked[-i] - 1), len(self._asked))
                capture.q_policy = f"window:{max(0, last - self.known + self._prompt)}"
            header = Header(
                capture, self._tree.id, segments, self._tree.passes(owner), token_flags=self._tree.flags,
                flags_known=FLAGS["generated"], query_token=self._asked if self.from_cache else None, file_uuid=str(uuid.uuid4()),
                writer="kvsim.vllm", created_utc=datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"))
            self._model.spell(header)
            self._writer.finish(header)
        finally:
            self._writer.discard()

    def said(self):
        generated = max(0, self.known - self._prompt)
        return {"request": self.request, "file": None if self.problem else self.path, "problem": self.problem,
                "prompt": self.known - generated, "generated": generated, "from_cache": self.from_cache,
                "computed_again": self.computed_again, "drafted": self.drafted, "rejected": self.rejected}
