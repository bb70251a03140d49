"""The embedded world built into a store is the world as it is rendered: same samples, labels, splits, pixels."""

import numpy as np
import pytest

from driftline.streams.building.build import build
from driftline.streams.building.build_config import BuildConfig
from driftline.streams.store import StoredStream
from driftline.streams.worlds.world import World
from driftline.streams.worlds.world_table import world_build, world_source, world_table


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    world = World(6_000, seed=3)
    out = tmp_path_factory.mktemp("built") / "world"
    config = world_build(BuildConfig(table=(world.name,), out=out, rows_per_shard=1000), world)
    build(config, table=world_table(world), source=world_source(world))
    return world, StoredStream(out)


@pytest.mark.parametrize("split", ["train", "validation"])
def test_every_sample_is_the_same(both, split):
    rendered, stored = (getattr(stream, split) for stream in both)
    assert len(stored) == len(rendered) > 0
    a, b = (part.samples(0, len(part)) for part in (stored, rendered))
    for column in ("position", "time", "user", "label", "lat", "lon"):
        np.testing.assert_array_equal(getattr(a, column), getattr(b, column))


def test_pixels_are_the_same_across_shards(both):
    world, stored = both
    positions = np.array([len(world.train) - 1, 0, 999, 1000, 1001, 0])
    np.testing.assert_array_equal(stored.train.images(positions), world.train.images(positions))


def test_classes_mean_the_same_places(both):
    world, stored = both
    assert stored.classes.names == world.classes.names
    np.testing.assert_array_equal(stored.classes.lat, world.classes.lat)
