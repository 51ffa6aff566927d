#!/usr/bin/env python3
"""Updates the generated parts of policies/README.md: the tables that `kvsim policy list --format md` prints, and the
example policy that the tests compile. Usage: tools/python/paste_policies.py PATH/TO/kvsim"""
import pathlib
import subprocess
import sys

root = pathlib.Path(__file__).parents[2]
readme = root / "policies" / "README.md"


def between(text, begin, content, end):
    before, rest = text.split(begin, 1)
    return before + begin + content + end + rest.split(end, 1)[1]


tables = subprocess.run([sys.argv[1], "policy", "list", "--format", "md"], check=True, capture_output=True, text=True)
text = between(readme.read_text(), "<!-- kvsim policy list --format md -->\n", tables.stdout, "<!-- end -->\n")
example = (root / "tests" / "unit" / "policies" / "example_policy.cpp").read_text()
readme.write_text(between(text, "```cpp\n", example, "```\n"))
