#!/usr/bin/env python3
"""Tests that what a message tells the reader to do works: each command of remedies.py is refused, the words of its message become the
next command in bash, and that one succeeds. No message that names an option is without such a command."""
import concurrent.futures
import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile

import h5py

import kvsim_command
import remedies
from kvsim_command import KVSIM, SOURCE, CommandTest

MODEL = SOURCE / "traces/sample/model"
SERVED = "--model llama-3.1-8b --machine h100-sxm"
PRICED = f"cost estimate {SERVED} --prompt-tokens 1K"
VARIABLES = {
    "M": MODEL, "R": "replay t.h5 --quiet --budget 64 --policy", "C": SERVED, "T": SERVED + " --quiet",
    "KN": PRICED, "K": PRICED + " --quiet",
    "C1": f"cost estimate {SERVED} --quiet", "CAP": f"capture --model {MODEL} --tokens ids.txt --max-new-tokens 2 --quiet",
    "E": f"evaluate --model {MODEL} --policy window --budget 64 --max-new-tokens 1 --quiet"}
# edit STATEMENT FILE: a JSON document, or one per line, changed by a statement about `d`.
EDIT = """#!/usr/bin/env python3
import json, sys
text = sys.stdin.read() if sys.argv[2] == "-" else open(sys.argv[2]).read()
try:
    documents = [json.loads(text)]
except ValueError:
    documents = [json.loads(line) for line in text.splitlines()]
for d in documents:
    exec(sys.argv[1])
    print(json.dumps(d))
"""
FIXTURES = r"""
for i in $(seq 40); do printf 'The river runs past the old mill. '; done > text.txt
head -c 1400 text.txt > mid.txt
cat $(yes text.txt | head -99) > huge.txt
seq -s ' ' 40 > ids.txt
printf 'a,b\n1,2\n' > reqs.csv
synthetic="kvsim trace generate --decode 8"
$synthetic --layers 4 --kv-heads 4 --head-dim 64 --prompt-tokens 200 -o t.h5 --overwrite
$synthetic --layers 4 --kv-heads 4 --head-dim 64 --prompt-tokens 300 -o long.h5
$synthetic --layers 2 --kv-heads 2 --head-dim 80 --prompt-tokens 200 -o odd80.h5
$synthetic --layers 2 --kv-heads 6 --head-dim 48 --prompt-tokens 200 -o six.h5
kvsim $CAP -o run.h5
kvsim $CAP --queries window:4 -o slim.h5
kvsim capture --model $M --prompt text.txt --max-new-tokens 1 --quiet -o tx.h5
kvsim capture --model $M --prompt mid.txt --max-new-tokens 40 --quiet --prefill-chunk 64 -o calm0.h5
kvsim cost calibrate calm0.h5 --machine h100-sxm -o mach.json
kvsim cost calibrate calm0.h5 -o nolink.json
kvsim $R h2o -o rows.csv
kvsim calibrate kv_heads long.h5 -o kh.h5 --quiet
kvsim workload needle --context 120 --count 2 --tokenizer $M -o items.jsonl
kvsim workload needle --style ruler --context 150 --count 1 --tokenizer $M -o long.jsonl
kvsim workload turns --facts 2 --context 300 --count 1 --tokenizer $M -o turns.jsonl
kvsim workload needle --context 120 --count 1 --tokenizer chatty --chat -o chat.jsonl
kvsim workload turns --facts 2 --context 400 --count 4 --tokenizer chatty --chat -o chatturns.jsonl
edit 'd.update(report=True)' s.json > drawn.json
kvsim study drawn.json -o s1 --quiet && cp -r s1 s1x
kvsim $E --workload items.jsonl -o ans.csv
kvsim evaluate --model $M --workload long.jsonl --policy h2o --budget 40 --quiet -o ans0.csv
kvsim capture --model $M --workload long.jsonl --max-new-tokens 1 --quiet -o needle-150-s1-0.h5
kvsim replay needle-150-s1-0.h5 --policy h2o --budget 40 --quiet -o agr0.csv
kvsim capture --item $ITEM --workload items.jsonl --model $M --max-new-tokens 1 --quiet -o $ITEM.h5
kvsim replay $ITEM.h5 --policy window --budget 64 --quiet -o agr.csv
kvsim requests generate --requests 60 --turns timed --mix agent=1 --to bailian -o wait2.jsonl --quiet
kvsim requests generate --requests 60 --mix agent=1 --to bailian -o wait.jsonl --quiet
edit 'del d["timestamp"]' req.jsonl > ksb.jsonl
"""
STUDIES = {
    "tr": {"traces": []}, "budget": {"budgets": []}, "seeds": {"seeds": []}, "scopes": {"scopes": []}, "loops": {"loops": []},
    "closed": {"loops": ["closed"]}, "empty": {"policies": []}, "nofile": {"traces": ["nowhere/t.h5"]},
    "machine": {"model": "llama-3.1-8b"},
    "table": {"analyses": [{"kind": "hash", "table": "A B"}]}, "pol": {"policies": ["zz*"]}, "mach": {"machine": "t4"},
    "two": {"traces": ["t.h5", {"files": "long.h5", "name": "t"}]}, "each": {"traces": [{"files": "[lt]*.h5", "name": "a"}]},
    "pattern": {"traces": ["qq*.h5"]}, "params": {"policies": [{"policy": "h2o", "params": "h2o()"}]},
    "tab2": {"analyses": [{"kind": "heads", "table": "means"}]},
    "what": {"traces": [], "capture": {"model": str(MODEL), "max_new_tokens": 1}},
    "nopol": {"traces": [], "loops": ["closed"], "policies": [], "capture": {"model": str(MODEL), "prompts": ["text.txt"]},
              "analyses": ["heads"]},
    "ctx": {"traces": [], "capture": {"model": str(MODEL), "workloads": [{"kind": "needle", "context": 99999}]}}}

