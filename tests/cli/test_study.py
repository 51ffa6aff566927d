#!/usr/bin/env python3
"""Tests kvsim study: a folder of results that a kill does not damage, and the fields of a study file."""
import base64
import csv
import gzip
import json
import re
import resource
import shutil
import signal
import subprocess
import time

import h5py
import kvsim_command
import pandas
from kvsim_command import SOURCE, CommandTest, same, start, wait_until_caught

MODEL = SOURCE / "traces" / "sample" / "model"


class StudyTest(CommandTest):
    def setUp(self):
        self.addCleanup(self.clean)

    def clean(self):
        for path in self.folder.iterdir():
            if path.name != "t.h5":
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def write(self, name="s.json", **fields):
        study = {"traces": "t.h5", "policies": ["h2o", "random"], "budgets": ["25%"], "report": False, **fields}
        (self.folder / name).write_text(json.dumps(study))
        return name

    def study(self, *more, name="s.json", out="d"):
        return ["study", name, "-o", out, "--quiet", *more]

    def json(self, path):
        return json.loads((self.folder / path).read_text())

    def table(self, path):
        with (gzip.open if path.endswith(".gz") else open)(self.folder / path, "rt", newline="") as file:
            return list(csv.DictReader(file))


class Results(StudyTest):
    def test_rows_are_those_of_replay(self):
        """One trace, two seeds, three scopes give the rows of kvsim replay, under the trace's short name."""
        self.write(seeds=[0, 3], scopes=["all", "layer", "step"], budgets=["25%", 40])
        self.ok(*self.study())
        expected = {"all": [], "layer": [], "step": []}
        for seed in "0", "3":
            for scope in "all", "layer", "step":
                text = self.ok("replay", "t.h5", "--policy", "h2o", "--policy", "random", "--budget", "25%,40", "--per", scope,
                               "--seed", seed, *(["--bounds"] if scope == "all" else []), "--format", "csv", "--quiet")
                expected[scope] += text.splitlines()
        for scope, name in ("all", "results.csv"), ("layer", "results-layer.csv.gz"), ("step", "results-step.csv.gz"):
            packed = (self.folder / "d" / name).read_bytes()
            lines = (gzip.decompress(packed) if name.endswith(".gz") else packed).decode().splitlines()
            keys = lines[0]
            self.assertEqual(lines, [keys, *(line.replace("t.h5,", "t,", 1) for line in expected[scope] if line != keys)])
        self.assertFalse((self.folder / "d/results-head.csv.gz").exists())

    def test_rows_of_every_scope_are_read_back(self):
        self.write(scopes=["all", "head", "step"])
        self.ok(*self.study())
        keys = ["trace", "policy", "layer", "head", "step", "attention_loss", "budget_kind", "budget_number"]
        packed = pandas.read_csv(self.folder / "d/results-head.csv.gz")[keys]
        self.assertEqual(set(zip(packed.budget_kind, packed.budget_number)), {("share", 0.25)})
        shown = json.loads(self.ok("export", "d", "--table", "results-head", "--format", "json"))["results"]
        self.assertEqual([[row[key] for key in keys[:4]] for row in shown], packed[keys[:4]].values.tolist())
        self.assertEqual(len(shown), 2 * 6)
        self.ok("export", "d", "--format", "h5", "-o", "all.h5")
        with h5py.File(self.folder / "all.h5") as file:
            self.assertLessEqual({"results", "results-head", "results-step", "means", "winners"}, set(file))
            for table in "results", "results-step", "means":
                self.assertEqual((set(file[table]["budget_number"][:]), set(file[table]["budget_kind"][:])), ({0.25}, {b"share"}))
        self.assertIn("retained_mass", self.ok("plot", "steps", "d", "--format", "csv"))
        self.assertEqual(self.kvsim("diff", "d", "all.h5").returncode, 0)

    def test_results_of_an_older_kvsim_are_refused_with_what_to_do(self):
        self.write()
        self.ok(*self.study())
        study = self.json("d/study.json")
        study["result"]["schema_version"] = 2
        (self.folder / "d/study.json").write_text(json.dumps(study))
        message = self.fails(3, "report", "d")
        self.assertIn("has results of schema 2, this kvsim reads schema 3", message)
        self.assertIn("kvsim study d/study.json -o NEW_FOLDER", message)

    def test_tables_and_their_columns(self):
        self.write(analyses=["hash", {"kind": "hash", "table": "short", "bits": [8, 16]}])
        self.ok(*self.study())
        tables = {path.name.split(".")[0] for path in (self.folder / "d" / "tables").iterdir()}
        self.assertEqual(tables, {"means", "differences", "ranks", "winners", "price", "hash", "short", "skipped"})
        described = self.table("d/columns.csv")
        for name in tables | {"results", "results-layer"}:
            path = {"results": "d/results.csv", "results-layer": "d/results-layer.csv.gz", "differences": "d/tables/differences.csv.gz"}.get(name, f"d/tables/{name}.csv")
            keys = list(self.table(path)[0]) if name != "skipped" else (self.folder / path).read_text().splitlines()[0].split(",")
            self.assertEqual([row["key"] for row in described if row["table"] == name], keys)
        direct = self.ok("analyze", "hash", "t.h5", "--bits", "8,16", "--format", "csv", "--quiet")
        self.assertEqual((self.folder / "d/tables/short.csv").read_text(), direct.replace("t.h5,", "t,"))
        self.assertEqual(len(self.table("d/tables/hash.csv")), 5)

    def test_threads_change_no_byte(self):
        self.make_trace("other.h5", 70, 5)
        self.write(traces=["*.h5"], scopes=["all", "head"], analyses=["hash"], report=True)
        self.ok(*self.study("--threads", 1, out="one"))
        self.ok(*self.study("--threads", 2, out="two"))
        self.assertTrue(same(self.folder / "one", self.folder / "two"))
        self.assertIn("<html", (self.folder / "one" / "report.html").read_text())

    def test_the_effective_study_is_a_study(self):
        self.write(policies=["h2o", "pyramidkv", "oracles"], budgets=["25%", "50%", 40], analyses=["hash"])
        self.ok(*self.study())
        self.ok("study", "d/study.json", "-o", "again", "--quiet")
        self.assertTrue(same(self.folder / "d", self.folder / "again"))
        shown = self.ok("study", "s.json", "--print-config")
        (self.folder / "full.json").write_text(shown)
        self.assertEqual(self.ok("study", "full.json", "--print-config"), shown)
        (self.folder / "sub").mkdir()
        self.ok("study", "full.json", "-o", "sub/deep", "--quiet")
        self.assertEqual((self.folder / "d/results.csv").read_bytes(), (self.folder / "sub/deep/results.csv").read_bytes())
        self.assertNotIn(str(self.folder), (self.folder / "sub/deep/study.json").read_text())

    def test_cells_and_analyses_that_cannot_run_are_named(self):
        self.make_trace("plain.h5", 60, 4)
        self.write(traces=["plain.h5", "t.h5"], policies=["h2o", "snapkv"], budgets=["25%"], analyses=["hash"])
        self.ok(*self.study())
        skipped = self.table("d/tables/skipped.csv")
        self.assertEqual({(row["trace"], row["policy"], row["budget"]) for row in skipped},
                         {("plain", "snapkv", "25%"), ("t", "snapkv", "25%")})
        self.assertIn("32 tokens", skipped[0]["reason"])
        self.assertEqual(len(self.table("d/results.csv")), 2 * 2)
        self.assertEqual(len(self.table("d/results-layer.csv.gz")), 2 * 2 * 3)

    def test_an_analysis_that_a_trace_cannot_serve_is_left_out_with_the_reason(self):
        self.ok("capture", "--model", MODEL, "--prompt", SOURCE / "traces/sample/prompts/needle-0500-one.txt", "-o", "lean.h5",
                "--max-new-tokens", 2, "--queries", "window:2")
        self.write(traces=["t.h5", "lean.h5"], policies=[], analyses=["importance", {"kind": "importance", "table": "long", "rows": 50000}])
        done = self.kvsim(*self.study())
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("long could be run on no trace: ", done.stderr)
        self.assertNotIn("importance could be run on no trace", done.stderr)
        skipped = {(row["trace"], row["analysis"]): row["reason"] for row in self.table("d/tables/skipped.csv")}
        self.assertEqual(set(skipped), {("lean", "importance"), ("t", "long"), ("lean", "long")})
        self.assertEqual({row["trace"] for row in self.table("d/tables/importance.csv")}, {"t"})

    def test_workloads_come_from_the_trace_or_the_study(self):
        with h5py.File(self.folder / "t.h5") as trace:
            self.assertNotIn("workload", trace["capture"].attrs)
        self.write(traces=[{"files": "t.h5", "workload": "needle"}])
        self.ok(*self.study())
        self.assertEqual({row["workload"] for row in self.table("d/results.csv")}, {"needle"})


