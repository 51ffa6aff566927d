#!/usr/bin/env python3
"""Tests kvsim view and kvsim trace show: what the page and the terminal show is what replay decided, control by control."""
import base64
import csv
import gzip
import json
import os
import pty
import re
import shutil
import subprocess
import unittest

import h5py
import numpy as np

import kvsim_command
from browser import CHROMIUM, Browser
from kvsim_command import KVSIM, SOURCE, CommandTest, said_at, without_digests

MODEL = SOURCE / "traces/sample/model"
ITEMS = 24
POLICIES = ["keydiff", "h2o", "streaming_llm"]
BUDGETS = ["5%", "10%", "30%"]
CUTS = ["question", "prompt"]
SHADES = [0.05, 0.15, 0.35, 0.65, 1]


class Trace:
    """What a page should say of a trace, from its file and from the file of decisions alone."""

    def __init__(self, path, decisions):
        with h5py.File(path) as file:
            offsets, text = file["text/offset"][...], file["text/bytes"][...].tobytes()
            self.tokens = [text[a:b].decode() for a, b in zip(offsets[:-1], offsets[1:])]
            self.evidence = (file["tokens/flags"][...] >> 5 & 1).astype(bool)
            self.keys = np.stack([self.floats(layer["k"]) for layer in self.layers(file)])
            self.queries = np.stack([self.floats(layer["q"]) for layer in self.layers(file)])
            self.scale = float(file["model"].attrs["attn_scale"])
        self.cells = {}
        for cut, name in decisions.items():
            with h5py.File(name) as file:
                self.prompt = {**getattr(self, "prompt", {}), cut: int(file.attrs["prompt_tokens"])}
                for cell in file["cells"].values():
                    key = (cut, cell.attrs["policy"].decode(), cell.attrs["budget"].decode())
                    self.cells[key] = [cell[name][...] for name in ("lane_ptr", "position", "first_step", "last_step")]
        self.lanes = len(next(iter(self.cells.values()))[0]) - 1
        self.answer = self.prompt["prompt"]

    @staticmethod
    def layers(file):
        return [file["layers"][name] for name in sorted(file["layers"])]

    @staticmethod
    def floats(tensor):
        data = tensor[...]
        return data.astype(np.float32) if data.dtype != np.uint16 else (data.astype(np.uint32) << 16).view(np.float32)

    def held(self, cut, policy, budget, step):
        """[lanes, tokens]: who holds what."""
        pointers, positions, first, last = self.cells[cut, policy, budget]
        held = np.zeros((self.lanes, len(self.tokens)), bool)
        for lane in range(self.lanes):
            stays = slice(pointers[lane], pointers[lane + 1])
            there = (first[stays] <= step) & (step < last[stays])
            held[lane, positions[stays][there]] = True
        return held

    def attention(self, position):
        """[lanes, position + 1]: the mean over a lane's query heads of the row of the query at a position."""
        group = self.queries.shape[1] // self.keys.shape[1]
        keys = np.repeat(self.keys, group, axis=1)[:, :, :position + 1]
        logits = self.scale * np.einsum("lhd,lhnd->lhn", self.queries[:, :, position].astype(float), keys.astype(float))
        rows = np.exp(logits - logits.max(-1, keepdims=True))
        rows /= rows.sum(-1, keepdims=True)
        return rows.reshape(self.lanes, group, -1).mean(1)


# What is on a page: of each panel its tokens, with their text and what they look like.
READ = """
const panels = {};
for (const panel of document.querySelectorAll("#texts .panel")) {
  const tokens = {};
  for (const span of panel.querySelectorAll("[data-u]")) {
    const known = tokens[span.dataset.u] ??= {text: "", look: span.className};
    known.text += span.textContent;
  }
  const lines = [...panel.querySelectorAll(".chunk > div:not(.divider)")];
  panels[panel.dataset.policy] = {tokens, text: lines.map((line) => line.textContent).join("")};
}
return panels;
"""
BY_POLICY = """return Object.fromEntries([...document.querySelectorAll("#%s > div")].map((each) => [each.dataset.policy, each.innerText]))"""
HEADS, HOLDERS = BY_POLICY % "heads", BY_POLICY % "holders"
CUT_OFF = """return [...document.querySelectorAll("#texts .chunk > div")].filter((line) => line.scrollWidth > line.clientWidth + 6)
    .map((line) => line.textContent)"""
WORD = """return document.getElementById("word").innerText"""


def choose(control, value):
    return f"""const control = document.getElementById({json.dumps(control)}); control.value = {json.dumps(value)};
        control.dispatchEvent(new Event("input", {{bubbles: true}})); control.dispatchEvent(new Event("change", {{bubbles: true}}));"""


def expected_look(share):
    return "gone" if share == 0 else f"s{next(i for i, most in enumerate(SHADES, 1) if share <= most + 1e-6)}"


