from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from driftline.engine.tensorboard import TensorBoardLog
from driftline.types import DriftlineError, curve_dtype

pytest.importorskip("tensorboard")


def rows(first: int, last: int, loss: float) -> np.ndarray:
    made = np.zeros(last - first, curve_dtype(3))
    made["step"] = np.arange(first, last)
    made["loss"] = loss
    made["lr_2"] = 0.25
    made["acc_replay"] = np.nan
    return made


def scalars(folder: Path) -> dict[str, dict[int, float]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    found.Reload()
    return {tag: {e.step: e.value for e in found.Scalars(tag)} for tag in found.Tags()["scalars"]}


def test_every_step_of_every_curve_can_be_read_back(tmp_path: Path) -> None:
    log = TensorBoardLog(tmp_path)
    log.add(rows(0, 3, 1.5))
    log.add(rows(3, 5, 0.5))
    log.close()
    found = scalars(tmp_path)
    assert found["loss"] == {0: 1.5, 1: 1.5, 2: 1.5, 3: 0.5, 4: 0.5}
    assert found["lr_2"][4] == 0.25
    assert "acc_replay" not in found  # NaN: the run has no replay yet
    assert "time" not in found


def test_a_resumed_run_replaces_what_the_broken_one_wrote_after_its_checkpoint(tmp_path: Path) -> None:
    broken = TensorBoardLog(tmp_path)
    broken.add(rows(0, 6, 9.0))
    broken.close()
    resumed = TensorBoardLog(tmp_path, first_step=4)
    resumed.add(rows(4, 6, 1.0))
    resumed.close()
    assert scalars(tmp_path)["loss"] == {0: 9.0, 1: 9.0, 2: 9.0, 3: 9.0, 4: 1.0, 5: 1.0}


def test_without_the_extra_the_message_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto", None)
    with pytest.raises(DriftlineError, match=r"driftline\[tensorboard\]"):
        TensorBoardLog(tmp_path)