class Prices(StudyTest):
    def test_winners_have_a_price(self):
        self.write(policies=["h2o", "keydiff", "oracles"], budgets=["25%", 40], machine="a100-80-sxm", model="llama-3.1-8b", report=True)
        self.ok(*self.study())
        price = self.table("d/tables/price.csv")
        self.assertEqual({(row["policy"], row["budget"], row["prompt"]) for row in price},
                         {(policy, budget, prompt) for prompt in ("96", "131072")
                          for policy, budget in (("h2o", "25%"), ("h2o", "40"), ("keydiff", "25%"), ("keydiff", "40"), ("full", ""))})
        told = json.loads(self.ok("cost", "estimate", "--model", "llama-3.1-8b", "--machine", "a100-80-sxm", "--policy", "h2o", "--budget", "25%",
                                  "--prompt-tokens", 131072, "--generate", 256, "--format", "json"))["results"][0]
        (row,) = [row for row in price if (row["policy"], row["budget"], row["prompt"]) == ("h2o", "25%", "131072")]
        for key in "peak_bytes", "cache_bytes", "ttft_seconds", "tpot_seconds":
            self.assertEqual(float(row[key]), told[key])
        self.assertEqual((row["fits"], row["prompt_rows"]), ("no", "all"))
        winners = self.table("d/tables/winners.csv")
        means = {(row["metric"], row["cut"], row["budget"], row["policy"]): float(row["mean"]) for row in self.table("d/tables/means.csv")
                 if row["workload"] == "all" and row["role"] == "policy"}
        self.assertEqual([(row["metric"], row["budget"]) for row in winners], [("attention_loss", "25%"), ("attention_loss", "40")])
        for row in winners:
            place = row["metric"], row["cut"], row["budget"]
            self.assertEqual(float(row["mean"]), min(mean for key, mean in means.items() if key[:3] == place))
            self.assertEqual({row["policy"], row["other"]}, {"h2o", "keydiff"})
        page = (self.folder / "d/report.html").read_text()
        self.assertIn("prompt of 131072 tokens", page)
        self.assertIn("does not fit", page)
        self.assertIn("| h2o |", self.ok("export", "d", "--table", "winners", "--format", "md"))
        shown = self.ok("export", "d", "--table", "winners")
        self.assertIn("its price: llama-3.1-8b on a100-80-sxm, one sequence with a prompt of 131072 tokens", shown)
        self.assertIn("(does not fit)", shown)
        self.assertLess(max(map(len, shown.splitlines())), 260)

    def test_representations_have_a_price(self):
        policies = ["h2o", "h2o+fp8", "keydiff+mikv", "full+kivi"]
        self.write(policies=policies, budgets=["25%"], machine="a100-80-sxm", model="llama-3.1-8b", price_prompts=[8192], report=True)
        self.ok(*self.study())
        price = {row["policy"]: row for row in self.table("d/tables/price.csv")}
        self.assertEqual(set(price), {*policies, "full"})
        asked = [word for policy in policies for word in ("--policy", policy)]
        told = json.loads(self.ok("cost", "estimate", "--model", "llama-3.1-8b", "--machine", "a100-80-sxm", *asked, "--budget", "25%",
                                  "--prompt-tokens", 8192, "--generate", 256, "--format", "json"))["results"]
        for row in told:
            for key in "peak_bytes", "cache_bytes", "ttft_seconds", "tpot_seconds":
                self.assertEqual(float(price[row["policy"]][key]), row[key], (row["policy"], key))
        # 256 bytes per token and lane instead of 512, beside what h2o keeps itself.
        self.assertEqual(float(price["h2o"]["cache_bytes"]) - float(price["h2o+fp8"]["cache_bytes"]), 2048 * 32 * 8 * 256)
        self.assertEqual([price[policy]["prompt_rows"] for policy in policies], ["all", "all", "all", "none"])
        winners = self.table("d/tables/winners.csv")
        self.assertTrue(winners)
        for row in winners:
            if row["policy"] in price:
                self.assertEqual(row["cache_bytes"], price[row["policy"]]["cache_bytes"])

    def test_without_a_machine_a_study_says_what_rules_read(self):
        self.write(policies=["h2o", "keydiff"])
        self.ok(*self.study())
        price = self.table("d/tables/price.csv")
        self.assertEqual([(row["policy"], row["prompt_rows"], row["decode_rows"], row["machine"], row["peak_bytes"]) for row in price],
                         [("h2o", "all", "yes", "", ""), ("keydiff", "none", "no", "", ""), ("full", "none", "no", "", "")])
        self.write(policies=["h2o", "keydiff"], machine="h100-sxm", model="qwen3-8b", price_prompts=[4096, 8192])
        self.ok(*self.study("--resume"))
        self.assertEqual({row["prompt"] for row in self.table("d/tables/price.csv")}, {"4096", "8192"})

    def test_what_cannot_be_priced_is_said(self):
        for fields, place, hint in (({"machine": "a100-80-smx", "model": "llama-3.1-8b"}, "s.json machine", "a100-80-sxm"),
                                    ({"machine": "a100-80-sxm", "model": "llama-3.1-8c"}, "s.json model", "llama-3.1-8b"),
                                    ({"machine": "a100-80-sxm"}, "s.json model", "must be given"),
                                    ({"model": "llama-3.1-8b"}, "s.json model", "Give \"machine\" too"),
                                    ({"price_prompts": 4096}, "s.json price_prompts", "Give \"machine\" too"),
                                    ({"machin": "a100-80-sxm"}, "s.json machin", "machine")):
            self.write(**fields)
            message = self.fails(2, *self.study())
            self.assertIn(place, message)
            self.assertIn(hint, message)
        self.write(machine="a100-80-sxm", model="llama-3.1-8b", budgets=["64KiB"])  # less than a token of that model
        done = self.kvsim(*self.study())
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("could not be priced", done.stderr)
        self.assertEqual({row["peak_bytes"] for row in self.table("d/tables/price.csv")}, {""})


