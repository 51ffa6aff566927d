#!/usr/bin/env python3
"""Tests progress: a bar on a terminal, a line every five seconds elsewhere, nothing when quiet; never on standard
output."""
import os
import pty
import re
import select
import signal
import subprocess
import time

import kvsim_command
from kvsim_command import CommandTest, start, wait_until_caught


class Progress(CommandTest):
    prompt, decode = 48000, 20
    study = ["replay", "t.h5", "--policy", "all", "--budget", "10%,20%,30%,40%,50%,60%,70%,80%", "--threads", "1"]

    def on_terminal(self, *more):
        """The terminal output of a study that is stopped at its first percentage, or a moment later."""
        terminal, side = pty.openpty()
        work = start(*self.study, *more, cwd=self.folder, stdout=subprocess.PIPE, stderr=side)
        os.close(side)
        self.addCleanup(work.kill)
        wait_until_caught(work, signal.SIGINT)
        shown, sent, began = b"", False, time.monotonic()
        while True:
            if select.select([terminal], [], [], 0.05)[0]:
                try:
                    part = os.read(terminal, 4096)
                except OSError:  # the other end is closed
                    break
                if not part:
                    break
                shown += part
            if not sent and (b"%" in shown or time.monotonic() - began > (1 if more else 120)):
                work.send_signal(signal.SIGINT)
                sent = True
        os.close(terminal)
        self.assertEqual(work.communicate(timeout=200)[0], "")
        self.assertEqual(work.returncode, 4)
        return shown.decode()

    def test_bar_on_a_terminal(self):
        shown = self.on_terminal()
        self.assertRegex(shown, r"\r\[#*\.+\] t\.h5: \d+%, \d+:\d\d elapsed, \d+:\d\d left")
        # The bar is erased before the last message.
        self.assertTrue(shown.endswith("\r\x1b[Kkvsim: interrupted\r\n"), shown[-80:])

    def test_quiet_terminal(self):
        self.assertEqual(self.on_terminal("--quiet"), "kvsim: interrupted\r\n")

    def test_a_line_now_and_then_elsewhere(self):
        work = start(*self.study, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(work.kill)
        seen = []
        began = time.monotonic()
        for line in work.stderr:
            seen.append(line)
            if re.fullmatch(r"t\.h5: \d+%, \d+:\d\d elapsed, \d+:\d\d left\n", line):
                break
        self.assertGreater(time.monotonic() - began, 4)
        self.assertIn("%", seen[-1])
        work.send_signal(signal.SIGTERM)
        _, rest = work.communicate(timeout=200)
        self.assertNotIn("\r", "".join(seen) + rest)
        self.assertEqual(work.returncode, 4)


if __name__ == "__main__":
    kvsim_command.main()
