#!/usr/bin/env python3
"""Tests studies and choices that mpirun starts as several processes: the folder has the bytes that one process writes, whatever is
killed on the way, and what goes wrong is told once. Skipped where kvsim was built without MPI."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import kvsim_command
from kvsim_command import KVSIM, SOURCE, CommandTest, same

MODEL = SOURCE / "traces/sample/model"
# More processes than processors, on one machine, without ssh, as any user, in any container.
LAUNCHED = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
            "OMPI_MCA_hwloc_base_binding_policy": "none", "OMPI_MCA_plm": "isolated",
            "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
            "ASAN_OPTIONS": "detect_leaks=0"}  # MPI's own, in builds that look for them
KILLED = 128 + signal.SIGKILL  # mpirun's exit code after that
STOPPED_BY_MPIRUN = 1          # mpirun's exit code after it was told to stop, whatever its processes end with


def ranks_of(mpirun):
    """Processes of a job, by rank."""
    out = {}
    for entry in pathlib.Path("/proc").iterdir():
        try:
            parent = re.search(r"^PPid:\s*(\d+)$", (entry / "status").read_text(), re.MULTILINE)
            if not entry.name.isdigit() or int(parent[1]) != mpirun.pid:
                continue
            rank = re.search(rb"\0OMPI_COMM_WORLD_RANK=(\d+)\0", (entry / "environ").read_bytes())
            if rank:
                out[int(rank[1])] = int(entry.name)
        except (OSError, TypeError):
            continue
    return out


class Ranks(CommandTest):
    STUDY = {"traces": "t.h5", "policies": ["h2o", "random"], "budgets": ["25%"], "report": False, "scopes": ["all", "step"],
             "seeds": [0, 1], "analyses": ["hash"], "loops": ["open", "closed"], "evaluate": {"max_new_tokens": 2},
             "capture": {"model": str(MODEL), "max_new_tokens": 2, "ignore_eos": True, "keep_traces": False,
                         "workloads": [{"kind": "needle", "context": 150, "count": 2}, {"kind": "text", "context": 90}]}}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.write("s.json")
        done = cls.kvsim("study", "s.json", "-o", "whole", "--quiet")
        assert done.returncode == 0, done.stderr
        cls.whole = cls.folder / "whole"
        cls.tasks = len(list((cls.whole / "tasks").iterdir()))

    def setUp(self):
        shutil.rmtree(self.folder / "d", ignore_errors=True)

    @classmethod
    def write(cls, name, **fields):
        (cls.folder / name).write_text(json.dumps({**cls.STUDY, **fields}))

    def mpirun(self, ranks, *arguments):
        """Starts a study; what is printed goes to files, which outlive killed processes."""
        with (self.folder / "out.txt").open("w") as out, (self.folder / "err.txt").open("w") as err:
            return subprocess.Popen(["mpirun", "-n", str(ranks), KVSIM, "study", *map(str, arguments)], cwd=self.folder,
                                    env={**os.environ, **LAUNCHED}, stdin=subprocess.DEVNULL, stdout=out, stderr=err)

    def printed(self):
        return (self.folder / "out.txt").read_text(), (self.folder / "err.txt").read_text()

    def run_ranks(self, ranks, *arguments, code=0):
        """Runs a study to its end; returns what it prints."""
        work = self.mpirun(ranks, *arguments)
        self.addCleanup(work.kill)
        work.wait(timeout=250)
        out, err = self.printed()
        self.assertEqual(work.returncode, code, err)
        return out, err

    def finished(self):
        tasks = self.folder / "d/tasks"
        return {path for path in tasks.iterdir() if path.suffix != ".partial"} if tasks.exists() else set()

    def wait_for(self, what, work):
        """Until `what` holds, while a job is at work."""
        end = time.monotonic() + 120
        while not what() and work.poll() is None:
            self.assertLess(time.monotonic(), end)
            time.sleep(0.002)

    def wait_until_gone(self, processes):
        """Until no process of a job is left: mpirun may end a moment before the last one."""
        end = time.monotonic() + 30
        while any(pathlib.Path(f"/proc/{process}").exists() for process in processes):
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)

    def check_what_is_there(self):
        """Whatever has its final name is whole."""
        for task in self.finished():
            subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=task, check=True)
        for trace in (self.folder / "d").glob("traces/*.h5"):
            self.assertIn("sound", self.ok("trace", "check", trace))
        for path in (self.folder / "d").rglob("*"):
            if path.is_file() and not path.name.endswith(".partial") and "tasks" not in path.parts and path.suffix != ".h5" \
                    and path.name != "study.json":
                self.assertEqual(path.read_bytes(), (self.whole / path.relative_to(self.folder / "d")).read_bytes())


class Bytes(Ranks):
    def test_any_number_of_ranks_writes_the_bytes_of_one_process(self):
        expected = self.ok("study", "s.json", "-o", "again", "--quiet").replace("again", "d")
        for ranks in 2, 4:
            with self.subTest(ranks=ranks):
                out, err = self.run_ranks(ranks, "s.json", "-o", "d", "--quiet")
                self.assertTrue(same(self.folder / "d", self.whole))
                self.assertEqual(out, expected)
                self.assertEqual(len(set(err.splitlines())), len(err.splitlines()))
                shutil.rmtree(self.folder / "d")

    def test_kept_traces_threads_and_a_report(self):
        self.write("kept.json", capture={**self.STUDY["capture"], "keep_traces": True}, report=True, seeds=[0])
        self.ok("study", "kept.json", "-o", "kept", "--quiet", "--threads", 1)
        self.run_ranks(3, "kept.json", "-o", "d", "--quiet", "--threads", 2)
        self.assertTrue(same(self.folder / "d", self.folder / "kept"))

    def test_more_ranks_than_tasks(self):
        self.write("one.json", capture=None, loops="open", seeds=[0], analyses=[])
        self.ok("study", "one.json", "-o", "one", "--quiet")
        self.run_ranks(4, "one.json", "-o", "d", "--quiet")
        self.assertTrue(same(self.folder / "d", self.folder / "one"))
        self.run_ranks(2, "one.json", "-o", "d", "--quiet", "--resume")
        self.assertTrue(same(self.folder / "d", self.folder / "one"))

    def test_what_does_no_work_is_said_once(self):
        shown, _ = self.run_ranks(3, "s.json", "--print-config")
        self.assertEqual(shown, self.ok("study", "s.json", "--print-config"))
        shown, _ = self.run_ranks(2, "s.json", "-o", "whole", "--dry-run", "--quiet")
        self.assertIn(f"tasks    {self.tasks} (finished {self.tasks},", shown)

    def test_progress_is_that_of_the_whole_study(self):
        """Of rank 0 alone. Lines come every five seconds, so this study takes longer than that."""
        self.make_trace("long.h5", 6000, 60)
        self.write("long.json", traces="long.h5", capture=None, loops="open", seeds=[0, 1, 2, 3], policies=["all"], budgets=["10%", "20%"],
                   analyses=[])
        work = self.mpirun(2, "long.json", "-o", "d", "--threads", 1)
        self.addCleanup(work.kill)
        self.wait_for(lambda: "elapsed" in self.printed()[1], work)
        work.terminate()
        work.wait(timeout=60)
        lines = [line for line in self.printed()[1].splitlines() if "elapsed" in line]
        if lines:  # a fast machine is done before
            self.assertRegex(lines[0], r"^long: (\d+%, )?0:05 elapsed")
            self.assertEqual(sum("0:05" in line for line in lines), 1)


def send(number, processes):
    for process in processes:
        try:
            os.kill(process, number)
        except ProcessLookupError:  # it has ended
            pass


class Killed(Ranks):
    def stop_when(self, what, work, processes):
        """Lets a job work for a few milliseconds at a time, and leaves it stopped once `what` holds: however busy the machine is, it
        has not gone on since."""
        while True:
            send(signal.SIGSTOP, processes)
            if what() or work.poll() is not None:
                return
            send(signal.SIGCONT, processes)
            time.sleep(0.005)

    def kill_after(self, tasks, victim):
        """Kills a rank of three once so many tasks have finished. Returns whether the study was still at work."""
        shutil.rmtree(self.folder / "d", ignore_errors=True)
        work = self.mpirun(3, "s.json", "-o", "d", "--quiet", "--threads", 1)
        self.addCleanup(work.kill)
        self.wait_for(lambda: len(ranks_of(work)) == 3, work)
        processes = ranks_of(work)
        if len(processes) < 3:  # it has ended
            return False
        self.stop_when(lambda: (self.folder / "d/study.json").exists() and len(self.finished()) >= tasks, work, processes.values())
        # The others stay stopped until mpirun ends them: it may be slower than what is left of a short study.
        send(signal.SIGKILL, [processes[victim]])
        work.wait(timeout=60)
        self.wait_until_gone(processes.values())
        if json.loads((self.folder / "d/study.json").read_text())["result"]["complete"]:
            return False
        self.assertEqual(work.returncode, KILLED, self.printed()[1])
        self.assertEqual(self.printed()[0], "")
        return True

    def test_a_killed_rank_ends_the_job_and_another_number_of_ranks_goes_on(self):
        done = set()
        moments = [(0, 0, 3), (0, 1, 1), (1, 0, 2), (self.tasks // 3, 1, 2), (self.tasks // 2, 2, 4), (self.tasks - 2, 0, 1)]
        for tasks, victim, then in moments:
            with self.subTest(tasks=tasks, victim=victim):
                # A few milliseconds of work may be all that was left.
                self.assertTrue(any(self.kill_after(tasks, victim) for _ in range(10)), "every kill came too late")
                self.check_what_is_there()
                before = {path: path.stat().st_mtime_ns for task in self.finished() for path in task.iterdir()}
                done.add(len(self.finished()))
                if then > 1:
                    self.run_ranks(then, "s.json", "-o", "d", "--quiet", "--resume")
                else:
                    self.ok("study", "s.json", "-o", "d", "--quiet", "--resume")
                self.assertTrue(same(self.folder / "d", self.whole))
                self.assertEqual({path: path.stat().st_mtime_ns for path in before}, before)
        self.assertGreater(len(done), 2, "every kill came at the same moment")

    def test_a_killed_mpirun_leaves_no_rank_at_work(self):
        work = self.mpirun(2, "s.json", "-o", "d", "--quiet", "--threads", 1)
        self.wait_for(lambda: len(ranks_of(work)) == 2 and len(self.finished()) >= 2, work)
        processes = ranks_of(work)
        work.kill()
        work.wait()
        self.wait_until_gone(processes.values())
        self.check_what_is_there()
        self.run_ranks(3, "s.json", "-o", "d", "--quiet", "--resume")
        self.assertTrue(same(self.folder / "d", self.whole))


class Stopped(Ranks):
    RESUMED = ["study", "long.json", "-o", "d", "--quiet", "--resume", "--memory-limit", "1KiB"]  # for a moment

    def begin(self):
        """A long study, of which the short tasks have finished; returns mpirun and its ranks."""
        if not (self.folder / "long.h5").exists():
            self.make_trace("long.h5", 16000, 200)
        self.write("long.json", traces=["t.h5", "long.h5"], capture=None, loops="open", policies=["all"],
                   budgets=["10%", "20%", "30%", "40%"], analyses=[])
        shutil.rmtree(self.folder / "d", ignore_errors=True)
        work = self.mpirun(2, "long.json", "-o", "d", "--quiet", "--threads", 1)
        self.addCleanup(work.kill)
        self.wait_for(lambda: len(self.finished()) == 2, work)
        return work, ranks_of(work)

    def stop(self, send):
        """Begins a long study, calls `send` with mpirun and its ranks, and returns mpirun's code."""
        work, processes = self.begin()
        send(work, processes)
        work.wait(timeout=100)
        self.wait_until_gone(processes.values())
        self.assertEqual({path.name for path in self.finished()}, {"t.cut-prompt.seed-0", "t.cut-prompt.seed-1"})
        self.assertEqual([path for path in (self.folder / "d").rglob("*.partial")], [])
        self.assertFalse(json.loads((self.folder / "d/study.json").read_text())["result"]["complete"])
        self.assertIn("the limit is 1 KiB", self.fails(2, *self.RESUMED))
        return work.returncode

    def test_a_signal_to_mpirun_stops_every_rank(self):
        for sign in signal.SIGTERM, signal.SIGINT:
            with self.subTest(sign=sign.name):
                self.assertEqual(self.stop(lambda work, _, sign=sign: work.send_signal(sign)), STOPPED_BY_MPIRUN)
                out, err = self.printed()
                self.assertEqual(out, "")
                self.assertEqual(err.count("2 of 4 tasks are finished and kept. Go on with: kvsim study long.json -o d --resume"), 1, err)

    def test_a_signal_to_any_rank_stops_the_study_with_its_code(self):
        """As srun sends it to all of them."""
        for ranks in [1], [0], [0, 1]:
            with self.subTest(ranks=ranks):
                self.assertEqual(self.stop(lambda _, processes: [os.kill(processes[rank], signal.SIGTERM) for rank in ranks]), 4)
                self.assertEqual(self.printed()[1].count("2 of 4 tasks are finished and kept"), 1)


    def test_no_other_study_begins_while_a_rank_is_left(self):
        """Rank 0 holds the folder, and the others do when it has died."""
        work, processes = self.begin()
        self.assertIn("another study is at work", self.fails(2, *self.RESUMED))
        for process in work.pid, processes[1]:  # mpirun would kill rank 1
            os.kill(process, signal.SIGSTOP)
        os.kill(processes[0], signal.SIGKILL)
        end = time.monotonic() + 30
        while "\nState:\tZ" not in pathlib.Path(f"/proc/{processes[0]}/status").read_text():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)
        self.assertIn("another study is at work", self.fails(2, *self.RESUMED))
        for process in work.pid, processes[1]:
            os.kill(process, signal.SIGCONT)
        work.wait(timeout=60)
        self.wait_until_gone(processes.values())
        self.assertIn("the limit is 1 KiB", self.fails(2, *self.RESUMED))


