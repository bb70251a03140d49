"""A damaged checkpoint, log or weights file is noticed; the run goes back to what is whole, or stops and harms nothing."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from driftline.types import DriftlineError

Bench = Any
Fingerprints = Callable[[Path], dict[str, str]]


def states(out: Path) -> list[Path]:
    """Newest first."""
    return sorted((out / "checkpoints").glob("state-*.safetensors"), reverse=True)


def flip(path: Path, at: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    path.write_bytes(data)


def cut(path: Path, share: float) -> None:
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])


def damages() -> Iterator[tuple[str, Callable[[Path], object]]]:
    """Cuts and flipped bits at places spread over the whole file, header and tensors."""
    rng = np.random.default_rng(5)
    for share in (0, 0.001, *rng.uniform(0, 1, 3), 0.9999):
        yield f"cut at {share:.4f}", partial(cut, share=share)
    for share in (0, 0.0002, 0.01, *rng.uniform(0, 1, 6), 0.9999):
        yield f"bit flipped at {share:.4f}", lambda p, s=share: flip(p, int(p.stat().st_size * s), 3)
    yield "lengthened", lambda path: path.write_bytes(path.read_bytes() + b"\0")
    yield "zeroed", lambda path: path.write_bytes(bytes(path.stat().st_size))


def test_a_damaged_checkpoint_is_passed_over_and_nothing_is_lost(
    bench: Bench, fingerprints_of: Fingerprints
) -> None:
    expected = bench.uninterrupted()
    original = bench.interrupted(67, "original")
    for number, (what, damage) in enumerate(damages()):
        out = bench.folder / f"run{number}"
        shutil.copytree(original, out)
        newest, before = states(out)
        damage(newest)
        bench.warnings.clear()
        run = bench.resume(out.name)
        steps = [record.step for record in run.records()]
        assert steps[0] == int(before.stem[6:]), what
        assert len(bench.warnings) == 1, what
        assert newest.name in bench.warnings[0], what
        assert "going back" in bench.warnings[0], what
        run.finish()
        assert fingerprints_of(out) == expected, what
        shutil.rmtree(out)


def test_after_going_back_two_whole_checkpoints_are_kept_again(bench: Bench) -> None:
    out = bench.interrupted(67)
    newest, _ = states(out)
    flip(newest, 1000)
    run = bench.resume()
    for record in run.records():
        if record.step == 71:  # one more checkpoint, and a step later than the damaged one
            break
    run.close()
    names = [path.name for path in states(out)]
    assert names == ["state-000000000070.safetensors", "state-000000000060.safetensors"]
    assert bench.warnings
    bench.warnings.clear()
    bench.resume().execute()
    assert not bench.warnings


def test_when_no_checkpoint_is_whole_the_run_stops_and_keeps_its_logs(
    bench: Bench, fingerprints_of: Fingerprints
) -> None:
    expected = bench.uninterrupted()
    out = bench.interrupted(67)
    for path in states(out):
        flip(path, 1000)
    logs = {name: (out / name).read_bytes() for name in ("predictions.bin", "curves.bin")}
    with pytest.raises(DriftlineError, match=r"no checkpoint .* can be used .*checksum.*remove .*state-\*"):
        bench.resume().execute()
    assert {name: (out / name).read_bytes() for name in logs} == logs
    for path in states(out):
        path.unlink()
    bench.resume().execute()
    assert fingerprints_of(out) == expected


def test_a_run_killed_before_its_first_checkpoint_starts_from_the_beginning(
    bench: Bench, fingerprints_of: Fingerprints
) -> None:
    expected = bench.uninterrupted()
    out = bench.interrupted(7)
    assert not states(out)
    assert (out / "predictions.bin").stat().st_size
    bench.resume().execute()
    assert fingerprints_of(out) == expected


def test_a_torn_tail_of_the_logs_is_cut_off(bench: Bench, fingerprints_of: Fingerprints) -> None:
    expected = bench.uninterrupted()
    out = bench.interrupted(67)
    for name in ("predictions.bin", "curves.bin", "quarantine.jsonl"):
        with (out / name).open("ab") as file:
            file.write(b"half a record")
    bench.resume().execute()
    assert fingerprints_of(out) == expected


@pytest.mark.parametrize("log", ["predictions.bin", "curves.bin"])
def test_a_log_shorter_than_its_checkpoint_takes_the_run_back_further(
    bench: Bench, fingerprints_of: Fingerprints, log: str
) -> None:
    expected = bench.uninterrupted()
    out = bench.interrupted(65)
    size = (out / log).stat().st_size
    with (out / log).open("r+b") as file:
        file.truncate(size * 55 // 65)  # after the checkpoint of step 50, before that of step 60
    bench.resume().execute()
    assert any(log in warning and "going back" in warning for warning in bench.warnings)
    assert fingerprints_of(out) == expected


def test_a_bit_flipped_in_a_log_is_noticed(bench: Bench) -> None:
    out = bench.interrupted(65)
    flip(out / "predictions.bin", 100)
    with pytest.raises(DriftlineError, match=r"predictions.bin .* differs"):
        bench.resume().execute()


def test_damaged_kept_weights_are_noticed_before_the_run_goes_on(bench: Bench) -> None:
    out = bench.interrupted(65)
    flip(out / "checkpoints" / "weights-H-3.safetensors", 400)
    with pytest.raises(DriftlineError, match=r"weights-H-3.safetensors is damaged"):
        bench.resume().execute()


def test_kept_weights_that_were_lost_are_made_again_from_an_older_checkpoint(
    bench: Bench, fingerprints_of: Fingerprints
) -> None:
    expected = bench.uninterrupted()
    out = bench.interrupted(75)  # checkpoints after 60 and 70 steps; 2H/3 is step 67
    (out / "checkpoints" / "weights-2H-3.safetensors").unlink()
    bench.resume().execute()
    assert any("weights-2H-3" in warning for warning in bench.warnings)
    assert fingerprints_of(out) == expected


def test_a_checkpoint_of_another_version_stops_the_run(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("driftline.engine.tensor_file.FORMAT", 99)
        bench.interrupted(65)
    with pytest.raises(DriftlineError, match="format 99"):
        bench.resume().execute()


def test_other_settings_or_another_stream_are_refused(bench: Bench) -> None:
    out = bench.interrupted(65)
    text = (out / "config.toml").read_text()
    (out / "config.toml").write_text(text.replace("momentum = 0.9", "momentum = 0.8"))
    with pytest.raises(DriftlineError, match="other settings"):
        bench.resume().execute()
    (out / "config.toml").write_text(text)
    bench.stream.fingerprint = "small-2"
    with pytest.raises(DriftlineError, match="has changed"):
        bench.resume().execute()
    bench.stream.fingerprint = "small-1"
    bench.resume().execute()


def test_settings_that_change_no_result_may_change(bench: Bench, fingerprints_of: Fingerprints) -> None:
    expected = bench.uninterrupted()
    out = bench.interrupted(65)
    text = (out / "config.toml").read_text()
    (out / "config.toml").write_text(text.replace('checkpoint_every = "160"', 'checkpoint_every = "48"'))
    bench.resume(workers=5).execute()
    assert fingerprints_of(out) == expected


def test_a_checkpoint_is_due_by_time_as_well_as_by_count(bench: Bench) -> None:
    bench.settings = {"checkpoint_every": "100%", "checkpoint_seconds": 1e-9}
    out = bench.interrupted(9)
    assert [path.name for path in states(out)] == [f"state-{n:012d}.safetensors" for n in (9, 8)]


def test_a_run_resumed_on_another_machine_says_that_bits_may_differ(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.interrupted(65)
    monkeypatch.setattr("torch.get_num_threads", lambda: 77)
    bench.resume().execute()
    assert any("77" in warning and "last bits" in warning for warning in bench.warnings)


def test_a_finished_run_is_left_alone_and_tidied(bench: Bench) -> None:
    bench.start().execute()
    out = bench.folder / "run"
    (out / "predictions.bin").write_bytes(b"left by a kill between the summary and the end")
    with pytest.raises(DriftlineError, match="finished run"):
        bench.resume()
    assert not (out / "predictions.bin").exists()
    with pytest.raises(DriftlineError, match="finished run"):
        bench.start()


def test_an_unfinished_run_cannot_be_started_again_nor_finished_early(bench: Bench) -> None:
    out = bench.interrupted(5)
    with pytest.raises(DriftlineError, match=f"unfinished run: `driftline resume {out}`"):
        bench.start()
    run = bench.resume()
    with pytest.raises(DriftlineError, match="0 of 100 steps"):
        run.finish()


def test_logs_without_settings_are_not_taken_over(bench: Bench) -> None:
    out = bench.interrupted(30)
    (out / "config.toml").unlink()
    with pytest.raises(DriftlineError, match=r"config.toml is gone"):
        bench.start()
    with pytest.raises(DriftlineError, match=r"no config.toml"):
        bench.resume()
