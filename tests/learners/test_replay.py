"""Experience replay and PoLRS do the arithmetic of the protocol: compared with SGD written out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from driftline.learners import checks
from driftline.learners.base import TrainBatch
from driftline.learners.replay import MEAN, STD, Arithmetic, ReplayLearner
from driftline.learners.schedules import RateSearch, cosine
from driftline.models.resnet import ResNet
from driftline.streams.fetch import TrainView
from driftline.streams.views import crop_batch
from driftline.types import DriftlineError

MOMENTUM, DECAY = 0.9, 1e-2
PIXELS = 3 * 4 * 4


def linear_model():
    """Four by four pixels in, six classes out: small enough to do by hand."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        return nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(PIXELS, checks.NUM_CLASSES))


def learner_with(rate, build=linear_model):
    return ReplayLearner(
        build,
        arithmetic=Arithmetic.choose("cpu", "float32"),
        size=checks.SIZE,
        momentum=MOMENTUM,
        weight_decay=DECAY,
        rate=rate,
    )


class ByHand:
    """A linear model in NumPy, in double precision, with the update of SGD spelt out."""

    def __init__(self):
        layer = linear_model()[2]
        self.weight = layer.weight.detach().double().numpy().copy()
        self.bias = layer.bias.detach().double().numpy().copy()
        self.velocity = None

    def logits(self, images):
        """Images are uint8 or cut float tensors, 32 x 32."""
        pixels = (images.double().numpy() - MEAN) / STD
        means = pixels.reshape(len(pixels), 3, 4, 8, 4, 8).mean(axis=(3, 5)).reshape(len(pixels), -1)
        return means @ self.weight.T + self.bias, means

    def update(self, images, labels, num_stream, lr):
        """One gradient step; the loss and the accuracies before it."""
        logits, means = self.logits(images)
        labels = labels.numpy()
        shifted = logits - logits.max(axis=1, keepdims=True)
        probabilities = np.exp(shifted) / np.exp(shifted).sum(axis=1, keepdims=True)
        rows = np.arange(len(labels))
        cross_entropy = -np.log(probabilities[rows, labels])
        error = probabilities.copy()
        error[rows, labels] -= 1
        stream, replay = slice(0, num_stream), slice(num_stream, None)
        if len(labels) > num_stream:
            loss = 0.5 * cross_entropy[stream].mean() + 0.5 * cross_entropy[replay].mean()
            error[stream] *= 0.5 / num_stream
            error[replay] *= 0.5 / (len(labels) - num_stream)
        else:
            loss = cross_entropy.mean()
            error /= num_stream
        gradient = [error.T @ means + DECAY * self.weight, error.sum(axis=0) + DECAY * self.bias]
        if self.velocity is None:
            self.velocity = gradient
        else:
            self.velocity = [MOMENTUM * v + g for v, g in zip(self.velocity, gradient, strict=True)]
        self.weight = self.weight - lr * self.velocity[0]
        self.bias = self.bias - lr * self.velocity[1]
        right = logits.argmax(axis=1) == labels
        return loss, right[stream].mean(), right[replay].mean() if len(labels) > num_stream else None

    def learn(self, batch, lr):
        """All gradient steps on a batch; what the first one showed."""
        shown = [
            self.update(crop_batch(view.images, view.crops, checks.SIZE), batch.labels, batch.num_stream, lr)
            for view in batch.views
        ]
        return shown[0]

    def copy_of(self, other):
        self.weight, self.bias, self.velocity = other.weight.copy(), other.bias.copy(), None


