"""Runs the kvsim command. Every test script is called as: SCRIPT KVSIM SOURCE_DIR."""
import csv
import filecmp
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

KVSIM = os.path.abspath(sys.argv[1])
SOURCE = pathlib.Path(sys.argv[2]).resolve()


def columns_of(command):
    """The columns that rows of a command are promised to have, in order: names and order are stable."""
    with open(SOURCE / "tests" / "golden" / "columns.csv", newline="") as file:
        return [row["key"] for row in csv.DictReader(file) if row["command"] == command]


KEYS = columns_of("replay")
IDENTITY_KEYS = {"trace", "policy", "params", "budget", "budget_kind", "budget_number", "budget_tokens", "cut", "scope", "layer", "head", "workload", "seed", "step",
                 "role", "instruction_before", "holding"}
METRIC_KEYS = [key for key in KEYS if key not in IDENTITY_KEYS]  # columns that a cell that did not run lacks
TEXT_KEYS = {"trace", "policy", "params", "budget", "budget_kind", "cut", "scope", "workload", "role", "holding"}


def keep_first_layers(model, n):
    """Leaves a checkpoint, a folder, its first n layers."""
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"num_hidden_layers": n}))
    stored = (model / "model.safetensors").read_bytes()
    begin = 8 + int.from_bytes(stored[:8], "little")
    header, data = {}, b""
    for name, tensor in json.loads(stored[8:begin]).items():
        layer = re.match(r"model\.layers\.(\d+)\.", name)
        if name == "__metadata__" or (layer and int(layer[1]) >= n):
            continue
        first, last = tensor["data_offsets"]
        header[name] = tensor | {"data_offsets": [len(data), len(data) + last - first]}
        data += stored[begin + first:begin + last]
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (model / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)


