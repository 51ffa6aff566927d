#!/usr/bin/env python3
"""Tests that tools/python/kvsim/writing/trace_file.py writes what kvsim writes, link by link and type by type.

Usage: test_trace_file.py KVSIM SOURCE_DIR
"""
import os
import pathlib
import re
import signal
import subprocess
import sys
import textwrap

import h5py
import numpy as np

from kvsim_command import SOURCE, CommandTest, main

sys.path.insert(0, str(SOURCE / "tools" / "python"))
from kvsim.writing.stored_elements import WORDS, narrow  # noqa: E402
from kvsim.writing.trace_error import TraceError  # noqa: E402
from kvsim.writing.trace_file import TraceWriter  # noqa: E402
from kvsim.writing.trace_header import Capture, Header, Model, Pass, Segment  # noqa: E402


def described(file):
    """Everything that a reader can see of a file: for each path its kind, type, shape, layout, values and
    attributes."""
    seen = {}

    def text_or_value(attribute):
        kind = attribute.get_type()
        value = np.zeros(1, "S%d" % kind.get_size() if isinstance(kind, h5py.h5t.TypeStringID) else kind.dtype)
        attribute.read(value, mtype=kind)
        return kind.get_size(), kind.get_class(), value.tobytes()

    def visit(name, item):
        place = item.id
        entry = {"attributes": {key: text_or_value(h5py.h5a.open(place, key.encode())) for key in item.attrs}}
        if isinstance(item, h5py.Dataset):
            stored, creation = place.get_type(), place.get_create_plist()
            raw = np.zeros(item.shape, "V%d" % stored.get_size())
            if raw.size:
                place.read(h5py.h5s.ALL, h5py.h5s.ALL, raw, mtype=stored)
            entry |= {"type": stored.encode(), "shape": item.shape, "maxshape": item.maxshape, "chunks": item.chunks,
                      "values": raw.tobytes(),
                      "filters": [creation.get_filter(i)[0] for i in range(creation.get_nfilters())]}
        seen[name] = entry

    visit("/", file)
    file.visititems(visit)
    return seen


def text(group, name):
    return group.attrs[name].decode()


def copied(source, path, **options):
    """Writes the trace `source` (an open h5py file) again through TraceWriter in appends of different sizes."""
    attributes = dict(source["model"].attrs)
    fields = {name: attributes[name] for name in Model.__dataclass_fields__ if name in attributes}
    fields = {name: value.decode() if isinstance(value, bytes) else value.item() for name, value in fields.items()}
    model = Model(**fields, layer_window=source["model/layer_window"][...].tolist(),
                  inv_freq=source["model/inv_freq"][...], config_json=source["model/config_json"][...].tobytes())
    elem = text(source["layers/0000/k"], "elem")
    with TraceWriter(path, model, elem, **options) as writer:
        for layer in range(model.n_layers):
            copy_layer(source[f"layers/{layer:04d}"], writer, layer, elem)
        writer.finish(header_of(source))


def stored_words(dataset, elem):
    words = np.zeros(dataset.shape, WORDS[elem])
    dataset.id.read(h5py.h5s.ALL, h5py.h5s.ALL, words, mtype=dataset.id.get_type())
    return words


def copy_layer(group, writer, layer, elem):
    for name in ("q", "k", "v"):
        words, done = stored_words(group[name], elem), 0
        for size in [1, 7, 700, 10 ** 6]:
            writer.append(name, layer, words[:, done:done + size])
            done += size
    if "rows" in group:
        ptr = group["rows/ptr"][...]
        for row, first_key in enumerate(group["rows/first_key"][...]):
            writer.append_attention(layer, first_key, group["rows/p"][:, ptr[row]:ptr[row + 1]])
    if "column" in group:
        writer.put_column_statistics(layer, group["column/sum"][...], group["column/sum_squares"][...])
    if "wo" in group:
        output_elem = text(group["wo"], "elem")
        writer.put_output_weights(layer, stored_words(group["wo"], output_elem), output_elem)


def header_of(source):
    def columns(group, names):
        return [dict(zip(names, row)) for row in zip(*(source[group][name][...].tolist() for name in names))]

    capture = {name: value.decode() if isinstance(value, bytes) else value.item()
               for name, value in source["capture"].attrs.items() if name != "layers_kept"}
    first = source["layers/0000"]
    tokens, header = source["tokens"], {}
    if "text" in source:
        offset, data = source["text/offset"][...], source["text/bytes"][...].tobytes()
        header["token_text"] = [data[begin:end] for begin, end in zip(offset, offset[1:])]
    if "timing" in source:
        header |= {name: values[...] for name, values in source["timing"].items()}
    return Header(
        Capture(**capture), tokens["id"][...],
        [Segment(**s) for s in columns("segments", ["count", "parent", "phase", "turn", "role"])],
        [Pass(**p) for p in columns("passes", ["segment", "begin", "q_len", "start_ns", "dur_ns"])],
        token_flags=tokens["flags"][...], flags_known=int(tokens.attrs["flags_known"]),
        token_logprob=tokens["logprob"][...] if "logprob" in tokens else None,
        query_token=first["q_token"][...] if "q_token" in first else None,
        attention_token=first["rows/token"][...] if "rows" in first else None,
        tokenizer_name=text(source["tokenizer"], "name"), tokenizer_sha256=text(source["tokenizer"], "sha256"),
        file_uuid=text(source, "file_uuid"), created_utc=text(source, "created_utc"), writer=text(source, "writer"), **header)


