#!/usr/bin/env python3
"""Runs the commands that the documents show: lines `$ kvsim ...` (or `$ build/release/kvsim ...`) and
`$ python3 tools/python/import_arrays.py ...` in ```console fences.

Commands of one document run in order, in one folder that looks like a fresh clone, so later ones find the files of
earlier ones. The folder also has the files that a reader provides: DIR is a checkpoint, question.txt a prompt, mine.jsonl one with its answer, ids.json
token ids, arrays.npz a run's tensors. Other commands shown there (installing, building) are not run. Output shown under
a command must be what the command prints.
"""
import functools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import numpy as np

import kvsim_command
from kvsim_command import KVSIM, SOURCE

DOCUMENTS = ["README.md", "traces/format/SCHEMA.md", "traces/capture/README.md", "traces/workloads/README.md", "traces/requests/README.md",
             "policies/README.md", "sim/cost/README.md", "analysis/README.md", "analysis/study/STUDIES.md", "analysis/CHOOSING_A_POLICY.md"]


# What test_evict_code_select.py runs, and reads the results of.
RUN_ELSEWHERE = re.compile(r'<details id="select_commands">.*?</details>', re.DOTALL)


def shown_commands(text):
    """(command, output lines shown under it) of all console fences; continuation lines are joined."""
    shown = []
    for fence in re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        output = []
        for line in re.sub(r"\\\n\s*(> )?", "", fence).splitlines():
            match = re.match(r"\$ ((?:(?:(?:\./)?build/release/)?kvsim|python3 tools/python/import_arrays\.py)\b.*)", line)
            if match:
                output = []
                shown.append((match[1], output))
            elif line.startswith("$ "):
                output = []  # output of a command that is not run
            else:
                output.append(line)
    return shown


def run_each(commands, folder, timeout):
    """Runs commands in a folder in which they find the sample and the examples, which in turn find there what earlier
    commands made."""
    (folder / "traces").symlink_to(SOURCE / "traces")
    shutil.copytree(SOURCE / "analysis" / "examples", folder / "analysis" / "examples")
    (folder / "kvsim").symlink_to(KVSIM)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    for command in commands:
        done = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True,
                              timeout=timeout)
        assert done.returncode == 0, done.stderr


def same_word(shown, real):
    """Whether two words agree: numbers may differ in the last digits from machine to machine, sizes and times by
    more."""
    try:
        return abs(float(shown) - float(real)) <= 0.02 * max(1.0, abs(float(real)))
    except ValueError:
        return shown == real


def same_line(shown, real):
    mine, theirs = shown.split(), real.split()
    return len(mine) == len(theirs) and all(map(same_word, mine, theirs))


class Documents(unittest.TestCase):
    @staticmethod
    @functools.cache
    def model_can_be_had():
        done = subprocess.run([SOURCE / "tools" / "model.sh"], capture_output=True, text=True)
        if done.returncode != 0:
            print(f"skipped: commands that run SmolLM2: {done.stderr.strip().splitlines()[-1]}")
        return done.returncode == 0

    def run_all(self, document):
        path = SOURCE / document
        commands = shown_commands(RUN_ELSEWHERE.sub("", path.read_text())) if path.exists() else []
        folder = pathlib.Path(tempfile.mkdtemp(prefix="kvsim-doc-"))
        self.addCleanup(shutil.rmtree, folder)
        for name in "traces", "tools", "policies", "analysis":
            (folder / name).symlink_to(SOURCE / name)
        sample = SOURCE / "traces" / "sample"
        (folder / "DIR").symlink_to(sample / "model")
        (folder / "mine.jsonl").write_text('{"prompt": "A fact. << apple river >> A text that goes on for a while, and then asks << apple", "answer": "river"}\n')
        (folder / "question.txt").symlink_to(sample / "prompts" / "needle-0500-one.txt")
        (folder / "ids.json").write_text(json.dumps([1 + i % 200 for i in range(100)]))
        draw = np.random.default_rng(1)
        np.savez(folder / "arrays.npz", **{f"layers.{layer}.{name}": draw.normal(size=(heads, 256, 16)).astype("f4")
                                           for layer in range(2) for name, heads in (("q", 4), ("k", 2), ("v", 2))})
        (folder / "build" / "release").mkdir(parents=True)
        (folder / "build" / "release" / "kvsim").symlink_to(KVSIM)
        (folder / "build" / "release" / "python3").symlink_to(sys.executable)  # the one that has h5py
        environment = {**os.environ, "PATH": f"{folder}/build/release:{os.environ['PATH']}"}
        if any("tools/model.sh" in command for command, _ in commands) and not self.model_can_be_had():
            commands = [each for each in commands if "tools/model.sh" not in each[0]]
        for command, shown in commands:
            with self.subTest(document=document, command=command):
                done = subprocess.run(["bash", "-o", "pipefail", "-c", command], cwd=folder, env=environment,
                                      capture_output=True, text=True, timeout=1500)
                self.assertEqual(done.returncode, 0, done.stderr)
                real = done.stdout.splitlines()
                for line in filter(str.strip, shown):
                    if line.strip() != "...":
                        self.assertTrue(any(same_line(line, other) for other in real), f"{line!r} is not shown today")
        return commands

    def test_readme(self):
        self.assertTrue(self.run_all("README.md"), "README.md shows no kvsim command in a console fence")

    def test_other_documents(self):
        for document in DOCUMENTS[1:]:
            self.run_all(document)

    def test_the_reader_of_documents(self):
        text = "```console\n$ kvsim trace info a.h5 \\\n    --format json\ntrace a.h5\n$ tools/test.sh\nall well\n" \
               "$ build/release/kvsim policy list\n```\n```sh\n$ kvsim never\n```\n"
        self.assertEqual(shown_commands(text), [("kvsim trace info a.h5 --format json", ["trace a.h5"]),
                                                ("build/release/kvsim policy list", [])])
        self.assertTrue(same_line("h2o *  0.5000  12", "h2o * 0.5010 12"))
        self.assertFalse(same_line("h2o 0.5 12", "h2o 0.6 12"))
        self.assertFalse(same_line("h2o 0.5", "tova 0.5"))


if __name__ == "__main__":
    kvsim_command.main()
