"""What the classes are, and which of them a row belongs to: S2 cells made from the first rows, or the labels of the table.

Ordered rows flow in; `Classes` flows out, which turns frames into class numbers and is saved as JSON between two runs of a build.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from driftline.geo import s2
from driftline.geo.partition import Partition, build_partition
from driftline.streams.building.build_config import BuildConfig
from driftline.streams.building.ordered import OrderedRows
from driftline.types import ClassTable, DriftlineError, LabelArray


@dataclass(frozen=True)
class Classes:
    """Either cells, or names of labels in the order of their numbers."""

    partition: Partition | None = None
    names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.names) if self.partition is None else len(self.partition)

    def label(self, rows: pl.DataFrame) -> LabelArray:
        """Class numbers of rows; -1 for a row in no class.

        >>> Classes(names=("cat", "dog")).label(pl.DataFrame({"label": ["dog", "owl"]})).tolist()
        [1, -1]
        """
        if self.partition is not None:
            return self.partition.label(rows["lat"].to_numpy(), rows["lon"].to_numpy())
        numbers = pl.Series(np.arange(len(self.names), dtype=np.int32))
        found = rows["label"].replace_strict(
            pl.Series(self.names), numbers, default=-1, return_dtype=pl.Int32
        )
        return found.to_numpy()

    def table(self) -> ClassTable:
        """The classes as the stream records them; a cell's name is its token.

        >>> Classes(names=("cat", "dog")).table().names
        ('cat', 'dog')
        """
        if self.partition is None:
            return ClassTable(self.names)
        lat, lon = self.partition.centres()
        return ClassTable(tuple(s2.tokens(self.partition.cells)), lat, lon, self.partition.cells)

    def to_json(self) -> dict[str, Any]:
        """Values that `from_json` takes back."""
        if self.partition is None:
            return {"names": list(self.names)}
        return {"cells": [int(c) for c in self.partition.cells], "counts": self.partition.counts.tolist()}


def from_json(values: dict[str, Any]) -> Classes:
    """The classes that were saved.

    >>> from_json(Classes(names=("cat",)).to_json())
    Classes(partition=None, names=('cat',))
    """
    if "names" in values:
        return Classes(names=tuple(values["names"]))
    return Classes(Partition(np.array(values["cells"], np.uint64), np.array(values["counts"], np.int64)))


def cells_of_first_rows(rows: OrderedRows, num_preprocessing: int, config: BuildConfig) -> Classes:
    """The adaptive partition made from the first rows of the order."""
    leaves: list[s2.CellArray] = []
    left = num_preprocessing
    for frame in rows:
        first = frame.head(left)
        leaves.append(s2.cell_ids(first["lat"].to_numpy(), first["lon"].to_numpy()))
        left -= first.height
        if left <= 0:
            break
    partition = build_partition(
        np.concatenate(leaves) if leaves else np.empty(0, np.uint64),
        min_per_class=config.least_per_cell,
        max_per_class=config.most_per_cell,
        max_level=s2.MAX_LEVEL if config.max_level is None else config.max_level,
    )
    if len(partition) < 2:
        raise DriftlineError(
            f"{len(partition)} class{'es' if not len(partition) else ''} from the first {num_preprocessing:,} rows, with "
            f"{config.least_per_cell} to {config.most_per_cell:,} rows a class: a stream needs two at least; lower "
            "--min-per-class and --max-per-class, or raise --preprocess"
        )
    return Classes(partition)


def classes_of_labels(labels: Iterable[str], rows: OrderedRows, config: BuildConfig) -> Classes:
    """The distinct labels of the whole table: in numerical order when all are whole numbers, else in the order of text."""
    names = set(labels)
    if config.min_per_class is not None and config.min_per_class > 1:
        counts: Counter[str] = Counter()
        for frame in rows:
            counts.update(dict(frame["label"].value_counts().iter_rows()))
        names = {name for name in names if counts[name] >= config.min_per_class}
    if len(names) < 2:
        raise DriftlineError(
            f"{len(names)} class{'' if len(names) == 1 else 'es'} ({', '.join(sorted(names)) or 'no label'}): a stream needs "
            "two at least; name the right column with --label-column, or lower --min-per-class"
        )
    return Classes(names=tuple(in_order(names)))


def in_order(names: Iterable[str]) -> list[str]:
    """Labels in the order of their class numbers.

    >>> in_order({"10", "9"}), in_order({"b", "10", "9"})
    (['9', '10'], ['10', '9', 'b'])
    """
    texts = sorted(names)
    if all(text.removeprefix("-").isdecimal() and text.isascii() for text in texts):
        texts.sort(key=int)
    return texts
