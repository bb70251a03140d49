"""The examples of docs/metrics.md run, in order, and print what the page says."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_every_example_on_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 7
    names: dict[str, object] = {}
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner(verbose=False)
    for number, block in enumerate(blocks):
        example = parser.get_doctest(block, names, f"block {number}", str(PAGE), None)
        assert example.examples
        report: list[str] = []
        runner.run(example, out=report.append, clear_globs=False)
        names = example.globs
        assert not report, "".join(report)
