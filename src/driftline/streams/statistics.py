"""What a stream is made of: classes, countries, years, distances to the class centre, albums, and what was left out on the way.

A stream directory flows in, read a block of rows at a time; a `Statistics` flows out, whose tables put the paper's figures beside the
stream's own. `statistics_charts` draws it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.markup import escape
from rich.table import Table

from driftline.geo.countries import country_codes, country_name
from driftline.geo.distance import great_circle_km
from driftline.streams.building.accounting import Accounting
from driftline.streams.open import open_stream
from driftline.streams.store import StoredStream
from driftline.types import ClassTable, FloatArray, IntArray, Samples

ROWS_PER_BLOCK = 1 << 18
SCALES_KM = {1: "street", 25: "city", 200: "region", 750: "country", 2500: "continent"}
PAPER_CLASSES = 712
PAPER_ALBUM_SIZE = 1.157
PAPER_WITHIN_KM = {1: 0.05, 25: 0.30, 200: 0.80}
PAPER_STREAM, PAPER_VALIDATION, PAPER_PREPROCESSING = 39_000_000, 392_000, 2_000_000
NUM_TOP_COUNTRIES = 20

EDGES_KM = np.concatenate([[0.0], np.geomspace(0.01, 20_100, 400), [np.inf]])
"""Distances are counted between these, fine enough for any curve; shares at the scales are exact."""


@dataclass(frozen=True)
class Statistics:
    """Figures of a stream. Where samples have no places, those about places are empty."""

    name: str
    num_samples: int
    num_validation: int
    classes: ClassTable
    class_counts: IntArray
    years: dict[int, int]
    countries: dict[str, int]
    """Country code -> samples, the largest first; samples without a place are left out."""
    distance_counts: IntArray
    """Samples by distance to their class centre, between EDGES_KM."""
    within_km: dict[int, float]
    """Share of the samples with a place that are nearer to their class centre than this."""
    num_albums: int
    album_sizes: dict[int, int]
    accounting: Accounting | None
    """Where the rows of the table went; None for a stream that was not built from one."""

    @property
    def mean_album_size(self) -> float:
        """Images an album."""
        return self.num_samples / max(self.num_albums, 1)

    @property
    def has_places(self) -> bool:
        """Whether distances could be measured."""
        return bool(self.distance_counts.sum())

    def distance_cdf(self) -> tuple[FloatArray, FloatArray]:
        """Distances in km, and the share of samples within each."""
        shares = np.cumsum(self.distance_counts) / max(self.distance_counts.sum(), 1)
        return EDGES_KM[1:-1], shares[:-1]

    def tables(self) -> list[Table]:
        """All figures as tables to print."""
        tables = [self.overview()]
        if self.countries:
            tables.append(
                _counts("Images per country", [(country_name(c), n) for c, n in self.countries.items()])
            )
        tables += self.what_it_holds()
        if self.accounting is not None:
            tables.append(self.accounting.table())
        return tables

    def what_it_holds(self) -> list[Table]:
        """Samples per year, per class (the largest) and per album."""
        largest = np.argsort(-self.class_counts, kind="stable")
        return [
            _counts("Images per year", [(str(y), n) for y, n in sorted(self.years.items())]),
            _counts(
                "Images per class", [(self.classes.names[c], int(self.class_counts[c])) for c in largest]
            ),
            _counts("Albums by size", _grouped_sizes(self.album_sizes)),
        ]

    def overview(self) -> Table:
        """The main figures, beside the paper's."""
        table = Table(title=escape(f"Stream {self.name}"), title_justify="left")
        for column in ("", "here", "paper"):
            table.add_column(column, justify="left" if not column else "right")
        table.add_row("samples", f"{self.num_samples:,}", f"{PAPER_STREAM:,}")
        table.add_row("validation samples", f"{self.num_validation:,}", f"{PAPER_VALIDATION:,}")
        if self.accounting is not None:
            table.add_row(
                "preprocessing rows", f"{self.accounting.num_preprocessing:,}", f"{PAPER_PREPROCESSING:,}"
            )
        table.add_row("classes", f"{len(self.classes):,}", f"{PAPER_CLASSES}")
        empty = int((self.class_counts == 0).sum())
        if empty:
            table.add_row("  without a sample", f"{empty:,}", "")
        table.add_row("images an album", f"{self.mean_album_size:.3f}", f"{PAPER_ALBUM_SIZE}")
        for km, share in self.within_km.items():
            paper = f"{PAPER_WITHIN_KM[km]:.0%}" if km in PAPER_WITHIN_KM else ""
            table.add_row(f"within {km} km of the class centre ({SCALES_KM[km]})", f"{share:.1%}", paper)
        return table

    def to_json(self) -> dict[str, Any]:
        """Plain values, for other programs."""
        return {
            "name": self.name,
            "samples": self.num_samples,
            "validation": self.num_validation,
            "classes": len(self.classes),
            "class_counts": self.class_counts.tolist(),
            "years": self.years,
            "countries": self.countries,
            "within_km": self.within_km,
            "albums": self.num_albums,
            "mean_album_size": self.mean_album_size,
            "rows": None if self.accounting is None else self.accounting.to_json(),
        }


