"""Time and memory of a report over a long prediction log, against the limits of 60 s and 2 GB for 39 M rows.

`--quick` (1 M rows) checks that the benchmark works; `--full` makes a log of 39 M predictions, 712 classes and 609 K steps as the
engine writes it. The report runs in a process of its own, whose peak memory is what counts. The reference in the same run is a
plain read of the columns that a report needs.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from driftline.config import RunConfig
from driftline.metrics.albums import is_test_point, scored_mask
from driftline.report.run_files import LOG_COLUMNS
from driftline.types import PREDICTION

FULL_ROWS, QUICK_ROWS = 39_000_000, 1_000_000
NUM_CLASSES = 712
ROWS_A_PART = 1 << 20
LIMIT_SECONDS, LIMIT_MB, LIMIT_PAGE_MB = 60.0, 2048.0, 5.0

REPORT = """
import sys, time
from pathlib import Path
start = time.perf_counter()
from driftline.engine.memory import peak_memory_mb
from driftline.report import write_report
write_report([Path(sys.argv[1])], Path(sys.argv[2]))
print(time.perf_counter() - start, peak_memory_mb())
"""


def generator() -> Any:
    """The maker of synthetic runs that the tests use."""
    path = Path(__file__).resolve().parent.parent / "tests" / "report" / "make_runs.py"
    spec = importlib.util.spec_from_file_location("make_runs", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["make_runs"] = module
    spec.loader.exec_module(module)
    return module


def write_log(made: Any, path: Path, num_rows: int, config: RunConfig) -> list[np.ndarray]:
    """The log part by part, as the engine converts it; returns the last row of every step."""
    ends, writer = [], None
    for first in range(0, num_rows, ROWS_A_PART):
        num = min(ROWS_A_PART, num_rows - first)
        rows = made.predictions(num, NUM_CLASSES, config.batch_size, made.Skill(), first, num_rows)
        mark_scored(rows, config)
        last = np.flatnonzero(np.diff(rows["step"], append=-1))
        ends.append(rows[last])
        table = to_table(rows)
        writer = writer or pq.ParquetWriter(path, table.schema, compression="zstd", compression_level=1)
        writer.write_table(table)
    if writer is not None:
        writer.close()
    return ends


def mark_scored(rows: np.ndarray, config: RunConfig) -> None:
    """The album scoring; parts begin at a step, and each is scored as if the step before belonged to nobody."""
    for start in range(0, len(rows), config.batch_size):
        step = int(rows["step"][start])
        if is_test_point(step, config.batch_size, config.test_every):
            batch = slice(start, start + config.batch_size)
            rows["scored"][batch] = scored_mask(rows["user"][batch], None, True)


def to_table(rows: np.ndarray) -> pa.Table:
    offsets = np.arange(0, 5 * len(rows) + 1, 5, dtype=np.int32)
    columns: dict[str, pa.Array] = {}
    for name in PREDICTION.names or ():
        values = np.ascontiguousarray(rows[name])
        columns[name] = (
            pa.ListArray.from_arrays(offsets, values.reshape(-1)) if name == "top5" else pa.array(values)
        )
    return pa.table(columns)


def make_long_run(path: Path, num_rows: int) -> None:
    made = generator()
    config = RunConfig(stream="world:39000000", schedule="polrs", adaptive_buffer=True)
    made.make_run(path, config, num=5000, num_classes=NUM_CLASSES)
    ends = np.concatenate(write_log(made, path / "predictions.parquet", num_rows, config))
    curves = made.curves(ends, config)
    pq.write_table(
        pa.table({n: np.ascontiguousarray(curves[n]) for n in curves.dtype.names}), path / "curves.parquet"
    )


def plain_read(path: Path) -> float:
    """Seconds to read the needed columns once and do nothing with them."""
    start = time.perf_counter()
    for _ in pq.ParquetFile(path).iter_batches(batch_size=ROWS_A_PART, columns=list(LOG_COLUMNS)):
        pass
    return time.perf_counter() - start


def measure(num_rows: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        run, page = Path(folder) / "long", Path(folder) / "page.html"
        make_long_run(run, num_rows)
        read_s = plain_read(run / "predictions.parquet")
        done = subprocess.run(
            [sys.executable, "-c", REPORT, str(run), str(page)], check=True, capture_output=True, text=True
        )
        seconds, peak_mb = (float(x) for x in done.stdout.split())
        page_mb = page.stat().st_size / 1e6
        log_mb = (run / "predictions.parquet").stat().st_size / 1e6
    return {
        "rows": num_rows,
        "log_mb": round(log_mb, 1),
        "seconds": round(seconds, 2),
        "seconds_over_limit": round(seconds / LIMIT_SECONDS, 3),
        "seconds_over_plain_read": round(seconds / read_s, 2),
        "peak_mb": round(peak_mb, 1),
        "memory_over_limit": round(peak_mb / LIMIT_MB, 3),
        "page_mb": round(page_mb, 2),
        "page_over_limit": round(page_mb / LIMIT_PAGE_MB, 3),
    }


def main() -> dict[str, float]:
    parser = argparse.ArgumentParser(description=__doc__)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="1 M rows (default)")
    size.add_argument("--full", action="store_true", help="39 M rows; writes a log of about 1 GB")
    flags = parser.parse_args()
    result = measure(FULL_ROWS if flags.full else QUICK_ROWS)
    print(json.dumps(result, indent=2))
    return result


if __name__ == "__main__":
    main()
