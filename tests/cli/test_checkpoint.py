#!/usr/bin/env python3
"""Compares a run of a checkpoint by kvsim with one by transformers: the same tokens, the same keys. The checkpoint is
the sample model, or your own.

Usage: KVSIM_TORCH_PYTHON=PYTHON [KVSIM_CHECKPOINT=DIR] test_checkpoint.py KVSIM SOURCE_DIR
"""
import json
import os
import pathlib

from torch_python import require_torch

require_torch()

import h5py  # noqa: E402 - from here on there is torch
import torch  # noqa: E402
import transformers  # noqa: E402

from kvsim_command import SOURCE, CommandTest, main  # noqa: E402

CHECKPOINT = os.environ.get("KVSIM_CHECKPOINT") or str(SOURCE / "traces/sample/model")
DTYPE = "dtype" if int(transformers.__version__.split(".")[0]) >= 5 else "torch_dtype"
NEW_TOKENS = 64
MARGIN = 0.25  # bf16 arithmetic may exchange tokens whose logits differ by less
TEXT = """The lighthouse keeper wrote down the weather every morning: wind from the north-west, 7 degrees, a ship with
two masts at noon. On the third day nobody came to read the book, and on the fourth it was gone. What had happened to it?"""


def load(dtype):
    model = transformers.AutoModelForCausalLM.from_pretrained(CHECKPOINT, attn_implementation="eager", **{DTYPE: dtype})
    return model.eval()


def prompt_ids(vocab_size):
    if (pathlib.Path(CHECKPOINT) / "tokenizer.json").exists():
        return transformers.AutoTokenizer.from_pretrained(CHECKPOINT)(TEXT)["input_ids"]
    return [(37 * i + 11) % vocab_size for i in range(48)]


def order(x):
    """Numbers bf16 values so that adjacent values have consecutive numbers."""
    bits = x.to(torch.bfloat16).view(torch.int16).to(torch.int32)
    return torch.where(bits < 0, -(bits & 0x7FFF), bits)


class Checkpoint(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = load(torch.float32)
        cls.prompt_tokens = prompt_ids(cls.model.config.vocab_size)
        (cls.folder / "prompt.json").write_text(json.dumps(cls.prompt_tokens))

    def capture(self, elem):
        name = f"{elem}.h5"
        if not (self.folder / name).exists():
            self.ok("capture", "--model", os.path.abspath(CHECKPOINT), "--tokens", "prompt.json", "--elem", elem,
                    "--max-new-tokens", NEW_TOKENS, "--ignore-eos", "--quiet", "-o", name)
        return h5py.File(self.folder / name)

    def logits_before(self, model, ids):
        """The logits [NEW_TOKENS, vocabulary] that chose the last tokens of `ids`."""
        with torch.no_grad():
            return model(torch.tensor([ids])).logits[0, -NEW_TOKENS - 1:-1].float()

    def test_greedy_tokens_in_float(self):
        ids = self.prompt_tokens
        with torch.no_grad():
            answer = self.model.generate(torch.tensor([ids]), do_sample=False, max_new_tokens=NEW_TOKENS,
                                         min_new_tokens=NEW_TOKENS, eos_token_id=None)[0].tolist()
        with self.capture("f32") as trace:
            ours = trace["tokens/id"][...].tolist()
        self.assertEqual(len(ours), len(ids) + NEW_TOKENS)
        self.assertEqual(ours, answer)

    def test_greedy_tokens_in_bfloat16(self):
        with self.capture("bf16") as trace:
            ours = trace["tokens/id"][...].tolist()
        logits = self.logits_before(load(torch.bfloat16), ours)
        best = logits.topk(2)
        clear = best.values[:, 0] - best.values[:, 1] > MARGIN
        self.assertGreater(int(clear.sum()), 0, "no step of the run has a clear favourite")
        self.assertEqual(best.indices[clear, 0].tolist(), torch.tensor(ours[-NEW_TOKENS:])[clear].tolist())

    def test_first_keys_in_bfloat16(self):
        with torch.no_grad():
            theirs = self.model(torch.tensor([self.prompt_tokens]), use_cache=True).past_key_values.layers[0].keys[0]
        with self.capture("bf16") as trace:  # a sliding cache holds only the last keys
            ours = torch.tensor(trace["layers/0000/k"][:, :len(self.prompt_tokens)].astype("float32"))[:, -theirs.shape[1]:]
        apart = (order(ours) - order(theirs)).abs()
        self.assertGreaterEqual(float((apart <= 1).float().mean()), 0.999)


main()
