from __future__ import annotations

import re
from pathlib import Path

import pytest

from .make_runs import make_run

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "report.md"


def test_the_code_of_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("replay", "cosine"):
        make_run(tmp_path / "runs" / name, num=2000, num_classes=20)
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL):
        exec(block, names)
    assert (tmp_path / "compare.html").exists()
    assert (tmp_path / "figures" / "two.pdf").exists()


def test_the_pictures_of_the_guide_are_there() -> None:
    pictures = re.findall(r"!\[[^]]*\]\(([^)]+)\)", GUIDE.read_text())
    assert pictures
    assert all((GUIDE.parent / picture).is_file() for picture in pictures)
