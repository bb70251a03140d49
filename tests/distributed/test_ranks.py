"""How members and parts are laid out over processes."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftline.learners.ranks import Ranks
from driftline.streams.fetch import share
from driftline.types import DriftlineError

sizes, populations = st.integers(1, 40), st.integers(1, 9)


@given(st.integers(0, 1000), sizes)
def test_shares_are_a_partition_in_order_and_differ_by_one_at_most(num, parts):
    items = list(range(num))
    shares = [items[share(num, part, parts)] for part in range(parts)]
    assert [item for one in shares for item in one] == items
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@given(sizes, populations, st.sampled_from(["auto", "data"]))
def test_every_member_has_each_part_of_the_batch_exactly_once(size, num_members, parallel):
    ranks = [Ranks.arrange(r, size, num_members, parallel) for r in range(size)]
    (parts,) = {one.parts for one in ranks}
    found = Counter((member, one.part) for one in ranks for member in one.members)
    assert found == Counter((member, part) for member in range(num_members) for part in range(parts))
    for member in range(num_members):
        hosts = ranks[0].ranks_of(member)
        assert [ranks[r].part for r in hosts] == list(range(parts))
        assert all(ranks[r].hosts(member) for r in hosts)


@pytest.mark.parametrize(
    ("size", "num_members", "members_here", "parts"),
    [(3, 3, 1, 1), (6, 3, 1, 2), (32, 4, 1, 8), (2, 4, 2, 1), (2, 3, 3, 2), (8, 1, 1, 8), (1, 3, 3, 1)],
)
def test_automatic_layouts(size, num_members, members_here, parts):
    ranks = Ranks.arrange(size - 1, size, num_members)
    assert (len(ranks.members), ranks.parts) == (members_here, parts)


@pytest.mark.parametrize(
    ("size", "num_members", "fix"),
    [(2, 3, "--parallel data"), (4, 3, "multiple of 3"), (2, 1, "--schedule polrs")],
)
def test_a_population_that_cannot_be_spread_is_refused(size, num_members, fix):
    with pytest.raises(DriftlineError, match=fix):
        Ranks.arrange(0, size, num_members, "members")


@pytest.mark.parametrize("environment", [{"RANK": "x", "WORLD_SIZE": "2"}, {"RANK": "2", "WORLD_SIZE": "2"}])
def test_an_environment_that_torchrun_did_not_make_is_refused(environment):
    with pytest.raises(DriftlineError, match="torchrun"):
        Ranks.from_environment(1, "auto", environment)
