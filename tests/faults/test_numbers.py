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
        if step == BAD_STEP and what == "weight":
            # The update itself overflows: the loss of this step was still fine.
            batch = TrainBatch(batch.views, batch.labels, batch.num_stream)
            with torch.no_grad():
                list(self.members[0].model.parameters())[-1][2] = value
        if step == BAD_STEP and what == "loss":
            with torch.no_grad():
                next(iter(self.members[0].model.parameters())).fill_(value)
        return learn(self, batch, step)

    monkeypatch.setattr(ReplayLearner, "learn", spoiled)
    with pytest.raises(DriftlineError, match=rf"step {BAD_STEP}, position {BAD_STEP * 16}: .*lower --lr"):
        bench.start().execute()
    out = bench.folder / "run"
    state = newest_state(out)
    assert state["loop"]["step"] == 30
    assert all(bool(torch.isfinite(t).all()) for t in state["learner"]["models"][0].values())
    monkeypatch.setattr(ReplayLearner, "learn", learn)
    bench.resume().execute()


def test_weights_that_overflow_stop_the_run_before_they_predict(bench: Bench) -> None:
    """The loss of the first gradient step is finite, the second one ruins the weights: that step is named, not the next."""
    bench.settings = {
        "lr": 3.3e38,
        "momentum": 0.0,
        "weight_decay": 1e9,
        "batch_size": 256,
        "checkpoint_every": "256",
    }
    with pytest.raises(
        DriftlineError, match=r"step 0, position 0: the loss is [\d.]+, weights are not finite"
    ):
        bench.start().execute()


def test_a_rate_that_is_too_high_is_named(tmp_path: Path) -> None:
    config = RunConfig(stream="world:2000", limit=300, batch_size=20, lr=1e30, device="cpu")
    with pytest.raises(
        DriftlineError, match=r"step \d+, position \d+: .*diverged.*lower --lr \(rates in use: "
    ):
        Run(config, tmp_path / "run").execute()


def test_weights_too_large_for_their_norm_are_still_finite(bench: Bench) -> None:
    """The cheap check by norms must not stop a run whose weights are large but finite."""
    from driftline.learners import replay

    model = torch.nn.Linear(3, 3)
    with torch.no_grad():
        model.weight.fill_(1e30)
    assert replay._all_finite(model)
    with torch.no_grad():
        model.bias[1] = float("nan")
    assert not replay._all_finite(model)
