"""Which predictions count in the album scoring: at each test point, the first album that is new there.

In come users and steps; out come masks. The engine asks batch by batch, `rescore` does a whole log at once.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from driftline.metrics.log import PredictionLog
from driftline.types import BoolArray, DriftlineError, IntArray, LabelArray


def is_test_point(step: int, batch_size: int, test_every: int) -> bool:
    """Whether a step is the first at or after a multiple of `test_every` positions.

    >>> [step for step in range(12) if is_test_point(step, batch_size=64, test_every=256)]
    [0, 4, 8]
    >>> [step for step in range(6) if is_test_point(step, batch_size=100, test_every=256)]
    [0, 3]
    """
    return step == 0 or step * batch_size // test_every > (step - 1) * batch_size // test_every


def scored_mask(users: IntArray, previous_user: int | None, test_point: bool) -> BoolArray:
    """The samples of one batch that count: the first album whose user is not the last user of the step before.

    >>> scored_mask(np.array([7, 7, 4, 4, 7]), previous_user=7, test_point=True).astype(int)
    array([0, 0, 1, 1, 0])
    """
    mask = np.zeros(len(users), bool)
    new = np.flatnonzero(users != previous_user) if previous_user is not None else np.arange(len(users))
    if not test_point or not len(new):
        return mask
    first = new[0]
    other = np.flatnonzero(users[first:] != users[first])
    stop = first + other[0] if len(other) else len(users)
    mask[first:stop] = True
    return mask


def album_sizes(users: IntArray) -> IntArray:
    """Lengths of the maximal runs of one user.

    >>> album_sizes(np.array([5, 5, 9, 5]))
    array([2, 1, 1])
    """
    if not len(users):
        return np.zeros(0, np.int64)
    starts = np.concatenate([[0], np.flatnonzero(users[1:] != users[:-1]) + 1])
    return np.diff(starts, append=len(users))


def make_log(
    label: LabelArray,
    pred: LabelArray,
    user: IntArray,
    time: IntArray,
    *,
    batch_size: int,
    test_every: int = 256,
) -> PredictionLog:
    """A scored log of a stream that was predicted in order, `batch_size` samples a step, starting at position 0.

    >>> log = make_log(np.array([1, 1, 2]), np.array([1, 0, 2]), np.array([8, 8, 9]), np.arange(3), batch_size=2, test_every=2)
    >>> log.scored.tolist()
    [True, True, True]
    """
    _check_sizes(batch_size, test_every)
    position = np.arange(len(label))
    log = PredictionLog(position, time, user, label, pred, position // batch_size, np.zeros(len(label), bool))
    return rescore(log, batch_size, test_every)


def rescore(log: PredictionLog, batch_size: int, test_every: int) -> PredictionLog:
    """The log with `scored` worked out anew from its users and steps."""
    _check_sizes(batch_size, test_every)
    starts = step_starts(log.step)
    stops = np.append(starts[1:], len(log))
    reached = log.step[starts] * batch_size // test_every
    passed = (log.step[starts] - 1) * batch_size // test_every
    at_test = reached > passed  # at step 0 this holds too: 0 > -1
    first, stop = _first_new_albums(log.user, starts[at_test], stops[at_test])
    change = np.zeros(len(log) + 1, np.int8)
    # Albums of different steps never overlap, but one may start where the one before stops.
    np.add.at(change, first, 1)
    np.add.at(change, stop, -1)
    return replace(log, scored=np.cumsum(change[:-1], dtype=np.int8).view(bool))


def step_starts(step: IntArray) -> IntArray:
    """First row of every step.

    >>> step_starts(np.array([0, 0, 1, 3, 3]))
    array([0, 2, 3])
    """
    if not len(step):
        return np.zeros(0, np.int64)
    return np.concatenate([[0], np.flatnonzero(step[1:] != step[:-1]) + 1])


def _check_sizes(batch_size: int, test_every: int) -> None:
    if batch_size < 1 or test_every < 1:
        raise DriftlineError(f"batch_size = {batch_size}, test_every = {test_every}: both must be at least 1")


def _first_new_albums(user: IntArray, starts: IntArray, stops: IntArray) -> tuple[IntArray, IntArray]:
    """Rows start..stop-1 of the album scored in each batch of rows; start equals stop where none is."""
    if not len(starts):
        return starts, stops
    previous = user[starts - 1]  # for row 0 this wraps around, and is not used
    first = _skip(user, starts, stops, previous, active=starts > 0)
    found = first < stops
    return first, _skip(user, first, stops, user[np.minimum(first, len(user) - 1)], active=found)


def _skip(user: IntArray, starts: IntArray, stops: IntArray, owner: IntArray, active: BoolArray) -> IntArray:
    """From each start, the first row that is not of the owner, or the stop. Cost: the rows skipped."""
    row = starts.copy()
    pending = np.flatnonzero(active)
    while len(pending):
        pending = pending[row[pending] < stops[pending]]
        pending = pending[user[row[pending]] == owner[pending]]
        row[pending] += 1
    return row
