#!/usr/bin/env python3
"""Tests kvsim plot: figures of real results are drawn and reproducible; figures that cannot be drawn are named."""
import csv
import io
import os
import subprocess
import time
import xml.dom.minidom

import kvsim_command
import svg_labels
from kvsim_command import KVSIM, CommandTest

POLICIES = [argument for name in ("h2o", "random", "streaming_llm", "full", "optimal") for argument in ("--policy", name)]


FIGURES = [("quality", "all.csv"), ("differences", "all.csv"), ("ranks", "all.csv"), ("matrix", "all.csv"), ("pareto", "all.csv"), ("next-byte", "all.csv"),
           ("excess", "all.csv", "head.csv"), ("steps", "all.csv", "step.csv"), ("layers", "layer.csv"),
           ("timeline", "kept.h5", "--layer", "1", "--head", "1"),
           ("quality", "read.csv"), ("read-pareto", "read.csv"), ("recall", "read.csv"), ("traffic", "read_step.csv"),
           ("steps", "read_step.csv", "--metric", "read_bytes")]
# Two store everything and read a part; each at two settings, so that a sweep makes a curve.
READERS = [argument for name in ("h2o", "full", "full+kivi", "full+quest(read=10%,page=4,dense=0)", "full+quest(read=40%,page=4,dense=0)",
                                 "full+recent_tokens(read=10%)", "full+recent_tokens(read=40%)") for argument in ("--policy", name)]


