"""Benchmark of the build: photo metadata in Parquet -> labelled, split, album-grouped tables.

    python benchmarks/build.py --quick      10 M rows
    python benchmarks/build.py --full      100 M rows
    python benchmarks/build.py --rows 1000000

Limits: time at most 3 times that of polars merely scanning, filtering and writing the same rows unsorted; peak memory at most 5 GB;
labels at least 3 M points a second on one core. Each measured job runs in a process of its own, which reports its peak memory.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MAX_TIME_RATIO = 3.0
MAX_PEAK_GB = 5.0
MIN_POINTS_PER_SECOND = 3e6
SIZES = {"quick": 10_000_000, "full": 100_000_000}


def plain_polars(table: Path, work: Path) -> dict[str, float]:
    """Scan, filter and write the same rows in the order they come in."""
    import polars as pl

    started = time.perf_counter()
    date = pl.col("datetaken").str.to_datetime("%Y-%m-%d %H:%M:%S.0", strict=False)
    lat, lon = pl.col("latitude"), pl.col("longitude")
    good = (
        (pl.col("marker") == 0)
        & date.dt.year().is_between(2004, 2014)
        & pl.col("uid").is_not_null()
        & (lat.abs() <= 90)
        & (lon.abs() <= 180)
        & ~((lat == 0) & (lon == 0))
    )
    columns = ["photoid", "uid", date.dt.epoch("s").alias("time"), "latitude", "longitude", "downloadurl"]
    pl.scan_parquet(table).filter(good).select(columns).sink_parquet(work / "plain.parquet")
    return {"seconds": time.perf_counter() - started}


def driftline_tables(table: Path, work: Path) -> dict[str, float]:
    """The stages of a build up to the tables of stream and validation set."""
    from driftline.streams.building.build_config import BuildConfig
    from driftline.streams.building.pipeline import build_tables
    from driftline.streams.building.readers import open_table
    from driftline.streams.building.workshop import workshop

    started = time.perf_counter()
    config = BuildConfig((str(table),), work / "stream", workers=2)
    opened = open_table(config.table, config.columns())
    marks: list[tuple[str, float]] = []

    def note(stage: str, done: int, total: int | None) -> None:
        if not marks or marks[-1][0] != stage:
            marks.append((stage, time.perf_counter() - started))

    with workshop(config.out, "benchmark", print) as shop:
        tables = build_tables(config, opened, shop, note)
        seconds = time.perf_counter() - started
        num_rows, num_classes = tables.accounting.num_stream, len(tables.classes)
    return {"seconds": seconds, "stream_rows": num_rows, "classes": num_classes, "stages": dict(marks)}


def labels(table: Path, work: Path) -> dict[str, float]:
    """From latitude and longitude to class, on one core."""
    import numpy as np
    import polars as pl

    from driftline.geo import s2
    from driftline.geo.partition import build_partition

    frame = pl.scan_parquet(table).select("latitude", "longitude").drop_nulls().head(2_000_000).collect()
    lat, lon = frame["latitude"].to_numpy(), frame["longitude"].to_numpy()
    lat, lon = lat[np.abs(lat) <= 90], lon[np.abs(lat) <= 90]
    partition = build_partition(s2.cell_ids(lat[:200_000], lon[:200_000]), max_per_class=1000)
    seconds = []
    for _ in range(3):
        started = time.process_time()
        partition.label(lat, lon)
        seconds.append(time.process_time() - started)
    return {"seconds": min(seconds), "points_per_second": len(lat) / min(seconds), "classes": len(partition)}


JOBS = {"plain": plain_polars, "build": driftline_tables, "labels": labels}


def measure(job: str, table: Path, work: Path) -> dict[str, float]:
    """Run a job in a process of its own."""
    command = [sys.executable, __file__, "--job", job, "--table", str(table), "--work", str(work)]
    result = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    values: dict[str, float] = json.loads(result.stdout.splitlines()[-1])
    return values


def run(num_rows: int, work: Path) -> dict[str, object]:
    """All measurements at one size, and whether they keep their limits."""
    from metadata_tables import write_parquet

    table = work / "metadata.parquet"
    write_parquet(table, num_rows)
    results = {job: measure(job, table, work) for job in JOBS}
    ratio = results["build"]["seconds"] / results["plain"]["seconds"]
    peak_gb = results["build"]["peak_gb"]
    speed = results["labels"]["points_per_second"]
    kept = ratio <= MAX_TIME_RATIO and peak_gb <= MAX_PEAK_GB and speed >= MIN_POINTS_PER_SECOND
    print(
        f"{num_rows:,} rows: {results['build']['seconds']:.1f} s, plain polars {results['plain']['seconds']:.1f} s"
    )
    print(f"time ratio  {ratio:.2f}   (limit {MAX_TIME_RATIO})")
    print(
        f"peak memory {peak_gb:.2f} GB (limit {MAX_PEAK_GB}); plain polars {results['plain']['peak_gb']:.2f} GB"
    )
    print(f"labels      {speed / 1e6:.1f} M points/s on one core (limit {MIN_POINTS_PER_SECOND / 1e6:.0f})")
    return {"rows": num_rows, "time_ratio": ratio, "peak_gb": peak_gb, "within_limits": kept, **results}


def main(arguments: list[str] | None = None) -> dict[str, object]:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="10 M rows (the default)")
    size.add_argument("--full", action="store_true", help="100 M rows")
    size.add_argument("--rows", type=int)
    parser.add_argument("--work", type=Path, help="folder for the tables; 100 M rows take about 15 GB")
    parser.add_argument("--job", choices=JOBS, help=argparse.SUPPRESS)
    parser.add_argument("--table", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.job:
        from driftline.engine.memory import peak_memory_mb

        values = JOBS[options.job](options.table, options.work)
        values["peak_gb"] = peak_memory_mb() / 1024
        print(json.dumps(values))
        return values
    num_rows = options.rows or SIZES["full" if options.full else "quick"]
    with tempfile.TemporaryDirectory(dir=options.work) as work:
        results = run(num_rows, Path(work))
    print(json.dumps(results))
    return results


if __name__ == "__main__":
    sys.exit(0 if main().get("within_limits", True) else 1)
