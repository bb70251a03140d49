"""All metrics over a log of 1 M or 39 M predictions: seconds and peak memory against their limits.

A log with CLOC's proportions (712 classes, albums of 1.16 images, ten years, B = 256) is written as `predictions.parquet` in
one process. Another, held to one thread, reads it and works out everything the summary and the page need. A third is the plain
reference: polars scans the same columns once, for the plain share of correct predictions.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from driftline.engine.memory import peak_memory_mb
from driftline.geo.distance import great_circle_km
from driftline.metrics.albums import rescore
from driftline.metrics.blind import blind_predictions, blind_sweep, majority_predictions
from driftline.metrics.geolocation import error_cdf, median_km, share_under
from driftline.metrics.log import PredictionLog
from driftline.metrics.online import (
    SCORINGS,
    OnlineCurve,
    accuracy_by_month,
    accuracy_by_year,
    online_accuracy,
    online_curve,
)
from driftline.metrics.summary import summarise_transfer

NUM_CLASSES = 712
BATCH_SIZE = 256
TEST_EVERY = 256
FIRST_S, LAST_S = 1_072_915_200, 1_420_070_400
LIMIT_S = 30.0
LIMIT_GB = 4.0
ROWS_A_BLOCK = 1 << 20
T = TypeVar("T")


def main(argv: list[str] | None = None) -> dict[str, float]:
    parser = argparse.ArgumentParser(description=__doc__)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="1 M predictions (default)")
    size.add_argument("--full", action="store_true", help="39 M predictions, the length of CLOC")
    size.add_argument("--rows", type=int, help="any other number of predictions")
    parser.add_argument("--measure", choices=["all", "scan"], help=argparse.SUPPRESS)
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.measure:
        print(json.dumps(measure_all(options.run) if options.measure == "all" else measure_scan(options.run)))
        return {}
    num_rows = options.rows or (39_000_000 if options.full else 1_000_000)
    with tempfile.TemporaryDirectory(prefix="driftline-metrics-") as folder:
        run = Path(folder)
        write_run(run, num_rows)
        scan, found = in_process("scan", run), in_process("all", run)
    result = {
        "rows": float(num_rows),
        "seconds": found["seconds"],
        "seconds_over_limit": found["seconds"] / LIMIT_S,
        "cpu_seconds": found["cpu_seconds"],
        "peak_gb": found["peak_gb"],
        "peak_over_limit": found["peak_gb"] / LIMIT_GB,
        "scan_seconds": scan["seconds"],
        "seconds_over_scan": found["seconds"] / scan["seconds"],
    }
    show(result, found)
    return result


def in_process(measure: str, run: Path) -> dict[str, float]:
    """One measurement in a process of its own, so that peak memory is its own, and on one thread."""
    one_thread = {"POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--measure", measure, "--run", str(run)]
    done = subprocess.run(command, env=os.environ | one_thread, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def measure_all(run: Path) -> dict[str, float]:
    """Seconds of each part, their sum, and the peak memory of all of it."""
    seconds: dict[str, float] = {}

    def timed(name: str, work: Callable[[], T]) -> T:
        begin = time.perf_counter()
        result = work()
        seconds[name] = time.perf_counter() - begin
        return result

    log = timed("read", lambda: PredictionLog.read(run))
    log = timed("rescore", lambda: rescore(log, BATCH_SIZE, TEST_EVERY))
    timed("online", lambda: scores(log))
    timed("calendar", lambda: (accuracy_by_month(log), accuracy_by_year(log)))
    best_k = timed("blind sweep", lambda: blind_sweep(log)).best_k
    timed("blind", lambda: scores(log.with_pred(blind_predictions(log.label, best_k))))
    timed("majority", lambda: scores(log.with_pred(majority_predictions(log.label))))
    distance_km = timed("distances", lambda: distances(log))
    timed("geolocation", lambda: (error_cdf(distance_km), share_under(distance_km), median_km(distance_km)))
    transfer = timed("read transfer", lambda: pl.read_parquet(run / "transfer.parquet"))
    thirds = {
        name: FIRST_S + part * (LAST_S - FIRST_S) // 3 for part, name in enumerate(["H/3", "2H/3", "H"], 1)
    }
    timed("transfer", lambda: summarise_transfer(transfer, thirds))
    peak_gb = peak_memory_mb() * 2**20 / 1e9
    whole = {"seconds": sum(seconds.values()), "cpu_seconds": time.process_time(), "peak_gb": peak_gb}
    return seconds | whole | {"best_k": float(best_k)}


def scores(log: PredictionLog) -> list[tuple[float, OnlineCurve]]:
    return [(online_accuracy(log, scoring), online_curve(log, scoring)) for scoring in SCORINGS]


def distances(log: PredictionLog) -> np.ndarray:
    """Kilometres from each photo to the centre of the predicted class, with places made up as we go."""
    rng = np.random.default_rng(1)
    lat, lon = rng.uniform(-60, 70, NUM_CLASSES), rng.uniform(-180, 180, NUM_CLASSES)
    distance_km = np.empty(len(log), np.float32)
    for start in range(0, len(log), ROWS_A_BLOCK):
        block = slice(start, start + ROWS_A_BLOCK)
        label, pred = log.label[block], log.pred[block]
        near = log.time[block] % 997 / 997  # up to a degree from the class centre
        distance_km[block] = great_circle_km(lat[label] + near, lon[label] - near, lat[pred], lon[pred])
    return distance_km


def measure_scan(run: Path) -> dict[str, float]:
    """The least that anybody must do: read the columns once, for the plain share of correct predictions."""
    file = run / "predictions.parquet"
    begin = time.perf_counter()
    columns = pl.scan_parquet(file).select(
        (pl.col("label") == pl.col("pred")).mean(),
        *(pl.col(name).max().alias(name) for name in ("position", "time", "user", "step")),
        pl.col("scored").sum().alias("num_scored"),
    )
    columns.collect()
    return {"seconds": time.perf_counter() - begin}


def write_run(run: Path, num_rows: int) -> None:
    """predictions.parquet in blocks, so that any length can be made, and transfer.parquet with 1 % of it, three times."""
    rng = np.random.default_rng(0)
    weights = 1 / np.arange(1, NUM_CLASSES + 1)
    cumulative = np.cumsum(weights / weights.sum())
    writer = None
    for start in range(0, num_rows, ROWS_A_BLOCK):
        table = block_of_log(rng, cumulative, start, min(ROWS_A_BLOCK, num_rows - start), num_rows)
        writer = writer or pq.ParquetWriter(run / "predictions.parquet", table.schema, compression="zstd")
        writer.write_table(table)
    assert writer is not None
    writer.close()
    num_validation = max(num_rows // 100, 1)
    time_s = np.sort(rng.integers(FIRST_S, LAST_S, num_validation))
    label = draw_classes(rng, cumulative, num_validation)
    frames = []
    for name in ("H/3", "2H/3", "H"):
        pred = np.where(
            rng.random(num_validation) < 0.2, label, draw_classes(rng, cumulative, num_validation)
        )
        frames.append(
            pl.DataFrame(
                {"checkpoint": [name] * num_validation, "time": time_s, "label": label, "pred": pred}
            )
        )
    pl.concat(frames).write_parquet(run / "transfer.parquet")


def block_of_log(
    rng: np.random.Generator, cumulative: np.ndarray, start: int, num: int, num_rows: int
) -> pa.Table:
    """Users in albums of 1.16 images, each album of one class; one prediction in five is right."""
    position = np.arange(start, start + num)
    new_album = rng.random(num) < 1 / 1.157
    album = np.cumsum(new_album)
    user = rng.integers(0, 1 << 20, album[-1] + 1)[album]
    label = draw_classes(rng, cumulative, int(album[-1]) + 1)[album]
    # Neighbours in time often share a class: this is what the blind classifier lives on.
    sticky = rng.random(num) < 0.15
    sticky[:32] = False
    label[sticky] = label[np.flatnonzero(sticky) - rng.integers(1, 16, int(sticky.sum()))]
    pred = np.where(rng.random(num) < 0.2, label, draw_classes(rng, cumulative, num))
    top5 = np.stack([pred, *((pred + i) % NUM_CLASSES for i in range(1, 5))], axis=1).astype(np.int32)
    span_s = LAST_S - FIRST_S
    return pa.table(
        {
            "position": position,
            "time": FIRST_S + (position * (span_s / num_rows)).astype(np.int64),
            "user": user,
            "label": label,
            "pred": pred,
            "top5": pa.FixedSizeListArray.from_arrays(top5.ravel(), 5).cast(pa.list_(pa.int32())),
            "prob": rng.random(num, np.float32),
            "loglik": -rng.random(num, np.float32),
            "member": np.zeros(num, np.int8),
            "step": position // BATCH_SIZE,
            "scored": np.zeros(num, bool),
        }
    )


def draw_classes(rng: np.random.Generator, cumulative: np.ndarray, num: int) -> np.ndarray:
    return np.minimum(np.searchsorted(cumulative, rng.random(num)), NUM_CLASSES - 1).astype(np.int32)


def show(result: dict[str, float], parts: dict[str, float]) -> None:
    print(f"all metrics over {result['rows']:,.0f} predictions, one thread")
    for name, seconds in parts.items():
        if name not in ("seconds", "cpu_seconds", "peak_gb", "best_k"):
            print(f"  {name:<16} {seconds:8.2f} s")
    rows = [
        ("all", "seconds", "s", f"{result['seconds_over_limit']:.2f} of the limit ({LIMIT_S:g} s)"),
        (
            "of it on the CPU",
            "cpu_seconds",
            "s",
            "start-up included; less than all of it when others use the machine",
        ),
        ("peak memory", "peak_gb", "GB", f"{result['peak_over_limit']:.2f} of the limit ({LIMIT_GB:g} GB)"),
        (
            "plain scan",
            "scan_seconds",
            "s",
            f"all metrics take {result['seconds_over_scan']:.1f} times as long",
        ),
    ]
    for name, key, unit, remark in rows:
        print(f"  {name:<16} {result[key]:8.2f} {unit:<2}  {remark}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
