"""Every buffer keeps every promise of `replay.checks`, and the checks catch a buffer that breaks one."""

from __future__ import annotations

import numpy as np
import pytest

from driftline.replay import checks
from driftline.replay.buffers import BUFFERS, Fifo, Reservoir


@pytest.mark.parametrize("check", checks.CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", BUFFERS)
def test_every_buffer_keeps_every_promise(name, check):
    check(lambda capacity: BUFFERS[name](capacity, checks.NUM_CLASSES, 7))


class InventsPositions(Fifo):
    def sample(self, rng, num):
        return super().sample(rng, num) + 1


class HoldsTooMuch(Fifo):
    def __len__(self):
        return self.seen


class RemembersDraws(Fifo):
    drawn = 0

    def sample(self, rng, num):
        self.drawn += 1
        return super().sample(np.random.default_rng(self.drawn), num)


class ForgetsItsSize(Fifo):
    def load(self, state):
        self.seen = int(state["seen"][0])


class SharesItsState(Reservoir):
    def __init__(self, capacity):
        super().__init__(capacity, seed=0)

    def state(self):
        return super().state() | {"slots": self.slots[: self.filled]}


class KeepsLists(Fifo):
    """What others do: an index list, rebuilt at every step."""

    def __init__(self, capacity):
        super().__init__(capacity)
        self.held: list[int] = []

    def extend(self, start, stop, labels):
        super().extend(start, stop, labels)
        self.held = list(range(self.seen - len(self), self.seen))


class NeverForgets(Fifo):
    def __init__(self, capacity):
        super().__init__(capacity)
        self.everything: list[np.ndarray] = []

    def extend(self, start, stop, labels):
        super().extend(start, stop, labels)
        self.everything.append(np.arange(start, stop))


class RandomOfItsOwn(Fifo):
    def __init__(self, capacity):
        super().__init__(capacity)
        self.rng = np.random.default_rng()

    def sample(self, rng, num):
        return super().sample(self.rng, num)


class IgnoresResize(Fifo):
    def resize(self, capacity):
        pass


class NotEmpty(Fifo):
    def __len__(self):
        return super().__len__() or 1


@pytest.mark.parametrize(
    ("broken", "check"),
    [
        (InventsPositions, checks.check_gives_only_what_entered),
        (HoldsTooMuch, checks.check_holds_at_most_its_capacity),
        (RemembersDraws, checks.check_sampling_changes_nothing),
        (ForgetsItsSize, checks.check_resizes),
        (SharesItsState, checks.check_state_round_trips),
        (KeepsLists, checks.check_memory_is_bounded),
        (KeepsLists, checks.check_step_needs_no_memory_of_its_size),
        (KeepsLists, checks.check_step_takes_no_time_of_its_size),
        (NeverForgets, checks.check_memory_is_bounded),
        (RandomOfItsOwn, checks.check_same_seed_same_result),
        (IgnoresResize, checks.check_resizes),
        (NotEmpty, checks.check_empty_at_first),
    ],
)
def test_a_broken_promise_is_noticed(broken, check):
    with pytest.raises(AssertionError):
        check(broken)


def test_every_check_has_been_seen_to_fail_or_is_listed_here():
    marks = test_a_broken_promise_is_noticed.pytestmark[0].args[1]
    assert {check for _, check in marks} == set(checks.CHECKS)
