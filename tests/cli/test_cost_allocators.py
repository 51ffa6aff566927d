#!/usr/bin/env python3
"""Tests kvsim cost allocators: requests that arrive and finish in the memory beside the weights."""
import csv
import io

import kvsim_command
from kvsim_command import CommandTest

OPT_13B = ["--model", "opt-13b", "--machine", "a100-40-sxm"]
COLUMNS = ["allocator", "slots", "used", "reserved", "internal", "external", "running", "preemptions"]


class Allocators(CommandTest):
    def requests(self, lengths, header="prompt,generated"):
        (self.folder / "requests.csv").write_text("\n".join([header, *(f"{p},{g}" for p, g in lengths)]) + "\n")

    def rows(self, *arguments):
        text = self.ok("cost", "allocators", "requests.csv", *OPT_13B, "--format", "csv", *arguments)
        return {row["allocator"]: row for row in csv.DictReader(io.StringIO(text))}

    def test_equal_requests_by_hand(self):
        # Each request reserves 2,048 from the start: as many run at a time as fit into the memory. Nothing else is
        # internal.
        self.requests([(8, 8)] * 2000)
        rows = self.rows()
        slots = int(rows["static"]["slots"])
        places = slots // 2048
        self.assertEqual(float(rows["static"]["running"]), places)
        self.assertAlmostEqual(float(rows["static"]["internal"]), places * (2048 - 16) / slots, places=12)
        self.assertAlmostEqual(float(rows["static"]["used"]) + float(rows["static"]["reserved"]), places * 16 / slots,
                               places=12)

    def test_shares_add_up_and_pages_use_most(self):
        # 17 becomes 32 under powers of two; pages of 16 hold two thousand of them, more than there are slots for.
        self.requests([(8 + i % 5, 9 + i % 7) for i in range(4000)])
        rows = self.rows("--page", "16", "--max-tokens", "64")
        for row in rows.values():
            shares = [float(row[name]) for name in ("used", "reserved", "internal", "external")]
            self.assertTrue(all(0 <= share <= 1 for share in shares), row)
            self.assertAlmostEqual(sum(shares), 1, places=12)
        used = [float(rows[name]["used"]) for name in ("static", "buddy", "exact")]
        self.assertEqual(used, sorted(used))
        self.assertEqual(float(rows["exact"]["internal"]), 0)

    def test_formats(self):
        self.requests([(100, 100)] * 400)
        self.assertEqual(list(self.rows()["paged"]), COLUMNS)
        table = self.ok("cost", "allocators", "requests.csv", *OPT_13B)
        self.assertIn("tokens beside weights and runtime", table)
        for name in ("static", "buddy", "exact", "paged"):
            self.assertRegex(table, rf"(?m)^{name} +[0-9]")

    def test_bad_input(self):
        fails = lambda code, *more: self.fails(code, "cost", "allocators", "requests.csv", *more)
        self.requests([(8, 8)])
        self.assertIn("no request waits", fails(2, *OPT_13B))
        self.assertIn("--page", fails(2, *OPT_13B, "--page", "0"))
        self.assertIn("opt-13b", fails(2, "--model", "opt-13", "--machine", "t4"))
        self.assertIn("no memory left", fails(2, "--model", "opt-13b", "--machine", "t4"))
        self.requests([(2000, 100)] * 40)
        self.assertIn("2048", fails(2, *OPT_13B))
        self.requests([(8, "x")])
        self.assertIn("not a number", fails(3, *OPT_13B))
        self.requests([(8, 1.5)])
        self.assertIn("whole numbers", fails(3, *OPT_13B))
        self.requests([(8, 8)], header="prompt,answer")
        self.assertIn("generated", fails(3, *OPT_13B))
        self.assertIn("missing.csv", self.fails(3, "cost", "allocators", "missing.csv", *OPT_13B))


if __name__ == "__main__":
    kvsim_command.main()