class Captures(StudyTest):
    capture = {"model": str(MODEL), "workloads": [{"kind": "needle", "context": 120, "count": 2}, {"kind": "text", "context": 90}],
               "max_new_tokens": 3, "ignore_eos": True}

    def test_prompts_are_made_and_captured(self):
        (self.folder / "mine.txt").write_text("A prompt of my own, and nothing else.")
        self.write(traces=["t.h5"], capture={**self.capture, "prompts": [{"files": "*.txt", "workload": "own"}]}, scopes=["all"])
        self.ok(*self.study())
        names = ["t", "needle-120-s1-0", "needle-120-s1-1", "text-90-s1-0", "mine"]
        self.assertEqual([trace["name"] for trace in self.json("d/study.json")["result"]["traces"]], names)
        made = self.ok("workload", "needle", "--context", 120, "--count", 2, "--tokenizer", MODEL)
        self.assertTrue((self.folder / "d/prompts.jsonl").read_text().startswith(made))
        rows = self.table("d/results.csv")
        # Needles know their context, so they are studied at two cuts.
        self.assertEqual([row["workload"] for row in rows[::2]], ["", *["needle"] * 4, "text", "own"])
        self.assertIn("sound", self.ok("trace", "check", "d/traces/mine.h5"))
        self.assertIn("2 models", " ".join(self.json("d/study.json")["result"]["notes"]))

    def test_models_that_an_analysis_cannot_compare_cost_its_table_only(self):
        self.write(traces=["t.h5"], capture=self.capture, report=True,
                   analyses=[{"kind": "allocation-consistency", "policies": "pyramidkv", "budget": "50%"}, "key-norms"])
        self.assertIn("allocation-consistency is empty", self.kvsim(*self.study()).stderr)
        self.assertTrue(self.json("d/study.json")["result"]["complete"])
        self.assertEqual(self.table("d/tables/allocation-consistency.csv"), [])
        self.assertTrue(self.table("d/tables/key-norms.csv"))
        last = self.table("d/tables/skipped.csv")[-1]
        self.assertEqual((last["trace"], last["analysis"]), ("", "allocation-consistency"))
        self.assertIn("layers", last["reason"])
        self.assertTrue((self.folder / "d/report.html").exists())

    def test_another_capture_gives_the_same_bytes(self):
        self.write(traces=[], capture=self.capture)
        self.ok(*self.study())
        self.ok(*self.study("--threads", 1, out="e"))
        self.assertTrue(same(self.folder / "d", self.folder / "e"))

    def test_traces_that_are_not_kept_are_made_again_when_more_is_asked_of_them(self):
        lean = {**self.capture, "keep_traces": False}
        self.write(capture=self.capture, analyses=["hash"])
        self.ok(*self.study(out="kept"))
        self.write(capture=lean, analyses=["hash"])
        self.ok(*self.study(out="whole"))
        self.write(capture=lean)
        self.ok(*self.study())
        names = ["needle-120-s1-0", "needle-120-s1-1", "text-90-s1-0"]
        self.assertEqual(sorted(path.name for path in (self.folder / "d/traces").iterdir()), [name + ".json" for name in names])
        before = {path: path.stat().st_mtime_ns for path in (self.folder / "d/tasks").rglob("*") if path.is_file()}
        self.ok(*self.study("--resume"))  # nothing is left to do: no trace is made
        self.assertIn("to capture 0,", self.ok(*self.study("--resume", "--dry-run")))
        self.write(capture=lean, analyses=["hash"])
        self.assertIn("to capture 3,", self.ok(*self.study("--resume", "--dry-run")))
        self.ok(*self.study("--resume"))
        self.assertTrue(same(self.folder / "d", self.folder / "whole"))
        self.assertEqual({path: path.stat().st_mtime_ns for path in before}, before)
        for name in "results.csv", "results-layer.csv.gz", "tables/hash.csv", "tables/means.csv":
            self.assertEqual((self.folder / "d" / name).read_bytes(), (self.folder / "kept" / name).read_bytes())
        self.assertEqual(self.json("d/study.json")["result"], self.json("kept/study.json")["result"])
        self.write(capture=self.capture, analyses=["hash"])
        self.ok(*self.study("--resume"))
        self.assertTrue(same(self.folder / "d", self.folder / "kept"))

    def test_a_trace_that_is_made_again_must_be_the_same(self):
        self.write(traces=[], capture={**self.capture, "keep_traces": False})
        self.ok(*self.study())
        record = self.folder / "d/traces/text-90-s1-0.json"
        record.write_text(record.read_text().replace(self.json(record)["content_sha256"], "0" * 64))
        self.write(traces=[], capture={**self.capture, "keep_traces": False}, seeds=[0, 1])
        message = self.fails(2, *self.study("--resume"))
        self.assertIn("text-90-s1-0.h5: was captured again", message)
        self.ok(*self.study("--overwrite"))
        self.assertNotEqual(self.json(record)["content_sha256"], "0" * 64)

    def test_a_dry_run_writes_nothing(self):
        self.write(traces=[], capture=self.capture, analyses=["hash"])
        before = sorted(self.folder.iterdir())
        out = self.ok(*self.study("--dry-run"))
        self.assertEqual(sorted(self.folder.iterdir()), before)
        self.assertRegex(out, r"(?m)^traces +3 \(to capture 3, unreadable 0\)$")
        # There are five replays, because needles have two cuts, and three analyses; two policies at one budget.
        self.assertRegex(out, r"(?m)^tasks +8 \(finished 0, cuts 2, seeds 1, analyses 1\)$")
        self.assertRegex(out, r"(?m)^cells +10 ")
        self.assertRegex(out, r"(?m)^memory +about [\d.]+ \w+ for the longest trace, 12\d tokens$")
        self.assertRegex(out, r"(?m)^time +about [\d.]+ seconds before tables, from a shortened text-90-s1-0 \(\d+ tokens\), which took ")


