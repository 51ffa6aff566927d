#!/usr/bin/env python3
"""Draws the README's pictures of `kvsim view` from the page that tools/demo.sh writes (step 5): view.gif and view.dark.gif, where the
budget shrinks.

Usage: draw_view.py VIEW_HTML [FOLDER]     needs Debian's chromium and python3-pil
"""
import io
import pathlib
import sys

from PIL import Image

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests" / "cli"))
from browser import Browser  # noqa: E402

SECONDS = 2.5  # per budget; the smallest stays twice as long


def frame(browser, page, budget):
    browser.open(page, f"#shown=0,3,4,5&budget={budget}")
    browser.run("document.getElementById('dock').hidden = true; dispatchEvent(new Event('resize'))")
    shot = Image.open(io.BytesIO(browser.picture()))
    return shot.convert("RGB").quantize(64, dither=Image.Dither.NONE)


def main(page, folder=HERE):
    with Browser() as browser:
        for name, dark in (("view.gif", False), ("view.dark.gif", True)):
            browser.size(1120, 640, dark)
            browser.open(page)
            frames = [frame(browser, page, budget) for budget in reversed(range(browser.run("return view.budgets.length")))]
            times = [int(1000 * SECONDS)] * (len(frames) - 1) + [int(2000 * SECONDS)]
            frames[0].save(pathlib.Path(folder) / name, save_all=True, append_images=frames[1:], duration=times, loop=0, optimize=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
