#!/usr/bin/env python3
"""Runs both loops on SmolLM2 and on the shipped model and writes analysis/OPEN_AND_CLOSED.md: which number of a replay may be
trusted for what a running model answers, and which claims of the shipped model stand on a real one.

    tools/python/both_loops.py PATH/TO/kvsim [--models smollm2,sample] [--runs build/both_loops] [--page FILE]

Rows of both loops stay in the folder of the runs, a line of JSON per prompt and run; what is there is not run again, so a run
that was stopped goes on, and so does one with more policies. --redo A,B runs policies anew whose rule has changed. The page
is written from the rows alone, and the tables behind it are CSV files beside them.
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
# Of a replay, what the page shows of it; whether less is better; tau-b that the page had of the shipped model before, with 96
# prompts of needle-multi-key of 600 tokens and 21 to 29 policies at 10, 20 and 50 %, the question known and not known.
MEASURES = {"evidence_loss": ("evidence loss", True, (".76 .83 .81", ".67 .71 .87")),
            "peak_loss": ("peak loss", True, (".82 .91 .87", ".31 .82 .89")),
            "attention_loss": ("attention loss", True, (".68 .69 .79", "-.01 -.01 .21")),
            "output_error": ("output error", True, (".73 .67 .75", ".10 .12 .36")),
            "evidence_held": ("evidence held", False, (".35 .43 .39", "-.22 .10 .52")),
            "r": ("R", False, (".08 .20 .40", ".15 .13 .10"))}
POLICIES = ["streaming_llm", "random", "l2_norm", "h2o", "tova", "snapkv", "cake", "keydiff", "lagkv", "critical_kv", "kvcrush", "roco",
            "snapkv+pyramid", "snapkv+xkv", "snapkv+adakv", "keydiff+adakv"]
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
        return tau_b(-measured if MEASURES[measure][1] else measured, right)

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

    def least(self, cut, budget, measure):
        """Policies by a measure's mean over kinds, least first."""
        found = {}
        for kind in self.model.kinds:
            policies, means = self.means(kind, cut, budget, measure)
            for policy, value in zip(policies, means[0]):
                found.setdefault(policy, []).append(value)
        return sorted((np.mean(of), policy) for policy, of in found.items() if len(of) == len(self.model.kinds))


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
        return verdict, " ".join(f"{short(tau)} ({short(low)}..{short(high)})" for tau, low, high in found)
    return judge


def unordered(cut, measure, budgets=BUDGETS):
    def judge(model):
        found = [model.tau(cut, budget, measure) for budget in budgets]
        verdict = True if all(high < 0.5 for *_, high in found) else False if any(low > 0.5 for _, low, _ in found) else None
        return verdict, " ".join(f"{short(tau)} ({short(low)}..{short(high)})" for tau, low, high in found)
    return judge


def answers_most(policy, cut, budget):
    """It answers more than every other; open where the next one's paired interval does not exclude a tie."""
    def judge(model):
        answered = model.answered(cut, budget)
        next_right, following = next(each for each in model.best(cut, budget) if each[1] != policy)
        lead = answered[policy] - answered[following]
        low, high = np.percentile(lead[1:], [2.5, 97.5])
        verdict = True if low > 0 else False if high < 0 else None
        return verdict, f"`{policy}` {answered[policy][0]:.0f}, next `{following}` {next_right} (lead {low:.0f} to {high:.0f})"
    return judge


def loses_least(policy, cut, budgets, measure):
    def judge(model):
        found = [model.least(cut, budget, measure)[0] for budget in budgets]
        return all(best == policy for _, best in found), ", ".join(f"least: `{best}` {value:.2f}" for value, best in found)
    return judge


def answer_all(policies, cut, budget):
    def judge(model):
        right, full = {policy: model.answered(cut, budget)[policy][0] for policy in policies}, model.full()
        told = ", ".join(f"`{policy}` {of:.0f}" for policy, of in right.items())
        return all(of >= 0.95 * full for of in right.values()), f"{told} of {full:.0f}"
    return judge


