"""The last step of every build: from rows and shards to a stream that can be opened.

Flow: Parquet files of rows in their final order, and the shards already in the directory ->
samples.parquet, labels.npy, and stream.json, which is written last: before it there is no stream.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from driftline.streams.durable import explaining_full_disk, replacing
from driftline.streams.store.manifest import ImageFormat, Manifest, Order, SplitInfo, to_dict
from driftline.streams.store.rows import RowReader
from driftline.streams.store.shards import ShardInfo, shard_info
from driftline.types import ClassTable, DriftlineError

ROWS_PER_GROUP = 65536
WORK_FOLDER = ".ingest"
"""Below a split's folder: what a build needs until the stream is finished."""
TYPES = {
    "time": pa.int64(),
    "user": pa.int64(),
    "label": pa.int32(),
    "lat": pa.float64(),
    "lon": pa.float64(),
}


def finish_stream(
    directory: Path,
    *,
    name: str,
    classes: ClassTable,
    how: Mapping[str, Any],
    train_rows: Path | Sequence[Path],
    validation_rows: Path | Sequence[Path],
    image: ImageFormat,
    order: Order = "time",
    keep_work: bool = False,
) -> Manifest:
    """Make a directory of shards a stream.

    `train_rows` and `validation_rows` are Parquet files with the columns id, time, user, label, lat, lon, in the
    final order; after `ingest` they are `IngestResult.row_files`. Further columns are left out, except that a stream
    without images (kind "none") keeps `image`, which says where `driftline fetch` finds them.
    What `ingest` could not use is listed in failed.parquet. Its work folder is deleted unless `keep_work`.
    """
    if not len(classes):
        raise DriftlineError(f"{directory}: no classes; a stream needs at least one label")
    directory.mkdir(parents=True, exist_ok=True)
    with explaining_full_disk(directory):
        splits = [
            _finish_split(directory / folder, _as_list(rows), image, len(classes), ordered=order == "time")
            for folder, rows in [("", train_rows), ("validation", validation_rows)]
        ]
        if not splits[0].num_samples:
            raise DriftlineError(
                f"{directory}: no sample is left for the stream; check the table and its images"
            )
        manifest = Manifest(name, order, image, classes, splits[0], splits[1], dict(how))
        with replacing(directory / "stream.json") as temporary:
            temporary.write_text(json.dumps(to_dict(manifest), indent=1) + "\n", encoding="utf-8")
    for folder in (directory, directory / "validation"):
        if not keep_work:
            shutil.rmtree(folder / WORK_FOLDER, ignore_errors=True)
    return manifest


def _as_list(rows: Path | Sequence[Path]) -> list[Path]:
    return [rows] if isinstance(rows, Path) else list(rows)


def _finish_split(
    folder: Path, rows: list[Path], image: ImageFormat, num_classes: int, *, ordered: bool
) -> SplitInfo:
    folder.mkdir(exist_ok=True)
    shards = () if image.kind == "none" else shards_in(folder)
    tally = _Tally(folder, num_classes, ordered)
    columns = ["id", *TYPES, *(["image"] if image.kind == "none" and _have(rows, "image") else [])]
    total = sum(len(RowReader(path)) for path in rows)
    schema = _typed(_empty(columns), 0).schema
    with (
        replacing(folder / "samples.parquet") as table_path,
        replacing(folder / "labels.npy") as labels_path,
        labels_path.open("wb") as labels,
        pq.ParquetWriter(table_path, schema, compression="zstd") as writer,
    ):
        header = {"descr": "<i4", "fortran_order": False, "shape": (total,)}
        np.lib.format.write_array_header_1_0(labels, header)
        for group in regrouped(rows, columns, ROWS_PER_GROUP):
            table = _typed(group, tally.num_samples)
            labels.write(tally.add(table))
            writer.write_table(table, row_group_size=ROWS_PER_GROUP)
    num_images = sum(shard.num_samples for shard in shards)
    if image.kind != "none" and num_images != tally.num_samples:
        raise DriftlineError(
            f"{folder} has {num_images} images but {tally.num_samples} rows; delete the images-* files and build again"
        )
    _gather_failures(folder)
    return tally.info(shards)


