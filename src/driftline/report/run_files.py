"""The files of one run, opened and checked; what is missing or damaged is said before anything is drawn.

In: a run directory, finished or still growing. Out: a RunFiles, which reads the log in blocks (never whole: a log may hold
tens of millions of rows) and the small files as frames.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from driftline.config import RunConfig, read_config
from driftline.types import PREDICTION, DriftlineError, curve_dtype
from driftline.version import FORMAT

ROWS_A_BLOCK = 1 << 20
LOG_COLUMNS = ("position", "time", "label", "pred", "step", "scored")
"""What a report needs of each prediction."""
CURVE_COLUMNS = (
    "step",
    "position",
    "time",
    "loss",
    "lr",
    "buffer_size",
    "acc_stream",
    "acc_replay",
    "member",
)
TRANSFER_COLUMNS = ("checkpoint", "time", "label", "pred")
CLASS_COLUMNS = ("label", "name", "cell", "lat", "lon")
ERROR_COLUMNS = ("distance_km", "share")
SAMPLE_COLUMNS = ("position", "time", "label", "pred", "image")

LogBlock = dict[str, NDArray[Any]]
"""Some consecutive rows of the log, one array a column of LOG_COLUMNS."""


@dataclass(frozen=True)
class RunFiles:
    """A run directory that can be reported."""

    path: Path
    config: RunConfig
    summary: dict[str, Any]
    """The figures of `summary.json`; empty while the run goes on."""

    @property
    def name(self) -> str:
        """Name of the directory."""
        return self.path.resolve().name

    @property
    def is_finished(self) -> bool:
        """Whether the run wrote its summary."""
        return bool(self.summary)

    @property
    def is_supervised(self) -> bool:
        """Whether this is the offline baseline, which predicts nothing online."""
        return self.config.learner == "supervised"

    def log_blocks(self, start: int = 0) -> Iterator[LogBlock]:
        """The prediction log from row `start` on, a block at a time."""
        finished = self.path / "predictions.parquet"
        if finished.exists():
            yield from _parquet_blocks(finished, start)
        elif (self.path / "predictions.bin").exists():
            yield from _record_blocks(self.path / "predictions.bin", start)

    def num_predictions(self) -> int:
        """Whole rows in the prediction log."""
        finished, growing = self.path / "predictions.parquet", self.path / "predictions.bin"
        if finished.exists():
            return int(_footer(finished).metadata.num_rows)
        return growing.stat().st_size // PREDICTION.itemsize if growing.exists() else 0

    def curves(self) -> pl.DataFrame:
        """One row a step."""
        finished = self.path / "curves.parquet"
        if finished.exists():
            return read_table(finished, CURVE_COLUMNS)
        growing = self.path / "curves.bin"
        rows = read_records(growing, curve_dtype(self.config.num_members)) if growing.exists() else None
        if rows is None:
            rows = np.zeros(0, curve_dtype(self.config.num_members))
        return pl.DataFrame({name: np.ascontiguousarray(rows[name]) for name in rows.dtype.names or ()})

    def table(self, stem: str, columns: tuple[str, ...]) -> pl.DataFrame | None:
        """A small table of the run, or None where the run has none."""
        path = self.path / f"{stem}.parquet"
        return read_table(path, columns) if path.exists() else None

    def listing(self) -> list[tuple[str, int]]:
        """Names and sizes (bytes) of the files in the run directory, checkpoints as one entry."""
        plain = [(p.name, p.stat().st_size) for p in sorted(self.path.iterdir()) if p.is_file()]
        kept = [p for p in (self.path / "checkpoints").rglob("*") if p.is_file()]
        return plain + (
            [(f"checkpoints/ ({len(kept)} files)", sum(p.stat().st_size for p in kept))] if kept else []
        )


def load_run(path: Path, *, allow_empty: bool = False) -> RunFiles:
    """Open a run directory and check that everything a report needs is there and whole.

    `allow_empty` accepts a run that has not made a step yet, for the live page.
    """
    path = Path(path)
    if not path.is_dir():
        raise DriftlineError(f"{path} is not a directory: give the directory that `driftline run --out` made")
    if not (path / "config.toml").is_file():
        raise DriftlineError(
            f"{path} is not a run: it has no config.toml; give the --out directory of `driftline run`"
        )
    run = RunFiles(path, read_config(path / "config.toml"), _read_summary(path / "summary.json"))
    if run.is_finished:
        _check_finished(run)
    if not allow_empty and not _has_steps(run):
        raise DriftlineError(
            f"{path} has no steps to report: let the run make some, or run it again with a longer --limit"
        )
    return run


def _read_summary(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DriftlineError(f"{path} is damaged ({error}): restore it, or run again") from None
    if not isinstance(summary, dict) or not summary:
        raise DriftlineError(f"{path} is damaged: it holds no figures; restore it, or run again")
    if summary.get("format") != FORMAT:
        raise DriftlineError(
            f"{path} has format {summary.get('format')!r}, this version of driftline reads {FORMAT}: "
            "report it with the version that made it, or run again"
        )
    return summary


def _check_finished(run: RunFiles) -> None:
    """A finished run has its log and its curves; a supervised one has no log but its validation predictions."""
    needed: dict[str, tuple[str, ...]] = {"curves": CURVE_COLUMNS}
    needed |= {"transfer": TRANSFER_COLUMNS} if run.is_supervised else {"predictions": LOG_COLUMNS}
    for stem, columns in needed.items():
        path = run.path / f"{stem}.parquet"
        if not path.exists():
            raise DriftlineError(
                f"{path} is missing: restore it, or run `driftline run --config {run.path}/config.toml` again"
            )
        _check_columns(path, _footer(path).schema_arrow.names, columns)


def _has_steps(run: RunFiles) -> bool:
    if run.is_supervised:
        return run.is_finished or len(run.curves()) > 0
    return run.num_predictions() > 0


def _footer(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except (OSError, pa.ArrowException) as error:
        raise _damaged(path, error) from None


def _damaged(path: Path, error: Exception) -> DriftlineError:
    return DriftlineError(f"{path} is damaged ({error}): restore it, or run again")


def _check_columns(path: Path, present: list[str], needed: tuple[str, ...]) -> None:
    missing = [c for c in needed if c not in present]
    if missing:
        raise DriftlineError(
            f"{path} has no column {missing[0]!r}: it was not written by this version of driftline"
        )


def read_table(path: Path, columns: tuple[str, ...]) -> pl.DataFrame:
    """A small Parquet table that has at least these columns."""
    try:
        frame = pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise _damaged(path, error) from None
    _check_columns(path, frame.columns, columns)
    return frame


def read_records(path: Path, dtype: np.dtype[np.void], start: int = 0) -> NDArray[np.void]:
    """The whole records of a growing file from number `start` on; a torn record at its end is left for later."""
    with path.open("rb") as file:
        file.seek(start * dtype.itemsize)
        data = file.read(_whole_bytes(file, dtype.itemsize))
    return np.frombuffer(data, dtype, count=len(data) // dtype.itemsize)


def _whole_bytes(file: io.BufferedReader, itemsize: int) -> int:
    here = file.tell()
    left = file.seek(0, io.SEEK_END) - here
    file.seek(here)
    return max(0, left // itemsize * itemsize)


def _record_blocks(path: Path, start: int) -> Iterator[LogBlock]:
    with path.open("rb") as file:
        file.seek(start * PREDICTION.itemsize)
        while data := file.read(
            min(ROWS_A_BLOCK * PREDICTION.itemsize, _whole_bytes(file, PREDICTION.itemsize))
        ):
            rows = np.frombuffer(data, PREDICTION, count=len(data) // PREDICTION.itemsize)
            yield {name: np.ascontiguousarray(rows[name]) for name in LOG_COLUMNS}


def _parquet_blocks(path: Path, start: int) -> Iterator[LogBlock]:
    file = _footer(path)
    _check_columns(path, file.schema_arrow.names, LOG_COLUMNS)
    row = 0
    try:
        for batch in file.iter_batches(batch_size=ROWS_A_BLOCK, columns=list(LOG_COLUMNS)):
            row += batch.num_rows
            if row > start:
                kept = batch.slice(max(0, start - (row - batch.num_rows)))
                yield {name: kept.column(name).to_numpy(zero_copy_only=False) for name in LOG_COLUMNS}
    except (OSError, pa.ArrowException) as error:
        raise _damaged(path, error) from None
