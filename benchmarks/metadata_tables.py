"""Synthetic photo metadata with the skew of the real thing: a few users and cities hold most photos, users shoot in bursts,
the number of photos grows over the years. Used by the build benchmark and by the tests of the build.

`rows` gives clean or dirty frames with the columns of YFCC100M that a build reads; `write_parquet` and `write_yfcc_text` put them
into files.
"""

from __future__ import annotations

import bz2
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq

NUM_CITIES = 4000
CHUNK = 1_000_000
FIRST_S, LAST_S = 1_072_915_200, 1_420_070_399
"""2004-01-01 and the end of 2014."""


def rows(num_rows: int, *, seed: int = 0, dirty: bool = True) -> Iterator[pl.DataFrame]:
    """Frames of photoid, uid, datetaken (text), longitude, latitude (numbers), downloadurl, marker."""
    world = np.random.default_rng(seed)
    # Cities lie on land-like bands, and their shares fall off as one over their rank.
    city_lat, city_lon = world.normal(35, 18, NUM_CITIES).clip(-60, 70), world.uniform(-180, 180, NUM_CITIES)
    share = 1 / np.arange(1, NUM_CITIES + 1) ** 0.9
    share /= share.sum()
    for start in range(0, num_rows, CHUNK):
        rng = np.random.default_rng([seed, start])
        yield _chunk(rng, min(CHUNK, num_rows - start), start, city_lat, city_lon, share, dirty)


def _chunk(
    rng: np.random.Generator,
    num: int,
    start: int,
    city_lat: np.ndarray,
    city_lon: np.ndarray,
    share: np.ndarray,
    dirty: bool,
) -> pl.DataFrame:
    burst = np.repeat(np.arange(num), rng.geometric(0.3, num))[:num]
    num_bursts = int(burst[-1]) + 1
    user = (200_000 * rng.random(num_bursts) ** 3).astype(np.int64)
    home = (user * 2_654_435_761 % 2**32) / 2**32
    away = rng.random(num_bursts) < 0.3
    place = np.searchsorted(np.cumsum(share), np.where(away, rng.random(num_bursts), home)).clip(
        0, NUM_CITIES - 1
    )
    begin = FIRST_S + (LAST_S - FIRST_S - 10**5) * rng.beta(3, 2, num_bursts)
    time = begin[burst].astype(np.int64) + rng.integers(0, 3600, num)
    lat = city_lat[place][burst] + rng.normal(0, 0.15, num)
    lon = (city_lon[place][burst] + rng.normal(0, 0.15, num) + 180) % 360 - 180
    frame = pl.DataFrame(
        {
            "photoid": (10**9 + start + rng.permutation(num)).astype(np.int64),
            "uid": (10_000_000 + user * 17)[burst],
            "time": time,
            "longitude": lon.round(6),
            "latitude": lat.round(6),
        }
    )
    date = pl.from_epoch("time", time_unit="s").dt.strftime("%Y-%m-%d %H:%M:%S.0")
    frame = frame.select(
        pl.col("photoid").cast(pl.String),
        pl.format("{}@N0{}", "uid", pl.col("uid") % 8).alias("uid"),
        date.alias("datetaken"),
        "longitude",
        "latitude",
        pl.format("http://images.invalid/{}.jpg", "photoid").alias("downloadurl"),
        pl.lit(0, dtype=pl.Int64).alias("marker"),
    )
    return _with_dirt(frame, rng) if dirty else frame


DIRT = (
    ("no place", 0.20),
    ("video", 0.01),
    ("0000", 0.005),
    ("1901", 0.005),
    ("2050", 0.005),
    ("no date", 0.005),
    ("impossible date", 0.005),
    ("swapped", 0.005),
    ("out of range", 0.005),
    ("zero", 0.005),
    ("no user", 0.002),
    ("duplicate", 0.01),
)


