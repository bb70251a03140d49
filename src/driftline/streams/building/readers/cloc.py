"""The authors' CLOC release: a stream that is split and labelled already, as torch files, a CSV file and a list of cells.

A directory flows in; the two tables of `tables` flow out with the original labels in the original order, and the classes. Torch files
are read with `weights_only=True` and the cells with `allow_pickle=False`: nothing in them can run.

Files: `train_labels`, `train_time`, `train_userID` (or `train_user`), `train_store_loc` with the ending `.torchSave`; the validation set
as `*_val.csv` without a header (label first, time third, user fourth, path last) or as `cross_val_*.torchSave`; `cellID_*.npy`.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from driftline.geo import s2
from driftline.streams.building.metadata import Rules, clean
from driftline.streams.building.readers.files import line_blocks
from driftline.streams.store.untrusted import load_array, load_torch
from driftline.types import ClassTable, DriftlineError

ROWS_PER_FRAME = 1 << 20
ENDING = ".torchSave"
USER_NAMES = ("userID", "user")
RULES = Rules(needs_label=True, needs_image=True, has_image=True, given_order=True)


@dataclass(frozen=True)
class Release:
    """The files of a release, found and named."""

    folder: Path
    train: dict[str, Path]
    """labels, time, user, store_loc."""
    validation: dict[str, Path] | Path | None
    """The same four, or the CSV file, or nothing."""
    cells: Path | None

    def identity(self) -> str:
        """Changes when one of the files may have changed."""
        others = [
            *(self.validation.values() if isinstance(self.validation, dict) else [self.validation]),
            self.cells,
        ]
        states = [
            f"{path.name}:{path.stat().st_size}:{path.stat().st_mtime_ns}"
            for path in [*self.train.values(), *others]
            if path is not None
        ]
        return hashlib.sha256("\n".join([str(self.folder.resolve()), *states]).encode()).hexdigest()


def is_release(path: Path) -> bool:
    """Whether a directory holds the authors' files."""
    return path.is_dir() and (path / f"train_labels{ENDING}").exists()


def find_release(folder: Path) -> Release:
    """The files of a release in a directory."""
    if not folder.is_dir():
        raise DriftlineError(f"{folder} is no directory; give the one with train_labels{ENDING}")
    train = _four(folder, "train_")
    if isinstance(train, str):
        raise DriftlineError(f"{folder}: {train} is missing; the release has {', '.join(_names('train_'))}")
    held_out = _four(folder, "cross_val_")
    tables = sorted(folder.glob("*val*.csv"))
    if len(tables) > 1:
        raise DriftlineError(
            f"{folder}: several validation files ({', '.join(p.name for p in tables)}); keep one"
        )
    cells = sorted(folder.glob("cellID*.npy"))
    if len(cells) > 1:
        raise DriftlineError(
            f"{folder}: several lists of cells ({', '.join(p.name for p in cells)}); keep one"
        )
    validation = tables[0] if tables else (None if isinstance(held_out, str) else held_out)
    return Release(folder, train, validation, cells[0] if cells else None)


def _names(prefix: str) -> list[str]:
    return [f"{prefix}{name}{ENDING}" for name in ("labels", "time", USER_NAMES[0], "store_loc")]


def _four(folder: Path, prefix: str) -> dict[str, Path] | str:
    """The four files of a set, or the name of one that is missing."""
    found: dict[str, Path] = {}
    for key, names in [
        ("labels", ("labels",)),
        ("time", ("time",)),
        ("user", USER_NAMES),
        ("image", ("store_loc",)),
    ]:
        paths = [folder / f"{prefix}{name}{ENDING}" for name in names]
        existing = [path for path in paths if path.exists()]
        if not existing:
            return paths[0].name
        found[key] = existing[0]
    return found


def release_classes(release: Release, num_labels: int) -> ClassTable:
    """The cells of the release, in the order of its labels; without a list of cells the labels name themselves."""
    if release.cells is None:
        return ClassTable(tuple(str(k) for k in range(num_labels)))
    cells = _read_cells(release.cells)
    if len(cells) < num_labels:
        raise DriftlineError(
            f"{release.cells.name} lists {len(cells)} cells, but there is a label {num_labels - 1}; "
            "these files are not of one release"
        )
    lat, lon = s2.centres(cells)
    return ClassTable(tuple(s2.tokens(cells)), lat, lon, cells)


def _read_cells(path: Path) -> s2.CellArray:
    """Cell ids as numbers, or as text: decimal ids or tokens."""
    try:
        values = load_array(path).reshape(-1)
    except DriftlineError as error:
        raise DriftlineError(f"{error}; save the cells again with numpy.save") from None
    if values.dtype.kind in "US":
        texts = _texts(values, path)
        is_decimal = all(text.isdecimal() and len(text) > 16 for text in texts)
        return np.array([int(t) for t in texts], np.uint64) if is_decimal else s2.from_tokens(texts)
    if values.dtype.kind not in "iu":
        raise DriftlineError(
            f"{path}: cells of type {values.dtype}; an S2 cell id is a whole number of 64 bits"
        )
    cells: s2.CellArray = values.astype(
        np.uint64
    )  # signed ids wrap round to the unsigned ones they stand for
    if not s2.is_cell(cells).all():
        raise DriftlineError(f"{path}: {int(cells[~s2.is_cell(cells)][0]):#x} is no S2 cell id")
    return cells


