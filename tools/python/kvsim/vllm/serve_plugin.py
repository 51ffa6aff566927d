"""A plugin of vLLM (entry point vllm.general_plugins), for services: vLLM loads it in each of its processes, and it records in the one
that runs the model if the environment says so.

    KVSIM_VLLM_TRACES    path of the traces, with {request}
    KVSIM_VLLM_LOG       file for a line per request
    KVSIM_VLLM_SHARE     share of the requests that is recorded, such as 0.01
    KVSIM_VLLM_AT_ONCE   the most requests to record at a time
"""
import atexit
import functools
import os

_VARIABLES = {"KVSIM_VLLM_TRACES": ("path", str), "KVSIM_VLLM_LOG": ("log", str), "KVSIM_VLLM_SHARE": ("share", float),
              "KVSIM_VLLM_AT_ONCE": ("at_once", int)}


def install():
    settings = {name: kind(os.environ[variable]) for variable, (name, kind) in _VARIABLES.items() if os.environ.get(variable)}
    if not {"path", "log"} & settings.keys():
        return
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner
    from .engine_recorder import start, stop
    prepare = GPUModelRunner.initialize_kv_cache

    @functools.wraps(prepare)
    def initialize_kv_cache(runner, *arguments, **named):
        prepare(runner, *arguments, **named)
        start(runner, settings)
        atexit.register(stop, runner)

    GPUModelRunner.initialize_kv_cache = initialize_kv_cache