# Messages that name an option or a command and that no row provokes, by a part of theirs, and why.
LEFT_OUT = {
    r"--device cpu|lower --max-new-tokens|Lower --prefill-chunk|--compute (bf16|f32)|Cut later: --cut|CMAKE_CUDA": "of a GPU, or of memory",
    r"mpirun|srun": "of MPI",
    r"fewer --threads\.": "of a machine that is short of memory, threads or disk",
    r"built without|libsentencepiece-dev|KVSIM_CUDA|KVSIM_REQUESTS": "of another build",
    r"Another processor": "of another processor",
    r"Make (it|the file) anew: kvsim calibrate|Write the tables again": "of a damaged file",
    r"pass (the |token )?ids with --tokens|Pass token ids": "of a tokenizer of another kind; --tokens is tried for those here",
    r"capture again with --queries all or --queries window:W|Capture with --queries all, or use": "of a trace that kvsim does not write",
    r"^Capture it again with": "of the libraries alone",
    r"or add --overwrite\.$|drives queues": "the command says it with other words before",
    r"llama-gguf-split|kvsim\[llama-cpp\]": "of another program",
    r"Put the file back": "of a file that a study captures; test_pinned_inputs.py changes one",
    r"as plain text with --prompt": "of a tokenizer that changes the text",
    r"^kvsim evaluate runs it\.": "of kvsim.hf.Cache",
    r"^Go on with it: --resume": "of a choice; test_choose.py goes on with one",
}


COMMANDS = "replay|evaluate|capture|calibrate|policy|trace (check|info|mark|show)|study|cost|requests|workload|config|report"


def names_option(text):
    return re.search(rf"[ (]--[a-z]|\bkvsim ({COMMANDS})\b", text)


