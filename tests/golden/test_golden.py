"""Golden curves: short runs whose losses must not change unless somebody means them to.

After a change that is meant to alter results (the model, the world, an augmentation), record new ones and say why in the commit:

    .venv/bin/python tests/golden/test_golden.py

The runs compute in float32, and losses are compared with a tolerance that leaves room for other processors and other versions of
torch (which add in another order), but not for another algorithm: a wrong sign, seed, rate or batch changes the loss by far more.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest

from driftline.config import RunConfig
from driftline.engine.run import Run

FOLDER = Path(__file__).parent
COMMON: dict[str, Any] = {
    "stream": "world:2000:5",
    "limit": 1000,
    "batch_size": 32,
    "lr": 0.2,
    "precision": "float32",
    "device": "cpu",
}
RUNS: dict[str, dict[str, Any]] = {
    "replay": {"buffer_size": "20%"},
    "polrs-adrep": {
        "schedule": "polrs",
        "polrs_every": "1/4",
        "adaptive_buffer": True,
        "adrep_every": "1/8",
        "buffer_size": "5%",
    },
    "supervised": {"learner": "supervised", "norm": "batch"},
}
FIRST_STEPS = 8
"""Rounding differences grow with every update; so many steps are compared closely, the rest on average."""


def curve_of(name: str, folder: Path) -> dict[str, list[float]]:
    """Loss, rate and buffer size of each step."""
    run = Run(RunConfig(**COMMON, **RUNS[name]), folder / name)
    rows = [record.curve[0] for record in run.records()]
    run.close()
    return {
        "loss": [round(float(row["loss"]), 6) for row in rows],
        "lr_0": [float(row["lr_0"]) for row in rows],
        "buffer_size": [float(row["buffer_size"]) for row in rows],
    }


@pytest.mark.parametrize("name", RUNS)
def test_losses_are_those_recorded(name, tmp_path):
    expected = json.loads((FOLDER / f"{name}.json").read_text())
    found = curve_of(name, tmp_path)
    assert len(found["loss"]) == len(expected["loss"])
    assert found["loss"][:FIRST_STEPS] == pytest.approx(expected["loss"][:FIRST_STEPS], rel=1e-3)
    last = slice(len(expected["loss"]) // 2, None)
    mean, expected_mean = (sum(x[last]) / len(x[last]) for x in (found["loss"], expected["loss"]))
    assert mean == pytest.approx(expected_mean, rel=0.02)
    assert found["lr_0"][:FIRST_STEPS] == pytest.approx(expected["lr_0"][:FIRST_STEPS])
    assert found["buffer_size"][:4] == expected["buffer_size"][:4]


def main() -> None:
    """Record the curves as they are now."""
    for name in RUNS:
        with tempfile.TemporaryDirectory() as folder:
            curve = curve_of(name, Path(folder))
        lines = [f"  {json.dumps(key)}: {json.dumps(values)}" for key, values in curve.items()]
        (FOLDER / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
        print(f"{name}: {len(curve['loss'])} steps, last loss {curve['loss'][-1]:g}")


if __name__ == "__main__":
    main()