class TraceFile(CommandTest):
    def path(self, name):
        return str(pathlib.Path(self.folder) / name)

    def same_after_copying(self, name):
        copy = self.path("copy-" + name)
        with h5py.File(self.path(name), "r") as native:
            copied(native, copy)
            with h5py.File(copy, "r") as made:
                expected, found = described(native), described(made)
        self.assertEqual(sorted(found), sorted(expected))
        for path, entry in expected.items():
            for key, value in entry.items():
                self.assertEqual(found[path][key], value, f"{key} of {path}")
        self.assertIn("sound", self.ok("trace", "check", copy))

    def test_a_copy_of_every_element_type_is_the_same_file(self):
        for elem in ("f32", "f16", "bf16"):
            with self.subTest(elem):
                self.make_trace(elem + ".h5", 40, 4, "--elem", elem)
                self.same_after_copying(elem + ".h5")

    def test_a_copy_of_several_chunks_is_the_same_file(self):
        """64-dimensional f32 rows: 512 per chunk, so 1,100 tokens are two whole chunks and a part."""
        made = self.kvsim("trace", "generate", "--layers", "1", "--kv-heads", "1", "--group", "2", "--head-dim", "64",
                          "--prompt-tokens", "1090", "--decode", "10", "-o", "long.h5")
        self.assertEqual(made.returncode, 0, made.stderr)
        with h5py.File(self.path("long.h5"), "r") as file:
            self.assertEqual(file["layers/0000/k"].chunks, (1, 512, 64))
        self.same_after_copying("long.h5")

    def test_a_copy_of_a_captured_run_is_the_same_file(self):
        """With text, flags, probabilities, times, some queries, column statistics, attention rows and output weights."""
        prompt = pathlib.Path(self.path("prompt.txt"))
        prompt.write_text("The number of the apple is 51 and 17.\n")
        self.ok("capture", "--model", SOURCE / "traces/sample/model", "--prompt", prompt, "--max-new-tokens", 3,
                "--queries", "window:4,sample:3", "--attention", "window:2", "--output-weights", "--quiet",
                "-o", "run.h5")
        self.same_after_copying("run.h5")

    def test_bfloat16_rounds_to_nearest_even(self):
        """1 + 2^-8 and 1 + 3 * 2^-8 lie halfway between two bfloat16 numbers: the even ones are 1 and 1 + 2^-6."""
        values = np.array([1, 1 + 2.0 ** -8, 1 + 3 * 2.0 ** -8, -2.5, np.inf, 3.4e38], np.float32)
        self.assertEqual(narrow(values, "bf16").tolist(), [0x3F80, 0x3F80, 0x3F82, 0xC020, 0x7F80, 0x7F80])
        self.assertEqual(int(narrow(np.array([np.nan], np.float32), "bf16")[0]) & 0x7FC0, 0x7FC0)

    def tiny(self, name="tiny.h5", **options):
        return TraceWriter(self.path(name), Model(1, 2, 1, 4, 10, **options.pop("model", {})), "f32", **options)

    @staticmethod
    def fill(writer, rows=3):
        for tensor, heads in (("q", 2), ("k", 1), ("v", 1)):
            writer.append(tensor, 0, np.ones((heads, rows, 4), np.float32))

    def left(self, name="tiny.h5"):
        """The trace of that name and what is being written of it, with its random digits replaced by #."""
        folder = pathlib.Path(self.path(name)).parent
        return sorted(re.sub(r"\.[0-9a-f]{8}\.", ".#.", path.name) for path in folder.glob(name + "*"))

    def test_a_tree_of_segments(self):
        """A document, two questions: the paths have equal digests exactly where their tokens are equal."""
        with self.tiny("tree.h5") as writer:
            self.fill(writer, 6)
            writer.finish(Header(Capture("converted:test"), [1, 2, 3, 3, 4, 3],
                                 [Segment(2), Segment(1, 0), Segment(1, 0), Segment(1, 1, turn=1), Segment(1, 2)],
                                 [Pass(0, 0, 2), Pass(4, 5, 1)]))
        self.assertIn("sound", self.ok("trace", "check", "tree.h5"))
        with h5py.File(self.path("tree.h5"), "r") as file:
            self.assertEqual(file["segments/path_len"][...].tolist(), [0, 2, 2, 3, 3])
            self.assertEqual(file["tokens/position"][...].tolist(), [0, 1, 2, 2, 3, 3])
            self.assertEqual(file["sequences/leaf"][...].tolist(), [3, 4])
            self.assertEqual(file["passes/past_len"][...].tolist(), [0, 3])
            digests = file["segments/sha256"][...]
        self.assertEqual(digests[1].tolist(), digests[2].tolist())
        self.assertNotEqual(digests[3].tolist(), digests[4].tolist())

    def test_an_exception_leaves_nothing(self):
        with self.assertRaises(KeyError), self.tiny() as writer:
            self.fill(writer)
            self.assertEqual(self.left(), ["tiny.h5.#.partial"])
            raise KeyError
        self.assertEqual(self.left(), [])

    def test_what_kvsim_would_refuse_is_refused_before_the_file_has_its_name(self):
        capture = Capture("converted:test")
        wrong = {
            "outside the vocabulary": Header(capture, [1, 2, 10], [Segment(3)]),
            "do not cover": Header(capture, [1, 2, 3], [Segment(2)]),
            "before its parent": Header(capture, [1, 2, 3], [Segment(2, 1), Segment(1, 0)]),
            "do not ascend": Header(capture, [1, 2, 3], [Segment(3)], token_position=[0, 2, 2]),
            "rows": Header(capture, [1, 2, 3, 4], [Segment(4)]),
            "ascending tokens": Header(capture, [1, 2, 3], [Segment(3)], query_token=[0, 2, 1]),
            "one entry per token": Header(capture, [1, 2, 3], [Segment(3)], token_flags=[0]),
        }
        for message, header in wrong.items():
            with self.subTest(message), self.assertRaisesRegex(TraceError, message), self.tiny() as writer:
                self.fill(writer)
                writer.finish(header)
            self.assertEqual(self.left(), [])
        with self.assertRaisesRegex(TraceError, "takes float32"), self.tiny() as writer:
            writer.append("q", 0, np.ones((2, 3, 4)))
        with self.assertRaisesRegex(TraceError, "folder does not exist"):
            self.tiny("missing/tiny.h5")
        with self.assertRaisesRegex(TraceError, "KV heads evenly"):
            TraceWriter(self.path("tiny.h5"), Model(1, 3, 2, 4, 10), "f32")

    def test_files_in_the_way(self):
        pathlib.Path(self.path("taken.h5")).write_text("mine")
        with self.assertRaisesRegex(TraceError, "exists already"):
            self.tiny("taken.h5")
        pathlib.Path(self.path("cut.h5.0123abcd.partial")).write_text("cut off")
        with self.tiny("cut.h5") as writer:
            self.assertEqual(self.left("cut.h5"), ["cut.h5.#.partial"])
            self.assertFalse(os.path.exists(self.path("cut.h5.0123abcd.partial")))
            self.assertIn("being written", self.kvsim("trace", "generate", "-o", "cut.h5").stderr)
            with self.assertRaisesRegex(TraceError, "being written"):
                self.tiny("cut.h5", overwrite=True)
            self.fill(writer)
            writer.finish(Header(Capture("converted:test"), [1, 2, 3], [Segment(3)]))
        self.assertEqual(self.left("cut.h5"), ["cut.h5"])
        os.mkfifo(self.path("pipe.h5"))
        with self.assertRaisesRegex(TraceError, "pipe"):
            self.tiny("pipe.h5", overwrite=True)
        with self.assertRaisesRegex(TraceError, "is a directory"):
            self.tiny("", overwrite=True)

    def test_a_name_taken_meanwhile_is_not_taken_over(self):
        with self.assertRaisesRegex(TraceError, "meanwhile"), self.tiny("late.h5") as writer:
            self.fill(writer)
            pathlib.Path(self.path("late.h5")).write_text("mine")
            writer.finish(Header(Capture("converted:test"), [1, 2, 3], [Segment(3)]))
        self.assertEqual(self.left("late.h5"), ["late.h5"])
        self.assertEqual(pathlib.Path(self.path("late.h5")).read_text(), "mine")

    def test_a_killed_writer_leaves_no_trace(self):
        script = textwrap.dedent(f"""
            import os, signal, sys
            sys.path.insert(0, {str(SOURCE / "tools" / "python")!r})
            import numpy as np
            from kvsim.writing.trace_file import TraceWriter
            from kvsim.writing.trace_header import Model
            writer = TraceWriter({self.path("killed.h5")!r}, Model(1, 1, 1, 64, 10), "f32")
            writer.append("k", 0, np.ones((1, 5000, 64), np.float32))
            os.kill(os.getpid(), signal.SIGKILL)
        """)
        done = subprocess.run([sys.executable, "-c", script], check=False)
        self.assertEqual(done.returncode, -signal.SIGKILL)
        self.assertEqual(self.left("killed.h5"), ["killed.h5.#.partial"])
        left = next(pathlib.Path(self.path("killed.h5")).parent.glob("killed.h5*"))
        self.assertEqual(self.kvsim("trace", "check", left).returncode, 3)
        self.ok("trace", "generate", "--prompt-tokens", 20, "-o", "killed.h5")
        self.assertEqual(self.left("killed.h5"), ["killed.h5"])


if __name__ == "__main__":
    main()
