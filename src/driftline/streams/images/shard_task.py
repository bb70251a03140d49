"""One shard of a build: from its rows and a source of images to payloads on disk.

A task depends on nothing but its rows, the source and the settings. It reads the images of its rows in order, makes
the payloads, and commits them together with two tables in `.ingest/`: rows-00000.parquet (the rows that have an
image) and failed-00000.parquet (the others, with the reason). Doing it twice gives the same files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from driftline.streams.durable import explaining_full_disk, replacing
from driftline.streams.images.journal import journalled
from driftline.streams.images.sources import Found, ImageSource, Missing
from driftline.streams.images.workers import Advance
from driftline.streams.store.decode import UndecodableError, prepare, to_raw
from driftline.streams.store.finish import WORK_FOLDER
from driftline.streams.store.rows import RowReader
from driftline.streams.store.shards import ShardWriter, iter_shard, shard_info, shard_name
from driftline.types import BadSampleError, DriftlineError, ImageArray

ADVANCE_EVERY = 64
"""Rows between two reports of a task."""
FAILED = pa.schema(
    [
        ("row", pa.int64()),
        ("id", pa.string()),
        ("image", pa.string()),
        ("reason", pa.string()),
        ("passing", pa.bool_()),
    ]
)


@dataclass(frozen=True)
class ShardTask:
    """Which rows become which shard, and how."""

    rows: Path
    out: Path
    number: int
    start: int
    stop: int
    source: ImageSource
    image_size: int
    kind: Literal["jpeg", "raw"]
    retry: bool = False
    journal: bool = False
    """Keep what an unfinished shard has got so far."""

    @property
    def num_rows(self) -> int:
        """Rows of the shard, with or without an image."""
        return self.stop - self.start

    @property
    def name(self) -> str:
        """For messages."""
        return f"shard {self.out / shard_name(self.number)}"

    @property
    def row_file(self) -> Path:
        """The rows that have an image."""
        return self.out / WORK_FOLDER / f"rows-{self.number:05d}.parquet"

    @property
    def failed_file(self) -> Path:
        """The rows that have none, with the reason."""
        return self.out / WORK_FOLDER / f"failed-{self.number:05d}.parquet"

    @property
    def journal_file(self) -> Path:
        """What an unfinished shard has got so far."""
        return self.out / WORK_FOLDER / f"partial-{self.number:05d}.bin"

    def is_done(self) -> bool:
        """True when the shard and its tables are there and need no other attempt."""
        if not (self.out / f"{shard_name(self.number)}.idx").exists() or not self.row_file.exists():
            return False
        try:
            num_samples = shard_info(self.out, self.number).num_samples
            num_kept, num_failed = len(RowReader(self.row_file)), len(RowReader(self.failed_file))
        except DriftlineError:
            return False
        complete = num_samples == num_kept and num_kept + num_failed == self.num_rows
        return complete and not (self.retry and num_passing(self.failed_file))


def num_passing(failed: Path) -> int:
    """Failures in a table that another attempt may mend."""
    return int(np.count_nonzero(pq.read_table(failed, columns=["passing"]).column("passing").to_numpy()))


def make_shard(task: ShardTask, advance: Advance) -> tuple[int, int]:
    """Make one shard and the tables of its rows; gives the numbers of rows and of samples kept."""
    with explaining_full_disk(task.out):
        table = RowReader(task.rows).read(task.start, task.stop)
        names = ["" if name is None else str(name) for name in table.column("image").to_pylist()]
        kept: list[int] = []
        failed: list[tuple[int, Missing]] = []
        reported = 0
        with ShardWriter(task.out, task.number) as writer:
            for i, payload in enumerate(_payloads(task, names)):
                if isinstance(payload, Missing):
                    failed.append((i, payload))
                else:
                    writer.append(payload)
                    kept.append(i)
                if (i + 1) % ADVANCE_EVERY == 0 or i + 1 == len(names):
                    advance(i % ADVANCE_EVERY + 1, len(failed) - reported)
                    reported = len(failed)
            _write_tables(task, table, kept, failed)
            writer.commit()
        task.journal_file.unlink(missing_ok=True)
    return len(names), len(kept)


def _payloads(task: ShardTask, names: list[str]) -> Iterator[bytes | Missing]:
    """A payload or a reason for each row. On a retry, what an earlier attempt settled is taken from it."""
    settled = _settled(task) if task.retry else None
    if settled is None:

        def rest(start: int) -> Iterator[bytes | Missing]:
            return (_made(found, task) for found in task.source.read(names[start:]))

        yield from journalled(task.journal_file, rest) if task.journal else rest(0)
        return
    stored = iter_shard(task.out, task.number)
    again = task.source.read([name for i, name in enumerate(names) if settled.get(i, _KEPT).passing])
    for i in range(len(names)):
        if i not in settled:
            payload = next(stored)
            yield Missing(payload.reason) if isinstance(payload, BadSampleError) else payload
        else:
            yield _made(next(again), task) if settled[i].passing else settled[i]


_KEPT = Missing("")


def _settled(task: ShardTask) -> dict[int, Missing] | None:
    """The failures of an earlier attempt by row of the shard; None when there is no whole attempt to go on from."""
    try:
        info = shard_info(task.out, task.number)
        failures = RowReader(task.failed_file).read_all().to_pylist()
    except DriftlineError:
        return None
    settled = {row["row"] - task.start: Missing(row["reason"], row["passing"]) for row in failures}
    return settled if info.num_samples + len(settled) == task.num_rows else None


def _made(found: Found, task: ShardTask) -> bytes | Missing:
    if isinstance(found, Missing):
        return found
    try:
        return _encoded(found, task)
    except UndecodableError as error:
        return Missing(str(error))


def _encoded(found: bytes | ImageArray, task: ShardTask) -> bytes:
    if task.kind == "raw":
        return to_raw(found, task.image_size)
    return prepare(found, short_side=task.image_size)


def _write_tables(
    task: ShardTask, table: pa.Table, kept: list[int], failed: list[tuple[int, Missing]]
) -> None:
    where = pa.array([i for i, _ in failed], pa.int64())
    failures = table.take(where)
    columns = [
        pa.array([task.start + i for i, _ in failed], pa.int64()),
        failures.column("id").cast(pa.string()),
        failures.column("image").cast(pa.string()),
        pa.array([missing.reason for _, missing in failed], pa.string()),
        pa.array([missing.passing for _, missing in failed], pa.bool_()),
    ]
    with replacing(task.failed_file) as temporary:
        pq.write_table(pa.table(columns, schema=FAILED), temporary, compression="zstd")
    with replacing(task.row_file) as temporary:
        rows = table.take(pa.array(kept, pa.int64())).drop_columns(["image"])
        pq.write_table(rows, temporary, compression="zstd")