class Pages(CommandTest):
    """Pages of what the sample model reads."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if CHROMIUM is None:
            raise unittest.SkipTest("chromium is not installed")
        cls.made("workload", "needle-multi-key", "--context", 260, "--count", ITEMS, "--tokenizer", MODEL, "-o", "items.jsonl")
        cls.items = [json.loads(line)["id"] for line in (cls.folder / "items.jsonl").read_text().splitlines()]
        cls.capture(0)
        cls.browser = Browser()
        cls.addClassCleanup(cls.browser.__exit__)
        cls.browser.size(1400)

    @classmethod
    def made(cls, *arguments):
        done = cls.kvsim(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    @classmethod
    def capture(cls, i):
        """Captures item i, and shows and decides what every policy does with it."""
        name = f"item{i}"
        cls.made("capture", "--model", MODEL, "--workload", "items.jsonl", "--item", cls.items[i], "--max-new-tokens", 5, "--quiet", "-o",
                 f"{name}.h5")
        asked = ["--policy", ",".join(POLICIES), "--budget", ",".join(BUDGETS)]
        for cut in CUTS:
            cls.made("replay", f"{name}.h5", *asked, "--cut", cut, "--decisions", f"{name}.{cut}.h5", "--quiet")
        cls.made("view", f"{name}.h5", *asked, "--cut", ",".join(CUTS), "--quiet", "-o", f"{name}.html")
        return cls.folder / f"{name}.html", Trace(cls.folder / f"{name}.h5", {cut: cls.folder / f"{name}.{cut}.h5" for cut in CUTS})

    def setUp(self):
        self.trace = Trace(self.folder / "item0.h5", {cut: self.folder / f"item0.{cut}.h5" for cut in CUTS})
        self.open("item0.html")

    def open(self, name, fragment=""):
        self.browser.problems.clear()
        self.browser.open(self.folder / name, fragment)

    def run_page(self, script):
        return self.browser.run(script)

    def set(self, **values):
        for control, value in values.items():
            self.run_page(choose(control, value))

    def whole(self):
        """Everything that is on the page when it is printed."""
        self.run_page("dispatchEvent(new Event('beforeprint'))")
        panels = self.run_page(READ)
        self.run_page("dispatchEvent(new Event('afterprint'))")
        return panels

    def check_words(self, trace, panels, cut, budget, step, lanes=slice(None)):
        there = trace.prompt[cut] + step
        for policy in panels:
            held = trace.held(cut, policy, budget, step)[lanes]
            shown = panels[policy]
            self.assertEqual(shown["text"].replace("↵", "\n"), "".join(trace.tokens))
            for token, text in enumerate(trace.tokens):
                look = shown["tokens"].get(str(token), {"look": ""})["look"].split()
                wanted = "later" if token >= there else expected_look(held[:, token].mean())
                self.assertIn(wanted, look, (policy, budget, cut, step, token, text))
                self.assertEqual("evidence" in look, bool(trace.evidence[token]), (token, text))
                self.assertEqual(sum(name in look for name in ("gone", "later", "s1", "s2", "s3", "s4", "s5")), 1, look)

    def test_words_of_every_prompt_are_those_of_decisions(self):
        for i in range(ITEMS):
            page, trace = self.capture(i) if i > 0 else (self.folder / "item0.html", self.trace)
            self.open(page.name)
            for cut, budget, step in (("question", i % 3, None), ("prompt", (i + 1) % 3, 3)):
                self.set(cut=CUTS.index(cut), budget=budget, **({} if step is None else {"step": step}))
                # It begins where the first token behind the prompt is chosen.
                step = trace.answer - trace.prompt[cut] if step is None else step
                panels = self.whole()
                self.assertEqual(list(panels), POLICIES)
                self.check_words(trace, panels, cut, BUDGETS[budget], step)
            self.assertEqual(self.browser.problems, [])

    def test_every_step_and_a_lane_alone(self):
        steps = len(self.trace.tokens) - self.trace.prompt["question"]
        for step in (0, 1, steps, 2):  # there and back
            self.set(budget=1, step=step)
            self.check_words(self.trace, self.whole(), "question", "10%", step)
        for layer, head, lanes in ((2, -1, slice(8, 12)), (2, 3, slice(11, 12)), (-1, 1, slice(1, None, 4))):
            self.set(layer=layer, head=head)
            self.check_words(self.trace, self.whole(), "question", "10%", 2, lanes)

    def test_heads_say_what_is_held_and_what_attention_is_left(self):
        rows = {(row["policy"], row["budget"], row["step"]): row["attention_loss"] for row in self.rows(
            "item0.h5", "--policy", ",".join(POLICIES), "--budget", ",".join(BUDGETS), "--cut", "question", "--per", "step")}
        for budget, step in ((0, 1), (2, 4)):
            self.set(budget=budget, step=step)
            heads = self.run_page(HEADS)
            for policy in POLICIES:
                held = self.trace.held("question", policy, BUDGETS[budget], step)
                evidence = held[:, self.trace.evidence].mean()
                loss = rows[policy, BUDGETS[budget], step]
                self.assertAlmostEqual(self.percent(heads[policy], r"evidence held\s+"), evidence, delta=0.0051)
                self.assertAlmostEqual(self.percent(heads[policy], r"attention left\s+"), 1 - loss, delta=0.0051)
                gone, words = map(int, re.search(r"words gone\s+(\d+) of (\d+)", heads[policy]).groups())
                lost = self.whole()[policy]["tokens"]
                self.assertLessEqual(gone, sum("gone" in each["look"] for each in lost.values()))
                self.assertGreater(words, gone)

    @staticmethod
    def percent(text, before):
        return float(re.search(before + r"([\d.]+) %", text)[1]) / 100

    def test_pointing_at_a_word_says_who_holds_it_and_what_attention_it_gets(self):
        step = 3
        self.set(budget=1, step=step)
        position = self.trace.prompt["question"] - 1 + step
        rows = self.trace.attention(position)
        mean = rows.mean(0)
        best = np.argsort(-mean)[:64]
        evidence = np.flatnonzero(self.trace.evidence)
        for token in (int(best[0]), int(best[5]), int(evidence[1]), int(np.argmin(mean))):
            self.run_page(f"""scrollTo(0, 0); document.getElementById("next").click();
                dispatchEvent(new Event("beforeprint"));
                document.querySelector('#texts [data-u="{token}"]').dispatchEvent(new Event("pointerover", {{bubbles: true}}));""")
            said, holders = self.run_page(WORD), self.run_page(HOLDERS)
            self.assertIn(f"token {token}", said)
            self.assertEqual("evidence" in said, bool(self.trace.evidence[token]))
            if token in best:
                self.assertAlmostEqual(self.percent(said, r"pays it "), mean[token], delta=0.0051 + 0.03 * mean[token])
            else:
                self.assertIn("not among the 64", said)
            for policy in POLICIES:
                for budget in BUDGETS:
                    held = self.trace.held("question", policy, budget, step)[:, token]
                    self.assertIn(f"{budget}: {held.sum()}", holders[policy].replace("\u00a0", " "))
                held = self.trace.held("question", policy, "10%", step)[:, token]
                self.assertIn(f"{held.sum()} of {self.trace.lanes} lanes hold it", holders[policy])
                if token in best:
                    left = (rows[:, token] * held).sum() / rows[:, token].sum()
                    self.assertAlmostEqual(self.percent(holders[policy], r"(?m)^"), left, delta=0.0075)

    def test_one_lane_alone_has_its_own_attention(self):
        step = 3
        position = self.trace.prompt["question"] - 1 + step
        rows = self.trace.attention(position)
        lane = 11  # layer 2, head 3
        self.set(budget=1, step=step, layer=2, head=3)
        best = np.argsort(-rows[lane], kind="stable")[:16]
        stored = self.run_page("return [[...row.positions], [...row.shares]]")
        self.assertEqual(set(stored[0]), {each for each in best.tolist() if rows[lane, each] >= 2**-16})
        for token, share in zip(*stored):
            self.assertAlmostEqual(share, rows[lane, token], delta=0.03 * rows[lane, token])
        heads = self.run_page(HEADS)
        for policy in POLICIES:
            held = self.trace.held("question", policy, "10%", step)[lane, :position + 1]
            self.assertAlmostEqual(self.percent(heads[policy], r"attention left\s+"), rows[lane][held].sum(), delta=0.0075)
            left = self.run_page(f"return attentionTo(view.unitOf[{best[0]}], {POLICIES.index(policy)}).left")
            self.assertAlmostEqual(left, float(held[best[0]]), delta=1e-6)
        # A layer: the mean of its lanes' largest entries.
        self.set(layer=2, head=-1)
        of_layer = dict(zip(*self.run_page("return [[...row.positions], [...row.shares]]")))
        wanted = np.zeros(position + 1)
        for each in range(8, 12):
            largest = np.argsort(-rows[each], kind="stable")[:16]
            wanted[largest] += np.where(rows[each, largest] >= 2**-16, rows[each, largest], 0) / 4
        self.assertEqual(set(of_layer), set(np.flatnonzero(wanted).tolist()))
        for token, share in of_layer.items():
            self.assertAlmostEqual(share, wanted[token], delta=0.03 * wanted[token])
        self.set(head=-1, layer=-1)

    def test_scores_are_ranks_of_the_prompt(self):
        """Exactly those of l2_norm, whose score is a key's length; and every policy keeps what it ranks best."""
        self.made("view", "item0.h5", "--policy", "l2_norm,h2o,snapkv,streaming_llm", "--budget", "20%,40%", "--cut", "question", "--quiet",
                  "-o", "ranks.html")
        self.made("replay", "item0.h5", "--policy", "l2_norm,h2o,snapkv", "--budget", "20%,40%", "--cut", "question", "--decisions",
                  "ranks.h5", "--quiet")
        trace = Trace(self.folder / "item0.h5", {"question": self.folder / "ranks.h5", "prompt": self.folder / "item0.prompt.h5"})
        prompt = trace.prompt["question"]
        self.open("ranks.html", "#budget=0&step=0")
        ranks = {}
        for lane in (0, 6, 11):
            self.set(layer=lane // 4, head=lane % 4)
            for policy in range(3):
                for budget in range(2):
                    ranks[policy, budget, lane] = np.array(self.run_page(
                        f"""const cell = cellOf({policy}, {budget});
                        return Array.from({{length: {prompt}}}, (_, token) => rankOf(cell, {{first: token, end: token + 1}}))"""))
        shares = np.array([0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1])
        keys = trace.keys.reshape(-1, *trace.keys.shape[2:])
        for lane in (0, 6, 11):
            length = np.linalg.norm(keys[lane, :prompt].astype(float), axis=-1)
            free = ranks[0, 0, lane] > 0
            better = (length[free][None, :] < length[free][:, None]).sum(1) / free.sum()
            wanted = 1 + np.searchsorted(shares, better, side="right")
            self.assertLessEqual((wanted != ranks[0, 0, lane][free]).sum(), 1)  # lengths that floats round to the same
        for (policy, budget, lane), own in ranks.items():
            held = trace.held("question", ["l2_norm", "h2o", "snapkv"][policy], ["20%", "40%"][budget], 0)[lane, :prompt]
            self.assertTrue(held[own == 0].all())
            self.assertLessEqual(own[held & (own > 0)].max(), own[~held].min())
        self.set(layer=-1, head=-1)
        self.run_page("go(view.unitOf[200], false)")
        holders = self.run_page(HOLDERS)
        self.assertIn("score: ", holders["h2o"])
        self.assertNotIn("score", holders["streaming_llm"])
        of_lanes = sorted(self.run_page("""const out = [];
            for (let lane = 0; lane < view.lanes; lane++) {
              state.layer = Math.floor(lane / view.heads); state.head = lane % view.heads; out.push(rankOf(cellOf(1), view.units[view.unitOf[200]]));
            }
            state.layer = state.head = -1;
            return out;"""))
        self.assertEqual(self.run_page("return rankOf(cellOf(1), view.units[view.unitOf[200]])"), of_lanes[(len(of_lanes) - 1) // 2])

    def test_answers_are_those_of_the_closed_loop(self):
        asked = ["--policy", ",".join(POLICIES), "--budget", ",".join(BUDGETS), "--cut", ",".join(CUTS), "--quiet"]
        self.made("evaluate", "--model", MODEL, "--workload", "items.jsonl", *asked, "--mode", "greedy", "--format", "csv", "-o", "answers.csv")
        self.made("view", "item0.h5", *asked, "--answers", "answers.csv", "-o", "read.html")
        self.made("view", "item0.h5", *asked, "--model", MODEL, "--workload", "items.jsonl", "-o", "run.html")
        self.assertEqual((self.folder / "read.html").read_bytes(), (self.folder / "run.html").read_bytes())
        with open(self.folder / "answers.csv", newline="") as file:
            rows = {(row["cut"], row["budget"], row["policy"]): row for row in csv.DictReader(file) if row["item"] == self.items[0]}
        self.open("read.html")
        seen = set()
        for c, cut in enumerate(CUTS):
            for b, budget in enumerate(BUDGETS):
                self.set(cut=c, budget=b)
                heads = self.run_page(HEADS)
                for policy in POLICIES:
                    row = rows[cut, budget, policy]
                    said = "✓ right" if row["right"] == "1" else "✗ wrong"
                    generated = re.sub(" +", " ", row["generated"].strip().replace("\n", "↵"))
                    self.assertIn(f"{said} “{generated}”" if generated else f"{said}: nothing", heads[policy])
                    seen.add(said)
            full = "right" if rows[cut, "10%", "h2o"]["right_full"] == "1" else "wrong"
            self.assertIn(f"the full cache’s answer begins: {full}", self.run_page("return lines.filter((line) => typeof line === 'string').join()"))
        self.assertEqual(len(seen), 2)
        # Without a workload what was recorded is right; an oracle has no answer.
        self.made("view", "item0.h5", "--policy", "full,h2o,optimal", "--budget", "10%", "--model", MODEL, "--quiet", "-o", "recorded.html")
        self.open("recorded.html")
        heads = self.run_page(HEADS)
        self.assertIn("✓ right", heads["full"])
        self.assertNotRegex(heads["optimal"], "right|wrong")

    def test_answers_of_something_else_are_refused(self):
        asked = ["view", "item0.h5", "--policy", "h2o", "--budget", "10%", "--quiet", "-o", "never.html"]
        self.ok("replay", "item0.h5", "--policy", "h2o", "--budget", "10%", "--format", "csv", "-o", "replayed.csv")
        self.assertIn("kvsim evaluate", self.fails(3, *asked, "--answers", "replayed.csv"))
        self.ok("evaluate", "--model", MODEL, "--workload", "items.jsonl", "--item", self.items[1], "--policy", "h2o", "--budget", "10%",
                "--mode", "greedy", "--format", "csv", "-o", "other.csv", "--quiet")
        self.assertIn(self.items[0], self.fails(3, *asked, "--answers", "other.csv"))
        self.assertIn("--model", self.fails(2, *asked, "--workload", "items.jsonl"))
        self.assertIn("--answers", self.fails(2, *asked, "--answers", "other.csv", "--model", MODEL))

    def test_marks_are_those_of_the_figures(self):
        self.made("plot", "quality", self.rows_file(), "-o", "quality.svg", "--overwrite")
        colours = self.run_page("""return [...document.querySelectorAll("#heads h2")].map((head) =>
            [head.textContent, head.querySelector("svg > *").getAttribute("stroke")])""")
        self.assertEqual([name for name, _ in colours], POLICIES)
        drawn = (self.folder / "quality.svg").read_text().lower()
        for name, colour in colours:
            rgb = ",".join(str(int(colour[i:i + 2], 16)) for i in (1, 3, 5))
            self.assertTrue(colour.lower() in drawn or rgb in drawn.replace(" ", ""), (name, colour))

    def rows_file(self):
        self.made("replay", "item0.h5", "--policy", ",".join(POLICIES), "--budget", ",".join(BUDGETS), "--format", "csv", "--quiet",
                  "-o", "quality.csv", "--overwrite")
        return "quality.csv"

    def test_a_generated_token_shows_what_it_attended(self):
        token = self.trace.answer + 1
        step = token - self.trace.prompt["question"] + 1
        self.assertFalse(self.run_page("return document.getElementById('attention').checked"))
        self.run_page("scrollTo(0, 1e6); await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));")
        x, y = self.run_page(f"""const box = document.querySelector('[data-u="{token}"]').getBoundingClientRect();
            return [box.x + box.width / 2, box.y + box.height / 2]""")
        self.browser.click(x, y)
        self.assertEqual(self.run_page("return [document.getElementById('step').value, document.getElementById('attention').checked]"),
                         [str(step), True])
        self.assertIn(f"{step} of", self.run_page("return document.getElementById('step-said').innerText"))
        self.run_page("dispatchEvent(new Event('beforeprint'))")
        bars = self.run_page("""return Object.fromEntries([...document.querySelectorAll('[data-policy="h2o"] .lines [data-u]')]
            .filter((span) => span.style.getPropertyValue("--h-paid"))
            .map((span) => [span.dataset.u, ["paid", "left"].map((name) => parseFloat(span.style.getPropertyValue("--h-" + name)))]))""")
        rows = self.trace.attention(token)
        best = set(np.argsort(-rows.mean(0))[:64].tolist())
        self.assertEqual({int(each) for each in bars}, best)
        held = self.trace.held("question", "h2o", "10%", step)
        for each, (paid, left) in bars.items():
            column = rows[:, int(each)]
            self.assertAlmostEqual(left / paid, (column * held[:, int(each)]).sum() / column.sum(), delta=0.003)

    def test_the_difference_of_two_policies(self):
        self.set(budget=1, first=0, second=2)
        panels = self.whole()
        self.assertEqual(list(panels), ["keydiff", "keydiff − streaming_llm", "streaming_llm"])
        step = self.trace.answer - self.trace.prompt["question"]
        shares = [self.trace.held("question", POLICIES[i], "10%", step).mean(0) for i in (0, 2)]
        for token, shown in panels["keydiff − streaming_llm"]["tokens"].items():
            a, b = shares[0][int(token)], shares[1][int(token)]
            if int(token) >= self.trace.prompt["question"] + step:
                wanted = "later"
            elif a == 0 and b == 0:
                wanted = "gone"
            elif abs(a - b) <= 0.05 + 1e-6:
                wanted = "same"
            else:
                wanted = ("a" if a > b else "b") + str(sum(abs(a - b) > most + 1e-6 for most in SHADES))
            self.assertIn(wanted, shown["look"].split(), (token, a, b))
        self.set(first=-1)
        self.assertEqual(list(self.whole()), POLICIES)

    def test_policies_the_theme_and_the_keyboard(self):
        self.run_page("document.querySelector('#policies input[value=\"1\"]').click()")
        self.assertEqual(list(self.run_page(READ)), ["keydiff", "streaming_llm"])
        self.run_page("document.querySelector('#policies input[value=\"1\"]').click()")
        self.assertEqual(list(self.run_page(READ)), POLICIES)
        page = self.run_page("return getComputedStyle(document.body).backgroundColor")
        self.run_page("document.getElementById('theme').click()")
        self.assertNotEqual(self.run_page("return getComputedStyle(document.body).backgroundColor"), page)
        self.run_page("document.getElementById('texts').focus()")
        self.browser.key("Home")
        for key, token in (("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1)):
            self.browser.key(key)
            self.assertIn(f"token {token}", self.run_page(WORD))
        self.browser.key("ArrowDown")
        line = self.run_page("""const line = document.querySelector(".panel .at").parentElement;
            return [...line.parentElement.children].indexOf(line)""")
        self.assertEqual(line, 1)
        self.browser.key("End")
        last = len(self.trace.tokens) - 1
        self.assertIn(f"token {last}", self.run_page(WORD))
        self.browser.key("Enter")
        self.assertEqual(self.run_page("return document.getElementById('step').value"), str(last + 1 - self.trace.prompt["question"]))
        self.assertEqual(self.run_page("return document.activeElement.id"), "texts")

    def test_a_moment_has_an_address(self):
        self.set(budget=2, cut=1, step=2, layer=1)
        address = self.run_page("return location.hash")
        self.open("item0.html", address)
        self.assertEqual(self.run_page("return ['budget', 'cut', 'step', 'layer'].map((name) => document.getElementById(name).value)"),
                         ["2", "1", "2", "1"])
        for hostile in ("#budget=99&cut=-3&step=1e9&layer=x&shown=7,,&first=50", "#%E0%A4%A&constructor=1"):
            self.open("item0.html", hostile)
            self.assertEqual(self.browser.problems, [])
            self.assertTrue(self.run_page(READ))

    def test_narrow_wide_light_dark_and_paper(self):
        colours = """
            const parts = (text) => text.match(/[\\d.]+/g).map(Number);
            const level = (c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
            const light = (text) => { const [r, g, b] = parts(text).map(level); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
            const page = getComputedStyle(document.body).backgroundColor;
            return Object.fromEntries(["gone", "later", "s1", "s2", "s3", "s4", "s5", "a1", "a4", "b1", "b4"].map((name) => {
              const word = document.createElement("span");
              word.className = "w " + name;
              document.querySelector(".lines").append(word);
              const style = getComputedStyle(word), back = parts(style.backgroundColor)[3] === 0 ? page : style.backgroundColor;
              const [a, b] = [light(style.color), light(back)].sort((x, y) => y - x);
              word.remove();
              return [name, (a + 0.05) / (b + 0.05)];
            }));"""
        self.addCleanup(self.browser.size, 1400)
        for width in (420, 1280, 1920):
            for dark in (False, True):
                self.browser.size(width, 900, dark)
                self.open("item0.html")
                self.assertLessEqual(self.run_page("return document.documentElement.scrollWidth"), width)
                self.assertEqual(self.run_page(CUT_OFF), [])
                for name, contrast in self.run_page(colours).items():
                    self.assertGreaterEqual(contrast, 4.5, (width, dark, name))
        self.browser.size(420, 900)
        self.open("item0.html")
        self.assertEqual(len(self.run_page(READ)), 2)
        self.browser.send("Emulation.setEmulatedMedia", media="print")
        self.addCleanup(self.browser.send, "Emulation.setEmulatedMedia", media="")
        self.check_words(self.trace, self.whole(), "question", "10%", self.trace.answer - self.trace.prompt["question"])
        self.assertEqual(self.run_page("return getComputedStyle(document.getElementById('bar')).position"), "static")
        self.run_page("dispatchEvent(new Event('beforeprint')); document.body.style.width = '250px';")
        self.assertEqual(self.run_page(CUT_OFF), [])
        self.assertGreater(len(base64.b64decode(self.browser.send("Page.printToPDF")["data"])), 10000)

    def test_only_what_is_on_the_screen_is_drawn(self):
        self.browser.size(1400, 500)
        self.addCleanup(self.browser.size, 1400)
        self.run_page("scrollTo(0, 0); await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));")
        shown = self.run_page(READ)["h2o"]["tokens"]
        self.assertIn("0", shown)
        self.assertNotIn(str(len(self.trace.tokens) - 1), shown)

    # What texts of others might try, a token each; one character is cut in two, and one byte is none.
    HOSTILE = [b"</script><script>document.title='owned'</script>", b"<!--", b"\x00\x1b[31m", "\u202eevil\u2066".encode(),
               b"{{data}}{{script}}", "مرحبا".encode(), b"\xf0\x9f", b"\x98\x80", b"\xff", b"&lt;b&gt;", b" \r\n\t x", b"" , "語".encode() * 70, b"=" * 300]

    def hostile_trace(self):
        shutil.copy(self.folder / "item0.h5", self.folder / "hostile.h5")
        with h5py.File(self.folder / "hostile.h5", "r+") as file:
            without_digests(file)
            offsets, text = file["text/offset"][...], file["text/bytes"][...].tobytes()
            tokens = [text[a:b] for a, b in zip(offsets[:-1], offsets[1:])]
            tokens[20:20 + len(self.HOSTILE)] = self.HOSTILE
            joined = b"".join(tokens)
            del file["text/bytes"], file["text/offset"]
            file["text/bytes"] = np.frombuffer(joined, np.uint8)
            file["text/offset"] = np.cumsum([0, *map(len, tokens)]).astype(np.uint64)
            name = b"</title><script>alert(1)</script>"
            del file["model"].attrs["name"]
            file["model"].attrs.create("name", name, dtype=f"S{len(name)}")
        return tokens

    def test_hostile_texts_stay_texts(self):
        self.hostile_trace()
        self.made("view", "hostile.h5", "--policy", "h2o", "--budget", "10%", "--quiet", "-o", "hostile.html",
                  "--title", "</title><script>alert(2)</script>")
        self.open("hostile.html")
        self.assertEqual(self.browser.problems, [])
        self.assertEqual(self.run_page("return document.title"), "</title><script>alert(2)</script>")
        self.assertEqual(self.run_page("return document.scripts.length"), 1)  # its own; the data are taken away
        self.assertIn("<script>alert(1)</script>", self.run_page("return document.getElementById('about').innerText"))
        text = self.whole()["h2o"]["text"]
        for shown in ("</script><script>document.title='owned'</script>", "<!--", "⟨0⟩⟨1b⟩[31m", "⟨202e⟩evil⟨2066⟩", "{{data}}{{script}}",
                      "مرحبا", "😀", "\ufffd", "&lt;b&gt;", " ␍↵⇥  x", "語" * 70, "=" * 300):
            self.assertIn(shown, text)
        source = (self.folder / "hostile.html").read_text()
        self.assertEqual(source.count("<script"), 2)
        self.assertNotIn("owned", source)
        policy = re.search(r'Content-Security-Policy" content="([^"]*)"', source)[1]
        self.assertIn("default-src &#39;none&#39;", policy)
        self.assertNotRegex(source, r"(src|href)\s*=|url\(|@import")
        self.assertEqual(self.run_page(CUT_OFF), [])

    def test_a_trace_without_text_shows_ids(self):
        self.made("view", "t.h5", "--policy", "h2o", "--budget", "25%", "--quiet", "-o", "t.html")
        self.open("t.html")
        with h5py.File(self.folder / "t.h5") as file:
            ids = file["tokens/id"][...]
        self.assertEqual(self.whole()["h2o"]["text"], "".join(f" #{each}" for each in ids))

    def test_a_cell_that_cannot_run_says_so(self):
        self.made("view", "item0.h5", "--policy", "h2o,streaming_llm", "--budget", "3,10%", "--quiet", "-o", "skipped.html")
        self.open("skipped.html", "#budget=0")
        self.assertIn("Not run:", self.run_page(HEADS)["streaming_llm"])
        self.assertNotIn("Not run:", self.run_page(HEADS)["h2o"])
        self.set(budget=1)
        self.assertNotIn("Not run:", self.run_page(HEADS)["streaming_llm"])

    def test_stored_codes_have_words_and_no_attention_left(self):
        self.made("view", "item0.h5", "--policy", "h2o+kivi,h2o", "--budget", "10%", "--quiet", "-o", "codes.html")
        self.open("codes.html")
        heads = self.run_page(HEADS)
        self.assertIn("attention left", heads["h2o"])
        self.assertNotIn("attention left", heads["h2o+kivi"])
        panels = self.whole()
        self.assertEqual({token: each["look"] for token, each in panels["h2o"]["tokens"].items()},
                         {token: each["look"] for token, each in panels["h2o+kivi"]["tokens"].items()})

    def test_same_bytes_every_time_whatever_the_threads(self):
        asked = ["view", "item0.h5", "--policy", ",".join(POLICIES), "--budget", ",".join(BUDGETS), "--cut", ",".join(CUTS), "--quiet"]
        self.made(*asked, "--threads", 1, "-o", "again.html")
        self.assertEqual((self.folder / "again.html").read_bytes(), (self.folder / "item0.html").read_bytes())


class Sizes(CommandTest):
    def test_eight_policies_six_budgets_2000_tokens_32_lanes_are_under_3_mb(self):
        self.ok("trace", "generate", "--layers", 4, "--kv-heads", 8, "--group", 1, "--head-dim", 8, "--prompt-tokens", 1984, "--decode", 16,
                "-o", "long.h5")
        self.ok("view", "long.h5", "--policy", "keydiff,h2o,snapkv,tova,random,lagkv,streaming_llm,l2_norm",
                "--budget", "5%,10%,20%,30%,40%,50%", "--quiet", "-o", "long.html")
        page = (self.folder / "long.html").read_text()
        self.assertLess(len(page), 3_000_000)
        packed = gzip.decompress(base64.b64decode(re.search(r'id="data">([^<]*)<', page)[1]))
        self.assertLess(8 * len(packed), 4 * 8 * 6 * 2000 * 32)


class Show(CommandTest):
    prompt, decode = 40, 4

    def test_marks_are_those_of_decisions(self):
        self.ok("trace", "mark", "t.h5", "--evidence", "7:10,20", "-o", "marked.h5")
        with h5py.File(self.folder / "marked.h5") as file:
            words = [f" #{each}" for each in file["tokens/id"][...]]
        plain = self.ok("trace", "show", "marked.h5")
        self.assertEqual(plain, "".join(words[:7]) + "[[" + "".join(words[7:10]) + "]]" + "".join(words[10:20]) + "[[" + words[20] + "]]" +
                         "".join(words[21:]) + "\n\n")
        asked = ["marked.h5", "--policy", "streaming_llm", "--budget", "30%", "--cut", "36", "--quiet"]
        self.ok("replay", *asked, "--decisions", "d.h5")
        said, text = self.ok("trace", "show", *asked).rstrip("\n").split("\n\n")
        with h5py.File(self.folder / "d.h5") as file:
            cell = file["cells/0000"]
            there = (cell["first_step"][...] <= 4) & (4 < cell["last_step"][...])
            held = set(cell["position"][...][there].tolist())
        self.assertEqual(said, f"streaming_llm at 30%, cut 36, step 4 of 8: no lane holds {40 - len(held)} of 40 tokens; "
                               f"{25 * len(held & {7, 8, 9, 20})} % of lanes hold the evidence")
        self.assertEqual(text.replace("[[", "").replace("]]", "").replace("~~", ""), "".join(words))
        state, struck = False, set()
        for token, piece in zip(range(len(words)), re.findall(r"[\[\]~]* #\d+", text)):
            state ^= piece.count("~~") % 2 == 1
            if state:
                struck.add(token)
        self.assertEqual(struck, set(range(40)) - held)

    def at_terminal(self, *arguments, **environment):
        master, slave = pty.openpty()
        work = subprocess.Popen([KVSIM, *map(str, arguments)], cwd=self.folder, stdin=subprocess.DEVNULL, stdout=slave,
                                stderr=subprocess.DEVNULL, env={**{k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "TERM")}, **environment})
        os.close(slave)
        said = said_at(master)
        self.assertEqual(work.wait(timeout=100), 0)
        return said.decode().replace("\r\n", "\n")

    def test_colours_at_a_terminal_that_wants_them(self):
        asked = ["trace", "show", "t.h5", "--policy", "h2o", "--budget", "30%", "--quiet"]
        plain = self.ok(*asked)
        coloured = self.at_terminal(*asked, TERM="xterm-256color")
        self.assertIn("\x1b[0;2;9m", coloured)
        self.assertIn("48;5;", coloured)
        self.assertEqual(re.sub(r"\x1b\[[\d;]*m", "", coloured), plain.replace("~~", ""))
        for refused in ({"TERM": "xterm-256color", "NO_COLOR": "1"}, {"TERM": "dumb"}, {}):
            self.assertEqual(self.at_terminal(*asked, **refused), plain)

    def test_control_characters_reach_no_terminal(self):
        shutil.copy(self.folder / "t.h5", self.folder / "evil.h5")
        with h5py.File(self.folder / "evil.h5", "r+") as file:
            without_digests(file)
            tokens = [b" \x1b[2J", "\u009b".encode()[:1], "\u009b".encode()[1:], *[b" x"] * (len(file["tokens/id"]) - 3)]
            file["text/bytes"] = np.frombuffer(b"".join(tokens), np.uint8)
            file["text/offset"] = np.cumsum([0, *map(len, tokens)]).astype(np.uint64)
            file.attrs.modify("features", np.uint64(int(file.attrs["features"]) | 64))
        for asked in ([], ["--policy", "h2o", "--budget", "30%", "--quiet"]):
            said = self.at_terminal("trace", "show", "evil.h5", *asked, TERM="xterm-256color")
            self.assertIn("\\x1b[2J", said)
            self.assertNotRegex(re.sub(r"\x1b\[[\d;]*m", "", said), "[\x00-\x08\x0b-\x1f\x7f-\x9f]")

    def test_refusals(self):
        self.assertIn("--budget", self.fails(2, "trace", "show", "t.h5", "--policy", "h2o"))
        self.assertIn("--policy", self.fails(2, "trace", "show", "t.h5", "--budget", "10%"))
        asked = ["view", "t.h5", "--policy", "h2o", "--budget", "25%"]
        self.assertIn("HTML", self.fails(2, *asked, "-o", "never.pdf"))
        self.assertIn("--policy", self.fails(2, "view", "t.h5", "--budget", "25%", "-o", "never.html"))
        self.assertIn("no cell can be evaluated", self.fails(2, "view", "t.h5", "--policy", "streaming_llm", "--budget", "2", "--quiet",
                                                             "-o", "never.html"))
        self.assertIn("sequence", self.fails(2, *asked, "--sequence", "7", "-o", "never.html"))
        self.assertFalse((self.folder / "never.html").exists())
        (self.folder / "there.html").write_text("mine")
        self.assertIn("--overwrite", self.fails(2, *asked, "-o", "there.html"))
        self.assertEqual((self.folder / "there.html").read_text(), "mine")
        self.assertTrue(self.ok(*asked, "--quiet", "-o", "-").startswith("<!DOCTYPE html>"))


if __name__ == "__main__":
    kvsim_command.main()
