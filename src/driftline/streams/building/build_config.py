"""A build as a value: every setting of `driftline build`, checked when it is made.

The field names are the flags. Flow: flags -> BuildConfig -> `build.build`.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import Positional

from driftline.geo.s2 import MAX_LEVEL
from driftline.streams.building.readers.columns import ColumnChoice
from driftline.types import DriftlineError

PAPER_YEARS = "2004:2014"
PAPER_PREPROCESS = 0.05
PAPER_MIN_PER_CLASS = 50
PAPER_MAX_PER_CLASS = 10_000

NOT_IN_RESULT = frozenset({"out", "workers", "engine", "address", "dry_run"})
"""Settings that change how a build is carried out but never what it makes."""


@dataclass(frozen=True)
class BuildConfig:
    """Make a stream from a table of metadata: filter, order by time, split, make classes, store with the images.

    TABLE is one or more files (YFCC100M text, SQLite, Parquet, CSV, TSV), or world[:LENGTH[:SEED]] for the embedded one.
    """

    table: Annotated[tuple[str, ...], Positional]
    """Files of the table, or patterns in quotes; a directory for --format cloc."""
    out: Path
    """Directory of the stream; must be new, empty, or hold an unfinished build of the same stream."""
    images: str | None = None
    """Folder, tar files or Parquet file that the image column refers to; without it only the table is built."""
    format: Literal["auto", "yfcc", "cloc", "table"] = "auto"
    """yfcc: the YFCC100M table; cloc: the authors' release; table: named columns; auto: by the look of the file."""
    id_column: str | None = None
    """Column with an id for each row; rows with an id that was there before are dropped."""
    time_column: str | None = None
    """Column with date and time, or unix seconds. Without a zone it is taken as UTC."""
    user_column: str | None = None
    """Column with the user; without one every row counts as a user of its own."""
    label_column: str | None = None
    """Column with the class; then there is no partition into cells."""
    lat_column: str | None = None
    """Column with the latitude in degrees."""
    lon_column: str | None = None
    """Column with the longitude in degrees."""
    image_column: str | None = None
    """Column with the image's path below --images, or its address; or a pattern of columns: '{uid}/{photoid}.jpg'."""
    delimiter: str | None = None
    """What separates the columns of a text table; found by itself for tab, comma, semicolon and bar."""
    sql_table: str | None = None
    """Table to read in a SQLite file that has several."""
    order: Literal["time", "given"] = "time"
    """time: sort by time, user, id; given: keep the rows as they are."""
    years: str | None = None
    """Keep rows of these years only, as 2004:2014 or 2010; all: every year. Default: 2004:2014 for yfcc, else all."""
    preprocess: float | None = None
    """Share of the rows, the first ones, that make the cells and are no part of the stream. Default: 0.05, with labels 0."""
    validation: float | None = None
    """Share of the remaining rows that is held out. Default: 0.01, of a short embedded world more."""
    min_per_class: int | None = None
    """Classes with fewer rows are dropped. Default: 50 (cells, in the preprocessing set), with labels no limit."""
    max_per_class: int | None = None
    """Cells with more preprocessing rows are split into four. Default: 10000."""
    max_level: int | None = None
    """Level of the smallest cells. Default: 30, the smallest there are."""
    image_size: int = 256
    """Short side of the stored images, in pixels."""
    image_kind: Literal["jpeg", "raw"] = "jpeg"
    """jpeg, or raw: square pixels without compression, for small images."""
    rows_per_shard: int = 16_384
    """Images in one file of the store."""
    seed: int = 0
    """Seed of the choice of the validation set."""
    name: str | None = None
    """Name of the stream. Default: the name of the table's first file."""
    workers: int = 2
    """Files and images worked on at the same time; never changes the result."""
    engine: Literal["pool", "ray"] = "pool"
    """Where images are worked on: processes of this machine, or a Ray cluster (needs the ray extra)."""
    address: str | None = None
    """Address of the Ray cluster; default: one that is started on this machine."""
    dry_run: bool = False
    """Only say what would be built."""

    def __post_init__(self) -> None:
        for problem in self._problems():
            raise DriftlineError(problem)

    def _problems(self) -> list[str]:
        """Rules within and across fields; each message says what to do."""
        bad: list[str] = []

        def need(holds: bool, message: str) -> None:
            if not holds:
                bad.append(message)

        need(len(self.table) > 0, "no table: give at least one file")
        need(
            self.preprocess is None or 0 <= self.preprocess < 1,
            f"preprocess = {self.preprocess}: is a share, at least 0 and less than 1",
        )
        need(
            self.validation is None or 0 <= self.validation < 1,
            f"validation = {self.validation}: is a share, at least 0 and less than 1",
        )
        for name in ("rows_per_shard", "workers", "image_size"):
            need(getattr(self, name) >= 1, f"{name} = {getattr(self, name)}: must be at least 1")
        for name in ("min_per_class", "max_per_class"):
            value = getattr(self, name)
            need(value is None or value >= 1, f"{name} = {value}: must be at least 1")
        need(self.seed >= 0, f"seed = {self.seed}: must be 0 or more")
        need(
            self.delimiter is None or len(self.delimiter) == 1,
            f"delimiter = {self.delimiter!r}: must be one character (a tab is $'\\t' in most shells)",
        )
        need(
            self.max_level is None or 0 <= self.max_level <= MAX_LEVEL,
            f"max_level = {self.max_level}: S2 cells have levels from 0 to {MAX_LEVEL}",
        )
        need(
            self.most_per_cell >= self.least_per_cell,
            f"max_per_class = {self.most_per_cell} is less than min_per_class = {self.least_per_cell}: "
            "raise one or lower the other",
        )
        need(
            (self.lat_column is None) == (self.lon_column is None),
            "lat_column and lon_column belong together: give both or neither",
        )
        for name in ("max_per_class", "max_level"):
            need(
                not (self.label_column and getattr(self, name) is not None),
                f"{name} with label_column = {self.label_column}: labels are no cells, drop one of the two flags",
            )
        return bad + self._cloc_problems()

    def _cloc_problems(self) -> list[str]:
        """The authors' release is split and labelled already: flags that would change that are refused."""
        if self.format != "cloc":
            return []
        given = {f.name for f in dataclasses.fields(self) if getattr(self, f.name) != f.default}
        fixed = {name for name in given if name.endswith("_column")}
        fixed |= given & {"delimiter", "sql_table", "years", "preprocess", "order"}
        fixed |= given & {"min_per_class", "max_per_class", "max_level", "validation"}
        bad = [
            f"{name} with format = cloc: the release is split and labelled already, drop --{name}"
            for name in fixed
        ]
        if len(self.table) != 1:
            bad.append("format = cloc: give one directory, the one with train_labels.torchSave")
        return [text.replace("_", "-") if "--" in text else text for text in sorted(bad)]

    @property
    def least_per_cell(self) -> int:
        """Fewest preprocessing rows of a cell that becomes a class."""
        return PAPER_MIN_PER_CLASS if self.min_per_class is None else self.min_per_class

    @property
    def most_per_cell(self) -> int:
        """Most preprocessing rows of a cell that is not split."""
        return PAPER_MAX_PER_CLASS if self.max_per_class is None else self.max_per_class

    def year_range(self, format: str) -> tuple[int, int] | None:
        """First and last year to keep; None keeps all.

        >>> BuildConfig(("t.csv",), Path("out"), years="2004:2014").year_range("table")
        (2004, 2014)
        """
        text = self.years or (PAPER_YEARS if format == "yfcc" else "all")
        if text == "all":
            return None
        first, _, last = text.partition(":")
        try:
            years = int(first), int(last or first)
        except ValueError:
            years = (0, 0)
        if not 1 <= years[0] <= years[1] <= 9999:
            raise DriftlineError(
                f"years = {text!r}: give a range of years (2004:2014), one year (2010), or all"
            )
        return years

    @property
    def validation_share(self) -> float:
        """Share of the rows after the preprocessing set that is held out."""
        return 0.01 if self.validation is None else self.validation

    def preprocess_share(self, *, has_labels: bool) -> float:
        """Share of the rows that is set apart to make the classes; labels need none.

        >>> BuildConfig(("t.csv",), Path("out")).preprocess_share(has_labels=False)
        0.05
        """
        default = 0.0 if has_labels else PAPER_PREPROCESS
        return default if self.preprocess is None else self.preprocess

    def columns(self) -> ColumnChoice:
        """The columns that flags named; images in a Parquet file are found by the id of the row."""
        by_id = self.images is not None and self.images.endswith(".parquet")
        image = self.image_column or ((self.id_column or "id") if by_id else None)
        return ColumnChoice(
            self.id_column,
            self.time_column,
            self.user_column,
            self.label_column,
            self.lat_column,
            self.lon_column,
            image,
        )

    def result_settings(self) -> dict[str, Any]:
        """Everything that can change the result, as JSON values.

        >>> "workers" in BuildConfig(("t.csv",), Path("out")).result_settings()
        False
        """
        values = dataclasses.asdict(self)
        return {
            k: list(v) if isinstance(v, tuple) else v for k, v in values.items() if k not in NOT_IN_RESULT
        }
