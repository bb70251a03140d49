"""The split of a table: seeded, stateless, uniform in time."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from driftline.streams.building.splits import is_validation, preprocessing_count


@given(st.integers(0, 1000), st.floats(0, 1), st.integers(0, 500), st.integers(0, 500))
def test_splitting_in_parts_is_splitting_at_once(seed: int, share: float, first: int, second: int) -> None:
    whole = is_validation(seed, np.arange(first + second), share)
    parts = [
        is_validation(seed, np.arange(first), share),
        is_validation(seed, np.arange(first, first + second), share),
    ]
    assert np.array_equal(whole, np.concatenate(parts))


def test_validation_is_uniform_over_the_time_range() -> None:
    chosen = is_validation(11, np.arange(1_000_000), 0.01).reshape(10, -1).sum(axis=1)
    # Binomial(100,000, 0.01) has a standard deviation of 31.5; five of them leave no room for a trend.
    assert np.abs(chosen - 1000).max() < 5 * 31.5


def test_seeds_choose_different_samples() -> None:
    a, b = (is_validation(seed, np.arange(100_000), 0.1) for seed in (0, 1))
    assert abs((a & b).sum() - 1000) < 160


def test_paper_sized_preprocessing_set() -> None:
    assert preprocessing_count(41_392_000, 0.05) == 2_069_600
    assert preprocessing_count(0, 0.05) == 0
