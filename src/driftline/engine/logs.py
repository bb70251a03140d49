"""The logs of a run that goes on: files that are appended to step by step and cut back on resume.

In: rows. Out: `predictions.bin`, `curves.bin`, `quarantine.jsonl`, and at the end the Parquet files made from them. A checkpoint
holds a mark of each log, its length and checksum at that moment: a torn tail is cut off, a changed log is recognised.
"""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from driftline.streams.durable import replacing
from driftline.types import BadSampleError
from driftline.version import FORMAT

ROWS_A_GROUP = 1 << 16
BLOCK_BYTES = 1 << 22
METADATA = {"driftline.format": str(FORMAT)}

Mark = dict[str, int]
START: Mark = {"size": 0, "crc32": 0}
"""The mark of an empty log."""


class AppendedFile:
    """A file that grows at its end, and knows its length and CRC-32.

    >>> import tempfile
    >>> file = AppendedFile(Path(tempfile.mkdtemp()) / "a.bin")
    >>> file.write(b"kept")
    >>> mark = file.mark()
    >>> file.write(b"torn")
    >>> file.holds(mark)
    True
    >>> file.cut(mark)
    >>> file.path.read_bytes()
    b'kept'
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("ab", buffering=0)
        self._size = os.fstat(self._file.fileno()).st_size
        self._crc32 = 0

    def write(self, data: bytes) -> None:
        """Bytes at the end; they outlive the process from here on."""
        left = memoryview(data)
        while left:
            left = left[self._file.write(left) or 0 :]
        self._size += len(data)
        self._crc32 = zlib.crc32(data, self._crc32)

    def mark(self) -> Mark:
        """Where the log is now."""
        return {"size": self._size, "crc32": self._crc32}

    def holds(self, mark: Mark) -> bool:
        """Whether the log begins with exactly what it held when the mark was made."""
        left, crc32 = mark["size"], 0
        with self.path.open("rb") as file:
            while left and (block := file.read(min(left, BLOCK_BYTES))):
                crc32 = zlib.crc32(block, crc32)
                left -= len(block)
        return not left and crc32 == mark["crc32"]

    def cut(self, mark: Mark) -> None:
        """Forget what came after the mark, torn or whole."""
        os.truncate(self.path, mark["size"])
        self._size, self._crc32 = mark["size"], mark["crc32"]

    def sync(self) -> None:
        """Force what was appended to the disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """No more bytes."""
        self._file.close()


class RecordLog(AppendedFile):
    """A log of fixed-size records.

    >>> import tempfile
    >>> log = RecordLog(Path(tempfile.mkdtemp()) / "a.bin", np.dtype("<i4"))
    >>> log.append(np.arange(5, dtype="<i4"))
    >>> len(log), log.read(1, 3).tolist()
    (5, [1, 2])
    """

    def __init__(self, path: Path, dtype: np.dtype[Any]) -> None:
        super().__init__(path)
        self.dtype = dtype

    def append(self, rows: NDArray[Any]) -> None:
        """Rows at the end."""
        self.write(rows.tobytes())

    def __len__(self) -> int:
        return self._size // self.dtype.itemsize

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Some of the rows."""
        count = max(0, min(stop, len(self)) - start)
        return np.fromfile(self.path, self.dtype, count=count, offset=start * self.dtype.itemsize)


class Quarantine(AppendedFile):
    """Samples that were set aside, one JSON line each."""

    def append(self, step: int, errors: tuple[BadSampleError, ...]) -> None:
        """Note bad samples of a step."""
        for error in errors:
            line = {"position": error.position, "step": step, "reason": error.reason}
            self.write(json.dumps(line).encode() + b"\n")

    def table(self) -> pa.Table:
        """Everything noted so far."""
        rows = [json.loads(line) | {"split": "train"} for line in self.path.read_text().splitlines()]
        return quarantine_table(rows)


def quarantine_table(rows: list[dict[str, Any]]) -> pa.Table:
    """Bad samples as a table: position in their split, step (null in the validation set), reason, split."""
    schema = {"position": pa.int64(), "step": pa.int64(), "reason": pa.string(), "split": pa.string()}
    return pa.Table.from_pylist(rows, pa.schema(schema))


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
    pa.default_memory_pool().release_unused()


def write_table(table: pa.Table, path: Path) -> None:
    """A small table as a Parquet file, all or nothing."""
    with replacing(path) as temporary:
        pq.write_table(table.replace_schema_metadata(METADATA), temporary, compression="zstd")