def answers_more(policy, others, cut, budget):
    """Against each of the others, by the paired interval."""
    def judge(model):
        answered = model.answered(cut, budget)
        leads = [np.percentile((answered[policy] - answered[other])[1:], [2.5, 97.5]) for other in others]
        verdict = True if all(low > 0 for low, _ in leads) else False if any(high < 0 for _, high in leads) else None
        return verdict, ", ".join(f"`{each}` {answered[each][0]:.0f}" for each in (policy, *others))
    return judge


def no_representatives(model):
    """Where the base answers more than 1 % less than the full cache, so do its representatives."""
    full, places, within, better = model.full(), 0, 0, 0
    for cut, budget in itertools.product(CUTS, BUDGETS):
        base, crushed = (model.answered(cut, budget)[policy][0] for policy in ("h2o", "kvcrush"))
        if base < 0.99 * full:
            places, within, better = places + 1, within + (crushed >= 0.99 * full), better + (crushed > base)
    return within == 0, f"within 1 % at {within} of {places} places, more than `h2o` at {better}"


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


# What is claimed, the judge, and whether these pages said it of the shipped model before SmolLM2 was asked.
CLAIMS = [
    ("**Peak loss** orders policies as answers do, question known", ordered("prompt", "peak_loss"), True),
    ("Evidence loss does, question known", ordered("prompt", "evidence_loss"), True),
    ("Attention loss does, question known", ordered("prompt", "attention_loss"), True),
    ("Output error does, question known", ordered("prompt", "output_error"), True),
    ("**Peak loss** does at 25 and 50 %, question not known", ordered("question", "peak_loss", BUDGETS[1:]), True),
    ("Peak loss does at 10 %, question not known", ordered("question", "peak_loss", BUDGETS[:1]), False),
    ("Evidence loss does at 50 %, question not known", ordered("question", "evidence_loss", BUDGETS[2:]), False),
    ("Attention loss does **not**, question not known", unordered("question", "attention_loss"), True),
    ("Output error does not, question not known", unordered("question", "output_error"), True),
    ("R does not, question known", unordered("prompt", "r"), True),
    ("R does not, question not known", unordered("question", "r"), True),
    ("Where R rises with the budget, answers do not fall (95 % of steps)", rises, True),
    ("`keydiff` answers most at 10 %, question not known", answers_most("keydiff", "question", "10%"), True),
    ("`keydiff+adakv` answers most at 25 %, question not known", answers_most("keydiff+adakv", "question", "25%"), False),
    ("`keydiff+adakv` answers most at 50 %, question not known", answers_most("keydiff+adakv", "question", "50%"), False),
    ("`keydiff+adakv` has the least peak loss at 25 and 50 %, question not known",
     loses_least("keydiff+adakv", "question", BUDGETS[1:], "peak_loss"), False),
    ("`tova` answers everything (95 %) with a tenth, question known", answer_all(["tova"], "prompt", "10%"), False),
    ("`snapkv` and `snapkv+xkv` answer everything (95 %) with a tenth, question known",
     answer_all(["snapkv", "snapkv+xkv"], "prompt", "10%"), True),
    ("`random` answers more than `snapkv` and `h2o` at 50 %, question not known",
     answers_more("random", ["snapkv", "h2o"], "question", "50%"), True),
    ("`kvcrush` is nowhere within 1 % of the full cache where `h2o`, its base, is not", no_representatives, True),
]
VERDICT = {True: "yes", False: "**no**", None: "open"}


