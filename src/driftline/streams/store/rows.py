"""Rows of a Parquet file by number, without ever holding more than a few row groups.

Flow: path, first and last row -> an Arrow table. Any thread may ask.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from driftline.types import DriftlineError

CACHED_GROUPS = 3
"""Row groups kept decoded; reading in order touches one or two."""


class RowReader:
    """Reads slices of a Parquet file.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "t.parquet"
    >>> pq.write_table(pa.table({"x": range(10)}), path, row_group_size=4)
    >>> RowReader(path).read(3, 6)["x"].to_pylist()
    [3, 4, 5]
    """

    def __init__(self, path: Path, columns: list[str] | None = None) -> None:
        self.path = path
        try:
            self._file = pq.ParquetFile(path, memory_map=False)
        except (OSError, pa.ArrowException) as error:
            raise DriftlineError(f"{path} is no readable Parquet file ({_first_line(error)})") from None
        self.columns = list(self._file.schema_arrow.names)
        self._wanted = columns
        missing = [name for name in columns or [] if name not in self.columns]
        if missing:
            raise DriftlineError(f"{path} has no column {missing[0]!r}; it has {', '.join(self.columns)}")
        metadata = self._file.metadata
        sizes = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
        self._starts = np.cumsum([0, *sizes])
        self._groups: OrderedDict[int, pa.Table] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return int(self._starts[-1])

    def read(self, start: int, stop: int) -> pa.Table:
        """Rows start..stop-1."""
        if not 0 <= start <= stop <= len(self):
            raise IndexError(f"rows {start}..{stop} of {len(self)}")
        first = int(np.searchsorted(self._starts, start, side="right")) - 1
        last = int(np.searchsorted(self._starts, stop, side="left"))
        groups = range(min(first, max(len(self._starts) - 2, 0)), last)
        pieces = []
        for number in groups:
            origin = int(self._starts[number])
            piece = self._group(number).slice(max(start - origin, 0), stop - max(start, origin))
            pieces.append(piece)
        return pa.concat_tables(pieces) if pieces else self._empty()

    def read_all(self) -> pa.Table:
        """All rows; for tables known to be small."""
        return self.read(0, len(self))

    def _empty(self) -> pa.Table:
        schema = self._file.schema_arrow
        wanted = self._wanted or self.columns
        return pa.schema([schema.field(name) for name in wanted]).empty_table()

    def _group(self, number: int) -> pa.Table:
        with self._lock:
            table = self._groups.pop(number, None)
            if table is None:
                try:
                    table = self._file.read_row_group(number, columns=self._wanted, use_threads=False)
                except (OSError, pa.ArrowException) as error:
                    raise DriftlineError(f"{self.path} is damaged ({_first_line(error)})") from None
            self._groups[number] = table
            while len(self._groups) > CACHED_GROUPS:
                self._groups.popitem(last=False)
            return table


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
