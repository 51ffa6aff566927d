"""The kvsim command that pip installs."""
import sys

from . import _core


def main() -> int:
    arguments = sys.argv[1:]
    if arguments[:1] == ["capture"] and {"--engine=llama.cpp", "llama.cpp"} & set(arguments):
        from .llama_cpp.llama_command import main as capture
        return capture(arguments[1:])
    return _core.run_at_terminal(arguments)
