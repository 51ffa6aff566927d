"""Policies written in Python."""
from __future__ import annotations

import inspect
import re
import types
from typing import Any, ClassVar

import numpy as np

written: dict[tuple[str, str], type[_Written]] = {}
"""Every policy by kind and name, for texts that name it: a class that is defined anew (a notebook's cell, run again) is meant
then instead of the earlier one."""

_NAME = re.compile(r"[a-z][a-z0-9_]*")


def _value_text(value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    return repr(float(value)) if isinstance(value, (float, np.floating)) else str(value)


class Composition:
    """A policy of several parts: an eviction and what follows it after '+'. Each is a text, a class or an object of one."""

    def __init__(self, *parts: Any):
        self.parts = parts

    @property
    def text(self) -> str:
        return "+".join(map(_text, self.parts))

    def __add__(self, part: Any) -> Composition:
        return Composition(*self.parts, *_parts(part))

    def __radd__(self, first: str) -> Composition:
        return Composition(first, *self.parts)

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__


class _Written:
    """What policies of every kind declare. An object of a class is one with other values of its parameters: `Mine(window=16)`."""

    kind: ClassVar[str]
    name: ClassVar[str]
    """As texts write it; default: the class's name in snake_case."""
    params: ClassVar[dict[str, Any]] = {}
    """Name to default: bool, int (not negative), float, str, or a tuple of choices of which the first is the default."""
    rows: ClassVar[int | str] = 0
    """How many of the last prompt rows `prompt.rows` has: a number, or the parameter that says so."""
    sums: ClassVar[bool] = False
    """Whether `prompt.sums`, the attention of all prompt rows, is needed."""
    needs: ClassVar[tuple[str, ...]] = ()
    """Which of "keys", "values", "queries" of the prompt are read."""
    paper: ClassVar[str] = ""

    def __init_subclass__(cls, kind: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if kind is not None:
            cls.kind = kind
            return
        if "name" not in cls.__dict__:
            cls.name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()
        if not _NAME.fullmatch(cls.name):
            raise ValueError(f"{cls.__name__}.name is {cls.name!r}; a policy's name is of a-z, 0-9 and _, and begins with a letter")
        written[cls.kind, cls.name] = cls

    def __init__(self, **params: Any):
        self._given = params

    def __str__(self) -> str:
        return _text(self)

    __repr__ = __str__

    def __add__(self, part: Any) -> Composition:
        return Composition(self) + part

    def __radd__(self, first: str) -> Composition:
        return Composition(first, self)

    @classmethod
    def _declaration(cls) -> dict[str, Any]:
        for need in cls.needs:
            if need not in ("keys", "values", "queries"):
                raise ValueError(f"{cls.__name__}.needs has {need!r}; it may have 'keys', 'values' and 'queries'")
        for name, default in cls.params.items():
            legal = isinstance(default, (bool, float, str)) or (isinstance(default, int) and default >= 0)
            if not legal and not (isinstance(default, tuple) and default and all(isinstance(word, str) for word in default)):
                raise ValueError(f"{cls.__name__}.params[{name!r}] is {default!r}; a default is a bool, an int that is not negative, a "
                                 "float, a str or a tuple of words")
        counts = {"rows": cls.rows, "exact": getattr(cls, "exact", 0), "block": getattr(cls, "block", 1)}
        for attribute, count in counts.items():
            if not isinstance(count, str) and not (isinstance(count, (int, np.integer)) and 0 <= count < 2 ** 53):
                raise ValueError(f"{cls.__name__}.{attribute} is {count!r}; it is a whole number that is not negative, or the name of a "
                                 "parameter")
            if isinstance(count, str) and count not in cls.params and (cls.kind, count) not in (
                    ("eviction", "window"), ("eviction", "sinks")):
                raise ValueError(f"{cls.__name__}.{attribute} names the parameter {count!r}, which params does not have")
        text = (inspect.getdoc(cls) if cls.__doc__ else "") or f"A policy of {cls.__module__}."
        return {
            "name": cls.name, "kind": cls.kind, "summary": text.splitlines()[0], "details": text, "paper": cls.paper,
            "params": dict(cls.params), **{name: count if isinstance(count, str) else int(count) for name, count in counts.items()},
            "sums": bool(cls.sums),
            "keys": "keys" in cls.needs, "values": "values" in cls.needs, "queries": "queries" in cls.needs,
            "has_observe": hasattr(cls, "observe"), "has_profile": hasattr(cls, "profile"), "has_prepare": hasattr(cls, "prepare"),
            "inexact": bool(getattr(cls, "inexact", False)), "scores": bool(getattr(cls, "scores", False)),
            "operations": tuple(getattr(cls, "operations", (0, 0))),
        }

    @classmethod
    def _with(cls, params: dict[str, Any], shape: dict[str, int]) -> _Written:
        made = cls.__new__(cls)
        made._given = params
        made.__dict__.update(shape)
        made.__dict__.update(params)   # what a class declares itself stands before what kvsim adds
        return made


class ScorePolicy(_Written, kind="eviction"):
    """An eviction that ranks tokens by a score.

        class Recent(kvsim.ScorePolicy):
            rows = 32                            # the last 32 rows of the prompt's attention

            def score(self, prompt):
                return prompt.rows.mean(axis=(0, 1))

        kvsim.replay("run.h5", [Recent, "snapkv", Recent() + "xkv", "kvcrush(base=recent)"], [0.1])

    One object serves one lane (layer and KV head), or with unit=layer one layer whose KV heads hold the same tokens. It has the
    parameters as attributes, and `layer`, `n_layers`, `kv_head`, `n_lanes`, `group` (query heads per KV head), `head_dim`,
    `value_dim`, `span` (sliding window, 0: none), `seed`.

    Besides its own `params`, every policy has `sinks` and `window` (tokens at the beginning and the end that stay whatever their
    score), `granularity`, `unit` and `tie`, as built-in ones do. A policy that names one of them in `params` sets its default.
    """

    def score(self, prompt) -> np.ndarray:
        """Returns one number per prompt position, [len(prompt)]; the highest are kept. Those of sinks and window do not matter."""
        raise NotImplementedError

    # A policy that also evicts while tokens are generated defines:
    #   observe(self, step, scores) -> scores   after each token's query has attended: the scores of all slots, the token's own
    #                                           at step.own_slot (0 so far); returns them changed, or changes them and returns None.
    #                                           self.budget and self.positions (of the slots at first) are there then.
    #   close_slots(self, victims)              if it keeps numbers per slot of its own: several tokens leave at once (close_up).


class Allocation(_Written, kind="allocation"):
    """A split of the budget over lanes.

        class FirstHalf(kvsim.Allocation):
            inexact = True

            def allocate(self, request):
                weight = np.where(np.arange(request.n_layers) < request.n_layers // 2, 4 / 3, 2 / 3)
                tokens = np.clip(np.rint(weight * request.budget), request.floor, request.prompt)
                return np.tile(tokens[:, None], request.n_kv_heads)

        kvsim.replay("run.h5", ["snapkv" + FirstHalf(), "snapkv"], [0.1])
    """

    inexact: ClassVar[bool] = False
    """Whether the total may be another than the budget asks for; results report it."""
    scores: ClassVar[bool] = False
    """Whether `request.scores` is needed: the eviction's scores of the prompt. Only evictions that rank by one go with it then."""

    def allocate(self, request) -> np.ndarray:
        """Returns whole numbers of tokens, [n_layers, n_kv_heads], each from min(request.floor, request.prompt) to request.prompt;
        in all min(request.budget, request.prompt) times the lanes, unless the class is `inexact`."""
        raise NotImplementedError

    # An allocation that measures the prompt defines:
    #   profile(self, prompt) -> array   of each lane, as many numbers: request.profiles has them, [n_layers, n_kv_heads, n].


class Representation(_Written, kind="representation"):
    """How the keys and values of the tokens that an eviction keeps are stored.

        class FewBits(kvsim.Representation):
            params = {"bits": 4}

            def encode(self, keys, values):
                def coded(x):                    # a scale per token
                    scale = abs(x).max(axis=-1, keepdims=True) / (2 ** (self.bits - 1) - 1)
                    return np.rint(x / np.where(scale > 0, scale, 1)) * scale
                return coded(keys), coded(values)

            def bits_of(self, tokens):
                return {"codes": tokens * self.bits * (self.head_dim + self.value_dim), "parameters": tokens * 2 * 16}

        kvsim.replay("run.h5", ["snapkv" + FewBits(), "snapkv+scalar(bits=4,group=0,zero=absmax)"], [0.1])

    One object serves one lane of one cache (where the heads of a layer hold one set, of all of them); it has the parameters as
    attributes, and those that a `ScorePolicy` has. The prompt is processed with exact numbers; what is kept of it is coded after
    the cut, and generated tokens as they come.
    """

    exact: ClassVar[int | str] = 0
    """How many of the latest tokens stay as they come: a number, or the parameter that says so."""
    block: ClassVar[int | str] = 1
    """How many tokens are coded at once: they wait for each other, as they come. A number, or the parameter that says so."""
    operations: ClassVar[tuple[float, float]] = (0, 0)
    """Operations to make and to read the code of a number, for `kvsim.cost`."""

    def encode(self, keys, values) -> tuple[np.ndarray, np.ndarray]:
        """Returns what attention will read of tokens from now on, in the shapes given: keys float32 [lanes, tokens, head_dim], after
        RoPE, and values float32 [lanes, tokens, value_dim], in the order in which the tokens came; `tokens` is a multiple of
        `block`. A token that is coded at once (`exact` 0, `block` 1) is read so by its own query, too; all others are coded after
        their query has attended, once and for all."""
        raise NotImplementedError

    def bits_of(self, tokens: int) -> int | dict[str, int]:
        """Returns how many bits so many coded tokens of a lane take: a number, or one for each of "codes", "parameters", "outliers",
        "indices", "tables", and of "shared" and "host", which are not part of the sum. Tokens that are not coded yet are counted by
        kvsim. Depends on the parameters, head_dim, value_dim, layer and n_layers alone."""
        raise NotImplementedError

    # A representation that learns from the prompt defines:
    #   prepare(self, prompt)   once per lane; `rows`, `sums` and `needs` say what the prompt has. Every cache goes on from there.


def close_up(per_slot: np.ndarray, victims: list[int]) -> np.ndarray:
    """What is left of an array per slot when several tokens leave: the arriving token takes the first victim's slot, those of the
    others close up."""
    return np.delete(per_slot, victims[1:], axis=0)


def _parts(policy: Any) -> tuple[Any, ...]:
    return policy.parts if isinstance(policy, Composition) else (policy,)


def _class_of(part: Any) -> type[_Written] | None:
    return part if isinstance(part, type) else type(part) if isinstance(part, _Written) else None


def _text(part: Any, names: dict[type, str] = {}) -> str:
    written_by = _class_of(part)
    if written_by is None:
        return str(part)
    values = getattr(part, "_given", {}) if part is not written_by else {}
    given = ",".join(f"{name}={_value_text(value)}" for name, value in values.items())
    return names.get(written_by, written_by.name) + (f"({given})" if given else "")


def _called(written_by: type[_Written], name: str) -> Any:
    """What stands for the class under another name."""
    return types.SimpleNamespace(_declaration=lambda: {**written_by._declaration(), "name": name}, _with=written_by._with)


def named(policies: list[Any]) -> tuple[list[str], list[Any]]:
    """Texts of policies, and the classes that they name. Two classes of one name are two policies: the second one is called
    name_2. A text means the class that is given beside it, else the one that was defined last."""
    names: dict[type, str] = {}
    for written_by in filter(None, (_class_of(part) for policy in policies for part in _parts(policy))):
        taken = {(other.kind, name) for other, name in names.items() if other is not written_by}
        name, count = written_by.name, 1
        while (written_by.kind, name) in taken or (count > 1 and (written_by.kind, name) in written):
            count += 1
            name = f"{written_by.name}_{count}"
        names[written_by] = name
    texts = ["+".join(_text(part, names) for part in _parts(policy)) for policy in policies]
    given = {(each.kind, name) for each, name in names.items()}
    classes = [each if each.name == name else _called(each, name) for each, name in names.items()]
    return texts, classes + [each for each in named_in(texts) if (each.kind, each.name) not in given]


def named_in(texts: list[str]) -> list[type[_Written]]:
    """Those that the texts name."""
    words = {word for text in texts for word in _NAME.findall(text)}
    return [policy for (_, name), policy in written.items() if name in words]
