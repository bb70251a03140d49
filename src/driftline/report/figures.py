"""Each chart of the report as a file for a paper.

In: run directories. Out: PNG, SVG and PDF in the width of a column (or of both, for the map and the matrix).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from driftline.charts import save
from driftline.charts.save import FORMATS
from driftline.report.catalogue import build_figures
from driftline.report.compare import check_comparable
from driftline.report.digest import digests
from driftline.types import DriftlineError


def write_figures(runs: Sequence[Path], directory: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Write every figure that the runs have data for; returns the files written.

    A figure of one run alone (map, matrix, classes) shows the first run.
    """
    found = digests(runs)
    check_comparable([d.run for d in found])
    files: list[Path] = []
    try:
        for figure in build_figures(found, interactive=False):
            for chart in figure.charts.values():
                files += save(chart, Path(directory) / figure.key, formats, width=figure.width)
    except OSError as error:
        raise DriftlineError(
            f"cannot write figures to {directory}: {error}; choose another directory"
        ) from None
    return files
