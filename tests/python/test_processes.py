"""Many runs, threads and processes."""
import multiprocessing
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import kvsim


class Mine(kvsim.ScorePolicy):
    rows = 8

    def score(self, prompt):
        return prompt.rows.mean(axis=(0, 1))


def job(path):
    return kvsim.replay(path, ["h2o", Mine], [0.25])["r"].tolist()


def table_of(path):
    return kvsim.replay(path, ["h2o", Mine], [0.25])


@pytest.mark.parametrize("how", ["spawn", "fork"])
def test_processes(synthetic, how):
    here = job(synthetic.path)
    with multiprocessing.get_context(how).Pool(2) as pool:
        assert pool.map(job, [synthetic.path] * 4) == [here] * 4
        assert pool.apply(table_of, (synthetic.path,))["r"].tolist() == here  # a result travels back


def test_the_packages_command_is_no_rank_of_mpirun(tmp_path):
    """It has no MPI: every process would run the whole study."""
    command = [sys.executable, "-c", "import sys; from kvsim._terminal import main; sys.exit(main())", "study", "s.json"]
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, "OMPI_COMM_WORLD_SIZE": "3"}, capture_output=True, text=True)
    assert done.returncode == 2
    assert "was built without MPI, and was started as 3 processes" in done.stderr


def test_threads(synthetic):
    here, there = job(synthetic.path), []
    threads = [threading.Thread(target=lambda: there.append(job(synthetic.path))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert there == [here] * 8


def test_a_thousand_replays_leave_nothing(synthetic):
    def resident_kib():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4

    def some(n):
        for _ in range(n):
            job(synthetic.path)
        return resident_kib()

    warm = some(200)
    assert some(800) - warm < 8 * 1024  # 10 KiB a replay would be as much
