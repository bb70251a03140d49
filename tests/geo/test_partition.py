"""The classes of the benchmark: the fast partition must be the one that the plain recursion of the protocol gives."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftline.geo import s2
from driftline.geo.partition import Partition, build_partition
from driftline.types import DriftlineError


def recursive_partition(leaves, least, most, max_level):
    """The protocol's words as they stand: {cell: photos}."""
    kept = {}

    def visit(cell, level, inside):
        if len(inside) > most and level < max_level:
            for child in s2.children(cell).tolist():
                first, last = (int(x) for x in s2.range_of(child))
                visit(child, level + 1, [leaf for leaf in inside if first <= leaf <= last])
        elif len(inside) >= least:
            kept[cell] = len(inside)

    for face in range(6):
        visit((2 * face + 1) << 60, 0, [leaf for leaf in leaves if leaf >> 61 == face])
    return kept


def clustered(seed, num, num_towns, spread_deg):
    rng = np.random.default_rng(seed)
    towns = rng.integers(0, num_towns, num)
    lat = rng.uniform(-90, 90, num_towns)[towns] + rng.normal(0, spread_deg, num)
    lon = rng.uniform(-180, 180, num_towns)[towns] + rng.normal(0, spread_deg, num)
    return lat, lon


CLOUDS = st.builds(
    clustered,
    st.integers(0, 2**31),
    st.integers(0, 400),
    st.integers(1, 12),
    st.sampled_from([0, 1e-6, 0.1, 20]),
)


@settings(deadline=None)
@given(CLOUDS, st.integers(1, 20), st.integers(0, 60), st.integers(0, 30))
def test_it_is_the_partition_of_the_plain_recursion(cloud, least, more, max_level):
    leaves = s2.cell_ids(*cloud)
    ours = build_partition(leaves, min_per_class=least, max_per_class=least + more, max_level=max_level)
    theirs = recursive_partition(leaves.tolist(), least, least + more, max_level)
    assert dict(zip(ours.cells.tolist(), ours.counts.tolist(), strict=True)) == theirs
    assert ours.cells.tolist() == sorted(theirs)


@settings(deadline=None)
@given(CLOUDS, st.integers(1, 10), st.integers(0, 30))
def test_labels_are_the_cells_found_by_trying_all(cloud, least, more):
    partition = build_partition(s2.cell_ids(*cloud), min_per_class=least, max_per_class=least + more)
    lat, lon = clustered(1, 200, 10, 20.0)
    lat, lon = np.concatenate([cloud[0], lat]), np.concatenate([cloud[1], lon])
    leaves = s2.cell_ids(lat, lon)
    ranges = np.stack(s2.range_of(partition.cells), axis=1)
    want = [next((k for k, (a, b) in enumerate(ranges) if a <= leaf <= b), -1) for leaf in leaves]
    labels = partition.label(lat, lon)
    assert labels.dtype == np.int32
    assert labels.tolist() == want == partition.label_cells(leaves).tolist()


@settings(deadline=None)
@given(CLOUDS)
def test_counts_are_what_the_labels_count(cloud):
    partition = build_partition(s2.cell_ids(*cloud), min_per_class=3, max_per_class=9)
    labels = partition.label(*cloud)
    assert np.bincount(labels[labels >= 0], minlength=len(partition)).tolist() == partition.counts.tolist()


def test_the_order_of_the_photos_does_not_matter():
    leaves = s2.cell_ids(*clustered(5, 2_000, 9, 1.0))
    shuffled = np.random.default_rng(0).permutation(leaves)
    one, two = (build_partition(x, min_per_class=5, max_per_class=50) for x in (leaves, shuffled))
    assert one.cells.tolist() == two.cells.tolist()


def test_limits_are_inclusive_as_in_the_protocol():
    paris = s2.cell_ids(np.full(10, 48.85), np.full(10, 2.29))
    assert build_partition(paris, min_per_class=10, max_per_class=10).cells.tolist() == [int(s2.faces()[2])]
    assert len(build_partition(paris, min_per_class=11, max_per_class=11)) == 0
    deepest = build_partition(paris, min_per_class=1, max_per_class=9, max_level=4)
    assert s2.level_of(deepest.cells).tolist() == [4]
    assert deepest.counts.tolist() == [10]


def test_places_that_are_unknown_have_no_class():
    everywhere = Partition(s2.faces(), np.ones(6, np.int64))
    assert everywhere.label([np.nan, 0.0, np.nan, 0.0], [0.0, np.nan, np.nan, 0.0]).tolist() == [
        -1,
        -1,
        -1,
        0,
    ]
    unknown = s2.cell_ids(np.full(99, np.nan), np.zeros(99))
    assert len(build_partition(unknown, min_per_class=1, max_per_class=9)) == 0


def test_an_empty_partition_labels_nothing():
    empty = build_partition(np.array([], np.uint64))
    assert len(empty) == 0
    assert empty.label([0.0], [0.0]).tolist() == [-1]
    assert empty.centres()[0].shape == (0,)


def test_class_centres_carry_their_own_label():
    partition = build_partition(s2.cell_ids(*clustered(3, 3_000, 9, 5.0)), min_per_class=5, max_per_class=50)
    assert len(partition) > 50
    assert partition.label(*partition.centres()).tolist() == list(range(len(partition)))


def test_chunks_leave_no_seam():
    partition = Partition(s2.faces(), np.ones(6, np.int64))
    lat, lon = clustered(4, 150_001, 500, 30.0)
    np.testing.assert_array_equal(
        partition.label(lat, lon), (s2.cell_ids(lat, lon) >> np.uint64(61)).astype(np.int32)
    )


@pytest.mark.parametrize(
    ("settings_of_it", "message"),
    [
        ({"min_per_class": 0}, "min_per_class = 0"),
        ({"min_per_class": 50, "max_per_class": 49}, "max_per_class = 49"),
        ({"max_level": 31}, "max_level = 31"),
    ],
)
def test_impossible_limits_are_refused(settings_of_it, message):
    with pytest.raises(DriftlineError, match=message):
        build_partition(s2.cell_ids([0.0], [0.0]), **settings_of_it)


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ([1 << 60, 1 << 60], "overlap"),
        ([3 << 60, 1 << 60], "out of order"),
        ([0x0400000000000000, 1 << 60], "overlap"),
        ([0], "not an S2 cell"),
        ([13 << 60], "not an S2 cell"),
    ],
)
def test_cells_that_are_no_partition_are_refused(cells, message):
    with pytest.raises(DriftlineError, match=message):
        Partition(np.array(cells, np.uint64), np.ones(len(cells), np.int64))


def test_coordinates_of_unequal_length_are_refused():
    with pytest.raises(DriftlineError, match="latitudes"):
        Partition(s2.faces(), np.ones(6, np.int64)).label([0.0, 1.0], [0.0])
