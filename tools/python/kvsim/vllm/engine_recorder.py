"""Records requests beside vLLM's model runner. Queries, keys and values are what each layer's `impl.forward` takes: after rotation and
norms, behind torch.compile. Which rows are whose follows from the runner's batch."""
import functools
import hashlib
import json
import logging
import re
import time
from dataclasses import dataclass

from .cache_reader import CacheReader
from .engine_model import EngineModel
from .request_recording import RequestRecording
from ..writing.trace_error import TraceError

_ATTACHED = "_kvsim_recorder"  # on a model runner
_said = logging.getLogger("vllm.kvsim")


@dataclass
class Settings:
    """As the arguments of record()."""
    path: str = None
    log: str = None
    share: float = 1.0
    at_once: int = None
    overwrite: bool = False

    def __post_init__(self):
        if self.path is None and self.log is None:
            raise TraceError("give a path for traces, or a log for requests", "record")
        if self.path is not None and "{request}" not in self.path:
            raise TraceError("names one file for all requests", self.path, "Write {request} where the id of a request belongs.")


def start(runner, settings):
    """Begins to record what a model runner of vLLM runs. `settings`: Settings as a dict, which may come from another process."""
    if hasattr(runner, _ATTACHED):
        raise TraceError("is being recorded already", "vLLM")
    recorder = EngineRecorder(runner, Settings(**settings))
    recorder.attach()
    setattr(runner, _ATTACHED, recorder)


def stop(runner):
    """Ends it, and returns what record() yields, as a dict."""
    return runner.__dict__.pop(_ATTACHED).detach()


def start_in(worker, settings):
    """start() as an engine calls it in its worker."""
    start(worker.model_runner, settings)


def stop_in(worker):
    return stop(worker.model_runner)


class _Part:
    """Rows of a request in a pass: `found` positions [known, position) come from the cache, rows [begin, end) are new."""

    def __init__(self, request, row, known, found_end, first, begin, end):
        self.request, self.row, self.known, self.found_end = request, row, known, found_end
        self.first, self.begin, self.end = first, begin, end


