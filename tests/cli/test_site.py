#!/usr/bin/env python3
"""Tests the pages that tools/site.sh makes a site of: everything that kvsim knows has a page, and every link leads somewhere.
(tools/site.sh itself needs MkDocs; .ci/run runs it.)"""
import json
import os
import re
import subprocess
import sys

import kvsim_command
from kvsim_command import KVSIM, SOURCE, CommandTest


class Site(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        subprocess.run([sys.executable, SOURCE / "tools" / "site" / "write_pages.py", KVSIM, cls.folder / "site"], check=True)
        cls.pages = cls.folder / "site" / "pages"

    def test_every_policy_has_a_page_that_says_what_the_command_says(self):
        listed = (self.pages / "printed" / "policies.md").read_text()
        for policy in json.loads(self.ok("policy", "list", "--format", "json")):
            name = policy["name"]
            self.assertIn(f"](policy/{name}.md)", listed)
            plain = lambda text: re.sub(r"```(text)?|[#\\\\]", "", text).replace("&lt;", "<").split()
            self.assertEqual(plain((self.pages / "printed" / "policy" / f"{name}.md").read_text()), plain(self.ok("policy", "show", name)), name)

    def test_every_command_has_a_page(self):
        for words in re.findall(r"(?m)^    'kvsim ?(.*)'\)$", self.ok("completion", "bash")):
            page = (self.pages / "printed" / "command" / ("_".join(["kvsim", *words.split()]) + ".md")).read_text()
            self.assertIn(self.ok("help", *words.split()), page)

    def test_every_column_that_is_promised_has_a_unit_and_a_meaning(self):
        text = (self.pages / "printed" / "columns.md").read_text()
        for command in "replay", "evaluate", "evaluate --per token", "analyze key-norms", "requests serve --each":
            section = text.split(f"## `kvsim {command}`\n")[1].split("\n## ")[0]
            rows = [row.strip("| ").split(" | ") for row in section.splitlines() if row.startswith("| `")]
            self.assertEqual([row[0].strip("`") for row in rows], kvsim_command.columns_of(command))
            for row in rows:
                self.assertGreater(len(row[-1]), 3, row)

    def test_all_pages_are_in_the_menu_and_links_lead_somewhere(self):
        menu = (self.folder / "site" / "mkdocs.yml").read_text()
        for page in (self.pages / "printed").rglob("*.md"):
            self.assertIn(f'"{page.relative_to(self.pages)}"', menu)
        for page in re.findall(r'"([\w/]+\.md)"', menu):
            self.assertTrue((self.pages / page).exists(), page)
        done = subprocess.run([sys.executable, SOURCE / "tests" / "support" / "check_links.py", self.pages], capture_output=True, text=True,
                              env={**os.environ, "GIT_DIR": "/nowhere"})
        self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == "__main__":
    kvsim_command.main()
