"""Which columns of a table mean time, user, label, place and image: named by the user, or found by their usual names."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from string import Formatter

import polars as pl

from driftline.types import DriftlineError

USUAL_NAMES: dict[str, tuple[str, ...]] = {
    "id": ("id", "photoid", "photo_id", "image_id"),
    "time": ("time", "timestamp", "datetime", "date", "datetaken", "date_taken", "time_s"),
    "user": ("user", "user_id", "userid", "uid", "author", "owner"),
    "label": ("label", "class", "category", "target"),
    "lat": ("lat", "latitude"),
    "lon": ("lon", "lng", "long", "longitude"),
    "image": ("image", "path", "image_path", "file", "filename", "file_name", "url", "downloadurl"),
}
"""Column names that need no flag, in any case; the first that the table has is taken."""


@dataclass(frozen=True)
class ColumnChoice:
    """The columns a user named; None where the usual names decide."""

    id: str | None = None
    time: str | None = None
    user: str | None = None
    label: str | None = None
    lat: str | None = None
    lon: str | None = None
    image: str | None = None


def choose(
    available: Sequence[str], choice: ColumnChoice, source: str, *, never_guess: Collection[str] = ()
) -> dict[str, str]:
    """Canonical name -> the table's column, for each that is named or found.

    Columns in `never_guess` (bytes, records) are only taken when named. Whoever names latitude and longitude wants places, so a column that happens to be called "label" is then left alone.

    >>> choose(["Path", "label", "date"], ColumnChoice(), "t.csv")
    {'time': 'date', 'label': 'label', 'image': 'Path'}
    """
    lowered = {name.lower(): name for name in reversed(available) if name not in never_guess}
    chosen: dict[str, str] = {}
    for canonical in (f.name for f in fields(ColumnChoice)):
        named: str | None = getattr(choice, canonical)
        if named is not None:
            for key, name in _named(canonical, named).items():
                chosen[key] = existing(name, canonical, available, source)
        elif not (canonical == "label" and choice.lat and choice.lon):
            usual = next((lowered[name] for name in USUAL_NAMES[canonical] if name in lowered), None)
            if usual is not None:
                chosen[canonical] = usual
    return chosen


def _named(canonical: str, named: str) -> dict[str, str]:
    return image_columns(named) if canonical == "image" else {canonical: named}


def image_columns(named: str) -> dict[str, str]:
    """The columns an image's name is made of: one, or those of a pattern, which `fill_pattern` puts together.

    >>> image_columns("path"), image_columns("{uid}/{photoid}.jpg")
    ({'image': 'path'}, {'image#0': 'uid', 'image#1': 'photoid'})
    """
    if "{" not in named:
        return {"image": named}
    return {f"image#{k}": name for k, name in enumerate(_pattern(named)[1])}


def _pattern(pattern: str) -> tuple[str, list[str]]:
    """The text of a pattern with {} in the place of its columns, and the columns."""
    try:
        pieces = [(text, name) for text, name, _, _ in Formatter().parse(pattern)]
    except ValueError as error:
        raise DriftlineError(f"image_column = {pattern!r}: {error}; write columns as {{name}}") from None
    return "".join(text + ("{}" if name is not None else "") for text, name in pieces), [
        n for _, n in pieces if n is not None
    ]


def fill_pattern(frame: pl.DataFrame, pattern: str) -> pl.DataFrame:
    """The frame with the column `image` made from the columns of a pattern; null where one of them is.

    >>> fill_pattern(pl.DataFrame({"image#0": ["7"], "image#1": [12]}), "{user}/{id}.jpg")
    shape: (1, 1)
    ┌──────────┐
    │ image    │
    │ ---      │
    │ str      │
    ╞══════════╡
    │ 7/12.jpg │
    └──────────┘
    """
    text, names = _pattern(pattern)
    columns = [f"image#{k}" for k in range(len(names))]
    values = [pl.when(pl.col(c).cast(pl.String) != "").then(pl.col(c).cast(pl.String)) for c in columns]
    return frame.with_columns(pl.format(text, *values).alias("image")).drop(columns)


def existing(named: str, canonical: str, available: Sequence[str], source: str) -> str:
    """The name, if there is exactly one such column."""
    if named not in available:
        raise missing_column(source, f"no column {named!r} (--{canonical}-column)", available)
    if list(available).count(named) > 1:
        raise DriftlineError(f"{source}: several columns are called {named!r}; rename all but one")
    return named


def missing_column(source: str, problem: str, available: Sequence[str]) -> DriftlineError:
    """An error that names the columns there are.

    >>> str(missing_column("t.csv", "no column 'when' (--time-column)", ["id", "time"]))
    "t.csv: no column 'when' (--time-column); the columns are: id, time"
    """
    shown = [name if len(name) <= 60 else name[:57] + "..." for name in available[:60]]
    more = f" and {len(available) - 60} more" if len(available) > 60 else ""
    return DriftlineError(f"{source}: {problem}; the columns are: {', '.join(shown)}{more}")
