"""The presets load, and those for CLOC are exactly the runs of the recipes at full scale."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from driftline.config import RunConfig
from driftline.experiments.catalogue import ALL, RECIPES
from driftline.experiments.presets import FOLDER, names, preset
from driftline.experiments.setting import FULL, Setting
from driftline.types import DriftlineError

from .synthetic import FakeSplit, FakeStream

CLOC = Setting(FakeStream(FakeSplit(39_000_000)), "streams/cloc", FULL)


def comparable(config: RunConfig) -> RunConfig:
    """How many photos a year has depends on the build."""
    return replace(config, train_samples=1) if config.train_samples else config


def test_every_run_of_the_paper_is_a_preset_and_no_other() -> None:
    runs = {comparable(c).digest() for name in ALL for c in RECIPES[name].runs(CLOC).values()}
    files = {name: comparable(preset(name)).digest() for name in names() if name.startswith("cloc-")}
    assert set(files.values()) == runs
    assert len(files) == len(runs), "a run has two presets"


@pytest.mark.parametrize("name", names())
def test_presets_load(name: str) -> None:
    assert preset(name).stream in ("world", "streams/cloc")


def test_best_is_polrs_adrep_and_small_batches_with_its_like_beside_it() -> None:
    best, matched = preset("best"), preset("best-compute-matched")
    assert (best.schedule, best.adaptive_buffer, best.batch_size) == ("polrs", True, 64)
    assert matched.num_members * matched.gd_steps == best.num_members * best.gd_steps


def test_unknown_preset() -> None:
    with pytest.raises(DriftlineError, match="there is no preset 'bset'"):
        preset("bset")


@pytest.mark.parametrize("name", ["best-compute-matched", "cloc-best-5-steps", "cloc-shift-2010"])
def test_driftline_run_takes_the_file_as_it_is(name: str) -> None:
    from driftline.cli.flags import parse
    from driftline.cli.run import RunFlags, _default

    args = ["--config", str(FOLDER / f"{name}.toml"), "--out", "somewhere"]
    assert parse(RunFlags, "run", args, _default(args)).settings == preset(name)


def test_the_best_preset_runs(tmp_path: Path) -> None:
    from driftline.cli.run import run

    file = str(FOLDER / "best.toml")
    assert (
        run(["--config", file, "--stream", "world:2000", "--limit", "256", "--out", str(tmp_path / "run")])
        == 0
    )
    assert (tmp_path / "run" / "summary.json").exists()
