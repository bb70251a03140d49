"""Places: labels, partition and countries, per second on one core.

`python benchmarks/geo.py --quick` takes seconds. Labels are compared with the limit of 3 M/s and with the S2 library's Python
binding, which takes one point a call; both label the same points, and the labels are compared.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import numpy as np
import s2geometry

from driftline.geo import countries, s2
from driftline.geo.partition import Partition, build_partition

LABELS_PER_S_LIMIT = 3e6
NUM_PREPROCESSING = 2_000_000


def photos(num: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Places as skewed as photographs: near towns, a few of which have most of them."""
    places = countries.load_places(15000)
    rng = np.random.default_rng(seed)
    x, y, z = places.points[np.minimum(rng.zipf(1.2, num), 10**9) * 7919 % len(places.points)].T
    lat = np.degrees(np.arcsin(z)) + rng.normal(0, 0.05, num)
    lon = np.degrees(np.arctan2(y, x)) + rng.normal(0, 0.05, num)
    return lat, lon


def seconds(job: Callable[[], object], repeats: int) -> float:
    """The least time of several runs: what the job takes when nothing disturbs it."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        job()
        times.append(time.perf_counter() - start)
    return min(times)


def library_labels(partition: Partition, lat: np.ndarray, lon: np.ndarray) -> np.ndarray:
    """The same labels by way of the S2 library, one point a call."""
    ids = [
        s2geometry.S2CellId(s2geometry.S2LatLng.FromDegrees(a, b)).id()
        for a, b in zip(lat.tolist(), lon.tolist(), strict=True)
    ]
    return partition.label_cells(np.array(ids, np.uint64))


def bench(num: int, num_library: int, repeats: int) -> dict[str, float | int | bool]:
    lat, lon = photos(NUM_PREPROCESSING, seed=0)
    leaves = s2.cell_ids(lat, lon)
    partition = build_partition(leaves)
    partition_s = seconds(lambda: build_partition(leaves), repeats)
    lat, lon = photos(num, seed=1)
    label_s = seconds(lambda: partition.label(lat, lon), repeats)
    few = slice(0, num_library)
    library_s = seconds(lambda: library_labels(partition, lat[few], lon[few]), 1)
    load_s = seconds(lambda: countries.country_codes(lat[:1], lon[:1]), 1)
    country_s = seconds(lambda: countries.country_codes(lat, lon), repeats)
    return {
        "points": num,
        "classes": len(partition),
        "labels_per_s": num / label_s,
        "labels_over_limit": num / label_s / LABELS_PER_S_LIMIT,
        "labels_over_library": (num / label_s) / (num_library / library_s),
        "labels_equal_library": bool(
            np.array_equal(partition.label(lat[few], lon[few]), library_labels(partition, lat[few], lon[few]))
        ),
        "partition_points": NUM_PREPROCESSING,
        "partition_s": partition_s,
        "partition_over_sort": partition_s / seconds(lambda: np.sort(leaves), repeats),
        "countries_load_s": load_s,
        "countries_per_s": num / country_s,
    }


def main() -> dict[str, float | int | bool]:
    parser = argparse.ArgumentParser(description=__doc__)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="2 M points (the default)")
    size.add_argument("--full", action="store_true", help="40 M points, as many as the benchmark stream has")
    args = parser.parse_args()
    if args.full:
        results = bench(40_000_000, 1_000_000, repeats=2)
    else:
        results = bench(2_000_000, 200_000, repeats=3)
    print(json.dumps(results, indent=2))
    return results


if __name__ == "__main__":
    main()
