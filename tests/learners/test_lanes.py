"""Members that learn side by side learn what they would one after the other."""

from __future__ import annotations

import threading
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from driftline.learners import checks
from driftline.learners.lanes import Lanes
from driftline.learners.replay import Arithmetic, ReplayLearner
from driftline.learners.schedules import RateSearch
from driftline.models.build import build_model

SIZE = checks.SIZE


@given(st.integers(1, 7), st.integers(1, 9), st.sampled_from([None, 2, 4]))
def test_every_row_of_every_member_is_computed_once_and_comes_in_order(num_members, num_rows, num_threads):
    def job(member, rows):
        return [(member, row) for row in range(num_rows)[rows]]

    found = Lanes(num_threads).map(job, num_members, num_rows)
    assert all(part for parts in found for part in parts)  # no job without rows
    joined = [[row for part in parts for row in part] for parts in found]
    assert joined == [[(member, row) for row in range(num_rows)] for member in range(num_members)]


def test_two_members_are_at_work_at_the_same_time():
    both = threading.Barrier(2, timeout=60)
    arrived = Lanes(2).map(lambda member, rows: both.wait(), 2, 8)  # breaks if one waits for the other to end
    assert sorted(arrived) == [[0], [1]]


@pytest.mark.parametrize("failing", [0, 1])
def test_an_error_in_either_lane_is_raised_when_both_have_ended(failing):
    ended = []

    def job(member, rows):
        if member == failing:
            raise ValueError(f"member {member}")
        ended.append(member)

    lanes = Lanes(2)
    with pytest.raises(ValueError, match=f"member {failing}"):
        lanes.map(job, 2, 8)
    assert ended == [1 - failing]
    assert lanes.map(lambda member, rows: member, 2, 8) == [[0], [1]]


def test_each_lane_takes_its_share_of_the_cores_and_gives_it_back():
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        found = Lanes(4).map(lambda member, rows: torch.get_num_threads(), 2, 8)
        assert found == [[2], [2]]
        assert torch.get_num_threads() == 4
    finally:
        torch.set_num_threads(before)


def population(lanes, num_members):
    return ReplayLearner(
        partial(build_model, "resnet-tiny", checks.NUM_CLASSES, "group", 0),
        arithmetic=Arithmetic.choose("cpu", "float32"),
        size=SIZE,
        momentum=0.9,
        weight_decay=1e-4,
        rate=RateSearch(lr=0.05, num_members=num_members, factor=2.0, every_steps=3),
        lanes=lanes,
    )


@pytest.mark.parametrize("num_members", [2, 3])
def test_a_population_learns_the_same_in_two_lanes_as_in_one(num_members):
    """Sums in another order differ by rounding; the chosen members and the rates must not."""
    one, two, again = (population(lanes, num_members) for lanes in (Lanes(), Lanes(2), Lanes(2)))
    for step in range(7):
        for learner in (one, two, again):
            checks.take_step(learner, step)
        assert one.member == two.member
        assert one.rates == two.rates
    for a, b in zip(one.state()["models"], two.state()["models"], strict=True):
        assert_close(a, b, rtol=1e-3, atol=1e-4)
    assert checks.same(two.state(), again.state())
