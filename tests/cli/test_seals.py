#!/usr/bin/env python3
"""Tests that damage to a calibration, to decisions or to results as HDF5 is noticed, whatever it makes of the numbers, and that
files of before there were digests are read."""
import random
import shutil
import struct

import h5py

import kvsim_command
from kvsim_command import CommandTest


class Seals(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.make_trace("other.h5", 96, 12, "--seed", 5)
        for command in (["calibrate", "kvquant", "other.h5", "-o", "tables.h5", "--quiet"],
                        ["replay", "t.h5", "--policy", "h2o", "--policy", "window", "--budget", "20,40", "--quiet", "--format", "h5",
                         "-o", "rows.h5"],
                        ["replay", "t.h5", "--policy", "h2o", "--budget", 20, "--quiet", "--decisions", "kept.h5"]):
            made = cls.kvsim(*command)
            assert made.returncode == 0, made.stderr

    # What reads each file; {} is its name.
    READERS = {"tables.h5": [("replay", "t.h5", "--policy", "full+kvquant(file={})", "--budget", 20, "--quiet")],
               "kept.h5": [("plot", "timeline", "{}", "--layer", 0, "--head", 0, "--format", "csv"),
                           ("replay", "t.h5", "--policy", "external_schedule(file={},cell=0)", "--budget", 20, "--quiet")],
               "rows.h5": [("plot", "quality", "{}", "--format", "csv"), ("diff", "{}", "{}"), ("export", "{}", "--format", "csv")]}

    @staticmethod
    def at(command, name):
        return [str(word).replace("{}", name) for word in command]

    def stored(self, name):
        """Where the bytes of every list lie that is read; nobody reads again which traces rows are of."""
        places = []
        with h5py.File(self.folder / name) as file:
            file.visititems(lambda path, item: places.append((item.id.get_offset(), item.id.get_storage_size()))
                            if isinstance(item, h5py.Dataset) and item.size > 0 and not path.startswith("traces/") else None)
        return places

    def refused(self, name, offset, bytes_):
        whole = bytearray((self.folder / name).read_bytes())
        if whole[offset:offset + len(bytes_)] == bytes_:
            return
        whole[offset:offset + len(bytes_)] = bytes_
        (self.folder / "damaged.h5").write_bytes(whole)
        for command in self.READERS[name]:
            said = self.kvsim(*self.at(command, "damaged.h5"))
            self.assertEqual(said.returncode, 3, (command, offset, said.stdout, said.stderr))
            self.assertIn("does not match its sha256", said.stderr)
            self.assertEqual(said.stdout, "")

    def test_a_flipped_bit_anywhere_in_the_lists_is_noticed(self):
        draw = random.Random(7)
        for name in self.READERS:
            whole, places = (self.folder / name).read_bytes(), self.stored(name)
            for begin, size in places if len(places) <= 8 else draw.sample(places, 8):
                at = begin + draw.randrange(size)
                with self.subTest(f"{name} {at}"):
                    self.refused(name, at, bytes([whole[at] ^ 1 << draw.randrange(8)]))

    def test_lost_blocks_are_noticed(self):
        for name in self.READERS:
            for begin, size in self.stored(name)[:6]:
                with self.subTest(f"{name} {begin}"):
                    self.refused(name, begin, bytes(size))

    def test_a_number_that_is_none_is_noticed_in_results(self):
        with h5py.File(self.folder / "rows.h5") as file:
            place = next(item.id.get_offset() for item in file["results"].values() if item.dtype == "f8" and item[0] == item[0])
        self.refused("rows.h5", place, struct.pack("<d", float("nan")))

    def test_files_without_digests_are_read_with_a_note(self):
        for name in "tables.h5", "kept.h5", "rows.h5":
            shutil.copy(self.folder / name, self.folder / "old.h5")
            with h5py.File(self.folder / "old.h5", "r+") as file:
                file.visititems(lambda _, item: [None, item.attrs.pop("sha256", None)][0])
            for command in self.READERS[name]:
                new, old = self.kvsim(*self.at(command, name)), self.kvsim(*self.at(command, "old.h5"))
                self.assertEqual(old.returncode, 0, old.stderr)
                self.assertEqual(old.stdout.replace("old.h5", name), new.stdout)
                self.assertEqual("old.h5: has no digests" in old.stderr, name != "rows.h5")
                self.assertNotIn("digests", new.stderr)


if __name__ == "__main__":
    kvsim_command.main()