def assert_same_weights(learner, j, by_hand):
    layer = learner.members[j].model[2]
    np.testing.assert_allclose(layer.weight.detach().numpy(), by_hand.weight, rtol=2e-4, atol=2e-5)
    np.testing.assert_allclose(layer.bias.detach().numpy(), by_hand.bias, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize(("num_replay", "gd_steps"), [(12, 1), (0, 1), (5, 1), (30, 1), (12, 5), (0, 2)])
def test_one_member_is_sgd_on_half_stream_and_half_replay(num_replay, gd_steps):
    learner, by_hand = learner_with(lambda step: 0.05), ByHand()
    for step in range(4):
        batch = checks.train_batch(step, num_replay=num_replay, gd_steps=gd_steps)
        images, _ = checks.images_of(step)
        np.testing.assert_allclose(
            learner.predict(images).numpy(), by_hand.logits(images)[0], rtol=1e-3, atol=1e-4
        )
        result = learner.learn(batch, step)
        loss, acc_stream, acc_replay = by_hand.learn(batch, 0.05)
        assert result.loss == pytest.approx(loss, rel=1e-4)
        assert result.acc_stream == pytest.approx(acc_stream)
        assert result.acc_replay == (None if acc_replay is None else pytest.approx(acc_replay))
        assert_same_weights(learner, 0, by_hand)


def test_every_gradient_step_sees_its_own_view_and_all_of_them_count():
    batch = checks.train_batch(0, gd_steps=3)
    boxes = [view.crops.boxes for view in batch.views]
    assert not np.array_equal(boxes[0], boxes[1])
    once, thrice = learner_with(lambda step: 0.05), learner_with(lambda step: 0.05)
    for learner, views in ((once, batch.views[:1]), (thrice, batch.views)):
        learner.predict(checks.images_of(0)[0])
        learner.learn(TrainBatch(views, batch.labels, batch.num_stream), 0)
    change = [
        (learner.members[0].model[2].weight - linear_model()[2].weight).abs().sum().item()
        for learner in (once, thrice)
    ]
    assert change[1] > 2 * change[0]


def test_cosine_rates_are_used_step_by_step():
    learner, by_hand = learner_with(lambda step: cosine(0.1, step, 5)), ByHand()
    for step in range(5):
        batch = checks.train_batch(step)
        learner.predict(checks.images_of(step)[0])
        expected = 0.05 * (1 + math.cos(math.pi * step / 5))
        assert learner.learn(batch, step).rates == pytest.approx((expected,))
        by_hand.learn(batch, expected)
        assert_same_weights(learner, 0, by_hand)


@pytest.mark.parametrize(
    ("num_members", "factor", "gd_steps"), [(3, 2.0, 1), (3, 2.0, 2), (4, 3.0, 1), (2, 1.5, 1)]
)
def test_a_population_is_algorithm_1_by_hand(num_members, factor, gd_steps):
    """Every line of Alg. 1 with real models: predictions, rates, metrics, copies and fresh momentum."""
    interval, lr, middle = 3, 0.02, num_members // 2
    learner = learner_with(RateSearch(lr=lr, num_members=num_members, factor=factor, every_steps=interval))
    members = [ByHand() for _ in range(num_members)]
    rates = [lr * factor ** (middle - j) for j in range(num_members)]
    history = [[] for _ in range(num_members)]
    best = middle
    chosen = []
    for step in range(4 * interval):
        images, labels = checks.images_of(step)
        batch = checks.train_batch(step, gd_steps=gd_steps)
        # Test on X_t with j*.
        assert learner.member == best
        assert learner.rates == pytest.approx(rates)
        assert learner.metrics == pytest.approx([np.mean(h) if h else 0.0 for h in history])
        np.testing.assert_allclose(
            learner.predict(images).numpy(), members[best].logits(images)[0], rtol=1e-3, atol=1e-3
        )
        # Update all members and their metrics (the accuracy of each on X_t before its update).
        for j, member in enumerate(members):
            history[j].append(float((member.logits(images)[0].argmax(axis=1) == labels.numpy()).mean()))
        shown = [member.learn(batch, rates[j]) for j, member in enumerate(members)]
        result = learner.learn(batch, step)
        assert result.loss == pytest.approx(shown[best][0], rel=1e-3)
        assert result.acc_stream == pytest.approx(shown[best][1])
        assert result.acc_replay == pytest.approx(shown[best][2])
        assert result.rates == pytest.approx(rates)
        # Choose j* for the next step; every N steps copy it, with new rates.
        metrics = [round(float(np.mean(h)), 9) for h in history]
        best = middle if metrics[middle] == max(metrics) else metrics.index(max(metrics))
        if (step + 1) % interval == 0:
            for j in range(num_members):
                if j != best:
                    members[j].copy_of(members[best])
            members[best].velocity = None
            rates = [rates[best] * factor ** (middle - j) for j in range(num_members)]
            history = [[] for _ in range(num_members)]
            chosen.append(best)
            best = middle
        for j in range(num_members):
            assert_same_weights(learner, j, members[j])
    assert set(chosen) != {middle}, "the search never moved: this test would not see a wrong copy"


def test_a_member_that_diverged_is_not_chosen_and_is_replaced_at_the_next_copy():
    learner = learner_with(RateSearch(lr=3.0, num_members=3, factor=1e38, every_steps=4))
    for step in range(4):
        checks.take_step(learner, step)
        assert learner.member != 0
    for member in learner.members:
        assert all(torch.isfinite(p).all() for p in member.model.parameters())


def test_views_that_are_already_cut_are_used_as_they_are():
    cut, uncut = learner_with(lambda step: 0.05), learner_with(lambda step: 0.05)
    batch = checks.train_batch(0)
    view = batch.views[0]
    small = crop_batch(view.images, view.crops, checks.SIZE)
    for learner, views in ((uncut, [view]), (cut, [TrainView(small, None)])):
        learner.predict(checks.images_of(0)[0])
        learner.learn(TrainBatch(views, batch.labels, batch.num_stream), 0)
    pixels = cut._pixels(TrainView(small, None), slice(None))
    assert torch.equal(pixels, small.sub(MEAN).div(STD))
    assert_close(cut.state()["models"], uncut.state()["models"])  # scaled within the crop: other roundings


def test_sixteen_bit_arithmetic_stays_near_the_exact_one():
    exact = learner_with(lambda step: 0.05)
    short = ReplayLearner(
        linear_model,
        arithmetic=Arithmetic.choose("cpu", "bfloat16"),
        size=checks.SIZE,
        momentum=MOMENTUM,
        weight_decay=DECAY,
        rate=lambda step: 0.05,
    )
    for step in range(5):
        (_, a), (_, b) = checks.take_step(exact, step), checks.take_step(short, step)
        assert a.loss == pytest.approx(b.loss, rel=0.05)
    assert short.members[0].model[2].weight.dtype == torch.float32


def small_resnet():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return ResNet(
            checks.NUM_CLASSES, widths=(8, 16), depths=(1, 1), expansion=1, norm="group", small=True
        )


@pytest.mark.parametrize("gd_steps", [1, 3])
def test_what_is_expected_shares_a_forward_pass_and_changes_nothing(gd_steps, monkeypatch):
    told, untold = (learner_with(lambda step: 0.05, small_resnet) for _ in range(2))
    by_autograd = learner_with(lambda step: 0.05, small_resnet)
    [member] = by_autograd.members
    member.training, member.by_hand = member.model, False
    seen = []
    passes = told.members[0].training

    def noted(pixels, num_predicted, lower):
        seen.append((len(pixels), num_predicted))
        return passes(pixels, num_predicted, lower)

    monkeypatch.setattr(told.members[0], "training", noted)
    for step in range(5):
        batch, images = checks.train_batch(step, gd_steps=gd_steps), checks.images_of(step)[0]
        told.expect(batch.views[0])
        logits = [learner.predict(images) for learner in (told, untold, by_autograd)]
        results = [learner.learn(batch, step) for learner in (told, untold, by_autograd)]
        for other in (1, 2):
            assert_close(logits[0], logits[other], rtol=1e-3, atol=1e-4)
            assert results[0].loss == pytest.approx(results[other].loss, rel=1e-4)
    shared, alone = (3 * checks.BATCH, checks.BATCH), (2 * checks.BATCH, 0)
    assert seen == ([shared] + [alone] * (gd_steps - 1)) * 5
    for other in (untold, by_autograd):
        assert_close(told.state()["models"], other.state()["models"], rtol=1e-3, atol=1e-4)


def test_what_was_expected_and_did_not_come_is_forgotten():
    """Other images than announced, or other weights in between: nothing of the shared pass may be used."""
    told, untold = (learner_with(lambda step: 0.05, small_resnet) for _ in range(2))
    kept = untold.weights()
    for learner in (told, untold):
        checks.take_step(learner, 0)
    batch, announced = checks.train_batch(1), checks.train_batch(2)
    told.expect(announced.views[0])
    for learner in (told, untold):
        learner.predict(checks.images_of(1)[0])
        learner.learn(batch, 1)
    assert checks.same(told.state(), untold.state())
    told.expect(announced.views[0])
    for learner in (told, untold):
        learner.predict(checks.images_of(2)[0])
        learner.load_weights(kept)
        learner.learn(announced, 2)
    assert checks.same(told.state(), untold.state())


def test_many_large_images_are_predicted_by_themselves():
    """Their activations would fill the memory."""
    learner = learner_with(lambda step: 0.05, small_resnet)
    for size, shares in ((32, True), (224, True), (1024, False)):  # 24 images to learn from
        learner.size = size
        learner.expect(checks.train_batch(0).views[0])
        assert (learner._expected is not None) == shares


@pytest.mark.parametrize("device", ["gpu", "cuda:x", "mps", "meta", ""])
def test_a_device_that_cannot_be_used_is_refused(device):
    with pytest.raises(DriftlineError, match=r"device = .*(choose|use --device)"):
        Arithmetic.choose(device, "float32")


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_gpu_that_is_not_there_is_refused():
    with pytest.raises(DriftlineError, match="no usable GPU, use --device cpu"):
        Arithmetic.choose("cuda", "auto")
