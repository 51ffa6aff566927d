#!/usr/bin/env python3
"""Compares the output errors of a real run with PyTorch: attention over the tokens that a cell held, computed by
PyTorch from the trace's tensors, against attention over all tokens; also after the output projection.

Usage: KVSIM_TORCH_PYTHON=PYTHON test_outputs_torch.py KVSIM SOURCE_DIR
"""
from torch_python import require_torch

require_torch()

import h5py  # noqa: E402 - from here on there is torch
import torch  # noqa: E402

from kvsim_command import SOURCE, CommandTest, main  # noqa: E402

MODEL = SOURCE / "traces/sample/model"
POLICIES = ["h2o", "snapkv(window=8)+xkv", "keydiff", "streaming_llm", "random"]


class Outputs(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for command in (["workload", "needle-multi-key", "--context", "400", "--count", "1", "--tokenizer", MODEL,
                         "-o", "w.jsonl"],
                        ["capture", "--model", MODEL, "--workload", "w.jsonl", "--item", "needle-multi-key-400-s1-0",
                         "--max-new-tokens", "6", "--ignore-eos", "--elem", "f32", "--output-weights", "-o", "item.h5"]):
            done = cls.kvsim(*command)
            assert done.returncode == 0, done.stderr
        with h5py.File(cls.folder / "item.h5") as file:
            model = file["model"].attrs
            cls.layers = len([name for name in file["layers"]])
            cls.scale = float(model["attn_scale"])
            read = lambda layer, name: torch.from_numpy(file[f"layers/{layer:04d}/{name}"][...]).double()
            cls.tensors = [{name: read(layer, name) for name in ("q", "k", "v", "wo")} for layer in range(cls.layers)]

    def outputs(self, layer, head, steps, kept):
        """The outputs [step, head_dim] of one query head; `kept(step, position)` says which tokens are attended besides
        the token itself."""
        tensors = self.tensors[layer]
        group = tensors["q"].shape[0] // tensors["k"].shape[0]
        keys, values = tensors["k"][head // group], tensors["v"][head // group]
        out = []
        for step, position in steps:
            held = torch.tensor([j for j in range(position + 1) if j == position or kept(step, j)])
            out.append(torch.nn.functional.scaled_dot_product_attention(
                tensors["q"][head, position][None], keys[held], values[held], scale=self.scale)[0])
        return torch.stack(out)

    def check(self, cut):
        study = ["item.h5", "--cut", cut, "--budget", "15%", "--decisions", f"{cut}.h5"]
        for policy in POLICIES:
            study += ["--policy", policy]
        of_lane = self.rows(*study, "--per", "head")
        of_layer = self.rows(*study[:5], *study[7:], "--per", "layer")
        with h5py.File(self.folder / f"{cut}.h5") as file:
            prompt, decode = int(file.attrs["prompt_tokens"]), int(file.attrs["decode_steps"])
            cells = [{name: file[f"cells/{i:04d}/{name}"][...]
                      for name in ("lane_ptr", "position", "first_step", "last_step")} for i in range(len(POLICIES))]
        first = prompt - 1 if cut == "prompt" else prompt
        steps = [(position + 1 - prompt, position) for position in range(first, prompt + decode)]
        heads = self.tensors[0]["q"].shape[0]
        lanes = self.tensors[0]["k"].shape[0]
        group = heads // lanes
        for i, policy in enumerate(POLICIES):
            stays = [{int(p): (int(a), int(b)) for p, a, b in zip(cells[i]["position"][begin:end],
                                                                  cells[i]["first_step"][begin:end],
                                                                  cells[i]["last_step"][begin:end])}
                     for begin, end in zip(cells[i]["lane_ptr"][:-1], cells[i]["lane_ptr"][1:])]
            for layer in range(self.layers):
                whole, held = [], []
                for head in range(heads):
                    mine = stays[layer * lanes + head // group]
                    during = lambda step, j: j in mine and mine[j][0] <= step < mine[j][1]
                    whole.append(self.outputs(layer, head, steps, lambda step, j: True))
                    held.append(self.outputs(layer, head, steps, during))
                whole, held = torch.stack(whole), torch.stack(held)
                error = (held - whole).norm(dim=-1) / whole.norm(dim=-1)
                cosine = torch.nn.functional.cosine_similarity(held, whole, dim=-1)
                for lane in range(lanes):
                    row = of_lane[(i * self.layers + layer) * lanes + lane]
                    self.assertEqual((row["layer"], row["head"]), (layer, lane))
                    of_group = slice(lane * group, (lane + 1) * group)
                    self.assertAlmostEqual(row["output_error"], float(error[of_group].mean()), delta=1e-5)
                    self.assertAlmostEqual(row["output_cosine"], float(cosine[of_group].mean()), delta=1e-5)
                    self.checked += 1
                weights = self.tensors[layer]["wo"]  # [query heads, value dim, hidden]
                project = lambda o: torch.einsum("hsd,hdm->sm", o, weights)
                projected_error = ((project(held) - project(whole)).norm(dim=-1) / project(whole).norm(dim=-1)).mean()
                projected_cosine = torch.nn.functional.cosine_similarity(project(held), project(whole), dim=-1).mean()
                row = of_layer[i * self.layers + layer]
                self.assertAlmostEqual(row["projected_output_error"], float(projected_error), delta=1e-5)
                self.assertAlmostEqual(row["projected_output_cosine"], float(projected_cosine), delta=1e-5)

    def test_against_attention_over_what_was_held(self):
        self.checked = 0
        for cut in "prompt", "question":
            self.check(cut)
        self.assertGreaterEqual(self.checked, 20)  # lanes


if __name__ == "__main__":
    main()
