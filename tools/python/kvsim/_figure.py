"""Figures as notebooks show them."""
from __future__ import annotations

import os
import pathlib


class Figure:
    """A drawing in SVG. Notebooks show it; `save` writes it."""

    def __init__(self, svg: str):
        self.svg = svg

    def save(self, path: str | os.PathLike) -> None:
        pathlib.Path(path).write_text(self.svg, encoding="utf-8")

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"<kvsim.Figure, {len(self.svg)} characters of SVG>"
