"""Every variant of the learner keeps every promise of `learners.checks`, and a broken promise is noticed."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn

from driftline.learners import checks
from driftline.learners.replay import Arithmetic, ReplayLearner
from driftline.learners.schedules import RateSearch, constant, cosine
from driftline.models.resnet import ResNet


def small_model(norm):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return ResNet(checks.NUM_CLASSES, widths=(8, 16), depths=(1, 1), expansion=1, norm=norm, small=True)


def make(norm="group", schedule="constant", precision="float32", momentum=0.9):
    rate = {
        "constant": lambda step: constant(0.02, step, 10),
        "cosine": lambda step: cosine(0.02, step, 100),
        "polrs": RateSearch(lr=0.02, num_members=3, factor=2.0, every_steps=2),
    }[schedule]
    return ReplayLearner(
        partial(small_model, norm),
        arithmetic=Arithmetic.choose("cpu", precision),
        size=checks.SIZE,
        momentum=momentum,
        weight_decay=1e-4,
        rate=rate,
    )


VARIANTS = {
    "plain": {},
    "batch norm": {"norm": "batch"},
    "cosine": {"schedule": "cosine"},
    "polrs": {"schedule": "polrs"},
    "polrs with batch norm": {"schedule": "polrs", "norm": "batch"},
    "bfloat16": {"precision": "bfloat16"},
    "without momentum": {"momentum": 0.0},
}


@pytest.mark.parametrize("check", checks.CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_keeps_every_promise(variant, check):
    check(partial(make, **VARIANTS[variant]))


class Broken(ReplayLearner):
    """A learner to derive broken ones from."""

    def __init__(self):
        whole = make(schedule="cosine")
        self.__dict__.update(whole.__dict__)


class PredictsInTrainMode(Broken):
    def _forward(self, pixels, index, rows):
        return self.members[index].model.train()(pixels[rows]).float()


class NormalisesOverTheBatch(Broken):
    def predict(self, images):
        logits = super().predict(images)
        return logits - logits.mean(dim=0)


class LearnsWhilePredicting(Broken):
    def predict(self, images):
        with torch.no_grad():
            next(iter(self.members[0].model.parameters())).mul_(0.99)
        return super().predict(images)


class DropsAtRandom(Broken):
    def learn(self, batch, step):
        for parameter in self.members[0].model.parameters():
            parameter.data.add_(1e-4 * torch.rand_like(parameter))
        return super().learn(batch, step)


class ForgetsMomentum(Broken):
    def load(self, state):
        super().load(state)
        self.members[0].forget_momentum()


class SharesItsState(Broken):
    def state(self):
        return super().state() | {"models": [self.members[0].model.state_dict()]}


class SharesItsWeights(Broken):
    def weights(self):
        return self.members[0].model.state_dict()


class KeepsAClassInItsState(Broken):
    def state(self):
        return super().state() | {"extra": nn.Linear(1, 1)}


class NeverLearns(Broken):
    def learn(self, batch, step):
        state = self.state()
        result = super().learn(batch, step)
        self.load(state)
        return result


class ReportsReplayThatWasNot(Broken):
    def learn(self, batch, step):
        return replace(super().learn(batch, step), acc_replay=0.0)


class TwoRates(Broken):
    @property
    def rates(self):
        return [0.1, 0.2]


@pytest.mark.parametrize(
    ("broken", "check"),
    [
        (PredictsInTrainMode, checks.check_predictions_are_logits),
        (NormalisesOverTheBatch, checks.check_images_are_predicted_one_by_one),
        (LearnsWhilePredicting, checks.check_predicting_changes_nothing),
        (DropsAtRandom, checks.check_same_seed_same_result),
        (ReportsReplayThatWasNot, checks.check_learning_is_reported),
        (NeverLearns, checks.check_it_learns),
        (TwoRates, checks.check_members_are_described),
        (ForgetsMomentum, checks.check_state_round_trips),
        (SharesItsState, checks.check_state_round_trips),
        (KeepsAClassInItsState, checks.check_state_round_trips),
        (SharesItsWeights, checks.check_weights_round_trip),
    ],
)
def test_a_broken_promise_is_noticed(broken, check):
    with pytest.raises(AssertionError):
        check(broken)


def test_every_check_has_been_seen_to_fail():
    marks = test_a_broken_promise_is_noticed.pytestmark[0].args[1]
    assert {check for _, check in marks} == set(checks.CHECKS)