class EngineRecorder:
    def __init__(self, runner, settings):
        self._runner, self._settings = runner, settings
        self._model = EngineModel(runner)
        if settings.path and self._model.ranks > 1 and "{rank}" not in settings.path:
            raise TraceError(f"names one file for all {self._model.ranks} ranks", settings.path,
                             "Write {rank} where the number of the rank belongs; kvsim trace join makes one trace of theirs.")
        self._readers = {}     # layer -> CacheReader
        self._open, self._done, self._left_out = {}, [], 0
        self._logged = {}      # request -> its line of the log, in order of arrival; lines wait for those before them
        self._log = open(settings.log, "w" if settings.overwrite else "x", encoding="utf-8", buffering=1) \
            if settings.log and self._model.rank == 0 else None  # all ranks see the same requests
        self._error, self._seconds, self._began = None, 0.0, time.monotonic()
        self._scheduled = self._parts = None  # of the pass that runs; its parts are known from the first layer on
        self._one_copy = False

    # Attaching and detaching.

    def attach(self):
        self._execute = self._runner.execute_model

        @functools.wraps(self._execute)
        def execute_model(scheduled, *arguments, **named):
            self._guarded(self._before, scheduled)
            started = time.monotonic()
            try:
                return self._execute(scheduled, *arguments, **named)
            finally:
                self._guarded(self._after, started)

        self._runner.execute_model = execute_model
        for index, layer in enumerate(self._model.layers if self._settings.path else ()):
            self._wrap(index, layer)

    def _hook(self, layer):
        """What takes a layer's queries, keys and values, and the number of its arguments before them."""
        return (layer, "forward_impl", 0) if self._model.latent else (layer.impl, "forward", 1)

    def _wrap(self, index, layer):
        owner, name, first = self._hook(layer)
        original = getattr(owner, name)

        @functools.wraps(original)
        def forward(*arguments, **named):
            query, key, value, cache, metadata = arguments[first:first + 5]
            if metadata is not None and self._scheduled is not None:  # neither: the engine is warming up
                self._guarded(self._attended, index, layer, query, key, value, cache, metadata)
            return original(*arguments, **named)

        setattr(owner, name, forward)

    def detach(self):
        del self._runner.execute_model
        for layer in self._model.layers if self._settings.path else ():
            owner, name, _ = self._hook(layer)
            delattr(owner, name)
        for request in dict.fromkeys([*self._logged, *self._open]):
            self._guarded(self._finish, request)
        if self._log:
            self._log.close()
        if self._error is not None:
            for recording in self._open.values():
                recording.discard()
            raise self._error
        return {"requests": self._done, "left_out": self._left_out, "seconds": self._seconds,
                "cache_tokens": self._model.cache_tokens()}

    def _guarded(self, take, *arguments):
        """An exception must not reach the engine, which would end: it ends recording, and stop() raises it."""
        if self._error is not None:
            return
        began = time.perf_counter()
        try:
            take(*arguments)
        except Exception as error:  # noqa: BLE001 - raised by stop()
            self._error = error
            _said.error("kvsim records no more: %s", error)
        self._seconds += time.perf_counter() - began

    # A pass.

    def _before(self, scheduled):
        for request in scheduled.finished_req_ids:
            self._finish(request)
        self._scheduled, self._parts = scheduled, None
        for new in scheduled.scheduled_new_reqs:
            self._begin(new)

    def _after(self, started):
        for part in self._parts or ():
            if part.first is not None:
                part.request.ran(part.first, int((started - self._began) * 1e9), int((time.monotonic() - started) * 1e9))
        self._scheduled = self._parts = None

    def _begin(self, new):
        request, settings = new.req_id, self._settings
        odd = next((said for name, said in (("mm_features", "has images or sound"), ("prompt_embeds", "has vectors for a prompt"),
                                            ("pooling_params", "generates nothing")) if getattr(new, name)), None)
        if self._log and not odd:
            self._logged[request] = {"time": round(time.monotonic() - self._began, 6), "request": _outside(request),
                                     "hit_tokens": new.num_computed_tokens, "prompt": list(new.prompt_token_ids)}
        if not settings.path:
            return
        drawn = int.from_bytes(hashlib.sha256(request.encode()).digest()[:4], "big") < settings.share * (1 << 32)
        if odd or not drawn or (settings.at_once is not None and len(self._open) >= settings.at_once):
            self._left_out += 1
            return
        path = settings.path.replace("{request}", re.sub(r"[^A-Za-z0-9_-]", "_", _outside(request)))
        path = path.replace("{rank}", str(self._model.rank))
        try:
            self._open[request] = RequestRecording(_outside(request), path, len(new.prompt_token_ids), _sampling(new.sampling_params),
                                                   self._model, settings.overwrite)
        except (TraceError, OSError) as error:
            self._done.append({"request": _outside(request), "file": None, "problem": str(error)})

    def _finish(self, request):
        self._log_end(request)
        recording = self._open.pop(request, None)
        if recording is None:
            return
        recording.settle(lambda first: self._output(request, first))
        if recording.known and not recording.problem:
            try:
                recording.finish()
            except (TraceError, OSError) as error:
                recording.problem = str(error)
        else:
            recording.discard()
            recording.problem = recording.problem or "was never computed"
        self._done.append(recording.said())
        _said.info("%s: %s", recording.request, recording.problem or f"wrote {recording.path}")

    def _log_end(self, request):
        if request in self._logged:
            self._logged[request]["output"] = [token_id for token_id in self._output(request) if token_id >= 0]
        while self._logged and "output" in (line := next(iter(self._logged.values()))):
            self._log.write(json.dumps(line) + "\n")
            self._logged.pop(next(iter(self._logged)))

    def _output(self, request, first=0):
        """What was generated, from a token on. Accepted drafts behind a request's end are no part of it, though the runner has them."""
        state = self._runner.requests.get(request)
        if state is None:
            return []
        params = state.sampling_params
        output = state.output_token_ids[first:params.max_tokens]
        stops = {params.eos_token_id, *(params.stop_token_ids or ())}
        return output[:next((at + 1 for at, token_id in enumerate(output) if token_id in stops), None)]

    def _plan(self, rows):
        """The parts of this pass, in the order of its rows."""
        batch, counts = self._runner.input_batch, self._scheduled.num_scheduled_tokens
        total = sum(counts[request] for request in batch.req_ids)
        if rows < total:
            raise TraceError(f"attention takes {rows} rows of a pass over {total} tokens", "vLLM", "Turn micro-batches off.")
        ids, begin, parts = self._runner.input_ids.gpu[:total].tolist(), 0, []
        drafts = self._scheduled.scheduled_spec_decode_tokens
        for row, request in enumerate(batch.req_ids):
            position, end = int(batch.num_computed_tokens_cpu[row]), begin + counts[request]
            recording = self._open.get(request)
            if recording is not None and not recording.problem:
                recording.settle(lambda first: self._output(request, first))
                known, state = recording.known, self._runner.requests[request]
                if position > known:
                    recording.found([state.get_token_id(at) for at in range(known, position)])
                skipped = min(max(0, known - position), end - begin)
                recording.computed_again += skipped
                first = recording.computed(ids[begin + skipped:end], len(drafts.get(request, ()))) if begin + skipped < end else None
                parts.append(_Part(recording, row, known, max(known, position), first, begin + skipped, end))
            begin = end
        # Of a step that records a token of most requests one copy of its rows is cheaper than one for each.
        self._one_copy = bool(parts) and all(part.end - part.begin == 1 for part in parts) and 2 * len(parts) >= total
        return parts

    def _attended(self, index, layer, query, key, value, cache, metadata):
        if self._parts is None:
            self._parts = self._plan(len(query))
        tensors = self._model.rows(layer, query, key, value) if self._parts else {}
        if self._one_copy:
            tensors = {tensor: rows[:self._parts[-1].end].detach().clone() for tensor, rows in tensors.items()}
        for part in self._parts:
            recording = part.request
            if recording.problem:
                continue
            if part.found_end > part.known:
                self._take_found(part, index, layer, cache, metadata)
            if part.first is not None and not recording.problem:
                for tensor, rows in tensors.items():
                    recording.append(tensor, index, rows[part.begin:part.end].transpose(0, 1), self._one_copy)

    def _take_found(self, part, index, layer, cache, metadata):
        """Takes keys and values that the prefix cache had from it."""
        if index not in self._readers:
            self._readers[index] = CacheReader(layer, cache)
        reader, blocks = self._readers[index], _blocks(metadata, part.row)
        problem = reader.problem or (None if blocks is not None else f"{layer.attn_backend.get_name()} has no table of blocks")
        if not problem:
            if (blocks[part.known // reader.block:-(-part.found_end // reader.block)] == 0).any():  # vLLM's null block
                problem = "they are behind the layer's window, and no block has them"
        if problem:
            part.request.problem = (f"positions {part.known} to {part.found_end - 1} come from the prefix cache, and their keys cannot be "
                                    f"read in layer {index}: {problem}. With skip_reading_prefix_cache=True in its SamplingParams, or "
                                    "without a prefix cache, they are computed")
            return
        for tensor, rows in zip("kv", reader.read(cache, blocks, part.known, part.found_end)):
            part.request.append(tensor, index, rows)


def _blocks(metadata, row):
    """The blocks of the request in a row of a pass; None if they are not known. Latent attention has two tables: of requests that
    decode, and behind them of the others."""
    for part in (metadata, getattr(metadata, "decode", None), getattr(metadata, "prefill", None)):
        table = getattr(part, "block_table", None)
        if table is not None:
            if row < len(table):
                return table[row]
            row -= len(table)
    return None


def _outside(request):
    """A request's id as its sender knows it: vLLM adds a random suffix."""
    return re.sub(r"-[0-9a-f]{8}$", "", request)


def _sampling(params):
    if params is None or params.temperature == 0:
        return "greedy"
    said = [f"{name.replace('_', '-')} {getattr(params, name):g}" for name, off in (("temperature", None), ("top_k", 0), ("top_p", 1.0),
                                                                                   ("min_p", 0.0)) if getattr(params, name) != off]
    return ", ".join(said)
