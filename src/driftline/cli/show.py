"""`driftline report` and `watch`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from driftline.cli.flags import parse
from driftline.types import DriftlineError

FORMATS = ("png", "svg", "pdf")


@dataclass(frozen=True)
class ReportFlags:
    """Turn one run, or several side by side, into one self-contained page; and each chart into a file if asked."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Directories of runs, finished or not."""
    out: Path | None = None
    """The page; default: report.html in the run's directory, or beside the first of several."""
    figures: Path | None = None
    """Directory for the charts as files."""
    formats: Annotated[str, tyro.conf.arg(name="as")] = "png,svg,pdf"
    """Kinds of files for --figures, separated by commas."""


@dataclass(frozen=True)
class WatchFlags:
    """Serve the page of a run in progress on this machine, and keep it up to date."""

    run: Annotated[Path, tyro.conf.Positional]
    """The run's directory."""
    port: int = 8765
    """Port on 127.0.0.1; 0 takes a free one."""


def report(args: list[str]) -> int:
    """`driftline report`."""
    flags = parse(ReportFlags, "report", args)
    if not flags.runs:
        raise DriftlineError("name at least one run: driftline report RUN [RUN ...]")
    formats = [name.strip() for name in flags.formats.split(",")]
    for name in formats:
        if name not in FORMATS:
            raise DriftlineError(f"--as {flags.formats}: {name!r} is none of {', '.join(FORMATS)}")
    from driftline.report.figures import write_figures
    from driftline.report.page import write_report

    first = flags.runs[0]
    page = flags.out or (first / "report.html" if len(flags.runs) == 1 else first.parent / "report.html")
    for warning in write_report(flags.runs, page):
        print(f"warning: {warning}", file=sys.stderr)
    print(f"report: {page.resolve()} ({page.stat().st_size / 1e6:.1f} MB)")
    if flags.figures:
        files = write_figures(flags.runs, flags.figures, formats)
        print(f"figures: {len(files)} files in {flags.figures}")
    return 0


def watch(args: list[str]) -> int:
    """`driftline watch`."""
    flags = parse(WatchFlags, "watch", args)
    from driftline.report.watch import watch as serve

    serve(flags.run, flags.port)
    return 0
