"""What a build made, as a value; it is kept beside the stream, so that the same command run again finds it done."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from driftline.streams.building.accounting import Accounting
from driftline.streams.building.workshop import FOLDER
from driftline.streams.durable import replacing
from driftline.types import DriftlineError

REPORT_FILE = "build.json"


@dataclass(frozen=True)
class BuildReport:
    """What a build made."""

    out: Path
    name: str
    format: str
    columns: dict[str, str]
    """Canonical column -> the table's own."""
    num_classes: int
    num_albums: int
    accounting: Accounting
    num_stored: int
    num_stored_validation: int
    """Samples in the store: those of the table whose images could be had."""
    has_images: bool
    resumed: tuple[str, ...] = ()
    """Stages that an earlier, interrupted run had finished."""
    was_there: bool = False
    """The stream was there already, built from the same table with the same options."""

    def summary(self) -> str:
        """One paragraph in plain words."""
        parts = [
            f"{self.out}: {self.num_stored:,} samples, {self.num_stored_validation:,} validation samples, "
            f"{self.num_classes:,} classes; the rows make {self.num_albums:,} albums of "
            f"{self.accounting.num_stream / max(self.num_albums, 1):.3f} images."
        ]
        if self.columns:
            parts.append("Columns: " + ", ".join(f"{k} = {v}" for k, v in self.columns.items()) + ".")
        if not self.has_images:
            parts.append("No images yet: `driftline fetch` gets those the table names by address.")
        if self.was_there:
            parts.append("It was there already; nothing was done.")
        elif self.resumed:
            parts.append(f"Continued an interrupted build (done before: {', '.join(self.resumed)}).")
        return "\n".join(parts)


def save_report(report: BuildReport, mark: str) -> None:
    """Keep the report beside the stream."""
    values = asdict(report) | {"out": "", "accounting": report.accounting.to_json(), "resumed": []}
    with replacing(report.out / REPORT_FILE) as temporary:
        temporary.write_text(
            json.dumps({"fingerprint": mark, "report": values}, indent=1) + "\n", encoding="utf-8"
        )


def finished(out: Path, mark: str) -> BuildReport | None:
    """The report of a stream that is there already; one that was built otherwise is never overwritten."""
    if not (out / "stream.json").exists():
        return None
    try:
        saved = json.loads((out / REPORT_FILE).read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        saved = {}
    if saved.get("fingerprint") != mark:
        if (out / FOLDER).exists() and not saved:
            return None  # killed between the last two files: the stages are there, and finishing again gives the same
        raise DriftlineError(
            f"{out} holds a finished stream of another table or other options; choose another --out, or delete it first"
        )
    values = saved["report"]
    accounting = Accounting(**values.pop("accounting"))
    return BuildReport(**values | {"out": out, "accounting": accounting, "resumed": (), "was_there": True})
