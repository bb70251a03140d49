"""The logs of a run that goes on: files of fixed-size records, appended step by step, cut back on resume.

In: rows. Out: `predictions.bin`, `curves.bin`, `quarantine.jsonl`, and at the end the Parquet files made from them. A record
that a crash tore is recognised by the file's length; a checkpoint knows how many records belong to it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from driftline.streams.durable import replacing
from driftline.types import BadSampleError, DriftlineError
from driftline.version import FORMAT

ROWS_A_GROUP = 1 << 18
METADATA = {"driftline.format": str(FORMAT)}


class RecordLog:
    """A file of fixed-size records.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.bin"
    >>> log = RecordLog(path, np.dtype("<i4"))
    >>> log.append(np.arange(5, dtype="<i4"))
    >>> log.cut(3)
    >>> log.read(0, 10).tolist()
    [0, 1, 2]
    """

    def __init__(self, path: Path, dtype: np.dtype[Any]) -> None:
        self.path = path
        self.dtype = dtype
        self._file = path.open("ab", buffering=0)

    def append(self, rows: NDArray[Any]) -> None:
        """Rows at the end; they outlive the process from here on."""
        data = memoryview(rows.tobytes())
        while data:
            data = data[self._file.write(data) or 0 :]

    def __len__(self) -> int:
        return self.path.stat().st_size // self.dtype.itemsize

    def cut(self, num_rows: int) -> None:
        """Forget what came after the first rows, torn or whole."""
        if len(self) < num_rows:
            raise DriftlineError(
                f"{self.path} holds {len(self)} records but the checkpoint was made after {num_rows}: "
                "the log was shortened; start the run again in another directory"
            )
        os.truncate(self.path, num_rows * self.dtype.itemsize)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Some of the rows."""
        size = self.dtype.itemsize
        return np.fromfile(
            self.path, self.dtype, count=max(0, min(stop, len(self)) - start), offset=start * size
        )

    def sync(self) -> None:
        """Force what was appended to the disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """No more rows."""
        self._file.close()


class Quarantine:
    """Samples that were set aside, one JSON line each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("ab", buffering=0)

    def append(self, step: int, errors: tuple[BadSampleError, ...]) -> None:
        """Note bad samples of a step."""
        for error in errors:
            line = {"position": error.position, "step": step, "reason": error.reason}
            self._file.write(json.dumps(line).encode() + b"\n")

    def size(self) -> int:
        """Length of the file in bytes."""
        return self.path.stat().st_size

    def cut(self, size: int) -> None:
        """Forget what came later."""
        os.truncate(self.path, size)

    def table(self) -> pa.Table:
        """Everything noted so far."""
        rows = [json.loads(line) for line in self.path.read_text().splitlines()]
        schema = pa.schema({"position": pa.int64(), "step": pa.int64(), "reason": pa.string()}, METADATA)
        return pa.Table.from_pylist(rows, schema)

    def sync(self) -> None:
        """Force what was noted to the disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """No more lines."""
        self._file.close()


def arrow_table(rows: NDArray[Any]) -> pa.Table:
    """Structured rows as columns; a field of several numbers becomes a list column.

    >>> arrow_table(np.zeros(2, np.dtype([("top5", "<i4", (5,))]))).schema.field("top5").type
    ListType(list<item: int32>)
    """
    columns = {}
    for name in rows.dtype.names or ():
        values = rows[name]
        if values.ndim == 2:
            offsets = np.arange(0, values.size + 1, values.shape[1], dtype=np.int32)
            columns[name] = pa.ListArray.from_arrays(offsets, np.ascontiguousarray(values).ravel())
        else:
            columns[name] = pa.array(np.ascontiguousarray(values))
    return pa.table(columns).replace_schema_metadata(METADATA)


def write_parquet(log: RecordLog, path: Path) -> None:
    """The whole log as a Parquet file, a group of rows at a time, deterministic to the byte."""
    schema = arrow_table(np.zeros(0, log.dtype)).schema
    with replacing(path) as temporary, pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
        for start in range(0, len(log), ROWS_A_GROUP):
            writer.write_table(
                arrow_table(log.read(start, start + ROWS_A_GROUP)), row_group_size=ROWS_A_GROUP
            )


def write_table(table: pa.Table, path: Path) -> None:
    """A small table as a Parquet file, all or nothing."""
    with replacing(path) as temporary:
        pq.write_table(table.replace_schema_metadata(METADATA), temporary, compression="zstd")
