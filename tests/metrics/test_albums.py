"""Which predictions count in the album scoring, against the protocol read word by word."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.metrics.albums import album_sizes, is_test_point, make_log, rescore, scored_mask
from driftline.metrics.log import PredictionLog
from driftline.types import DriftlineError

USERS = st.lists(st.integers(0, 2), max_size=40)


def obvious_scored(users: list[int], previous_user: int | None) -> list[bool]:
    """Walk over the albums of a batch; the first whose user is not the previous one is scored."""
    scored: list[bool] = []
    for user, album in itertools.groupby(users):
        size = len(list(album))
        counts = user != previous_user and not any(scored)
        scored += [counts] * size
    return scored


@given(st.integers(1, 40), st.integers(1, 40))
def test_test_points_are_the_first_steps_at_or_after_each_multiple(batch_size: int, test_every: int) -> None:
    num_steps = 50
    wanted = set()
    for point in range(0, num_steps * batch_size, test_every):
        wanted.add(next(step for step in itertools.count() if step * batch_size >= point))
    found = {step for step in range(num_steps) if is_test_point(step, batch_size, test_every)}
    assert found == {step for step in wanted if step < num_steps}


@given(USERS, st.none() | st.integers(0, 2))
def test_first_new_album_is_scored(users: list[int], previous_user: int | None) -> None:
    mask = scored_mask(np.array(users, np.int64), previous_user, test_point=True)
    assert mask.tolist() == obvious_scored(users, previous_user)


@given(USERS)
def test_nothing_is_scored_off_the_test_points(users: list[int]) -> None:
    assert not scored_mask(np.array(users, np.int64), None, test_point=False).any()


def test_a_batch_of_the_previous_user_alone_scores_nothing() -> None:
    assert not scored_mask(np.array([5, 5, 5]), previous_user=5, test_point=True).any()


@given(USERS)
def test_album_sizes_are_those_of_the_runs(users: list[int]) -> None:
    sizes = album_sizes(np.array(users, np.int64))
    assert sizes.tolist() == [len(list(album)) for _, album in itertools.groupby(users)]
    assert sizes.dtype == np.int64


@given(st.data(), st.integers(1, 9), st.integers(1, 25))
def test_rescoring_a_log_repeats_what_the_batches_said(
    data: st.DataObject, batch_size: int, test_every: int
) -> None:
    users = np.array(data.draw(USERS), np.int64)
    # Samples may be missing: those that could not be read were set aside.
    position = np.array(sorted(data.draw(st.permutations(range(len(users) + 8)))[: len(users)]), np.int64)
    step = position // batch_size
    zeros = np.zeros(len(users), np.int64)
    log = PredictionLog(position, zeros, users, zeros, zeros, step, np.zeros(len(users), bool))
    wanted: list[bool] = []
    previous_user = None
    for s in range(int(step.max(initial=-1)) + 1):
        batch = users[step == s]
        wanted += scored_mask(batch, previous_user, is_test_point(s, batch_size, test_every)).tolist()
        previous_user = int(batch[-1]) if len(batch) else previous_user
    assert rescore(log, batch_size, test_every).scored.tolist() == wanted


def test_same_images_are_scored_whatever_the_batch_size() -> None:
    # While albums stay inside the smaller batch, the test point alone decides.
    users = np.arange(4096) // 3
    logs = [make_log(users, users, users, users, batch_size=size, test_every=256) for size in (64, 128, 256)]
    assert logs[0].scored.sum() > 16
    for log in logs[1:]:
        assert np.array_equal(log.scored, logs[0].scored)


def test_bad_sizes_are_refused() -> None:
    with pytest.raises(DriftlineError, match="batch_size = 0"):
        make_log(*[np.zeros(2, np.int64)] * 4, batch_size=0)
    with pytest.raises(DriftlineError, match="test_every = 0"):
        make_log(*[np.zeros(2, np.int64)] * 4, batch_size=1, test_every=0)
