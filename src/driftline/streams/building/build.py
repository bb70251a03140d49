"""From a table to a stream: filter, order, split, make the classes, label, group into albums, store.

A `BuildConfig` flows in; a stream directory and a `BuildReport` flow out. The work is done in stages inside the output
directory; a build that was killed goes on with the stages it had finished and makes the same bytes.
"""

from __future__ import annotations

import glob
import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from driftline.streams.building.accounting import Accounting
from driftline.streams.building.build_config import BuildConfig
from driftline.streams.building.build_report import BuildReport, finished, save_report
from driftline.streams.building.cloc_import import import_tables, release_table
from driftline.streams.building.metadata import Table
from driftline.streams.building.pipeline import Progress, build_tables
from driftline.streams.building.readers import open_table
from driftline.streams.building.readers.cloc import Release, find_release, is_release
from driftline.streams.building.tables import BuiltTables
from driftline.streams.building.workshop import FOLDER, Workshop, workshop
from driftline.streams.durable import explaining_full_disk
from driftline.streams.images.ingest import (
    FolderSource,
    ImageSource,
    IngestResult,
    ParquetSource,
    TarSource,
    ingest,
)
from driftline.streams.store.finish import finish_stream
from driftline.streams.store.manifest import ImageFormat

TABLE_VERSION = 1
"""Goes up when the same table and options give other rows than before."""


def build(
    config: BuildConfig,
    *,
    table: Table | None = None,
    source: ImageSource | None = None,
    say: Callable[[str], None] = lambda text: None,
    progress: Progress = lambda stage, done, total: None,
) -> BuildReport:
    """Build a stream from the table that the config names, or from `table`; images come from `config.images`, or `source`.

    Run again after an interruption it goes on with the stages it had finished; run again after success it does nothing.
    """
    assert not config.dry_run, "dry_run.dry_run says what would be built"
    with explaining_full_disk(config.out):
        if config.images is not None:
            _image_files(config.images)
        release = find_config_release(config) if table is None else None
        if table is None:
            table = release_table(release) if release else open_config_table(config)
        mark = fingerprint(config, table, source)
        there = finished(config.out, mark)
        if there is not None:
            shutil.rmtree(config.out / FOLDER, ignore_errors=True)
            return there
        with workshop(config.out, mark, say) as shop:
            if release:
                tables = import_tables(release, shop)
            else:
                tables = build_tables(config, table, shop, progress)
            report = _store(
                config, table, tables, shop, source or _image_source(config, shop.folder), progress
            )
            save_report(report, mark)
        return report


def find_config_release(config: BuildConfig) -> Release | None:
    """The authors' release, where the config names one."""
    folder = Path(config.table[0])
    is_cloc = config.format == "cloc" or (config.format == "auto" and is_release(folder))
    return find_release(folder) if is_cloc else None


def open_config_table(config: BuildConfig) -> Table:
    """The table that the config names."""
    return open_table(
        config.table,
        config.columns(),
        format=config.format,
        delimiter=config.delimiter,
        sql_table=config.sql_table,
    )


def _store(
    config: BuildConfig,
    table: Table,
    tables: BuiltTables,
    shop: Workshop,
    source: ImageSource | None,
    progress: Progress,
) -> BuildReport:
    """Images into shards, where there are images; then the files that make the directory a stream."""
    rows: list[list[Path]] = [[tables.train], [tables.validation]]
    missing: Counter[str] = Counter()
    image = ImageFormat("none", config.image_size)
    if source is not None:
        image = ImageFormat(config.image_kind, config.image_size, fixed=config.image_kind == "raw")
        for k, folder in enumerate([config.out, config.out / "validation"]):
            if pq.read_metadata(rows[k][0]).num_rows:
                result = _ingest(config, rows[k][0], folder, source, progress)
                rows[k] = list(result.row_files)
                missing.update(result.reasons)
    accounting = replace(tables.accounting, images_missing=dict(sorted(missing.items())))
    progress("store", 0, accounting.num_stream)
    name = config.name or table.name
    manifest = finish_stream(
        config.out,
        name=name,
        classes=tables.classes,
        how=_how(config, table, tables, accounting),
        train_rows=rows[0],
        validation_rows=rows[1],
        image=image,
        order=config.order,
    )
    return BuildReport(
        out=config.out,
        name=name,
        format=table.format,
        columns=table.columns,
        num_classes=len(tables.classes),
        num_albums=tables.num_albums,
        accounting=accounting,
        num_stored=manifest.train.num_samples,
        num_stored_validation=manifest.validation.num_samples,
        has_images=source is not None,
        resumed=tuple(shop.resumed),
    )


def _ingest(
    config: BuildConfig, rows: Path, folder: Path, source: ImageSource, progress: Progress
) -> IngestResult:
    return ingest(
        rows,
        folder,
        source,
        image_size=config.image_size,
        kind=config.image_kind,
        rows_per_shard=config.rows_per_shard,
        workers=config.workers,
        engine=config.engine,
        address=config.address,
        progress=lambda state: progress("images", state.rows_done, state.num_rows),
    )


def _image_source(config: BuildConfig, work: Path) -> ImageSource | None:
    """What --images means: a folder, tar files, or Parquet files with a column of image bytes."""
    if config.images is None:
        return None
    files = _image_files(config.images)
    if files and all(path.suffix == ".tar" for path in files):
        return TarSource.scan(files, work)
    if files and all(path.suffix == ".parquet" for path in files):
        return ParquetSource.unpack(files, work)
    return FolderSource(Path(config.images))


def _image_files(images: str) -> list[Path]:
    """The files that --images names; none when it is a folder. What is neither is refused."""
    root = Path(images)
    files = [root] if root.is_file() else sorted(Path(p) for p in glob.glob(images) if not root.is_dir())  # noqa: PTH207
    if not files:
        FolderSource(root)
    return files


def _how(config: BuildConfig, table: Table, tables: BuiltTables, accounting: Accounting) -> dict[str, Any]:
    """How the stream came about, for people and for `inspect`; the same for the same command, wherever the output lies."""
    settings = {k: v for k, v in config.result_settings().items() if v is not None and k != "name"}
    return {
        "format": table.format,
        "parts": [part.name for part in table.parts],
        "columns": table.columns,
        "settings": settings,
        "rows": accounting.to_json(),
        "albums": tables.num_albums,
    }


def fingerprint(config: BuildConfig, table: Table, source: ImageSource | None = None) -> str:
    """Hash of all that decides the result: options, files, and the versions of what reads and writes them."""
    values = {
        "version": TABLE_VERSION,
        "settings": config.result_settings(),
        "parts": [part.identity for part in table.parts],
        "images": source.describe() if source else None,
        "libraries": [pl.__version__, np.__version__, pa.__version__],
    }
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
