#!/usr/bin/env python3
"""Checks kvsim evaluate with transformers, an implementation that shares no code with it: what every lane holds at every
step is read from the decisions file, and a forward pass whose heads see nothing else must predict what kvsim predicts.

Usage: KVSIM_TORCH_PYTHON=PYTHON test_evaluate_torch.py KVSIM SOURCE_DIR
"""
from torch_python import require_torch

require_torch()

import csv  # noqa: E402 - from here on there is torch
import io  # noqa: E402
import json  # noqa: E402
import shutil  # noqa: E402
import sys  # noqa: E402

import h5py  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from transformers import AttentionInterface  # noqa: E402

from kvsim_command import SOURCE, CommandTest, main  # noqa: E402

sys.path.append(str(SOURCE / "tests" / "support"))
from wide_weights import randomise  # noqa: E402

SAMPLE = SOURCE / "traces/sample/model"
POLICIES = ["full", "streaming_llm", "snapkv(window=8)", "keydiff", "h2o", "random", "snapkv(window=8)+xkv",
            "snapkv(window=8)+adakv(variant=kvpress)"]
TOLERANCE = 1e-3  # of log p and KL, both in nats, in f32
CONTEXT, NEW_TOKENS = 200, 8
TINY = {"vocab_size": 2048, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
        "num_key_value_heads": 2, "max_position_embeddings": 1024, "bos_token_id": 0, "eos_token_id": 1}
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

seen = None  # [layer][KV heads, queries, keys]: which keys each head may see


def attend_seen(module, query, key, value, attention_mask, scaling, **options):
    """Attention over the keys that `seen` names, instead of transformers' own choice of them."""
    group = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
    scores = query @ key.transpose(2, 3) * scaling
    scores = scores.masked_fill(~seen[module.layer_idx].repeat_interleave(group, 0), float("-inf"))
    return (scores.softmax(-1) @ value).transpose(1, 2).contiguous(), None


AttentionInterface.register("seen", attend_seen)


def tiny_checkpoint(folder, config_type, model_type, **more):
    """A random checkpoint with the sample's tokenizer, its weights wide enough for attention to have shape."""
    config = config_type(**TINY, **more)
    model = model_type(config)
    randomise(model, 5)
    model.save_pretrained(folder)
    shutil.copy(SAMPLE / "tokenizer.json", folder)


