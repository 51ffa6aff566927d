#!/usr/bin/env python3
"""Tests that tables fit a terminal, and that pipes and files have them whole."""
import fcntl
import os
import pty
import re
import struct
import subprocess
import termios

import kvsim_command
from kvsim_command import KVSIM, CommandTest, said_at

BEST, FAINT, PLAIN = "\x1b[1;32m", "\x1b[2m", "\x1b[0m"


class Tables(CommandTest):
    asked = ["replay", "t.h5", "--policy", "full,h2o,snapkv(window=8),window", "--budget", "20%,4", "--quiet"]

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for name in ("COLUMNS", "NO_COLOR"):
            os.environ.pop(name, None)

    def at_terminal(self, columns, *arguments, **environment):
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        with subprocess.Popen([KVSIM, *map(str, arguments)], cwd=self.folder, stdin=subprocess.DEVNULL, stdout=slave,
                              stderr=subprocess.DEVNULL, env={**os.environ, "TERM": "xterm", **environment}) as work:
            os.close(slave)
            said = said_at(master)
            self.assertEqual(work.wait(timeout=100), 0)
        return said.decode().replace("\r\n", "\n")

    @staticmethod
    def table_of(text):
        """Lines from the headings to the end of the last row."""
        lines = re.sub("\x1b\\[[\\d;]*m", "", text).splitlines()
        end = max(i for i, line in enumerate(lines) if re.match(r"window +(\* +)?\d", line))
        return [line.rstrip() for line in lines[lines.index("") + 1:end + 1]]

    def test_tables_fit_the_terminal_first_columns_first(self):
        whole = self.table_of(self.ok(*self.asked))
        self.assertGreater(max(map(len, whole)), 100)
        for columns in (60, 80, 100):
            text = self.at_terminal(columns, *self.asked, NO_COLOR="1")
            shown = self.table_of(text)
            self.assertLessEqual(max(map(len, shown)), columns)
            self.assertGreater(max(map(len, shown)), columns - 20)
            cut = max(map(len, shown))
            for line, full in zip(reversed(shown), reversed(whole)):
                self.assertEqual(line, full[:cut].rstrip())
            left_out = re.search(r"No room for: ([^(]*) \(--wide shows all", " ".join(text.split()))[1].split(", ")
            asked = self.table_of(self.ok(*self.asked, "--columns", ",".join(left_out)))
            self.assertEqual(len(re.split("  +", asked[-1])), 1 + len(left_out))
        self.assertEqual(self.table_of(self.at_terminal(60, *self.asked, "--wide")), whole)
        self.assertEqual(self.table_of(self.at_terminal(300, *self.asked)), whole)
        self.assertLessEqual(max(map(len, self.table_of(self.at_terminal(300, *self.asked, COLUMNS="60")))), 60)

    def test_columns_by_any_spelling_of_their_headings(self):
        for names in ("kept_tokens,attention_loss", "Attention Loss,keptTokens"):
            table = self.table_of(self.ok(*self.asked, "--columns", names))
            self.assertEqual(table[1].split(), ["policy", "loss", "tokens"])
        done = self.kvsim(*self.asked, "--columns", "attention_lost")
        self.assertEqual(done.returncode, 2)
        self.assertIn("attention_loss", done.stderr)
        self.assertIn("\nwindow", done.stdout)  # what was computed is not lost
        self.assertIn("no table", self.kvsim(*self.asked, "--columns", "r", "--format", "csv").stderr)

    def test_a_file_has_all_columns_and_no_colours(self):
        self.at_terminal(60, *self.asked, "-o", "rows.txt", "--overwrite")
        self.assertEqual((self.folder / "rows.txt").read_text(), self.ok(*self.asked))

    def test_colours_at_terminals_alone(self):
        coloured = self.at_terminal(300, *self.asked)
        self.assertRegex(coloured, re.escape(BEST) + r"\S+ \* *" + re.escape(PLAIN))
        skipped = [line for line in coloured.splitlines() if "snapkv" in line and "-  " in line]
        self.assertTrue(skipped and all(line.startswith(FAINT) for line in skipped), coloured)
        plain = self.ok(*self.asked)
        self.assertNotIn("\x1b", plain)
        self.assertEqual(re.sub("( *\x1b\\[[\\d;]*m *)+$|\x1b\\[[\\d;]*m", "", coloured, flags=re.M), plain)
        for refused in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
            self.assertEqual(self.at_terminal(300, *self.asked, **refused), plain)

    def test_units_stand_in_headings(self):
        table = self.table_of(self.ok(*self.asked, "--columns", "kept_size"))
        self.assertIn("KiB", table[0] + table[1] + table[2])
        self.assertNotIn("KiB", "".join(table[3:]))


if __name__ == "__main__":
    kvsim_command.main()
