#!/usr/bin/env python3
"""Writes the pages of the site: those that are kept by hand, with the files that they link to, and those that kvsim prints
itself (policies, columns of results, costs beside published numbers, commands), and findings. tools/site.sh makes a site of them.

    write_pages.py KVSIM FOLDER     pages into FOLDER/pages, and FOLDER/mkdocs.yml
"""
import csv
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINK = re.compile(r'\]\(([^()\s#:]+)(?:#[^()\s]*)?\)|(?:src|srcset|href)="([^":#]+)"')
CODE = ("Parameters", "Examples", "Variants", "Elsewhere and here")

# Each kind of result, and a command that makes one: its columns describe themselves.
SAMPLE = ROOT / "traces" / "sample"
ANSWER = ["--model", SAMPLE / "model", "--prompt", SAMPLE / "prompts" / "needle-0500-one.txt", "--answer", " x", "--policy", "full",
          "--budget", "50%", "--max-new-tokens", "2"]
SERVED = ["--model", "llama-3.1-8b", "--machine", "h100-sxm"]
SPLIT = ["t.h5", "--policies", "snapkv(window=8)+pyramid", "--budget", "25%"]
RESULTS = {
    "evaluate --per token": ANSWER, "evaluate --per layer": [*ANSWER, "--mode", "teacher"],
    "evaluate --per seam": [*ANSWER[:2], "--workload", "d.jsonl", "--policy", "full", "--prefill", "none"],
    "analyze importance": ["t.h5"], "analyze retention": ["t.h5"], "analyze retention-size": ["t.h5"],
    "analyze allocation": SPLIT, "analyze allocation-consistency": SPLIT, "analyze hash": ["t.h5"], "analyze ranking-loss": ["t.h5"],
    "analyze cumulative-loss": ["t.h5"], "analyze persistence": ["t.h5"], "analyze heads": ["t.h5"], "analyze key-norms": ["t.h5"],
    "analyze pieces": ["p.h5"],
    "cost estimate": [*SERVED, "--prompt-tokens", "2K"], "cost break-even": SERVED,
    "requests info": ["r.jsonl"], "requests replay": ["r.jsonl", *SERVED, "--capacity", "1GiB"], "requests serve": ["r.jsonl", *SERVED],
    "requests serve --each": ["r.jsonl", *SERVED], "requests batch": ["r.jsonl", *SERVED],
    "requests tiers": ["r.jsonl", *SERVED, "--device", "1GiB", "--host", "1GiB"],
    "requests compression": ["r.jsonl", *SERVED, "--policy", "snapkv", "--budget", "25%"]}
# A small study of both loops: its folder explains every table.
STUDY = {"capture": {"model": str(SAMPLE / "model"), "workloads": [{"kind": "needle", "context": 200, "count": 2}], "max_new_tokens": 2},
         "loops": ["open", "closed"], "policies": ["h2o", "window"], "budgets": ["25%"], "machine": "t4", "model": "llama-3-8b",
         "report": False, "statistics": {"resamples": 100}}
TABLES = {"results": "`kvsim replay`", "answers": "`kvsim evaluate`", "means": "A study: means",
          "differences": "A study: differences", "ranks": "A study: ranks",
          "winners": "A study: winners", "price": "A study: price", "skipped": "A study: skipped"}
BY_HAND = [{"kvsim": "README.md"}, {"Your model": "traces/capture/README.md"}, {"Your prompts": "traces/workloads/README.md"},
           {"Policies": "policies/README.md"}, {"Choosing a policy": "analysis/CHOOSING_A_POLICY.md"},
           {"Reading results": "analysis/README.md"}, {"Metrics": "analysis/results/METRICS.md"},
           {"What to trust": "analysis/TRUST.md"}, {"Figures of papers": "analysis/reproductions/README.md"},
           {"Studies": "analysis/study/STUDIES.md"}, {"Costs": "sim/cost/README.md"},
           {"Requests": "traces/requests/README.md"}, {"Python": "tools/python/README.md"},
           {"transformers": "tools/python/kvsim/hf/README.md"},
           {"llama.cpp": "tools/python/kvsim/llama_cpp/README.md"}, {"vLLM": "tools/python/kvsim/vllm/README.md"},
           {"Trace format": "traces/format/SCHEMA.md"}, {"Contributing": "CONTRIBUTING.md"}, {"Changes": "CHANGELOG.md"}]


