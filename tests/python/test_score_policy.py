"""Policies written in Python keep what built-in ones keep, compose as they do, and say what is wrong with them."""
import numpy as np
import pytest

import kvsim
from written_policies import MyH2o, MySnap


class MyKeyNorm(kvsim.ScorePolicy):
    """Keeps keys of small norm, as Devoto et al. do."""

    name = "my_l2"
    needs = ("keys",)

    def score(self, prompt):
        return -np.linalg.norm(prompt.keys[0].astype(np.float64), axis=1)


def kept(trace, policy, budgets, **options):
    return [(cell["budget"], [lane.tolist() for lane in cell["lanes"]])
            for cell in kvsim.decisions(trace, [policy], budgets, **options)]


@pytest.mark.parametrize("mine, built_in", [
    (MySnap, "snapkv"),
    (MySnap(window=8, kernel=3), "snapkv(window=8,pool=avg:3)"),
    (MySnap(window=8) + "xkv", "snapkv(window=8)+xkv"),
    (MySnap(window=8) + "adakv", "snapkv(window=8)+adakv"),
    ("my_snap(window=8,unit=layer)", "snapkv(window=8,unit=layer)"),
    ("my_snap(window=8,sinks=4,granularity=4)", "snapkv(window=8,sinks=4,granularity=4)"),
    (MyH2o, "h2o(recent=0)"),
    (MyH2o(sinks=2, window=3), "h2o(recent=0,sinks=2,window=3)"),
    ("my_h2o(prompt=stream)", "h2o(recent=0,prompt=stream)"),
    (MyKeyNorm, "knorm(decode=false)"),
])
def test_keeps_what_the_built_in_one_keeps(run, mine, built_in):
    assert kept(run, mine, [0.3, 0.5]) == kept(run, built_in, [0.3, 0.5])


def test_threads_and_company_do_not_matter(run):
    alone = kept(run, MyH2o, [0.3], threads=1)
    assert alone == kept(run, MyH2o, [0.3], threads=2)
    beside = kvsim.decisions(run, ["snapkv", MySnap, MyH2o], [0.3, 0.5], threads=2)
    assert alone[0][1] == [lane.tolist() for lane in beside[2]["lanes"]]


def test_wraps_and_is_coded(run):
    table = kvsim.replay(run, ["kvcrush(base=my_snap)", "kvcrush(base=snapkv)", MySnap() + "kivi", "snapkv+kivi"], [0.4])
    for column in ("r", "attention_loss", "output_error", "kept_tokens"):
        values = table[column]
        assert np.array_equal(values[:1], values[1:2], equal_nan=True) and np.array_equal(values[2:3], values[3:4], equal_nan=True)


def test_answers_as_the_built_in_one(model, items):
    table = kvsim.evaluate(model, items, [MySnap(window=8), "snapkv(window=8)", MyH2o, "h2o(recent=0)"], [0.3], cut="question").to_pandas()
    by_policy = {policy: rows.reset_index(drop=True) for policy, rows in table.groupby("policy", sort=False)}
    for mine, built_in in (("my_snap", "snapkv"), ("my_h2o", "h2o")):
        for column in ("right", "kl", "agreement", "held_tokens"):
            assert by_policy[mine][column].equals(by_policy[built_in][column]), column


def test_parameters_are_checked(run):
    with pytest.raises(kvsim.UsageError, match="kernel") as caught:
        kvsim.replay(run, ["my_snap(kernl=3)"], [0.5])
    assert "kernel" in caught.value.hint
    with pytest.raises(kvsim.UsageError, match="whole number"):
        kvsim.replay(run, [MySnap(kernel=2.5)], [0.5])


def test_shows_itself():
    class Shown(kvsim.ScorePolicy):
        """Keeps tokens that show."""

        params = {"brightness": 3}

    assert Shown.name == "shown"
    text = " ".join(kvsim.command("policy", "show", "shown").split())
    assert "Keeps tokens that show." in text and "brightness" in text


@pytest.mark.parametrize("returned, message", [
    (lambda n: np.ones(n - 1), r"shape \(\d+,\) where \(\d+,\) is expected"),
    (lambda n: np.ones((n, 2)), r"shape \(\d+, 2\)"),
    (lambda n: np.full(n, np.nan), "NaN as number 0"),
    (lambda n: 1 / 0, "ZeroDivisionError"),
    (lambda n: "text", "ValueError"),
    (lambda n: None, "is expected|TypeError"),
])
def test_what_goes_wrong_is_told(run, returned, message):
    class Wrong(kvsim.ScorePolicy):
        def score(self, prompt):
            return returned(len(prompt))

    with pytest.raises(kvsim.Error, match=message) as caught:
        kvsim.replay(run, ["snapkv", Wrong], [0.5])
    assert "wrong: layer " in str(caught.value) and "KV head" in str(caught.value)


