"""Allocations written in Python split as built-in ones do, and say what is wrong with them."""
import numpy as np
import pytest

import kvsim


class MyPyramid(kvsim.Allocation):
    """PyramidKV's line from the first layer to the last, as its code rounds it."""

    params = {"beta": 20}
    inexact = True

    def allocate(self, request):
        total = request.budget - request.floor
        least = total // self.beta
        most = 2 * total - least
        step = (most - least) // (request.n_layers - 1)
        above = np.array([most - layer * step for layer in range(request.n_layers)])
        return np.tile(np.minimum(above + request.floor, request.prompt)[:, None], request.n_kv_heads)


class ByMass(kvsim.Allocation):
    """Lanes with more attention on a few keys get fewer tokens."""

    rows = 8

    def profile(self, prompt):
        rows = np.sort(prompt.rows.mean(axis=(0, 1)))[::-1].cumsum()
        return [np.searchsorted(rows, 0.9 * rows[-1]) + 1]

    def allocate(self, request):
        wanted = request.profiles[:, :, 0].astype(int)
        room = request.prompt - request.floor
        rest = (min(request.budget, request.prompt) - request.floor) * wanted.size
        above = np.minimum(rest * wanted // wanted.sum(), room).ravel()
        for lane in np.argsort(-wanted.ravel(), kind="stable"):   # what is left
            above[lane] += min(rest - above.sum(), room - above[lane])
        return above.reshape(wanted.shape) + request.floor


def tokens_of(trace, policy, budget):
    rows = kvsim.replay(trace, [policy], budget, per="head").to_pandas()
    return rows.allotted_tokens.to_numpy().reshape(trace.n_layers, -1)


def test_an_even_split_is_uniform(run):
    class Even(kvsim.Allocation):
        def allocate(self, request):
            return np.full((request.n_layers, request.n_kv_heads), min(request.budget, request.prompt))

    ours, built_in = kvsim.decisions(run, ["snapkv(window=8)" + Even(), "snapkv(window=8)"], 0.25)
    assert all(np.array_equal(a, b) for a, b in zip(ours["lanes"], built_in["lanes"]))


def test_a_pyramid_by_hand(run):
    # Floor 8 of the window, 40 above it on average: 2 for the last layer, 78 for the first, steps of 25.
    assert tokens_of(run, "snapkv(window=8)" + MyPyramid(), 48).tolist() == [[86] * 4, [61] * 4, [36] * 4, [11] * 4]


def test_profiles_are_of_each_lane(run):
    tokens = tokens_of(run, "snapkv(window=8)" + ByMass(), 64)
    assert tokens.sum() == 64 * tokens.size and len(np.unique(tokens)) > 4 and tokens.min() >= 8
    one, two = (kvsim.decisions(run, ["h2o" + ByMass()], 64, threads=n)[0]["lanes"] for n in (1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(one, two))


def test_scores_are_the_evictions(run):
    seen = []

    class Looks(kvsim.Allocation):
        scores = True

        def allocate(self, request):
            seen.append(request)
            return np.full((request.n_layers, request.n_kv_heads), request.budget)

    class Ramp(kvsim.ScorePolicy):
        def score(self, prompt):
            return np.arange(len(prompt)) + 1000 * self.layer + 100 * self.kv_head

    kvsim.replay(run, [Ramp() + Looks()], 64)
    request = seen[0]
    expected = np.arange(request.prompt) + 1000 * np.arange(4)[:, None, None] + 100 * np.arange(4)[None, :, None]
    assert np.array_equal(request.scores, expected) and request.profiles is None and request.budget == 64
    with pytest.raises(kvsim.UsageError):
        kvsim.replay(run, ["streaming_llm" + Looks()], 64)


def test_answers_with_it(model, items):
    table = kvsim.evaluate(model, items[:2], ["snapkv(window=8)" + ByMass()], 0.3, cut="question", mode="greedy")
    assert len(table) == 2 and np.isfinite(table["right"]).all()


@pytest.mark.parametrize("split, message", [
    (lambda r: np.full((r.n_layers, r.n_kv_heads), r.budget + 1), "gave out"),
    (lambda r: np.full((r.n_layers, r.n_kv_heads), r.budget + 0.5), "not a whole number"),
    (lambda r: np.zeros((r.n_layers, r.n_kv_heads)), "layer 0, KV head 0 a number of tokens that is not a whole number from 8"),
    (lambda r: np.full(r.n_layers, r.budget), "is expected"),
    (lambda r: [][1], "IndexError"),
])
def test_what_goes_wrong_is_told(run, split, message):
    class Wrong(kvsim.Allocation):
        name = "wrong_split"

        def allocate(self, request):
            return split(request)

    with pytest.raises(kvsim.Error, match=message) as caught:
        kvsim.replay(run, ["snapkv(window=8)" + Wrong()], 64)
    assert "wrong_split" in str(caught.value)


def test_heads_that_share_a_set_get_as_many(run):
    with pytest.raises(kvsim.UsageError, match="whose set it shares"):
        kvsim.replay(run, ["snapkv(window=8,unit=layer)" + ByMass()], 64)
