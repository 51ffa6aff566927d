#!/usr/bin/env python3
"""Makes hook.h5: a trace of the sample checkpoint by the Hugging Face hook, for tests that run without PyTorch.

    python3 tests/golden/capture/make_hook_golden.py        (needs torch, transformers, h5py; wrote with 2.15, 5.23, 3.16)

14 tokens of a prompt and 5 that transformers chooses greedily, float32, SDPA on one CPU thread.
"""
import pathlib
import sys

import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path.insert(0, str(ROOT / "tools" / "python"))
from kvsim.hf import trace  # noqa: E402 - after the path to it

PROMPT = 14


def main():
    torch.set_num_threads(1)
    folder = str(ROOT / "traces/sample/model")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).float().eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    text = (ROOT / "traces/sample/prompts/needle-0500-one.txt").read_text()
    ids = torch.tensor([tokenizer(text)["input_ids"][:PROMPT]])
    with trace(model, HERE / "hook.h5", tokenizer, attention="window:2", column_statistics=True, directory=folder,
               reproducible=True, overwrite=True):
        model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=6, min_new_tokens=6,
                       pad_token_id=1)


if __name__ == "__main__":
    main()