def _counts(title: str, counts: list[tuple[str, int]]) -> Table:
    total = sum(num for _, num in counts)
    table = Table(title=title, title_justify="left", show_header=False)
    for name, num in counts[:NUM_TOP_COUNTRIES]:
        table.add_row(escape(name), f"{num:,}", f"{num / total:.1%}")
    if len(counts) > NUM_TOP_COUNTRIES:
        rest = sum(num for _, num in counts[NUM_TOP_COUNTRIES:])
        table.add_row(f"{len(counts) - NUM_TOP_COUNTRIES} others", f"{rest:,}", f"{rest / total:.1%}")
    return table


def _grouped_sizes(sizes: dict[int, int]) -> list[tuple[str, int]]:
    """Albums of 1, 2, 3, 4, 5 to 9, 10 to 19, 20 to 99 images, and more."""
    limits = [1, 2, 3, 4, 5, 10, 20, 100]
    groups = []
    for low, high in zip(limits, [*limits[1:], None], strict=True):
        num = sum(n for size, n in sizes.items() if size >= low and (high is None or size < high))
        name = f"{low} or more" if high is None else (str(low) if high == low + 1 else f"{low} to {high - 1}")
        groups.append((name, num))
    return groups


def stream_statistics(path: Path | str, *, countries: bool = True) -> Statistics:
    """Statistics of a stream; memory does not grow with its length. Finding the countries costs some seconds more."""
    stream = open_stream(path)
    tally = _Tally(stream.classes, countries)
    for start in range(0, len(stream.train), ROWS_PER_BLOCK):
        tally.add(stream.train.samples(start, min(start + ROWS_PER_BLOCK, len(stream.train))))
    tally.finish()
    rows = stream.manifest.how.get("rows") if isinstance(stream, StoredStream) else None
    num_measured = max(int(tally.distances.sum()), 1)
    return Statistics(
        name=stream.name,
        num_samples=len(stream.train),
        num_validation=len(stream.validation),
        classes=stream.classes,
        class_counts=tally.classes,
        years=dict(sorted(tally.years.items())),
        countries=dict(tally.countries.most_common()),
        distance_counts=tally.distances,
        within_km={km: num / num_measured for km, num in tally.within.items()}
        if tally.distances.any()
        else {},
        num_albums=tally.num_albums,
        album_sizes=dict(sorted(tally.album_sizes.items())),
        accounting=None if rows is None else Accounting(**rows),
    )


class _Tally:
    """Counts that grow as blocks of samples pass."""

    def __init__(self, classes: ClassTable, with_countries: bool) -> None:
        self._with_countries = with_countries
        self._centres = None if classes.lat is None or classes.lon is None else (classes.lat, classes.lon)
        self.classes: IntArray = np.zeros(len(classes), np.int64)
        self.years: Counter[int] = Counter()
        self.countries: Counter[str] = Counter()
        self.distances: IntArray = np.zeros(len(EDGES_KM) - 1, np.int64)
        self.within: Counter[int] = Counter(dict.fromkeys(SCALES_KM, 0))
        self.num_albums = 0
        self.album_sizes: Counter[int] = Counter()
        self._open_user: int | None = None
        self._open_size = 0

    def add(self, samples: Samples) -> None:
        self.classes += np.bincount(samples.label, minlength=len(self.classes))
        self._add_years(samples.time)
        self._add_places(samples)
        self._add_albums(samples.user)

    def _add_years(self, time_s: IntArray) -> None:
        years = time_s.astype("datetime64[s]").astype("datetime64[Y]").astype(np.int64) + 1970
        values, counts = np.unique(years, return_counts=True)
        self.years.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))

    def _add_places(self, samples: Samples) -> None:
        known = np.isfinite(samples.lat) & np.isfinite(samples.lon)
        lat, lon = samples.lat[known], samples.lon[known]
        if self._with_countries:
            codes, counts = np.unique(country_codes(lat, lon), return_counts=True)
            self.countries.update(dict(zip(codes.tolist(), counts.tolist(), strict=True)))
        if self._centres is None:
            return
        label = samples.label[known]
        distance_km = great_circle_km(lat, lon, self._centres[0][label], self._centres[1][label])
        self.distances += np.histogram(distance_km, EDGES_KM)[0]
        for km in self.within:
            self.within[km] += int((distance_km < km).sum())

    def _add_albums(self, users: NDArray[np.int64]) -> None:
        starts = np.flatnonzero(np.diff(users, prepend=users[:1] - 1) != 0)
        sizes = np.diff(np.append(starts, len(users)))
        if self._open_user == int(users[0]):
            sizes[0] += self._open_size
        elif self._open_size:
            self._close(self._open_size)
        for size, num in zip(*np.unique(sizes[:-1], return_counts=True), strict=True):
            self._close(int(size), int(num))
        self._open_user, self._open_size = int(users[-1]), int(sizes[-1])

    def _close(self, size: int, num: int = 1) -> None:
        self.album_sizes[size] += num
        self.num_albums += num

    def finish(self) -> None:
        """The last album ends with the stream."""
        if self._open_size:
            self._close(self._open_size)
            self._open_size = 0
