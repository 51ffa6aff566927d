"""Commands as functions: options, errors, interruption, progress, studies, costs, figures."""
import ast
import html
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import kvsim
from conftest import ROOT


def test_view_is_the_page_of_the_command(tmp_path):
    run = kvsim.generate(tmp_path / "run.h5", prompt_tokens=60, decode=4, layers=2, kv_heads=1, head_dim=8)
    view = kvsim.view(run, ["h2o", "streaming_llm"], [0.25, 20], cut=[50, "prompt"])
    kept = kvsim.view(run, "h2o,streaming_llm", "25%,20", cut="50,prompt", output=tmp_path / "view.html")
    assert view.html == kept.html == (tmp_path / "view.html").read_text(encoding="utf-8")
    assert view.html.startswith("<!DOCTYPE html>")
    shown = view._repr_html_()
    assert html.unescape(shown.split('srcdoc="')[1].removesuffix('"></iframe>')) == view.html
    view.save(tmp_path / "saved.html")
    assert (tmp_path / "saved.html").read_bytes() == (tmp_path / "view.html").read_bytes()
    with pytest.raises(kvsim.UsageError, match="exists already"):
        kvsim.view(run, "h2o", 20, output=tmp_path / "view.html")


def test_budgets_are_tokens_shares_or_text(run):
    assert list(kvsim.replay(run, ["h2o"], [64, 0.25, "12.5%", "32KiB"])["budget"]) == ["64", "25%", "12.5%", "32KiB"]


def test_the_package_brings_a_model(model):
    def content(folder):
        return {file.name: file.read_bytes() for file in folder.iterdir()}

    assert content(kvsim.sample_model()) == content(model)


def test_misspelt_names_are_answered_with_the_nearest(run):
    with pytest.raises(kvsim.UsageError, match="snapvk") as caught:
        kvsim.replay(run, ["snapvk"], [0.25])
    assert caught.value.hint == "Did you mean snapkv?" and caught.value.problem == 'unknown policy "snapvk"'
    with pytest.raises(kvsim.UsageError, match="--threads"):
        kvsim.replay(run, ["snapkv"], [0.25], treads=2)


def test_notes_are_warnings_and_stay_with_the_table(run):
    with pytest.warns(kvsim.Note, match="identical"):
        table = kvsim.replay(run, ["snapkv(window=16)", "snapkv(window=16,sinks=0,pool=avg:5)", "snapkv(pool=avg:5,window=16,granularity=1)",
                                   "snapkv(window=16,tie=newest)"], [0.9])
    assert any("identical" in note for note in table.notes)


def test_results_may_go_to_a_file(run, tmp_path):
    file = tmp_path / "rows.json"
    with pytest.raises(TypeError):
        kvsim.replay(run)  # policies and budgets are missing
    kvsim.command("replay", run.path, "--policy", "h2o", "--budget", "25%", "-o", str(file), "--quiet")
    assert file.read_text().startswith("{")


def test_what_a_command_prints_is_returned(capfd):
    assert "quality" in kvsim.command("help", "plot") and kvsim.command("man", "replay").startswith(".")
    assert "kvsim" in kvsim.command("completion", "bash") and kvsim.command("--version").startswith("kvsim ")
    assert capfd.readouterr().out == ""


def test_cuts_and_several_traces(run, synthetic):
    table = kvsim.replay([run, synthetic], "h2o", 0.25, cut=["prompt", 50])
    assert sorted(set(table["cut"])) == ["50", "prompt"] and len(table) == 4 and len(table.traces) == 4


def test_a_study(run, synthetic, tmp_path, monkeypatch):
    class Mine(kvsim.ScorePolicy):
        rows = 8

        def score(self, prompt):
            return prompt.rows.mean(axis=(0, 1))

    monkeypatch.chdir(tmp_path)
    done = kvsim.study({"name": "small", "traces": [run.path, synthetic.path], "policies": ["snapkv(window=8)", "mine"],
                        "budgets": ["25%", "50%"]}, "folder")
    assert set(done.table()["policy"]) == {"snapkv", "mine"} and done.report.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
    with pytest.raises(kvsim.Error, match="resume|overwrite"):
        kvsim.study({"traces": [run.path], "policies": ["h2o"], "budgets": ["25%"]}, "folder")  # named as its folder


def test_costs():
    table = kvsim.cost("llama-3-8b", "a100-80-sxm", ["full", "snapkv"], [0.1], prompt_tokens="8K")
    assert len(table) == 2 and table["keys_values_bytes"][0] > table["keys_values_bytes"][1]
    assert table.units["keys_values_bytes"] == "bytes"


