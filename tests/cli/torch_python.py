"""Runs tests that need PyTorch and transformers with the interpreter that KVSIM_TORCH_PYTHON names. Without it they are
skipped visibly."""
import os
import sys

SKIPPED = 77  # the SKIP_RETURN_CODE of CMake


def require_torch():
    """Runs the calling script again with this interpreter, or ends it as skipped."""
    python = os.environ.get("KVSIM_TORCH_PYTHON")
    if not python:
        print("skipped: KVSIM_TORCH_PYTHON names no Python with torch, transformers and h5py. To have it: "
              "export KVSIM_TORCH_PYTHON=$(tools/python_env.sh)")
        sys.exit(SKIPPED)
    if os.environ.get("KVSIM_TORCH_RUNNING") != "1":
        # Waiting threads that spin would slow down tests that run at the same time.
        os.execve(python, [python, *sys.argv], {**os.environ, "KVSIM_TORCH_RUNNING": "1", "OMP_WAIT_POLICY": "passive",
                                                "OMP_NUM_THREADS": "2", "TOKENIZERS_PARALLELISM": "false"})