class Writer:
    def __init__(self, kvsim, folder):
        self.kvsim, self.pages = pathlib.Path(kvsim).resolve(), pathlib.Path(folder) / "pages"
        shutil.rmtree(self.pages, ignore_errors=True)

    def run(self, *arguments, cwd=None):
        done = subprocess.run([self.kvsim, *map(str, arguments)], capture_output=True, text=True, cwd=cwd)
        if done.returncode:
            sys.exit(f"kvsim {' '.join(map(str, arguments))}: {done.stderr}")
        return done.stdout

    def write(self, name, text):
        path = self.pages / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return name

    def by_hand(self):
        """Every page under version control, and what it links to."""
        listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.md"], cwd=ROOT, check=True,
                                capture_output=True, text=True)
        for name in listed.stdout.splitlines():
            text = re.sub(r"<details( id=\"\w+\")?>", r'<details\1 markdown="1">', (ROOT / name).read_text())  # Markdown inside, too
            self.write_linking(name, text)

    def write_linking(self, name, text):
        """A page with the files that it links to."""
        for link in LINK.findall(text):
            linked = (ROOT / name).parent / (link[0] or link[1])
            target = self.pages / linked.resolve().relative_to(ROOT)
            if linked.is_file() and linked.suffix != ".md":
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(linked, target)
        return self.write(name, text)

    def findings(self):
        """What was found on figures of papers, beside the page that says how."""
        folder = ROOT / "analysis" / "reproductions"
        text = subprocess.run([sys.executable, folder / "findings.py"], check=True, capture_output=True, text=True).stdout
        return self.write_linking("analysis/reproductions/findings.md", text)

    def policies(self):
        """The list, and a page for each name in it."""
        names = dict.fromkeys(policy["name"] for policy in json.loads(self.run("policy", "list", "--format", "json")))
        table = re.sub(r"(?m)^\| `([^`]+)` \|", lambda row: f"| [`{row[1]}`](policy/{row[1]}.md) |" if row[1] in names else row[0],
                       self.run("policy", "list", "--format", "md"))
        pages = [self.write("printed/policies.md", "# All policies\n\n" + table)]
        return pages + [self.write(f"printed/policy/{name}.md", policy_page(name, self.run("policy", "show", name))) for name in names]

    def columns(self):
        """Every kind of result with its columns, their units and meanings."""
        with tempfile.TemporaryDirectory() as folder:
            self.run("trace", "generate", "--layers", 4, "--kv-heads", 2, "--head-dim", 16, "--prompt-tokens", 96,
                     "--decode", 4, "-o", "t.h5", cwd=folder)
            self.run("workload", "documents", "--context", 200, "--count", 1, "--tokenizer", SAMPLE / "model", "-o", "d.jsonl", cwd=folder)
            self.run("capture", *ANSWER[:2], "--workload", "d.jsonl", "--pieces", "--max-new-tokens", 2, "-o", "p.h5", cwd=folder)
            self.run("requests", "generate", "--requests", 20, "--seed", 1, "-o", "r.jsonl", cwd=folder)
            (pathlib.Path(folder) / "study.json").write_text(json.dumps(STUDY))
            self.run("study", "study.json", "-o", "study", cwd=folder)
            with open(f"{folder}/study/columns.csv", newline="") as file:
                told = list(csv.DictReader(file))
            text = ("# Columns of results\n\nEvery column of every kind of result, as kvsim itself describes it. "
                    "[Symbols of the formulas](../analysis/results/METRICS.md#words).\n")
            for table, title in TABLES.items():
                text += section(title, [column for column in told if column["table"] == table])
            for command, arguments in RESULTS.items():
                shown = json.loads(self.run(*command.split(), *arguments, "--format", "json", cwd=folder))
                text += section(f"`kvsim {command}`", shown["columns"])
            return self.write("printed/columns.md", text)

    def commands(self):
        """A page for each command, of its help."""
        names = [name.split()[1:] for name in re.findall(r"^    '(kvsim[^']*)'\)$", self.run("completion", "bash"), re.M)]
        pages = []
        for words in names:
            title = " ".join(["kvsim", *words])
            pages.append(self.write("printed/command/" + "_".join(["kvsim", *words]) + ".md",
                                    f"# {title}\n\n```text\n{self.run('help', *words)}```\n"))
        return pages

    def all(self):
        self.by_hand()
        findings = self.findings()
        policies, columns, commands = self.policies(), self.columns(), self.commands()
        program = pathlib.Path(self.kvsim).parent / "tests" / "cost_validation"
        validation = self.write("printed/validation.md", subprocess.run([program, "md"], check=True, capture_output=True, text=True).stdout)
        speed = self.write("printed/speed.md", subprocess.run([sys.executable, ROOT / "tests" / "bench" / "table.py", "--committed"],
                                                              check=True, capture_output=True, text=True).stdout)
        nav = [*BY_HAND, {"All policies": policies}, {"All results": [columns, findings, validation, speed]}, {"All commands": commands}]
        config = (ROOT / "tools" / "site" / "mkdocs.yml").read_text()
        (self.pages.parent / "mkdocs.yml").write_text(f"{config}docs_dir: pages\nsite_dir: html\nnav: {json.dumps(nav)}\n")


def section(title, columns):
    rows = "".join(f"| `{column['key']}` | {column['unit']} | {cell(column['description'])} |\n" for column in columns)
    return f"\n## {title}\n\n| key | unit | meaning |\n| --- | --- | --- |\n{rows}"


def cell(text):
    return text.replace("|", "\\|").replace("<", "&lt;")


def policy_page(name, shown):
    """`kvsim policy show` as Markdown: a line without indent begins a section."""
    out = ""
    for title, body in re.findall(r"(?m)^(\S.*)\n((?:(?:  .*)?\n)*)", shown):
        if "(" in title or "also" in title:
            out += f"# {title}\n\n" if not out else f"## {title}\n\n"
            fenced = False
        else:
            out += f"## {title}\n\n"
            fenced = title in CODE
        body = re.sub(r"(?m)^  ", "", body).strip("\n")
        out += f"```text\n{body}\n```\n\n" if fenced else cell(body).replace("*", "\\*").replace("_", "\\_") + "\n\n"
    return out


if __name__ == "__main__":
    Writer(*sys.argv[1:]).all()
