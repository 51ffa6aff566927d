#!/usr/bin/env python3
"""Tests kvsim evaluate: the shipped sample model answers prompts through compressed caches."""
import csv
import io
import json
import re
import shutil

import h5py
import kvsim_command
from kvsim_command import SOURCE, CommandTest, columns_of, keep_first_layers

MODEL = SOURCE / "traces" / "sample" / "model"
PROMPT = SOURCE / "traces" / "sample" / "prompts" / "needle-0500-one.txt"


class Evaluate(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        made = cls.kvsim("workload", "needle-multi-key", "--context", 300, "--count", 2, "--tokenizer", MODEL, "-o", "keys.jsonl")
        assert made.returncode == 0, made.stderr

    def evaluate(self, *more):
        return ["evaluate", "--model", MODEL, "--quiet", *more]

    def rows(self, *more, workload="keys.jsonl"):
        text = self.ok(*self.evaluate("--workload", workload, "--format", "csv", *more))
        return list(csv.DictReader(io.StringIO(text)))

    def test_columns_are_those_that_are_promised(self):
        rows = self.rows("--policy", "full", "--budget", "50%", "--mode", "teacher")
        self.assertEqual(list(rows[0]), columns_of("evaluate"))

    def test_the_full_cache_answers_right_and_differs_in_nothing(self):
        rows = self.rows("--policy", "full", "--policy", "h2o", "--budget", "100%", "--cut", "prompt,question")
        self.assertEqual(len(rows), 2 * 2 * 2 * 2)  # items, cuts, policies, modes
        for row in rows:
            if row["policy"] == "h2o" and row["cut"] == "question":
                continue  # its budget is of the shorter prompt, so the answer evicts
            if row["mode"] == "teacher":
                self.assertEqual((row["kl"], row["same_top"], row["delta_log_p"]), ("0", "1", "0"))
                self.assertEqual(row["right"], "")
            elif row["policy"] == "full":
                self.assertEqual((row["right"], row["right_full"], row["contains"]), ("1", "1", "1"))
                self.assertEqual(row["divergence_margin"], "")

    def test_the_full_cache_needs_no_budget(self):
        asked = "--policy", "full", "--policy", "full+q8_0"
        self.assertEqual(self.rows(*asked), self.rows(*asked, "--budget", "100%"))

    def test_a_representation_that_loses_nothing_changes_nothing_and_codes_do(self):
        exact = ["mikv(hi=16,share=1)", "think(ratio=0)", "zipcache(hi=16,lo=16)", "gear(bits=16)", "scalar(bits=16)"]
        coded = ["mikv", "think", "zipcache", "gear(group=32,buffer=32)", "scalar"]
        policies = [word for text in exact + coded for word in ("--policy", f"full+{text}")]
        rows = self.rows(*policies, "--budget", "100%", "--mode", "teacher")
        self.assertEqual(len(rows), 2 * 10)  # items, policies
        for number, row in enumerate(rows):
            if number % 10 < len(exact):
                self.assertLess(float(row["kl"]), 1e-12, row["params"])
                self.assertEqual(row["same_top"], "1", row["params"])
            else:
                self.assertGreater(float(row["kl"]), 1e-9, row["params"])

    def test_bytes_do_not_depend_on_threads_or_on_other_cells(self):
        policies = ["--policy", "snapkv", "--policy", "h2o", "--policy", "keydiff", "--policy", "random"]
        common = ["--budget", "20%", "--cut", "question"]
        one = self.rows(*policies, *common, "--threads", 1)
        self.assertEqual(one, self.rows(*policies, *common, "--threads", 8))
        for name in "snapkv", "h2o", "keydiff", "random":
            alone = self.rows("--policy", name, *common)
            self.assertEqual([row for row in one if row["policy"] == name], alone)

    def test_rows_join_with_those_of_a_replay(self):
        rows = self.rows("--policy", "h2o", "--policy", "snapkv+pyramid", "--budget", "25%", "--cut", "question", "--mode", "teacher")
        item = rows[0]["item"]
        self.ok("capture", "--model", MODEL, "--workload", "keys.jsonl", "--item", item, "--max-new-tokens", 2, "--quiet",
                "--overwrite", "-o", "item.h5")
        replayed = list(csv.DictReader(io.StringIO(self.ok(
            "replay", "item.h5", "--policy", "h2o", "--policy", "snapkv+pyramid", "--budget", "25%", "--cut", "question",
            "--format", "csv", "--quiet"))))
        mine = [row for row in rows if row["item"] == item]
        for key in "policy", "params", "budget", "budget_tokens", "cut", "seed", "workload", "kept_tokens":
            self.assertEqual([row[key] for row in mine], [row[key] for row in replayed], key)

    def test_the_document_says_what_its_command_prints(self):
        self.ok("workload", "needle-multi-key", "--context", 600, "--count", 8, "--tokenizer", MODEL, "-o", "eight.jsonl", "--overwrite")
        text = self.ok(*self.evaluate("--workload", "eight.jsonl", "--policy", "keydiff", "--policy", "h2o", "--policy", "snapkv",
                                      "--budget", "10%,75%", "--cut", "question", "--mode", "greedy", "--format", "csv"))
        right = {(row["policy"], row["budget"]): 0 for row in csv.DictReader(io.StringIO(text))}
        for row in csv.DictReader(io.StringIO(text)):
            right[row["policy"], row["budget"]] += int(row["right"])
        document = " ".join((SOURCE / "analysis" / "README.md").read_text().split())
        said = re.search(r"`h2o` answers (\d+) of the 8 questions with three quarters of the cache, `keydiff` all (\d+) with a tenth", document)
        self.assertEqual((right["h2o", "75%"], right["keydiff", "10%"]), tuple(map(int, said.groups())))

    def test_a_prompt_of_ones_own(self):
        text = self.ok(*self.evaluate("--prompt", PROMPT, "--answer", " nothing of the kind", "--policy", "full", "--budget", "50%",
                                      "--max-new-tokens", 3, "--mode", "greedy", "--format", "csv"))
        (row,) = csv.DictReader(io.StringIO(text))
        self.assertEqual((row["right"], row["right_full"], row["tokens"], row["workload"]), ("0", "0", "3", ""))

    def test_as_many_tokens_are_generated_as_the_longest_answer_takes(self):
        # What the model says after the prompt is the expected answer: twelve tokens, four more than were generated before.
        self.ok("capture", "--model", MODEL, "--prompt", PROMPT, "--max-new-tokens", 12, "--ignore-eos", "--quiet", "--overwrite", "-o", "long.h5")
        with h5py.File(self.folder / "long.h5") as file:
            first = int((file["tokens/segment"][()] == 0).sum())
            answer = bytes(file["text/bytes"][()])[file["text/offset"][first]:].decode()
        item = {"id": "long", "prompt": PROMPT.read_text(), "spans": [], "tokens": 0, "answers": [answer], "expect": "first"}
        (self.folder / "long.jsonl").write_text(json.dumps(item) + "\n")
        ask = self.evaluate("--workload", "long.jsonl", "--policy", "full", "--budget", "100%", "--mode", "greedy", "--format", "csv")
        short = "--max-new-tokens 8 is too short for the expected answers of 1 of 1 prompt, which no cache can answer right; the longest takes 12 tokens"
        for more, tokens, right, said in ([], "12", "1", False), (["--max-new-tokens", 8], "8", "0", True), (["--max-new-tokens", 12], "12", "1", False):
            done = self.kvsim(*ask, *more)
            (row,) = csv.DictReader(io.StringIO(done.stdout))
            self.assertEqual((row["tokens"], row["right"], short in done.stderr), (tokens, right, said), done.stderr)
        # One of several answers is enough, all of several are needed, and what may stand within a sentence has room.
        for answers, expect, tokens, said in ([answer, answer[:4]], "any", "12", False), ([answer, answer[:4]], "holds-any", "44", False), \
                ([answer] * 2, "holds-all", "56", True):
            (self.folder / "long.jsonl").write_text(json.dumps(item | {"answers": answers, "expect": expect}) + "\n")
            (row,) = csv.DictReader(io.StringIO(self.ok(*ask[:-2], "--format", "csv")))
            self.assertLessEqual(int(row["tokens"]), int(tokens))
            shown = json.loads(self.ok(*ask[:-2], "--format", "json"))
            self.assertEqual(str(shown["inputs"]["max_new_tokens"]), tokens)
            self.assertEqual("too short" in self.kvsim(*ask, "--max-new-tokens", 8).stderr, said)

    def test_the_table_has_a_row_per_cut_budget_and_policy(self):
        text = self.ok(*self.evaluate("--workload", "keys.jsonl", "--policy", "keydiff", "--policy", "h2o", "--budget", "10%,50%",
                                      "--cut", "prompt,question"))
        self.assertEqual(len(re.findall(r"^(prompt|question) +\d+% +(keydiff|h2o) ", text, re.MULTILINE)), 8)
        self.assertIn("right full 1\n", text)
        self.assertIn("workload needle-multi-key\n", text)

    def test_the_table_is_best_first_with_intervals(self):
        text = self.ok(*self.evaluate("--workload", "keys.jsonl", "--policy", "streaming_llm", "--policy", "keydiff", "--policy", "full",
                                      "--budget", "10%", "--cut", "question"))
        self.assertEqual(re.findall(r"^(full|keydiff|streaming_llm) ", text, re.MULTILINE), ["full", "keydiff", "streaming_llm"])
        self.assertRegex(text, r"(?m)^full +1 +1 +1 ")  # right and its interval
        self.assertNotIn("not ranked", text)

    def test_prompts_are_drawn_until_the_full_cache_has_answered_enough(self):
        # The sample model answers some lists of words, and every key.
        made = self.ok("workload", "copy", "--context", 300, "--count", 5, "--tokenizer", MODEL)
        made += self.ok("workload", "needle", "--context", 300, "--count", 3, "--tokenizer", MODEL)
        (self.folder / "mixed.jsonl").write_text(made)
        ask = ["--policy", "streaming_llm", "--budget", "20%", "--cut", "prompt,question", "--mode", "greedy"]
        every = self.rows(*ask, workload="mixed.jsonl")
        some = self.rows(*ask, "--answered", 2, workload="mixed.jsonl")
        expected = []
        for kind in "copy", "needle":
            answered = {"prompt": 0, "question": 0}
            for item in dict.fromkeys(row["item"] for row in every if row["workload"] == kind):
                if min(answered.values()) >= 2:
                    break
                of_item = [row for row in every if row["item"] == item]
                expected += of_item
                for row in of_item:
                    answered[row["cut"]] += int(row["right_full"])
        self.assertEqual(some, expected)
        self.assertLess(len(some), len(every))
        for row in every:
            self.assertEqual(row["kept"], row["right"] if row["right_full"] == "1" else "")
        told = self.kvsim(*self.evaluate("--workload", "mixed.jsonl", *ask, "--answered", 4))
        self.assertIn("the full cache answers 3 of all 3 questions of needle at cut question, and --answered asks for 4", told.stderr)
        refused = self.kvsim(*self.evaluate("--workload", "mixed.jsonl", *ask[:4], "--mode", "teacher", "--answered", 4))
        self.assertEqual(refused.returncode, 2)
        self.assertIn("--answered", refused.stderr)

    def test_a_workload_that_the_full_cache_does_not_answer_is_not_ranked(self):
        self.ok("workload", "common-words", "--context", 300, "--count", 2, "--tokenizer", MODEL, "-o", "words.jsonl", "--overwrite")
        ask = self.evaluate("--workload", "words.jsonl", "--policy", "streaming_llm", "--policy", "full", "--budget", "10%")
        order = r"(?m)^(full|streaming_llm) "
        text = self.ok(*ask)
        said = "workload common-words, cut prompt: the full cache answers 0 of 2 (0 %): policies are not ranked"
        self.assertIn(said, text)
        self.assertIn("Chance level not known", text)
        self.assertEqual(re.findall(order, text), ["streaming_llm", "full"])
        ranked = self.ok(*ask, "--least-full", 0)
        self.assertNotIn("not ranked", ranked)
        self.assertEqual(re.findall(order, ranked), ["full", "streaming_llm"])  # none is right, so the KL orders
        as_csv = self.kvsim(*ask, "--format", "csv")
        self.assertIn(said, as_csv.stderr)
        self.assertNotIn("not ranked", as_csv.stdout)

    def test_bytes_and_evictions_follow_from_what_is_held(self):
        config = json.loads((MODEL / "config.json").read_text())
        lanes = config["num_hidden_layers"] * config["num_key_value_heads"]
        dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        for elem, size in ("f32", 4), ("bf16", 2):
            rows = self.rows("--policy", "full", "--policy", "h2o", "--budget", "20%", "--cut", "question,prompt", "--elem", elem)
            full = {(row["item"], row["cut"], row["mode"]): float(row["held_tokens"]) for row in rows if row["policy"] == "full"}
            for row in rows:
                held = float(row["held_tokens"])
                self.assertEqual(int(row["held_bytes"]), round(held * lanes) * 2 * dim * size)
                self.assertEqual(int(row["held_bytes_peak"]), int(row["held_bytes"]))  # neither ever holds less than before
                if row["policy"] == "full":
                    self.assertEqual(row["evicted_after_cut"], "0")
                elif row["mode"] == "teacher":  # as many tokens were fed as to the full cache
                    fed = full[row["item"], row["cut"], "teacher"] - self.kept_in_full(rows, row)
                    self.assertEqual(float(row["evicted_after_cut"]), float(row["kept_tokens"]) + fed - held)

    @staticmethod
    def kept_in_full(rows, row):
        """Positions of the prompt up to the cut."""
        (kept,) = {float(other["kept_tokens"]) for other in rows
                   if (other["policy"], other["item"], other["cut"]) == ("full", row["item"], row["cut"])}
        return kept

    def test_what_a_running_model_cannot_serve_is_skipped_by_name(self):
        done = self.kvsim(*self.evaluate("--workload", "keys.jsonl", "--policy", "h2o", "--policy", "optimal", "--policy",
                                         "h2o(feedback=raw)", "--policy", "h2o.stream+cake_layers", "--policy", "expected_attention",
                                         "--budget", "50%", "--format", "csv", "--prefill", "chunked:100"))
        self.assertEqual(done.returncode, 0, done.stderr)
        for reason in "optimal: knows the future", "feedback=raw", "cake_layers measures the whole prompt", "undoes the rotation":
            self.assertIn(reason, done.stderr)

    def test_questions_about_one_context_are_runs_of_their_own(self):
        self.ok("workload", "turns", "--context", 300, "--count", 4, "--tokenizer", MODEL, "-o", "turns.jsonl", "--overwrite")
        ask = ["--policy", "h2o", "--policy", "h2o.stream", "--policy", "snapkv+adakv", "--budget", "25%", "--cut", "question",
               "--max-new-tokens", 3, "--format", "csv"]
        together = self.ok(*self.evaluate("--workload", "turns.jsonl", *ask)).splitlines()
        alone = []
        for turn in range(4):
            alone += self.ok(*self.evaluate("--workload", "turns.jsonl", "--item", f"turns-300-s1-{turn}", *ask)).splitlines()[1:]
        self.assertEqual(together[1:], alone)
        self.assertEqual([row["turn"] for row in csv.DictReader(together)], [str(turn) for turn in range(4) for _ in range(6)])

    def test_a_conversation(self):
        self.ok("workload", "conversation", "--context", 300, "--count", 4, "--tokenizer", MODEL, "-o", "talk.jsonl", "--overwrite")
        ask = ["--policy", "keydiff", "--policy", "full", "--cut", "question", "--max-new-tokens", 1]
        golden = self.rows(*ask, "--budget", "25%", "--turns", "golden", workload="talk.jsonl")
        # A question after golden answers is the item of the workload, whose prompt holds them.
        by_itself = self.rows(*ask, "--budget", "25%", workload="talk.jsonl")
        for a, b in zip(golden, by_itself, strict=True):
            self.assertEqual((a.pop("turns"), b.pop("turns")), ("golden", "requests"))
            self.assertEqual(a, b)
        # One token is what is right here, so that right answers are golden ones.
        own = self.rows(*ask, "--budget", "100%", "--turns", "own", "--mode", "greedy", workload="talk.jsonl")
        self.assertEqual([row["right"] for row in own], ["1"] * 8)
        same = self.rows(*ask, "--budget", "100%", "--turns", "golden", "--mode", "greedy", workload="talk.jsonl")
        self.assertEqual([row["generated"] for row in own], [row["generated"] for row in same])
        self.assertEqual([(row["turn"], row["policy"]) for row in own], [(str(t), p) for t in range(4) for p in ("keydiff", "full")])

    def test_the_protocol_stands_in_every_row(self):
        rows = self.rows("--policy", "streaming_llm", "--policy", "h2o.stream", "--policy", "h2o+cake_layers",
                         "--budget", "50%", "--cut", "question", "--mode", "teacher", "--prefill", "chunked:64", "--profile", "dense",
                         "--positions", "cache-step")
        self.assertEqual([(row["prefill"], row["profile"], row["positions"]) for row in rows[:3]],
                         [("chunked:64", "", "cache-step"), ("stream", "", "cache-step"), ("chunked:64", "dense", "cache-step")])

    def test_losses_are_those_of_a_replay_of_the_answer(self):
        ask = ["--policy", "h2o", "--policy", "snapkv+pyramid", "--policy", "h2o.stream", "--budget", "25%", "--cut", "prompt,question"]
        rows = self.rows(*ask, "--losses", "--mode", "greedy")
        items = [json.loads(line) for line in (self.folder / "keys.jsonl").read_text().splitlines()]
        for item in items:
            # The query of the answer's last token reads what comes after it.
            self.ok("capture", "--model", MODEL, "--workload", "keys.jsonl", "--item", item["id"], "--max-new-tokens",
                    item["answer_tokens"] - 1, "--quiet", "--overwrite", "-o", "item.h5")
            replayed = list(csv.DictReader(io.StringIO(self.ok("replay", "item.h5", *ask, "--format", "csv", "--quiet"))))
            mine = {(row["cut"], row["policy"]): row for row in rows if row["item"] == item["id"]}
            self.assertEqual(len(mine), len(replayed))
            for row in replayed:
                for key in "evidence_loss", "peak_loss", "attention_loss", "output_error", "r":
                    self.assertEqual(mine[row["cut"], row["policy"]][key], row[key], (item["id"], row["policy"], key))
        for more, said in ((["--turns", "golden"], "--turns"), (["--prefill", "chunked:64"], "--prefill"), (["--per", "token"], "--per")):
            done = self.kvsim(*self.evaluate("--workload", "keys.jsonl", *ask, "--losses", *more))
            self.assertEqual(done.returncode, 2)
            self.assertIn(said, done.stderr)

    def test_drift_by_layer(self):
        ask = ["--policy", "h2o", "--policy", "full", "--budget", "25%", "--cut", "question", "--mode", "teacher"]
        by_layer = list(csv.DictReader(io.StringIO(self.ok(*self.evaluate("--workload", "keys.jsonl", *ask, "--per", "layer", "--format", "csv")))))
        self.assertEqual(list(by_layer[0]), columns_of("evaluate --per layer"))
        for answer in self.rows(*ask):
            layers = [row for row in by_layer if (row["item"], row["policy"]) == (answer["item"], answer["policy"])]
            self.assertEqual([row["layer"] for row in layers], ["0", "1", "2", "3"])
            self.assertEqual(layers[0]["query_l2"], "0")  # the first layer's queries are those of the tokens
            for key in "residual_l2", "residual_cosine", "query_l2":
                self.assertEqual(layers[-1][key], answer[key])
            drifts = [float(row["residual_l2"]) > 0 for row in layers]
            self.assertEqual(drifts, [answer["policy"] == "h2o"] * 4)

    def test_figures_of_its_rows(self):
        ask = ["--policy", "h2o", "--policy", "snapkv", "--policy", "full", "--budget", "10%,25%", "--cut", "prompt,question"]
        self.ok(*self.evaluate("--workload", "keys.jsonl", *ask, "--mode", "teacher", "--per", "layer", "--format", "csv", "-o", "layers.csv"))
        with open(self.folder / "layers.csv", newline="") as file:
            layers = list(csv.DictReader(file))
        for metric in "residual_l2", "residual_cosine", "query_l2":
            shown = self.figure("drift", "layers.csv", "--metric", metric, "--budget", "25%")
            self.assertEqual(len(shown), 2 * 2 * 4)  # cuts, policies, layers; the full cache does not drift
            for point in shown:
                of = [float(row[metric]) for row in layers if row["budget"] == "25%"
                      and all(row[key] == point[key] for key in ("cut", "policy", "layer"))]
                self.assertEqual(len(of), 2)
                self.assertAlmostEqual(float(point[metric]), sum(of) / 2, places=12)
        self.ok("export", "layers.csv", "--format", "h5", "-o", "layers.h5")
        self.assertEqual(self.figure("drift", "layers.h5"), self.figure("drift", "layers.csv"))
        self.assertEqual({row["cut"] for row in self.figure("drift", "layers.csv")}, {"prompt", "question"})
        self.assertNotIn("cut", self.figure("drift", "layers.csv", "--cut", "question")[0])
        self.ok(*self.evaluate("--workload", "keys.jsonl", *ask, "--force", "full", "--max-new-tokens", 5, "--per", "token", "--format", "csv",
                               "-o", "tokens.csv"))
        with open(self.folder / "tokens.csv", newline="") as file:
            tokens = [row for row in csv.DictReader(file) if row["mode"] == "teacher"]
        for metric in "kl", "rank", "same_top":
            shown = self.figure("along", "tokens.csv", "--metric", metric, "--budget", "25%")
            self.assertEqual({point["policy"] for point in shown}, {"h2o", "snapkv"})
            self.assertGreater(len(shown), 2 * 2)  # cuts, policies, tokens
            for point in shown:
                of = [float(row[metric]) for row in tokens if row["budget"] == "25%"
                      and (row["cut"], row["policy"], row["index"]) == (point["cut"], point["policy"], point["token"])]
                self.assertAlmostEqual(float(point[metric]), sum(of) / len(of), places=12)
        self.assertIn("evaluate --per token", self.fails(2, "plot", "along", "layers.csv"))
        self.rows(*ask, "--mode", "greedy", "-o", "answers.csv")
        with open(self.folder / "answers.csv", newline="") as file:
            answers = list(csv.DictReader(file))
        for point in self.figure("accuracy", "answers.csv"):
            of = [row["right_full" if point["policy"] == "full" else "right"] for row in answers
                  if row["cut"] == point["cut"] and row["policy"] == point["policy"] and float(row["budget"][:-1]) / 100 == float(point["budget"])]
            self.assertEqual(len(of), 2)
            self.assertAlmostEqual(float(point["right"]), of.count("1") / 2, places=12)
        self.assertEqual({point["policy"] for point in self.figure("accuracy", "answers.csv")}, {"h2o", "snapkv", "full"})
        self.ok(*self.evaluate("--workload", "keys.jsonl", *ask, "--positions", "cache-step", "--mode", "greedy", "--format", "csv", "-o", "other.csv"))
        self.assertIn("other.csv: with text, cache-step in column positions", self.fails(2, "plot", "accuracy", "answers.csv", "other.csv"))
        self.assertIn("Did you mean residual_l2?", self.fails(2, "plot", "drift", "layers.csv", "--metric", "residual_l"))
        self.assertIn("evaluate --per layer", self.fails(2, "plot", "drift", "answers.csv"))
        self.assertIn("Did you mean question?", self.fails(2, "plot", "drift", "layers.csv", "--cut", "questoin"))

    def test_drafts_are_verified(self):
        ask = ["--policy", "full", "--policy", "streaming_llm", "--policy", "full+quest(page=16,read=32)", "--budget", "10%",
               "--max-new-tokens", 16]
        rows = self.rows(*ask, "--mode", "draft", "--gamma", 3)
        self.assertEqual(list(rows[0]), columns_of("evaluate --mode draft"))
        greedy = {row["item"]: row["generated"] for row in self.rows("--policy", "full", "--budget", "10%", "--max-new-tokens", 16, "--mode", "greedy")}
        tokens = list(csv.DictReader(io.StringIO(self.ok(*self.evaluate("--workload", "keys.jsonl", *ask, "--mode", "draft", "--gamma", 3,
                                                                        "--per", "token", "--format", "csv")))))
        self.assertEqual(list(tokens[0]), columns_of("evaluate --mode draft --per token"))
        for row in rows:
            self.assertEqual(row["generated"], greedy[row["item"]])
            mine = [token for token in tokens if (token["item"], token["policy"]) == (row["item"], row["policy"])]
            self.assertAlmostEqual(float(row["overlap"]), sum(float(token["overlap"]) for token in mine) / len(mine))
            self.assertAlmostEqual(float(row["accepted"]) * int(row["rounds"]), sum(int(token["accepted"]) for token in mine))
            if row["policy"] == "full":
                self.assertEqual((row["accepted"], row["tokens_per_round"], row["draft_share"]), ("3", "4", "1"))
                self.assertEqual(row["accepted_by_place"], "1 1 1")
            else:
                self.assertLess(float(row["draft_share"]), 1)
        for row in self.rows(*ask, "--mode", "draft", "--gamma", 0):
            self.assertEqual((row["tokens_per_round"], row["overlap"], row["generated"]), ("1", "", greedy[row["item"]]))
        (skipped,) = {row["skipped"] for row in self.rows("--policy", "snapkv", "--budget", 20, "--mode", "draft")}
        self.assertIn("keeps 32 tokens", skipped)
        sampled = self.rows(*ask, "--mode", "draft", "--temperature", 1)
        self.assertEqual(sampled, self.rows(*ask, "--mode", "draft", "--temperature", 1, "--threads", 1))
        text = self.ok(*self.evaluate("--workload", "keys.jsonl", *ask, "--mode", "draft"))
        self.assertRegex(text, r"(?m)^full +5 ")

    def first_layers(self, n):
        """The sample model's first layers, as a checkpoint."""
        name = f"first-{n}-layers"
        shutil.copytree(MODEL, self.folder / name)
        keep_first_layers(self.folder / name, n)
        return name

    def test_another_checkpoint_drafts(self):
        ask = ["--policy", "full", "--policy", "streaming_llm", "--policy", "full+scalar(bits=4)", "--budget", "25%", "--max-new-tokens", 16,
               "--mode", "draft", "--gamma", 3]
        alone = self.rows(*ask)
        same = self.rows(*ask, "--draft", MODEL)
        first = self.first_layers(3)
        other = self.rows(*ask, "--draft", first)
        for mine, its, fewer in zip(alone, same, other, strict=True):
            self.assertEqual((mine["drafter"], its["drafter"], fewer["drafter"]), ("", "model", "first-3-layers"))
            self.assertEqual({row["generated"] for row in (mine, its, fewer)}, {mine["generated"]})
            if its["rounds"] == mine["rounds"]:
                self.assertEqual(its["full_bytes"], mine["full_bytes"])
            if mine["params"] == "full":
                self.assertEqual((its["accepted"], its["accepted_by_place"], its["overlap"]), ("3", "1 1 1", "1"))
                self.assertEqual(its["draft_share"], "1")
                self.assertAlmostEqual(float(fewer["draft_share"]), 0.75)  # of the layers
                self.assertLess(float(fewer["overlap"]), 0.9)
        sampled = self.rows(*ask, "--draft", first, "--temperature", 1)
        self.assertEqual(sampled, self.rows(*ask, "--draft", first, "--temperature", 1, "--threads", 1))
        self.assertIn("Add --mode draft", self.fails(2, *self.evaluate("--workload", "keys.jsonl", "--policy", "full", "--draft", MODEL)))

        shutil.copytree(MODEL, self.folder / "other-words")
        tokenizer = json.loads((MODEL / "tokenizer.json").read_text())
        tokenizer["model"]["vocab"]["\u0120\u0120g"] = tokenizer["model"]["vocab"].pop("\u0120g")
        tokenizer["model"]["merges"] = []
        (self.folder / "other-words" / "tokenizer.json").write_text(json.dumps(tokenizer))
        refused = self.fails(3, *self.evaluate("--workload", "keys.jsonl", *ask, "--draft", "other-words"))
        self.assertIn("its token 300 is \"  g\", that of", refused)
        self.assertIn("same vocabulary", refused)

    def test_a_small_checkpoint_drafts_for_a_cache_that_drafts(self):
        small = self.first_layers(2)
        ask = ["--policy", "full", "--policy", "full+triforce(read=64)", "--budget", "100%", "--max-new-tokens", 16, "--mode", "draft", "--gamma", 6]
        alone = self.rows(*ask)
        for temperature in 0, 0.6:
            rows = self.rows(*ask, "--draft", small, "--draft-cache", "streaming_llm(sinks=4)@64", "--temperature", temperature)
            for mine, row in zip(alone, rows, strict=True):
                self.assertEqual((row["drafter"], row["helped"]), ("first-2-layers", "streaming_llm(sinks=4,window=0,decode=true)+uniform() at 64"))
                self.assertLess(float(row["helper_accepted_share"]), 1)
                # A pass yields one token or two, until there are six.
                self.assertTrue(3 <= float(row["draft_passes"]) <= 6, row["draft_passes"])
                self.assertEqual((mine["helped"], mine["draft_passes"], mine["helper_overlap"]), ("", "6", ""))
                if temperature == 0:
                    self.assertEqual(row["generated"], mine["generated"])
                if row["policy"] == "full" and row["params"] == "full":
                    self.assertEqual(row["overlap"], "1")
        draft = self.evaluate("--workload", "keys.jsonl", "--policy", "full", "--mode", "draft")
        self.assertIn("Add --draft DIR", self.fails(2, *draft, "--draft-cache", "streaming_llm@64"))
        self.assertIn("streaming_llm(sinks=16)@256", self.fails(2, *draft, "--draft", small, "--draft-cache", "streaming_llm"))
        self.assertIn("one cache", self.fails(2, *draft, "--draft", small, "--draft-cache", "streaming_llm@64,32"))

    def test_a_draft_reads_retrieved_documents(self):
        self.ok("workload", "documents", "--context", 300, "--count", 3, "--tokenizer", MODEL, "-o", "retrieved.jsonl")
        ask = ["--policy", "full", "--max-new-tokens", 12, "--mode", "draft", "--gamma", 3]
        alone = self.rows(*ask, workload="retrieved.jsonl")
        rows = self.rows(*ask, "--draft", MODEL, "--draft-documents", 1, workload="retrieved.jsonl")
        for mine, row in zip(alone, rows, strict=True):
            self.assertEqual((row["generated"], row["draft_documents"], row["lead"]), (mine["generated"], "1", "0"))
            self.assertLess(float(row["draft_share"]), 0.8)
        whole = self.rows(*ask, "--draft", MODEL, "--draft-documents", 99, workload="retrieved.jsonl")
        self.assertEqual([row["accepted"] for row in whole], ["3"] * len(whole))
        sampled = [*ask, "--draft", MODEL, "--draft-documents", 1, "--temperature", 1]
        led = {eta: self.rows(*sampled, "--lead", eta, workload="retrieved.jsonl") for eta in (0, 10)}
        self.assertEqual(led[0], self.rows(*sampled, workload="retrieved.jsonl"))
        self.assertNotEqual([row["overlap"] for row in led[0]], [row["overlap"] for row in led[10]])
        self.assertEqual({row["lead"] for row in led[10]}, {"10"})
        draft = self.evaluate("--workload", "retrieved.jsonl", *ask)
        self.assertIn("Add --temperature 1", self.fails(2, *draft, "--lead", 10))
        self.assertIn("Add --draft DIR", self.fails(2, *draft, "--draft-documents", 1))
        self.assertIn("no documents", self.fails(2, *self.evaluate("--workload", "keys.jsonl", *ask, "--draft", MODEL, "--draft-documents", 1)))

    def test_prompts_are_put_together_of_documents(self):
        self.ok("workload", "documents", "--context", 300, "--count", 3, "--tokenizer", MODEL, "-o", "documents.jsonl")
        ways = ["none", "epic:2", "epic:8", "cacheblend:20%", "lmcache:20%", "cacheblend:100%", "all"]
        ask = ["--policy", "full", "--policy", "keydiff", "--budget", "50%", "--cut", "question", "--prefill", ",".join(ways)]
        rows = self.rows(*ask, workload="documents.jsonl")
        self.assertEqual(list(rows[0]), [*columns_of("evaluate"), "computed", "kl_first"])
        self.assertEqual(len(rows), 3 * 7 * 2 * 2)  # items, ways, policies, modes
        self.assertEqual(rows, self.rows(*ask, "--threads", 1, workload="documents.jsonl"))
        # Prompts share documents, and ways the prompt's references; a prompt and a way alone say the same.
        for item in {row["item"] for row in rows}:
            alone = [row for way in ways[:4] for row in self.rows(*ask[:-1], way, "--item", item, workload="documents.jsonl")]
            self.assertEqual(alone, [row for row in rows if row["item"] == item and row["prefill"] in ways[:4]])
        exact = self.rows(*ask[:-2], workload="documents.jsonl")
        lost = []
        for item in {row["item"] for row in rows}:
            mine = [row for row in rows if (row["item"], row["policy"]) == (item, "full")]
            taught = {row["prefill"]: row for row in mine if row["mode"] == "teacher"}
            self.assertEqual(list(taught), ways)
            computed = {way: float(row["computed"]) for way, row in taught.items()}
            self.assertEqual((computed["all"], computed["cacheblend:100%"]), (1, 1))
            self.assertEqual(computed["cacheblend:20%"], computed["lmcache:20%"])
            self.assertLess(computed["none"], computed["epic:2"])
            self.assertLess(computed["epic:2"], computed["epic:8"])
            for way in "all", "cacheblend:100%":
                self.assertLess(float(taught[way]["kl_first"]), 1e-6)
            lost.append(float(taught["none"]["kl_first"]))
            # The full cache beside them is that of the whole prompt.
            whole = {row["mode"]: row for row in exact if (row["item"], row["policy"]) == (item, "full")}
            for row in mine:
                self.assertEqual((row["right_full"], row["ppl_full"]), (whole[row["mode"]]["right_full"], whole[row["mode"]]["ppl_full"]))
        self.assertGreater(max(lost), 1e-6)
        self.assertRegex(self.ok(*self.evaluate("--workload", "documents.jsonl", *ask)), r"(?m)^(full|keydiff) +cacheblend:20% ")
        seams = self.rows(*ask[:2], *ask[4:-1], "none,epic:8,all", "--per", "seam", "--elem", "f32", workload="documents.jsonl")
        self.assertEqual(list(seams[0]), columns_of("evaluate --per seam"))
        for row in seams:
            errors = [float(row[key]) for key in ("key_l2", "value_l2", "attention_moved", "output_l2")]
            if row["prefill"] == "all":
                self.assertLess(max(errors), 1e-4)
            elif row["layer"] == "0":  # where keys and values depend on their token alone
                self.assertLess(max(errors[:2]), 1e-4)
        far = {way: max(float(row["value_l2"]) for row in seams if (row["prefill"], row["layer"], row["distance"]) == (way, "1", "4"))
               for way in ("none", "epic:8", "all")}
        self.assertGreater(far["none"], 1e-3)
        self.assertLess(far["epic:8"], 1e-4)  # its first eight tokens are those of the whole prompt in layer 1
        others = self.rows(*ask[:2], *ask[4:-1], "none,cacheblend:20%,cacheblend:20%:bottom_right,cachecraft:1,pie:2", workload="documents.jsonl")
        computed = {row["prefill"]: float(row["computed"]) for row in others}
        self.assertEqual(computed["cacheblend:20%"], computed["cacheblend:20%:bottom_right"])
        self.assertLess(computed["none"], computed["pie:2"])
        self.assertLess(computed["none"], computed["cachecraft:1"])
        kl = {row["prefill"]: row["kl_first"] for row in others if row["mode"] == "teacher"}
        self.assertEqual(len(set(kl.values())), 5)
        # A text of another document was deleted from the prompt; nothing was; all of it is new.
        item, other = [json.loads(line) for line in (self.folder / "documents.jsonl").read_text().splitlines()][:2]
        prompt, cut = item["prompt"].encode(), item["documents"][1][1]
        deleted = other["prompt"].encode()[slice(*other["documents"][0])]
        befores = {"deleted": prompt[:cut] + deleted + prompt[cut:], "same": prompt, "new": b"~"}
        (self.folder / "edited.jsonl").write_text("".join(json.dumps({**item, "id": name, "before": text.decode()}) + "\n"
                                                       for name, text in befores.items()))
        edited = self.rows(*ask[:2], *ask[4:-1], "pie,all", workload="edited.jsonl")
        edited = {(row["item"], row["prefill"]): row for row in edited if row["mode"] == "teacher"}
        for name, tokens in ("same", 1), ("new", item["tokens"] - 1):  # all texts begin with the same token
            self.assertAlmostEqual(float(edited[name, "pie"]["computed"]), tokens / item["tokens"], delta=1e-12)
        self.assertLess(float(edited["deleted", "pie"]["computed"]), 0.2)
        self.assertGreater(float(edited["deleted", "pie"]["kl_first"]), 1e-9)
        for name in ("same", "new"):
            self.assertLess(float(edited[name, "pie"]["kl_first"]), 1e-9)
        for row in self.rows(*ask[:2], *ask[4:-1], "pie", "--per", "seam", "--elem", "f32", "--item", "deleted", workload="edited.jsonl"):
            if row["layer"] == "0":
                self.assertLess(max(float(row["key_l2"]), float(row["value_l2"])), 1e-4)
        for more, said in ((["--prefill", "none", "--policy", "h2o.stream"], "this cache processes it itself"),
                           (["--prefill", "pie:9", "--policy", "full"], "asks for another"),
                           (["--prefill", "pie", "--policy", "full"], "field before"),
                           (["--per", "seam", "--policy", "full"], "--prefill none"),
                           (["--per", "seam", "--prefill", "none", "--policy", "full", "--decisions", "d.h5"], "nobody answers"),
                           (["--prefill", "none", "--mode", "draft", "--policy", "full"], "drafts begin with the full cache's"),
                           (["--prefill", "none", "--policy", "full", "--losses"], "--losses"),
                           (["--prefill", "cacheblend:101%", "--policy", "full"], "cacheblend:P%")):
            self.assertIn(said, self.fails(2, *self.evaluate("--workload", "documents.jsonl", "--budget", "50%", *more)))

    def figure(self, *arguments):
        return list(csv.DictReader(io.StringIO(self.ok("plot", *arguments, "--format", "csv"))))

    def test_errors_say_what_where_and_what_to_do(self):
        keys = ["--workload", "keys.jsonl", "--policy", "h2o"]
        for arguments, code, *said in [
            ([*keys, "--budget", "50%", "--mode", "teach"], 2, "unknown mode 'teach'", "teacher"),
            ([*keys, "--budget", "50%", "--force", "ful"], 2, "unknown choice 'ful'", "full"),
            (["--workload", "keys.jsonl", "--policy", "optimal", "--budget", "50%"], 2, "knows the future"),
            (["--policy", "h2o", "--budget", "50%"], 2, "--workload, --prompt"),
            (["--prompt", PROMPT, "--policy", "h2o", "--budget", "50%", "--cut", "question"], 2, "needle-0500-one.txt"),
            ([*keys, "--budget", "50%", "--cut", "100000"], 2, "needle-multi-key-300"),
            ([*keys, "--budget", "50%", "--max-new-tokens", "1000000"], 2, "context"),
            ([*keys, "--budget", "50%", "--max-new-tokens", "0", "--mode", "greedy"], 2, "at least 1"),
            ([*keys, "--budget", "50%", "--mode", "draft", "--gamma", "65"], 2, "--gamma"),
            ([*keys, "--budget", "50%", "--least-full", "90"], 2, "--least-full"),
            ([*keys, "--budget", "50%", "--item", "no-such"], 2, "no-such"),
            ([*keys, "--budget", "50%", "--memory-limit", "1KiB"], 2, "the limit is 1 KiB"),
            (["--workload", "absent.jsonl", "--policy", "h2o", "--budget", "50%"], 3, "absent.jsonl"),
        ]:
            with self.subTest(arguments=arguments):
                done = self.kvsim(*self.evaluate(*arguments))
                self.assertEqual(done.returncode, code, done.stderr)
                for text in said:
                    self.assertIn(text, done.stderr)
                self.assertEqual(done.stdout, "")


if __name__ == "__main__":
    kvsim_command.main()
