"""The page's examples run, and its shapes are right."""
import pathlib
import re
import warnings

import kvsim
from conftest import ROOT


def test_the_page(monkeypatch, tmp_path):
    page = (ROOT / "tools" / "python" / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)
    assert len(blocks) == 6
    monkeypatch.chdir(ROOT)
    said = {"__name__": "page"}
    for block in blocks:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", kvsim.Note)
            exec(compile(block.replace("build/run.h5", str(tmp_path / "run.h5")), "README.md", "exec"), said)
    shape = tuple(int(n) for n in re.search(r"key\(0\)\.shape +# \((\d+), (\d+), (\d+)\)", page).groups())
    assert said["run"].key(0).shape == shape
    frame = said["table"].to_pandas()
    mine, built_in = frame[frame.policy == "my_snap"], frame[frame.policy == "snapkv"]
    assert mine[mine.params.str.contains("window=32")].r.tolist() == built_in.r.tolist()
    assert pathlib.Path(said["run"].path).exists()