class Failures(Ranks):
    def test_an_error_on_any_rank_is_told_once_with_its_code(self):
        _, err = self.run_ranks(3, "s.json", "-o", "d", "--quiet", "--memory-limit", "1KiB", code=2)
        self.assertEqual(err.count("kvsim: "), 1, err)
        self.assertIn("the limit is 1 KiB", err)
        self.assertIn(f"of {self.tasks} tasks are finished and kept", err)
        self.run_ranks(2, "s.json", "-o", "d", "--quiet", "--resume")
        self.assertTrue(same(self.folder / "d", self.whole))

    def test_an_error_that_every_rank_sees_is_told_once(self):
        for arguments, code, word in [(["nowhere.json"], 3, "nowhere.json"), (["s.json", "--resume", "--overwrite"], 2, "cannot both be"),
                                      (["s.json", "-o", "whole"], 2, "is not empty")]:
            with self.subTest(arguments=arguments):
                _, err = self.run_ranks(3, *arguments, "--quiet", code=code)
                self.assertEqual(err.count("kvsim: "), 1, err)
                self.assertIn(word, err)

    def test_a_damaged_trace_costs_only_itself_and_has_the_same_words(self):
        self.make_trace("damaged.h5", 400, 6)
        path = self.folder / "damaged.h5"
        damaged = bytearray(path.read_bytes())
        for place in range(len(damaged) // 2, len(damaged) // 2 + 64):
            damaged[place] ^= 0xff
        path.write_bytes(damaged)
        self.write("damaged.json", traces=["t.h5", "damaged.h5"], capture=None, loops="open", analyses=["hash", "heads"])
        done = self.kvsim("study", "damaged.json", "-o", "one", "--quiet", "--overwrite")
        self.assertEqual(done.returncode, 3, done.stderr)
        _, err = self.run_ranks(3, "damaged.json", "-o", "d", "--quiet", code=3)
        self.assertIn("1 of 2 traces could not be read", err)
        self.assertNotIn("HDF5-DIAG", err)  # its own messages, which every thread of a rank keeps quiet
        self.assertTrue(same(self.folder / "d", self.folder / "one"))

    def run_apart(self, other):
        """Runs a study whose second rank looks for it in another folder; returns mpirun's exit code."""
        study = [KVSIM, "study", "s.json", "-o", self.folder / "d", "--quiet"]
        with (self.folder / "err.txt").open("w") as err:
            return subprocess.run(["mpirun", "-n", "1", *study, ":", "-n", "1", "-wdir", other, *study], cwd=self.folder,
                                  env={**os.environ, **LAUNCHED}, stdin=subprocess.DEVNULL, stderr=err, timeout=100).returncode

    def test_ranks_must_have_the_same_study(self):
        other = self.folder / "other"
        other.mkdir()
        self.addCleanup(shutil.rmtree, other)
        shutil.copy(self.folder / "t.h5", other)
        (other / "s.json").write_text(json.dumps({**self.STUDY, "seeds": [0, 7]}))
        self.assertEqual(self.run_apart(other), 2)
        self.assertRegex(self.printed()[1], r"(?m)^kvsim: rank 1 on \S+: has planned another study")

    def test_a_rank_that_cannot_plan_says_where(self):
        other = self.folder / "other"
        other.mkdir()
        self.addCleanup(shutil.rmtree, other)
        self.assertEqual(self.run_apart(other), 3)
        self.assertRegex(self.printed()[1], r"(?m)^kvsim: rank 1 on \S+: s\.json")

    def test_processes_that_mpi_does_not_know_are_refused(self):
        """As those that another MPI's mpirun starts."""
        done = self.kvsim("study", "s.json", "-o", "d", "--quiet", env={**os.environ, **LAUNCHED, "OMPI_COMM_WORLD_SIZE": "3"})
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("started 3 processes, and MPI sees 1", done.stderr)
        self.assertFalse((self.folder / "d").exists())


class ChoiceRanks(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        made = cls.kvsim("workload", "needle-multi-key", "--context", 150, "--count", 12, "--tokenizer", MODEL, "-o", "keys.jsonl")
        assert made.returncode == 0, made.stderr
        made = cls.kvsim(*cls.choose("alone"))
        assert made.returncode == 0, made.stderr
        cls.said = made.stdout

    @staticmethod
    def choose(folder, *more, cut="prompt"):
        return ["choose", "--model", MODEL, "--workload", "keys.jsonl", "--share", "20%", "--cut", cut, "--settings", 12, "-o", folder, *more]

    def run_ranks(self, ranks, arguments, code=0):
        done = subprocess.run(["mpirun", "-n", str(ranks), KVSIM, *map(str, arguments)], cwd=self.folder, env={**os.environ, **LAUNCHED},
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=250)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def assert_as_alone(self, name, said):
        self.assertEqual(said.replace(name, "alone"), self.said)
        for path in (self.folder / "alone").rglob("*"):
            if path.is_file():
                self.assertEqual(path.read_bytes(), (self.folder / name / path.relative_to(self.folder / "alone")).read_bytes(), path)

    def test_any_number_of_ranks_chooses_as_one_process(self):
        for ranks in 2, 4:
            name = f"by{ranks}"
            done = self.run_ranks(ranks, self.choose(name, "--quiet"))
            self.assertEqual(done.stderr, "")
            self.assert_as_alone(name, done.stdout)

    def test_ranks_go_on_with_a_choice_that_was_stopped(self):
        shutil.copytree(self.folder / "alone", self.folder / "stopped")
        for task in "screen-1", "search-0", "search-3", "confirm-0", "confirm-3":
            shutil.rmtree(self.folder / "stopped/tasks" / task)
        self.assert_as_alone("stopped", self.run_ranks(3, self.choose("stopped", "--resume", "--quiet")).stdout)

    def test_what_goes_wrong_is_told_once(self):
        self.assertEqual(self.run_ranks(2, self.choose("alone"), code=2).stderr.count("holds a choice"), 1)
        self.assertEqual(self.run_ranks(2, self.choose("other", "--loss", "much"), code=2).stderr.count("kvsim: "), 1)

    def test_ranks_that_see_other_prompts_are_refused(self):
        """Rank 1 starts in another folder, which has fewer prompts."""
        other = self.folder / "other"
        other.mkdir()
        lines = (self.folder / "keys.jsonl").read_text().splitlines(keepends=True)
        (other / "keys.jsonl").write_text("".join(lines[:10]))
        folder = self.folder / "apart"
        choose = [KVSIM, *map(str, self.choose(folder, "--quiet"))]
        done = subprocess.run(["mpirun", "-n", "1", *choose, ":", "-n", "1", "-wdir", other, *choose], cwd=self.folder,
                              env={**os.environ, **LAUNCHED}, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=250)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertRegex(done.stderr, r"(?m)^kvsim: rank 1 on \S+: .*: rank 0 has other prompts or options$")


def built_without_mpi():
    done = subprocess.run([KVSIM, "--version"], capture_output=True, text=True, check=True)
    return re.search(r"^MPI +none$", done.stdout, re.MULTILINE)


if __name__ == "__main__":
    if built_without_mpi() or not shutil.which("mpirun"):
        print("skipped: kvsim was built without MPI (libboost-mpi1.81-dev), or mpirun (openmpi-bin) is not here")
        sys.exit(77)
    kvsim_command.main()
