#!/usr/bin/env python3
"""Installs a build into an empty folder, builds programs against it as a stranger would, and runs them:
test_install.py BUILD SOURCE"""
import csv
import io
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import h5py
import numpy as np

BUILD, SOURCE = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
KVSIM = BUILD / "kvsim"
BUDGETS = "10%,25%"
GENERATED = 8

# A project that includes every header at once: each must be there, and none may clash with another.
EVERY_HEADER = """cmake_minimum_required(VERSION 3.25)
project(every_header LANGUAGES CXX)
find_package(kvsim REQUIRED)
add_library(every_header OBJECT every_header.cpp)
target_link_libraries(every_header PRIVATE kvsim::kvsim)
target_compile_options(every_header PRIVATE -fsyntax-only)
"""


def run(*command):
    """Standard output of a command that must succeed."""
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


class InstallTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="kvsim-install-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.prefix = cls.folder / "usr"
        run("cmake", "--install", BUILD, "--prefix", cls.prefix, "--component", "development")

    def build(self, source, folder):
        run("cmake", "-G", "Ninja", "-S", source, "-B", folder, f"-DCMAKE_PREFIX_PATH={self.prefix}", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
            "-DCMAKE_BUILD_TYPE=Release")
        run("cmake", "--build", folder)

    def rows(self, trace, *policies):
        """Policy, attention loss and output error of each row of `kvsim replay`."""
        chosen = [word for policy in policies for word in ("--policy", policy)]
        table = csv.DictReader(io.StringIO(run(KVSIM, "replay", trace, *chosen, "--budget", BUDGETS, "--format", "csv", "--quiet")))
        return [(row["policy"], float(row["attention_loss"]), float(row["output_error"])) for row in table]

    def test_a_program_of_ones_own(self):
        """The example's numbers are the command's, and its own policy's those of the same scores from a file."""
        folder = self.folder / "example"
        self.build(SOURCE / "tests" / "install" / "example", folder)
        command = json.loads((folder / "compile_commands.json").read_text())[0]["command"]
        self.assertFalse(re.findall(r" -(?:W|march|mtune|fsanitize|DEIGEN)\S*", command), "flags of our own reach other programs")

        trace = self.folder / "run.h5"
        run(KVSIM, "capture", "--model", SOURCE / "traces" / "sample" / "model", "--max-new-tokens", GENERATED, "--ignore-eos", "--prompt",
            SOURCE / "traces" / "sample" / "prompts" / "needle-0500-multi.txt", "-o", trace, "--quiet")
        with h5py.File(trace) as file:
            prompt = int(file.attrs["n_tokens"]) - GENERATED
            values = np.stack([file[f"layers/{layer}/v"][:, :prompt] for layer in sorted(file["layers"])]).astype(np.float64)
        scores = self.folder / "scores.h5"
        with h5py.File(scores, "w") as file:
            file["scores"] = (values**2).sum(-1)

        built_in = ["snapkv(window=8)", "h2o", "snapkv(window=8)+xkv"]
        printed = [line.split() for line in run(folder / "compare_policies", trace, BUDGETS, *built_in, "value_norm").splitlines()]
        got = [(policy, float(loss), float(error)) for policy, _, loss, error in printed]
        expected = self.rows(trace, *built_in, f"external_scores(file={scores})")
        self.assertEqual(got, [("value_norm" if policy == "external_scores" else policy, *numbers) for policy, *numbers in expected])

    def test_every_header(self):
        source = self.folder / "every_header"
        source.mkdir()
        (source / "CMakeLists.txt").write_text(EVERY_HEADER)
        root = self.prefix / "include" / "kvsim"
        headers = sorted(str(path.relative_to(root)) for path in root.rglob("*.hpp"))
        self.assertGreater(len(headers), 300)
        (source / "every_header.cpp").write_text("".join(f'#include "{header}"\n' for header in headers))
        self.build(source, source / "build")

    def test_no_code_of_eigen_meets_that_of_the_program(self):
        archives = sorted(self.prefix.rglob("libkvsim_*.a"))
        self.assertGreater(len(archives), 10)
        names = run("nm", "--demangle", *archives)
        self.assertIn(" kvsim_eigen::", names)
        self.assertNotRegex(names, r" [TtWwVui] (.* )?Eigen::")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
