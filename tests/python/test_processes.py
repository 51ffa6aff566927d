"""Many runs, threads and processes."""
import multiprocessing
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