class Page:
    """The page; every number and every verdict in it follows from the rows."""

    def __init__(self, judged):
        self.judged, self.first = judged, judged[0]
        self.verdicts = {text: [judge(model) for model in judged] for text, judge, _ in CLAIMS}

    def text(self):
        return "\n".join([self.head(), self.claims(), self.fell(), self.orders(), self.answers(), self.limits()])

    def head(self):
        models = []
        for judged in self.judged:
            kinds = [f"{judged.model.counts[kind]} of {kind} (`{' '.join(options)}`; the full cache answers {judged.full([kind]):.0f})"
                     for kind, options in judged.model.kinds.items()]
            minutes = [seconds / 60 for seconds in judged.seconds.values()]
            models.append(wrapped(f"**{judged.model.title}**: prompts of {judged.model.context:,} tokens, "
                                  f"{', '.join(kinds)}. {sum(minutes):.1f} processor minutes were spent "
                                  f"({', '.join(f'{each:.1f}' for each in minutes)}).", "- "))
        policies = [len(self.first.means(*cell, "right")[0]) for cell in self.first.values]
        set_of_policies = wrapped(
            f"Policies, with their defaults: {', '.join(f'`{policy}`' for policy in self.first.model.policies)}; "
            f"{'each has' if min(policies) == max(policies) else f'{min(policies)} to {max(policies)} of them have'} a cell in each kind, "
            "cut and budget. They are twelve evictions of `kvsim policy list` that take "
            "a prompt at once, and four allocations. Of the other evictions that a running model serves so, `window` is `streaming_llm` "
            "without its first tokens, `fastgen` has a budget of its own, and `openvino` too coarse blocks for a tenth. Eight more and "
            "systems are asked elsewhere, for answers alone ([systems](reproductions/README.md#systems)): \"most\" is most of these "
            "sixteen, and with the question known and a tenth of SmolLM2's cache `pyramidkv` answers more. Seeded rules draw anew for "
            "every prompt.")
        return f"""# What the open loop is worth

A replay (the open loop) measures what a policy's cache loses of a recorded run. Does it say which policy a running model (the closed loop)
answers best with? Both loops run the same policies on the same prompts here; [`kvsim agreement`](README.md#do-both-loops-agree) asks it of
other results.

```console
$ tools/python/both_loops.py build/release/kvsim
```

The command (it needs NumPy) fetches SmolLM2, goes on where it was stopped, and writes this page; the rows, and every tau of every kind,
stay in `build/both_loops`. **Where the models disagree, the claim is about SmolLM2.**

**Here**:

{chr(10).join(models)}

{set_of_policies}
"""

    def claims(self):
        both = len(self.judged) > 1
        rows = []
        for text, verdicts in self.verdicts.items():
            told = [f"{VERDICT[verdict]}: {why}" for verdict, why in verdicts]
            rows.append([text, *told, *(["yes" if verdicts[0][0] is verdicts[1][0] else "**no**"] if both else [])])
        return "\n".join([
            "## Claims\n",
            "Numbers behind an order are tau-b at the budgets named, else at 10, 25 and 50 %: the mean over the model's kinds, with its",
            "95 % interval (bootstrap over prompts). A measure orders where each interval lies above .5, which is more than three pairs of",
            "policies of four; it does not where one lies below; else it is open. Answers are those of all kinds together; \"most\" and",
            "\"more\" are judged by the paired interval of the difference.\n",
            table(["claim", *(judged.model.title for judged in self.judged), *(["both agree?"] if both else [])], rows)])

    def fell(self):
        fallen, opened = ([text for text, _, said in CLAIMS if said and self.verdicts[text][0][0] is verdict] for verdict in (False, None))
        return "\n".join([
            "## What fell\n",
            f"Of what these pages said of the shipped model, this does not hold on {self.first.model.title}:\n",
            *([f"- {text}." for text in fallen] or ["- Nothing."]),
            *(["\nThis its intervals leave open:\n", *[f"- {text}." for text in opened]] if opened else []),
            "",
            "What the old page had on protected tokens, on splits over layers, on the divergence of predictions and on the loss up to",
            "which answers are kept was of the shipped model alone; it has not been asked again and is gone.\n"])

    def orders(self):
        parts = ["## Orders of policies, and where they stop to hold\n",
                 "tau-b with right answers at 10, 25 and 50 %, mean over the kinds that have an order; in brackets the least of any. The",
                 "last column is what this page had before (the shipped model, `needle-multi-key` of 600 tokens, 10, 20 and 50 %).\n"]
        rows = []
        for number, (cut, known) in enumerate(CUTS.items()):
            for measure, (label, _, before) in MEASURES.items():
                cells = []
                for judged in self.judged:
                    least = {budget: np.fmin.reduce([judged.tau(cut, budget, measure, kind)[0] for kind in judged.model.kinds])
                             for budget in BUDGETS}
                    cells.append(" ".join(f"{short(judged.tau(cut, budget, measure)[0])} ({short(least[budget])})" for budget in BUDGETS))
                rows.append([f"{label}, {known}", *cells, before[number]])
        parts.append(table(["measure, question", *(judged.model.title for judged in self.judged), "old page"], rows))
        for judged in self.judged:
            places = [(cut, budget, kind) for cut in CUTS for budget in BUDGETS for kind in judged.model.kinds]
            weak = [place for place in places if not judged.tau(*place[:2], "peak_loss", place[2])[1] > 0.5]
            where = [f"{kind}, {CUTS[cut]} ({', '.join(budget for at, budget, of in weak if (at, of) == (cut, kind))})"
                     for cut, kind in dict.fromkeys((cut, kind) for cut, _, kind in weak)]
            parts.append(wrapped(f"**Peak loss, {judged.model.title}**: its interval lies above .5 at {len(places) - len(weak)} of "
                                 f"{len(places)} places" + (f"; not at: {'; '.join(where)}." if weak else "."), "- "))
        return "\n".join([*parts, ""])

    def answers(self):
        judged = self.first
        cells = list(itertools.product(CUTS, BUDGETS))
        policies = sorted(judged.model.policies, key=lambda policy: [-judged.answered("question", budget).get(policy, [-1])[0]
                                                                     for budget in BUDGETS[::-1]])
        rows = [[f"`{policy}`", *(f"{judged.answered(*cell)[policy][0]:.0f}" if policy in judged.answered(*cell) else "-"
                                  for cell in cells)] for policy in policies]
        count = sum(judged.model.counts.values())
        return "\n".join([
            f"## Right answers of {judged.model.title}\n",
            f"Of {count} prompts, all kinds together; the full cache answers {judged.full():.0f}. One number alone has a 95 % interval of",
            f"up to {1.96 * (0.25 * count) ** 0.5:.0f} on each side.\n",
            table(["policy", *(f"{CUTS[cut]}, {budget}" for cut, budget in cells)], rows)])

    def best(self):
        """The best policy of each case, for CHOOSING_A_POLICY.md."""
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

    def limits(self):
        return """## What this page cannot say

- With so few prompts of a kind (sixteen of SmolLM2's) bootstrap intervals are too narrow, and a verdict close to a bound may turn with more.
  The counts stand in the script, and a run with larger ones goes on from these.
- Both models are small, every prompt has one length and every answer a few tokens. Long generation, where drift adds up, is not here.
- An interval says how numbers vary with other prompts of the same kinds, not with other kinds or models.
- Policies that take the prompt token by token (`scissorhands`, `hashevict`, `h2o.stream`) are not in the set.
"""

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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kvsim")
    parser.add_argument("--models", default=",".join(model.name for model in MODELS))
    parser.add_argument("--runs", type=pathlib.Path, default=ROOT / "build" / "both_loops", help="folder of the rows of both loops")
    parser.add_argument("--page", type=pathlib.Path, default=ROOT / "analysis" / "OPEN_AND_CLOSED.md")
    parser.add_argument("--count", type=int, help="prompts of every kind")
    parser.add_argument("--policies", type=lambda text: text.split(","), help="run these alone, and write no page")
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
        page = Page([Judged(runs) for runs in judged])
        asked.page.write_text(page.text())
        choosing = asked.page.parent / "CHOOSING_A_POLICY.md"
        if choosing.exists():
            begin, end = "<!-- tools/python/both_loops.py: the best of each case -->\n", "<!-- end -->"
            before, rest = choosing.read_text().split(begin)
            choosing.write_text(before + begin + page.best() + end + rest.split(end, 1)[1])
        page.tables(asked.runs)


if __name__ == "__main__":
    main()
