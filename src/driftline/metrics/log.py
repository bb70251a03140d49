"""The prediction log as columns in memory, read from a run's files or made from arrays.

In comes `predictions.parquet`, or `predictions.bin` of a run that still goes on; out comes a `PredictionLog`, which every
other metric takes. Columns are read one at a time, so that reading costs little more memory than the result.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from driftline.types import PREDICTION, TOP, BoolArray, DriftlineError, IntArray, LabelArray

CORE = ("position", "time", "user", "label", "pred", "step", "scored")
"""Columns that every log has."""
EXTRA = ("top5", "prob", "loglik", "member")
"""Columns that are read only when asked for."""
_RECORDS_A_READ = 1 << 18
_DTYPES: dict[str, pl.DataType] = {
    "position": pl.Int64(),
    "time": pl.Int64(),
    "user": pl.Int64(),
    "label": pl.Int32(),
    "pred": pl.Int32(),
    "step": pl.Int64(),
    "scored": pl.Boolean(),
    "top5": pl.Array(pl.Int32, TOP),
    "prob": pl.Float32(),
    "loglik": pl.Float32(),
    "member": pl.Int8(),
}


@dataclass(frozen=True, eq=False)
class PredictionLog:
    """One entry a prediction, in the order of the stream; `top5` is n x 5. Columns that were not read are None.

    >>> row = np.arange(2)
    >>> log = PredictionLog(row, row, row, label=np.array([3, 4]), pred=np.array([3, 5]), step=row, scored=row == 0)
    >>> len(log), log.correct.tolist()
    (2, [True, False])
    """

    position: IntArray
    time: IntArray
    user: IntArray
    label: LabelArray
    pred: LabelArray
    step: IntArray
    scored: BoolArray
    top5: NDArray[np.int32] | None = None
    prob: NDArray[np.float32] | None = None
    loglik: NDArray[np.float32] | None = None
    member: NDArray[np.int8] | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            column = getattr(self, field.name)
            if column is not None and len(column) != len(self.label):
                raise DriftlineError(
                    f"column {field.name} has {len(column)} entries and label has {len(self.label)}: "
                    "all columns of a log are of one length"
                )
        backwards = self.step[1:] < self.step[:-1]
        if backwards.any():
            row = int(backwards.argmax()) + 1
            raise DriftlineError(
                f"step falls from {self.step[row - 1]} to {self.step[row]} at row {row}: sort the log by step and position"
            )

    def __len__(self) -> int:
        return len(self.label)

    @property
    def correct(self) -> BoolArray:
        """Where the prediction was the label."""
        return np.equal(self.label, self.pred)

    def with_pred(self, pred: LabelArray) -> PredictionLog:
        """The same samples, predicted by somebody else (the blind classifier, say)."""
        return replace(self, pred=pred, top5=None, prob=None, loglik=None, member=None)

    def take(self, rows: IntArray) -> PredictionLog:
        """The log of these rows alone, which must rise."""
        columns: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        for name, column in columns.items():
            columns[name] = None if column is None else column[rows]
        return PredictionLog(**columns)

    @classmethod
    def read(cls, path: str | Path, columns: Collection[str] = ()) -> PredictionLog:
        """The log of a run directory or of a log file, with these columns beyond the core ones."""
        unknown = sorted(set(columns) - {*CORE, *EXTRA})
        if unknown:
            raise DriftlineError(
                f"no column {unknown[0]!r} in a prediction log; choose from {', '.join(EXTRA)}"
            )
        file = _log_file(Path(path))
        names = [*CORE, *(name for name in EXTRA if name in columns)]
        arrays = _read_records(file, names) if file.suffix == ".bin" else _read_parquet(file, names)
        try:
            return cls(**arrays)
        except DriftlineError as error:
            raise DriftlineError(f"{file} is damaged: {error}") from None


def _log_file(path: Path) -> Path:
    """The file to read: the finished log of a run directory, or else the one still being written."""
    if path.is_dir():
        for name in ("predictions.parquet", "predictions.bin"):
            if (path / name).is_file():
                return path / name
        raise DriftlineError(f"{path} holds no predictions.parquet: give the directory of a run (its --out)")
    if not path.is_file():
        raise DriftlineError(
            f"{path} does not exist: give the directory of a run (its --out) or its predictions.parquet"
        )
    return path


def _read_parquet(file: Path, names: list[str]) -> dict[str, NDArray[Any]]:
    try:
        present = pl.read_parquet_schema(file)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise _damaged(file, error) from None
    for name in names:
        if name not in present:
            raise DriftlineError(
                f"{file} has no column {name!r} (it has {', '.join(present)}): "
                "rename or add the column; docs/metrics.md lists them"
            )
    return {name: _read_column(file, name) for name in names}


def _read_column(file: Path, name: str) -> NDArray[Any]:
    """One column as a contiguous array in the type the log declares."""
    try:
        column = pl.read_parquet(file, columns=[name])[name]
    except (pl.exceptions.PolarsError, OSError) as error:
        raise _damaged(file, error) from None
    if column.null_count():
        raise DriftlineError(
            f"{file}: column {name} has {column.null_count()} missing values; drop those rows"
        )
    wanted = _DTYPES[name]
    try:
        if column.dtype.is_float() and not wanted.is_float():
            raise pl.exceptions.InvalidOperationError(f"{column.dtype} is no integer type")
        return column.cast(wanted).to_numpy()
    except pl.exceptions.PolarsError as error:
        raise DriftlineError(
            f"{file}: column {name} cannot be turned into {wanted}: {_first_line(error)}"
        ) from None


def _read_records(file: Path, names: list[str]) -> dict[str, NDArray[Any]]:
    """Columns of a log that is still being written; a record cut off at the end is left out."""
    num_records = file.stat().st_size // PREDICTION.itemsize
    arrays = {name: np.empty((num_records, *PREDICTION[name].shape), PREDICTION[name].base) for name in names}
    with file.open("rb") as stream:
        for start in range(0, num_records, _RECORDS_A_READ):
            block = np.fromfile(stream, PREDICTION, count=min(_RECORDS_A_READ, num_records - start))
            if len(block) < min(_RECORDS_A_READ, num_records - start):
                raise DriftlineError(f"{file} became shorter while it was read: read it again")
            for name in names:
                arrays[name][start : start + len(block)] = block[name]
    return arrays


def _damaged(file: Path, error: Exception) -> DriftlineError:
    return DriftlineError(
        f"{file} cannot be read as a prediction log ({_first_line(error)}): "
        "copy it again from where it was made, or repeat the run"
    )


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
