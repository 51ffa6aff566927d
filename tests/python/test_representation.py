"""Representations written in Python store what built-in ones store, and say what is wrong with them."""
import numpy as np
import pytest

import kvsim


def half(x):
    return x.astype(np.float16).astype(np.float32)


def absmax(x, bits):
    """A scale per token, as a 16-bit float."""
    most = np.float32(2 ** (bits - 1) - 1)
    scale = half(np.abs(x).max(axis=-1, keepdims=True) / most)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(scale > 0, np.clip(np.rint(x / scale), -most, most) * scale, np.float32(0))


class MyInt(kvsim.Representation):
    """Whole numbers with a scale per token."""

    params = {"bits": 8}

    def encode(self, keys, values):
        return absmax(keys, self.bits), absmax(values, self.bits)

    def bits_of(self, tokens):
        return {"codes": tokens * self.bits * (self.head_dim + self.value_dim), "parameters": tokens * 2 * 16}


class MyWindowed(MyInt):
    """The same behind a window."""

    params = {"bits": 4, "residual": 8}
    exact = "residual"


class MyChannels(kvsim.Representation):
    """A scale and a least number for a channel of `group` tokens."""

    params = {"bits": 2, "group": 16}   # the parameter, not the query heads of a KV head
    block = "group"

    def coded(self, x):
        groups = x.reshape(x.shape[0], -1, self.group, x.shape[2])
        least, most = groups.min(axis=2, keepdims=True), groups.max(axis=2, keepdims=True)
        levels = np.float32(2 ** self.bits - 1)
        scale, offset = half((most - least) / levels), half(least)
        with np.errstate(divide="ignore", invalid="ignore"):
            level = np.where(scale > 0, np.clip(np.rint((groups - offset) / scale), 0, levels), np.float32(0))
        return (level * scale + offset).reshape(x.shape)

    def encode(self, keys, values):
        return self.coded(keys), self.coded(values)

    def bits_of(self, tokens):
        dims = self.head_dim + self.value_dim
        return {"codes": tokens * self.bits * dims, "parameters": tokens // self.group * dims * 32}


def assert_same(table, but=()):
    for column in table.columns:
        if column not in ("policy", "params", "command", "representation", *but):
            values = table[column]
            assert np.array_equal(values[:1], values[1:2], equal_nan=values.dtype.kind == "f"), column


@pytest.mark.parametrize("eviction", ["full", "snapkv(window=8)", "snapkv(window=8,unit=layer)", "h2o(prompt=stream)"])
@pytest.mark.parametrize("mine, built_in", [
    (MyInt(), "int8"),
    (MyWindowed(), "scalar(bits=4,group=0,zero=absmax,residual=8)"),
    (MyWindowed(residual=1), "scalar(bits=4,group=0,zero=absmax,residual=1)"),
    (MyChannels(), "scalar(bits=2,group=16,axis=channel)"),
])
def test_stores_what_the_built_in_one_stores(run, mine, built_in, eviction):
    table = kvsim.replay(run, [eviction + mine, f"{eviction}+{built_in}"], [0.4])
    # A group that has lost tokens keeps its scale, which a number of tokens cannot say.
    loses_groups = mine.name == "my_channels" and eviction.startswith("h2o")
    assert_same(table, [column for column in table.columns if "bytes" in column or "bits" in column] if loses_groups else [])


def test_answers_as_the_built_in_one(model, items):
    table = kvsim.evaluate(model, items[:2], ["snapkv(window=8)" + MyWindowed(bits=2), "snapkv(window=8)+scalar(bits=2,group=0,zero=absmax,residual=8)"],
                           [0.3], cut="question").to_pandas()
    mine, built_in = (table[table.policy == policy].reset_index(drop=True) for policy in table.policy.unique())
    for column in ("right", "kl", "agreement", "held_tokens", "held_bytes"):
        assert mine[column].equals(built_in[column]), column


def test_learns_from_the_prompt_once_for_all_budgets(run):
    prepared = []

    class PromptScale(kvsim.Representation):
        needs = ("keys", "values")

        def prepare(self, prompt):
            prepared.append((self.layer, self.kv_head))
            self.scales = [np.abs(x).max() / np.float32(127) for x in (prompt.keys, prompt.values)]

        def encode(self, keys, values):
            return tuple(np.rint(x / scale) * scale for x, scale in zip((keys, values), self.scales))

        def bits_of(self, tokens):
            return tokens * 8 * (self.head_dim + self.value_dim)

    mine = kvsim.replay(run, ["full" + PromptScale(), "full+int8"], [0.3, 0.6])
    assert sorted(prepared) == [(layer, head) for layer in range(4) for head in range(4)]
    errors = mine["output_error"]
    assert (errors > 0).all() and (errors < 0.05).all()


def test_exact_numbers_cost_nothing_but_bytes(run):
    class Half(kvsim.Representation):
        def encode(self, keys, values):
            return keys, values

        def bits_of(self, tokens):
            return {"codes": tokens * 8 * (self.head_dim + self.value_dim), "tables": 1024}

    coded, stored = kvsim.replay(run, ["full" + Half(), "full+scalar(bits=16)"], [0.5]).to_pandas().itertuples()
    assert coded.output_error == stored.output_error
    lanes, numbers = 4 * 4, 2 * 64
    held = coded.held_tokens * lanes * numbers
    assert coded.held_bytes == pytest.approx(held + lanes * 1024 / 8) and stored.held_bytes == pytest.approx(held * 2)


def test_threads_and_company_do_not_matter(run):
    alone = kvsim.replay(run, ["h2o" + MyChannels()], [0.3], threads=1)["output_error"][:1]
    beside = kvsim.replay(run, ["snapkv+kivi", "h2o" + MyWindowed(), "h2o" + MyChannels()], [0.3, 0.5], threads=2).to_pandas()
    row = beside[(beside.policy == "h2o+my_channels") & (beside.budget_number == 0.3)]
    assert row.output_error.tolist() == alone.tolist()


def test_costs_what_it_says(model):
    class Slow(MyInt):
        operations = (50, 2000)

    table = kvsim.cost(model, policies=["full" + MyInt(), "full+int8", "full" + Slow()], budgets=["100%"], prompt_tokens=4096, machine="a100-80-sxm").to_pandas()
    mine, built_in, slow = (table.iloc[i] for i in range(3))
    assert mine.peak_bytes == built_in.peak_bytes and slow.tpot_seconds > mine.tpot_seconds


@pytest.mark.parametrize("encode, bits, message", [
    (lambda k, v: (k[:, 1:], v), 8, r"encode\(\): returned keys of shape \(1, \d+, 64\) where \(1, \d+, 64\)"),
    (lambda k, v: (k, v * np.nan), 8, r"encode\(\): returned values that are not finite"),
    (lambda k, v: k, 8, "returned no pair"),
    (lambda k, v: (k, 1 / 0), 8, "ZeroDivisionError"),
    (lambda k, v: (k, v), -1, r"bits_of\(\): returned -1"),
    (lambda k, v: (k, v), 0.5, "number of bits"),
    (lambda k, v: (k, v), {"code": 1}, "bits of 'code'"),
    (lambda k, v: (k, v), "many", "ValueError"),
])
def test_what_goes_wrong_is_told(run, encode, bits, message):
    class Wrong(kvsim.Representation):
        name = "wrong_code"

        def encode(self, keys, values):
            return encode(keys, values)

        def bits_of(self, tokens):
            return bits

    with pytest.raises(kvsim.Error, match=message) as caught:
        kvsim.replay(run, ["full" + Wrong()], [0.5])
    assert "wrong_code" in str(caught.value)


def test_counts_are_checked(run):
    with pytest.raises(kvsim.UsageError, match="block"):
        kvsim.replay(run, ["full" + MyChannels(group=0)], [0.5])
    with pytest.raises(ValueError, match="exact names the parameter 'residal'"):
        class Misspelt(MyInt):
            params = {"residual": 8}
            exact = "residal"

        kvsim.replay(run, ["full" + Misspelt()], [0.5])
    from kvsim import _policies
    _policies.written.pop(("representation", "misspelt"))
