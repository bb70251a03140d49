from __future__ import annotations

from pathlib import Path

import pytest

from driftline.report import write_figures
from driftline.types import DriftlineError

from .make_runs import make_run


def test_each_chart_becomes_a_file(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", num=2000, num_classes=30)
    files = write_figures([run], tmp_path / "figures", ("svg", "pdf"))
    stems = {f.stem for f in files}
    assert {
        "online",
        "months",
        "rate",
        "buffer",
        "training",
        "loss",
        "backward",
        "forward",
        "matrix",
        "map",
        "error",
    } <= stems
    assert len(files) == 2 * len(stems)
    assert all(f.stat().st_size > 500 for f in files)


def test_an_unknown_format_and_a_file_in_the_way_are_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", num=300, num_classes=10)
    with pytest.raises(DriftlineError, match="choose from png, svg, pdf"):
        write_figures([run], tmp_path / "figures", ("bmp",))
    (tmp_path / "taken").write_text("")
    with pytest.raises(DriftlineError, match="choose another directory"):
        write_figures([run], tmp_path / "taken", ("svg",))
