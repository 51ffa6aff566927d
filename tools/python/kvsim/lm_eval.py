"""lm-eval-harness with the model `kvsim`: `python3 -m kvsim.lm_eval ...` is its command `lm_eval ...`.

In Python, importing this module registers the model: lm_eval.simple_evaluate(model="kvsim", ...).
"""
import sys

from lm_eval.__main__ import cli_evaluate
from lm_eval.api.registry import register_model

from ._core import Error
from .hf.harness_model import HarnessModel
from .writing.trace_error import TraceError

register_model("kvsim")(HarnessModel)


def main() -> int:
    try:
        cli_evaluate()
    except (Error, TraceError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
