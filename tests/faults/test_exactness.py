"""Left at any step and resumed with other workers, every kind of run ends with the same bytes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from driftline.config import RunConfig
from driftline.engine.run import Run

KINDS: dict[str, dict[str, Any]] = {
    "constant, fifo": {"schedule": "constant", "replay": "fifo"},
    "cosine, reservoir, two gradient steps": {"schedule": "cosine", "replay": "reservoir", "gd_steps": 2},
    "polrs, ring": {"schedule": "polrs", "polrs_every": "40", "replay": "ring", "buffer_size": "30%"},
    "polrs, ADRep, batch norm": {
        "schedule": "polrs",
        "polrs_every": "60",
        "polrs_members": 2,
        "adaptive_buffer": True,
        "adrep_every": "40",
        "buffer_size": "25",
        "norm": "batch",
    },
    "no replay, batch norm": {"replay": "none", "norm": "batch"},
    "more replay than stream": {"replay": "reservoir", "replay_ratio": 2.0, "buffer_size": "40"},
    "supervised, two epochs": {"learner": "supervised", "epochs_baseline": 2, "norm": "batch"},
    "nothing learned": {"learner": "none"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_left_at_random_steps_ends_with_the_same_bytes(
    tmp_path: Path, fingerprints_of: Callable[[Path], dict[str, str]], kind: str
) -> None:
    config = RunConfig(
        stream="world:2000",
        limit=160,
        batch_size=10,
        checkpoint_every="30",
        lr=0.4,
        device="cpu",
        **KINDS[kind],
    )
    whole = Run(config, tmp_path / "whole")
    whole.execute()
    rng = np.random.default_rng(len(kind))
    steps = sorted(rng.choice(np.arange(1, whole.num_steps), 2, replace=False).tolist())
    run = Run(config, tmp_path / "parts")
    for stop, workers in zip(steps, (1, 4), strict=True):
        for record in run.records():
            if record.step + 1 >= stop:
                break
        run.close()
        run = Run.resume(tmp_path / "parts", workers=workers)
    assert run.execute()["resumed"] >= 1
    assert fingerprints_of(tmp_path / "parts") == fingerprints_of(tmp_path / "whole")
