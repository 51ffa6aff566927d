#!/usr/bin/env python3
"""The page of kvsim report in headless Chromium: every control is moved, what it shows is read back and compared with the tables of the
study, and every point of a live figure with the data that gnuplot draws."""
import csv
import gzip
import json
import re
import unittest

import browser
import kvsim_command
from kvsim_command import SOURCE, CommandTest


class Report(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if browser.CHROMIUM is None:
            raise unittest.SkipTest("chromium is not installed")
        for i in range(6):
            cls.make_trace(f"t{i}.h5", 80, 8, "--seed", 40 + i)
        (cls.folder / "study.json").write_text(json.dumps({
            "traces": [{"files": "t[0-2].h5", "workload": "alpha"}, {"files": "t[3-5].h5", "workload": "<b>beta"}],
            "policies": ["full", "window", "h2o", "tova", "streaming_llm(sinks=0)", "random", "snapkv", "keydiff", "l2_norm", "lagkv", "optimal"],
            "budgets": ["10%", "25%", "50%"], "scopes": ["all", "layer"], "analyses": ["hash", "importance"]}))
        made = cls.kvsim("study", "study.json", "-o", "made", "--quiet")
        assert made.returncode == 0, made.stderr
        cls.tab = browser.Browser().__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.tab.__exit__()
        super().tearDownClass()

    def opened(self, width=1280, folder="made"):
        self.tab.problems.clear()
        self.tab.size(width)
        self.tab.open(self.folder / folder / "report.html")

    def choose(self, key, name):
        return self.tab.run(f"""const list = document.getElementById({json.dumps(key)});
            list.value = [...list.options].findIndex((o) => o.textContent === {json.dumps(name)}); list.dispatchEvent(new Event("change"));
            return list.selectedIndex;""")

    def rows(self):
        return self.tab.run("""return [...document.querySelectorAll("#ranking tbody tr")].map((line) => {
            const [mean, behind] = line.querySelectorAll("td");
            return {policy: line.dataset.policy, ...mean.dataset, behind: behind.dataset.behind, said: behind.textContent}; });""")

    def test_every_choice_shows_the_rows_of_the_tables(self):
        self.opened()
        with open(self.folder / "made/tables/means.csv", newline="") as f:
            means = list(csv.DictReader(f))
        options = {key: self.tab.run(f"return [...document.getElementById('{key}')?.options ?? []].map((o) => o.textContent)")
                   for key in ("metric", "workload", "budget")}
        keys = self.tab.run("return study.metrics.map(({key}) => key)")
        self.assertEqual(options["budget"], ["10%", "25%", "50%"])
        self.assertEqual(set(options["workload"]), {"all", "alpha", "<b>beta"})
        self.assertEqual(set(keys), {row["metric"] for row in means})
        self.tab.run("document.getElementById('all').click()")
        seen = 0
        for key, label in zip(keys, options["metric"]):
            self.choose("metric", label)
            for workload in options["workload"]:
                self.choose("workload", workload)
                for budget in options["budget"]:
                    self.choose("budget", budget)
                    wanted = {row["policy"]: [row[name] for name in ("mean", "low", "high")] for row in means
                              if (row["metric"], row["workload"], row["budget"]) == (key, workload, budget)}
                    shown = {row["policy"]: [row[name] for name in ("mean", "low", "high")] for row in self.rows()}
                    self.assertEqual(shown.keys(), wanted.keys())
                    for policy, values in wanted.items():
                        for a, b in zip(values, shown[policy]):
                            self.assertEqual(float(a) if a else None, float(b) if b else None, (key, workload, budget, policy))
                    seen += len(wanted)
        self.assertGreater(seen, 3 * 3 * len(keys))
        self.assertEqual(self.tab.problems, [])

    def test_who_overspends_is_ranked_apart(self):
        """razor_attention keeps all of a prompt as short as this, whatever the budget."""
        (self.folder / "answers.json").write_text(json.dumps({
            "capture": {"model": str(SOURCE / "traces/sample/model"), "workloads": [{"kind": "needle", "context": 300, "count": 3}]},
            "loops": ["closed"], "policies": ["full", "window", "streaming_llm", "razor_attention"], "budgets": ["10%", "60%"]}))
        self.ok("study", "answers.json", "-o", "answers", "--quiet")
        with open(self.folder / "answers/tables/winners.csv", newline="") as f:
            winners = {(row["budget"], row["metric"]): row for row in csv.DictReader(f)}
        self.assertEqual({row["policy"] for row in winners.values()} & {"razor_attention"}, set())
        self.opened(folder="answers")
        apart = set()
        for budget in "10%", "60%":
            self.choose("budget", budget)
            verdict = self.tab.run("return document.getElementById('verdict').textContent")
            self.assertRegex(verdict, r": (window|streaming_llm)")
            if "not ranked: razor_attention, better by holding more than the budget" in verdict:
                apart.add(budget)
            self.assertNotIn("razor_attention", [row["policy"] for row in self.rows()])
            self.tab.run("document.getElementById('all').click()")
            self.assertEqual([row["said"] for row in self.rows() if row["policy"] == "razor_attention"], ["–over its budget"])
            self.tab.run("document.getElementById('all').click()")
        self.assertIn("10%", apart)

    def test_views_are_a_click_away(self):
        (self.folder / "viewed.json").write_text(json.dumps({
            "capture": {"model": str(SOURCE / "traces/sample/model"),
                        "workloads": [{"kind": "needle-multi-key", "context": 300, "count": 3, "facts": 4}]},
            "loops": ["open", "closed"], "policies": ["full", "h2o", "keydiff", "tova", "optimal"], "budgets": ["10%", "50%"]}))
        self.ok("study", "viewed.json", "-o", "viewed", "--quiet")
        trace = sorted((self.folder / "viewed/traces").glob("*.h5"))[1]
        self.ok("report", "viewed", "--view", trace, "--overwrite")
        self.opened(folder="viewed")
        self.assertIn("word by word", self.tab.run("document.getElementById('views').open = true; return document.getElementById('views').innerText"))
        address = self.tab.run("return document.querySelector('#views a').href")
        self.assertTrue(address.endswith(f"/views/{trace.stem}.html"), address)
        self.tab.run("document.querySelector('#views a').click()")
        self.tab.open(self.folder / "viewed/views" / f"{trace.stem}.html")
        with open(self.folder / "viewed/tables/answers.csv", newline="") as f:
            rows = {(row["cut"], row["budget"], row["policy"]): row["right"] for row in csv.DictReader(f)
                    if row["item"] == trace.stem and row["mode"] == "greedy"}
        with open(self.folder / "viewed/tables/winners.csv", newline="") as f:
            best = {row["policy"] for row in csv.DictReader(f)}
        shown = self.tab.run("""return view.cuts.flatMap((cut) => cut.cells.map((cell, i) =>
            [cut.text, view.budgets[Math.floor(i / view.policies.length)], view.policies[i % view.policies.length], cell.answer?.[1]]))""")
        self.assertEqual({policy for _, _, policy, _ in shown}, best)
        self.assertEqual({tuple(row[:3]): row[3] for row in shown}, {key: value == "1" for key, value in rows.items() if key[2] in best})
        self.assertEqual(self.tab.problems, [])
        self.assertIn("--overwrite", self.fails(2, "report", "viewed", "--view", trace, "-o", "other.html"))
        # Begun anew, the study has no page of an earlier one.
        self.ok("study", "viewed.json", "-o", "viewed", "--overwrite", "--quiet")
        self.assertFalse((self.folder / "viewed/views").exists())

    def test_one_screen_first(self):
        self.opened()
        self.assertLessEqual(len(self.rows()), 8)
        words = self.tab.run("return document.body.innerText.split(/\\s+/).length")
        self.assertLess(words, 1500)
        verdict = self.tab.run("return document.getElementById('verdict').textContent")
        budget = self.tab.run("return document.getElementById('budget').selectedOptions[0].textContent")
        first, = [row for row in self.rows() if row["said"] == "best"]
        self.assertIn(f"{budget}: {first['policy']} ", verdict)
        self.assertRegex(verdict, r"\(\S+% to \S+%\)")
        with gzip.open(self.folder / "made/tables/differences.csv.gz", "rt", newline="") as f:
            behind = [row for row in csv.DictReader(f) if row["metric"] == "attention_loss" and row["workload"] == "all" and row["budget"] == budget]
        for row in self.rows():
            if row["said"] == "best" or row.get("behind") is None:
                continue
            told = [float(d["difference"]) * (1 if d["policy"] == row["policy"] else -1) for d in behind
                    if {d["policy"], d["other"]} == {row["policy"], first["policy"]}]
            self.assertAlmostEqual(float(row["behind"]), told[0], delta=1e-15)

    def test_live_figures_have_the_numbers_that_gnuplot_draws(self):
        self.opened()
        compared = bars = 0
        for script in sorted((self.folder / "made/figures").glob("*.gp")):
            blocks = re.findall(r"# ([^\n]*): x y low high\n\$panel(\d+)_(\d+) << EOD\n(.*?)EOD", script.read_text(), re.DOTALL)
            live = self.tab.run(f"return study.figures.find(({{name}}) => name === {json.dumps(script.stem)}).panels")
            for panel in live:
                # Heat maps say what their colours mean, with the ends that gnuplot's colour bar has.
                if "rows" in panel:
                    ends = [float(each) for each in re.search(r"set cbrange \[(\S+):(\S+)\]", script.read_text()).groups()]
                    if script.read_text().count("set cbrange") == 1:
                        self.assertAlmostEqual(panel["bar"]["low"], ends[0], delta=1e-5 * max(1, abs(ends[0])))
                        self.assertAlmostEqual(panel["bar"]["high"], ends[1], delta=1e-5 * max(1, abs(ends[1])))
                        bars += 1
            for label, panel, series, data in blocks:
                its = live[int(panel) - 1]["series"][int(series) - 1]
                self.assertEqual(its["label"], label)
                for line, (x, y, low, high) in zip(data.strip().splitlines(), its["points"], strict=True):
                    drawn = [None if field == "NaN" else float(field) for field in line.split()]
                    for own, other in zip((x, y, low, high), drawn):
                        if own is not None:
                            self.assertAlmostEqual(own, other, delta=1e-5 * max(1, abs(own)))
                    compared += 1
        self.assertGreater(compared, 300)
        self.assertGreater(bars, 0)

    def test_figures_are_drawn_when_they_are_unfolded_at_every_width(self):
        for width in 420, 1280, 1920:
            self.opened(width)
            drawn = self.tab.run("""document.getElementById("figures").open = true;
                const all = [...document.querySelectorAll("details.figure")];
                for (const box of all) box.open = true;
                await new Promise((done) => setTimeout(done, 300));
                return all.map((box) => [box.id, box.querySelectorAll("svg text").length, box.scrollWidth - box.clientWidth]);""")
            self.assertGreater(len(drawn), 5)
            for name, texts, beyond in drawn:
                self.assertGreater(texts, 3, name)
                self.assertLessEqual(beyond, 1, name)
            self.assertLessEqual(self.tab.run("return document.documentElement.scrollWidth"), width)
            self.assertEqual(self.tab.problems, [])

    def test_policies_are_picked_values_hovered_and_charts_zoomed(self):
        self.opened()
        count = "return document.querySelectorAll('#chart [data-label]').length"
        before = self.tab.run(count)
        self.tab.run("document.querySelector('#chart .legend button').click()")
        self.assertLess(self.tab.run(count), before)
        self.tab.run("document.querySelector('#chart .legend button').click()")
        self.assertEqual(self.tab.run(count), before)
        x, y, label = self.tab.run("""const dot = document.querySelectorAll('#chart [data-label]')[4], box = dot.getBoundingClientRect();
            return [box.left + box.width / 2, box.top + box.height / 2, dot.getAttribute("aria-label")];""")
        self.tab.mouse("mouseMoved", x - 40, y)
        self.tab.mouse("mouseMoved", x, y)
        self.assertEqual(self.tab.run("return tip.hidden ? '' : tip.textContent").split(":")[1:] != [], True)
        self.assertRegex(label, r": .* %, \S+ %")
        left, top, right, bottom = self.tab.run("""const box = document.querySelector('#chart svg').getBoundingClientRect();
            return [box.left + 200, box.top + 60, box.left + 500, box.top + 200];""")
        self.tab.mouse("mouseMoved", left, top)
        self.tab.mouse("mousePressed", left, top, button="left", clickCount=1)
        self.tab.mouse("mouseMoved", right, bottom, button="left", buttons=1)
        self.tab.mouse("mouseReleased", right, bottom, button="left", clickCount=1)
        self.assertTrue(self.tab.run("return document.querySelector('#chart .whole') !== null"))
        self.tab.run("document.querySelector('#chart .whole').click()")
        self.assertFalse(self.tab.run("return document.querySelector('#chart .whole') !== null"))
        dark = self.tab.run("""document.getElementById("theme").click(); await new Promise((done) => setTimeout(done, 50));
            return getComputedStyle(document.body).backgroundColor""")
        self.assertEqual(dark, "rgb(20, 23, 28)")


if __name__ == "__main__":
    kvsim_command.main()
