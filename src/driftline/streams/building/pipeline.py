"""The stages of a build that work on rows: read and filter, find duplicates, make the classes, write the tables.

A table flows in; labelled, split, album-grouped tables flow out. Each stage leaves a mark when it is done, and a build that was
killed goes on after the last mark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from driftline.streams.building.accounting import Accounting, in_order_of_reasons
from driftline.streams.building.build_config import BuildConfig
from driftline.streams.building.classing import Classes, cells_of_first_rows, classes_of_labels, from_json
from driftline.streams.building.metadata import REASONS, Rules, Table
from driftline.streams.building.ordered import OrderedRows
from driftline.streams.building.readers.columns import missing_column
from driftline.streams.building.spill import SpillCounts, find_duplicates, spill_part
from driftline.streams.building.splits import preprocessing_count
from driftline.streams.building.tables import BuiltTables, Split, TableCounts, write_tables
from driftline.streams.building.workshop import Workshop
from driftline.types import DriftlineError

Progress = Callable[[str, int, int | None], None]
"""Hears of (stage, rows done, rows in all or None) while a build goes on."""


def rules_for(config: BuildConfig, table: Table) -> Rules:
    """What a row of this table needs; a table that cannot make a stream is refused here."""
    names, source = table.parts[0].column_names, table.parts[0].name
    has_place = table.has("lat") and table.has("lon")
    has_label = table.has("label")
    if not table.has("time") and config.order == "time":
        raise missing_column(
            source,
            "no column for the time; name it with --time-column, or keep the order with --order given",
            names,
        )
    if not has_place and not has_label:
        raise missing_column(
            source, "no column for the classes; name --label-column, or --lat-column and --lon-column", names
        )
    if config.images is not None and not table.has("image"):
        raise missing_column(source, "no column for the images; name it with --image-column", names)
    return Rules(
        years=config.year_range(table.format) if table.has("time") else None,
        needs_place=not has_label,
        needs_label=has_label,
        needs_image=config.images is not None,
        has_image=table.has("image"),
        has_time=table.has("time"),
        has_user=table.has("user"),
        has_id=table.has("id"),
        given_order=config.order == "given",
    )


def build_tables(config: BuildConfig, table: Table, shop: Workshop, progress: Progress) -> BuiltTables:
    """The stages up to labelled, split, album-grouped tables."""
    rules = rules_for(config, table)
    folders = [shop.folder / "spill" / f"{number:05d}" for number in range(len(table.parts))]
    spilled = _spill(table, rules, folders, config.workers, progress)
    refused: Counter[str] = sum((Counter(counts.refused) for counts in spilled), Counter())
    num_read, num_good = sum(c.num_read for c in spilled), sum(c.num_good for c in spilled)
    _need_rows(num_good, num_read, refused)

    found = shop.stage("duplicates", lambda: _duplicates(shop.folder, folders, num_good, rules))
    rows = OrderedRows(
        folders,
        sorted({int(cut) for counts in spilled for cut in counts.cuts}),
        np.load(shop.folder / "duplicates.npy", allow_pickle=False),
        found["num_distinct"],
        rules.given_order,
        rules.has_time,
    )
    num_first = preprocessing_count(rows.num_rows, config.preprocess_share(has_labels=rules.needs_label))
    progress("classes", 0, num_first)
    classes = from_json(
        shop.stage("classes", lambda: _classes(config, rules, rows, num_first, spilled).to_json())
    )

    def tables() -> dict[str, Any]:
        progress("tables", 0, rows.num_rows)
        split = Split(classes, num_first, config.validation_share, config.seed)
        counts = write_tables(rows, split, shop.folder, has_image=rules.has_image)
        return asdict(counts)

    counts = TableCounts(**shop.stage("tables", tables))
    refused.update(duplicate=num_good - rows.num_rows, no_class=counts.num_no_class)
    if not counts.num_train:
        raise DriftlineError(
            f"no row is left for the stream: {num_first:,} of {rows.num_rows:,} rows are the preprocessing set, "
            f"{counts.num_no_class:,} are in no class; lower --preprocess or --min-per-class"
        )
    accounting = Accounting(
        num_read=num_read,
        refused=in_order_of_reasons(refused),
        num_preprocessing=counts.num_preprocessing,
        num_validation=counts.num_validation,
        num_stream=counts.num_train,
        places_ignored=sum(c.places_ignored for c in spilled),
    )
    paths = [shop.folder / f"{name}.parquet" for name in ("train", "validation")]
    return BuiltTables(paths[0], paths[1], classes.table(), accounting, counts.num_albums)


def _spill(
    table: Table, rules: Rules, folders: list[Path], workers: int, progress: Progress
) -> list[SpillCounts]:
    """All parts, some at the same time; every part lands in its own folder, so who is first does not matter."""
    sizes = [part.num_rows for part in table.parts]
    total = None if None in sizes else sum(size for size in sizes if size is not None)
    num_done = 0

    def tick(rows: int) -> None:
        nonlocal num_done
        num_done += rows
        progress("read", num_done, total)

    with ThreadPoolExecutor(max_workers=min(workers, len(table.parts))) as pool:
        jobs = [
            pool.submit(spill_part, part, number, rules, folder, tick)
            for number, (part, folder) in enumerate(zip(table.parts, folders, strict=True))
        ]
        try:
            return [job.result() for job in jobs]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _need_rows(num_good: int, num_read: int, refused: Counter[str]) -> None:
    if num_good:
        return
    why = "; ".join(f"{num:,} {REASONS[reason]}" for reason, num in refused.most_common(4))
    raise DriftlineError(
        f"no usable row among {num_read:,}" + (f": {why}" if why else ": the table is empty")
    )


def _duplicates(folder: Path, folders: list[Path], num_good: int, rules: Rules) -> dict[str, Any]:
    num_distinct, repeated = find_duplicates(folders) if rules.has_id else (num_good, np.empty(0, np.uint64))
    np.save(folder / "duplicates.npy", repeated, allow_pickle=False)
    return {"num_distinct": num_distinct}


def _classes(
    config: BuildConfig, rules: Rules, rows: OrderedRows, num_first: int, spilled: list[SpillCounts]
) -> Classes:
    if rules.needs_label:
        return classes_of_labels((label for counts in spilled for label in counts.labels), rows, config)
    return cells_of_first_rows(rows, num_first, config)
