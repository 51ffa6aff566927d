#!/usr/bin/env python3
"""Tests what kvsim evaluate says step by step: decisions, rows per token, and schedules that it follows from a file."""
import csv
import io
import math
import re
import statistics

import h5py
import kvsim_command
import numpy as np
from kvsim_command import SOURCE, CommandTest, columns_of

MODEL = SOURCE / "traces" / "sample" / "model"
LISTS = "lane_ptr", "position", "first_step", "last_step"
CUTS = "prompt", "question"
NEW = 8


class EvaluateDecisions(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for command in (["workload", "needle-multi-key", "--context", 200, "--count", 2, "--tokenizer", MODEL, "-o", "w.jsonl"],
                        # The closed loop does not feed the last token that it generates; a capture does.
                        ["capture", "--model", MODEL, "--workload", "w.jsonl", "--item", "needle-multi-key-200-s1-0",
                         "--max-new-tokens", NEW - 1, "--ignore-eos", "--elem", "f32", "-o", "item.h5"]):
            made = cls.kvsim(*command)
            assert made.returncode == 0, made.stderr

    def command(self, *more, new=NEW):
        return ["evaluate", "--model", MODEL, "--workload", "w.jsonl", "--item", "needle-multi-key-200-s1-0", "--elem", "f32",
                "--max-new-tokens", new, "--force", "full", "--budget", "15%", "--quiet", "--format", "csv", *more]

    def evaluate(self, *more):
        return list(csv.DictReader(io.StringIO(self.ok(*self.command(*more)))))

    def open_loop(self, cut, policies):
        """Replays the recorded run into open.h5."""
        chosen = [word for policy in policies for word in ("--policy", policy)]
        self.ok("replay", "item.h5", *chosen, "--budget", "15%", "--cut", cut, "--decisions", "open.h5", "--overwrite", "--quiet")

    def closed_loop(self, cut, policies):
        """Teacher-forced rows; decisions go to closed.h5."""
        chosen = [word for policy in policies for word in ("--policy", policy)]
        return self.evaluate(*chosen, "--cut", cut, "--mode", "teacher", "--decisions", "closed.h5", "--overwrite")

    def lists(self, name, cell, lanes=None):
        """Intervals per lane, of the first lanes or of all."""
        with h5py.File(self.folder / name) as file:
            group = file[f"cells/{cell:04d}"]
            pointers = group["lane_ptr"][:]
            columns = np.stack([group[column][:].astype(np.int64) for column in LISTS[1:]], 1)
        return [columns[a:b].tolist() for a, b in zip(pointers[:-1], pointers[1:])][:lanes]

    def heads(self):
        with h5py.File(self.folder / "item.h5") as file:
            return int(file["model"].attrs["n_kv_heads"])

    def test_the_file_says_what_replay_says_where_nothing_drifts(self):
        # Layer 0 reads nothing but tokens. Some lanes of retrieval_heads never evict.
        policies = ["full", "h2o", "keydiff", "snapkv(window=8)+xkv", "streaming_llm", "tova",
                    "h2o+retrieval_heads(sinks=2,recent=8)"]
        for cut in CUTS:
            self.open_loop(cut, policies)
            self.closed_loop(cut, policies)
            with h5py.File(self.folder / "open.h5") as ours, h5py.File(self.folder / "closed.h5") as theirs:
                for name in "format", "schema_major", "prompt_tokens", "decode_steps", "n_layers", "n_kv_heads", "seed", "cut":
                    self.assertEqual(ours.attrs[name], theirs.attrs[name], name)
                for cell in range(len(policies)):
                    mine, other = (file[f"cells/{cell:04d}"].attrs for file in (ours, theirs))
                    self.assertEqual({**mine, "mode": b"teacher"}, dict(other))
            for cell, policy in enumerate(policies):
                self.assertEqual(self.lists("open.h5", cell, self.heads()), self.lists("closed.h5", cell, self.heads()), policy)
                after_cut = [[[stay[0] for stay in lane if stay[1] == 0] for lane in self.lists(name, cell)]
                             for name in ("open.h5", "closed.h5")]
                self.assertEqual(*after_cut, policy)
            everything = self.lists("closed.h5", 0)[0]
            self.assertIn(everything, self.lists("closed.h5", 6))

    def test_a_schedule_is_followed_in_every_layer_and_step(self):
        policies = ["full", "h2o", "snapkv(window=8)+xkv", "optimal", "future_mass", "hashevict"]
        for cut in CUTS:
            self.open_loop(cut, policies)
            rows = self.closed_loop(cut, [f"external_schedule(file=open.h5,cell={cell})" for cell in range(len(policies))])
            for cell, policy in enumerate(policies):
                self.assertEqual(self.lists("open.h5", cell), self.lists("closed.h5", cell), policy)
            self.assertEqual((rows[0]["kl"], rows[0]["same_top"]), ("0", "1"))  # full
            self.assertTrue(all(math.isfinite(float(row["kl"])) and float(row["kl"]) > 0 for row in rows[1:]))
            # What does not depend on what has drifted decides the same, and predicts the same, by itself.
            (own,) = self.closed_loop(cut, [policies[2]])
            for key in "kl", "kl_max", "log_p", "rank", "kept_tokens", "held_tokens", "entry_steps":
                self.assertEqual(own[key], rows[2][key], key)

    def test_a_replay_follows_a_schedule_too(self):
        self.open_loop("question", ["full", "optimal"])
        rows = self.rows("item.h5", "--policy", "optimal", "--policy", "external_schedule(file=open.h5,cell=1)", "--budget", "15%",
                         "--cut", "question")
        for key in "attention_loss", "output_error", "kept_tokens", "r":
            self.assertEqual(rows[0][key], rows[1][key], key)

    def test_schedules_that_do_not_fit_are_refused(self):
        self.open_loop("question", ["full", "h2o"])
        self.ok("replay", "t.h5", "--policy", "h2o", "--budget", "15%", "--decisions", "other.h5", "--overwrite", "--quiet")
        schedule = lambda text: ["--policy", f"external_schedule({text})"]
        teacher = ["--mode", "teacher", "--cut", "question"]
        for arguments, code, *said in [
            ([*schedule("file=open.h5"), "--cut", "question"], 2, "greedy mode feeds others", "--mode teacher"),
            ([*schedule("file=open.h5,cell=2"), *teacher], 3, "open.h5:/cells/0002", "the file has 2 cells"),
            ([*schedule("file=open.h5"), "--mode", "teacher"], 3, "open.h5", "same prompt at the same cut"),
            ([*schedule("file=other.h5"), *teacher], 3, "3 layers of 2 KV heads"),
            ([*schedule("file=item.h5"), *teacher], 3, "holds no decisions"),
            ([*schedule("file=absent.h5"), *teacher], 3, "absent.h5"),
        ]:
            with self.subTest(arguments=arguments):
                message = self.fails(code, *self.command(*arguments))
                for text in said:
                    self.assertIn(text, message)
        message = self.fails(3, *self.command(*schedule("file=open.h5"), *teacher, new=NEW + 1))
        self.assertIn("open.h5", message)
        self.assertIn("the run has more", message)

    def test_rows_per_token_are_what_rows_of_answers_summarise(self):
        policies = ["--policy", "h2o", "--policy", "snapkv+pyramid", "--policy", "optimal"]
        answers = self.evaluate(*policies)
        tokens = self.evaluate(*policies, "--per", "token")
        self.assertEqual(list(tokens[0]), columns_of("evaluate --per token"))
        said = list(tokens[0])[list(tokens[0]).index("positions") + 1:-1]
        keys = [key for key in tokens[0] if key not in said]
        self.assertEqual([key for key in answers[0] if key in keys], keys)
        for answer in answers:
            mine = [row for row in tokens if all(row[key] == answer[key] for key in keys)]
            if answer["skipped"]:
                self.assertEqual([[row[key] for key in said] for row in mine], [[""] * len(said)])
                continue
            self.assertEqual([row["index"] for row in mine], [str(k) for k in range(int(answer["tokens"]))])
            if answer["mode"] == "greedy":
                self.assertEqual("".join(row["text"] for row in mine), answer["generated"])
                self.assertTrue(all(row["kl"] == row["log_p"] == "" for row in mine))
                continue
            values = lambda key: [float(row[key]) for row in mine]
            self.assertAlmostEqual(statistics.fmean(values("kl")), float(answer["kl"]), delta=1e-12)
            self.assertEqual(max(values("kl")), float(answer["kl_max"]))
            self.assertAlmostEqual(sum(values("log_p")), float(answer["log_p"]), delta=1e-12)
            self.assertEqual(statistics.fmean(values("rank")), float(answer["rank"]))
            self.assertEqual(statistics.fmean(values("same_top")), float(answer["same_top"]))
        self.assertEqual(len(answers), 6)

    def test_what_a_file_of_decisions_cannot_hold_is_refused(self):
        policy = ["--policy", "h2o"]
        whole = ["evaluate", "--model", MODEL, "--workload", "w.jsonl", *policy, "--budget", "15%", "--quiet"]
        self.assertIn("one prompt at one cut", self.fails(2, *whole, "--decisions", "d.h5"))
        self.assertIn("one prompt at one cut", self.fails(2, *self.command(*policy, "--cut", "prompt,question", "--decisions", "d.h5")))
        self.assertIn("cannot share a file", self.fails(2, *self.command(*policy, "-o", "d.bin", "--decisions", "d.bin")))
        self.assertIn("--overwrite", self.fails(2, *self.command(*policy, "--decisions", "item.h5")))
        self.assertIn("token", self.fails(2, *self.command(*policy, "--per", "tokn")))


if __name__ == "__main__":
    kvsim_command.main()
