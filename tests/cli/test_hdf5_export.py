#!/usr/bin/env python3
"""Tests that --format h5 holds the same as the other formats, with a description of every column."""
import json

import h5py
import kvsim_command
import numpy as np
from kvsim_command import KEYS, TEXT_KEYS, CommandTest

REPLAY = ["replay", "t.h5", "--policy", "h2o", "--policy", "tova+pyramid", "--budget", "4,25%", "--quiet", "--seed", "7"]


def text(attribute):
    return attribute.decode()


class Hdf5Export(CommandTest):
    def compare(self, group, rows):
        """Compares a group with rows: one dataset per column; undefined values are NaN or empty text."""
        self.assertEqual(text(group.attrs["columns"]), ",".join(rows[0]))
        self.assertEqual(set(group), set(rows[0]))
        for key, dataset in group.items():
            self.assertEqual(dataset.shape, (len(rows),))
            self.assertNotEqual(text(dataset.attrs["description"]), "")
            self.assertIn("unit", dataset.attrs)
            wanted = [row[key] for row in rows]
            if dataset.dtype.kind == "S":
                self.assertEqual([value or None for value in dataset.asstr()[:]], [value or None for value in wanted], key)
            elif dataset.dtype == np.uint64:
                self.assertEqual(dataset[:].tolist(), wanted, key)
            else:
                self.assertEqual(dataset.dtype, np.float64, key)
                self.assertEqual([None if np.isnan(value) else value for value in dataset[:]], wanted, key)

    def test_replay(self):
        for scope in ("all", "head"):
            self.ok(*REPLAY, "--per", scope, "--format", "h5", "-o", f"{scope}.h5")
            rows = json.loads(self.ok(*REPLAY, "--per", scope, "--format", "json"))["results"]
            with h5py.File(self.folder / f"{scope}.h5") as file:
                self.assertEqual((text(file.attrs["format"]), file.attrs["schema_major"], file.attrs["complete"]),
                                 ("kvresults", 3, 1))
                self.assertEqual((*(text(file.attrs[key]) for key in ("analysis", "scope", "loop")), file.attrs["seed"]),
                                 ("replay", scope, "open", 7))
                self.compare(file["results"], rows)
                self.assertEqual(set(key for key in KEYS if file["results"][key].dtype.kind == "S"), TEXT_KEYS)
                self.assertEqual(file["traces/prompt"][:].tolist(), [self.prompt])
                self.assertEqual(file["traces/cut"].asstr()[:].tolist(), ["prompt"])

    def test_analyze(self):
        self.ok("analyze", "hash", "t.h5", "--quiet", "--format", "h5", "-o", "hash.h5")
        document = json.loads(self.ok("analyze", "hash", "t.h5", "--quiet", "--format", "json"))
        with h5py.File(self.folder / "hash.h5") as file:
            self.compare(file["results"], document["results"])
            self.assertEqual(text(file.attrs["bits"]), document["inputs"]["bits"])
            self.assertEqual(file["traces/content_sha256"].asstr()[0], document["inputs"]["traces"][0]["content_sha256"])

    def test_equal_results_are_equal_bytes(self):
        for name in ("one.h5", "two.h5"):
            self.ok(*REPLAY, "--format", "h5", "-o", name, "--threads", "1" if name == "one.h5" else "4")
        self.assertEqual((self.folder / "one.h5").read_bytes(), (self.folder / "two.h5").read_bytes())

    def test_refusals(self):
        self.assertIn("-o results.h5", self.fails(2, *REPLAY, "--format", "h5"))
        self.ok(*REPLAY, "--format", "h5", "-o", "there.h5")
        self.assertIn("exists already", self.fails(2, *REPLAY, "--format", "h5", "-o", "there.h5"))
        self.ok(*REPLAY, "--format", "h5", "-o", "there.h5", "--overwrite")
        self.assertIn("cannot be its output", self.fails(2, *REPLAY, "--format", "h5", "-o", "t.h5", "--overwrite"))
        self.fails(3, *REPLAY, "--format", "h5", "-o", "nowhere/there.h5")
        self.assertEqual(list(self.folder.rglob("*.partial")), [])


if __name__ == "__main__":
    kvsim_command.main()
