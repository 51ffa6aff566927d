"""The kvsim command that pip installs."""
import sys

from . import _core


def main() -> int:
    return _core.run_at_terminal(sys.argv[1:])
