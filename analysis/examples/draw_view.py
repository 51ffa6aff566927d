#!/usr/bin/env python3
"""Draws view.png and view.dark.png, the README's picture of `kvsim view`, from the page that tools/demo.sh writes (step 5).

Usage: draw_view.py VIEW_HTML [FOLDER]     needs Debian's chromium
"""
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests" / "cli"))
from browser import Browser  # noqa: E402


def main(page, folder=HERE):
    with Browser() as browser:
        for name, dark in (("view.png", False), ("view.dark.png", True)):
            browser.size(1120, 640, dark)
            browser.open(str(pathlib.Path(page).resolve()), "#shown=0,3,4,5")
            browser.run("document.getElementById('dock').hidden = true; dispatchEvent(new Event('resize'))")
            browser.screenshot(str(pathlib.Path(folder) / name))


if __name__ == "__main__":
    main(*sys.argv[1:])
