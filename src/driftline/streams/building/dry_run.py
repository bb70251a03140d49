"""What a build would make, judged by a sample of the table: rows, classes, disk space, time.

A `BuildConfig` flows in; an `Estimate` flows out. Nothing is written. The sample is the beginning of each file, so a table sorted by
time or place is judged by that part of it.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from rich.table import Table as RichTable

from driftline.geo import s2
from driftline.geo.partition import build_partition
from driftline.streams.building.build import find_config_release, open_config_table
from driftline.streams.building.build_config import BuildConfig
from driftline.streams.building.metadata import REASONS, Rules, Table, clean
from driftline.streams.building.pipeline import rules_for
from driftline.streams.building.readers.cloc import Release, release_size
from driftline.streams.building.spill import free_bytes
from driftline.streams.images.ingest import FolderSource, Missing
from driftline.streams.store.decode import UndecodableError, prepare
from driftline.types import DriftlineError

SAMPLE_ROWS = 200_000
SAMPLE_PARTS = 8
SAMPLE_IMAGES = 32
LATER_STAGES = 1.5
"""Sorting, labelling and writing take about as long as reading, and half of that again."""
BYTES_PER_ROW = 120
"""Of the tables of a finished stream."""
WORK_BYTES_PER_ROW = 160
"""Of the files that a build needs meanwhile."""


@dataclass(frozen=True)
class Estimate:
    """What would be built; every figure is an estimate from `num_sampled` rows, except where the files say the number of rows."""

    num_rows: int
    rows_are_exact: bool
    num_sampled: int
    refused: dict[str, float]
    """Share of the rows refused, by reason."""
    num_stream: int
    num_validation: int
    num_preprocessing: int
    num_classes: int
    disk_bytes: int
    work_bytes: int
    free_bytes: int
    seconds: float
    images_timed: bool
    """Whether `seconds` includes the images."""

    def table(self) -> RichTable:
        """The estimate as a table to print."""
        table = RichTable(
            title=f"Would be built (estimates from {self.num_sampled:,} rows)", title_justify="left"
        )
        table.add_column("")
        table.add_column("", justify="right")
        about = "" if self.rows_are_exact else "about "
        table.add_row("rows in the table", f"{about}{self.num_rows:,}")
        for reason, share in self.refused.items():
            table.add_row(f"  refused: {REASONS[reason]}", f"{share:.1%}")
        table.add_row("stream", f"about {self.num_stream:,}")
        table.add_row("validation set", f"about {self.num_validation:,}")
        table.add_row("preprocessing set", f"about {self.num_preprocessing:,}")
        table.add_row("classes", f"about {self.num_classes:,}")
        table.add_row("disk space", f"about {self.disk_bytes / 1e9:.2f} GB")
        table.add_row("  more while building", f"about {self.work_bytes / 1e9:.2f} GB")
        table.add_row("  free now", f"{self.free_bytes / 1e9:.2f} GB")
        table.add_row("time" + ("" if self.images_timed else ", without images"), _duration(self.seconds))
        return table


def _duration(seconds: float) -> str:
    for size, unit in [(86400, "days"), (3600, "hours"), (60, "minutes")]:
        if seconds >= 2 * size:
            return f"about {seconds / size:.0f} {unit}"
    return f"about {max(seconds, 1):.0f} s"


def dry_run(config: BuildConfig, *, table: Table | None = None) -> Estimate:
    """Judge a build by a sample of its table; what a build would refuse at once is refused here too."""
    release = find_config_release(config) if table is None else None
    if release is not None:
        return _release_estimate(config, release)
    table = table or open_config_table(config)
    rules = rules_for(config, table)
    rows, refused, num_sampled, seconds = _sample(table, rules)
    exact = all(part.num_rows is not None for part in table.parts)
    num_rows = sum(part.estimate_rows() if part.num_rows is None else part.num_rows for part in table.parts)
    num_rows = num_rows if exact else max(num_rows, num_sampled)
    num_good = round(num_rows * rows.height / max(num_sampled, 1))
    num_first = round(num_good * config.preprocess_share(has_labels=rules.needs_label))
    num_classes, in_class = _classes(config, rules, rows, num_first)
    num_labelled = (num_good - num_first) * in_class
    bytes_per_image, seconds_per_image = _images(config, rows)
    num_stored = round(num_labelled)
    return Estimate(
        num_rows,
        exact,
        num_sampled,
        {reason: refused[reason] / num_sampled for reason in REASONS if refused[reason]},
        round(num_labelled * (1 - config.validation_share)),
        round(num_labelled * config.validation_share),
        num_first,
        num_classes,
        round(num_stored * (BYTES_PER_ROW + bytes_per_image)),
        num_good * WORK_BYTES_PER_ROW,
        _free(config.out),
        num_rows * seconds / max(num_sampled, 1) * (1 + LATER_STAGES)
        + num_stored * seconds_per_image / config.workers,
        config.images is None or seconds_per_image > 0,
    )


def _release_estimate(config: BuildConfig, release: Release) -> Estimate:
    """The authors' release is taken over row by row; only its labels are read."""
    started = time.perf_counter()
    num_rows, num_held_out, num_labels = release_size(release)
    return Estimate(
        num_rows=num_rows + num_held_out,
        rows_are_exact=True,
        num_sampled=num_rows + num_held_out,
        refused={},
        num_stream=num_rows,
        num_validation=num_held_out,
        num_preprocessing=0,
        num_classes=num_labels,
        disk_bytes=(num_rows + num_held_out)
        * (BYTES_PER_ROW + (config.image_size**2 * 3 // 8 if config.images else 0)),
        work_bytes=(num_rows + num_held_out) * WORK_BYTES_PER_ROW,
        free_bytes=_free(config.out),
        seconds=5 * (time.perf_counter() - started),
        images_timed=config.images is None,
    )


def _free(out: Path) -> int:
    return free_bytes(next(path for path in [out, *out.absolute().parents] if path.exists()))


def _sample(table: Table, rules: Rules) -> tuple[pl.DataFrame, Counter[str], int, float]:
    """Good rows from the beginning of some parts, spread evenly; counts; seconds it took to read and check them."""
    started = time.perf_counter()
    chosen = np.unique(np.linspace(0, len(table.parts) - 1, min(SAMPLE_PARTS, len(table.parts))).astype(int))
    kept, refused, num_read = [], Counter[str](), 0
    for number in chosen.tolist():
        left = SAMPLE_ROWS // len(chosen)
        for frame in table.parts[number].frames():
            cleaned = clean(frame.head(left), rules, part=number)
            kept.append(cleaned.rows)
            refused.update(cleaned.refused)
            num_read += cleaned.num_read
            left -= cleaned.num_read
            if left <= 0:
                break
    if not num_read or not any(frame.height for frame in kept):
        raise DriftlineError(
            f"no usable row among the first {num_read:,}: {dict(refused) or 'the table is empty'}"
        )
    return pl.concat(kept), refused, num_read, time.perf_counter() - started


def _classes(config: BuildConfig, rules: Rules, rows: pl.DataFrame, num_first: int) -> tuple[int, float]:
    """Number of classes, and the share of the rows that are in one."""
    if rules.needs_label:
        return rows["label"].n_unique(), 1.0
    scale = rows.height / max(num_first, 1)
    least = max(1, round(config.least_per_cell * scale))
    leaves = s2.cell_ids(rows["lat"].to_numpy(), rows["lon"].to_numpy())
    partition = build_partition(
        leaves,
        min_per_class=least,
        max_per_class=max(least, round(config.most_per_cell * scale)),
        max_level=s2.MAX_LEVEL if config.max_level is None else config.max_level,
    )
    return len(partition), float((partition.label_cells(leaves) >= 0).mean())


def _images(config: BuildConfig, rows: pl.DataFrame) -> tuple[float, float]:
    """Bytes and seconds of one stored image, from a few of them; (bytes, 0) where they cannot be tried."""
    if config.images is None:
        return 0.0, 0.0
    raw_bytes = float(config.image_size**2 * 3)
    if not Path(config.images).is_dir():
        return (raw_bytes if config.image_kind == "raw" else raw_bytes / 8), 0.0
    names = rows["image"].drop_nulls().gather_every(max(rows.height // SAMPLE_IMAGES, 1)).head(SAMPLE_IMAGES)
    started, sizes = time.perf_counter(), []
    for found in FolderSource(Path(config.images)).read(names.to_list()):
        if not isinstance(found, Missing):
            try:
                sizes.append(len(prepare(found, short_side=config.image_size)))
            except UndecodableError:
                continue
    if not sizes:
        raise DriftlineError(
            f"none of {len(names)} images was found and readable below {config.images} (the first: {names[0]!r}); "
            "check --images and --image-column"
        )
    mean_bytes = raw_bytes if config.image_kind == "raw" else float(np.mean(sizes))
    return mean_bytes, (time.perf_counter() - started) / len(sizes)
