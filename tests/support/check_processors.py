#!/usr/bin/env python3
"""Fails when an object whose code depends on the processor does not compile for one that this machine is not.

    check_processors.py BUILD

Takes GCC's commands in BUILD for the folder of the model's kernels, and checks the syntax as for an x86-64 processor with AVX2 alone, and
for one with tiles (AMX). Elsewhere than on x86-64 there is nothing to check.
"""
import json
import pathlib
import platform
import shlex
import subprocess
import sys

if platform.machine() != "x86_64":
    sys.exit()
commands = json.loads((pathlib.Path(sys.argv[1]) / "compile_commands.json").read_text())
objects = [each for each in commands if "traces_model_cpu" in each["file"] or "traces/model/cpu/" in each["file"]]
if not objects:
    sys.exit(f"{sys.argv[1]} compiles nothing of traces/model/cpu")
for each in objects:
    words = shlex.split(each["command"])
    if "-include" in words:  # what is precompiled is for this processor
        at = words.index("-include")
        del words[at:at + 2]
    del words[words.index("-o"):words.index("-o") + 2]
    for processor in "x86-64-v3", "sapphirerapids":
        done = subprocess.run([*words, f"-march={processor}", "-fsyntax-only"], cwd=each["directory"], stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(f"for {processor}:\n{done.stderr}")
