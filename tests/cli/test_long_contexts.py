#!/usr/bin/env python3
"""Tests long prompts: slim traces, their descriptions, and the memory that capture and replay may take."""
import os
import subprocess
import sys

import h5py
import numpy as np

import kvsim_command
from kvsim_command import KVSIM, SOURCE, CommandTest

LAYERS, HEADS, KV_HEADS, DIM, HIDDEN, INTERMEDIATE = 1, 4, 2, 16, 64, 64
THREADS, CHUNK, WINDOW = 2, 512, 64
SHORT, LONG = 4096, 16384
MIB = 1 << 20


def capture_bound(tokens):
    """Bytes that grow with the number of tokens, from "Memory" in traces/capture/README.md."""
    cache = LAYERS * tokens * (8 * KV_HEADS * DIM + 16 * HEADS)
    return cache + tokens * (8 * HEADS + 256 * THREADS + 128)


def replay_bound(tokens, cells):
    """The same for replay, of one lane per thread."""
    return THREADS * tokens * (8 * DIM + 256 + 512 + 128 * cells) + 128 * tokens


class LongContexts(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.random_checkpoint("model", "--tokens", LONG)
        lines = (cls.folder / "model" / "tokens.txt").read_text().split()
        (cls.folder / "short.txt").write_text("\n".join(lines[:SHORT]))

    @classmethod
    def random_checkpoint(cls, name, *more):
        subprocess.run([sys.executable, SOURCE / "tests" / "support" / "random_checkpoint.py", cls.folder / name, "--layers", str(LAYERS),
                        "--hidden", str(HIDDEN), "--heads", str(HEADS), "--kv-heads", str(KV_HEADS), "--intermediate",
                        str(INTERMEDIATE), *map(str, more)], check=True)

    def peak_bytes(self, *arguments):
        """The peak resident set of a command that must succeed."""
        with open(self.folder / "errors.txt", "wb") as errors:
            process = subprocess.Popen([KVSIM, *map(str, arguments)], cwd=self.folder, stdout=subprocess.DEVNULL,
                                       stderr=errors)
            _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(process.returncode, 0, (self.folder / "errors.txt").read_text())
        return usage.ru_maxrss * 1024

    def capture(self, tokens_file, output, *more):
        return self.peak_bytes("capture", "--model", "model", "--tokens", tokens_file, "--max-new-tokens", 4, "--ignore-eos",
                               "--threads", THREADS, "--prefill-chunk", CHUNK, "-o", output, "--overwrite", *more)

    def test_memory_grows_by_the_stated_formula_and_no_more(self):
        slim = "--queries", f"window:{WINDOW},sample:256"
        short, long = self.capture("short.txt", "short.h5", *slim), self.capture("model/tokens.txt", "long.h5", *slim)
        # One head's T x T matrix would be 1 GiB; constant memory cancels, except for variation of the allocator.
        self.assertLess(long - short, capture_bound(LONG) - capture_bound(SHORT) + 8 * MIB)
        self.assertLess(long, capture_bound(LONG) + 96 * MIB)

        policies = ["h2o", "snapkv", "streaming_llm", "roco"]
        replay = [part for policy in policies for part in ("--policy", policy)]
        def replayed(trace):
            return self.peak_bytes("replay", trace, *replay, "--budget", "10%", "--threads", THREADS, "--format", "csv", "-o", "rows.csv",
                                   "--overwrite")
        short, long = replayed("short.h5"), replayed("long.h5")
        self.assertLess(long - short, replay_bound(LONG, len(policies)) - replay_bound(SHORT, len(policies)) + 8 * MIB)
        self.assertLess(long, replay_bound(LONG, len(policies)) + 96 * MIB)

        info = self.ok("trace", "info", "long.h5")
        self.assertIn(f"the last {WINDOW} and 256 of the others of {LONG} prompt tokens (window:64,sample:256)", info)
        self.assertIn(f"attention of all {LONG} prompt tokens to each of them, in sum and sum of squares", info)
        self.assertIn(f"single attention rows of {LONG - WINDOW - 256} prompt tokens", info)
        self.assertIn("column statistics of 4 heads, 0 recomputed", self.ok("trace", "check", "long.h5"))

    def test_a_slim_trace_replays_as_the_full_one_or_says_what_is_missing(self):
        short = (self.folder / "short.txt").read_text().split()
        (self.folder / "shorter.txt").write_text("\n".join(short[:700]))
        self.capture("shorter.txt", "full.h5", "--elem", "f32", "--column-statistics")
        self.capture("shorter.txt", "slim.h5", "--elem", "f32", "--queries", f"window:{WINDOW}")
        self.assertIn("column statistics of 4 heads, 4 recomputed", self.ok("trace", "check", "full.h5"))
        with h5py.File(self.folder / "full.h5") as full, h5py.File(self.folder / "slim.h5") as slim:
            self.assertEqual(int(slim.attrs["features"]) & 0x23, 0x22)  # some queries, column statistics
            for name in ("sum", "sum_squares"):
                np.testing.assert_array_equal(slim[f"layers/0000/column/{name}"][...],
                                              full[f"layers/0000/column/{name}"][...])
            np.testing.assert_allclose(slim["layers/0000/column/sum"][...].sum(axis=1), 700, rtol=1e-5)
            self.assertEqual(list(slim["layers/0000/q_token"][...]), list(range(700 - WINDOW, 704)))
        arguments = ["--policy", "h2o", "--policy", "roco", "--policy", "snapkv", "--budget", "20%", "--per", "head"]
        full, slim = (self.rows(trace, *arguments) for trace in ("full.h5", "slim.h5"))
        self.assertEqual(len(full), len(slim))
        for expected, got in zip(full, slim):
            for key in kvsim_command.METRIC_KEYS:
                self.assertEqual(got[key], expected[key], (key, got))

        message = self.fails(2, "replay", "slim.h5", "--policy", "h2o.stream", "--budget", "20%")
        self.assertIn("needs the queries of all 700 prompt tokens; this trace holds those of the last 64", message)
        self.assertIn("--queries all", message)

    def test_a_sample_is_drawn_by_the_seed(self):
        chosen = {}
        for seed in (0, 0, 7):
            self.capture("short.txt", "sample.h5", "--queries", "sample:16", "--seed", seed)
            with h5py.File(self.folder / "sample.h5") as file:
                tokens = tuple(file["layers/0000/q_token"][...])
            self.assertEqual(chosen.setdefault(seed, tokens), tokens)
            self.assertEqual([t // (SHORT // 16) for t in tokens[:16]], list(range(16)))
        self.assertNotEqual(chosen[0], chosen[7])


if __name__ == "__main__":
    kvsim_command.main()
