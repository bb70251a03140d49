"""One, two, three and six processes: the same decisions, the same log in the same order, weights equal but for rounding."""

from __future__ import annotations

import polars as pl
import pytest

from .conftest import COMMON, Outcome, check_decisions_and_order, difference

# The models compute in float64. In float32 the order of additions, which is all that differs, shows after a hundred steps.
CLOSE = 1e-9


def outcomes(launch, tmp_path, sizes, *flags, bad=()):
    """Finished runs by number of processes, which ran one after the other."""
    found = []
    for size in sizes:
        out = tmp_path / f"ranks-{size}"
        launch(size, ["run", *COMMON, "--out", out, *flags], double=True, bad=bad).succeed()
        found.append(Outcome(out))
    return found


def check_equal(alone, *others):
    for other in others:
        check_decisions_and_order(alone, other)
        assert difference(alone, other) < CLOSE
        assert alone.predictions["pred"].equals(other.predictions["pred"])
        assert alone.transfer["pred"].equals(other.transfer["pred"])
        for name in ("loss", "acc_stream", "acc_replay"):
            assert alone.curves[name].to_numpy() == pytest.approx(other.curves[name].to_numpy(), nan_ok=True)


def test_a_batch_divided_over_two_and_three_processes(launch, tmp_path):
    # 801 samples: 200 batches of 4 with 3 samples of replay, and one of a single sample: parts are unequal.
    flags = [
        "--limit",
        "801",
        "--batch-size",
        "4",
        "--replay-ratio",
        "0.7",
        "--adaptive-buffer",
        "--adrep-every",
        "1/9",
    ]
    alone, *others = outcomes(launch, tmp_path, [1, 2, 3], *flags)
    assert alone.predictions["position"].to_list() == list(range(801))
    assert alone.curves["buffer_size"].n_unique() > 1, "ADRep decided nothing"
    check_equal(alone, *others)


def test_in_single_precision_rounding_is_all_that_differs(launch, tmp_path):
    """The default network as users run it: sizes that ADRep decides are the same, almost all predictions are, weights nearly."""
    found = []
    for size in (1, 2):
        out = tmp_path / f"ranks-{size}"
        flags = ["--limit", "1600", "--adaptive-buffer", "--adrep-every", "1/9"]
        launch(size, ["run", *COMMON, "--out", out, *flags]).succeed()
        found.append(Outcome(out))
    alone, divided = found
    check_decisions_and_order(alone, divided)
    assert alone.curves["buffer_size"].n_unique() > 1, "ADRep decided nothing"
    assert (alone.predictions["pred"] == divided.predictions["pred"]).mean() > 0.99
    assert difference(alone, divided) < 0.05


def test_a_process_without_samples_takes_part(launch, tmp_path):
    # The last batch has a single sample, and without a full buffer there is nothing to replay at first.
    flags = ["--limit", "81", "--replay-ratio", "0.1", "--gd-steps", "2", "--schedule", "cosine"]
    check_equal(*outcomes(launch, tmp_path, [1, 3], *flags))


def test_a_population_spread_over_processes(launch, tmp_path):
    flags = ["--limit", "640", "--schedule", "polrs", "--polrs-every", "1/6", "--lr", "0.5"]
    alone, *others = outcomes(launch, tmp_path, [1, 2, 3], *flags)
    assert alone.curves["lr"].n_unique() > 2, "PoLRS decided nothing"
    assert alone.predictions["member"].n_unique() > 1
    check_equal(alone, *others)


def test_a_grid_of_members_and_parts(launch, tmp_path):
    flags = ["--limit", "240", "--schedule", "polrs", "--polrs-every", "1/3", "--polrs-members", "2"]
    check_equal(*outcomes(launch, tmp_path, [1, 4], *flags))


def test_batch_norm_over_all_processes(launch, tmp_path):
    flags = ["--limit", "325", "--norm", "batch"]
    check_equal(*outcomes(launch, tmp_path, [1, 2], *flags))


def test_the_supervised_baseline(launch, tmp_path):
    flags = ["--limit", "300", "--learner", "supervised"]
    alone, divided = outcomes(launch, tmp_path, [1, 2], *flags)
    assert difference(alone, divided) < CLOSE
    assert alone.transfer["position"].equals(divided.transfer["position"])


def test_samples_that_cannot_be_used(launch, tmp_path):
    bad = [3, 47, 48, 63]  # 48 to 55 is one batch
    found = outcomes(launch, tmp_path, [1, 2, 3], "--limit", "160", bad=bad)
    assert set(range(160)) - set(found[0].predictions["position"]) == set(bad)
    check_equal(*found)
    for run in found:
        assert pl.read_parquet(run.out / "quarantine.parquet")["position"].sort().to_list() == bad
