"""Results as tables."""
from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Iterator

import numpy as np

if TYPE_CHECKING:
    from ._core import Answer, Records


class Note(UserWarning):
    """What a person should know although nothing failed."""


class Decisions(list):
    """Which positions each lane held, and when: per cell its policy, params, budget, and `lanes`, a list (layer-major) of arrays
    int64 [n, 3]: position, first step, last step (exclusive). Step 0 is right after the prompt."""

    def to_arrow(self):
        """A pyarrow.Table with a row per stay: policy, params, budget, lane, position, first_step, end_step."""
        import pyarrow

        parts = []
        for cell in self:
            stays = np.concatenate([lane.reshape(-1, 3) for lane in cell["lanes"]])
            lane = np.repeat(np.arange(len(cell["lanes"])), [len(lane) for lane in cell["lanes"]])
            words = {key: pyarrow.repeat(str(cell[key]), len(stays)).dictionary_encode() for key in ("policy", "params", "budget")}
            parts.append(pyarrow.table({**words, "lane": lane, "position": stays[:, 0], "first_step": stays[:, 1],
                                        "end_step": stays[:, 2]}))
        return pyarrow.concat_tables(parts).unify_dictionaries()

    def to_parquet(self, path: str | os.PathLike) -> None:
        """Writes to_arrow() as a Parquet file."""
        import pyarrow.parquet

        pyarrow.parquet.write_table(self.to_arrow(), path)


class Table:
    """Rows of named columns, as `kvsim ... --format csv` writes them.

    It is an Arrow stream (`__arrow_c_stream__`): `polars.DataFrame(table)`, `pyarrow.table(table)` and DuckDB read it as it is.
    `to_pandas()` needs nothing but pandas. `table["r"]` is one column as a NumPy array: float64 with NaN where undefined, uint64,
    or str objects with None.
    """

    def __init__(self, answer: Answer):
        self._records: Records = answer.take_records()
        self.analysis: str = answer.analysis
        """What the command calls its result."""
        self.traces: list[dict[str, Any]] = answer.traces
        """The recorded sequences that it is about: name, content_sha256, prompt and decode tokens, cut."""
        self.settings: dict[str, Any] = answer.settings
        """Everything else that it depends on."""
        self.notes: list[str] = answer.notes
        """What a person should know although nothing failed."""

    @property
    def columns(self) -> list[str]:
        return [key for key, _, _ in self._records.columns()]

    @property
    def units(self) -> dict[str, str]:
        return {key: unit for key, unit, _ in self._records.columns()}

    @property
    def descriptions(self) -> dict[str, str]:
        return {key: text for key, _, text in self._records.columns()}

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def keys(self) -> list[str]:
        return self.columns

    def __getitem__(self, column: str) -> np.ndarray:
        values = self._records.column(column)
        return np.array(values, dtype=object) if isinstance(values, list) else values

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The table as an Arrow stream; a requested schema is not followed, as the interface allows."""
        return self._records.arrow_stream()

    def to_dict(self) -> dict[str, np.ndarray]:
        """Every column by name."""
        return {column: self[column] for column in self.columns}

    def to_pandas(self):
        """A pandas.DataFrame."""
        import pandas

        return pandas.DataFrame(self.to_dict())

    def to_parquet(self, path: str | os.PathLike) -> None:
        """Writes a Parquet file, with pyarrow: a column of the file per column, undefined numbers as nulls."""
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.table(self), path)

    def to_polars(self):
        """A polars.DataFrame."""
        import polars

        return polars.DataFrame(self)

    def __repr__(self) -> str:
        return f"<kvsim.Table {self.analysis}: {len(self)} rows of {', '.join(self.columns)}>"

    def _repr_html_(self) -> str:
        try:
            return self.to_pandas()._repr_html_()
        except ImportError:
            return f"<pre>{self._records.text()}</pre>"
