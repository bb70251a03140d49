"""Numbers that are no longer finite stop the run at their step, and the last good checkpoint stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from driftline.config import RunConfig
from driftline.engine.run import Run
from driftline.engine.tensor_file import load
from driftline.learners.base import LearnResult, TrainBatch
from driftline.learners.replay import ReplayLearner
from driftline.types import DriftlineError

Bench = Any
BAD_STEP = 33


def newest_state(out: Path) -> dict[str, Any]:
    return load(max((out / "checkpoints").glob("state-*")))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("what", ["loss", "weight"])
def test_a_number_that_is_not_finite_stops_the_run_at_that_step(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, what: str, value: float
) -> None:
    learn = ReplayLearner.learn

    def spoiled(self: ReplayLearner, batch: TrainBatch, step: int) -> LearnResult:
        if step != BAD_STEP:
            return learn(self, batch, step)
        weight = next(iter(self.members[0].model.parameters()))
        if what == "loss":
            with torch.no_grad():
                weight[0, 0] = value
            return learn(self, batch, step)
        # The gradient overflows on its way back: the loss of this step is a good number, the weights are not.
        hook = weight.register_hook(lambda gradient: gradient * value)  # type: ignore[no-untyped-call]
        result = learn(self, batch, step)
        hook.remove()
        return result

    monkeypatch.setattr(ReplayLearner, "learn", spoiled)
    seen = r"the loss is (nan|inf)" if what == "loss" else "weights are not finite"
    message = rf"step {BAD_STEP}, position {BAD_STEP * 16}: {seen}.*lower --lr"
    with pytest.raises(DriftlineError, match=message):
        bench.start().execute()
    out = bench.folder / "run"
    state = newest_state(out)
    assert state["loop"]["step"] == 30
    assert all(bool(torch.isfinite(t).all()) for t in state["learner"]["models"][0].values())
    monkeypatch.setattr(ReplayLearner, "learn", learn)
    bench.resume().execute()


def test_a_rate_that_is_too_high_is_named(tmp_path: Path) -> None:
    config = RunConfig(stream="world:2000", limit=300, batch_size=20, lr=1e30, device="cpu")
    with pytest.raises(
        DriftlineError, match=r"step \d+, position \d+: .*diverged.*lower --lr \(rates in use: "
    ):
        Run(config, tmp_path / "run").execute()


@pytest.mark.parametrize("bad_step", [29, 99])
def test_weights_that_are_not_finite_are_never_saved(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, bad_step: int
) -> None:
    """The step after which a checkpoint is due, or the run ends, spoils the weights: nobody has predicted with them yet."""
    learn = ReplayLearner.learn

    def spoiled(self: ReplayLearner, batch: TrainBatch, step: int) -> LearnResult:
        result = learn(self, batch, step)
        if step == bad_step:
            with torch.no_grad():
                next(iter(self.members[0].model.parameters()))[0, 0] = float("nan")
        return result

    monkeypatch.setattr(ReplayLearner, "learn", spoiled)
    with pytest.raises(DriftlineError, match=f"step {bad_step}, .*weights are not finite"):
        bench.start().execute()
    assert newest_state(bench.folder / "run")["loop"]["step"] <= bad_step
    assert not (bench.folder / "run" / "summary.json").exists()
