#!/usr/bin/env python3
"""Runs both loops on SmolLM2 and on the shipped model, and writes what they say into pages: which number of a replay may be
trusted for what a running model answers (analysis/TRUST.md), and which policy answers most (analysis/CHOOSING_A_POLICY.md).

    tools/python/both_loops.py PATH/TO/kvsim [--models smollm2,sample] [--runs build/both_loops] [--pages FOLDER]

Rows of both loops stay in the folder of the runs, a line of JSON per prompt and run; what is there is not run again, so a run
that was stopped goes on, and so does one with more policies. --redo A,B runs policies anew whose rule has changed. The pages
have their tables from the rows alone, between comments that name this script; examples/both_loops_claims.csv there has the claims, and
both_loops.csv the right answers of every policy. Every number behind them is in CSV files beside the rows.
"""
import argparse
import csv
import functools
import io
import itertools
import json
import pathlib
import resource
import subprocess
import textwrap

import numpy as np

ROOT = pathlib.Path(__file__).parents[2]
BUDGETS = ["10%", "25%", "50%"]
CUTS = {"prompt": "known", "question": "not known"}
# Of a replay, what is judged; whether less is better.
MEASURES = {"evidence_loss": True, "peak_loss": True, "attention_loss": True, "output_error": True, "evidence_held": False, "r": False}
POLICIES = ["streaming_llm", "random", "l2_norm", "h2o", "tova", "snapkv", "cake", "keydiff", "lagkv", "critical_kv", "kvcrush", "roco",
            "snapkv+pyramid", "snapkv+xkv", "snapkv+adakv", "keydiff+adakv", "sirllm"]
RESAMPLES = 2000


class Model:
    """A model, its prompts, and the rows of both loops on them."""

    def __init__(self, name, title, path, kinds, counts, context=1000, policies=POLICIES):
        self.name, self.title, self.find, self.kinds = name, title, path, kinds
        self.counts, self.context, self.policies = dict(zip(kinds, counts)), context, policies

    @functools.cached_property
    def path(self):
        return self.find()


def smollm2():
    """The path that tools/model.sh prints; it says itself why there is none."""
    done = subprocess.run([ROOT / "tools" / "model.sh"], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise SystemExit(done.returncode)
    return done.stdout.strip()


MODELS = [Model("smollm2", "SmolLM2", smollm2,
                {"eight keys": ["needle-multi-key", "--facts", "8"], "passkey": ["passkey"], "one key": ["needle"]}, [16, 16, 16]),
          Model("sample", "shipped model", lambda: ROOT / "traces" / "sample" / "model",
                {"eight keys": ["needle-multi-key", "--facts", "8"], "one key": ["needle"], "variables": ["variables"]}, [12, 12, 12])]


def kvsim(program, *arguments):
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"kvsim {' '.join(map(str, arguments))}\n{done.stderr}")
    return done.stdout


