#!/usr/bin/env python3
"""Measures the page of kvsim view: bench_view.py KVSIM [FOLDER]. It needs chromium.

Prints the size of a page of 8 policies, 6 budgets, 2,000 tokens and 90 lanes, and of one of 32,768 tokens, the seconds that writing them
takes, and of both in headless Chromium how long they take to be drawn, to be scrolled, and to follow a slider and the pointer: by the
clock, which other load lengthens, and by the processor's time of the page's main thread."""
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "cli"))
from browser import Browser  # noqa: E402

POLICIES = "keydiff,h2o,snapkv,tova,random,lagkv,streaming_llm,l2_norm"
BUDGETS = "5%,10%,20%,30%,40%,50%"
FRAMES = 200
# 120 pixels a frame, 7,200 a second, from the middle on.
SCROLL = f"""
const frames = [], from = document.documentElement.scrollHeight / 3;
for (let i = 0, before = performance.now(); i < {FRAMES}; i++) {{
  scrollTo(0, from + 120 * i);
  await new Promise((done) => requestAnimationFrame(done));
  frames.push(performance.now() - before);
  before = performance.now();
}}
frames.sort((a, b) => a - b);
return [frames[{FRAMES // 2}], frames[{FRAMES * 95 // 100}]];
"""
TIMES = 9
REPEATED = f"""
for (let i = 0; i < {TIMES}; i++) {{
  %s
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
}}
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


def main_thread(browser):
    """Milliseconds of the processor that the page's main thread has taken, which other programs' load does not lengthen much."""
    metrics = {each["name"]: each["value"] for each in browser.send("Performance.getMetrics")["metrics"]}
    return 1000 * metrics["TaskDuration"]


def main(kvsim, folder):
    pages = [page(kvsim, folder, "90 lanes, 2,000 tokens, 8 policies", POLICIES, "--layers", 30, "--kv-heads", 3, "--prompt-tokens", 1984,
                  "--decode", 16),
             page(kvsim, folder, "8 lanes, 32,768 tokens, 4 policies", POLICIES[:POLICIES.index(",random")], "--layers", 4, "--kv-heads", 2,
                  "--prompt-tokens", 32752, "--decode", 16)]
    for made in pages:
        with Browser() as browser:
            browser.size(1280)
            browser.send("Performance.enable", timeDomain="threadTicks")
            browser.open(made)
            drawn, opened = browser.run("return performance.now()"), main_thread(browser)
            median, late = browser.run(SCROLL)
            scrolled = main_thread(browser)
            browser.run(REPEATED % SLIDE)
            slid = main_thread(browser)
            browser.run(REPEATED % POINT)
            pointed = main_thread(browser)
        print(f"{made.stem}: drawn after {drawn:.0f} ms ({opened:.0f} ms of the processor); a frame of a scroll takes {median:.1f} ms, "
              f"95 % of them at most {late:.1f} ms ({(scrolled - opened) / FRAMES:.1f} ms of the processor); the slider of budgets "
              f"{(slid - scrolled) / TIMES:.0f} ms and a word pointed at {(pointed - slid) / TIMES:.0f} ms of the processor")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        main(sys.argv[1], pathlib.Path(sys.argv[2]))
    else:
        with tempfile.TemporaryDirectory(prefix="kvsim-view-") as made:
            main(sys.argv[1], pathlib.Path(made))