def test_its_own_exception_is_the_cause(run):
    class Fails(kvsim.ScorePolicy):
        def score(self, prompt):
            raise LookupError("no such thing")

    with pytest.raises(kvsim.PolicyError, match="fails: layer 0.*LookupError: no such thing") as caught:
        kvsim.replay(run, [Fails], [0.5], threads=1)
    assert isinstance(caught.value.__cause__, LookupError)


def test_what_is_kept_of_a_prompt_is_gone(run):
    seen = []

    class Keeps(kvsim.ScorePolicy):
        rows = 4
        needs = ("keys",)

        def score(self, prompt):
            seen.append((prompt, prompt.keys, prompt.rows))
            return np.arange(len(prompt))

    kvsim.replay(run, [Keeps], [0.5])
    prompt, keys, rows = seen[0]
    with pytest.raises(kvsim.UsageError, match="gone"):
        len(prompt)
    assert np.isfinite(keys).all() and keys.shape[0] == 1 and rows.shape[1] == 4
    assert np.allclose(rows.sum(axis=2), 1, atol=1e-3)


def test_names():
    with pytest.raises(ValueError, match="a-z"):
        class Bad(kvsim.ScorePolicy):
            name = "Not-a-name"

    class Twice(kvsim.ScorePolicy):
        name = "snapkv"

        def score(self, prompt):
            return np.zeros(len(prompt))

    try:
        with pytest.raises(kvsim.UsageError, match="a policy that kvsim has"):
            kvsim.replay("never-opened.h5", ["snapkv"], [0.5])
    finally:
        from kvsim import _policies
        del _policies.written["eviction", "snapkv"]


def made(sign):
    """Classes of one name, as of a factory or of a notebook's cell that was run again."""
    class Made(kvsim.ScorePolicy):
        def score(self, prompt):
            return sign * np.arange(len(prompt))

    return Made


def kept_of_prompt(decided, length):
    return [sorted(lane[(lane[:, 1] == 0) & (lane[:, 0] < length), 0]) for lane in decided["lanes"]]


def test_two_classes_of_one_name_are_two_policies(run):
    oldest, newest = made(-1), made(1)
    length = run.segments[0]["count"]
    expected = {oldest: list(range(64)), newest: list(range(length - 64, length))}
    for each, positions in expected.items():
        assert kept_of_prompt(kvsim.decisions(run, [each], [64])[0], length) == [positions] * 16  # four KV heads in four layers
        assert kept_of_prompt(kvsim.decisions(run, [each(sinks=0)], [64])[0], length) == [positions] * 16  # four KV heads in four layers
    alone = {each: kvsim.replay(run, [each], [64])["attention_loss"][0] for each in expected}
    assert alone[oldest] != alone[newest]
    for first, second in (oldest, newest), (newest, oldest):
        table = kvsim.replay(run, [first, second, first(), "h2o"], [64])
        assert list(table["policy"]) == ["made", "made_2", "h2o"]
        assert list(table["attention_loss"][:2]) == [alone[first], alone[second]]
    # In compositions, too, and in texts: there it is the one that is given beside, else the last one.
    both = kvsim.replay(run, [oldest() + "uniform", newest() + "uniform"], [64])
    assert list(both["attention_loss"]) == [alone[oldest], alone[newest]] and len(set(both["policy"])) == 2
    assert kvsim.replay(run, ["made"], [64])["attention_loss"][0] == alone[newest]
    assert list(kvsim.replay(run, [oldest, "made+uniform"], [64])["attention_loss"]) == [alone[oldest]]


@pytest.mark.parametrize("rows", [-1, 1.5, None, 2 ** 70])
def test_counts_are_checked(rows):
    class Counted(kvsim.ScorePolicy):
        def score(self, prompt):
            return np.zeros(len(prompt))

    Counted.rows = rows
    with pytest.raises(ValueError, match=r"Counted\.rows is .*number"):
        kvsim.replay("never-opened.h5", [Counted], [0.5])


def test_numpy_counts_are_counts(run):
    class Counted(kvsim.ScorePolicy):
        rows = np.int64(4)

        def score(self, prompt):
            return prompt.rows.mean(axis=(0, 1))

    assert len(kvsim.replay(run, [Counted], [0.5])) == 1


@pytest.mark.parametrize("method", ["score", "observe"])
def test_complex_numbers_have_no_order(run, method):
    class Complex(kvsim.ScorePolicy):
        def score(self, prompt):
            return np.arange(len(prompt)) * (1j if method == "score" else 1)

        def observe(self, step, scores):
            return scores + 1j

    with pytest.raises(kvsim.Error, match="complex"):
        kvsim.replay(run, [Complex], [0.5])