class Runs:
    """Rows of both loops of one model, made when they are missing."""

    def __init__(self, model, folder):
        self.model, self.folder = model, folder
        folder.mkdir(parents=True, exist_ok=True)

    def path(self, kind):
        return self.folder / f"{self.model.name}-{''.join(letter if letter.isalnum() else '-' for letter in kind)}.jsonl"

    def lines(self, kind):
        return [json.loads(line) for line in self.path(kind).read_text().splitlines()] if self.path(kind).exists() else []

    def forget(self, policies):
        for kind in self.model.kinds:
            lines = self.lines(kind)
            for line in lines:
                line["rows"] = [row for row in line["rows"] if row["policy"] not in policies]
            self.path(kind).write_text("".join(json.dumps(line) + "\n" for line in lines))

    def make(self, program):
        """The rows that are missing: the first prompt of each kind, the second of each, and so on."""
        prompts, items, done = {}, {}, {}
        for kind, options in self.model.kinds.items():
            prompts[kind] = self.path(kind).with_suffix(".prompts.jsonl")
            kvsim(program, "workload", *options, "--context", self.model.context, "--count", self.model.counts[kind],
                  "--tokenizer", self.model.path, "-o", prompts[kind], "--overwrite")
            items[kind] = [json.loads(line)["id"] for line in prompts[kind].read_text().splitlines()]
            done[kind] = {(line["item"], row["policy"]) for line in self.lines(kind) for row in line["rows"]}
        for number, kind in itertools.product(range(max(self.model.counts.values())), self.model.kinds):
            if number >= len(items[kind]):
                continue
            item = items[kind][number]
            missing = [policy for policy in self.model.policies if (item, policy) not in done[kind]]
            if missing:
                line = self.run(program, prompts[kind], item, missing)
                with open(self.path(kind), "a") as file:
                    file.write(json.dumps(line) + "\n")

    def run(self, program, prompts, item, policies):
        """Both loops of a prompt under the policies. A row says of a cell that was not run nothing but its policy."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        text = kvsim(program, "evaluate", "--model", self.model.path, "--workload", prompts, "--item", item, "--losses",
                     "--mode", "greedy", *(f"--policy={policy}" for policy in policies), "--budget", ",".join(BUDGETS),
                     "--cut", ",".join(CUTS), "--format", "csv", "--threads", 1, "--quiet")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        rows = []
        for row in csv.DictReader(io.StringIO(text)):
            of_cell = {key: row[key] for key in ("policy", "cut", "budget")}
            for key in ("right", "right_full", *MEASURES):
                of_cell[key] = None if row["skipped"] or row[key] == "" else float(row[key])
            rows.append(of_cell)
        unknown = {row["policy"] for row in rows}.symmetric_difference(policies)
        if unknown:
            raise SystemExit(f"kvsim evaluate names policies otherwise than they were asked for: {', '.join(sorted(unknown))}")
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return {"item": item, "seconds": round(spent, 2), "rows": rows}


def tau_b(x, y):
    """Kendall's tau-b of each row of x with the same row of y; NaN where a row is all ties."""
    i, j = np.triu_indices(x.shape[1], 1)
    a, b = np.sign(x[:, i] - x[:, j]), np.sign(y[:, i] - y[:, j])
    with np.errstate(invalid="ignore"):
        return (a * b).sum(1) / np.sqrt((a != 0).sum(1) * (b != 0).sum(1))


