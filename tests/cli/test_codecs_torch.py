#!/usr/bin/env python3
"""Compares representations with other implementations of the same codes, on the keys and values of a real run: KIVI and
plain codes with optimum-quanto, q8_0 and q4_0 with gguf (llama.cpp's own Python package), fp8 with PyTorch's float8.
What those make of the numbers is attended by PyTorch, step by step, and every error that kvsim reports must be the same.

Usage: KVSIM_TORCH_PYTHON=PYTHON test_codecs_torch.py KVSIM SOURCE_DIR
"""
from torch_python import require_torch

require_torch()

import gguf  # noqa: E402 - from here on there is torch
import h5py  # noqa: E402
import torch  # noqa: E402
from optimum.quanto import MaxOptimizer, qint2, qint4, quantize_weight  # noqa: E402

from kvsim_command import SOURCE, CommandTest, main  # noqa: E402

torch.set_num_threads(1)  # the tensors are small

MODEL = SOURCE / "traces/sample/model"
TOP = 32
STEPS = 16


def affine(x, bits, axis, group):
    """x [tokens, dim] in groups along the channels of a token (axis 0) or the tokens of a channel (axis -1)."""
    kind = {2: qint2, 4: qint4}[bits]
    scale, shift = MaxOptimizer()(x, kind, axis, group)
    # The cache keeps both in 16 bits.
    return quantize_weight(x, kind, axis, scale.half().float(), shift.half().float(), group, optimized=False).dequantize()


class Kivi:
    """Keys per channel, flushed when `residual` of them wait; values per token behind a sliding window."""

    def __init__(self, bits, group, residual):
        self.text = f"kivi(bits={bits},group={group},residual={residual})"
        self.bits, self.group, self.residual = bits, group, residual

    def stored(self, keys, values):
        n = keys.shape[0]
        flushed, old = n - n % self.residual, max(0, n - self.residual)
        keys, values = keys.clone(), values.clone()
        if flushed:
            keys[:flushed] = affine(keys[:flushed], self.bits, -1, self.group)
        if old:
            values[:old] = affine(values[:old], self.bits, 0, self.group)
        return keys, values

    def at(self, keys, values, settled, own):
        """Of the tokens up to `own`, of which `settled` were there before its query came."""
        old_keys, old_values = self.stored(keys[:settled], values[:settled])
        return torch.cat([old_keys, keys[settled:own + 1]]), torch.cat([old_values, values[settled:own + 1]])


class Plain(Kivi):
    """Every number in groups of channels, the token's own once its query has attended."""

    def __init__(self, bits, group):
        self.text = f"scalar(bits={bits},group={group})"
        self.code = lambda x: affine(x, bits, 0, group)

    def stored(self, keys, values):
        return self.code(keys), self.code(values)


class Engine:
    """A format of an inference engine: a vector is coded as it joins, before its own query, and by itself."""

    def __init__(self, text, code):
        self.text, self.code = text, code
        self.keys = None

    def stored(self, keys, values):
        if keys is not self.keys:  # codes of a lane are made once for all of its steps
            self.keys, self.codes = keys, (self.code(keys), self.code(values))
        return self.codes

    def at(self, keys, values, settled, own):
        return [codes[:own + 1] for codes in self.stored(keys, values)]


def of_gguf(kind):
    return lambda x: torch.from_numpy(gguf.quants.dequantize(gguf.quants.quantize(x.numpy(), kind), kind))


def of_torch(kind):
    return lambda x: x.to(kind).float()


CODECS = [Kivi(2, 32, 32), Kivi(4, 32, 64), Plain(4, 32), Plain(2, 32),
          Engine("q8_0", of_gguf(gguf.GGMLQuantizationType.Q8_0)), Engine("q4_0", of_gguf(gguf.GGMLQuantizationType.Q4_0)),
          *(Engine(f"llama_cpp(keys={name},values={name})", of_gguf(getattr(gguf.GGMLQuantizationType, name.upper())))
            for name in ("q4_1", "q5_0", "q5_1")),
          Engine("fp8", of_torch(torch.float8_e4m3fn)), Engine("fp8(format=e5m2)", of_torch(torch.float8_e5m2))]