def _gather_failures(folder: Path) -> None:
    """failed.parquet from the tables of the shards."""
    files = sorted((folder / WORK_FOLDER).glob("failed-*.parquet"))
    if not files:
        return
    schema = RowReader(files[0]).read(0, 0).schema
    with (
        replacing(folder / "failed.parquet") as temporary,
        pq.ParquetWriter(temporary, schema, compression="zstd") as writer,
    ):
        for path in files:
            writer.write_table(RowReader(path).read_all())


def shards_in(folder: Path) -> tuple[ShardInfo, ...]:
    """The shards of a folder, which must be numbered from 0 without a gap."""
    count = len(list(folder.glob("images-*.idx")))
    return tuple(shard_info(folder, number) for number in range(count))


def _have(rows: list[Path], column: str) -> bool:
    return bool(rows) and column in RowReader(rows[0]).columns


def regrouped(files: Sequence[Path], columns: list[str], size: int) -> Iterator[pa.Table]:
    """The rows of several files as tables of exactly `size` rows (the last may be smaller)."""
    pending: list[pa.Table] = []
    num_pending = 0
    for path in files:
        reader = RowReader(path, columns)
        for start in range(0, len(reader), size):
            table = reader.read(start, min(start + size, len(reader))).select(columns)
            pending.append(table)
            num_pending += len(table)
            while num_pending >= size:
                whole = pa.concat_tables(pending, promote_options="permissive")
                yield whole.slice(0, size)
                pending, num_pending = [whole.slice(size)], num_pending - size
    if num_pending:
        yield pa.concat_tables(pending, promote_options="permissive")


def _empty(columns: list[str]) -> pa.Table:
    types = {"id": pa.string(), "image": pa.string(), **TYPES}
    return pa.schema([(name, types[name]) for name in columns]).empty_table()


def _typed(group: pa.Table, first_position: int) -> pa.Table:
    """The columns of samples.parquet, in their order and types; an unknown place is NaN, never null."""
    positions = pa.array(np.arange(first_position, first_position + len(group), dtype=np.int64))
    columns = {"position": positions}
    for name, kind in TYPES.items():
        column = group.column(name).cast(kind)
        if name in ("lat", "lon"):
            column = pc.fill_null(column, float("nan"))
        columns[name] = column
    for name in group.column_names:
        if name not in TYPES:
            columns[name] = group.column(name).cast(pa.string())
    return pa.table(columns).combine_chunks()


@dataclass
class _Tally:
    """Counts, checks and hashes rows as they pass."""

    folder: Path
    num_classes: int
    ordered: bool
    num_samples: int = 0
    first_time_s: int | None = None
    last_time_s: int | None = None
    hash: Any = field(default_factory=hashlib.sha256)

    def add(self, table: pa.Table) -> bytes:
        """Take in the next rows; gives the bytes of their labels."""
        for name in TYPES:
            if table.column(name).null_count:
                raise DriftlineError(
                    f"{self.folder}: the column {name!r} has empty entries; leave those rows out"
                )
        columns = {name: np.ascontiguousarray(table.column(name).to_numpy()) for name in TYPES}
        self._check(columns["time"], columns["label"])
        self.num_samples += len(table)
        for column in columns.values():
            self.hash.update(column.tobytes())
        return columns["label"].astype("<i4").tobytes()

    def _check(self, time: np.ndarray[Any, Any], label: np.ndarray[Any, Any]) -> None:
        before = time[0] if self.last_time_s is None else self.last_time_s
        backwards = np.flatnonzero(np.diff(time, prepend=before) < 0)
        if self.ordered and len(backwards):
            where = self.num_samples + int(backwards[0])
            raise DriftlineError(
                f"{self.folder}: time runs backwards at row {where}; sort the rows by time first"
            )
        wrong = np.flatnonzero((label < 0) | (label >= self.num_classes))
        if len(wrong):
            raise DriftlineError(
                f"{self.folder}: label {label[wrong[0]]} at row {self.num_samples + int(wrong[0])} is none of the "
                f"{self.num_classes} classes"
            )
        self.first_time_s = int(time[0]) if self.first_time_s is None else self.first_time_s
        self.last_time_s = int(time[-1])

    def info(self, shards: tuple[ShardInfo, ...]) -> SplitInfo:
        """What stream.json records of the split."""
        digest = self.hash.hexdigest()[:32]
        return SplitInfo(self.num_samples, self.first_time_s, self.last_time_s, digest, shards)