class ClosedLoop(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        made = cls.kvsim("workload", "needle-multi-key", "--context", CONTEXT, "--count", 1, "--tokenizer", SAMPLE, "-o",
                         "w.jsonl")
        assert made.returncode == 0, made.stderr
        cls.item = json.loads((cls.folder / "w.jsonl").read_text())

    def windows(self, config):
        """Per layer, how many keys a query sees; None: all before it."""
        kinds = getattr(config, "layer_types", None) or ["sliding_attention" if getattr(config, "sliding_window", None)
                                                         else "full_attention"] * config.num_hidden_layers
        return [config.sliding_window if kind == "sliding_attention" else None for kind in kinds]

    def causal(self, model, n):
        """[layers][KV heads, n, n] of a full cache."""
        query, key = torch.arange(n)[:, None], torch.arange(n)
        heads = model.config.num_key_value_heads
        out = []
        for window in self.windows(model.config):
            mask = key <= query
            if window is not None:
                mask &= query - key < window
            out.append(mask.expand(heads, n, n).clone())
        return out

    def compressed(self, model, n, prompt, cell):
        """The same, with queries after the cut seeing what their lane holds, and themselves."""
        masks = self.causal(model, n)
        heads = model.config.num_key_value_heads
        position, first, last = (torch.from_numpy(cell[name][...].astype("int64"))
                                 for name in ("position", "first_step", "last_step"))
        pointers = cell["lane_ptr"][...]
        for layer, mask in enumerate(masks):
            for head in range(heads):
                mine = slice(*(int(x) for x in pointers[layer * heads + head:][:2]))
                for query in range(self.first_fed, n):
                    step = query + 1 - prompt
                    held = torch.zeros(n, dtype=torch.bool)
                    held[position[mine][(first[mine] <= step) & (step < last[mine])]] = True
                    held[query] = True
                    mask[head, query] &= held
        return masks

    def log_probabilities(self, model, ids, masks):
        """[tokens that follow the prompt, vocabulary]"""
        global seen
        seen = masks
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
        return logits[self.length - 1:].double().log_softmax(-1)

    def check(self, folder, cut):
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="seen", dtype=torch.float32).eval()
        tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(SAMPLE / "tokenizer.json"))
        prompt_ids = tokenizer(self.item["prompt"])["input_ids"]
        self.length = len(prompt_ids)
        arguments = ["evaluate", "--model", folder, "--workload", "w.jsonl", "--budget", "20%", "--cut", cut, "--force", "full",
                     "--elem", "f32", "--max-new-tokens", NEW_TOKENS, "--per", "token", "--format", "csv", "--quiet",
                     "--decisions", "d.h5", "--overwrite"]
        for policy in POLICIES:
            arguments += ["--policy", policy]
        rows = list(csv.DictReader(io.StringIO(self.ok(*arguments))))
        self.assertTrue(all(row["skipped"] == "" for row in rows))
        with h5py.File(self.folder / "d.h5") as file:
            prompt = int(file.attrs["prompt_tokens"])
            self.first_fed = prompt - 1 if cut == "prompt" else prompt
            self.assertEqual(prompt == self.length, cut == "prompt")
            self.assertEqual(len(file["cells"]), 2 * len(POLICIES))
            uneven, worst = 0, 0.0
            for cell in file["cells"].values():
                params, mode = (cell.attrs[name].decode() for name in ("params", "mode"))
                mine = [row for row in rows if (row["params"], row["mode"]) == (params, mode)]
                tokens = [int(row["token"]) for row in mine]
                ids = prompt_ids + tokens[:-1]
                logs = self.log_probabilities(model, ids, self.compressed(model, len(ids), prompt, cell))
                self.assertEqual(len(logs), len(tokens))
                at_cut = [int((cell["first_step"][a:b] == 0).sum()) for a, b in zip(cell["lane_ptr"][:-1], cell["lane_ptr"][1:])]
                uneven += len(set(at_cut)) > 1
                self.assertGreater(len(tokens), 0)
                if mode == "greedy":
                    # The token is the most probable one, up to rounding.
                    for log, token in zip(logs, tokens):
                        self.assertGreaterEqual(float(log[token]), float(log.max()) - TOLERANCE)
                        self.greedy += 1
                    continue
                full = self.log_probabilities(model, ids, self.causal(model, len(ids)))
                for row, token, log, of_full in zip(mine, tokens, logs, full, strict=True):
                    kl = float((of_full.exp() * (of_full - log)).sum())
                    for key, expected in ("log_p", log[token]), ("log_p_full", of_full[token]), ("kl", kl):
                        error = abs(float(row[key]) - float(expected))
                        worst = max(worst, error)
                        self.assertLessEqual(error, TOLERANCE, f"{params}, token {row['index']}: {key}")
                    self.teacher += 1
                    self.kl = max(self.kl, kl)
            self.assertGreaterEqual(uneven, 2)  # the allocation gives lanes different budgets
            print(f"{folder.name} cut {cut}: largest error {worst:.2e} nats")

    def check_cuts(self, folder):
        self.teacher = self.greedy = 0
        self.kl = 0.0
        for cut in "prompt", "question":
            self.check(folder, cut)
        self.assertGreaterEqual(self.greedy, 2 * len(POLICIES))
        self.assertGreaterEqual(self.teacher, 2 * len(POLICIES))
        self.assertGreater(self.kl, 0.1)  # the caches are cut deep enough for a mistake to show

    def test_the_sample(self):
        self.check_cuts(SAMPLE)

    def test_a_tiny_qwen2(self):
        folder = self.folder / "qwen2"
        tiny_checkpoint(folder, transformers.Qwen2Config, transformers.Qwen2ForCausalLM, tie_word_embeddings=True)
        self.check_cuts(folder)

    def test_a_tiny_mistral_with_a_window(self):
        folder = self.folder / "mistral"
        tiny_checkpoint(folder, transformers.MistralConfig, transformers.MistralForCausalLM, sliding_window=96)
        self.check_cuts(folder)


if __name__ == "__main__":
    main()