class Codecs(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for command in (["workload", "needle-multi-key", "--context", "150", "--count", "1", "--tokenizer", MODEL,
                         "-o", "w.jsonl"],
                        ["capture", "--model", MODEL, "--workload", "w.jsonl", "--item", "needle-multi-key-150-s1-0",
                         "--max-new-tokens", str(STEPS), "--ignore-eos", "--elem", "f32", "-o", "item.h5"]):
            done = cls.kvsim(*command)
            assert done.returncode == 0, done.stderr
        with h5py.File(cls.folder / "item.h5") as file:
            cls.scale = float(file["model"].attrs["attn_scale"])
            read = lambda layer, name: torch.from_numpy(file[f"layers/{layer}/{name}"][...])
            cls.tensors = [{name: read(layer, name) for name in ("q", "k", "v")} for layer in file["layers"]]

    def expected(self, codec, layer, lane, cut, prompt):
        tensors = self.tensors[layer]
        keys, values = tensors["k"][lane], tensors["v"][lane]
        group = tensors["q"].shape[0] // tensors["k"].shape[0]
        sums = dict.fromkeys(("total_variation", "output_error", "top_overlap"), 0.0)
        squares = logits = ties = 0
        # The last row of a whole prompt is measured, too, over the prompt as it is stored.
        steps = range(prompt - 1 if cut == "prompt" else prompt, keys.shape[0])
        for own in steps:
            settled = max(own, prompt)
            stored_keys, stored_values = (x.double() for x in codec.at(keys, values, settled, own))
            seen = own + 1
            for g in range(group):
                query = tensors["q"][lane * group + g, own].double() * self.scale
                whole, coded = keys[:seen].double() @ query, stored_keys @ query
                squares += float(((whole - coded) ** 2).sum())
                logits += seen
                row, other = whole.softmax(0), coded.softmax(0)
                sums["total_variation"] += float((row - other).abs().sum()) / 2 / group
                # Which of two tokens with the same attention, but for rounding, is among the top is open: logits are
                # dozens, in 24 bits, and what is less than a float can be is 0.
                ties += sum(seen > TOP and bool(each[TOP - 1] - each[TOP] <= 1e-4 * each[TOP] or each[TOP] < 1e-37)
                            for each in (row.sort(descending=True).values, other.sort(descending=True).values))
                top = row.topk(min(TOP, seen)).indices
                sums["top_overlap"] += torch.isin(top, other.topk(len(top)).indices).double().mean().item() / group
                exact = row @ values[:seen].double()
                sums["output_error"] += float((other @ stored_values - exact).norm() / exact.norm()) / group
        out = {name: total / len(steps) for name, total in sums.items()}
        out["logit_rmse"] = (squares / logits) ** 0.5
        self.open_overlap = ties / TOP / group / len(steps)
        for name, x, coded in zip(("key_error", "value_error"), (keys, values), codec.stored(keys, values)):
            out[name] = float((coded.double() - x.double()).norm() / x.double().norm())
        return out

    def compare(self, codecs, cut, prompt):
        study = ["item.h5", "--per", "head", "--budget", "100%", "--cut", cut]
        for codec in codecs:
            study += ["--policy", f"full+{codec.text}"]
        rows = self.rows(*study)
        lanes, layers = self.tensors[0]["k"].shape[0], len(self.tensors)
        self.assertEqual(len(rows), len(codecs) * lanes * layers)
        checked = 0
        for i, codec in enumerate(codecs):
            for layer in range(layers):
                for lane in range(lanes):
                    row = rows[(i * layers + layer) * lanes + lane]
                    self.assertEqual((row["layer"], row["head"]), (layer, lane))
                    for name, wanted in self.expected(codec, layer, lane, cut, prompt).items():
                        # A number halfway between two codes may fall to either, in one of thousands.
                        delta = 1e-5 + (self.open_overlap if name == "top_overlap" else 1e-4 * wanted)
                        self.assertAlmostEqual(row[name], wanted, delta=delta, msg=f"{codec.text} {name}")
                        checked += 1
        self.assertEqual(checked, len(codecs) * lanes * layers * 6)

    def test_every_error_is_what_the_other_implementation_gives(self):
        self.compare(CODECS, "prompt", self.tensors[0]["k"].shape[1] - STEPS)

    def test_behind_a_cut_at_the_first_token_every_row_reads_codes(self):
        self.compare([CODECS[0], CODECS[5]], "1", 1)


if __name__ == "__main__":
    main()