def literals_of_errors():
    """(file, text) of every literal in a statement that makes an error or a hint, and that names an option or a command."""
    for room in ("sim", "policies", "traces", "analysis", "tools"):
        for path in sorted((SOURCE / room).rglob("*.[ch]pp")):
            code = re.sub(r"(?m)^\s*//.*$", "", path.read_text())
            code = re.sub(r'"\s*\n?\s*"', "", code)  # neighbours are one literal
            for statement in code.split(";"):
                if not re.search(r"usage_error|input_error|Error\(|[hH]int|kLess|kRemedy|kUseTokens|kByHand", statement):
                    continue
                for text in re.findall(r'(?<!R)"((?:[^"\\\n]|\\.)*)"', statement):
                    text = one_line(text.replace('\\"', '"').replace("\\n", " "))
                    if " " in text and names_option(text) and not re.fullmatch(r"(--[-a-z]+(, | and )?)+", text):
                        yield path.relative_to(SOURCE), text


def one_line(text):
    return re.sub(r"\s+", " ", text).strip()


class Remedies(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        (cls.folder / "bin").mkdir()
        (cls.folder / "bin/kvsim").symlink_to(KVSIM)
        (cls.folder / "bin/edit").write_text(EDIT)
        (cls.folder / "bin/edit").chmod(0o755)
        cls.variables = {**os.environ, **VARIABLES, "PATH": f"{cls.folder}/bin:{os.environ['PATH']}", "ITEM": "needle-120-s1-0",
                         "CHATITEM": "needle-120-s1-0"}
        cls.write_files()
        made = cls.bash("set -e\n" + FIXTURES)
        assert made.returncode == 0, made.stderr
        for name in ("nan.h5", "nan2.h5", "bare.h5"):
            shutil.copy(cls.folder / ("slim.h5" if name == "bare.h5" else "t.h5"), cls.folder / name)
            with h5py.File(cls.folder / name, "r+") as file:
                if name == "bare.h5":
                    for layer in file["layers"].values():
                        del layer["column"]
                    continue
                kvsim_command.without_digests(file)
                file["layers/0000/v"][0, 3, 0] = float("nan")
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            lists = ("POLICIES", "REQUESTS", "COSTS", "CAPTURE", "STUDIES", "OUTPUTS", "COMMANDS", "EVALUATE", "NOTES")
            outcomes = list(pool.map(cls.follow_all, lists))
        cls.wrong = [problem for of_list in outcomes for problem, _ in of_list if problem]
        cls.said = one_line(" ".join(said for of_list in outcomes for _, said in of_list))

    @classmethod
    def write_files(cls):
        def write(name, content):
            (cls.folder / name).parent.mkdir(exist_ok=True)
            (cls.folder / name).write_text(content if isinstance(content, str) else json.dumps(content))

        for name, template in (("chatty", "chatml"), ("gemma", "gemma2"), ("qwen", "qwen3"), ("odd", None)):
            shutil.copytree(MODEL, cls.folder / name)
            text = (SOURCE / f"tests/golden/chat/{template}.jinja").read_text() if template else "{{ messages[0].content | reverse }}"
            write(f"{name}/tokenizer_config.json", {"chat_template": text, "eos_token": "</s>", "bos_token": "<s>"})
        user = {"role": "user", "content": "Hi"}
        write("messages.json", [user])
        write("twice.json", [user, user])
        write("system.json", [{"role": "system", "content": "S"}, user])
        write("thoughts.json", [user, {"role": "assistant", "content": "<think>a</think>b"}, user])
        study = {"traces": ["t.h5"], "policies": ["h2o"], "budgets": [20], "report": False}
        write("s.json", study)
        for name, changed in STUDIES.items():
            write(f"st_{name}.json", {**study, **changed})
        write("st_field.json", {"traces": ["t.h5"], "polices": ["h2o"], "budgets": [20], "report": False})
        requests = [{"timestamp": 1000 * i, "input_length": 1024, "output_length": 4, "hash_ids": [0, i + 1]} for i in range(4)]
        write("req.jsonl", "".join(json.dumps(request) + "\n" for request in requests))
        write("full/x", "")
        (cls.folder / "empty").mkdir()

    @classmethod
    def follow_all(cls, name):
        """What each row of a list comes to, in a copy of the folder: another list may rewrite a file that this one reads."""
        with tempfile.TemporaryDirectory() as own:
            shutil.copytree(cls.folder, own, symlinks=True, dirs_exist_ok=True)
            return [cls.follow(row, (0,) if name == "NOTES" else (2, 3), own) for row in getattr(remedies, name)]

    @classmethod
    def bash(cls, script, folder=None):
        done = subprocess.run(["bash", "-c", script], cwd=folder or cls.folder, env=cls.variables, capture_output=True, timeout=120)
        done.stdout, done.stderr = (stream.decode(errors="replace") for stream in (done.stdout, done.stderr))
        return done

    @classmethod
    def follow(cls, row, codes, folder):
        """What is wrong with a row, if anything, and what its commands said."""
        command, pattern, remedy = row
        script = command[2:] if command.startswith("$ ") else "kvsim " + command
        first = cls.bash(script, folder)
        said = first.stderr + first.stdout
        found = re.search(pattern, said)
        if first.returncode not in codes or not found:
            return f"{script}\nended with {first.returncode} and said, without {pattern}:\n{said[-2000:]}", said
        for i, words in enumerate(found.groups(), 1):
            remedy = remedy.replace(f"{{{i}}}", words or "")
        if remedy.startswith("+ "):
            remedy = script + remedy[1:]
        elif " =>" in remedy:
            old, new = remedy.split(" =>", 1)
            if old not in script:
                return f"{script}\nhas no {old}", said
            remedy = script.replace(old, new[1:], 1)
        then = cls.bash(remedy, folder)
        said += then.stderr
        if then.returncode != 0:
            return f"{script}\nsaid:\n{said[-2000:]}\nThen\n{remedy}\nended with {then.returncode}:\n{then.stderr[-2000:]}", said
        return None, said

    def test_what_messages_tell_to_do_succeeds(self):
        for problem in self.wrong:
            with self.subTest(problem.split("\n")[0]):
                self.fail(problem)

    def test_no_message_that_names_an_option_is_untried(self):
        texts = list(literals_of_errors())
        self.assertGreater(len(texts), 100)
        left = {part: [text for _, text in texts if re.search(part, text) and text not in self.said] for part in LEFT_OUT}
        known = {text for found in left.values() for text in found}
        self.assertEqual([f"{path}: {text}" for path, text in texts if text not in self.said and text not in known], [])
        self.assertEqual([part for part, found in left.items() if not found], [], "these are tried now")

    def test_a_stopped_study_says_how_to_go_on(self):
        (self.folder / "go.json").write_text('{"traces": ["t.h5", "cut.h5"], "policies": ["h2o"], "budgets": [20], "report": false}')
        shutil.copy(self.folder / "long.h5", self.folder / "cut.h5")
        with open(self.folder / "cut.h5", "r+b") as file:
            file.truncate(3000)
        said = self.kvsim("study", "go.json", "-o", "go", "--quiet").stderr
        go_on = re.search(r"Go on with: kvsim (study .*--resume)", said)
        self.assertIsNotNone(go_on, said)
        shutil.copy(self.folder / "long.h5", self.folder / "cut.h5")
        self.ok(*shlex.split(go_on[1]), "--quiet")

    def test_policy_pages_show_commands_that_run(self):
        policies = json.loads(self.ok("policy", "list", "--format", "json"))
        for policy in policies:
            if policy["kind"] not in ("representation", "selection"):
                continue
            for line in self.ok("policy", "show", policy["name"]).splitlines():
                if not line.strip().startswith("kvsim replay") or "FILE" in line:
                    continue
                with self.subTest(line.strip()):
                    words = shlex.split(line.replace("run.h5", "shown.h5").replace("10%,25%,50%", "50%"))
                    if not (self.folder / "shown.h5").exists():
                        self.ok("trace", "generate", "--layers", 4, "--kv-heads", 2, "--head-dim", 64, "--prompt-tokens", 200,
                                "--decode", 4, "-o", "shown.h5")
                    self.ok(*words[1:], "--quiet")


if __name__ == "__main__":
    kvsim_command.main()
