"""Which rows of a time-ordered table become preprocessing set, validation set and stream.

Pure functions of a seed and of a row's ordinal in the time order after filtering: nothing is drawn in sequence, so a
table can be split month by month, resumed anywhere, or rendered on the fly, and always splits alike.
"""

from __future__ import annotations

from driftline import draws
from driftline.types import BoolArray, IntArray


def is_validation(seed: int, ordinals: IntArray, share: float) -> BoolArray:
    """True for the samples that are held out: each with probability `share`, whatever the others are.

    >>> import numpy as np
    >>> chosen = is_validation(0, np.arange(100_000), 0.01)
    >>> 900 < chosen.sum() < 1100
    np.True_
    >>> bool(is_validation(0, np.arange(9), 0.0).any()), bool(is_validation(0, np.arange(9), 1.0).all())
    (False, True)
    """
    return draws.uniform(seed, "validation", ordinals) < share


def preprocessing_count(num_rows: int, share: float) -> int:
    """How many of the first rows are set apart to make the classes; they are not part of the stream.

    >>> preprocessing_count(40_000, 0.05)
    2000
    """
    return round(num_rows * share)
