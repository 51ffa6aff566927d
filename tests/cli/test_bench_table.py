"""The table of benchmarks: reads what benchmarks print, and warns of what is worse by all pairs."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

KVSIM, SOURCE = sys.argv[1:3]
sys.argv[1:] = []
sys.path.insert(0, str(pathlib.Path(SOURCE) / "tests" / "bench"))
import table  # noqa: E402

TABLE = pathlib.Path(SOURCE) / "tests" / "bench" / "table.py"


def row(ratio, low, high):
    return {"ratio": ratio, "low": low, "high": high}


class BenchTable(unittest.TestCase):
    def build(self, script):
        """A folder with a benchmark that does what a script says, and a command with a version."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        build = pathlib.Path(folder.name)
        (build / "tests").mkdir()
        for path, text in ((build / "tests" / "bench_cost", script), (build / "kvsim", "echo kvsim 9.9")):
            path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
            path.chmod(0o755)
        return build

    def run_table(self, build):
        return subprocess.run([sys.executable, TABLE, "--build", build, "cost"], capture_output=True, text=True)

    def test_reads_what_a_benchmark_prints(self):
        line = "64 cells, 1 lane / bare                                             1.53x  (1.42 .. 1.63)      96.7 ms against     63.4 ms"
        done = self.run_table(self.build(f"echo '  a remark'; echo '{line}'"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("kvsim 9.9, ", done.stdout)
        self.assertIn("| cost | 64 cells, 1 lane / bare | 1.53 (1.42 .. 1.63) |", done.stdout)
        self.assertIn("a remark", done.stderr)

    def test_a_benchmark_that_fails_or_prints_no_ratio_is_an_error(self):
        for script in ("exit 3", "echo nothing"):
            done = self.run_table(self.build(script))
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("bench_cost ended with", done.stderr)

    def test_warns_of_what_is_worse_by_all_pairs(self):
        before = {"cost": {"a": row(1.0, 0.9, 1.1), "b": row(1.0, 0.9, 1.1), "c": row(1.0, 0.9, 1.1)}}
        now = {"cost": {"a": row(1.25, 1.2, 1.3), "b": row(1.25, 1.0, 1.3), "c": row(1.15, 1.12, 1.2), "new": row(9, 9, 9)}}
        worse = table.worse(now, before)
        self.assertEqual(len(worse), 1)
        self.assertIn("a: 1.0 before, 1.25 now", worse[0])
        below = "64 cells, one by one / together"
        self.assertEqual(table.worse({"evaluate": {below: row(30, 29, 31)}}, {"evaluate": {below: row(20, 19, 21)}}), [])
        self.assertEqual(len(table.worse({"evaluate": {below: row(20, 19, 21)}}, {"evaluate": {below: row(30, 29, 31)}})), 1)

    def test_an_unknown_benchmark_is_named(self):
        done = subprocess.run([sys.executable, TABLE, "cots"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("no benchmark cots", done.stderr)


if __name__ == "__main__":
    unittest.main()
