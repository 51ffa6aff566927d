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
            page = (self.pages / "printed" / "policy" / f"{name}.md").read_text()
            self.assertEqual(plain(page), plain(self.ok("policy", "show", name)), name)

    def test_every_command_has_a_page(self):
        for words in re.findall(r"(?m)^    'kvsim ?(.*)'\)$", self.ok("completion", "bash")):
            page = (self.pages / "printed" / "command" / ("_".join(["kvsim", *words.split()]) + ".md")).read_text()
            self.assertIn(self.ok("help", *words.split()), page)

    def test_every_column_has_a_meaning_and_those_that_are_promised_are_there(self):
        sections = dict(re.findall(r"(?ms)^## (.*?)\n(.*?)(?=^## |\Z)", (self.pages / "printed" / "columns.md").read_text()))
        self.assertGreater(len(sections), 25)
        for title, section in sections.items():
            rows = [row[2:-2].split(" | ") for row in section.splitlines() if row.startswith("| `")]
            self.assertGreater(len(rows), 0, title)
            for row in rows:
                self.assertTrue(row[-1].strip(), (title, row))
            promised = kvsim_command.columns_of(title.strip("`").removeprefix("kvsim "))
            if promised:
                self.assertEqual([row[0].strip("`") for row in rows], promised, title)

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
