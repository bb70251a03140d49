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
    seen = r"the loss is (nan|inf)" if what == "loss" else r"the loss is [\d.]+, weights are not finite"
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
