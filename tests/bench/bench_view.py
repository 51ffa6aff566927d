#!/usr/bin/env python3
"""Measures the page of kvsim view: bench_view.py KVSIM [FOLDER]. It needs chromium.

Prints the size of a page of 8 policies, 6 budgets, 2,000 tokens and 90 lanes and the seconds that writing it takes; then of a page of
32,768 tokens, and in headless Chromium the seconds until it is drawn, the milliseconds that a slider and the pointer take, and the frames
while the page is scrolled from one end to the other."""
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "cli"))
from browser import Browser  # noqa: E402

POLICIES = "keydiff,h2o,snapkv,tova,random,lagkv,streaming_llm,l2_norm"
BUDGETS = "5%,10%,20%,30%,40%,50%"
SCROLL = """
const frames = [], high = document.documentElement.scrollHeight, steps = 600;
let before = performance.now();
for (let i = 0; i <= steps; i++) {
  scrollTo(0, high * i / steps);
  await new Promise((done) => requestAnimationFrame(done));
  const now = performance.now();
  frames.push(now - before);
  before = now;
}
frames.sort((a, b) => a - b);
return [frames[steps >> 1], frames[Math.floor(steps * 0.95)], frames.filter((each) => each > 34).length];
"""
TIMED = """
const times = [], frame = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
for (let i = 0; i < 9; i++) {
  const begin = performance.now();
  %s
  times.push(performance.now() - begin);
  await frame();
}
return times.sort((a, b) => a - b)[4];
"""
SLIDE = """const slider = document.getElementById("budget");
  slider.value = i % (Number(slider.max) + 1);
  slider.dispatchEvent(new Event("input"));
  document.body.offsetHeight;"""
POINT = """const words = document.querySelectorAll("#texts [data-u]");
  words[i * 7].dispatchEvent(new Event("pointerover", {bubbles: true}));
  document.body.offsetHeight;"""


def page(kvsim, folder, name, policies, *shape):
    trace, made = folder / f"{name}.h5", folder / f"{name}.html"
    if not trace.exists():
        subprocess.run([kvsim, "trace", "generate", *map(str, shape), "--group", "1", "--head-dim", "16", "--elem", "bf16", "-o", trace],
                       check=True, stdout=subprocess.DEVNULL)
    asked = [trace, "--policy", policies, "--budget", BUDGETS, "--quiet"]
    times = []
    for command in (["replay", *asked, "--decisions", folder / f"{name}.decisions.h5", "--overwrite"],
                    ["view", *asked, "-o", made, "--overwrite"]):
        begin = time.monotonic()
        subprocess.run([kvsim, *command], check=True, stdout=subprocess.DEVNULL)
        times.append(time.monotonic() - begin)
    print(f"{name}: {made.stat().st_size / 1e6:.2f} MB, written in {times[1]:.1f} s; replay --decisions takes {times[0]:.1f} s")
    return made


def main(kvsim, folder):
    page(kvsim, folder, "90 lanes, 2,000 tokens, 8 policies", POLICIES, "--layers", 30, "--kv-heads", 3, "--prompt-tokens", 1984,
         "--decode", 16)
    long = page(kvsim, folder, "8 lanes, 32,768 tokens, 4 policies", POLICIES[:POLICIES.index(",random")], "--layers", 4, "--kv-heads", 2,
                "--prompt-tokens", 32752, "--decode", 16)
    with Browser() as browser:
        browser.size(1280)
        for made in (folder / "90 lanes, 2,000 tokens, 8 policies.html", long):
            begin = time.monotonic()
            browser.open(made)
            opened = time.monotonic() - begin
            drawn = browser.run("return performance.now()") / 1000
            median, late, dropped = browser.run(SCROLL)
            print(f"{made.stem}: drawn {opened:.2f} s after it was opened (at most {drawn:.2f} s of its own clock); a frame takes "
                  f"{median:.1f} ms while it is scrolled (95 %: {late:.1f} ms), {dropped} of 601 over two refreshes; "
                  f"the slider of budgets {browser.run(TIMED % SLIDE):.0f} ms, a word pointed at {browser.run(TIMED % POINT):.0f} ms")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        main(sys.argv[1], pathlib.Path(sys.argv[2]))
    else:
        with tempfile.TemporaryDirectory(prefix="kvsim-view-") as made:
            main(sys.argv[1], pathlib.Path(made))
