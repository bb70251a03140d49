"""docs/own-learner.md: its learner is complete, passes the checks, and runs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from driftline.engine.run import Run
from driftline.learners import checks

PAGE = Path(__file__).parents[2] / "docs" / "own-learner.md"


@pytest.fixture(scope="module")
def blocks():
    found = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(found) == 4
    return found


@pytest.fixture
def names(blocks):
    namespace: dict[str, object] = {}
    exec(compile(blocks[0], str(PAGE), "exec"), namespace)
    return namespace


@pytest.mark.parametrize("check", checks.CHECKS, ids=lambda check: check.__name__)
def test_the_learner_of_the_page_keeps_every_promise(names, check):
    check(lambda: names["NearestMean"](checks.NUM_CLASSES, checks.SIZE))


def test_the_page_runs_from_top_to_bottom(blocks, names, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for block in blocks[1:]:
        exec(compile(block, str(PAGE), "exec"), names)
    assert "album" in capsys.readouterr().out
    summary = json.loads((tmp_path / "nearest-mean" / "summary.json").read_text())
    assert summary["online_accuracy"]["sample"] > 2 * summary["chance"]


def test_an_interrupted_run_of_an_own_learner_goes_on_to_the_same_bytes(blocks, names, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for block in blocks[1:]:
        exec(compile(block, str(PAGE), "exec"), names)
    run = Run(names["config"], "again", learner=names["make"])
    records = run.records()
    for _ in range(10):
        next(records)
    run.save(wait=True)
    run.close()
    Run.resume("again", learner=names["make"]).execute()
    whole, resumed = (tmp_path / name / "predictions.parquet" for name in ("nearest-mean", "again"))
    assert resumed.read_bytes() == whole.read_bytes()
