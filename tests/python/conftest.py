"""Tests of the Python package as pip installs it: nothing of the build is on the path."""
import os
import pathlib
import subprocess

import pytest

import kvsim

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "traces" / "sample" / "model"
TEXT = "The code of the red safe is 4721. The code of the blue safe is 9052. " * 10 + "The code of the red safe is"


@pytest.fixture(scope="session")
def model():
    return MODEL


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """A recorded run of the sample model."""
    return kvsim.capture(MODEL, tmp_path_factory.mktemp("runs") / "run.h5", prompt=TEXT, max_new_tokens=12, ignore_eos=True)


@pytest.fixture(scope="session")
def synthetic(tmp_path_factory):
    """A small generated trace."""
    return kvsim.generate(tmp_path_factory.mktemp("runs") / "synthetic.h5", prompt_tokens=96, decode=12)


@pytest.fixture(scope="session")
def items():
    """Four prompts with answers."""
    return kvsim.workload("needle-multi-key", facts=4, context=300, count=4, tokenizer=MODEL)


@pytest.fixture(scope="session")
def kvsim_command():
    """Runs the command that the wheel carries."""
    command = os.environ.get("KVSIM_COMMAND", "kvsim")
    return lambda *arguments: subprocess.run([command, *map(str, arguments)], capture_output=True, text=True, check=True).stdout
