"""python3 -m kvsim.llama_cpp: the command."""
import sys

from .llama_command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
