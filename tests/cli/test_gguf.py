#!/usr/bin/env python3
"""A GGUF file in the place of a checkpoint's folder: the same run, and what the trace says of the file.

Usage: test_gguf.py KVSIM SOURCE_DIR
"""
import hashlib
import json
import sys

import h5py
import numpy as np

from kvsim_command import SOURCE, CommandTest, main

sys.path.insert(0, str(SOURCE / "tests/support"))
import small_gguf  # noqa: E402

FOLDER = SOURCE / "tests/golden/capture/llama_untied_f32"


class Gguf(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.config, cls.tensors = small_gguf.checkpoint(FOLDER)
        cls.file = cls.folder / "model.gguf"
        cls.file.write_bytes(small_gguf.llama(cls.config, cls.tensors))
        (cls.folder / "ids.json").write_text(json.dumps([(37 * i + 11) % 257 for i in range(40)]))

    def changed(self, name, more):
        (self.folder / name).write_bytes(small_gguf.llama(self.config, self.tensors, more))
        return name

    def captured(self, model, output):
        self.ok("capture", "--model", model, "--tokens", "ids.json", "--max-new-tokens", 8, "--ignore-eos", "--output-weights",
                "-o", output, "--quiet")
        return h5py.File(self.folder / output)

    def test_the_run_is_that_of_the_folder_bit_for_bit(self):
        compared = []
        with self.captured(FOLDER, "folder.h5") as folder, self.captured("model.gguf", "file.h5") as file:
            def compare(name, dataset):
                if isinstance(dataset, h5py.Dataset) and name != "model/config_json" and not name.endswith("_ns"):
                    self.assertEqual(dataset[()].tobytes(), folder[name][()].tobytes(), name)
                    compared.append(name.rsplit("/", 1)[-1])
            file.visititems(compare)
            self.assertTrue({"q", "k", "v", "wo", "id", "inv_freq"} <= set(compared), compared)
            about = dict(file["model"].attrs)
            self.assertEqual(about["name"], b"model.gguf")
            self.assertEqual(about["weights_sha256"].decode(), hashlib.sha256(self.file.read_bytes()).hexdigest())
            origin = json.loads(file["model/config_json"][()].tobytes())["gguf"]
            self.assertEqual(origin, {"file": "model.gguf", "version": 3, "types": {"F32": len(self.tensors)}})
        self.assertIn("No differences", self.ok("diff", "folder.h5", "file.h5"))

    def test_cost_takes_it_as_a_config(self):
        def cost(model):
            return json.loads(self.ok("cost", "estimate", "--model", model, "--machine", "h100-sxm", "--prompt-tokens", 64,
                                      "--policy", "full", "--format", "json"))
        file, folder = cost("model.gguf"), cost(FOLDER)
        self.assertEqual(json.dumps(file).replace("model.gguf", "M"), json.dumps(folder).replace(str(FOLDER / "config.json"), "M"))

    def test_cost_counts_weights_as_the_file_stores_them(self):
        stored = {}
        for name, values in self.tensors.items():
            q8 = values.ndim == 2 and values.shape[1] % 32 == 0
            stored[name] = values.size // 32 * 34 if q8 else 2 * values.size

        def as_stored(name, shape, code, data):
            size = len(data) // 4
            if len(shape) == 2 and shape[0] % 32 == 0:
                return name, shape, small_gguf.Q8_0, bytes(size // 32 * 34)
            return (name, shape, small_gguf.F16, bytes(2 * size)) if len(shape) == 2 else (name, shape, code, data)

        write, made = small_gguf.gguf, []
        small_gguf.gguf = lambda keys, tensors: write(keys, [as_stored(*tensor) for tensor in tensors])
        try:
            made = small_gguf.llama(self.config, self.tensors)
        finally:
            small_gguf.gguf = write
        (self.folder / "q8.gguf").write_bytes(made)
        row, = json.loads(self.ok("cost", "estimate", "--model", "q8.gguf", "--machine", "h100-sxm", "--prompt-tokens", 64,
                                  "--policy", "full", "--format", "json"))["results"]
        self.assertEqual(row["weights_bytes"], sum(stored.values()))

    def test_what_cannot_be_run_is_refused(self):
        def refused(model):
            return self.fails(3, "capture", "--model", model, "--tokens", "ids.json", "-o", "no.h5")
        self.assertIn('architecture "falcon" is not supported', refused(self.changed("g.gguf", {"general.architecture": "falcon"})))
        self.assertIn("llama.logit_scale", refused(self.changed("s.gguf", {"llama.logit_scale": 2.0})))
        whole = self.file.read_bytes()
        (self.folder / "cut.gguf").write_bytes(whole[:-100])
        self.assertIn("truncated or damaged", refused("cut.gguf"))
        (self.folder / "text.gguf").write_text("no model")
        self.assertIn("neither a folder nor a GGUF file", refused("text.gguf"))
        self.assertFalse((self.folder / "no.h5").exists())


main()
