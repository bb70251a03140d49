"""Which columns of a table mean time, user, label, place and image: named by the user, or found by their usual names."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields

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
            chosen[canonical] = _existing(named, canonical, available, source)
        elif not (canonical == "label" and choice.lat and choice.lon):
            usual = next((lowered[name] for name in USUAL_NAMES[canonical] if name in lowered), None)
            if usual is not None:
                chosen[canonical] = usual
    return chosen


def _existing(named: str, canonical: str, available: Sequence[str], source: str) -> str:
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
