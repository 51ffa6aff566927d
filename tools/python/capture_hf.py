#!/usr/bin/env python3
"""Records a Hugging Face model's run as a trace: kvsim.hf.capture_command."""
import sys

from kvsim.hf.capture_command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
