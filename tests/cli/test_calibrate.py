#!/usr/bin/env python3
"""Tests kvsim calibrate: what representations learn of some runs, used on others and refused on their own, in replay and in
the running sample model."""
import csv
import io
import json
import math
import shutil
import signal

import h5py
import kvsim_command
import numpy as np
from calibrated_runs import MODEL, CalibratedRuns
from kvsim_command import SOURCE, keep_first_layers, start, wait_until_caught

CODECS = {"kvquant": ["key_ranges", "key_levels", "key_levels_qnorm", "value_levels", "value_levels_qnorm"],
          "matryoshka": ["key_components", "key_means", "value_components", "value_means"],
          "kv_heads": ["key_components", "value_components"],
          "cskv": ["key_components", "value_components"]}


class Calibrate(CalibratedRuns):
    makers = {codec: codec for codec in CODECS}

    def test_a_file_holds_what_the_codec_needs_and_where_it_comes_from(self):
        content = json.loads(self.ok("trace", "info", "a.h5", "--format", "json"))["content_sha256"]
        for codec, names in CODECS.items():
            with self.subTest(codec), h5py.File(self.folder / f"{codec}.h5") as file:
                self.assertEqual(file.attrs["format"], b"kvcalibration")
                self.assertEqual((file.attrs["schema_major"], file.attrs["complete"]), (1, 1))
                self.assertTrue(file.attrs["maker"].startswith(codec.encode() + b"("))
                self.assertEqual([file.attrs[name] for name in ("n_layers", "n_kv_heads", "head_dim", "v_head_dim")],
                                 [4, 4, 64, 64])
                self.assertEqual(list(file["traces/content_sha256"]), [content.encode()])
                self.assertEqual(sorted(file["tables"]), sorted(names))
                self.assertEqual(sorted(name.decode() for name in file["table_names"]), sorted(names))
                for name in names:
                    self.assertEqual(file["tables"][name].shape[:2], (4, 4))
                    self.assertTrue(np.isfinite(file["tables"][name][...]).all())

    def test_components_are_those_of_numpy(self):
        """Of the second moments of all keys of a layer before rotation: numpy finds the same directions."""
        with h5py.File(self.folder / "a.h5") as trace, h5py.File(self.folder / "cskv.h5") as file:
            frequencies = trace["model/inv_freq"][...].astype(np.float64)
            for layer in range(4):
                stored = trace[f"layers/{layer:04d}/k"]
                keys = (stored[...].astype(np.uint32) << 16).view(np.float32) if stored.dtype == np.uint16 else stored[...]
                keys = keys.astype(np.float64)  # [heads, tokens, dim]
                angle = -np.arange(keys.shape[1])[:, None] * frequencies
                half = len(frequencies)
                a, b = keys[..., :half].copy(), keys[..., half:].copy()
                keys[..., :half] = a * np.cos(angle) - b * np.sin(angle)
                keys[..., half:] = b * np.cos(angle) + a * np.sin(angle)
                vectors = np.concatenate(list(keys), axis=1)
                size, direction = np.linalg.eigh(vectors.T @ vectors)
                found = np.concatenate(list(file["tables/key_components"][layer].reshape(4, 256, 64)), axis=1)
                for j in range(8):  # the largest are far apart
                    self.assertAlmostEqual(abs(found[j] @ direction[:, -1 - j]), 1, places=2)
                energy = np.square(vectors @ found[:64].T).sum() / np.square(vectors).sum()
                self.assertAlmostEqual(energy, size[-64:].sum() / size.sum(), places=3)

    def test_other_runs_take_it_and_its_own_are_refused(self):
        for codec in CODECS:
            policy = f"full+{codec}(file={codec}.h5)"
            with self.subTest(codec):
                row, = self.rows("b.h5", "--policy", policy, "--budget", "100%")
                self.assertGreater(row["key_error"], 0)
                self.assertLess(row["key_error"], 1)
                self.assertLess(row["stored_bits"], 16)
                message = self.fails(2, "replay", "a.h5", "--policy", policy, "--budget", "100%", "--quiet")
                self.assertIn("was measured on this run, as a.h5", message)
                self.assertIn("own_traces=allowed", message)
                allowed, = self.rows("a.h5", "--policy", f"full+{codec}(file={codec}.h5,own_traces=allowed)", "--budget", "100%")
                self.assertIn("own_traces=allowed", allowed["params"])
                self.assertGreater(allowed["key_error"], 0)

    def test_a_refused_cell_leaves_the_others(self):
        done = self.kvsim("replay", "a.h5", "--policy", "full+cskv(file=cskv.h5)", "--policy", "full+fp8", "--budget", "100%",
                          "--format", "json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("was measured on this run", done.stderr)
        first, second = json.loads(done.stdout)["results"]
        self.assertIsNone(first["key_error"])
        self.assertGreater(second["key_error"], 0)

    def test_the_same_text_is_recognised_in_another_capture_and_in_the_running_model(self):
        self.ok("capture", "--model", MODEL, "--workload", "a.jsonl", "--max-new-tokens", "6", "-o", "again.h5")
        for codec in CODECS:
            policy = f"full+{codec}(file={codec}.h5)"
            with self.subTest(codec):
                self.assertIn("was measured on this run",
                              self.fails(2, "replay", "again.h5", "--policy", policy, "--budget", "100%", "--quiet"))
        evaluate = ["evaluate", "--model", MODEL, "--budget", "100%", "--mode", "teacher", "--format", "csv", "--quiet"]
        policies = [word for codec in CODECS for word in ("--policy", f"full+{codec}(file={codec}.h5)")]
        rows = list(csv.DictReader(io.StringIO(self.ok(*evaluate, "--workload", "b.jsonl", *policies))))
        self.assertEqual(len(rows), len(CODECS))
        for row in rows:
            self.assertGreater(float(row["kl"]), 0, row["params"])
            self.assertTrue(math.isfinite(float(row["kl"])))
        for row in csv.DictReader(io.StringIO(self.ok(*evaluate, "--workload", "a.jsonl", *policies))):
            self.assertIn("was measured on this run", row["skipped"])
            self.assertEqual(row["kl"], "")
        allowed = self.ok(*evaluate, "--workload", "a.jsonl", "--policy",
                          "full+cskv(file=cskv.h5,own_traces=allowed)")
        self.assertIn("own_traces=allowed", allowed)

    def test_more_components_and_more_levels_lose_less(self):
        def errors(key, *policies):
            return [row[key] for row in self.rows("b.h5", *(word for text in policies for word in ("--policy", text)),
                                                   "--budget", "100%")]
        for key, kept in (("key_error", "keys"), ("value_error", "values")):
            falling = errors(key, *(f"full+matryoshka(file=matryoshka.h5,{kept}={share})" for share in (0.1, 0.3, 0.6, 1)))
            self.assertEqual(falling, sorted(falling, reverse=True))
            self.assertLess(falling[-1], 0.005)  # 16-bit coordinates along 16-bit components
        for bits in (2, 4):
            self.ok("calibrate", f"kvquant(bits={bits})", "a.h5", "-o", f"bits{bits}.h5")
        falling = errors("key_error", *(f"full+kvquant(file=bits{bits}.h5,bits={bits})" for bits in (2, 4)))
        self.assertGreater(falling[0], falling[1])

    def test_traces_add_up_and_repeat_themselves(self):
        self.ok("calibrate", "matryoshka", "a.h5", "b.h5", "-o", "both.h5")
        self.ok("calibrate", "matryoshka", "a.h5", "b.h5", "-o", "both.h5", "--overwrite", "--quiet")
        with h5py.File(self.folder / "both.h5") as file:
            self.assertEqual(list(file["traces/name"]), [b"a.h5", b"b.h5"])
            self.assertEqual(len(set(file["traces/prompt_sha256"])), 2)
        for own in "ab":
            self.assertIn("as " + own + ".h5", self.fails(2, "replay", own + ".h5", "--policy", "full+matryoshka(file=both.h5)",
                                                           "--budget", "100%", "--quiet"))

    def test_a_small_models_cache_predicts_a_large_ones(self):
        shutil.copytree(MODEL, self.folder / "small")
        keep_first_layers(self.folder / "small", 3)
        (self.folder / "c.txt").write_text((SOURCE / "CONTRIBUTING.md").read_text()[:4000])
        for model, name in (MODEL, "c"), ("small", "c-small"):
            self.ok("capture", "--model", model, "--prompt", "c.txt", "--max-new-tokens", 1, "-o", f"{name}.h5")
        for name in "ab":
            self.ok("capture", "--model", "small", "--workload", f"{name}.jsonl", "--max-new-tokens", 4, "-o", f"{name}-small.h5")
        self.ok("calibrate", "kv_prediction", "a.h5", "c.h5", "--small", "a-small.h5", "c-small.h5", "--layers", "0,1,2,2", "-o", "maps.h5")

        def errors(maps, *more):
            return list(csv.DictReader(io.StringIO(self.ok("trace", "predict", maps, "b.h5", "--small", "b-small.h5", "--format", "csv", *more))))
        rows = errors("maps.h5", "--rows", "rows.h5")
        self.assertEqual(list(rows[0]), ["layer", "small_layer", "key_error", "value_error"])
        self.assertEqual([row["small_layer"] for row in rows], ["0", "1", "2", "2"])
        for row in rows:  # the small model is the large one's first three layers
            for key in "key_error", "value_error":
                if row["layer"] < "3":
                    self.assertLess(float(row[key]), 1e-4, row)
                else:
                    self.assertGreater(float(row[key]), 0.1, row)
        stored = self.rows("b.h5", "--policy", "full+external_rows(file=rows.h5)", "--budget", "100%", "--per", "layer")
        by_layer = {row["layer"]: row["key_error"] for row in stored if row["scope"] == "layer"}
        self.assertLess(max(by_layer[layer] for layer in range(3)), 1e-3)
        self.assertGreater(by_layer[3], 0.1)
        # As the paper has it: the first layer serves the first two. A ridge takes the place of more text.
        self.ok("calibrate", "kv_prediction", "a.h5", "c.h5", "--small", "a-small.h5", "c-small.h5", "--ridge", 0.01, "-o", "ridge.h5")
        self.assertEqual([row["small_layer"] for row in errors("ridge.h5")], ["0", "0", "1", "2"])
        self.assertLess(float(errors("ridge.h5")[3]["key_error"]), float(rows[3]["key_error"]))
        for arguments, code, reason in [
            (["calibrate", "kv_prediction", "a.h5", "-o", "x.h5"], 2, "has 0 runs of the small model"),
            (["calibrate", "kv_prediction", "a.h5", "--small", "b-small.h5", "-o", "x.h5"], 3, "has other tokens"),
            (["calibrate", "kv_prediction", "a.h5", "--small", "a-small.h5", "--layers", "0,1,2", "-o", "x.h5"], 2, "names 3 layers"),
            (["calibrate", "kv_prediction", "a.h5", "--small", "a-small.h5", "--layers", "0,1,2,3", "-o", "x.h5"], 2, "has no layer 3"),
            (["calibrate", "cskv", "a.h5", "--small", "a-small.h5", "-o", "x.h5"], 2, "Say kvsim calibrate kv_prediction"),
            (["trace", "predict", "maps.h5", "a.h5", "--small", "a-small.h5"], 2, "is one of the runs"),
            (["trace", "predict", "maps.h5", "b.h5", "--small", "b.h5"], 2, "is of another model"),
            (["trace", "predict", "cskv.h5", "b.h5", "--small", "b-small.h5"], 2, "holds no maps"),
        ]:
            with self.subTest(reason):
                self.assertIn(reason, self.fails(code, *arguments))

    def test_what_cannot_be_is_refused(self):
        for arguments, code, reason in [
            (["calibrate", "kivi", "a.h5", "-o", "x.h5"], 2, "learns nothing of other runs"),
            (["calibrate", "kvqant", "a.h5", "-o", "x.h5"], 2, "kvquant"),
            (["calibrate", "kvquant(bits=9)", "a.h5", "-o", "x.h5"], 2, "bits=9"),
            (["calibrate", "kvquant(bits=16)", "a.h5", "-o", "x.h5"], 2, "need no calibration"),
            (["calibrate", "kv_heads(heads=3)", "a.h5", "-o", "x.h5"], 2, "do not divide the layer's 4"),
            (["calibrate", "cskv", "a.h5", "t.h5", "-o", "x.h5"], 2, "t.h5: has 3 layers"),
            (["calibrate", "cskv", "none.h5", "-o", "x.h5"], 3, "none.h5"),
            (["calibrate", "cskv", "a.h5", "-o", "cskv.h5"], 2, "cskv.h5"),
            (["calibrate", "cskv", "a.h5", "-o", "a.h5", "--overwrite"], 2, "a.h5"),
        ] + [(["replay", trace, "--policy", policy, "--budget", "100%", "--quiet"], code, reason) for trace, policy, code, reason in [
            ("b.h5", "full+cskv", 2, "file"),
            ("b.h5", "full+cskv(file=none.h5)", 3, "none.h5"),
            ("b.h5", "full+cskv(file=b.h5)", 3, "holds no calibration"),
            ("b.h5", "full+kvquant(file=cskv.h5)", 2, "was made for cskv()"),
            ("b.h5", "full+kvquant(file=kvquant.h5,bits=2)", 2, "was made for kvquant(bits=3"),
            ("b.h5", "snapkv+cskv(file=cskv.h5)", 2, "unit=layer"),
            ("t.h5", "full+cskv(file=cskv.h5)", 3, "is of another model"),
        ]]:
            with self.subTest(reason):
                self.assertIn(reason, self.fails(code, *arguments))
        self.assertFalse((self.folder / "x.h5").exists())

    def test_damage_is_refused(self):
        def changed(name, change):
            (self.folder / name).write_bytes((self.folder / "matryoshka.h5").read_bytes())
            with h5py.File(self.folder / name, "r+") as file:
                change(file)
            return self.fails(3, "replay", "b.h5", "--policy", f"full+matryoshka(file={name})", "--budget", "100%", "--quiet")

        def replaced(name, value):
            def change(file):
                del file[name]
                file[name] = value
            return change
        shape = (4, 4, 64 * 64)
        self.assertIn("not finite", changed("nan.h5", replaced("tables/key_components", np.full(shape, np.nan, "f4"))))
        self.assertIn("key_components", changed("shape.h5", replaced("tables/key_components", np.zeros((4, 2, 8), "f4"))))
        self.assertIn("numbers per KV head", changed("size.h5", replaced("tables/key_components", np.zeros((4, 4, 8), "f4"))))
        self.assertIn("key_components", changed("gone.h5", lambda file: file.pop("tables/key_components")))
        self.assertIn("schema 2", changed("schema.h5", lambda file: file.attrs.modify("schema_major", np.uint16(2))))
        self.assertIn("do not belong together", changed("lists.h5", replaced("traces/tokens", np.zeros(7, "u8"))))

    def test_evictions_that_share_a_set_per_layer_take_codes_of_whole_layers(self):
        rows = self.rows("b.h5", "--policy", "snapkv(unit=layer)+cskv(file=cskv.h5)", "--policy", "snapkv(unit=layer)",
                         "--policy", "tova+kvquant(file=kvquant.h5)", "--policy", "snapkv+matryoshka(file=matryoshka.h5)",
                         "--budget", "50%")
        for row in rows:
            self.assertIsNotNone(row["output_error"], row)
        self.assertEqual(rows[0]["kept_tokens"], rows[1]["kept_tokens"])
        self.assertLess(rows[0]["kept_bytes"], rows[1]["kept_bytes"])

    def test_an_interrupted_one_leaves_nothing(self):
        self.make_trace("long.h5", 6000, 4)
        work = start("calibrate", "kvquant(bits=8)", *["long.h5"] * 6, "-o", "never.h5", "--quiet", cwd=self.folder)
        wait_until_caught(work, signal.SIGINT)
        work.send_signal(signal.SIGINT)
        self.assertEqual(work.wait(timeout=60), 4)
        self.assertEqual(list(self.folder.glob("*never*")), [])


if __name__ == "__main__":
    kvsim_command.main()
