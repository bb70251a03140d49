"""Import of the authors' CLOC release: their files in, the tables of a build out, with their labels and their order."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import polars as pl

from driftline.streams.building.accounting import Accounting, in_order_of_reasons
from driftline.streams.building.metadata import Part, Table
from driftline.streams.building.readers.cloc import (
    Release,
    cleaned,
    read_train,
    read_validation,
    release_classes,
)
from driftline.streams.building.tables import (
    ROWS_PER_GROUP,
    BuiltTables,
    TableCounts,
    TableWriter,
    check_written,
)
from driftline.streams.building.workshop import Workshop
from driftline.streams.durable import replacing
from driftline.types import DriftlineError


def release_table(release: Release) -> Table:
    """The release as a table with one part, for the record of how the stream was built; its rows are not read this way."""
    return Table([Part(release.folder.name, release.identity(), lambda: iter(()))], {}, "cloc")


def import_tables(release: Release, shop: Workshop) -> BuiltTables:
    """Tables of stream and validation set as the authors made them."""
    result = shop.stage("tables", lambda: _write(release, shop))
    counts = TableCounts(**result["counts"])
    return BuiltTables(
        shop.folder / "train.parquet",
        shop.folder / "validation.parquet",
        release_classes(release, result["num_labels"]),
        Accounting(
            num_read=result["num_read"],
            refused=result["refused"],
            num_preprocessing=0,
            num_validation=counts.num_validation,
            num_stream=counts.num_train,
        ),
        counts.num_albums,
    )


def _write(release: Release, shop: Workshop) -> dict[str, Any]:
    counts, num_labels = TableCounts(), 0
    num_read, refused = 0, dict[str, int]()
    for name, read in [("train", read_train), ("validation", read_validation)]:
        raw = read(release)
        rows, why = cleaned(raw)
        num_read += raw.height
        for reason, num in why.items():
            refused[reason] = refused.get(reason, 0) + num
        num_labels = max(num_labels, int(rows["label"].max() or 0) + 1)  # type: ignore[arg-type]
        with replacing(shop.folder / f"{name}.parquet") as path:
            with TableWriter(path, has_image=True) as writer:
                for start in range(0, rows.height, ROWS_PER_GROUP):
                    piece = rows.slice(start, ROWS_PER_GROUP)
                    writer.write(piece, piece["label"].to_numpy())
            check_written(path, rows.height, ordered=True)
        _count(counts, name, rows, writer)
    if not counts.num_train:
        raise DriftlineError(
            f"{release.folder}: no usable row among {num_read:,} ({in_order_of_reasons(refused)})"
        )
    release_classes(release, num_labels)
    return {
        "counts": asdict(counts),
        "num_labels": num_labels,
        "num_read": num_read,
        "refused": in_order_of_reasons(refused),
    }


def _count(counts: TableCounts, name: str, rows: pl.DataFrame, writer: TableWriter) -> None:
    if name == "train":
        counts.num_train, counts.num_albums = rows.height, writer.num_albums
    else:
        counts.num_validation = rows.height
