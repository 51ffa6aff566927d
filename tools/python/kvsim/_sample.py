"""What the package brings to try things on."""
from __future__ import annotations

import pathlib


def sample_model() -> pathlib.Path:
    """The folder of a small Llama that looks facts up in a text. It is no model of language: CARD.md in it says what it can."""
    return pathlib.Path(__file__).with_name("sample_model")
