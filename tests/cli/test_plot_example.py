#!/usr/bin/env python3
"""Tests that the matplotlib example runs on a study's folder and draws its figures."""
import json
import os
import subprocess
import sys

import kvsim_command
import matplotlib
from kvsim_command import SOURCE, CommandTest

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

SCRIPT = SOURCE / "analysis" / "examples" / "plot_budget.py"


class PlotExample(CommandTest):
    def draw(self, name, policies, budgets):
        (self.folder / f"{name}.json").write_text(json.dumps(
            {"traces": ["t*.h5"], "policies": policies, "budgets": budgets, "metrics": ["attention_loss"], "report": False}))
        self.ok("study", f"{name}.json", "-o", name, "--quiet")
        picture = self.folder / f"{name}.png"
        drawn = subprocess.run([sys.executable, SCRIPT, self.folder / name, picture], capture_output=True, text=True,
                               env={**os.environ, "MPLCONFIGDIR": str(self.folder)}, timeout=100)
        self.assertEqual((drawn.returncode, drawn.stdout, drawn.stderr), (0, "", ""))
        return pyplot.imread(picture)[..., :3]

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for seed in (1, 2):
            cls.make_trace(f"t{seed}.h5", cls.prompt, cls.decode, "--seed", str(seed))

    def test_curves_and_bands(self):
        picture = self.draw("many", ["h2o", "tova", "snapkv", "full", "optimal"], ["128", "25%", "50%"])
        self.assertEqual(picture.shape, (800, 1400, 3))
        colours = {tuple(pixel) for pixel in (picture.reshape(-1, 3) * 255).round().astype(int)}
        for first_of_the_style in ((0, 107, 164), (255, 128, 14)):
            self.assertIn(first_of_the_style, colours)

    def test_one_policy_at_one_budget(self):
        self.draw("few", ["h2o"], ["25%"])

    def test_it_is_short(self):
        self.assertLess(len(SCRIPT.read_text().splitlines()), 40)


if __name__ == "__main__":
    kvsim_command.main()
