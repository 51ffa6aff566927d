#!/usr/bin/env python3
"""Tests kvsim capture --device cuda: the run if a device can be used; otherwise the message, and that no file is
left."""
import shutil
import subprocess
import unittest

import kvsim_command
from kvsim_command import KVSIM, SOURCE, CommandTest

SAMPLE = SOURCE / "traces" / "sample"


def cuda_device():
    """Whether the driver's own tool lists a device."""
    if not shutil.which("nvidia-smi"):
        return False
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
    return listed.returncode == 0 and "GPU" in listed.stdout


class Device(CommandTest):
    def capture(self, device):
        return subprocess.run(
            [KVSIM, "capture", "--model", SAMPLE / "model", "--prompt", sorted((SAMPLE / "prompts").glob("*"))[0],
             "--max-new-tokens", "2", "--device", device, "-o", self.folder / "run.h5"],
            capture_output=True, text=True)

    @unittest.skipIf(cuda_device(), "a CUDA device is there")
    def test_without_a_device(self):
        done = self.capture("cuda")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertRegex(done.stderr, "--device: (this kvsim was built without CUDA|no NVIDIA driver is installed|"
                                      "no CUDA device was found|the NVIDIA driver supports CUDA)")
        self.assertIn("--device cpu", done.stderr)
        self.assertEqual([path.name for path in self.folder.glob("run*")], [])

    @unittest.skipUnless(cuda_device(), "no CUDA device")
    def test_with_a_device(self):
        done = self.capture("cuda")
        if "built without CUDA" in done.stderr:
            self.skipTest("this kvsim was built without CUDA")
        self.assertEqual(done.returncode, 0, done.stderr)
        checked = subprocess.run([KVSIM, "trace", "check", self.folder / "run.h5"], capture_output=True, text=True)
        self.assertEqual(checked.returncode, 0, checked.stderr)


if __name__ == "__main__":
    kvsim_command.main()
