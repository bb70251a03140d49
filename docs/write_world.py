"""Draws docs/images/world.png, what the embedded world shows year by year: `.venv/bin/python docs/write_world.py`.

Above: photos of the stream, drawn at random from each year. Below: the same five places every year, each time by another person at
local noon, so that only cameras, seasons and zoom differ.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from driftline import draws
from driftline.streams.worlds.render import SIZE, render
from driftline.streams.worlds.world import World
from driftline.types import ImageArray

OUT = Path(__file__).parent / "images" / "world.png"
YEARS = range(2004, 2015)
NUM_ROWS = 5
PLACES = {
    "New York": (40.71, -74.01),
    "Venice": (45.44, 12.34),
    "Cairo": (30.04, 31.24),
    "Tokyo": (35.68, 139.69),
    "Helsinki": (60.17, 24.94),
}
ZOOM, GAP, LEFT, TOP, BETWEEN = 2, 3, 84, 44, 34


def start_of(year: int) -> int:
    """Unix time at which a year begins."""
    return int(datetime(year, 1, 1, tzinfo=UTC).timestamp())


def from_the_stream(world: World) -> dict[int, ImageArray]:
    """Some photos of each year; the first year's photos made the classes, so the stream may begin later."""
    time_s = world.train.samples(0, len(world.train)).time
    images = {}
    for year in YEARS:
        first, stop = np.searchsorted(time_s, [start_of(year), start_of(year + 1)])
        if stop - first >= NUM_ROWS:
            chosen = draws.generator(0, "picture", year).choice(stop - first, NUM_ROWS, replace=False)
            images[year] = world.train.images(np.sort(first + chosen))
    return images


def of_the_same_places(seed: int) -> dict[int, ImageArray]:
    """Each place once a year, in turn in winter, spring, summer and autumn."""
    lat, lon = np.array(list(PLACES.values())).T
    images = {}
    for year in YEARS:
        noon_s = start_of(year) + (15 + 91 * (year % 4)) * 86_400 + 43_200
        number = np.arange(len(PLACES)) + 1000 * year
        when = noon_s - (lon / 15 * 3600).astype(np.int64)
        images[year] = render(seed, number, when, number, lat, lon)
    return images


def main() -> None:
    world = World()
    blocks = [from_the_stream(world), of_the_same_places(world.seed)]
    cell = SIZE * ZOOM + GAP
    height = TOP + 2 * NUM_ROWS * cell + BETWEEN
    page = Image.new("RGB", (LEFT + len(YEARS) * cell, height), "white")
    pen, font = ImageDraw.Draw(page), ImageFont.load_default(13)
    for column, year in enumerate(YEARS):
        pen.text((LEFT + column * cell + 16, TOP - 20), str(year), "black", font)
        for block, images in enumerate(blocks):
            for row, image in enumerate(images.get(year, [])):
                at = (LEFT + column * cell, TOP + (block * NUM_ROWS + row) * cell + block * BETWEEN)
                page.paste(Image.fromarray(image).resize((SIZE * ZOOM,) * 2, Image.Resampling.NEAREST), at)
    pen.text((LEFT, 4), f"Photos of the stream ({world.name}), five of each year", "black", font)
    lower = TOP + NUM_ROWS * cell + BETWEEN
    pen.text((LEFT, lower - 24), "The same places, by another person each year", "black", font)
    for row, name in enumerate(PLACES):
        pen.text((6, lower + row * cell + 24), name, "black", font)
    page.quantize(256).save(OUT, optimize=True)
    print(f"{OUT}: {OUT.stat().st_size / 1000:.0f} KB")


if __name__ == "__main__":
    main()
