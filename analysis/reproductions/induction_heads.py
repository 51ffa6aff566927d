#!/usr/bin/env python3
"""Which heads look for what followed an earlier occurrence of the present token: scores for retrieval_heads(scores=FILE), found as
RazorAttention finds its retrieval heads, on a text of random words that is repeated.

    python3 induction_heads.py --text > random.txt        60 random words four times
    python3 induction_heads.py RUN.h5 > scores.json       of a run of it (kvsim capture): per layer and query head the mean attention
                                                          to tokens behind an earlier occurrence, over the repetitions
"""
import json
import random
import string
import sys


def text():
    draw = random.Random(0)
    words = ["".join(draw.choices(string.ascii_lowercase, k=3)) for _ in range(60)]
    return " ".join(4 * words)


def scores(path):
    import h5py
    import numpy as np
    with h5py.File(path) as trace:
        tokens = trace["tokens/id"][:]
        n = len(tokens)
        behind = np.zeros((n, n), bool)
        behind[:, 1:] = tokens[:, None] == tokens[None, :-1]
        seen = np.tri(n, dtype=bool)
        behind &= np.tri(n, k=-1, dtype=bool)
        found = []
        for layer in trace["layers"].values():
            q, k = layer["q"][:].astype(np.float64), layer["k"][:].astype(np.float64)
            of_layer = []
            for head, queries in enumerate(q):
                logits = np.where(seen, queries @ k[head * len(k) // len(q)].T / np.sqrt(q.shape[2]), -np.inf)
                attention = np.exp(logits - logits.max(1, keepdims=True))
                attention /= attention.sum(1, keepdims=True)
                of_layer.append(float((attention * behind).sum(1)[n // 4:].mean()))
            found.append(of_layer)
    return found


if __name__ == "__main__":
    print(text() if sys.argv[1] == "--text" else json.dumps(scores(sys.argv[1])))
