"""Where every row of a table went: read, refused for one of the reasons, or kept in one of the three sets.

Counts flow in; a value that is checked to add up, its JSON form for `stream.json`, and a table to print flow out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.markup import escape
from rich.table import Table

from driftline.streams.building.metadata import REASONS


@dataclass(frozen=True)
class Accounting:
    """Rows read = refused + preprocessing + validation + stream, exactly.

    >>> Accounting(num_read=10, refused={"video": 4}, num_preprocessing=1, num_validation=1, num_stream=4).num_kept
    6
    """

    num_read: int
    refused: dict[str, int]
    """In the order of REASONS; reasons without rows are left out."""
    num_preprocessing: int
    num_validation: int
    num_stream: int
    places_ignored: int = 0
    """Labelled rows that were kept without their coordinates, because those were no place."""
    images_missing: dict[str, int] = field(default_factory=dict)
    """Rows of stream and validation set that were left out of the store, because their image could not be had."""

    def __post_init__(self) -> None:
        total = sum(self.refused.values()) + self.num_kept
        assert total == self.num_read, f"{self.num_read} rows read, but {total} accounted for: {self}"

    @property
    def num_kept(self) -> int:
        """Rows that are in one of the three sets."""
        return self.num_preprocessing + self.num_validation + self.num_stream

    def to_json(self) -> dict[str, Any]:
        """Plain values, which `Accounting(**values)` takes back."""
        return asdict(self)

    def table(self) -> Table:
        """The counts as a table to print, each with its share of the rows read."""
        table = Table(title="Rows", title_justify="left")
        table.add_column("")
        table.add_column("rows", justify="right")
        table.add_column("share", justify="right")
        table.add_row("read", f"{self.num_read:,}", "100 %")
        for reason, num in self.refused.items():
            table.add_row(f"  refused: {REASONS[reason]}", f"{num:,}", self._share(num))
        table.add_section()
        for name, num in [
            ("preprocessing set", self.num_preprocessing),
            ("validation set", self.num_validation),
            ("stream", self.num_stream),
        ]:
            table.add_row(name, f"{num:,}", self._share(num))
        if self.places_ignored or self.images_missing:
            table.add_section()
        if self.places_ignored:
            table.add_row("  kept without their place, which is none", f"{self.places_ignored:,}", "")
        for reason, num in sorted(self.images_missing.items()):
            table.add_row(escape(f"  left out again, image: {reason}"), f"{num:,}", self._share(num))
        return table

    def _share(self, num: int) -> str:
        return f"{num / self.num_read:.2%}" if self.num_read else "-"


def in_order_of_reasons(refused: Mapping[str, int]) -> dict[str, int]:
    """The counts that are not zero, in the order of the checks.

    >>> in_order_of_reasons({"duplicate": 1, "video": 2, "no_id": 0})
    {'video': 2, 'duplicate': 1}
    """
    return {reason: refused[reason] for reason in REASONS if refused.get(reason)}