def _with_dirt(frame: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
    edges = np.cumsum([share for _, share in DIRT])
    kind = np.searchsorted(edges, rng.random(frame.height))
    names = [name for name, _ in DIRT] + ["good"]
    dirt = pl.Series("dirt", np.array(names)[kind])
    other = rng.integers(0, frame.height, frame.height)
    is_dirt = {name: dirt == name for name in names}
    lat, lon = pl.col("latitude"), pl.col("longitude")
    return frame.select(
        pl.when(is_dirt["duplicate"]).then(frame["photoid"].gather(other)).otherwise(pl.col("photoid")).alias("photoid"),
        pl.when(is_dirt["no user"]).then(None).otherwise(pl.col("uid")).alias("uid"),
        pl.when(is_dirt["0000"])
        .then(pl.lit("0000-00-00 00:00:00"))
        .when(is_dirt["1901"])
        .then(pl.lit("1901-01-01 00:00:00.0"))
        .when(is_dirt["2050"])
        .then(pl.lit("2050-06-01 00:00:00.0"))
        .when(is_dirt["no date"])
        .then(None)
        .when(is_dirt["impossible date"])
        .then(pl.lit("2010-02-31 12:00:00.0"))
        .otherwise(pl.col("datetaken"))
        .alias("datetaken"),
        pl.when(is_dirt["no place"]).then(None).when(is_dirt["zero"]).then(0.0).when(is_dirt["swapped"]).then(lat)
        .when(is_dirt["out of range"]).then(lon + 400).otherwise(lon).alias("longitude"),
        pl.when(is_dirt["no place"]).then(None).when(is_dirt["zero"]).then(0.0).when(is_dirt["swapped"]).then(91 + lon.abs() / 3)
        .otherwise(lat).alias("latitude"),
        "downloadurl",
        pl.when(is_dirt["video"]).then(1).otherwise(pl.col("marker")).alias("marker"),
    )  # fmt: skip


def write_parquet(path: Path, num_rows: int, *, seed: int = 0) -> None:
    """A Parquet file with the columns a build reads."""
    writer = None
    for frame in rows(num_rows, seed=seed):
        table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
        writer = writer or pq.ParquetWriter(path, table.schema, compression="zstd")
        writer.write_table(table, row_group_size=1 << 18)
    assert writer is not None
    writer.close()


def yfcc_lines(num_rows: int, *, seed: int = 0) -> Iterator[bytes]:
    """Lines of the YFCC100M table, dirty in every way: wide and narrow lines, broken ones, bytes that are not UTF-8."""
    rng = np.random.default_rng([seed, 1])
    for frame in rows(num_rows, seed=seed):
        kinds = rng.choice(6, frame.height, p=[0.70, 0.20, 0.04, 0.03, 0.02, 0.01])
        for row, kind in zip(frame.iter_rows(), kinds.tolist(), strict=True):
            photo, user, date, lon, lat, url, marker = ("" if value is None else str(value) for value in row)
            title = b"A+title%2C+with+commas" if kind != 2 else b"caf\xe9 \xff\xfe"
            fields = [
                photo,
                user,
                "nick+name",
                date,
                "1300000000",
                "Canon+EOS",
                "T",
                "",
                "tag%20one",
                "",
                lon,
                lat,
            ]
            fields += [
                "16",
                f"http://pages.invalid/{photo}",
                url,
                "CC",
                "http://cc.invalid",
                "1",
                "2",
                "ab",
                "cd",
                "jpg",
            ]
            line = "\t".join([*fields, marker]).encode().replace(b"\tT\t", b"\t" + title + b"\t", 1)
            if kind == 1:
                line = b"17\t0123456789abcdef\t" + line
            elif kind == 3:
                line = line.replace(b"@", b"%40").replace(b":", b"%3A", 2)
            elif kind == 4:
                line = line[: len(line) // 2]
            elif kind == 5:
                line = line + b"\r"
            yield line + b"\n"


def write_yfcc_text(path: Path, num_rows: int, *, seed: int = 0, wide_header: bool = False) -> None:
    """A YFCC100M table as text; compressed when the name ends in .bz2."""
    data = b"".join(yfcc_lines(num_rows, seed=seed))
    path.write_bytes(bz2.compress(data) if path.suffix == ".bz2" else data)
