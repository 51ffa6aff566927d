#!/usr/bin/env python3
"""The notebooks run, and what they print is what stands in them: tests/python/test_notebooks.py --write writes it anew."""
import pathlib
import sys

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = pathlib.Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "tools" / "python" / "notebooks").glob("*.ipynb"))


def executed(path):
    book = nbformat.read(path, as_version=4)
    NotebookClient(book, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(ROOT)}}).execute()
    for cell in book.cells:
        cell.get("metadata", {}).pop("execution", None)  # when it ran
    return book


def tables(book):
    """What cells show as tables, and the number of pictures."""
    shown = [output["data"] for cell in book.cells for output in cell.get("outputs", []) if "data" in output]
    return [data["text/plain"] for data in shown if "text/html" in data], sum("image/svg+xml" in data for data in shown)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook(path):
    assert tables(executed(path)) == tables(nbformat.read(path, as_version=4))


def test_there_are_some():
    assert len(NOTEBOOKS) == 5


if __name__ == "__main__":
    assert sys.argv[1:] == ["--write"], __doc__
    for notebook in NOTEBOOKS:
        nbformat.write(executed(notebook), notebook)
