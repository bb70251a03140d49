"""Last pass over the rows: split, labelled, album-grouped tables of the stream and of its validation set.

Ordered rows and classes flow in; two Parquet files flow out (position, time, user, label, lat, lon, id, album and, where the
table names images, image), with the counts. Time is read back and checked after the writing.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from driftline.streams.building.accounting import Accounting
from driftline.streams.building.ahead import map_ahead, read_ahead
from driftline.streams.building.classing import Classes
from driftline.streams.building.ordered import OrderedRows
from driftline.streams.building.splits import is_validation
from driftline.streams.durable import replacing
from driftline.types import ClassTable, IntArray, LabelArray

ROWS_PER_GROUP = 1 << 17
SPLITS = ("train", "validation")


@dataclass
class TableCounts:
    """What became of the rows."""

    num_preprocessing: int = 0
    num_train: int = 0
    num_validation: int = 0
    num_no_class: int = 0
    num_albums: int = 0


@dataclass(frozen=True)
class BuiltTables:
    """Labelled tables in a workshop, ready to become a stream."""

    train: Path
    validation: Path
    classes: ClassTable
    accounting: Accounting
    num_albums: int


class TableWriter:
    """Writes rows in their final order, numbers them, and counts their albums."""

    def __init__(self, path: Path, *, has_image: bool) -> None:
        names = {"position": pa.int64(), "time": pa.int64(), "user": pa.int64(), "label": pa.int32()}
        names |= {"lat": pa.float64(), "lon": pa.float64(), "id": pa.large_string(), "album": pa.int64()}
        self._schema = pa.schema(names | ({"image": pa.large_string()} if has_image else {}))
        # Read once more and then gone, so that writing it fast counts for more than its size.
        self._writer = pq.ParquetWriter(
            path,
            self._schema,
            compression="lz4",
            use_dictionary=["label"],
            column_encoding=dict.fromkeys(
                ["position", "time", "album"], "DELTA_BINARY_PACKED"
            ),  # they only grow
            write_statistics=False,
        )
        self._pool = ThreadPoolExecutor(max_workers=1)
        self._writing: Future[None] | None = None
        self._pending: list[pa.Table] = []
        self._num_pending = 0
        self.num_rows = 0
        self.num_albums = 0
        self._last_user: int | None = None

    def write(self, rows: pl.DataFrame, labels: LabelArray) -> None:
        """Append rows with these classes."""
        if not rows.height:
            return
        users = rows["user"].to_numpy()
        frame = rows.with_columns(
            pl.Series("position", np.arange(self.num_rows, self.num_rows + rows.height)),
            pl.Series("label", labels),
            pl.Series("album", self._albums(users)),
        )
        self.num_rows += rows.height
        table = frame.select(self._schema.names).to_arrow(compat_level=pl.CompatLevel.oldest())
        self._pending.append(table.cast(self._schema))
        self._num_pending += rows.height
        if self._num_pending >= ROWS_PER_GROUP:
            self._flush()

    def _flush(self, *, everything: bool = False) -> None:
        """Write whole row groups, so that small months do not make small ones."""
        pending = pa.concat_tables(self._pending) if self._pending else self._schema.empty_table()
        num = len(pending) if everything else len(pending) - len(pending) % ROWS_PER_GROUP
        self._wait()
        self._writing = self._pool.submit(self._writer.write_table, pending.slice(0, num), ROWS_PER_GROUP)
        self._pending, self._num_pending = [pending.slice(num)], len(pending) - num

    def _wait(self) -> None:
        """Until the groups handed over before are written; an error while writing surfaces here."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def _albums(self, users: IntArray) -> IntArray:
        """Number of the album of each row: it grows where the user changes."""
        changes = np.ones(len(users), dtype=np.int64)
        changes[1:] = users[1:] != users[:-1]
        changes[0] = self._last_user is None or users[0] != self._last_user
        albums: IntArray = self.num_albums - 1 + np.cumsum(changes)
        self.num_albums = int(albums[-1]) + 1
        self._last_user = int(users[-1])
        return albums

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._flush(everything=True)
                self._wait()
        finally:
            self._pool.shutdown()
            self._writer.close()


@dataclass(frozen=True)
class Split:
    """How rows are divided and labelled: the first ones are set apart, a share of the others is held out."""

    classes: Classes
    num_preprocessing: int
    validation_share: float
    seed: int

    def __call__(
        self, numbered: tuple[int, pl.DataFrame]
    ) -> tuple[list[tuple[pl.DataFrame, LabelArray]], int]:
        """Rows and labels for stream and validation set, and the number of rows in no class."""
        ordinal, frame = numbered
        skipped = min(max(self.num_preprocessing - ordinal, 0), frame.height)
        rest = frame.slice(skipped)
        labels = self.classes.label(rest)
        ordinals = np.arange(ordinal + skipped, ordinal + frame.height)
        held_out = is_validation(self.seed, ordinals, self.validation_share)
        kept = labels >= 0
        sets = [
            (rest.filter(pl.Series(chosen)), labels[chosen]) for chosen in (kept & ~held_out, kept & held_out)
        ]
        return sets, int((~kept).sum())


def write_tables(rows: OrderedRows, split: Split, folder: Path, *, has_image: bool) -> TableCounts:
    """Write train.parquet and validation.parquet; rows are labelled on another thread while earlier ones are written."""
    counts = TableCounts(split.num_preprocessing)
    with (
        replacing(folder / "train.parquet") as train_path,
        replacing(folder / "validation.parquet") as validation_path,
    ):
        with (
            TableWriter(train_path, has_image=has_image) as train,
            TableWriter(validation_path, has_image=has_image) as validation,
        ):
            for sets, num_no_class in map_ahead(split, read_ahead(_numbered(rows)), threads=1, ahead=1):
                counts.num_no_class += num_no_class
                for writer, (frame, labels) in zip((train, validation), sets, strict=True):
                    writer.write(frame, labels)
        counts.num_train, counts.num_validation = train.num_rows, validation.num_rows
        counts.num_albums = train.num_albums
        for path, expected in ((train_path, train.num_rows), (validation_path, validation.num_rows)):
            check_written(path, expected, ordered=not rows.given_order)
    return counts


def _numbered(rows: OrderedRows) -> Iterator[tuple[int, pl.DataFrame]]:
    """Frames, each with the place of its first row in the order."""
    ordinal = 0
    for frame in rows:
        yield ordinal, frame
        ordinal += frame.height
    assert ordinal == rows.num_rows, (ordinal, rows.num_rows)


def check_written(path: Path, num_rows: int, *, ordered: bool) -> None:
    """Read back what was written: all rows are there, and time never runs backwards."""
    found, last = 0, None
    for batch in pq.ParquetFile(path).iter_batches(batch_size=1 << 20, columns=["time"]):
        times = batch.column(0).to_numpy()
        assert not ordered or np.all(times[1:] >= times[:-1]), f"{path}: time runs backwards"
        assert not ordered or last is None or times[0] >= last, f"{path}: time runs backwards"
        found, last = found + len(times), times[-1]
    assert found == num_rows, f"{path}: {found} rows instead of {num_rows}"
