"""Which rows of a time-ordered table become preprocessing set, validation set and stream.

Pure functions of a seed and of a row's ordinal in the time order after filtering: nothing is drawn in sequence, so a
table can be split month by month, resumed anywhere, or rendered on the fly, and always splits alike.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from driftline.types import BoolArray, IntArray

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def hash64(seed: int, ordinals: IntArray) -> NDArray[np.uint64]:
    """Well-mixed 64 bits for each ordinal: the splitmix64 sequence whose start is the mixed seed.

    >>> hash64(0, np.array([0, 1])) == hash64(0, np.array([0, 1]))
    array([ True,  True])
    >>> int(hash64(0, np.array([5]))[0]) == int(hash64(1, np.array([5]))[0])
    False
    """
    start = _mix(np.array([seed & _MASK], dtype=np.uint64))
    steps = np.ascontiguousarray(ordinals, dtype=np.int64).view(np.uint64) + np.uint64(1)
    return _mix(start + steps * np.uint64(_GOLDEN))


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of splitmix64: a bijection in which every input bit moves every output bit."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def is_validation(seed: int, ordinals: IntArray, share: float) -> BoolArray:
    """True for the samples that are held out: each with probability `share`, whatever the others are.

    >>> chosen = is_validation(0, np.arange(100_000), 0.01)
    >>> 900 < chosen.sum() < 1100
    np.True_
    >>> bool(is_validation(0, np.arange(9), 0.0).any()), bool(is_validation(0, np.arange(9), 1.0).all())
    (False, True)
    """
    if share >= 1:
        return np.ones(len(ordinals), dtype=bool)
    return hash64(seed, ordinals) < np.uint64(int(share * 2.0**64))


def preprocessing_count(num_rows: int, share: float) -> int:
    """How many of the first rows are set apart to make the classes; they are not part of the stream.

    >>> preprocessing_count(40_000, 0.05)
    2000
    """
    return round(num_rows * share)
