#!/usr/bin/env python3
"""Tests kvsim cost calibrate: a machine fitted to the times of a real capture, and refusals."""
import json
import math

import h5py
import numpy as np

import kvsim_command
from kvsim_command import SOURCE, CommandTest, without_digests

MODEL = SOURCE / "traces" / "sample" / "model"
PROMPT = SOURCE / "traces" / "sample" / "prompts" / "needle-1000-one.txt"


class Calibration(CommandTest):
    @classmethod
    def setUpClass(cls):
        """One run in passes of 32 prompt tokens."""
        super().setUpClass()
        done = cls.kvsim("capture", "--model", MODEL, "--prompt", PROMPT, "--prefill-chunk", 32, "--max-new-tokens", 24,
                         "--ignore-eos", "--queries", "window:1", "--threads", 1, "-o", "run.h5", "--quiet")
        assert done.returncode == 0, done.stderr

    def damaged(self, name, change):
        path = self.folder / name
        path.write_bytes((self.folder / "run.h5").read_bytes())
        with h5py.File(path, "r+") as file:
            without_digests(file)
            change(file)
        return name

    def test_a_real_capture(self):
        found = json.loads(self.ok("cost", "calibrate", "run.h5", "-o", "mine.json", "--format", "json"))
        values = {row["quantity"]: row["value"] for row in found["results"]}
        with h5py.File(self.folder / "run.h5") as file:
            decode = int((file["passes/q_len"][:] == 1).sum())
            prefill = len(file["passes/q_len"]) - decode
        self.assertEqual(values["prefill passes held out"], prefill // 5)
        self.assertEqual(values["decode passes held out"], decode // 5)
        self.assertEqual(values["prefill passes fitted"], prefill - prefill // 5)
        for kind in "prefill", "decode":
            for passes in "fitted", "held out":
                error = values[f"error of {kind} passes {passes}"]
                # The passes of a busy machine vary; a model unrelated to them would be wrong by factors.
                self.assertTrue(math.isfinite(error) and 0 <= error < 100, error)
        machine = json.loads((self.folder / "mine.json").read_text())
        self.assertEqual(machine["kvsim_name"], "mine")
        self.assertIn("held out", machine["kvsim_source"])
        self.assertEqual(list(machine["kvsim_fitted"]), ["passes of traces"])
        self.assertLessEqual(set(machine["kvsim_fitted"]["passes of traces"]), set(machine["ceilings"]))
        for rate in "matrix_tflops", "bandwidth_gb_s", "memory_gb":
            self.assertGreater(machine[rate], 0)

    def test_the_same_traces_give_the_same_machine_which_can_be_used(self):
        def quiet(file):
            """The times of a machine that does nothing else: a part of each pass, one per token, one per attention score."""
            tokens, past = file["passes/q_len"][:].astype(float), file["passes/past_len"][:]
            layers = file["timing/layer_ns"].shape[1]
            attention = 2e3 + 1.5 * tokens * (past + tokens)
            layer = attention + 1e5 + 2e4 * tokens
            file["timing/attn_ns"][:] = np.repeat(attention[:, None], layers, axis=1)
            file["timing/layer_ns"][:] = np.repeat(layer[:, None], layers, axis=1)
            file["passes/dur_ns"][:] = (layers * layer + 5e5 + 2e4 * tokens).astype(int)

        run = self.damaged("quiet.h5", quiet)
        for name in "one.json", "two.json":
            self.ok("cost", "calibrate", run, "-o", name)
        one, two = (json.loads((self.folder / name).read_text()) for name in ("one.json", "two.json"))
        self.assertEqual(one | {"kvsim_name": ""}, two | {"kvsim_name": ""})
        rows = json.loads(self.ok("cost", "estimate", "--model", MODEL, "--machine", "one.json", "--prompt-tokens", 992, "--generate", 24,
                                  "--chunk", 32, "--kv", "fp32", "--format", "json", "--quiet"))["results"]
        with h5py.File(self.folder / run) as file:
            decodes = file["passes/q_len"][:] == 1
            seconds = file["passes/dur_ns"][:] / 1e9
        # The estimate has activations of 16 bits, the run of 32.
        self.assertLess(abs(math.log(rows[0]["ttft_seconds"] / seconds[~decodes].sum())), math.log(1.5))
        self.assertLess(abs(math.log(rows[0]["tpot_seconds"] / seconds[decodes].mean())), math.log(1.5))

    def test_from_a_datasheet(self):
        found = self.ok("cost", "calibrate", "run.h5", "--machine", "a100-80-sxm", "-o", "a100.json")
        self.assertIn("held out", found)
        machine = json.loads((self.folder / "a100.json").read_text())
        self.assertEqual(machine["matrix_tflops"], 312)
        self.assertAlmostEqual(machine["memory_gb"], 80 * 2**30 / 1e9)
        self.assertLess(machine["ceilings"]["compute"], 0.1)

    def test_traces_that_tell_nothing(self):
        def without_times(file):
            file["passes/dur_ns"][:] = 0

        def impossible(file):
            file["timing/attn_ns"][3, :] = 1e12

        for name, change, said in (("timeless.h5", without_times, "no times"), ("odd.h5", impossible, "longer")):
            done = self.kvsim("cost", "calibrate", self.damaged(name, change))
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertIn(said, done.stderr)
            self.assertIn(name, done.stderr)

    def test_requests_that_are_refused(self):
        self.ok("capture", "--model", MODEL, "--prompt", PROMPT, "--max-new-tokens", 4, "--ignore-eos", "--queries",
                "window:1", "--threads", 1, "-o", "short.h5", "--quiet")
        done = self.kvsim("cost", "calibrate", "short.h5")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--prefill-chunk", done.stderr)
        self.ok("capture", "--model", MODEL, "--prompt", PROMPT, "--max-new-tokens", 4, "--ignore-eos", "--queries",
                "window:1", "--threads", 2, "-o", "two.h5", "--quiet")
        done = self.kvsim("cost", "calibrate", "run.h5", "two.h5")
        self.assertEqual(done.returncode, 2)
        self.assertIn("2 threads", done.stderr)
        done = self.kvsim("cost", "calibrate", "run.h5", "-o", "run.h5", "--overwrite")
        self.assertEqual(done.returncode, 2)
        for option, given in (("--model", "llama-3-8b"), ("--budget", "10%"), ("--batch", "2"), ("--page", "16"),
                              ("--plot", "figures")):
            self.assertIn(option, self.fails(2, "cost", "calibrate", "run.h5", option, given))


if __name__ == "__main__":
    kvsim_command.main()