class Judged:
    """What the rows of one model say."""

    def __init__(self, runs):
        self.runs, self.model = runs, runs.model
        self.values, self.draws, self.seconds = {}, {}, {}
        for number, kind in enumerate(self.model.kinds):
            wanted = {json.loads(line)["id"] for line in runs.path(kind).with_suffix(".prompts.jsonl").read_text().splitlines()}
            lines = [line for line in runs.lines(kind) if line["item"] in wanted]
            self.seconds[kind] = sum(line["seconds"] for line in lines)
            items = sorted({line["item"] for line in lines})
            for line in lines:
                for row in line["rows"]:
                    if row["right"] is not None:
                        cell = self.values.setdefault((kind, row["cut"], row["budget"]), {})
                        of_policy = cell.setdefault(row["policy"], {key: np.full(len(items), np.nan)
                                                                    for key in ("right", "right_full", *MEASURES)})
                        for key, values in of_policy.items():
                            values[items.index(line["item"])] = np.nan if row[key] is None else row[key]
            drawn = np.random.default_rng(number).multinomial(len(items), [1 / len(items)] * len(items), RESAMPLES)
            self.draws[kind] = np.vstack([np.ones(len(items)), drawn])  # the prompts as they are, then the resamples

    def means(self, kind, cut, budget, key):
        """Policies that ran on every prompt, and a row of their means: of the prompts, then of each resample. A prompt on which
        some policy has no such number, such as peak loss of a prompt without peaks, is in no mean."""
        cell = {policy: of for policy, of in self.values[kind, cut, budget].items()
                if policy in self.model.policies and not np.isnan(of["right"]).any()}
        table = np.array([of[key] for of in cell.values()]).T
        there = ~np.isnan(table).any(axis=1)
        weights = self.draws[kind][:, there]
        return list(cell), weights @ table[there] / weights.sum(1, keepdims=True)

    @functools.cache
    def tau_of(self, kind, cut, budget, measure):
        """tau-b of a measure with right answers in one kind: of the prompts, then of each resample."""
        _, measured = self.means(kind, cut, budget, measure)
        _, right = self.means(kind, cut, budget, "right")
        return tau_b(-measured if MEASURES[measure] else measured, right)

    @functools.cache
    def tau(self, cut, budget, measure, kind=None):
        """(tau-b, low, high): the mean over kinds, or that of one. A kind where all policies answer equally much has no order."""
        taus = np.array([self.tau_of(each, cut, budget, measure) for each in ([kind] if kind else self.model.kinds)])
        taus = taus[~np.isnan(taus[:, 0])]
        if not len(taus):
            return (np.nan,) * 3
        mean = np.nansum(taus, axis=0) / np.maximum(1, (~np.isnan(taus)).sum(axis=0))
        return (mean[0], *np.percentile(mean[1:][~np.isnan(taus[:, 1:]).all(axis=0)], [2.5, 97.5]))

    @functools.cache
    def answered(self, cut, budget):
        """{policy: right answers of all kinds}: of the prompts, then of each resample."""
        found = {}
        for kind in self.model.kinds:
            policies, right = self.means(kind, cut, budget, "right")
            for policy, of in zip(policies, right.T):
                found.setdefault(policy, []).append(of * self.draws[kind][0].sum())
        return {policy: sum(of) for policy, of in found.items() if len(of) == len(self.model.kinds)}

    def full(self, kinds=None):
        """Right answers of the full cache."""
        return sum(next(iter(self.values[kind, "prompt", BUDGETS[0]].values()))["right_full"].sum() for kind in kinds or self.model.kinds)

    def best(self, cut, budget):
        """Policies by right answers, most first."""
        right = [(round(of[0]), policy) for policy, of in self.answered(cut, budget).items()]
        return sorted(right, key=lambda each: (-each[0], each[1]))


def short(value):
    """Two decimals without the leading zero; undefined is a dash."""
    return "-" if np.isnan(value) else f"{value:.2f}".replace("0.", ".", 1).replace("-.00", ".00")


def wrapped(text, begin=""):
    return textwrap.fill(text, 140, initial_indent=begin, subsequent_indent=" " * len(begin), break_long_words=False,
                         break_on_hyphens=False)


def table(head, rows):
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows]) + "\n"


# A claim's verdict on a model: True, False or None (the intervals leave it open), and what says so.

def ordered(cut, measure, budgets=BUDGETS):
    def judge(model):
        found = [model.tau(cut, budget, measure) for budget in budgets]
        verdict = True if all(low > 0.5 for _, low, _ in found) else False if any(high < 0.5 for *_, high in found) else None
        return verdict, " ".join(f"{short(tau)} [{short(low)}, {short(high)}]" for tau, low, high in found)
    return judge


def unordered(cut, measure, budgets=BUDGETS):
    def judge(model):
        found = [model.tau(cut, budget, measure) for budget in budgets]
        verdict = True if all(high < 0.5 for *_, high in found) else False if any(low > 0.5 for _, low, _ in found) else None
        return verdict, " ".join(f"{short(tau)} [{short(low)}, {short(high)}]" for tau, low, high in found)
    return judge


def rises(model):
    """R and right answers from one budget to the next, of every policy, kind and cut."""
    kept = places = 0
    for kind, cut, step in itertools.product(model.model.kinds, CUTS, zip(BUDGETS, BUDGETS[1:])):
        (r, right), (more_r, more_right) = ([dict(zip(policies, means[0])) for policies, means in
                                             (model.means(kind, cut, budget, key) for key in ("r", "right"))] for budget in step)
        rising = [policy for policy in r.keys() & more_r.keys() if more_r[policy] > r[policy]]
        places += len(rising)
        kept += sum(more_right[policy] >= right[policy] for policy in rising)
    return kept >= 0.95 * places, f"{kept} of {places} steps"


