"""Figures and pages as notebooks show them."""
from __future__ import annotations

import html
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


class View:
    """A page that shows what each policy forgot of a run's text. Notebooks show it; `save` writes it."""

    def __init__(self, page: str):
        self.html = page

    def save(self, path: str | os.PathLike) -> None:
        pathlib.Path(path).write_text(self.html, encoding="utf-8")

    def _repr_html_(self) -> str:
        # A document of its own, so that its styles and keys stay inside.
        return f'<iframe sandbox="allow-scripts" style="width:100%;height:46rem;border:0" srcdoc="{html.escape(self.html)}"></iframe>'

    def __repr__(self) -> str:
        return f"<kvsim.View, {len(self.html)} characters of HTML>"