def test_a_figure(run, tmp_path):
    figure = kvsim.plot("quality", kvsim.replay(run, ["h2o", "snapkv(window=8)"], [0.1, 0.3, 0.6]))
    assert figure._repr_svg_().lstrip().startswith("<?xml") or "<svg" in figure.svg
    figure.save(tmp_path / "quality.svg")
    assert (tmp_path / "quality.svg").read_text() == figure.svg


def test_interruption_ends_it_soon(tmp_path):
    trace = kvsim.generate(tmp_path / "long.h5", prompt_tokens=4096, decode=64)
    timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        kvsim.replay(trace, "all", [0.1, 0.2, 0.3, 0.4])
    assert time.monotonic() - began < 20
    assert len(kvsim.replay(trace, "streaming_llm", 0.1)) == 1  # nothing is left over


def test_progress_is_told_and_may_stop(tmp_path):
    trace = kvsim.generate(tmp_path / "long.h5", prompt_tokens=2048, decode=32)
    heard = []
    kvsim.replay(trace, "all", [0.1, 0.2, 0.3], progress=lambda label, share: heard.append((label, share)))
    assert heard and all(label == trace.path and 0 <= share <= 1 for label, share in heard)
    assert [share for _, share in heard] == sorted(share for _, share in heard)

    class Enough(Exception):
        pass

    def stop(label, share):
        raise Enough

    with pytest.raises(Enough):
        kvsim.replay(trace, "all", [0.1, 0.2, 0.3], progress=stop)


def test_an_analysis(run):
    assert len(kvsim.analyze("key-norms", run)) > 0


def test_the_version_is_the_commands(kvsim_command):
    assert kvsim_command("--version").split()[1] == kvsim.__version__ == kvsim.command("--version").split()[1]


def test_a_zero_byte_ends_no_name(run, tmp_path):
    there = run.path + "\0.other"
    for wrong in (lambda: kvsim.Trace(there), lambda: kvsim.replay(there, "h2o", 0.5), lambda: kvsim.analyze("heads", there),
                  lambda: kvsim.generate(str(tmp_path / "made.h5") + "\0", layers=1),
                  lambda: kvsim.replay(run, "h2o", 0.5, machine="t4\0"), lambda: kvsim.command("trace", "info", there)):
        with pytest.raises(kvsim.UsageError, match="zero byte"):
            wrong()
    assert list(tmp_path.iterdir()) == []
    assert kvsim.Trace(os.fsencode(run.path)).n_tokens == run.n_tokens


def test_editors_know_the_options(kvsim_command):
    """Stubs are those that the command's own help says, and help knows what the stubs say."""
    command = os.environ.get("KVSIM_COMMAND", "kvsim")
    written = subprocess.run([sys.executable, ROOT / "tools" / "python" / "write_stubs.py", command, "--check"])
    assert written.returncode == 0, "run tools/python/write_stubs.py PATH/TO/kvsim"
    stubs = pathlib.Path(kvsim.__file__).with_name("_commands.pyi").read_text()
    tree = {node.name: node for node in ast.parse(stubs).body if isinstance(node, ast.FunctionDef)}
    for name, function in tree.items():
        assert function.args.kwarg is None, name
        assert name in kvsim.__all__ or name.startswith("_")
    options = {arg.arg: ast.unparse(arg.annotation) for arg in tree["replay"].args.kwonlyargs}
    assert options["bounds"] == "bool" and options["per"] == "str" and "quiet" not in options
    assert "memory_limit" in options and "importance" in options
    assert {"top_k", "decoding", "max_new_tokens"} & {arg.arg for arg in tree["capture"].args.kwonlyargs}
    assert "clusters" in {arg.arg for arg in tree["analyze"].args.kwonlyargs} or len(tree["analyze"].args.kwonlyargs) > 5


def test_prompts_of_a_parquet_file(model, tmp_path):
    from pyarrow import Table, parquet
    items = [{"prompt": "The code of apple is river. The code of apple is", "answers": ["river"]}]
    parquet.write_table(Table.from_pylist(items), tmp_path / "items.parquet")
    asked = {"policies": "keydiff", "budgets": 0.5, "max_new_tokens": 2}
    table = kvsim.evaluate(model, tmp_path / "items.parquet", **asked).to_pandas()
    assert len(table) == 2 and not table["skipped"].any()
    assert table.equals(kvsim.evaluate(model, items, **asked).to_pandas())
