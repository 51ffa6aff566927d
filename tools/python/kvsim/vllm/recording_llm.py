"""record(): a context manager that records the requests of a vllm.LLM."""
import contextlib
from dataclasses import asdict, dataclass, field

from .engine_recorder import Settings, start_in, stop_in
from ..writing.trace_error import TraceError


@dataclass
class Recording:
    """What record() did; filled when the `with` ends.

    requests       a dict for each: its id, its file (None: not written, and `problem` says why; of several ranks a list), prompt and
                   generated tokens, those taken from the prefix cache, those that were computed again, and of drafts how many there were
                   and how many were rejected
    left_out       requests that share and at_once left out
    seconds        that recording held the engine up
    cache_tokens   that the engine's prefix cache holds; None where layers differ in what they hold"""
    requests: list = field(default_factory=list)
    left_out: int = 0
    seconds: float = 0.0
    cache_tokens: int = None


@contextlib.contextmanager
def record(llm, path, *, log=None, share=1.0, at_once=None, overwrite=False):
    """Records the queries, keys and values of each request of `llm` (a vllm.LLM) inside the `with`:

        with record(llm, "out-{request}.h5") as recording:
            llm.generate(prompts)

    path        of the traces; {request} stands for a request's id, {rank} for the tensor-parallel rank. None: no traces
    log         a file for one line of JSON per request: time, prompt, output, and the tokens that vLLM's prefix cache hit
    share       of the requests that is recorded, chosen by a hash of their ids
    at_once     the most requests to record at a time; others are left out while there are as many. None: all
    overwrite   replace existing files

    Yields Recording. Raises TraceError for what cannot be recorded; when that is a request, the others are written."""
    recording, workers = Recording(), _workers(llm)
    workers(start_in, (asdict(Settings(path, log, share, at_once, overwrite)),))
    try:
        yield recording
    finally:
        first, *others = workers(stop_in, ())
        for name, value in first.items():
            setattr(recording, name, value)
        for request, *parts in zip(recording.requests, *(other["requests"] for other in others)):
            if parts:
                request["file"] = [part["file"] for part in (request, *parts)]
                request["problem"] = next((part["problem"] for part in (request, *parts) if part["problem"]), None)
    lost = [f"{request['request']}: {request['problem']}" for request in recording.requests if request["problem"]]
    if lost:
        raise TraceError("not recorded: " + "\n  ".join(lost), "vLLM")


def _workers(llm):
    """What calls a function in each worker, of whichever process."""
    def call(function, arguments):
        try:
            return llm.collective_rpc(function, args=arguments)
        except Exception as error:
            if "serializ" in str(error) and "VLLM_ALLOW_INSECURE_SERIALIZATION" in str(error):
                raise TraceError("runs its engine in another process, which takes no functions", "vLLM",
                                 "Set VLLM_ENABLE_V1_MULTIPROCESSING=0 in the environment, or VLLM_ALLOW_INSECURE_SERIALIZATION=1, before "
                                 "vllm.LLM is made.") from error
            raise
    return call