# What is claimed, and the judge.
CLAIMS = [
    ("Peak loss orders policies as answers do, question known", ordered("prompt", "peak_loss")),
    ("Evidence loss does, question known", ordered("prompt", "evidence_loss")),
    ("Attention loss does, question known", ordered("prompt", "attention_loss")),
    ("Output error does, question known", ordered("prompt", "output_error")),
    ("Peak loss does at 25 and 50 %, question not known", ordered("question", "peak_loss", BUDGETS[1:])),
    ("Peak loss does at 10 %, question not known", ordered("question", "peak_loss", BUDGETS[:1])),
    ("Evidence loss does at 50 %, question not known", ordered("question", "evidence_loss", BUDGETS[2:])),
    ("Attention loss does not, question not known", unordered("question", "attention_loss")),
    ("Output error does not, question not known", unordered("question", "output_error")),
    ("R does not, question known", unordered("prompt", "r")),
    ("R does not, question not known", unordered("question", "r")),
    ("Where R rises with the budget, answers do not fall (95 % of steps)", rises),
]
VERDICT = {True: "yes", False: "no", None: "open"}


class Blocks:
    """What stands in the pages; every number and every verdict in it follows from the rows."""

    def __init__(self, judged):
        self.judged, self.first = judged, judged[0]

    def models(self):
        told = []
        for judged in self.judged:
            kinds = [f"{judged.model.counts[kind]} of {kind} (`{' '.join(options)}`; the full cache answers {judged.full([kind]):.0f})"
                     for kind, options in judged.model.kinds.items()]
            minutes = [seconds / 60 for seconds in judged.seconds.values()]
            told.append(wrapped(f"**{judged.model.title}**: prompts of {judged.model.context:,} tokens, "
                                f"{', '.join(kinds)}. {sum(minutes):.1f} processor minutes were spent "
                                f"({', '.join(f'{each:.1f}' for each in minutes)}).", "- "))
        return "\n".join(told) + "\n"

    def write_claims(self, path):
        """Every claim, judged on each model, and where peak loss orders policies in single kinds."""
        path.parent.mkdir(exist_ok=True)
        both = len(self.judged) > 1
        with open(path, "w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["claim", *(judged.model.title for judged in self.judged), *(["both agree?"] if both else [])])
            for text, judge in CLAIMS:
                verdicts = [judge(model) for model in self.judged]
                told = [f"{VERDICT[verdict]}: {why}" for verdict, why in verdicts]
                writer.writerow([text, *told, *(["yes" if verdicts[0][0] is verdicts[1][0] else "no"] if both else [])])
            writer.writerow(["Peak loss, single kinds: the interval lies above .5", *map(self.places, self.judged), *([""] if both else [])])

    @staticmethod
    def places(judged):
        lows = [judged.tau(cut, budget, "peak_loss", kind)[1] for cut in CUTS for budget in BUDGETS for kind in judged.model.kinds]
        return f"{sum(low > 0.5 for low in lows)} of {len(lows)} places"

    def write_answers(self, path):
        """Right answers of the first model."""
        judged, cells = self.first, list(itertools.product(CUTS, BUDGETS))
        policies = sorted(judged.model.policies, key=lambda policy: [-judged.answered("question", budget).get(policy, [-1])[0]
                                                                     for budget in BUDGETS[::-1]])
        path.parent.mkdir(exist_ok=True)
        with open(path, "w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["policy", *(f"{CUTS[cut]}, {budget}" for cut, budget in cells)])
            for policy in policies:
                right = [judged.answered(*cell).get(policy) for cell in cells]
                writer.writerow([policy, *("-" if of is None else f"{of[0]:.0f}" for of in right)])

    def best(self):
        """The best policy of each case."""
        rows = []
        for cut, budget in itertools.product(CUTS, BUDGETS):
            cells = []
            for judged in self.judged:
                answered, ((right, policy), (following_right, following), *_) = judged.answered(cut, budget), judged.best(cut, budget)
                low, high = np.percentile(answered[policy][1:], [2.5, 97.5])
                lead, most = np.percentile((answered[policy] - answered[following])[1:], [2.5, 97.5])
                cells.append(f"`{policy}` {right} ({low:.0f} to {high:.0f}), "
                             f"then `{following}` {following_right} (lead {lead:.0f} to {most:.0f})")
            rows.append([f"{CUTS[cut]}, {budget}", *cells])
        heads = [f"{judged.model.title}: full cache {judged.full():.0f} of {sum(judged.model.counts.values())}"
                 for judged in self.judged]
        return table(["question, budget", *heads], rows)

    def tables(self, folder):
        """The long tables, for those who want every number."""
        for judged in self.judged:
            name = judged.model.name
            with open(folder / f"{name}-tau.csv", "w", newline="") as file:
                writer = csv.writer(file)
                writer.writerow(["kind", "cut", "budget", "measure", "policies", "tau", "tau_low", "tau_high"])
                for (kind, cut, budget), measure in itertools.product(judged.values, MEASURES):
                    writer.writerow([kind, cut, budget, measure, len(judged.means(kind, cut, budget, "right")[0]),
                                     *(f"{value:.4f}" for value in judged.tau(cut, budget, measure, kind))])
            with open(folder / f"{name}-means.csv", "w", newline="") as file:
                writer = csv.writer(file)
                writer.writerow(["kind", "cut", "budget", "policy", "right", *MEASURES])
                for kind, cut, budget in judged.values:
                    policies, *_ = judged.means(kind, cut, budget, "right")
                    columns = [judged.means(kind, cut, budget, key)[1][0] for key in ("right", *MEASURES)]
                    for policy, *values in zip(policies, *columns):
                        writer.writerow([kind, cut, budget, policy, *(f"{value:.4f}" for value in values)])


def paste(page, blocks):
    """Puts each block of text between the comments of its name."""
    text = page.read_text()
    for name, block in blocks.items():
        before, rest = text.split(f"<!-- tools/python/both_loops.py: {name} -->\n")
        text = f"{before}<!-- tools/python/both_loops.py: {name} -->\n{block}<!-- end -->{rest.split('<!-- end -->', 1)[1]}"
    page.write_text(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kvsim")
    parser.add_argument("--models", default=",".join(model.name for model in MODELS))
    parser.add_argument("--runs", type=pathlib.Path, default=ROOT / "build" / "both_loops", help="folder of the rows of both loops")
    parser.add_argument("--pages", type=pathlib.Path, default=ROOT / "analysis", help="folder of the pages")
    parser.add_argument("--count", type=int, help="prompts of every kind")
    parser.add_argument("--policies", type=lambda text: text.split(","), help="run these alone, and write no pages")
    parser.add_argument("--redo", type=lambda text: text.split(","), default=[], help="policies to run anew")
    asked = parser.parse_args()
    judged = []
    for model in MODELS:
        if model.name in asked.models.split(","):
            model.counts = {kind: asked.count or count for kind, count in model.counts.items()}
            model.policies = asked.policies or model.policies
            runs = Runs(model, asked.runs)
            runs.forget(asked.redo)
            runs.make(asked.kvsim)
            judged.append(runs)
    if not asked.policies:
        blocks = Blocks([Judged(runs) for runs in judged])
        paste(asked.pages / "TRUST.md", {"models": blocks.models()})
        paste(asked.pages / "CHOOSING_A_POLICY.md", {"the best of each case": blocks.best()})
        blocks.write_claims(asked.pages / "examples" / "both_loops_claims.csv")
        blocks.write_answers(asked.pages / "examples" / "both_loops.csv")
        blocks.tables(asked.runs)


if __name__ == "__main__":
    main()
