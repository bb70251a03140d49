"""What one figure of the report is: charts to choose from, words around them, and a table that says the same.

In: digests. Out: Figure values; `page` puts them into HTML and `figures` into files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import polars as pl

from driftline.charts import Column
from driftline.charts.theme import Chart
from driftline.report.digest import RunDigest

DECIMALS = 5


@dataclass(frozen=True)
class Table:
    """Rows of text under a heading each; the first column names the row."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Choice:
    """A field of the figure's data of which one value is shown at a time."""

    field: str
    title: str
    values: Sequence[str]
    chosen: str


@dataclass(frozen=True)
class Figure:
    """A figure in all its forms; `charts` maps the name of each form (linear, log) to its chart."""

    key: str
    title: str
    caption: str
    """How to read it."""
    says: str
    """What it shows, in words, for those who do not see it."""
    charts: dict[str, Chart]
    table: Table
    choices: Sequence[Choice] = field(default_factory=tuple)
    width: Column = "single"


def percent(value: float | None) -> str:
    """A share as a percentage with one decimal; a dash where there is none.

    >>> percent(0.3125), percent(float("nan"))
    ('31.2 %', '–')
    """
    return "–" if value is None or value != value else f"{100 * value:.1f}\u202f%".replace("\u202f", " ")


def count(value: float | None) -> str:
    """A whole number in groups of three.

    >>> count(39_000_000)
    '39 000 000'
    """
    return "–" if value is None else f"{round(value):,}".replace(",", "\u2009").replace("\u2009", " ")


def rounded(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with its values at the precision that a screen shows, which keeps the page small."""
    return frame.with_columns(pl.col("value").round(DECIMALS))


def gather(found: Sequence[RunDigest], frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """The frames of several runs as one, with the run's name in `run`."""
    named = [f.with_columns(run=pl.lit(d.name)) for d, f in zip(found, frames, strict=True) if len(f)]
    return pl.concat(named, how="vertical_relaxed") if named else pl.DataFrame()


def yearly(frame: pl.DataFrame, series: Sequence[str], *, text: str = "percent") -> Table:
    """The last value of each year of each run (`x` in unix seconds), as a table."""
    write = percent if text == "percent" else number
    year = pl.from_epoch(pl.col("x").cast(pl.Int64)).dt.year().alias("year")
    last = frame.sort("x").group_by(year, "run").agg(pl.col("value").last())
    cells = {(y, r): v for y, r, v in last.select("year", "run", "value").iter_rows()}
    shown = [s for s in series if any(r == s for _, r in cells)]
    years = sorted({y for y, _ in cells})
    return Table(["year", *shown], [[str(y), *(write(cells.get((y, s))) for s in shown)] for y in years])


def number(value: float | None) -> str:
    """A number with three significant digits.

    >>> number(0.0125), number(4000.0), number(None)
    ('0.0125', '4 000', '–')
    """
    if value is None or value != value:
        return "–"
    return count(value) if abs(value) >= 100 else f"{value:.3g}"
