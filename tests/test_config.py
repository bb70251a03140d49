"""Settings: amounts, files, and combinations that cannot be, each refused with the value and the fix."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.config import RunConfig, amount, from_dict, from_toml, read_config, share_of
from driftline.types import DriftlineError


@given(st.integers(1, 10**9), st.integers(1, 10**9))
def test_counts_are_taken_as_they_are(count, total):
    assert amount(str(count), total) == count
    assert amount(f"{count:_}", total) == count
    assert share_of(str(count)) is None


@given(st.integers(1, 1000), st.integers(1, 1000), st.integers(1, 10**8))
def test_shares_are_of_the_stream_however_they_are_written(numerator, denominator, total):
    share = Fraction(min(numerator, denominator), max(numerator, denominator))
    expected = max(1, round(share * total))
    assert amount(f"{share.numerator}/{share.denominator}", total) == (
        expected if share.denominator > 1 else max(1, total)
    )
    if 100 * share == int(100 * share):
        assert amount(f"{int(100 * share)}%", total) == expected


@pytest.mark.parametrize(
    "text", ["", "a", "-3", "0.0", "0%", "120%", "1.5", "3/2", "1/0", "nan", "inf", "10 %%", "%", "²²"]
)
def test_what_is_no_amount_is_refused_by_name(text):
    with pytest.raises(DriftlineError, match=r"buffer_size = .*neither a number of samples"):
        amount(text, 1000, name="buffer_size")


def test_the_linear_rule_scales_the_rate_with_the_batch():
    rates = [RunConfig(lr=0.05, batch_size=b).scaled_lr for b in (64, 128, 256)]
    assert rates == pytest.approx([0.0125, 0.025, 0.05])


def test_automatic_settings_follow_the_paper():
    online, offline = RunConfig(), RunConfig(learner="supervised")
    assert (online.schedule, online.lr) == ("constant", 0.05)
    assert (offline.schedule, offline.lr) == ("cosine", 0.025)
    assert RunConfig(learner="supervised", schedule="constant", lr=0.3).lr == 0.3


IMPOSSIBLE = [
    ({"batch_size": 0}, r"batch_size = 0: must be at least 1"),
    ({"gd_steps": 0}, r"gd_steps = 0"),
    ({"workers": 0}, r"workers = 0"),
    ({"test_every": -1}, r"test_every = -1"),
    ({"epochs_baseline": 0}, r"epochs_baseline = 0"),
    ({"limit": 0}, r"limit = 0"),
    ({"image_size": -5}, r"image_size = -5: must be at least 1"),
    ({"learner": "supervised", "train_samples": 0}, r"train_samples = 0: must be at least 1"),
    ({"lr": -1.0}, r"lr = -1.0: must be a positive number"),
    ({"lr": float("nan")}, r"lr = nan"),
    ({"lr": float("inf")}, r"lr = inf"),
    ({"momentum": 1.0}, r"momentum = 1.0"),
    ({"weight_decay": -0.1}, r"weight_decay = -0.1"),
    ({"crop_scale": 0.0}, r"crop_scale = 0.0"),
    ({"replay_ratio": 0.0}, r"replay_ratio = 0.0: .*--replay none"),
    ({"replay_ratio": float("inf")}, r"replay_ratio = inf"),
    ({"polrs_factor": 1.0}, r"polrs_factor = 1.0"),
    ({"polrs_factor": float("inf")}, r"polrs_factor = inf"),
    ({"adrep_epsilon": 5.0}, r"adrep_epsilon = 5.0: is a difference of accuracies, 0.005 is half a point"),
    ({"max_bad_share": 2.0}, r"max_bad_share = 2.0: is a share"),
    ({"seed": -1}, r"seed = -1"),
    ({"seed": 2**63}, r"seed = 9223372036854775808: .*less than 2\*\*63"),
    ({"checkpoint_seconds": 0.0}, r"checkpoint_seconds = 0.0"),
    ({"buffer_size": "0"}, r"buffer_size = 0: must be at least 1 sample"),
    ({"polrs_every": "often"}, r"polrs_every = 'often' is neither"),
    ({"learner": "ewc"}, r"learner = 'ewc': choose one of er, none, supervised"),
    ({"schedule": "linear"}, r"schedule = 'linear': choose one of constant, cosine, polrs"),
    ({"replay": "lifo"}, r"replay = 'lifo': choose one of fifo, reservoir, ring, none"),
    ({"norm": "layer"}, r"norm = 'layer': choose one of group, batch"),
    ({"precision": "float16"}, r"precision = 'float16': choose one of auto, float32, bfloat16"),
    ({"replay": "none", "replay_ratio": 2.0}, r"replay_ratio = 2.0 with replay = none: choose a buffer"),
    ({"adaptive_buffer": True, "replay": "reservoir"}, r"adaptive_buffer with replay = reservoir: .*--replay fifo"),
    ({"adaptive_buffer": True, "learner": "supervised"}, r"adaptive_buffer with learner = supervised: .*--learner er"),
    ({"schedule": "polrs", "polrs_members": 1}, r"polrs_members = 1: a population needs at least 2"),
    ({"schedule": "polrs", "learner": "supervised"}, r"schedule = polrs with learner = supervised: .*--learner er"),
    ({"train_years": "2010"}, r"train_years with learner = er: only --learner supervised"),
    ({"train_samples": 100}, r"train_samples with learner = er: only --learner supervised"),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "message"), IMPOSSIBLE, ids=lambda value: str(value)[:40])
def test_what_cannot_be_is_refused_with_the_value_and_the_fix(settings, message):
    with pytest.raises(DriftlineError, match=message):
        RunConfig(**settings)


settings_of_all_kinds = st.fixed_dictionaries(
    {},
    optional={
        "lr": st.floats(1e-6, 10),
        "seed": st.integers(0, 2**63 - 1),
        "buffer_size": st.sampled_from(["40000", "10%", "0.25", "1/18"]),
        "adaptive_buffer": st.booleans(),
        "limit": st.none() | st.integers(1, 10**9),
        "stream": st.text(min_size=1, max_size=20).filter(str.isprintable),
        "log": st.sampled_from([(), ("tensorboard",)]),
        "schedule": st.sampled_from(["constant", "cosine", "polrs"]),
    },
)


@given(settings_of_all_kinds)
def test_a_config_survives_its_file(settings):
    config = RunConfig(**settings)
    assert from_toml(config.to_toml()) == config
    assert from_toml(config.to_toml()).digest() == config.digest()


OTHER: dict[str, Any] = {
    "stream": "elsewhere", "model": "resnet18", "norm": "batch", "learner": "none", "schedule": "cosine", "lr": 0.1,
    "momentum": 0.5, "weight_decay": 0.1, "batch_size": 65, "gd_steps": 2, "replay": "reservoir", "buffer_size": "20%",
    "adaptive_buffer": True, "replay_ratio": 2.0, "polrs_every": "1/7", "polrs_members": 4, "polrs_factor": 3.0,
    "adrep_every": "1/7", "adrep_epsilon": 0.1, "test_every": 100, "epochs_baseline": 2, "train_years": "2010",
    "train_samples": 5, "limit": 10, "image_size": 64, "crop_scale": 0.5, "seed": 1, "device": "cpu", "precision": "float32",
    "parallel": "data", "workers": 3, "checkpoint_every": "1/7", "checkpoint_seconds": 5.0, "max_bad_share": 0.5, "log": ("tensorboard",),
}  # fmt: skip
CARRIED_OUT = {"parallel", "workers", "checkpoint_every", "checkpoint_seconds", "log", "max_bad_share"}


@pytest.mark.parametrize("field", [f.name for f in dataclasses.fields(RunConfig)])
def test_the_digest_changes_with_every_setting_that_can_change_a_result(field):
    learner = "supervised" if field.startswith("train_") else "er"
    base, changed = {"learner": learner}, {"learner": learner, field: OTHER[field]}
    same = RunConfig(**base).digest() == RunConfig(**changed).digest()
    assert same == (field in CARRIED_OUT)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lr = ", r"bad.toml: not valid TOML"),
        ("learning_rate = 1", r"bad.toml: unknown setting 'learning_rate'; the settings are .*lr"),
        ("batch_size = 1.5", r"bad.toml: batch_size = 1.5 is not of type int"),
        ("batch_size = true", r"bad.toml: batch_size = True is not of type int"),
        ("adaptive_buffer = 1", r"bad.toml: adaptive_buffer = 1 is not of type bool"),
        ("norm = 'layer'", r"norm = 'layer': choose one of"),
        ("precision = 'half'", r"precision = 'half': choose one of"),
        ("log = 'tensorboard'", r"bad.toml: log = 'tensorboard' is not of type tuple"),
        ("log = ['wandb']", r"log = 'wandb': choose from tensorboard"),
        ("[lr]\nvalue = 1", r"bad.toml: lr = .* is not of type float"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(tmp_path, text, message):
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(DriftlineError, match=message):
        read_config(path)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    for path in (tmp_path / "missing.toml", tmp_path):
        with pytest.raises(DriftlineError, match=r"cannot read the config"):
            read_config(path)
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DriftlineError, match=r"cannot read the config"):
        read_config(tmp_path / "binary.toml")


def test_numbers_in_a_file_stand_for_amounts():
    assert from_dict({"buffer_size": 40_000, "polrs_every": 0.1}).buffer_size == "40000"
    assert from_dict({"lr": 1}).lr == 1.0
