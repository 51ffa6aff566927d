#!/usr/bin/env python3
"""The recipes for kvpress that `kvsim policy show` and `kvsim choose` print, carried out by kvpress: each keeps the positions that kvsim
keeps, and answers as it does. tests/bench/compare_kvpress.py does it.

Usage: KVSIM_TORCH_PYTHON=PYTHON test_kvpress.py KVSIM SOURCE_DIR
"""
from torch_python import require_torch

require_torch()

import csv  # noqa: E402 - from here on there is torch
import os  # noqa: E402
import subprocess  # noqa: E402

from kvsim_command import KVSIM, SOURCE, CommandTest, main  # noqa: E402


class Recipes(CommandTest):
    def test_kvpress_does_what_they_say(self):
        env = subprocess.run([SOURCE / "tools/python_env.sh", "tests/bench/kvpress.txt"], capture_output=True, text=True, check=False)
        self.assertEqual(env.returncode, 0, env.stderr)
        done = subprocess.run([env.stdout.strip(), SOURCE / "tests/bench/compare_kvpress.py", KVSIM, SOURCE / "traces/sample/model",
                               "--prompts", "1", "--context", "400", "--ratios", "0.5", "0.75", "--csv", "kept.csv"], cwd=self.folder,
                              env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"kvpress 0\.5\.5, .*, 28 cells")
        with open(self.folder / "kept.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual(len(rows), 26)
        for row in rows:
            self.assertEqual(row["differ"], "0", row)
            self.assertLess(int(row["tied"]), int(row["lanes"]), row)


if __name__ == "__main__":
    main()
