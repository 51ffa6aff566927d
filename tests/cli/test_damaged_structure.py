#!/usr/bin/env python3
"""Tests that HDF5 files whose structure makes libhdf5's parser crash or read past its buffers end in exit 3, wherever
kvsim opens one. The crafted bytes are patched into sound files."""
import subprocess

import h5py
import kvsim_command
import numpy as np
from kvsim_command import CommandTest

DAMAGED = "structure is damaged"


def endless_group(path):
    """Turns the B-tree of the root group of an old-format file into a node that is its own child: libhdf5 1.10 descends
    until its stack is used up."""
    data = bytearray(path.read_bytes())
    node = data.index(b"TREE")
    used = int.from_bytes(data[node + 6:node + 8], "little")
    assert data[node + 4] == 0 and used > 0  # a node of a group
    data[node + 5] = 1  # of level 1
    for entry in range(used):
        child = node + 24 + 8 + 16 * entry
        data[child:child + 8] = node.to_bytes(8, "little")
    path.write_bytes(data)


def endless_heap(path):
    """Makes the first free block of the root group's local heap its own successor: libhdf5 1.10 lists free blocks without
    end, and takes memory for each."""
    data = bytearray(path.read_bytes())
    heap = data.index(b"HEAP")
    free, content = (int.from_bytes(data[heap + at:heap + at + 8], "little") for at in (16, 24))
    assert free < len(data)
    data[content + free:content + free + 8] = free.to_bytes(8, "little")
    path.write_bytes(data)


class DamagedStructure(CommandTest):
    def old_format(self, name, source=None, **attributes):
        """A file in the format of the first HDF5, as h5py writes it: with the objects of `source`, or with attributes."""
        with h5py.File(self.folder / name, "w", libver="earliest") as out:
            for key, text in attributes.items():
                out.attrs.create(key, text.encode(), dtype=f"S{len(text)}")
            if source:
                with h5py.File(self.folder / source) as file:
                    for key in file.attrs:
                        out.attrs.create(key, file.attrs[key], dtype=file.attrs.get_id(key).dtype)
                    for key in file:
                        file.copy(key, out)
        return self.folder / name

    def refused(self, *arguments):
        message = self.fails(3, *arguments)
        self.assertIn("a process that tried to read it", message)
        self.assertIn(DAMAGED, message)
        return message

    def test_a_trace_in_the_old_format_is_read(self):
        self.old_format("old.h5", "t.h5")
        arguments = ["--policy", "h2o", "--budget", "50%", "--format", "csv", "--quiet"]
        old, new = (self.ok("replay", name, *arguments).replace(name, "") for name in ("old.h5", "t.h5"))
        self.assertEqual(old, new)

    def test_a_trace_that_crashes_libhdf5(self):
        endless_group(self.old_format("endless.h5", "t.h5"))
        for command in ["trace", "info"], ["replay", "--policy", "h2o", "--budget", "50%", "--quiet"], ["diff", "t.h5"]:
            self.refused(*command, "endless.h5")
        check = self.kvsim("trace", "check", "endless.h5")
        self.assertEqual(check.returncode, 3)
        self.assertIn(DAMAGED, check.stdout)
        self.assertEqual([file.name for file in self.folder.glob("core*")], [])

    def test_a_trace_that_takes_memory_without_end(self):
        endless_heap(self.old_format("heap.h5", "t.h5"))
        self.refused("trace", "info", "heap.h5")

    def test_an_attribute_larger_than_its_message(self):
        """H5Aexists reads 22 bytes past the object header of the root, which by itself crashes nothing."""
        path = self.old_format("attribute.h5", format="kvtrace")
        data = bytearray(path.read_bytes())
        name = data.index(b"format\0\0")
        size = name + 8 + 4  # of the text, in its datatype
        self.assertEqual(data[size:size + 4], (7).to_bytes(4, "little"))
        data[size:size + 4] = (30).to_bytes(4, "little")
        path.write_bytes(data)
        self.refused("trace", "info", "attribute.h5")

    def test_other_files_of_hdf5(self):
        replay = ["replay", "t.h5", "--budget", "50%", "--quiet", "--policy"]
        with h5py.File(self.folder / "scores.h5", "w", libver="earliest") as file:
            file["scores"] = np.zeros((1, 1, 1))
        endless_group(self.folder / "scores.h5")
        self.refused(*replay, "external_scores(file=scores.h5)")
        self.ok(*replay, "h2o", "--decisions", "new.h5")
        endless_group(self.old_format("decisions.h5", "new.h5"))
        self.refused(*replay, "external_schedule(file=decisions.h5)")
        self.ok(*replay, "h2o", "--format", "h5", "-o", "results-new.h5")
        endless_group(self.old_format("results.h5", "results-new.h5"))
        self.refused("diff", "results-new.h5", "results.h5")

    def test_where_children_are_not_waited_for(self):
        """A parent that ignores SIGCHLD leaves that to its children; nobody keeps the status of theirs."""
        done = subprocess.run(
            ["sh", "-c", "trap '' CHLD; exec \"$0\" trace info t.h5", kvsim_command.KVSIM], cwd=self.folder, text=True,
            capture_output=True)
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    kvsim_command.main()
