"""Tables are what the command writes, in every form."""
import csv
import io
import pickle

import numpy as np
import pandas
import polars
import pyarrow
import pyarrow.parquet
import pytest

import kvsim


@pytest.fixture(scope="module")
def table(run):
    return kvsim.replay(run, ["snapkv", "h2o*", "xkv", "full+kivi"], [0.2, 0.5, 48], per="layer")


def test_rows_are_those_of_the_command(table, run, kvsim_command):
    written = kvsim_command("replay", run.path, "--policy", "snapkv", "--policy", "h2o*", "--policy", "xkv", "--policy", "full+kivi",
                            "--budget", "20%,50%,48", "--per", "layer", "--format", "csv", "--quiet")
    rows = list(csv.reader(io.StringIO(written)))
    assert table.columns == rows[0]
    assert len(table) == len(rows) - 1 > 50
    for at, column in enumerate(table.columns):
        for ours, theirs in zip(table[column], (row[at] for row in rows[1:])):
            if theirs == "":
                assert ours is None or ours == "" or np.isnan(ours)
            elif isinstance(ours, str):
                assert ours == theirs
            else:
                assert float(ours) == float(theirs)  # numbers are printed so that they are read back exactly


def test_parquet_holds_the_rows(table, tmp_path):
    table.to_parquet(tmp_path / "rows.parquet")
    assert pyarrow.parquet.read_table(tmp_path / "rows.parquet").equals(pyarrow.table(table))


def test_parquet_of_decisions_holds_every_stay(run, tmp_path):
    cells = kvsim.decisions(run, ["h2o", "window"], [0.2, 48])
    cells.to_parquet(tmp_path / "stays.parquet")
    rows = pyarrow.parquet.read_table(tmp_path / "stays.parquet").to_pylist()
    expected = [(cell["policy"], cell["params"], str(cell["budget"]), lane, *map(int, stay))
                for cell in cells for lane, stays in enumerate(cell["lanes"]) for stay in stays]
    assert [tuple(row.values()) for row in rows] == expected


def test_types(table):
    assert table["policy"].dtype == object and table["r"].dtype == np.float64 and table["layer"].dtype == np.uint64
    schema = pyarrow.table(table).schema
    assert str(schema.field("policy").type) == "large_string"
    assert schema.field("r").type == pyarrow.float64() and schema.field("layer").type == pyarrow.uint64()


def test_arrow_pandas_and_polars_agree(table):
    arrow, frame, polar = pyarrow.table(table), table.to_pandas(), polars.DataFrame(table)
    assert isinstance(frame, pandas.DataFrame) and table.to_polars().equals(polar)
    assert arrow.num_rows == len(frame) == polar.height == len(table)
    for column in table.columns:
        values = arrow.column(column).to_pylist()
        assert values == polar[column].to_list()
        for a, b in zip(values, frame[column]):
            assert (a is None and (b is None or np.isnan(b))) or a == b
    assert arrow.column("evidence_loss").null_count == len(table)  # nothing is marked in this trace


def test_a_stream_may_be_read_twice_or_not_at_all(table):
    table.__arrow_c_stream__()
    assert pyarrow.table(table).equals(pyarrow.table(table))


def test_columns_are_described(table):
    assert table.units["output_error"] != "" or table.descriptions["output_error"] != ""
    assert all(table.descriptions[column] for column in table.columns)
    with pytest.raises(KeyError):
        table["no_such_column"]


def test_pickling(table):
    again = pickle.loads(pickle.dumps(table))
    assert again.columns == table.columns and again.traces == table.traces and again.settings == table.settings
    assert pyarrow.table(again).equals(pyarrow.table(table))


def test_what_it_is_about(table, run):
    assert table.analysis == "replay" and table.traces[0]["content_sha256"] == run.content_sha256
    assert table.settings["policies"] and "rows of" in repr(table) and "<table" in table._repr_html_()
