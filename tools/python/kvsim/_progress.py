"""How long work is shown."""
from __future__ import annotations

import sys
import time
import warnings
from typing import Callable

Progress = bool | Callable[[str, float], None] | None


class _Bar:
    """tqdm's bar where it is installed, else a line that is written over."""

    def __init__(self) -> None:
        self._label, self._bar, self._since = "", None, time.monotonic()

    def __call__(self, label: str, share: float) -> None:
        if label != self._label:
            self.close()
            self._label, self._since = label, time.monotonic()
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # a notebook without widgets: the bar is text then
                    from tqdm.auto import tqdm

                self._bar = tqdm(total=1.0, desc=label, leave=False, bar_format="{l_bar}{bar}| {elapsed}<{remaining}")
            except ImportError:
                pass
        if self._bar is not None:
            self._bar.update(share - self._bar.n)
            return
        gone = time.monotonic() - self._since
        left = f", {gone * (1 - share) / share:.0f} s left" if share > 0 else ""
        print(f"\r{label}: {share:.0%}, {gone:.0f} s{left}\033[K", end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
        elif self._label:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
        self._label = ""


def shown(progress: Progress) -> Callable[[str, float], None] | None:
    """What to call: the caller's own, a bar, or nothing. None: a bar where people look, at a terminal or in a notebook."""
    if callable(progress):
        return progress
    if progress is None:
        progress = sys.stderr.isatty() or "ipykernel" in sys.modules
    return _Bar() if progress else None
