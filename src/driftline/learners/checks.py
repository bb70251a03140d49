"""Checks that every learner must pass, ours and yours: `check_learner(make)` runs them all.

In: a function that makes a new learner for images of 32 pixels and 6 classes. Out: nothing, or an AssertionError that says
which promise was broken. The promises are those the engine relies on: predicting leaves no trace, equal learners fed alike stay
equal to the bit, and a state or weights taken out and put back, also through a file, change nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from driftline.learners.base import Learner, LearnResult, LooksAhead, TrainBatch
from driftline.streams.fetch import TrainView
from driftline.streams.views import random_crops

MakeLearner = Callable[[], Learner]
"""Makes a learner for images of SIZE x SIZE pixels and NUM_CLASSES classes; each call must give an equal one."""

SIZE = 32
NUM_CLASSES = 6
BATCH = 12
NUM_STEPS = 4


def images_of(key: int, num: int = BATCH) -> tuple[Tensor, Tensor]:
    """Made-up uint8 images N x 3 x SIZE x SIZE whose brightness tells their class, and their labels.

    >>> images, labels = images_of(0)
    >>> images.dtype, tuple(images.shape), int(labels.max()) < NUM_CLASSES
    (torch.uint8, (12, 3, 32, 32), True)
    """
    rng = np.random.default_rng(key)
    labels = rng.integers(NUM_CLASSES, size=num)
    noise = rng.integers(0, 60, size=(num, SIZE, SIZE, 3))
    images = (labels[:, None, None, None] * 30 + noise).astype(np.uint8)
    return torch.from_numpy(images).permute(0, 3, 1, 2), torch.from_numpy(labels)


def train_batch(
    step: int, *, num_replay: int = BATCH, gd_steps: int = 1, cut_by_learner: bool = True
) -> TrainBatch:
    """One step's training data as the engine hands it out: the stream's samples of `images_of(step)`, then replayed ones.

    >>> batch = train_batch(3, num_replay=4)
    >>> batch.num_stream, len(batch.labels), len(batch.views)
    (12, 16, 1)
    """
    stream, stream_labels = images_of(step)
    replay, replay_labels = images_of(1000 + step, num_replay)
    images = torch.cat([stream, replay])
    positions = np.arange(len(images)) + step * BATCH
    views = [
        TrainView(
            images,
            random_crops(0, step, g, positions, np.ones(len(images)), 0.5) if cut_by_learner else None,
        )
        for g in range(gd_steps)
    ]
    return TrainBatch(views, torch.cat([stream_labels, replay_labels]), len(stream))


def take_step(learner: Learner, step: int) -> tuple[Tensor, LearnResult]:
    """Test, then train, as the engine does."""
    batch = train_batch(step)
    if isinstance(learner, LooksAhead):
        learner.expect(batch.views[0])
    logits = learner.predict(images_of(step)[0])
    return logits.clone(), learner.learn(batch, step)


def same(a: object, b: object) -> bool:
    """Whether two states are equal to the bit; NaN equals NaN.

    >>> same({"w": [torch.ones(2)], "n": 1}, {"w": [torch.ones(2)], "n": 1})
    True
    """
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.dtype == b.dtype and torch.equal(torch.nan_to_num(a), torch.nan_to_num(b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a):
        return math.isnan(b)
    return type(a) is type(b) and a == b


def through_a_file(state: Any) -> Any:
    """A copy of a state as a checkpoint makes it; refuses what a checkpoint cannot hold, since nothing in it may run code.

    >>> through_a_file({"step": 3, "weights": torch.ones(2)})
    {'step': 3, 'weights': tensor([1., 1.])}
    """
    if isinstance(state, Tensor):
        return state.detach().cpu().clone()
    if isinstance(state, dict):
        assert all(isinstance(key, str) for key in state), f"the keys of a state are texts, not {list(state)}"
        return {key: through_a_file(value) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(through_a_file(value) for value in state)
    assert state is None or isinstance(state, bool | int | float | str), (
        f"a state holds tensors, numbers, texts, lists and dicts, not {type(state).__name__}"
    )
    return state


# -- the promises, one function each


def check_predictions_are_logits(make: MakeLearner) -> None:
    """One finite float32 number for each image and class, whatever the number of images."""
    learner = make()
    for num in (1, 5, BATCH):
        logits = learner.predict(images_of(0, num)[0])
        assert logits.shape == (num, NUM_CLASSES), (
            f"logits of shape {tuple(logits.shape)}, not {(num, NUM_CLASSES)}"
        )
        assert logits.dtype == torch.float32, f"logits are {logits.dtype}, not float32"
        assert bool(torch.isfinite(logits).all()), "a new learner predicts non-finite numbers"
        assert not logits.requires_grad, "predictions carry a graph: predict under torch.no_grad()"


def check_images_are_predicted_one_by_one(make: MakeLearner) -> None:
    """What is predicted for an image does not depend on the images beside it."""
    learner = make()
    take_step(learner, 0)
    images, _ = images_of(1)
    together = learner.predict(images)
    alone = torch.cat([learner.predict(image[None]) for image in images])
    # Other kernels may serve other batch sizes, so that equal means equal up to 16-bit arithmetic.
    difference = float((together - alone).abs().max() / together.abs().max())
    assert difference < 0.1, f"predictions depend on the rest of the batch: they differ by {difference:.0%}"


def check_predicting_changes_nothing(make: MakeLearner) -> None:
    """A learner that predicted more than another goes on exactly like it."""
    asked, left_alone = make(), make()
    for step in range(NUM_STEPS):
        before = asked.member
        for key in range(3):
            asked.predict(images_of(500 + key)[0])
        assert asked.member == before, "predicting changed the member that predicts"
        assert same(asked.state(), left_alone.state()), "predicting changed the state"
        assert same(take_step(asked, step), take_step(left_alone, step)), "predicting changed later results"


def check_same_seed_same_result(make: MakeLearner) -> None:
    """Two learners made and fed alike stay equal to the bit, whatever else draws random numbers."""
    first, second = make(), make()
    for step in range(NUM_STEPS):
        one = take_step(first, step)
        torch.rand(step + 1)
        assert same(one, take_step(second, step)), f"equal learners differ after step {step}"
    assert same(first.state(), second.state()), "equal learners have different states"


def check_learning_is_reported(make: MakeLearner) -> None:
    """Loss and accuracies of a step, with replay and without; also where the views are already cut."""
    learner = make()
    batches = [
        train_batch(0),
        train_batch(1, num_replay=0),
        train_batch(2, num_replay=5, gd_steps=3),
        train_batch(3, cut_by_learner=False),
    ]
    for step, batch in enumerate(batches):
        learner.predict(images_of(step)[0])
        result = learner.learn(batch, step)
        assert math.isfinite(result.loss), f"the loss is {result.loss}"
        assert 0 <= result.acc_stream <= 1, f"acc_stream is {result.acc_stream}"
        has_replay = len(batch.labels) > batch.num_stream
        assert (result.acc_replay is not None) == has_replay, (
            "acc_replay must be None exactly when nothing is replayed"
        )
        assert result.acc_replay is None or 0 <= result.acc_replay <= 1, f"acc_replay is {result.acc_replay}"
        assert len(result.rates) in (0, learner.num_members), "one rate for each member, or none"


def check_it_learns(make: MakeLearner) -> None:
    """Shown the same samples again and again, it gets better at them."""
    learner = make()
    batch = train_batch(0)
    losses = []
    for step in range(30):
        learner.predict(images_of(0)[0])
        losses.append(learner.learn(batch, step).loss)
    assert min(losses[-5:]) < losses[0], f"the loss went from {losses[0]:g} to {losses[-1]:g}"


def check_members_are_described(make: MakeLearner) -> None:
    """As many rates and metrics as members, and a member among them that predicts."""
    learner = make()
    for step in range(NUM_STEPS):
        assert 0 <= learner.member < learner.num_members, f"member {learner.member} of {learner.num_members}"
        assert len(learner.rates) == learner.num_members, "one rate for each member"
        assert len(learner.metrics) == learner.num_members, "one metric for each member"
        assert all(rate >= 0 for rate in learner.rates), f"rates are {learner.rates}"
        take_step(learner, step)


def check_state_round_trips(make: MakeLearner) -> None:
    """A learner that takes over a state, new or used, goes on exactly; a state taken out never changes."""
    for moment in (0, 1, 3):
        old = make()
        for step in range(moment):
            take_step(old, step)
        state = old.state()
        kept = through_a_file(state)
        new, used = make(), make()
        take_step(used, 77)
        for other in (new, used):
            other.load(through_a_file(state))
            assert same(_shown(other), _shown(old)), (
                f"after {moment} steps a restored learner shows other members"
            )
        for step in range(moment, moment + NUM_STEPS):
            expected = take_step(old, step)
            for other in (new, used):
                assert same(take_step(other, step), expected), (
                    f"restored after {moment} steps, it differs at step {step}"
                )
        assert same(old.state(), new.state()), "a restored learner went on differently"
        assert same(state, kept), "a state that was taken out changed when the learner went on"


def check_weights_round_trip(make: MakeLearner) -> None:
    """Weights that were kept predict the same later, in this learner and in another one."""
    learner = make()
    images, _ = images_of(42)
    take_step(learner, 0)
    early, at_first = learner.weights(), learner.predict(images).clone()
    for step in range(1, NUM_STEPS):
        take_step(learner, step)
    late, at_last = learner.weights(), learner.predict(images).clone()
    assert not same(at_first, at_last), "learning changed no prediction"
    for anybody in (learner, make()):
        anybody.load_weights(through_a_file(early))
        assert same(anybody.predict(images), at_first), "weights kept earlier predict something else now"
        anybody.load_weights(late)
        assert same(anybody.predict(images), at_last), "weights put back predict something else"


def _shown(learner: Learner) -> tuple[int, list[float], list[float]]:
    return learner.member, learner.rates, learner.metrics


CHECKS: tuple[Callable[[MakeLearner], None], ...] = (
    check_predictions_are_logits,
    check_images_are_predicted_one_by_one,
    check_predicting_changes_nothing,
    check_same_seed_same_result,
    check_learning_is_reported,
    check_it_learns,
    check_members_are_described,
    check_state_round_trips,
    check_weights_round_trip,
)
"""All of them, for a test that is run once for each."""


def check_learner(make: MakeLearner) -> None:
    """Run every check on a kind of learner."""
    for check in CHECKS:
        check(make)
