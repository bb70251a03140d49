"""The shard tasks of a build on a local Ray of two workers: the same bytes, and nothing lost when a worker is killed."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from driftline.streams.images.ingest import FolderSource, IngestProgress, ingest
from driftline.streams.images.sources import Found
from driftline.streams.store.decode import encode
from driftline.types import DriftlineError

NUM_ROWS = 24


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    ray = pytest.importorskip("ray", reason="the ray extra is not installed")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        _node_ip_address="127.0.0.1",
        object_store_memory=10**8,
    )
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield ray
    ray.shutdown()


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    names = [f"{i}.jpg" for i in range(NUM_ROWS)]
    for i, name in enumerate(names):
        (tmp_path / name).write_bytes(encode(np.full((20, 20, 3), 9 * i, np.uint8)))
    columns: dict[str, Any] = {"id": names, "image": names, "time": range(NUM_ROWS), "user": [0] * NUM_ROWS}
    columns |= {"label": [0] * NUM_ROWS, "lat": [0.0] * NUM_ROWS, "lon": [0.0] * NUM_ROWS}
    pl.DataFrame(columns).write_parquet(tmp_path / "rows.parquet")
    return tmp_path / "rows.parquet"


def content(out: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(out)): p.read_bytes() for p in out.rglob("*") if p.is_file() and p.name != "lock"
    }


@dataclass(frozen=True)
class Deadly:
    """Kills the worker that reads the image named, as often as there are lives left in the folder."""

    inner: FolderSource
    victim: str
    lives: Path

    def describe(self) -> dict[str, Any]:
        return self.inner.describe()

    def read(self, names: Sequence[str]) -> Iterator[Found]:
        for name, found in zip(names, self.inner.read(names), strict=True):
            if name == self.victim:
                for life in self.lives.iterdir():
                    life.unlink()
                    os.kill(os.getpid(), signal.SIGKILL)
            yield found


def run(rows: Path, out: Path, **options: Any) -> None:
    source = options.pop("source", None) or FolderSource(rows.parent)
    ingest(rows, out, source, image_size=16, rows_per_shard=4, **options)


def test_ray_makes_the_bytes_the_pool_makes(ray: Any, rows: Path, tmp_path: Path) -> None:
    seen: list[IngestProgress] = []
    run(rows, tmp_path / "ray", engine="ray", progress=seen.append)
    run(rows, tmp_path / "pool", workers=2)
    assert content(tmp_path / "ray") == content(tmp_path / "pool")
    assert seen[-1].rows_done == NUM_ROWS


def test_a_killed_ray_worker_loses_nothing(ray: Any, rows: Path, tmp_path: Path) -> None:
    lives = tmp_path / "lives"
    lives.mkdir()
    (lives / "one").touch()
    run(rows, tmp_path / "ray", engine="ray", source=Deadly(FolderSource(rows.parent), "9.jpg", lives))
    assert not list(lives.iterdir())
    run(rows, tmp_path / "pool", workers=0)
    assert content(tmp_path / "ray") == content(tmp_path / "pool")


def test_a_shard_that_keeps_killing_ray_workers_is_named(ray: Any, rows: Path, tmp_path: Path) -> None:
    lives = tmp_path / "lives"
    lives.mkdir()
    for i in range(9):
        (lives / str(i)).touch()
    with pytest.raises(DriftlineError, match="images-00002: its Ray worker died 3 times"):
        run(rows, tmp_path / "ray", engine="ray", source=Deadly(FolderSource(rows.parent), "9.jpg", lives))


def test_without_ray_the_message_says_what_to_install(
    rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(DriftlineError, match=r"driftline\[ray\]"):
        run(rows, tmp_path / "out", engine="ray")