class CommandTest(unittest.TestCase):
    """A test class with a temporary folder of its own that holds a small synthetic trace t.h5."""

    prompt, decode = 96, 12

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="kvsim-cli-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.make_trace("t.h5", cls.prompt, cls.decode)

    @classmethod
    def make_trace(cls, name, prompt, decode, *more):
        made = cls.kvsim("trace", "generate", "--layers", "3", "--kv-heads", "2", "--head-dim", "16", "--prompt-tokens", prompt,
                         "--decode", decode, "-o", name, *more)
        assert made.returncode == 0, made.stderr

    @classmethod
    def kvsim(cls, *arguments, **options):
        """Runs one command; returns stdout, stderr (text) and returncode."""
        return subprocess.run([KVSIM, *map(str, arguments)], cwd=cls.folder, capture_output=True, text=True, timeout=250,
                              **options)

    def ok(self, *arguments):
        """Standard output of a command that must succeed."""
        done = self.kvsim(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def fails(self, code, *arguments):
        """Message of a command that must fail. It must be on standard error, prefixed, with nothing on standard
        output."""
        done = self.kvsim(*arguments)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertEqual(done.stdout, "")
        message = done.stderr[done.stderr.rfind("kvsim: "):]
        self.assertTrue(message.startswith("kvsim: "), done.stderr)
        return message

    def stop_after(self, command, wait, sign):
        """Exit code and messages of a command that gets a signal `wait` seconds after it handles signals."""
        work = start(*command, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.addCleanup(work.kill)
        time.sleep(max(0, handles_signals(work) + wait - time.monotonic()))
        work.send_signal(sign)
        _, said = work.communicate(timeout=100)
        return work.returncode, said

    def stop_at_any_moment(self, command, seconds, times, *signs):
        """The same at moments that fill the time that the command takes evenly, signs in turn. A command that was done before
        the signal was timed beside work that has ended: that moment then is the latest of those to come."""
        for i in range(times):
            wait = seconds * (i * 0.618034 % 1)
            code, said = self.stop_after(command, wait, signs[i % len(signs)])
            if code in (0, 5):
                seconds = wait
            yield code, said

    def rows(self, *arguments):
        """Rows of a replay, with numbers as numbers and undefined values as None."""
        return json.loads(self.ok("replay", *arguments, "--format", "json", "--quiet"))["results"]


def without_digests(file):
    """Makes an open trace one of schema 1.3, which has no digests of blocks and lists: what a test changes in it is then
    no damage. Takes h5py's file."""
    import h5py  # only tests of traces need it
    content = hashlib.sha256(hashlib.sha256(file["tokens/id"][...].astype("<i4").tobytes()).hexdigest().encode())
    for layer in file["layers"].values():
        del layer["xxh3"]
        for name in [name for name in "kvq" if name in layer]:
            content.update(layer[name].attrs["sha256"])

    def unseal(path, item):
        tensor = path.startswith("layers/") and item.ndim > 1 if isinstance(item, h5py.Dataset) else True
        if not tensor and "sha256" in item.attrs:
            del item.attrs["sha256"]

    file.visititems(unseal)
    for name, value in (("features", int(file.attrs["features"]) & ~8), ("schema_minor", 3)):
        file.attrs.modify(name, type(file.attrs[name])(value))
    file.attrs.create("content_sha256", content.hexdigest().encode(), dtype="S64")


def start(*arguments, **options):
    """Starts a kvsim that will be stopped by signals. A shell that runs tests in the background ignores SIGINT, and
    kvsim keeps it ignored, so this restores the default."""
    return subprocess.Popen([KVSIM, *map(str, arguments)], text=True,
                            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL), **options)


def said_at(terminal):
    """The bytes that processes write to a terminal, read at its other end until the last of them has ended."""
    said = b""
    try:
        while piece := os.read(terminal, 1 << 16):
            said += piece
    except OSError:  # how Linux reports that end
        pass
    os.close(terminal)
    return said


def catches(work, sign):
    """Whether the process handles `sign`."""
    caught = re.search(r"^SigCgt:\s*(\w+)$", pathlib.Path(f"/proc/{work.pid}/status").read_text(), re.MULTILINE)
    return caught and int(caught[1], 16) >> (sign - 1) & 1


def wait_until_caught(work, sign, seconds=120):
    """Waits until the process handles `sign`: a signal sent earlier would kill it."""
    end = time.monotonic() + seconds
    while work.poll() is None and time.monotonic() < end:
        if catches(work, sign):
            return
        time.sleep(0.01)
    raise AssertionError(f"signal {sign} is never handled; exit status {work.poll()}")


def handles_signals(work):
    """Waits until a process handles SIGINT, or has ended: until then it is being loaded, and a signal would kill it as any
    other. Returns the time."""
    while work.poll() is None and not catches(work, signal.SIGINT):
        time.sleep(0.0005)
    return time.monotonic()


def number(text, undefined):
    return None if text == undefined else float(text)


def text_or_none(value, undefined):
    return None if value == undefined else value


def csv_rows(text):
    return [{key: text_or_none(value, "") if key in TEXT_KEYS else number(value, "") for key, value in row.items()}
            for row in csv.DictReader(io.StringIO(text, newline=""))]


def md_rows(text):
    lines = [[field.strip() for field in line.strip("|").split(" | ")]
             for line in text.splitlines() if line.startswith("|")]
    return [{key: text_or_none(value, "-") if key in TEXT_KEYS else number(value, "-") for key, value in zip(lines[0], line)}
            for line in lines[2:]]


def same(a, b):
    """Whether two folders hold the same names with the same bytes."""
    names = [sorted(str(p.relative_to(folder)) for p in folder.rglob("*")) for folder in (a, b)]
    if names[0] != names[1]:
        raise AssertionError(set(names[0]) ^ set(names[1]))
    files = [name for name in names[0] if (a / name).is_file()]
    _, different, failed = filecmp.cmpfiles(a, b, files, shallow=False)
    if different or failed:
        raise AssertionError(different + failed)
    return True


def main():
    """Runs the script's tests; a skipped test prints so, for tests/support/left_out.py."""
    result = unittest.main(module="__main__", argv=[sys.argv[0], *sys.argv[3:]], exit=False).result
    for test, reason in result.skipped:
        print(f"skipped: {test.id().removeprefix('__main__.')}: {reason}")
    sys.exit(not result.wasSuccessful())
