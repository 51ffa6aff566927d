#!/usr/bin/env python3
"""Compares runs of SmolLM2-135M-Instruct and Gemma 3 270M from their GGUF files, which tools/model.sh fetches, with what transformers
reads in the same files: the answers to ten prompts token by token, their logarithms of probabilities, and the recorded queries, keys and values.

Usage: KVSIM_TORCH_PYTHON=PYTHON test_smollm2.py KVSIM SOURCE_DIR
"""
import subprocess
import sys

from torch_python import SKIPPED, require_torch

require_torch()

import pathlib  # noqa: E402 - from here on there is torch

import h5py  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from transformers import AttentionInterface  # noqa: E402

from kvsim_command import SOURCE, CommandTest, main  # noqa: E402


def fetched(name):
    done = subprocess.run([SOURCE / "tools/model.sh", name], capture_output=True, text=True)
    if done.returncode != 0:
        print(f"skipped: {name.upper()} IS NOT COMPARED WITH TRANSFORMERS: {done.stderr.strip().splitlines()[-1]}")
        sys.exit(SKIPPED)
    return pathlib.Path(done.stdout.strip())


MODELS = {name: fetched(name) for name in ("smollm2", "gemma3")}
NEW_TOKENS = 12
LOG_P_TOLERANCE, TENSOR_TOLERANCE = 1e-3, 1e-4  # in f32: nats; relative, in the Frobenius norm
PROMPTS = [
    "The capital of France is",
    "Water is made of hydrogen and",
    "def fibonacci(n):\n    ",
    "Once upon a time, there was a little",
    "The three primary colours are red,",
    "To be, or not to be,",
    "1, 2, 3, 4, 5,",
    "Dear Sir or Madam,\n\n",
    "The opposite of hot is",
    "In 1969, Neil Armstrong",
]
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

recorded = {}


def attend_and_record(module, query, key, value, attention_mask, scaling, **options):
    """Causal attention that keeps what went into it."""
    recorded[module.layer_idx] = [each[0].numpy() for each in (query, key, value)]
    group = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
    seen = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool).tril()
    scores = (query @ key.transpose(2, 3) * scaling).masked_fill(~seen, float("-inf"))
    return (scores.softmax(-1) @ value).transpose(1, 2).contiguous(), None


AttentionInterface.register("recorded", attend_and_record)


class Compared:
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.file = MODELS[cls.name]
        cls.model = transformers.AutoModelForCausalLM.from_pretrained(
            cls.file.parent, gguf_file=cls.file.name, attn_implementation="recorded", dtype=torch.float32).eval()
        recorded.clear()

    def logits(self, ids):
        with torch.no_grad():
            return self.model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].double()

    def test_ten_prompts(self):
        worst = 0.0
        for prompt in PROMPTS:
            (self.folder / "prompt.txt").write_text(prompt)
            self.ok("capture", "--model", self.file, "--prompt", "prompt.txt", "--max-new-tokens", NEW_TOKENS, "--ignore-eos", "--elem", "f32",
                    "--quiet", "--overwrite", "-o", "run.h5")
            with h5py.File(self.folder / "run.h5") as file:
                ids, log_p = file["tokens/id"][...].tolist(), file["tokens/logprob"][...]
                length = int(np.isnan(log_p).sum())
                self.assertEqual(len(ids), length + NEW_TOKENS)
                of_transformers = self.logits(ids).log_softmax(-1)[length - 1:-1]
                self.assertEqual(ids[length:], of_transformers.argmax(-1).tolist(), prompt)
                for mine, log, token in zip(log_p[length:], of_transformers, ids[length:]):
                    worst = max(worst, abs(float(mine) - float(log[token])))
                for layer, tensors in recorded.items():
                    for name, tensor in zip("qkv", tensors):
                        mine = file[f"layers/{layer:04d}/{name}"][...].astype(np.float64)
                        self.assertEqual(mine.shape, tensor.shape)
                        error = np.linalg.norm(mine - tensor) / np.linalg.norm(tensor)
                        self.assertLessEqual(error, TENSOR_TOLERANCE, f"{prompt}: layer {layer}, {name}")
        self.assertEqual(len(recorded), self.layers)
        self.assertLessEqual(worst, LOG_P_TOLERANCE)
        print(f"largest difference of log p: {worst:.1e} nats")


class SmolLM2(Compared, CommandTest):
    name, layers = "smollm2", 30


class Gemma3(Compared, CommandTest):
    """Its prompts are shorter than its windows: these are compared on the golden checkpoint."""
    name, layers = "gemma3", 18


if __name__ == "__main__":
    main()
