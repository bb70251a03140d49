"""The embedded world as a table with images, so that `build` makes a store of it just as it does of real metadata.

In: a world. Out: the table of its photos, the source of its pixels, and build settings that give the classes and splits that the
rendered world has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np
import polars as pl

from driftline.streams.building.build_config import BuildConfig
from driftline.streams.building.metadata import Part, Table
from driftline.streams.images.sources import RenderedSource
from driftline.streams.worlds import render, world
from driftline.types import ImageArray

ROWS_A_FRAME = 1 << 18


def world_table(made: world.World) -> Table:
    """The photos of a world, with the columns that a build reads.

    >>> world_table(world.World(2_000)).parts[0].num_rows
    2000
    """
    columns = {name: name for name in ("id", "user", "time", "lat", "lon", "image")}
    part = Part(made.name, made.fingerprint, partial(_frames, made), made.length, column_names=tuple(columns))
    return Table([part], columns, "world")


def _frames(made: world.World) -> Iterator[pl.DataFrame]:
    for start in range(0, made.length, ROWS_A_FRAME):
        ordinals = np.arange(start, min(start + ROWS_A_FRAME, made.length))
        time_s, user, lat, lon = made.photographers.photos(ordinals)
        frame = pl.DataFrame({"id": ordinals, "user": user, "time": time_s, "lat": lat, "lon": lon})
        yield frame.with_columns(pl.col("id").cast(pl.String).str.zfill(9)).with_columns(image="id")


def world_source(made: world.World) -> RenderedSource:
    """The images of a world, by id."""
    return RenderedSource(partial(_render, made.length, made.seed), made.fingerprint)


@lru_cache(maxsize=2)
def _opened(length: int, seed: int) -> world.World:
    return world.World(length, seed)


def _render(length: int, seed: int, names: Sequence[str]) -> list[ImageArray]:
    ordinals = np.array([int(name) for name in names])
    photos = _opened(length, seed).photographers.photos(ordinals)
    return list(render.render(seed, ordinals, *photos))


def world_build(config: BuildConfig, made: world.World) -> BuildConfig:
    """The settings with which a build gives exactly the rendered world; what the user set otherwise stays."""
    fewest, most = world.class_limits(made.num_preprocessing)
    return replace(
        config,
        name=config.name or made.name,
        min_per_class=config.min_per_class or fewest,
        max_per_class=config.max_per_class or most,
        preprocess=world.PREPROCESS_SHARE if config.preprocess is None else config.preprocess,
        validation=world.validation_share(made.length) if config.validation is None else config.validation,
        image_size=made.image_size,
        image_kind="raw",
        seed=made.seed,
    )