class Plot(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.make_trace("u.h5", cls.prompt, cls.decode, "--seed", "2")
        for scope in ("all", "layer", "head", "step"):
            made = cls.kvsim("replay", "t.h5", "u.h5", *POLICIES, "--budget", "25%,50%", "--per", scope,
                             "--format", "csv", "-o", f"{scope}.csv", "--quiet")
            assert made.returncode == 0, made.stderr
        for scope, name in ("all", "read"), ("step", "read_step"):
            made = cls.kvsim("replay", "t.h5", "u.h5", *READERS, "--budget", "25%,50%", "--per", scope, "-o", f"{name}.csv", "--quiet")
            assert made.returncode == 0, made.stderr
        made = cls.kvsim("replay", "t.h5", "--policy", "h2o", "--budget", "25%", "--decisions", "kept.h5",
                         "--format", "csv", "-o", "one.csv", "--quiet")
        assert made.returncode == 0, made.stderr

    def plotted(self, *arguments):
        done = self.kvsim("plot", *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def numbers(self, *arguments):
        return list(csv.DictReader(io.StringIO(self.plotted(*arguments, "--format", "csv"))))

    def test_every_figure_is_an_svg_that_says_what_it_shows(self):
        for figure in FIGURES:
            for theme in ("light", "dark"):
                with self.subTest(figure=figure, theme=theme):
                    svg = self.plotted(*figure, "--theme", theme)
                    root = xml.dom.minidom.parseString(svg).documentElement
                    title = root.getElementsByTagName("title")[0].firstChild.data
                    self.assertNotIn("GNUPLOT", title.upper())
                    self.assertIn("kvsim plot " + figure[0], root.getElementsByTagName("desc")[0].firstChild.data)
                    self.assertTrue(root.getAttribute("viewBox"))
                    self.assertEqual(svg, self.plotted(*figure, "--theme", theme))

    def test_no_label_of_a_figure_lies_on_another_or_leaves_the_page(self):
        for figure in FIGURES:
            for width in "page", "column":
                with self.subTest(figure=figure, width=width):
                    svg = self.plotted(*figure, "--width", width)
                    self.assertGreater(len(svg_labels.boxes(svg)), 8)
                    self.assertEqual(svg_labels.misplaced(svg), [])

    def test_numbers_of_a_figure_are_those_of_the_results(self):
        with open(self.folder / "all.csv") as file:
            rows = [row for row in csv.DictReader(file) if row["policy"] == "h2o" and row["budget"] == "25%"]
        mean = sum(float(row["attention_loss"]) for row in rows) / len(rows)
        shown = [row for row in self.numbers("quality", "all.csv") if row["policy"] == "h2o" and row["budget"] == "0.25"]
        self.assertEqual(len(shown), 1)
        self.assertAlmostEqual(float(shown[0]["attention_loss"]), mean, places=12)
        cells = [row for row in self.numbers("matrix", "all.csv", "--budget", "25%") if row["policy"] == "h2o"]
        self.assertEqual(sorted(float(cell["attention_loss"]) for cell in cells),
                         sorted(float(row["attention_loss"]) for row in rows))

    def rows(self, name, **wanted):
        with open(self.folder / name) as file:
            return [row for row in csv.DictReader(file) if all(row[key] == value for key, value in wanted.items())]

    def test_what_is_read_is_that_of_the_results(self):
        policy, mean = "full+quest(read=10%)", lambda rows, key: sum(float(row[key]) for row in rows) / len(rows)
        mine = [row for row in self.rows("read.csv", budget="25%") if "read=10%,page" in row["params"]]
        self.assertEqual(len(mine), 2)
        spots = [row for row in self.numbers("read-pareto", "read.csv", "--metric", "output_error") if row["policy"] == policy]
        self.assertEqual(len(spots), 1)  # and not one per budget
        self.assertAlmostEqual(float(spots[0]["read_kib"]), mean(mine, "read_bytes") / 1024, places=9)
        self.assertAlmostEqual(float(spots[0]["output_error"]), mean(mine, "output_error"), places=12)
        held = [row for row in self.numbers("pareto", "read.csv", "--metric", "output_error") if row["policy"] == policy]
        self.assertAlmostEqual(float(held[0]["kept_kib"]), (mean(mine, "kept_bytes") + mean(mine, "index_bytes")) / 1024, places=9)
        curve = [row for row in self.numbers("recall", "read.csv") if row["size"] == "tokens" and row["method"] == "full+quest"]
        self.assertEqual(len(curve), 2)
        self.assertAlmostEqual(float(curve[0]["read"]), mean(mine, "read_tokens"), places=9)
        self.assertAlmostEqual(float(curve[0]["read_recall"]), mean(mine, "read_recall"), places=12)
        self.assertIn("reads a part", self.fails(2, "plot", "read-pareto", "all.csv"))

    def test_traffic_adds_up_to_what_a_step_reads(self):
        shown = self.numbers("traffic", "read_step.csv", "--policy", "full+quest(read=10%)", "--budget", "25%")
        self.assertEqual([int(float(row["step"])) for row in shown], list(range(self.decode + 1)))
        for row in shown:
            mine = [step for step in self.rows("read_step.csv", budget="25%", step=str(int(float(row["step"]))))
                    if "read=10%,page" in step["params"]]
            self.assertEqual(len(mine), 2)
            parts = [float(row[key]) for key in ("index_kib", "hit_kib", "miss_kib")]
            for key, sum_of in ("read_bytes", sum(parts)), ("index_read_bytes", parts[0]):
                self.assertAlmostEqual(1024 * sum_of, sum(float(step[key]) for step in mine) / 2, places=6)
        whole = [float(row["index_read_bytes"]) / 1024 for row in self.rows("read.csv", budget="25%") if "read=10%,page" in row["params"]]
        self.assertAlmostEqual(sum(float(row["index_kib"]) for row in shown) / len(shown), sum(whole) / 2, places=9)
        self.assertEqual(float(shown[0]["hit_kib"]), 0)
        self.assertGreater(float(shown[1]["hit_kib"]), 0)

    def test_every_format_of_results_draws_the_same(self):
        for form in ("json", "jsonl", "h5"):
            self.ok("export", "all.csv", "--format", form, "-o", f"all.{form}")
            for figure in ("quality", "pareto", "ranks"):
                self.assertEqual(self.numbers(figure, f"all.{form}"), self.numbers(figure, "all.csv"))

    def test_a_figure_is_of_one_cut_and_says_which(self):
        made = self.kvsim("replay", "t.h5", "u.h5", *POLICIES, "--budget", "25%,50%", "--cut", "prompt,70", "--format", "csv", "-o",
                          "cuts.csv", "--quiet")
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertEqual(self.numbers("quality", "cuts.csv"), self.numbers("quality", "all.csv"))
        self.assertIn("cut prompt: question known to the policy", self.plotted("quality", "all.csv"))
        with open(self.folder / "cuts.csv") as file:
            rows = [row for row in csv.DictReader(file) if row["policy"] == "h2o" and row["budget"] == "25%" and row["cut"] == "70"]
        self.assertEqual(len(rows), 2)
        mean = sum(float(row["attention_loss"]) for row in rows) / 2
        shown = [row for row in self.numbers("quality", "cuts.csv", "--cut", "70")
                 if row["policy"] == "h2o" and row["budget"] == "0.25"]
        self.assertAlmostEqual(float(shown[0]["attention_loss"]), mean, places=12)
        self.assertIn("cut after 70 tokens", self.plotted("quality", "cuts.csv", "--cut", "70"))
        both = [row for row in self.numbers("cuts", "cuts.csv") if row["policy"] == "h2o" and row["budget"] == "0.25"]
        self.assertEqual([row["cut"] for row in both], ["prompt", "70"])
        self.assertAlmostEqual(float(both[1]["attention_loss"]), mean, places=12)
        self.assertIn("needs results of scope all at two cuts", self.fails(2, "plot", "cuts", "all.csv"))
        self.assertIn("prompt", self.fails(2, "plot", "quality", "cuts.csv", "--cut", "promt"))

    def test_steps_begin_with_the_last_prompt_token(self):
        steps = [float(row["step"]) for row in self.numbers("steps", "step.csv") if row["policy"] == "h2o"]
        self.assertEqual(steps, list(range(self.decode + 1)))

    def test_one_budget_says_why_there_is_no_line(self):
        script = self.plotted("quality", "one.csv", "--format", "gp")
        self.assertIn("One budget, so points and no lines", script)
        self.assertNotIn("linespoints", script)
        self.assertNotIn("One budget", self.plotted("quality", "all.csv", "--format", "gp"))

    def test_policies_are_named_in_any_spelling(self):
        plain = self.ok("plot", "quality", "all.csv", "--format", "csv", "--policy", "streaming_llm,h2o")
        self.assertEqual(self.ok("plot", "quality", "all.csv", "--format", "csv", "--policy", "StreamingLLMPress", "--policy", "H2O"), plain)

    def test_names_nobody_knows_get_the_nearest(self):
        for arguments, said in ((["qualty", "all.csv"], "quality"),
                                (["quality", "all.csv", "--metric", "atention_loss"], "attention_loss"),
                                (["matrix", "all.csv", "--budget", "26%"], "25%"),
                                (["steps", "all.csv", "step.csv", "--policy", "h20"], "h2o"),
                                (["matrix", "all.csv", "--policy", "h20"], "h2o"),
                                (["quality", "all.csv", "--theme", "drak"], "dark"),
                                (["quality", "all.csv", "-o", "x.jpeg"], "png"),
                                (["timeline", "kept.h5", "--layer", "9"], "layers 0 to 2"),
                                (["steps", "all.csv"], "--per step"),
                                (["steps", "step.csv", "--metric", "read_byte"], "read_bytes"),
                                (["traffic", "step.csv"], "reads a part"),
                                (["timeline", "all.csv"], "--decisions")):
            with self.subTest(arguments=arguments):
                done = self.kvsim("plot", *arguments)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(said, done.stderr)
                self.assertFalse((self.folder / "x.jpeg").exists())

    def test_a_trace_is_no_file_of_decisions(self):
        done = self.kvsim("plot", "timeline", "t.h5")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("holds no decisions", done.stderr)

    def test_answers_without_a_column_are_refused_by_its_name(self):
        (self.folder / "fewer.csv").write_text("item,policy,params,budget,cut,mode,turns,prefill,positions,kept,kl\n"
                                               "a,tova,tova(),50%,prompt,greedy,requests,dense,text,1,\n")
        for figure in ("accuracy", "least-bytes"):
            self.assertIn("workload", self.fails(3, "plot", figure, "fewer.csv", "--format", "csv"))

    def test_the_table_of_another_analysis_is_refused(self):
        (self.folder / "wrong.csv").write_text("trace,layer\nt,1\n")
        done = self.kvsim("plot", "hash", "wrong.csv")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn('wrong.csv: has no column "', done.stderr)

    def test_without_gnuplot_the_package_is_named_and_scripts_are_still_made(self):
        bare = dict(os.environ, PATH="/nonexistent")
        done = subprocess.run([KVSIM, "plot", "quality", "all.csv", "-o", "q.svg"], cwd=self.folder, env=bare,
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("apt-get install gnuplot-nox", done.stderr)
        self.assertFalse((self.folder / "q.svg").exists())
        done = subprocess.run([KVSIM, "plot", "quality", "all.csv", "--format", "gp"], cwd=self.folder, env=bare,
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_other_formats_are_what_their_names_say(self):
        for name, start in (("q.png", b"\x89PNG"), ("q.pdf", b"%PDF")):
            self.plotted("quality", "all.csv", "--width", "column", "-o", name)
            self.assertTrue((self.folder / name).read_bytes().startswith(start))

    def test_a_figure_drawn_a_second_later_is_the_same_bytes(self):
        names = [f"q{{}}.{end}" for end in ("svg", "png", "pdf")]
        for name in names:
            self.plotted("quality", "all.csv", "-o", name.format(1))
        time.sleep(1.1)  # a PDF states the second it was made
        for name in names:
            self.plotted("quality", "all.csv", "-o", name.format(2))
            first, second = ((self.folder / name.format(run)).read_bytes() for run in (1, 2))
            self.assertEqual(first, second, name)


if __name__ == "__main__":
    kvsim_command.main()
