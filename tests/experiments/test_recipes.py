"""Every recipe gives runs that can be made, and its findings follow what the runs' files say, whatever that is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftline.config import RunConfig
from driftline.engine.setup import Setup
from driftline.experiments.catalogue import ALL, RECIPES, chosen
from driftline.experiments.recipes import buffer_size
from driftline.experiments.setting import FULL, POPULATION, QUICK, Scale, Setting
from driftline.types import DriftlineError

from .synthetic import FakeSplit, FakeStream, Planted, planted_results, steady

SHORT = FakeStream(FakeSplit(44_623))
CLOC = FakeStream(FakeSplit(39_000_000))
WITH_RUNS = [name for name in RECIPES if name != "stats"]


def setting(scale: Scale = QUICK, seed: int = 0) -> Setting:
    return Setting(SHORT if scale is QUICK else CLOC, "fake", scale, seed)


def verdicts(folder: Path, name: str, plant: Callable[[str], Planted], seeds: int = 3) -> dict[str, str]:
    recipe = RECIPES[name]
    scoring = "window" if recipe.compares == "batch sizes" else "sample"
    results = planted_results(folder, recipe, setting(), plant, seeds, scoring)
    recipe.draw(results).to_dict()  # a chart comes out whatever the answer
    return {finding.key: finding.verdict for finding in recipe.findings(results)}


# -- runs


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(WITH_RUNS), st.integers(0, 2**31), st.sampled_from([QUICK, FULL]))
def test_any_seed_gives_runs_that_the_engine_accepts(name: str, seed: int, scale: Scale) -> None:
    for config in RECIPES[name].runs(setting(scale, seed)).values():
        assert config.seed == seed
        Setup(config, setting(scale).stream)


@pytest.mark.parametrize("name", WITH_RUNS)
def test_seeds_differ_in_nothing_but_the_seed(name: str) -> None:
    from dataclasses import replace

    first, second = (RECIPES[name].runs(setting(seed=seed)) for seed in (0, 1))
    assert {k: replace(c, seed=1) for k, c in first.items()} == dict(second)


def distinct(scale: Scale) -> list[RunConfig]:
    runs = {c.digest(): c for name in ALL for c in RECIPES[name].runs(setting(scale)).values()}
    return list(runs.values())


def test_figures_share_their_runs() -> None:
    asked_for = sum(len(RECIPES[name].runs(setting())) for name in ALL)
    assert len(distinct(QUICK)) < asked_for - 10


@pytest.mark.parametrize("scale", [QUICK, FULL], ids=["quick", "full"])
def test_beside_every_population_stands_one_model_with_its_compute(scale: Scale) -> None:
    for name in ALL:
        configs = list(RECIPES[name].runs(setting(scale)).values())
        if name == "geolocation":  # shows the runs of best-model
            continue
        for population in (c for c in configs if c.schedule == "polrs"):
            alike = [
                c
                for c in configs
                if c.num_members == 1
                and c.gd_steps == population.gd_steps * POPULATION
                and (c.batch_size, c.adaptive_buffer, c.buffer_size)
                == (population.batch_size, population.adaptive_buffer, population.buffer_size)
            ]
            assert alike, name


def test_full_scale_is_the_papers() -> None:
    for config in distinct(FULL):
        assert (config.model, config.image_size) == ("resnet50", 224)
    polrs = RECIPES["learning-rate"].runs(setting(FULL))["PoLRS"]
    assert (polrs.polrs_every, polrs.lr, polrs.batch_size) == ("2000000", 0.05, 256)
    sizes = [c.buffer_size for c in RECIPES["buffer-size"].runs(setting(FULL)).values()]
    assert sizes == ["40000", "4000000", "39000000", "40000"]


def test_the_smallest_buffer_is_never_smaller_than_a_batch() -> None:
    assert setting().small_buffer == "64"
    long = Setting(FakeStream(FakeSplit(1_000_000)), "fake", QUICK)
    assert long.small_buffer == "1000"


def test_shift_trains_both_models_on_equally_many_photos() -> None:
    runs = RECIPES["shift"].runs(setting())
    assert runs["one year"].train_years == "2010"
    year = Setup(runs["one year"], SHORT).plan()
    whole = Setup(runs["whole range"], SHORT).plan()
    assert year.num_steps == whole.num_steps


def test_unknown_figures_are_refused_with_a_hint() -> None:
    with pytest.raises(DriftlineError, match="did you mean best-model"):
        chosen(["best-modle"])
    with pytest.raises(DriftlineError, match="which figure"):
        chosen([])
    assert [r.name for r in chosen(["all"])] == list(ALL)


# -- findings: the paper's world, its opposite, and ties


def by_rank(order: list[str], low: float = 0.3, step: float = 0.06) -> Callable[[str], float]:
    return lambda label: low + step * order.index(label)


def test_learning_rate(tmp_path: Path) -> None:
    online = by_rank(["cosine", "constant", "PoLRS", "constant, 3 steps"])
    transfer = by_rank(["constant, 3 steps", "constant", "PoLRS", "cosine"])
    paper = verdicts(
        tmp_path / "paper",
        "learning-rate",
        lambda label: Planted(online=(online(label),) * 3, past=transfer(label), future=transfer(label)),
    )
    assert paper == {
        "polrs-best-online": "held",
        "polrs-at-equal-compute": "did not hold",
        "cosine-worst-online": "held",
        "cosine-best-backward": "held",
        "cosine-transfer-at-2h3": "held",
    }
    opposite = verdicts(
        tmp_path / "opposite",
        "learning-rate",
        lambda label: Planted(online=(transfer(label),) * 3, past=online(label), future=online(label)),
    )
    assert set(opposite.values()) == {"did not hold"} | {opposite["polrs-at-equal-compute"]}
    assert opposite["polrs-at-equal-compute"] == "held"


@pytest.mark.parametrize("name", [n for n in WITH_RUNS if n not in ("tuning",)])
@pytest.mark.parametrize("seeds", [1, 3])
def test_no_claim_of_a_difference_holds_where_there_is_none(tmp_path: Path, name: str, seeds: int) -> None:
    found = verdicts(tmp_path, name, lambda _: Planted(), seeds)
    claims_of_likeness = {
        "adrep-near-best",
        "largest-buffer-comparable-at-h",
        "no-batch-effect-on-shuffled-data",
        "fifo-like-reservoir-small",
        "fifo-like-reservoir-middle",
        "whole-range-model-does-not-peak",
        "model-above-blind-above-chance",
    }
    for key, verdict in found.items():
        if key not in claims_of_likeness:
            assert verdict != "held", key


def test_the_best_buffer_size_moves(tmp_path: Path) -> None:
    moving = {
        buffer_size.SMALL: Planted(online=(0.45, 0.40, 0.30), acc_stream=0.3, acc_replay=0.9),
        buffer_size.MIDDLE: Planted(online=(0.40, 0.42, 0.45), acc_stream=0.5, acc_replay=0.4),
        buffer_size.LARGE: Planted(online=(0.35, 0.40, 0.44), acc_stream=0.5, acc_replay=0.3),
        buffer_size.ADREP: Planted(online=(0.45, 0.42, 0.45), buffer=(64, 4096)),
    }
    assert set(verdicts(tmp_path / "paper", "buffer-size", moving.__getitem__).values()) == {"held"}
    still = {
        buffer_size.SMALL: steady(0.2, acc_replay=0.1),
        buffer_size.MIDDLE: steady(0.4, acc_replay=0.5),
        buffer_size.LARGE: steady(0.5, acc_replay=0.6),
        buffer_size.ADREP: steady(0.3, buffer=(64, 8)),
    }
    assert set(verdicts(tmp_path / "opposite", "buffer-size", still.__getitem__).values()) == {"did not hold"}


def test_transfer_of_buffers(tmp_path: Path) -> None:
    good = {"R 0.1 %": 0.3, "R 10 %": 0.5, "R 100 %": 0.4, "ADRep": 0.3}
    found = verdicts(tmp_path, "transfer-of-buffers", lambda label: steady(good[label]))
    assert found == {
        "largest-buffer-not-best": "held",
        "largest-buffer-comparable-at-h": "did not hold",
        "adrep-transfers-worse": "held",
    }


@pytest.mark.parametrize(("sign", "expected"), [(-1, "held"), (1, "did not hold")])
def test_batch_size(tmp_path: Path, sign: int, expected: str) -> None:
    def plant(label: str) -> Planted:
        rank = (64, 128, 256).index(int(label.split(",")[0].split()[1]))
        return steady(0.5 + sign * 0.08 * rank, loss=2.0 - sign * 0.2 * rank)

    assert set(verdicts(tmp_path, "batch-size", plant).values()) == {expected}


def test_batch_size_on_shuffled_data(tmp_path: Path) -> None:
    name = "batch-size-supervised"
    same = {f"B {b}, shuffled": 0.4 for b in (64, 128, 256)}
    assert set(verdicts(tmp_path / "same", name, lambda k: steady(same[k])).values()) <= {"held", "undecided"}
    apart = {f"B {b}, shuffled": 0.6 - b / 1000 for b in (64, 128, 256)}
    assert set(verdicts(tmp_path / "apart", name, lambda k: steady(apart[k])).values()) == {"did not hold"}


def test_fifo_against_reservoir(tmp_path: Path) -> None:
    found = verdicts(
        tmp_path, "fifo-vs-reservoir", lambda k: steady(0.2 if k == "reservoir 0.1 %" else 0.6, loss=1.0)
    )
    assert found["fifo-like-reservoir-small"] == "did not hold"
    assert found["fifo-like-reservoir-middle"] in ("held", "undecided")


def test_best_model(tmp_path: Path) -> None:
    accuracy = {
        "OCL, 1 GD step": 0.45,
        "OCL, 5 GD steps": 0.55,
        "one model, 3 GD steps": 0.50,
        "one model, 15 GD steps": 0.60,
        "SL, 1 epoch": 0.35,
        "SL, 5 epochs": 0.40,
    }
    paper = verdicts(tmp_path / "a", "best-model", lambda k: steady(accuracy[k]))
    assert paper["online-above-supervised"] == "held"
    assert paper["best-model-at-equal-compute"] == "did not hold"
    assert paper["more-steps-help"] == "held"
    turned = verdicts(tmp_path / "b", "best-model", lambda k: steady(0.9 - accuracy[k]))
    assert turned["online-above-supervised"] == "did not hold"
    assert turned["best-model-at-equal-compute"] == "held"


@pytest.mark.parametrize(("online", "expected"), [(0.7, "held"), (0.3, "did not hold")])
def test_geolocation(tmp_path: Path, online: float, expected: str) -> None:
    found = verdicts(
        tmp_path, "geolocation", lambda k: Planted(within=online if k.startswith("OCL") else 0.5)
    )
    assert found == {"online-closer": expected}


def test_shift(tmp_path: Path) -> None:
    def drops(label: str) -> Planted:
        return Planted(past=0.2, year=0.6) if label == "one year" else Planted(past=0.4, year=0.4)

    found = verdicts(tmp_path / "paper", "shift", drops)
    assert found["one-year-model-drops"] == "held"
    assert found["whole-range-model-does-not-peak"] != "did not hold"

    def peaks(label: str) -> Planted:
        return Planted(past=0.3, year=0.1) if label == "one year" else Planted(past=0.3, year=0.6)

    assert set(verdicts(tmp_path / "opposite", "shift", peaks).values()) == {"did not hold"}


def test_tuning_says_whether_the_rates_in_use_are_near_the_best(tmp_path: Path) -> None:
    best = f"{QUICK.online['lr']:g}"
    good = verdicts(tmp_path / "a", "tuning", lambda k: steady(0.5 if k.endswith(f" {best}") else 0.3))
    assert good["rate-online"] == "held"
    bad = verdicts(tmp_path / "b", "tuning", lambda k: steady(0.3 if k.endswith(f" {best}") else 0.5))
    assert bad["rate-online"] == "did not hold"
