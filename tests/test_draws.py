import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from driftline import draws

MASK = (1 << 64) - 1


def mix(x: int) -> int:
    """The finaliser of splitmix64 in plain integers."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


@given(st.integers(0, 2**63 - 1), st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=4))
def test_bits_equal_plain_integer_arithmetic(seed, keys):
    expected = mix((seed + 0x9E3779B97F4A7C15) & MASK)
    for key in keys:
        expected = mix(((expected ^ (key & MASK)) + 0x9E3779B97F4A7C15) & MASK)
    assert int(draws.bits(seed, *keys)) == expected
    assert draws.bits(seed, *([key] for key in keys)).tolist() == [expected]
    assert draws.bits(seed, [keys[0]], *keys[1:]).tolist() == [expected]


@given(st.integers(1, 3000), st.integers(0, 100))
def test_a_permutation_visits_every_element_once(total, seed):
    order = draws.permuted(seed, np.arange(total), total, "epoch", 3)
    assert sorted(order.tolist()) == list(range(total))


def test_an_element_of_a_permutation_needs_no_other():
    whole = draws.permuted(5, np.arange(1000), 1000)
    assert draws.permuted(5, np.array([17, 900]), 1000).tolist() == whole[[17, 900]].tolist()


def test_permutations_are_shuffled_and_differ_by_key():
    first, second = (draws.permuted(0, np.arange(10_000), 10_000, key) for key in ("a", "b"))
    assert abs(np.corrcoef(first, np.arange(10_000))[0, 1]) < 0.05
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.05


def test_draws_are_uniform_and_independent_of_neighbouring_keys():
    u = draws.uniform(0, "x", np.arange(100_000))
    counts = np.histogram(u, 100, (0, 1))[0]
    chi_squared = ((counts - 1000) ** 2 / 1000).sum()
    assert chi_squared < 170  # 99 degrees of freedom: exceeded once in 10^5
    assert abs(np.corrcoef(u[:-1], u[1:])[0, 1]) < 0.02
