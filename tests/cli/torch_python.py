"""For tests of what needs PyTorch and transformers: they run with the interpreter that KVSIM_TORCH_PYTHON names, and are
skipped, visibly, where it is not set."""
import os
import sys

SKIPPED = 77  # what CMake takes for "not run"


def require_torch():
    """Runs the calling script again with that interpreter, or ends it as skipped."""
    python = os.environ.get("KVSIM_TORCH_PYTHON")
    if not python:
        print("skipped: KVSIM_TORCH_PYTHON names no Python with torch, transformers and h5py. To have it: "
              "export KVSIM_TORCH_PYTHON=$(tools/python_env.sh)")
        sys.exit(SKIPPED)
    if os.environ.get("KVSIM_TORCH_RUNNING") != "1":
        # Threads that spin while they wait would slow down whatever else is tested beside.
        os.execve(python, [python, *sys.argv], {**os.environ, "KVSIM_TORCH_RUNNING": "1", "OMP_WAIT_POLICY": "passive",
                                                "OMP_NUM_THREADS": "2", "TOKENIZERS_PARALLELISM": "false"})
