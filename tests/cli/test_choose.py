#!/usr/bin/env python3
"""Tests kvsim choose on the shipped model: the split, the rounds, the confirmation, and going on after a stop."""
import base64
import csv
import gzip
import html
import io
import itertools
import json
import math
import re
import shutil
import signal
import statistics
import subprocess
import time
import unittest

import browser
import kvsim_command
from kvsim_command import KVSIM, SOURCE, CommandTest

MODEL = SOURCE / "traces" / "sample" / "model"
SETTINGS = 40


def table(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def answers(task):
    with gzip.open(task / "rows.csv.gz", "rt", newline="") as file:
        return list(csv.DictReader(file))


class Choose(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        made = cls.kvsim("workload", "needle-multi-key", "--context", 200, "--count", 16, "--tokenizer", MODEL, "-o", "keys.jsonl")
        assert made.returncode == 0, made.stderr
        made = cls.kvsim(*cls.choose("choice"))
        assert made.returncode == 0, made.stderr
        cls.said = made.stdout

    @staticmethod
    def choose(folder, *more, cap=("--share", "20%")):
        return ["choose", "--model", MODEL, "--workload", "keys.jsonl", *cap, "--cut", "question", "--settings", SETTINGS, "--quiet",
                "-o", folder, *more]

    def lines(self):
        return (self.folder / "keys.jsonl").read_text().splitlines(keepends=True)

    def tasks(self, kind, name="choice"):
        found = (self.folder / name).glob(f"tasks/{kind}-*")
        return [answers(task) for task in sorted(found, key=lambda task: int(task.name.split("-")[1]))]

    def test_half_of_the_prompts_search_and_the_others_confirm(self):
        items = [[{row["item"] for row in task} for task in self.tasks(kind)] for kind in ("search", "confirm")]
        searched, confirmed = (set().union(*sets) for sets in items)
        self.assertEqual(len(confirmed), 8)
        self.assertFalse(searched & confirmed)
        self.assertLessEqual(searched | confirmed, {json.loads(line)["id"] for line in self.lines()})

    def test_rounds_halve_the_field_and_the_best_wins(self):
        fields = [{row["params"] for row in task if not row["skipped"]} for task in self.tasks("search")]
        for before, after in zip(fields, fields[1:]):
            self.assertLessEqual(after, before)
        self.assertLessEqual(len(fields[4]), (len(fields[3]) + 1) // 2)  # the first round has four prompts
        # Of those that answered every prompt, no other kept more, or as much at less KL. The table says the same numbers.
        kept, kl = {}, {}
        for task in self.tasks("search"):
            for row in task:
                if row["kept"]:
                    kept.setdefault(row["params"], []).append(int(row["kept"]))
                if row["mode"] == "teacher" and not row["skipped"]:
                    kl.setdefault(row["params"], []).append(float(row["kl"]))
        tried = table(self.folder / "choice" / "tables" / "tried.csv")
        winner = [row for row in tried if not row["left"]]
        self.assertEqual(len(winner), 1)
        finals = [name for name in fields[-1] if len(kl[name]) == len(fields)]
        best = min(finals, key=lambda name: (-sum(kept[name]), sum(kl[name])))
        self.assertEqual(winner[0]["params"], best)
        self.assertAlmostEqual(float(winner[0]["kept"]), sum(kept[best]) / len(kept[best]))
        self.assertAlmostEqual(float(winner[0]["kl"]), sum(kl[best]) / len(kl[best]))
        self.assertIn(f"setting    {winner[0]['setting']} at ", self.said)
        self.assertRegex(self.said, r"holds      \S+ \S+ after the answer; a whole prompt takes \S+ \S+\n")

    def page(self, name, said, measure):
        """What was said, and every setting that was measured where the table has it; the chosen one found and confirmed."""
        page = (self.folder / name / "choice.html").read_text()
        for line in said.partition("\ntables ")[0].splitlines():
            self.assertIn(line[11:], html.unescape(page))
        data = json.loads(gzip.decompress(base64.b64decode(re.search('id="data">([^<]*)<', page)[1])))
        found, luck = (panel["series"] for panel in data["figures"][0]["panels"])
        tried = [row for row in table(self.folder / name / "tables" / "tried.csv") if row[measure] and row["held_bytes"]]
        self.assertEqual(sorted((one["label"], *one["points"][0][:2]) for one in found),
                         sorted((row["setting"], float(row["held_bytes"]) / 2**20, float(row[measure])) for row in tried))
        (confirmed,) = table(self.folder / name / "tables" / "confirmed.csv")
        chosen = next(float(row[measure]) for row in tried if row["params"] == confirmed["params"])
        self.assertEqual([one["group"] for one in found].count("chosen"), 1)
        for value, shown in zip((chosen, float(confirmed[measure])), luck[0]["points"], strict=True):
            self.assertAlmostEqual(value, shown[1])
        return luck[0]["points"]

    def test_the_page_shows_what_was_found_and_what_was_confirmed(self):
        for (_, value, low, high), task in zip(self.page("choice", self.said, "kept"), ("search", "confirm")):
            self.assertTrue(low <= value <= high and high - low > 0.1, task)

    @unittest.skipIf(browser.CHROMIUM is None, "chromium is not installed")
    def test_the_page_is_drawn_on_wide_and_narrow_screens(self):
        with browser.Browser() as tab:
            for width in (1280, 420):
                tab.size(width)
                tab.open(self.folder / "choice" / "choice.html")
                wide, drawn = tab.run("return [document.documentElement.scrollWidth, document.querySelectorAll('.plot svg[role=img]').length]")
                self.assertLessEqual(wide, width)
                self.assertEqual(drawn, 2)
            self.assertEqual(tab.problems, [])

    def test_nothing_that_is_tried_holds_more_than_the_cap(self):
        tried = table(self.folder / "choice" / "tables" / "tried.csv")
        self.assertEqual(len(tried), SETTINGS)
        self.assertEqual(len({row["params"] for row in tried}), SETTINGS)
        for task in self.tasks("search") + self.tasks("confirm"):
            for row in task:
                if row["skipped"] or row["policy"].startswith("full"):
                    continue
                dropped = next(each["why"] for each in tried if each["params"] == row["params"])
                if dropped != "holds more than the cap":
                    self.assertLessEqual(float(row["kept_tokens"]), float(row["budget_tokens"]) + 0.5, row["params"])

    def test_evaluate_finds_what_was_confirmed(self):
        """The other way to the same answers: one call of kvsim evaluate with the cap in bytes, prompt by prompt."""
        for task in self.tasks("confirm")[:3]:
            greedy = next(row for row in task if row["mode"] == "greedy")
            rows = csv.DictReader(io.StringIO(self.ok(
                "evaluate", "--model", MODEL, "--workload", "keys.jsonl", "--item", greedy["item"], "--cut", "question", "--policy",
                greedy["params"], "--budget", f"{greedy['budget_tokens']}", "--format", "csv", "--quiet")))
            for there, here in zip(rows, task):
                for column in ("right", "kept", "kl", "held_tokens"):
                    self.assertEqual(there[column], here[column], column)

    def test_a_stopped_choice_goes_on_to_the_same_bytes(self):
        shutil.copytree((self.folder / "choice"), (self.folder / "stopped"))
        for task in ("search-3", "search-5", "confirm-0"):
            shutil.rmtree((self.folder / "stopped") / "tasks" / task)
        shutil.rmtree((self.folder / "stopped") / "tables")
        self.goes_on("stopped", "--threads", "1")

    def goes_on(self, name, *more):
        """To the bytes of the choice that was never stopped, and nothing else is left."""
        said = self.ok(*self.choose(name, "--resume", *more))
        self.assertEqual(said.replace(name, "choice"), self.said)
        files = [{path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
                 for folder in (self.folder / "choice", self.folder / name)]
        self.assertEqual(files[0].keys(), files[1].keys())
        for path, whole in files[0].items():
            self.assertEqual(whole, files[1][path], path)

    def test_a_choice_killed_ten_times_goes_on_to_the_same_bytes(self):
        """Each time once a task more is there, somewhere in the next ones."""
        made = lambda: len(list((self.folder / "killed").glob("tasks/*/rows.csv.gz")))
        codes = []
        for kill in range(10):
            before = made()
            process = subprocess.Popen([KVSIM, *map(str, self.choose("killed", *(["--resume"] if kill else [])))], cwd=self.folder,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            while process.poll() is None and made() == before:
                time.sleep(0.002)
            time.sleep(0.01 * kill)
            process.kill()
            codes.append(process.wait())
        self.assertIn(-signal.SIGKILL, codes)
        self.goes_on("killed")

    def test_a_step_is_a_cap_as_cost_fit_says(self):
        """Each setting keeps what it may of a prompt of that length, and one token more would take longer."""
        served = "--machine", "a100-80-sxm", "--batch", "2000"
        said = self.ok(*self.choose("step", "--max-new-tokens", "4", cap=("--tpot", "1ms", *served)))
        self.assertRegex(said, "answers .* of 8 prompts")
        (task, *_) = self.tasks("search", "step")
        budgets = {row["params"]: int(row["budget_tokens"]) for row in task if not row["skipped"]}
        self.assertGreater(len(set(budgets.values())), 5)
        model = "--model", MODEL, *served, "--generate", "4"
        full = task[0]["item"]
        whole = json.loads(self.ok("evaluate", "--model", MODEL, "--workload", "keys.jsonl", "--item", full, "--cut", "question",
                                   "--policy", "window", "--budget", "100%", "--max-new-tokens", "4", "--format", "json", "--quiet"))
        prompt = int(whole["results"][0]["budget_tokens"])
        for params, tokens in list(budgets.items())[:6]:
            fit = json.loads(self.ok("cost", "fit", *model, "--prompt-tokens", prompt, "--policy", params, "--tpot", "1ms", "--format",
                                     "json", "--quiet"))["results"][0]
            self.assertEqual((fit["meets"], fit["budget_tokens"]), ("yes", tokens), params)
        dropped = {row["params"]: row["why"] for row in table(self.folder / "step" / "tables" / "tried.csv") if row["left"] == "price"}
        self.assertTrue(any(params.startswith("full()") for params in dropped), dropped)

    def test_what_an_engine_does_is_said_in_its_words(self):
        """The winner if one does it, else the nearest that answered, with what it kept."""
        self.assertRegex(self.said, r"engine     (none .*; nearest of those tried:\n           .*, which kept .* of \d+ prompts.*\n *)?"
                                    r"(kvpress|vLLM|SGLang|llama.cpp|OpenVINO GenAI): ")

    def test_recorded_runs_choose_by_what_replays_lose(self):
        runs = [f"run{index}.h5" for index in range(4)]
        for name, line in zip(runs, self.lines()):
            self.ok("capture", "--model", MODEL, "--workload", "keys.jsonl", "--item", json.loads(line)["id"], "--max-new-tokens", 4,
                    "--ignore-eos", "--quiet", "-o", name)
        traces = [word for name in runs for word in ("--trace", name)]
        said = self.ok("choose", *traces, "--share", "25%", "--cut", "question", "--settings", 20, "--quiet", "-o", "losses")
        tried = table(self.folder / "losses" / "tables" / "tried.csv")
        self.assertEqual(len(tried), 20)
        ran = [row for row in tried if not row["why"]]
        losses = [float(row["peak_loss"]) for row in ran]
        self.assertEqual(losses, sorted(losses))
        self.assertIn(f"setting    {ran[0]['setting']} at ", said)
        self.assertIn("orders policies as answers do on one model of two", said)
        self.page("losses", said, "peak_loss")
        # kvsim replay says the same of the two runs that chose, and of the two that confirm.
        (confirmed,) = table(self.folder / "losses" / "tables" / "confirmed.csv")
        of_runs = {}
        for row in ran[:3] + ran[-3:]:
            for name in runs:
                bytes_ = next(csv.DictReader(io.StringIO(self.ok("replay", name, "--policy", "window", "--budget", "100%", "--cut", "question",
                                                                 "--format", "csv", "--quiet"))))["kept_bytes"]
                cap = int(float(bytes_) * 0.25)
                found = next(csv.DictReader(io.StringIO(self.ok("replay", name, "--policy", row["params"], "--budget", f"{cap}B", "--cut",
                                                                "question", "--format", "csv", "--quiet"))))
                of_runs.setdefault(row["params"], {})[name] = float(found["peak_loss"])
        best = of_runs[ran[0]["params"]]
        halves = [(one, two) for one, two in itertools.combinations(runs, 2)
                  if math.isclose((best[one] + best[two]) / 2, losses[0], rel_tol=1e-9)]
        self.assertEqual(len(halves), 1)
        for row in ran[:3] + ran[-3:]:
            self.assertAlmostEqual(statistics.fmean(of_runs[row["params"]][name] for name in halves[0]), float(row["peak_loss"]))
        self.assertAlmostEqual(statistics.fmean(best[name] for name in runs if name not in halves[0]), float(confirmed["peak_loss"]))

    def test_what_cannot_be_chosen_is_refused(self):
        for arguments, said in (
                (self.choose("choice"), "holds a choice"),
                (self.choose("choice", "--resume", "--seed", "1"), "was asked for with other prompts, options"),
                (self.choose("other", cap=()), "give the cap as bytes, as a share"),
                (self.choose("other", cap=("--memory", "much")), "not a size: 'much'"),
                (self.choose("other", cap=("--share", "0%")), "leaves nothing"),
                (self.choose("other", cap=("--tpot", "1ms")), "--tpot and --machine: go together"),
                (self.choose("other", cap=("--share", "10%", "--machine", "a100-80-sxm")), "go together"),
                (self.choose("none", cap=("--tpot", "1us", "--machine", "a100-80-sxm")), "no setting fits"),
                (self.choose("."), "holds something else"),
                (["choose", "--share", "10%", "-o", "other"], "says what answers, and what"),
                (["choose", "--trace", "t.h5", "--share", "10%", "-o", "other"], "at least two recorded runs"),
                (["choose", "--trace", "t.h5", "--model", MODEL, "--share", "10%", "-o", "other"], "cannot be with a model"),
                (["choose", "--trace", "t.h5", "--trace", "t.h5", "--share", "10%", "-o", "choice"], "holds something else")):
            self.assertIn(said, self.fails(2, *arguments))
        few = (self.folder / "few.jsonl")
        few.write_text("".join(self.lines()[:7]))
        fewer = [word if word != "keys.jsonl" else "few.jsonl" for word in self.choose("other")]
        self.assertIn("takes at least 8 prompts", self.fails(2, *fewer))
        self.assertFalse((self.folder / "other").exists())


if __name__ == "__main__":
    kvsim_command.main()
