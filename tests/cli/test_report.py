#!/usr/bin/env python3
"""Tests kvsim report: a self-contained page, the same bytes every time, findings that agree with the tables."""
import base64
import csv
import hashlib
import html.parser
import json
import os
import re
import shutil

import kvsim_command
from kvsim_command import CommandTest

VOID = {"meta", "img", "input", "br", "hr"}


class Page(html.parser.HTMLParser):
    """Parses a page; fails where an element is not closed, or closed by another."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.elements, self.texts = [], [], []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs):
        assert len(dict(attrs)) == len(attrs), f"an attribute twice: {tag} {attrs}"
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> closes something else"

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "script"):
            self.texts.append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def text(self):
        return " ".join("".join(self.texts).split())


class Report(CommandTest):
    prompt, decode = 80, 8

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for kind in "ab":
            for i in range(3):
                cls.make_trace(f"{kind}{i}.h5", cls.prompt, cls.decode, "--seed", 10 * ord(kind) + i)
        study = {"title": "A <b>study</b> & its \"title\"",
                 "traces": [{"files": "a?.h5", "workload": "alpha"}, {"files": "b?.h5", "workload": "beta"}],
                 "policies": ["full", "window", "h2o", "tova", "streaming_llm(sinks=0)", "random", "critical_kv", "optimal"],
                 "budgets": ["10%", "25%", "50%"], "scopes": ["all", "layer"],
                 "analyses": ["hash", "importance"]}
        (cls.folder / "study.json").write_text(json.dumps(study))
        made = cls.kvsim("study", "study.json", "-o", "made", "--quiet")
        assert made.returncode == 0, made.stderr
        cls.page = (cls.folder / "made/report.html").read_text(encoding="utf-8")

    def table(self, name):
        with open(self.folder / "made/tables" / f"{name}.csv", newline="") as f:
            return list(csv.DictReader(f))

    def test_the_page_stands_alone(self):
        text = self.page
        page = Page(text)
        self.assertTrue(text.startswith("<!DOCTYPE html>"))
        self.assertNotIn("link", [tag for tag, _ in page.elements])
        for tag, attributes in page.elements:
            for key in ("src", "href", "srcset", "action", "poster", "data"):
                if key in attributes:
                    self.assertRegex(attributes[key], r"^#", f"{tag} {key}")
        for style in re.findall(r"<style>(.*?)</style>|style=\"(.*?)\"", text, re.DOTALL):
            self.assertNotRegex("".join(style), r"url\(|@import")
        script = re.search(r"<script>(.*?)</script>", text, re.DOTALL)[1]
        self.assertNotRegex(script.replace("http://www.w3.org/2000/svg", ""), r"fetch|XMLHttpRequest|import|https?:|innerHTML|eval")
        self.assertLess(len(text), 3 << 20)
        self.assertNotIn(str(self.folder), text)

    def test_only_its_own_script_and_style_run(self):
        page = Page(self.page)
        policy = next(meta["content"] for meta in page.all("meta") if meta.get("http-equiv") == "Content-Security-Policy")
        rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
        for kind in "script", "style":
            content, = re.findall(rf"<{kind}>(.*?)</{kind}>", self.page, re.DOTALL)
            digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
            self.assertEqual(rules[f"{kind}-src"], f"'sha256-{digest}'")
        self.assertEqual((rules["default-src"], rules["base-uri"], rules["form-action"]), ("'none'",) * 3)
        # It stands before what it is about, and the page has nothing that it would forbid.
        self.assertLess(self.page.index("Content-Security-Policy"), min(self.page.index("<style"), self.page.index("<title")))
        for tag, attributes in page.elements:
            self.assertFalse([key for key in attributes if key == "style" or key.startswith("on")], tag)
        self.assertNotRegex(re.search(r"<script>(.*?)</script>", self.page, re.DOTALL)[1], r"setAttribute\(\"style|cssText|\bFunction\(")

    def test_structure(self):
        page = Page(self.page)
        self.assertEqual([dict(lang="en")], page.all("html"))
        self.assertEqual(len(page.all("h1")), 1)
        ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
        self.assertEqual(len(ids), len(set(ids)))
        for link in page.all("a"):
            self.assertIn(link["href"][1:], ids)
        tables = [t for t in page.all("table") if t.get("class") == "sortable"]
        self.assertGreater(len(tables), 1)
        columns = [t for t in page.all("th") if t.get("scope") == "col"]
        buttons = [b for b in page.all("button") if "id" not in b]
        self.assertEqual(len(columns), len(buttons))
        # All but the first screen is folded.
        self.assertEqual([attributes["id"] for attributes in page.all("section")], ["first"])
        self.assertFalse([details for details in page.all("details") if "open" in details])
        self.assertIn("A <b>study</b> & its \"title\"", page.text)

    def test_every_figure_is_in_the_page(self):
        page = Page(self.ok("report", "made", "-o", "-", "--figures", "pdf"))
        names = sorted(path.stem for path in (self.folder / "made/figures").glob("*.gp"))
        self.assertGreater(len(names), 5)
        self.assertEqual(sorted(f["id"] for f in page.all("details") if f.get("class") == "figure"), [f"figure-{name}" for name in names])
        for name in names:
            for end in ".csv", ".gp", ".svg", ".dark.svg", ".pdf", ".dark.pdf":
                self.assertTrue((self.folder / "made/figures" / (name + end)).exists(), name + end)
            self.assertIn(f"figures/{name}.csv", page.text)

    def test_without_gnuplot_there_are_no_drawings(self):
        done = self.kvsim("report", "made", "-o", "-", env={**os.environ, "PATH": "/nonexistent"})
        self.assertEqual(done.returncode, 0, done.stderr)
        page = Page(done.stdout)
        self.assertIn("were not drawn: gnuplot is not installed", page.text)
        self.assertGreater(len([f for f in page.all("details") if f.get("class") == "figure"]), 5)

    def test_what_limits_it(self):
        text = Page(self.page).text
        self.assertIn("One group of policies gave identical results everywhere", text)
        self.assertIn("window and streaming_llm.", text)
        self.assertIn("needs the output projection", text)
        self.assertIn("Replay is open loop", text)
        self.assertIn("alpha (3) and beta (3)", text)

    def test_same_bytes_and_only_the_folder_is_read(self):
        shutil.copytree(self.folder / "made", self.folder / "elsewhere/copy", ignore=shutil.ignore_patterns("tasks", "figures"))
        self.assertIn("--overwrite", self.fails(2, "report", "elsewhere/copy"))
        self.ok("report", "elsewhere/copy", "--overwrite")
        self.assertEqual((self.folder / "elsewhere/copy/report.html").read_text(encoding="utf-8"), self.page)
        (self.folder / "elsewhere/copy/report.html").write_text("an old page is replaced")
        self.ok("report", "elsewhere/copy", "--overwrite")
        self.assertEqual((self.folder / "elsewhere/copy/report.html").read_text(encoding="utf-8"), self.page)

    def test_partial_folders(self):
        poor = self.folder / "poor"
        shutil.copytree(self.folder / "made", poor)
        shutil.rmtree(poor / "tables")
        (poor / "columns.csv").unlink()
        study = json.loads((poor / "study.json").read_text())
        study["result"]["complete"] = False
        (poor / "study.json").write_text(json.dumps(study))
        page = Page(self.ok("report", "poor", "-o", "-"))
        self.assertIn("This study is not complete", page.text)
        (poor / "study.json").unlink()
        self.assertIn("Traces6", Page(self.ok("report", "poor", "-o", "-")).text.replace(" ", ""))

    def test_small_studies(self):
        """One trace, one policy, one budget; and one trace without generated tokens, whose last prompt row is measured
        again."""
        self.make_trace("none.h5", 64, 0)
        for name, trace in ("one", "a0.h5"), ("undecoded", "none.h5"):
            (self.folder / "small.json").write_text(json.dumps(
                {"traces": [trace], "policies": ["tova"], "budgets": ["25%"], "report": False}))
            self.ok("study", "small.json", "-o", name, "--quiet")
            text = Page(self.ok("report", name, "-o", "-")).text
            self.assertIn("A single trace is an anecdote", text)

    def test_title_and_refusals(self):
        self.assertIn("<h1>Mine &lt;&amp;</h1>", self.ok("report", "made", "-o", "-", "--title", "Mine <&"))
        self.assertIn("is no folder", self.fails(2, "report", "a0.h5"))
        self.assertIn("no results.csv", self.fails(2, "report", "."))
        self.assertIn("unknown", self.fails(2, "report", "made", "--figures", "gif"))
        shutil.copytree(self.folder / "made", self.folder / "broken")
        (self.folder / "broken/tables/means.csv").write_text("metric,mean\nx,y\n")
        self.assertIn("means.csv", self.fails(3, "report", "broken", "--overwrite"))
        self.fails(3, "report", "made", "-o", "no/such/folder/page.html")


if __name__ == "__main__":
    kvsim_command.main()
