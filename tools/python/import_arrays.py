#!/usr/bin/env python3
"""Makes a trace of arrays: kvsim.importers.import_command."""
import sys

from kvsim.importers.import_command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