class Cuts(StudyTest):
    def test_what_knows_its_context_is_studied_with_the_question_known_and_not(self):
        self.write(capture=Captures.capture, scopes=["all"], report=True)
        self.ok(*self.study())
        rows = self.table("d/results.csv")
        cuts = {name: list(dict.fromkeys(row["cut"] for row in rows if row["trace"] == name))
                for name in ("t", "text-90-s1-0", "needle-120-s1-0")}
        self.assertEqual(cuts, {"t": ["prompt"], "text-90-s1-0": ["prompt"], "needle-120-s1-0": ["prompt", "question"]})
        for cut in "prompt", "question":
            direct = self.ok("replay", "d/traces/needle-120-s1-1.h5", "--policy", "h2o", "--policy", "random", "--budget", "25%",
                             "--cut", cut, "--bounds", "--format", "csv", "--quiet").splitlines()[1:]
            mine = [row for row in (self.folder / "d/results.csv").read_text().splitlines()
                    if row.startswith("needle-120-s1-1,") and f",{cut},all," in row]
            self.assertEqual([row.split(",", 1)[1] for row in mine], [row.split(",", 1)[1] for row in direct])
        trace = next(trace for trace in self.json("d/study.json")["result"]["traces"] if trace["name"] == "needle-120-s1-0")
        known, unknown = trace["cuts"]
        self.assertEqual((known["cut"], unknown["cut"], known["prompt"]), ("prompt", "question", trace["prompt"]))
        self.assertLess(unknown["prompt"], known["prompt"])
        self.assertEqual(unknown["prompt"] + unknown["decode"], trace["prompt"] + trace["decode"])
        self.assertEqual(self.table("d/tables/skipped.csv"), [])
        # Means of a cut are over the traces that have it, and means of evidence over the traces that mark some.
        means = {(row["metric"], row["cut"]): row["traces"] for row in self.table("d/tables/means.csv")
                 if (row["policy"], row["workload"]) == ("h2o", "all")}
        self.assertEqual([means[key] for key in (("attention_loss", "prompt"), ("attention_loss", "question"),
                                                 ("evidence_loss", "prompt"), ("evidence_loss", "question"))], ["4", "2", "2", "2"])
        page = (self.folder / "d/report.html").read_text()
        for text in ("Cut prompt: question known to the policy", "Cut question: question not known to the policy", 'id="figure-cuts"', 'id="figure-quality-evidence-loss-cut-question"'):
            self.assertIn(text, page)

    def test_a_cut_that_a_trace_does_not_have_is_a_line(self):
        self.make_trace("small.h5", 20, 3)
        self.write(traces=["small.h5", "t.h5"], cuts=["question", 40], policies=["h2o"], scopes=["all"])
        done = self.kvsim(*self.study())
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([(row["trace"], row["cut"]) for row in self.table("d/results.csv")], [("t", "40")])
        skipped = {(row["trace"], row["cut"]): row["reason"] for row in self.table("d/tables/skipped.csv")}
        self.assertEqual(set(skipped), {("small", "question"), ("small", "40"), ("t", "question")})
        self.assertIn("does not say which tokens are context", skipped["t", "question"])
        self.assertIn("which has 23 tokens", skipped["small", "40"])
        self.assertTrue(self.json("d/study.json")["result"]["complete"])

    def test_a_slim_trace_is_skipped_where_its_queries_do_not_reach(self):
        self.ok("capture", "--model", MODEL, "--prompt", SOURCE / "traces/sample/prompts/needle-0500-one.txt", "-o", "lean.h5",
                "--max-new-tokens", 2, "--queries", "window:4")
        self.write(traces=["lean.h5"], cuts=["prompt", 100], policies=["window"], scopes=["all"])
        self.ok(*self.study())
        self.assertEqual([row["cut"] for row in self.table("d/results.csv")], ["prompt"])
        skipped, = self.table("d/tables/skipped.csv")
        self.assertEqual((skipped["trace"], skipped["cut"], skipped["policy"]), ("lean", "100", ""))
        self.assertIn("cut 100 needs those from 100 on", skipped["reason"])
        self.ok(*self.study("--dry-run", out="e"))

    def test_further_cuts_keep_what_is_finished(self):
        self.write(cuts=["prompt"])
        self.ok(*self.study())
        kept = self.folder / "d/tasks/t.cut-prompt.seed-0/rows.csv.gz"
        before = kept.stat().st_mtime_ns
        self.write(cuts=["prompt", 50])
        done = self.kvsim(*self.study("--resume"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("changed: cuts", done.stderr)
        self.assertEqual(kept.stat().st_mtime_ns, before)
        self.ok("study", "s.json", "-o", "fresh", "--quiet")
        self.assertTrue(same(self.folder / "d", self.folder / "fresh"))


class ClosedLoop(StudyTest):
    """The model of `capture` answers its own prompts, and the rows join with those of the replays."""
    capture = {"model": str(MODEL), "workloads": [{"kind": "needle-multi-key", "context": 200, "count": 2, "facts": 4}],
               "max_new_tokens": 2, "ignore_eos": True}

    def setUp(self):
        super().setUp()
        self.closed(loops=["open", "closed"])

    def closed(self, **fields):
        return self.write(**{"traces": [], "capture": self.capture, "policies": ["h2o", "keydiff"], "budgets": ["10%", "75%"],
                             "scopes": ["all"], "evaluate": {"max_new_tokens": 4}, **fields})

    def test_rows_are_those_of_evaluate_and_join_with_those_of_the_replays(self):
        done = self.kvsim(*self.study())
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("answers  d/tables/answers.csv, 32 rows", done.stdout)
        mine = self.table("d/tables/answers.csv")
        for cut in "prompt", "question":
            text = self.ok("evaluate", "--model", MODEL, "--workload", "d/prompts.jsonl", "--policy", "h2o", "--policy", "keydiff",
                           "--budget", "10%,75%", "--cut", cut, "--max-new-tokens", 4, "--format", "csv", "--quiet")
            direct = list(csv.DictReader(text.splitlines()))
            self.assertEqual([row for row in mine if row["cut"] == cut], direct)
        key = ("policy", "params", "budget", "cut", "seed", "workload")
        opened = {(row["trace"], *(row[name] for name in key)) for row in self.table("d/results.csv")}
        self.assertEqual(len(opened), 16)
        self.assertEqual(opened, {(row["item"], *(row[name] for name in key)) for row in mine})
        described = [row["key"] for row in self.table("d/columns.csv") if row["table"] == "answers"]
        self.assertEqual(described, list(mine[0]))
        # Means are over the items that the full cache answers, and say what the rows say.
        means = {(row["metric"], row["cut"], row["budget"], row["policy"]): row for row in self.table("d/tables/means.csv")}
        for cut in "prompt", "question":
            rows = [row for row in mine if (row["cut"], row["budget"], row["policy"]) == (cut, "10%", "keydiff")]
            right = [int(row["right"]) for row in rows if row["mode"] == "greedy"]
            self.assertEqual([row["right_full"] for row in rows if row["mode"] == "greedy"], ["1", "1"])
            self.assertEqual(float(means["right", cut, "10%", "keydiff"]["mean"]), sum(right) / 2)
            kl = [float(row["kl"]) for row in rows if row["mode"] == "teacher"]
            self.assertAlmostEqual(float(means["kl", cut, "10%", "keydiff"]["mean"]), sum(kl) / 2, places=12)
        self.assertIn("attention_loss", {row["metric"] for row in self.table("d/tables/means.csv")})

    def test_the_closed_loop_alone_records_no_trace(self):
        self.ok(*self.study())
        self.closed(loops="closed", report=True)
        self.ok(*self.study("--threads", 1, out="alone"))
        self.assertFalse((self.folder / "alone/traces").exists())
        self.assertEqual((self.folder / "alone/tables/answers.csv").read_bytes(), (self.folder / "d/tables/answers.csv").read_bytes())
        self.assertEqual(self.table("alone/results.csv"), [])
        page = (self.folder / "alone/report.html").read_text()
        for text in "Nothing was replayed.", 'id="figure-accuracy"', 'id="figure-divergence"':
            self.assertIn(text, page)
        # The other loop is taken up later, and nothing is answered again.
        task, = (self.folder / "alone/tasks").glob("*-0.answers-*.cut-prompt.seed-0")
        before = (task / "rows.csv.gz").stat().st_mtime_ns
        self.closed(loops=["open", "closed"])
        done = self.kvsim(*self.study("--resume", out="alone"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("changed: loops", done.stderr)
        self.assertEqual((task / "rows.csv.gz").stat().st_mtime_ns, before)
        self.assertEqual((self.folder / "alone/results.csv").read_bytes(), (self.folder / "d/results.csv").read_bytes())

    def test_the_report_leads_with_answers(self):
        self.closed(loops=["open", "closed"], report=True)
        self.ok(*self.study())
        page = (self.folder / "d/report.html").read_text()
        data = json.loads(gzip.decompress(base64.b64decode(re.search(r'id="data">([^<]*)<', page)[1])))
        self.assertEqual([each["key"] for each in data["cuts"]], ["prompt", "question"])
        deciding = {metric for _, _, metric, _ in data["verdicts"]}
        self.assertTrue(deciding and deciding <= {"right", "kept", "kl"}, deciding)
        self.assertIn('id="figure-accuracy"', page)
        shown = list(csv.DictReader(self.ok("plot", "accuracy", "d", "--format", "csv").splitlines()))
        means = self.table("d/tables/means.csv")
        for row in shown:
            if row["policy"] == "full":
                self.assertEqual(row["right"], "1")
                continue
            budget = f"{float(row['budget']):.0%}"
            mean, = [mean for mean in means if (mean["metric"], mean["cut"], mean["budget"], mean["policy"]) ==
                     ("right", row["cut"], budget, row["policy"])]
            self.assertEqual((row["right"], row["low"], row["high"]), (mean["mean"], mean["low"], mean["high"]))
        self.assertEqual(len(shown), 2 * (2 * 2 + 2))

    def test_what_a_running_model_does_not_serve_is_told_once(self):
        self.closed(loops="closed", policies=["keydiff", "optimal"])
        self.ok(*self.study())
        self.assertEqual(len(self.table("d/tables/answers.csv")), 32)
        skipped, = self.table("d/tables/skipped.csv")
        self.assertEqual((skipped["trace"], skipped["cut"], skipped["policy"], skipped["budget"], skipped["analysis"]),
                         ("", "", "optimal", "", "answers"))
        self.assertIn("knows the future", skipped["reason"])

    def test_other_settings_are_other_tasks(self):
        self.closed(loops="closed", evaluate={"max_new_tokens": 2, "mode": "greedy"})
        self.ok(*self.study())
        self.assertEqual({(row["mode"], row["kl"]) for row in self.table("d/tables/answers.csv")}, {("greedy", "")})
        shutil.copytree(self.folder / "d", self.folder / "other")
        self.closed(loops="closed", evaluate={"max_new_tokens": 4})
        done = self.kvsim(*self.study("--resume"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("changed: evaluate", done.stderr)
        self.assertEqual({row["mode"] for row in self.table("d/tables/answers.csv")}, {"teacher", "greedy"})
        # Another text is another outcome of the same cell, not another row.
        answers = self.folder / "other/tables/answers.csv"
        rows = self.table("other/tables/answers.csv")
        rows[0]["generated"] += " more"
        with answers.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        self.closed(loops="closed", evaluate={"max_new_tokens": 2, "mode": "greedy"})
        self.ok(*self.study(out="fresh"))
        told = self.kvsim("diff", "fresh", "other", "--format", "csv")
        self.assertEqual(told.returncode, 5, told.stderr)
        found, = csv.DictReader(told.stdout.splitlines())
        self.assertEqual((found["table"], found["count"]), ("answers", "1"))
        self.assertIn("generated", found.values())

    def test_a_workload_that_the_full_cache_fails_ranks_nothing(self):
        self.closed(loops="closed", statistics={"least_full": 1}, report=True,
                    capture={**self.capture, "workloads": [{"kind": "needle-multi-value", "context": 400, "count": 4}]})
        done = self.kvsim(*self.study())
        self.assertEqual(done.returncode, 0, done.stderr)
        full = {row["item"]: int(row["right_full"]) for row in self.table("d/tables/answers.csv")
                if row["cut"] == "prompt" and row["mode"] == "greedy"}
        self.assertLess(sum(full.values()), 4)
        self.assertIn(f"Cut prompt: the full cache answers {sum(full.values())} of 4 questions of needle-multi-value right", done.stderr)
        self.assertEqual({row["metric"] for row in self.table("d/tables/means.csv")},
                         {"kl", "same_top", *(["kept"] if sum(full.values()) else [])})
        page = (self.folder / "d/report.html").read_text()
        self.assertIn("Policies are not ranked by the answers to", page)
        self.assertIn(f"the full cache answers {sum(full.values())} of 4 questions right", page)

    def test_a_recorded_trace_is_not_answered(self):
        self.closed(loops=["open", "closed"], traces="t.h5")
        self.ok(*self.study())
        self.assertNotIn("t", {row["item"] for row in self.table("d/tables/answers.csv")})
        self.assertIn("t", {row["trace"] for row in self.table("d/results.csv")})
        reasons = [row["reason"] for row in self.table("d/tables/skipped.csv") if (row["trace"], row["analysis"]) == ("t", "answers")]
        self.assertEqual(reasons, ["is a recorded run: the closed loop answers the prompts of capture alone"])

    def test_a_prompt_that_cannot_be_answered_costs_only_itself(self):
        (self.folder / "fine.txt").write_text("A prompt of my own, and nothing else.")
        (self.folder / "long.txt").write_text("word " * 6000)  # more positions than the model has
        (self.folder / "broken.txt").write_bytes(b"broken \xff\xfe")
        self.closed(loops="closed", capture={**self.capture, "workloads": [], "prompts": ["*.txt"]})
        done = self.kvsim(*self.study())
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("broken", done.stderr)
        self.assertEqual({row["item"] for row in self.table("d/tables/answers.csv")}, {"fine"})
        self.assertEqual({row["right"] for row in self.table("d/tables/answers.csv")}, {""})
        skipped = {row["trace"]: row["reason"] for row in self.table("d/tables/skipped.csv")}
        self.assertEqual(set(skipped), {"broken", "long"})
        self.assertFalse(self.json("d/study.json")["result"]["complete"])

    def test_a_model_that_cannot_be_read_is_no_fault_of_the_prompts(self):
        shutil.copytree(MODEL, self.folder / "model")
        weights = self.folder / "model/model.safetensors"
        weights.write_bytes(weights.read_bytes()[:100])
        self.closed(loops="closed", capture={**self.capture, "model": "model"})
        message = self.fails(3, *self.study())
        self.assertIn("model.safetensors", message)
        self.assertIn("0 of 4 tasks are finished and kept", message)
        shutil.rmtree(self.folder / "model")
        shutil.copytree(MODEL, self.folder / "model")
        self.ok(*self.study("--resume"))

    def test_a_dry_run_counts_and_measures_the_closed_loop(self):
        out = self.ok(*self.study("--dry-run"))
        # Two prompts at two cuts in two loops.
        self.assertRegex(out, r"(?m)^tasks +8 \(finished 0, cuts 2, ")
        self.assertRegex(out, r"(?m)^cells +32 ")
        self.closed(loops="closed")
        out = self.ok(*self.study("--dry-run"))
        self.assertRegex(out, r"(?m)^traces +2 \(to capture 0, ")
        self.assertRegex(out, r"(?m)^memory +about [\d.]+ \w+ for the longest trace")
        self.assertIn("the limit is", self.fails(2, *self.study("--memory-limit", "1KiB")))

    def test_a_study_takes_another_model_than_its_own(self):
        """That of tools/study.sh, whose model is not there before tools/model.sh has fetched it."""
        file = SOURCE / "analysis" / "examples" / "smollm2.json"
        self.assertIn("SmolLM2-135M-Instruct.Q4_1.gguf: cannot be opened", self.fails(3, "study", file, "-o", "e", "--dry-run"))
        self.assertRegex(self.ok("study", file, "--model", MODEL, "-o", "e", "--dry-run", "--quiet"), r"(?m)^traces +24 \(to capture 24, ")

    def test_what_cannot_be_asked_for_is_refused(self):
        for fields, words in [({"loops": ["opn"]}, ["s.json loops[0]", "Did you mean open?"]),
                              ({"loops": []}, ["s.json loops", "is empty"]),
                              ({"loops": "closed", "capture": None, "traces": "t.h5"}, ["s.json loops", "needs a model"]),
                              ({"loops": "closed", "policies": [], "analyses": ["hash"]}, ["s.json loops", "needs policies"]),
                              ({"evaluate": {"modes": "both"}}, ["s.json evaluate.modes", "Did you mean mode?"]),
                              ({"evaluate": {"force": "answr"}}, ["s.json evaluate.force", "Did you mean answer?"]),
                              ({"analyses": [{"kind": "hash", "table": "answers"}]}, ["there is a table answers already"])]:
            with self.subTest(fields=fields):
                self.closed(**{"loops": ["open", "closed"], **fields})
                message = self.fails(2, *self.study())
                for word in words:
                    self.assertIn(word, message)


class Resuming(StudyTest):
    def setUp(self):
        super().setUp()
        self.write(capture=Captures.capture, policies=["h2o", "random", "snapkv(window=8)"], seeds=[0, 1], analyses=["hash"],
                   scopes=["all", "step"], loops=["open", "closed"], evaluate={"max_new_tokens": 3})

    def test_killed_at_any_moment_it_goes_on_to_the_same_bytes(self):
        begun = time.monotonic()
        self.ok(*self.study(out="whole"))
        needed = time.monotonic() - begun
        whole = self.folder / "whole"
        parts = set()
        for share in 0.05, 0.15, 0.3, 0.45, 0.6, 0.8:
            folder = self.folder / "d"
            shutil.rmtree(folder, ignore_errors=True)
            work = start(*self.study(), cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(share * needed)
            work.kill()
            work.wait()
            if folder.exists():
                tasks = folder / "tasks"
                parts.add(len(list(tasks.iterdir())) if tasks.exists() else 0)
                self.ok(*self.study("--resume"))
                self.assertTrue(same(folder, whole))
        self.assertGreater(len(parts), 1, "every kill came at the same moment")

    def test_finished_tasks_are_kept_and_not_run_again(self):
        self.ok(*self.study())
        whole = self.folder / "whole"
        shutil.copytree(self.folder / "d", whole)
        kept = self.folder / "d/tasks/t.cut-prompt.seed-0/rows.csv.gz"
        before = kept.stat().st_mtime_ns
        for name in "tasks/t.cut-prompt.seed-1", "tasks/needle-120-s1-1.cut-question.seed-0", "tables":
            shutil.rmtree(self.folder / "d" / name)
        for name in "results.csv", "traces/text-90-s1-0.h5":
            (self.folder / "d" / name).unlink()
        (self.folder / "d/tasks/t.cut-prompt.seed-1.partial").mkdir()
        (self.folder / "d/tasks/t.cut-prompt.seed-1.partial/rows.csv.gz").write_text("half")
        self.ok(*self.study("--resume"))
        self.assertTrue(same(self.folder / "d", whole))
        self.assertEqual(kept.stat().st_mtime_ns, before)

    def test_a_changed_task_is_refused_until_its_folder_is_removed(self):
        self.write(seeds=[0, 1], analyses=["hash"])
        self.ok(*self.study())
        shutil.copytree(self.folder / "d", self.folder / "sound")
        tasks = sorted((self.folder / "d/tasks").iterdir())
        self.assertEqual(len(tasks), 3)
        for task in tasks:
            subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=task, check=True)
            for name in "rows.csv.gz", "skipped.csv":
                text = (task / name).read_bytes()
                for changed in (text[:-2] + bytes([text[-2] ^ 1]) + text[-1:], text[:len(text) // 2], bytes(len(text))):
                    (task / name).write_bytes(changed)
                    message = self.fails(3, *self.study("--resume"))
                    self.assertIn(f"d/tasks/{task.name}/{name}: was changed since its task finished", message)
                    self.assertIn("Remove the folder it lies in", message)
                (task / name).write_bytes(text)
            shutil.rmtree(task)
            self.ok(*self.study("--resume"))
            self.assertTrue(same(self.folder / "d", self.folder / "sound"))

    def test_tasks_without_checksums_are_taken_as_they_are(self):
        """As a kvsim that kept none left them."""
        self.write()
        self.ok(*self.study())
        results = (self.folder / "d/results.csv").read_text()
        for sums in (self.folder / "d/tasks").glob("*/SHA256SUMS"):
            sums.unlink()
        self.ok(*self.study("--resume"))
        self.assertEqual((self.folder / "d/results.csv").read_text(), results)

    def test_a_folder_is_not_taken_over_silently(self):
        self.ok(*self.study())
        message = self.fails(2, *self.study())
        self.assertIn("--resume", message)
        self.assertIn("--overwrite", message)
        (self.folder / "d/mine.txt").write_text("mine")
        (self.folder / "d/traces/mine.h5").write_text("mine")
        self.ok(*self.study("--overwrite"))
        self.assertEqual((self.folder / "d/mine.txt").read_text(), "mine")
        self.assertEqual((self.folder / "d/traces/mine.h5").read_text(), "mine")
        self.write("own.json", traces=["d/traces/text-90-s1-0.h5"])
        self.assertIn("that this study reads", self.fails(2, *self.study("--overwrite", name="own.json")))
        self.assertTrue((self.folder / "d/traces/text-90-s1-0.h5").exists())
        (self.folder / "other").mkdir()
        (self.folder / "other/note.txt").write_text("mine")
        for more in [], ["--resume"], ["--overwrite"]:
            self.assertIn("no study's folder", self.fails(2, *self.study(*more, out="other")))
        self.assertIn("cannot both be", self.fails(2, *self.study("--resume", "--overwrite")))

    def test_a_damaged_study_is_not_overwritten(self):
        outside = self.folder / "outside.h5"
        outside.write_text("mine")
        self.ok(*self.study())
        for text, word in [('{"result": {"traces": [{"captured": true}]}}', "missing"),
                           ('{"result": {"traces": [{"name": "../../outside", "captured": true}]}}', "no name"),
                           ('{"result": {"traces": 1}}', "array"), ("[]", "object")]:
            with self.subTest(text=text):
                (self.folder / "d/study.json").write_text(text)
                message = self.fails(3, *self.study("--overwrite"))
                self.assertIn("study.json", message)
                self.assertIn(word, message)
        self.assertEqual(outside.read_text(), "mine")
        self.assertTrue((self.folder / "d/results.csv").exists())

    def edited(self, **fields):
        study = {**self.json("s.json"), **fields}
        (self.folder / "s.json").write_text(json.dumps(study))
        return self.study("--resume")

    def test_edits_that_change_no_finished_task_are_taken_over(self):
        self.ok(*self.study())
        self.make_trace("more.h5", 50, 3)
        done = self.kvsim(*self.edited(traces=["t.h5", "more.h5"], title="New", analyses=["hash", "importance"],
                                       statistics={"resamples": 500}, seeds=[1]))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("more traces: more", done.stderr)
        self.assertIn("changed: title, seeds, analyses, statistics", done.stderr)
        self.ok("study", "s.json", "-o", "fresh", "--quiet")
        shutil.rmtree(self.folder / "d/tasks")
        shutil.rmtree(self.folder / "fresh/tasks")
        self.assertTrue(same(self.folder / "d", self.folder / "fresh"))

    def test_edits_that_would_mix_results_are_refused(self):
        self.ok(*self.study())
        before = {path: path.stat().st_mtime_ns for path in (self.folder / "d").rglob("*.csv")}
        capture = dict(Captures.capture)
        for fields, words in [({"budgets": ["25%", "50%"]}, ['budgets[1] was nothing and is now "50%"']),
                              ({"policies": ["h2o"]}, ["policies[1]"]),
                              ({"policies": ["h2o(sinks=4)", "random", "snapkv(window=8)"]}, ["policies[0].policy", "h2o(sinks=4)"]),
                              ({"scopes": ["all"]}, ["scopes[1]"]),
                              ({"capture": {**capture, "max_new_tokens": 4}}, ["capture.max_new_tokens was 3 and is now 4"]),
                              ({"capture": {**capture, "workloads": [{"kind": "needle", "context": 100, "count": 2}]}},
                               ["capture.workloads[0].context was 120"]),
                              ({"traces": [{"files": "t.h5", "workload": "x"}]}, ["traces[t].workload"])]:
            with self.subTest(fields=fields):
                original = (self.folder / "s.json").read_text()
                message = self.fails(2, *self.edited(**fields))
                for word in [*words, "study.json", "--overwrite"]:
                    self.assertIn(word, message)
                (self.folder / "s.json").write_text(original)
        self.assertEqual({path: path.stat().st_mtime_ns for path in (self.folder / "d").rglob("*.csv")}, before)

    def test_a_changed_trace_is_refused(self):
        self.make_trace("v.h5", 50, 3)
        self.ok(*self.edited(traces="v.h5"))
        self.make_trace("v.h5", 60, 3, "--overwrite")
        self.assertIn("traces[v].sha256", self.fails(2, *self.study("--resume")))

    def test_a_trace_that_changed_while_it_was_left_out_is_run_again(self):
        self.make_trace("v.h5", 50, 3)
        self.ok(*self.edited(traces=["t.h5", "v.h5"]))
        self.ok(*self.edited(traces=["t.h5"]))
        self.make_trace("v.h5", 60, 3, "--overwrite")
        kept = (self.folder / "d/tasks/t.cut-prompt.seed-0/rows.csv.gz").stat().st_mtime_ns
        self.ok(*self.edited(traces=["t.h5", "v.h5"]))
        self.assertEqual((self.folder / "d/tasks/t.cut-prompt.seed-0/rows.csv.gz").stat().st_mtime_ns, kept)
        self.ok("study", "s.json", "-o", "fresh", "--quiet")
        self.assertEqual((self.folder / "d/results.csv").read_text(), (self.folder / "fresh/results.csv").read_text())

    def test_results_of_another_schema_are_refused(self):
        self.ok(*self.study())
        study = self.json("d/study.json")
        study["result"]["schema_version"] = 99
        (self.folder / "d/study.json").write_text(json.dumps(study))
        self.assertIn("schema 99", self.fails(2, *self.study("--resume")))

    def test_interrupted_it_says_how_to_go_on(self):
        self.make_trace("long.h5", 16000, 200)
        self.write(traces=["t.h5", "long.h5"], policies=["all"], budgets=["10%", "20%", "30%", "40%", "50%", "60%"])
        work = start(*self.study("--threads", 1), cwd=self.folder, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(work.kill)
        deadline = time.monotonic() + 100
        while not (self.folder / "d/tasks/t.cut-prompt.seed-0").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        wait_until_caught(work, signal.SIGINT)
        work.send_signal(signal.SIGINT)
        out, err = work.communicate(timeout=200)
        self.assertEqual((work.returncode, out), (4, ""), err)
        self.assertIn("1 of 2 tasks are finished and kept. Go on with: kvsim study s.json -o d --resume", err)
        self.assertEqual([path.name for path in (self.folder / "d/tasks").iterdir()], ["t.cut-prompt.seed-0"])
        self.assertFalse(self.json("d/study.json")["result"]["complete"])

    def test_a_full_disk_loses_nothing(self):
        self.ok(*self.study(out="whole"))
        for limit in 1 << 12, 1 << 18, 1 << 19:
            def limit_files(size=limit):
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

            shutil.rmtree(self.folder / "d", ignore_errors=True)
            done = self.kvsim(*self.study(), preexec_fn=limit_files, restore_signals=False)
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertIn("too large", done.stderr)
            self.assertEqual(list((self.folder / "d").rglob("*.partial")), [])
            self.ok(*self.study("--resume"))
            self.assertTrue(same(self.folder / "d", self.folder / "whole"))

    def test_two_studies_never_share_a_folder(self):
        self.make_trace("long.h5", 16000, 200)
        self.write(traces=["long.h5"], policies=["all"], budgets=["10%", "20%", "30%", "40%"])
        work = start(*self.study("--threads", 1), cwd=self.folder, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        self.addCleanup(work.kill)
        while not (self.folder / "d").exists() or not any((self.folder / "d").iterdir()):  # what it writes there comes after its lock
            self.assertIsNone(work.poll())
            time.sleep(0.02)
        self.assertIn("another study is at work", self.fails(2, *self.study("--resume")))
        work.kill()
        work.wait()


class BadInput(StudyTest):
    def test_a_damaged_trace_costs_only_itself(self):
        self.make_trace("good.h5", 50, 3)
        self.make_trace("bad.h5", 50, 3)
        with (self.folder / "bad.h5").open("r+b") as file:
            file.truncate(3000)
        self.write(traces=["*.h5"])
        message = self.fails_with_output(3)
        self.assertIn("1 of 3 traces could not be read", message)
        self.assertIn("bad.h5", message)
        self.assertEqual({row["trace"] for row in self.table("d/results.csv")}, {"good", "t"})
        self.assertEqual([row["trace"] for row in self.table("d/tables/skipped.csv")], ["bad"])
        self.assertFalse(self.json("d/study.json")["result"]["complete"])
        self.make_trace("bad.h5", 50, 3, "--overwrite")
        self.ok(*self.study("--resume"))
        self.assertTrue(self.json("d/study.json")["result"]["complete"])
        self.assertEqual({row["trace"] for row in self.table("d/results.csv")}, {"bad", "good", "t"})

    def fails_with_output(self, code):
        done = self.kvsim(*self.study())
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stderr

    def test_what_cannot_be_asked_for(self):
        (self.folder / "sub").mkdir()
        shutil.copy(self.folder / "t.h5", self.folder / "sub/t.h5")
        needle = {"kind": "needle", "context": 100}
        for fields, words in [
                ({"tracs": []}, ["s.json tracs: no such field", "Did you mean traces"]),
                ({"capture": {"model": "m", "workloads": [needle, {**needle, "contxt": 3}]}},
                 ["capture.workloads[1].contxt: no such field", "context"]),
                ({"statistics": {"resample": 3}}, ["statistics.resample", "resamples"]),
                ({"statistics": {"confidence": 2}}, ["statistics.confidence", "0.5 to 0.999"]),
                ({"traces": "no/*.h5"}, ["traces[0].files", "no file matches no/*.h5"]),
                ({"traces": ["t.h5", "sub/t.h5"]}, ["two traces would be called t", "sub/t.h5", '"name"']),
                ({"traces": [{"files": "t.h5", "name": "../x"}]}, ["'../x' cannot be the name"]),
                ({"traces": [{"files": "t.h5", "sha256": "0"}]}, ["traces[0].sha256"]),
                ({"traces": []}, ["names no trace"]),
                ({"policies": ["h2"]}, ["policies[0]", "h2o"]),
                ({"policies": [{"policy": "h2o", "params": "h2o()"}]}, ["policies[0].params"]),
                ({"policies": []}, ["asks for nothing"]),
                ({"budgets": ["x%"]}, ["budgets"]),
                ({"budgets": []}, ["budgets: is empty"]),
                ({"seeds": [-1]}, ["seeds[0]", "whole number"]),
                ({"seeds": [0.5]}, ["seeds[0]"]),
                ({"scopes": ["al"]}, ["scopes[0]", "all"]),
                ({"cuts": ["prompt", "answer"]}, ["cuts[1]", "cut 'answer'", "`question`"]),
                ({"metrics": ["attention_los"]}, ["metrics[0]", "attention_loss"]),
                ({"analyses": ["hush"]}, ["analyses[0].kind", "hash"]),
                ({"analyses": [{"kind": "hash", "bit": 3}]}, ["analyses[0].bit", "bits"]),
                ({"analyses": ["hash", "hash"]}, ["analyses[1].table", "already"]),
                ({"report": "yes"}, ["report", "true or false"]),
                ({"capture": {}}, ["capture.model: must be given"]),
                ({"capture": {"model": str(MODEL)}}, ["neither workloads nor prompts"]),
                ({"capture": {"model": str(MODEL), "workloads": [{"kind": "nedle"}]}}, ["capture.workloads[0]", "needle"]),
                ({"capture": {"model": str(MODEL), "workloads": [{**needle, "facts": 9}]}},
                 ["capture.workloads[0].facts", "means nothing"]),
                ({"capture": {"model": str(MODEL), "workloads": [{**needle, "style": "pair"}]}}, ["style", "pairs"]),
                ({"capture": {"model": str(MODEL), "workloads": [needle, needle]}}, ["two traces would be called needle-100-s1-0"])]:
            with self.subTest(fields=fields):
                message = self.fails(2, *self.study(name=self.write(**fields)))
                for word in words:
                    self.assertIn(word, message)
        self.assertFalse((self.folder / "d").exists())

    def test_files_that_are_no_study(self):
        for text, words in [("{", ["not valid JSON"]), ('{"traces": [], "traces": []}', ["occurs twice"]), ("", ["not valid JSON"])]:
            (self.folder / "s.json").write_text(text)
            message = self.fails(3, *self.study())
            for word in ["s.json", *words]:
                self.assertIn(word, message)
        self.assertIn("missing.json", self.fails(3, "study", "missing.json"))
        self.write(traces=["none.h5"])
        self.assertIn("there is no file none.h5", self.fails(3, *self.study()))
        (self.folder / "s.json").write_text("[]")
        self.assertIn("expected an object", self.fails(2, *self.study()))

    def test_a_memory_limit_is_kept(self):
        self.write()
        self.assertIn("--memory-limit", self.fails(2, *self.study("--memory-limit", "1KiB")))
        self.assertEqual(list((self.folder / "d/tasks").iterdir()), [])


class Reference(StudyTest):
    def test_every_field_is_explained_and_shown(self):
        page = json.loads(self.ok("config", "reference", "--format", "json"))["results"]
        fields = {row["field"] for row in page}
        self.write(capture={**Captures.capture, "prompts": []}, analyses=["hash"])
        (self.folder / "p.txt").write_text("x y z")
        study = json.loads(self.ok("study", "s.json", "--print-config"))

        def check(section, path):
            for name, value in section.items():
                known = path + name
                if known not in fields:
                    self.assertIn(path + "*", fields)
                if isinstance(value, dict):
                    check(value, known + ".")
                elif isinstance(value, list):
                    for item in value:
                        if isinstance(item, dict):
                            check(item, known + "[].")
        check(study, "")
        self.assertLessEqual({"capture.workloads[].context", "statistics.resamples"}, fields)
        self.assertTrue(all(row["meaning"] for row in page))
        self.assertIn("| capture.model |", self.ok("config", "reference", "--format", "md"))


if __name__ == "__main__":
    kvsim_command.main()
