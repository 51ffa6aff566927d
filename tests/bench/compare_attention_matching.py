#!/usr/bin/env python3
"""Attention Matching as its authors compute it and as kvsim does, on the same queries, keys and values.

    python3 tests/bench/compare_attention_matching.py KVSIM CLONE TRACE.h5 [--budgets 10%,25%]

CLONE is https://github.com/adamzweiger/compaction at 2e59cc8, KVSIM the program of the build; needs torch, numpy and h5py
(tools/python_env.sh makes such a Python). Both match all queries of the prompt, as the authors' context prefill does. Prints, per form
and budget, KV heads that keep other keys, and of the others two errors that kvsim reports per KV head, beside the authors': of values, and
of outputs over the generated tokens. Least squares are nearly singular, so that the ridge that kvsim always adds moves values that hardly
count.
"""
import argparse
import contextlib
import csv
import io
import math
import pathlib
import subprocess
import sys
import tempfile

import h5py
import numpy as np
import torch

FORMS = {"reference_attention+fitted_values": "AM-HighestAttnKeys-basic",
         "matching_pursuit(share=1)+fitted_values(least=-27.631,most=7,steps=0)": "AM-OMP-basic"}


def algorithms(clone):
    sys.path.insert(0, str(clone))
    from compaction.algorithms.highest_attention_keys import HighestAttentionKeysCompaction
    from compaction.algorithms.omp import OMPCompaction
    return {"AM-HighestAttnKeys-basic": HighestAttentionKeysCompaction(nnls_iters=2, nnls_lower_bound=math.exp(-3), nnls_upper_bound=math.exp(3),
                                                                     score_method="rms"),
            "AM-OMP-basic": OMPCompaction(nnls_iters=0, nnls_upper_bound=math.exp(7), drop_key_beta_cutoff=-7)}


class Head:
    """A KV head of the trace: queries [group, tokens, dim], keys and values [tokens, dim]."""

    def __init__(self, arrays, layer, head, group, prompt):
        part = slice(head * group, (head + 1) * group)
        self.q = numbers(arrays[f"layers.{layer}.q"][part])
        self.k, self.v = (numbers(arrays[f"layers.{layer}.{name}"][head]) for name in "kv")
        self.prompt = prompt

    def compacted(self, algorithm, budget):
        keys, values, queries = (torch.from_numpy(np.ascontiguousarray(x)).float() for x in
                                 (self.k[:self.prompt], self.v[:self.prompt], self.q[:, :self.prompt].reshape(-1, self.k.shape[1])))
        with contextlib.redirect_stdout(io.StringIO()):  # what it says where least squares fail
            _, biases, fitted, kept = algorithm.compute_compacted_cache(keys, values, queries, budget)
        return np.array(kept), biases.double().numpy(), fitted.double().numpy()

    def errors(self, kept, biases, fitted):
        """Of values, over the root mean square of the exact ones; of outputs, mean over query heads and generated tokens."""
        exact = self.v[kept]
        outputs = []
        for q in self.q:
            for t in range(self.prompt, len(self.k)):
                logits = self.k @ q[t] / math.sqrt(self.k.shape[1])
                whole = attend(logits[:t + 1], self.v[:t + 1])
                own = slice(self.prompt, t + 1)
                held = attend(np.concatenate([logits[kept] + biases, logits[own]]), np.concatenate([fitted, self.v[own]]))
                outputs.append(np.linalg.norm(held - whole) / np.linalg.norm(whole))
        return {"value_error": float(np.sqrt(((fitted - exact) ** 2).sum() / (exact ** 2).sum())), "output_error": float(np.mean(outputs))}


def numbers(stored):  # bf16 comes as its bits
    return ((stored.astype(np.uint32) << 16).view(np.float32) if stored.dtype == np.uint16 else stored).astype(np.float64)


def attend(logits, values):
    weights = np.exp(logits - logits.max())
    return weights @ values / weights.sum()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kvsim", type=pathlib.Path)
    parser.add_argument("clone", type=pathlib.Path)
    parser.add_argument("trace", type=pathlib.Path)
    parser.add_argument("--budgets", default="10%,25%")
    asked = parser.parse_args()
    theirs = algorithms(asked.clone)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        subprocess.run([asked.kvsim, "trace", "export", asked.trace, "-o", folder / "run.npz", "--quiet"], check=True)
        arrays = np.load(folder / "run.npz")
        policies = [text for form in FORMS for text in ("--policy", form)]
        subprocess.run([asked.kvsim, "replay", asked.trace, *policies, "--budget", asked.budgets, "--per", "head", "--decisions", folder / "held.h5",
                        "--quiet", "--format", "csv", "-o", folder / "rows.csv"], check=True)
        rows = list(csv.DictReader(open(folder / "rows.csv", newline="")))
        with h5py.File(folder / "held.h5") as file:
            prompt, layers, heads = (int(file.attrs[name]) for name in ("prompt_tokens", "n_layers", "n_kv_heads"))
            group = len(arrays["layers.0.q"]) // heads
            for index, cell in enumerate(file["cells"].values()):
                budget = int(cell.attrs["budget_tokens"])
                name = next(of for ours, of in FORMS.items() if cell.attrs["params"].decode().startswith(ours.split("(")[0].split("+")[0]))
                pointer, position, first = cell["lane_ptr"][:], cell["position"][:], cell["first_step"][:]
                other, pairs = 0, {"value_error": [], "output_error": []}  # of kvsim and of the authors
                of_cell = rows[index * layers * heads:(index + 1) * layers * heads]
                for lane, row in enumerate(of_cell):
                    head = Head(arrays, lane // heads, lane % heads, group, prompt)
                    part = slice(pointer[lane], pointer[lane + 1])
                    ours = set(position[part][first[part] == 0].tolist())
                    kept, biases, fitted = head.compacted(theirs[name], budget)
                    if set(kept.tolist()) != ours:
                        other += 1
                        continue
                    for key, value in head.errors(kept, biases, fitted).items():
                        pairs[key].append((float(row[key]), value))
                print(f"{name} budget {budget}: {other} of {layers * heads} KV heads keep other keys; elsewhere",
                      "; ".join(f"{key} {np.mean(both, 0)[0]:.4f}, theirs {np.mean(both, 0)[1]:.4f}, apart by at most "
                                f"{np.abs(np.diff(both)).max():.2g}" for key, both in pairs.items() if both), flush=True)


if __name__ == "__main__":
    main()
