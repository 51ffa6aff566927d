#!/usr/bin/env python3
"""Tests that what a study reads stays the same for all of its tasks, wherever it lies, and that a file which is written while it
is read is noticed."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

import kvsim_command
from kvsim_command import SOURCE, CommandTest, start

MODEL = SOURCE / "traces/sample/model"
WORDS = "The river runs past the old mill. " * 40


class PinnedInputs(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.make_trace("other.h5", 96, 12, "--seed", 5)
        for name, trace in ("tables", "t.h5"), ("others", "other.h5"):
            made = cls.kvsim("calibrate", "kvquant", trace, "-o", f"{name}.h5", "--quiet")
            assert made.returncode == 0, made.stderr

    def study(self, name, **more):
        (self.folder / f"{name}.json").write_text(json.dumps({"policies": ["h2o"], "budgets": [20], "report": False, **more}))
        return "study", f"{name}.json", "-o", name, "--quiet"

    def tasks(self, name):
        return {str(path): path.stat().st_mtime_ns for path in (self.folder / name / "tasks").rglob("*") if path.is_file()}

    def lose_a_task(self, name):
        shutil.rmtree(next((self.folder / name / "tasks").iterdir()))

    def test_a_calibration_is_the_same_for_all_tasks(self):
        shutil.copy(self.folder / "tables.h5", self.folder / "used.h5")
        asked = self.study("calibrated", traces=["t.h5"], policies=["full+kvquant(file=used.h5,own_traces=allowed)"], seeds=[1, 2])
        self.ok(*asked)
        whole = (self.folder / "calibrated/results.csv").read_bytes()
        self.lose_a_task("calibrated")
        shutil.copy(self.folder / "others.h5", self.folder / "used.h5")
        before = self.tasks("calibrated")
        said = self.fails(3, *asked, "--resume")
        self.assertRegex(said, r"inputs\.policies used\.h5 was \"\w{64}\" and is now \"\w{64}\"")
        self.assertIn("Put the file back", said)
        self.assertEqual(self.tasks("calibrated"), before)
        shutil.copy(self.folder / "tables.h5", self.folder / "used.h5")  # the remedy
        self.ok(*asked, "--resume")
        self.assertEqual((self.folder / "calibrated/results.csv").read_bytes(), whole)

    def test_a_model_is_the_same_for_all_tasks_and_may_lie_elsewhere(self):
        shutil.copytree(MODEL, self.folder / "here/model")
        for name in "here/prompt.txt", "here/words.txt":
            (self.folder / name).write_text(WORDS)

        def asked(home, *more):
            capture = {"model": f"{home}/model", "prompts": [{"files": f"{home}/prompt.txt", "name": "p"}], "max_new_tokens": 2,
                       "workloads": [{"kind": "needle", "context": 120, "count": 1, "text": f"{home}/words.txt"}]}
            return *self.study("modelled", capture=capture, loops=["open", "closed"]), *more

        self.ok(*asked("here"))
        self.lose_a_task("modelled")
        for name in "config.json", "tokenizer.json", "model.safetensors":
            path = self.folder / "here/model" / name
            kept = path.read_bytes()
            path.write_bytes(kept + b"\n" if name.endswith("json") else kept[:-1] + bytes([kept[-1] ^ 1]))
            said = self.fails(3, *asked("here", "--resume"))
            self.assertIn(f"inputs.capture.model/{name} was", said)
            path.write_bytes(kept)
        (self.folder / "here/words.txt").write_text(WORDS * 2)
        self.fails(3, *asked("here", "--resume"))
        (self.folder / "here/words.txt").write_text(WORDS)
        os.rename(self.folder / "here", self.folder / "there")
        before = self.tasks("modelled")
        self.ok(*asked("there", "--resume"))
        self.assertEqual({path: before[path] for path in before}, {path: self.tasks("modelled")[path] for path in before})

    def test_an_input_that_changes_between_tasks_ends_the_study(self):
        shutil.copy(self.folder / "tables.h5", self.folder / "swapped.h5")
        asked = self.study("changing", traces=["t.h5"], policies=["full+kvquant(file=swapped.h5,own_traces=allowed)"],
                           seeds=list(range(300)))
        work = start(*asked, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.addCleanup(work.kill)
        self.wait_for(lambda: list(self.folder.glob("changing/tasks/*")))
        shutil.copy(self.folder / "others.h5", self.folder / "swapped.new")
        os.rename(self.folder / "swapped.new", self.folder / "swapped.h5")
        said = work.communicate(timeout=100)[1]
        self.assertEqual(work.returncode, 3, said)
        self.assertIn("swapped.h5: was changed while the study was at work", said)
        self.assertIn("Put that content back", said)
        self.assertLess(len(list(self.folder.glob("changing/tasks/*"))), 300)

    def wait_for(self, happened):
        for _ in range(3000):
            if happened():
                return
            time.sleep(0.01)
        self.fail("it never happened")

    def written_in_use(self, name, write, *command):
        """Code and messages of a command whose weights are written once they are mapped."""
        shutil.copytree(MODEL, self.folder / name)
        weights = self.folder / name / "model.safetensors"
        work = start(command[0], "--model", name, *command[1:], cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.addCleanup(work.kill)
        self.wait_for(lambda: str(weights) in pathlib.Path(f"/proc/{work.pid}/maps").read_text())
        time.sleep(0.3)  # it is at work
        write(weights)
        said = work.communicate(timeout=200)[1]
        return work.returncode, said

    def test_a_checkpoint_that_is_written_in_use_is_no_model(self):
        (self.folder / "text.txt").write_text(WORDS)
        (self.folder / "ids.txt").write_text(" ".join(str(i % 200) for i in range(1200)))

        def rewrite(path):
            with open(path, "r+b") as file:
                file.seek(path.stat().st_size // 2)
                file.write(b"\1" * 1000)

        commands = {"capture": ["capture", "--tokens", "ids.txt", "--max-new-tokens", 800, "--ignore-eos", "--quiet", "-o", "{}.out"],
                    "evaluate": ["evaluate", "--prompt", "text.txt", "--policy", "h2o", "--budget", 40, "--max-new-tokens", 1500, "--quiet",
                                 "--force", "full", "--format", "csv", "-o", "{}.out"]}
        for kind, command in commands.items():
            for how, write, words in (("rewritten", rewrite, "was rewritten while being read"),
                                      ("cut", lambda path: os.truncate(path, 5000),
                                       "was (cut off while it was|truncated while being) read")):
                with self.subTest(f"{kind} {how}"):
                    name = f"{kind}-{how}"
                    output = name + (".h5" if kind == "capture" else ".csv")
                    code, said = self.written_in_use(name, write, *(str(word).replace("{}.out", output) for word in command))
                    self.assertEqual(code, 3, said)
                    self.assertRegex(said, f"{name}/model.safetensors: {words}")
                    self.assertIn("once nothing writes the file", said)
                    self.assertEqual([path.name for path in self.folder.glob(f"{name}.*")], [])

    def test_a_terminal_that_goes_away_leaves_nothing_half_written(self):
        (self.folder / "hang.txt").write_text(" ".join(str(i % 200) for i in range(500)))
        work = start("capture", "--model", MODEL, "--tokens", "hang.txt", "--max-new-tokens", 1500, "--ignore-eos", "--quiet",
                     "-o", "hung.h5", cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.addCleanup(work.kill)
        self.wait_for(lambda: list(self.folder.glob("hung.h5.*.partial")))
        work.send_signal(signal.SIGHUP)
        said = work.communicate(timeout=100)[1]
        self.assertEqual(work.returncode, 4, said)
        self.assertEqual(list(self.folder.glob("hung*")), [])


if __name__ == "__main__":
    kvsim_command.main()