def _texts(values: NDArray[Any], path: Path) -> list[str]:
    try:
        # Any number may stand where a character should: encoding finds those that are none.
        return [(v if isinstance(v, bytes) else str(v).encode()).decode() for v in values]
    except (UnicodeError, ValueError, SystemError):
        raise DriftlineError(f"{path} holds damaged text; save the cells again with numpy.save") from None


def release_size(release: Release) -> tuple[int, int, int]:
    """Rows of the stream, rows of the validation set, and number of classes; only labels are read."""
    labels = _series(release.train["labels"]).cast(pl.Int64, strict=False)
    held_out = 0
    if isinstance(release.validation, Path):
        held_out = sum(block.count("\n") for block in line_blocks(release.validation))
    elif release.validation is not None:
        held_out = len(_series(release.validation["labels"]))
    highest = labels.max()
    return (
        len(labels),
        held_out,
        len(release_classes(release, highest + 1 if isinstance(highest, int) else 0)),
    )


def read_train(release: Release) -> pl.DataFrame:
    """The stream's rows as they are in the files."""
    return _read_four(release.train)


def read_validation(release: Release) -> pl.DataFrame:
    """The validation set's rows as they are in the files; none when the release has none."""
    if release.validation is None:
        return pl.DataFrame(schema=dict.fromkeys(["label", "time", "user", "image"], pl.String))
    if isinstance(release.validation, dict):
        return _read_four(release.validation)
    return pl.concat(_csv_frames(release.validation), how="vertical")


def _csv_frames(path: Path) -> Iterator[pl.DataFrame]:
    """Lines without a header: label, ..., time, user, ..., path. A line with fewer than five columns is broken."""
    for block in line_blocks(path):
        lines = pl.Series("line", [block]).str.split("\n").explode().str.strip_chars_end("\r")
        fields = lines.filter(lines != "").str.split(",")
        whole = fields.list.len() >= 5
        places = {"label": 0, "time": 2, "user": 3, "image": -1}
        columns = {name: fields.list.get(place, null_on_oob=True) for name, place in places.items()}
        yield pl.DataFrame({**columns, "broken": ~whole})


def _read_four(paths: dict[str, Path]) -> pl.DataFrame:
    # The paths come first: as Python text they take the most memory, which is free again when the others are read.
    columns = {name: _series(paths[key]) for name, key in [("image", "image"), ("user", "user")]}
    columns |= {"label": _series(paths["labels"]), "time": _series(paths["time"])}
    lengths = {
        paths["labels" if name == "label" else name].name: len(values) for name, values in columns.items()
    }
    if len(set(lengths.values())) > 1:
        raise DriftlineError(
            f"{paths['labels'].parent}: files of different lengths {lengths}; fetch the release again"
        )
    return pl.DataFrame(columns)


def _series(path: Path) -> pl.Series:
    """A torch file as a column: a tensor, or a list of numbers or texts."""
    import torch  # takes seconds to import, and no other build needs it

    values = load_torch(path)
    if isinstance(values, torch.Tensor):
        return pl.Series(values.reshape(-1).numpy())
    if not isinstance(values, list | tuple):
        raise DriftlineError(f"{path} holds a {type(values).__name__}; a list or a tensor was expected")
    try:
        return pl.Series(list(values), strict=True)
    except TypeError:
        return pl.Series([str(value) for value in values])


def cleaned(raw: pl.DataFrame) -> tuple[pl.DataFrame, Counter[str]]:
    """Good rows in the given order, or by time where that order runs backwards, and the count of each reason.

    The label of a good row is a whole number, not negative; its path is its id.
    """
    frame = raw.with_columns(pl.col("image").cast(pl.String).str.strip_chars().alias("image"))
    frame = frame.with_columns(pl.col("image").alias("id"))
    refused: Counter[str] = Counter()
    kept = []
    for start in range(0, max(frame.height, 1), ROWS_PER_FRAME):
        part = clean(frame.slice(start, ROWS_PER_FRAME), RULES, first_row=start)
        refused.update(part.refused)
        rows = part.rows.with_columns(pl.col("label").cast(pl.Int32, strict=False))
        good = rows.filter(pl.col("label") >= 0)
        refused["no_class"] += rows.height - good.height
        kept.append(good)
    rows = pl.concat(kept)
    return (rows if rows["time"].is_sorted() else rows.sort("time", maintain_order=True)), refused
