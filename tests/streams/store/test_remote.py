"""A stream read over the network gives what the local one gives, through a cache that stays within its bounds."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import polars as pl
import pytest

from driftline.streams.store import ImageFormat, ShardWriter, StoredStream, finish_stream, remote, verify
from driftline.streams.store.decode import encode
from driftline.streams.store.remote import BlockCache
from driftline.types import BadSampleError, ClassTable, DriftlineError

NUM = 60


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small stream on the local disk; the cache is kept away from the user's."""
    monkeypatch.setenv("DRIFTLINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(remote, "FIRST_WAIT_S", 0.001)
    path = tmp_path / "stream"
    (path / "validation").mkdir(parents=True)
    rng = np.random.default_rng(0)
    for number in range(3):
        with ShardWriter(path, number) as writer:
            for _ in range(NUM // 3):
                writer.append(encode(rng.integers(0, 255, (64, 64, 3), dtype=np.uint8)))
            writer.commit()
    rows = {"id": [str(i) for i in range(NUM)], "time": range(NUM), "user": [0] * NUM, "label": [0] * NUM}
    pl.DataFrame(rows | {"lat": [0.0] * NUM, "lon": [0.0] * NUM}).write_parquet(tmp_path / "rows.parquet")
    finish_stream(
        path, name="x", classes=ClassTable(("one",)), how={}, train_rows=tmp_path / "rows.parquet",
        validation_rows=[], image=ImageFormat("jpeg", 64, fixed=True),
    )  # fmt: skip
    return path


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder = folder
        self.failures = 0
        self.flips = 0
        self.ranges = True
        self.sent = 0
        self.requests: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.server.requests.append(self.path)
        path = self.server.folder / self.path.strip("/")
        if self.server.failures:
            self.server.failures -= 1
            self.reply(503, b"busy")
        elif not path.is_file():
            self.reply(404, b"no")
        else:
            self.reply(*self.part(path))

    def part(self, path: Path) -> tuple[int, bytes]:
        data = path.read_bytes()
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if not wanted or not self.server.ranges:
            return 200, data
        data = data[int(wanted[1]) : int(wanted[2]) + 1 if wanted[2] else None]
        if self.server.flips and path.suffix == ".bin":
            self.server.flips -= 1
            data = data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]
        return 206, data

    def reply(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.server.sent += len(body)


@pytest.fixture
def server(folder: Path) -> Iterator[Server]:
    server = Server(folder)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def assert_same(a: StoredStream, b: StoredStream) -> None:
    positions = np.random.default_rng(1).permutation(NUM)
    for one, two in zip(a.train.images(positions), b.train.images(positions), strict=True):
        assert np.array_equal(one, two)  # type: ignore[arg-type]
    assert a.train.samples(3, 9).time.tolist() == b.train.samples(3, 9).time.tolist()
    assert a.fingerprint == b.fingerprint


def test_over_http_and_from_memory_it_is_the_same_stream(folder: Path, server: Server) -> None:
    local = StoredStream(folder)
    assert_same(StoredStream(server.url), local)
    assert verify(server.url).ok
    store = fsspec.filesystem("memory")
    store.put(str(folder), "/bucket/stream", recursive=True)
    assert_same(StoredStream("memory://bucket/stream"), local)


def test_what_was_read_once_is_not_asked_for_again(folder: Path, server: Server) -> None:
    StoredStream(server.url).train.images(np.arange(NUM))
    before = list(server.requests)
    stream = StoredStream(server.url)
    stream.train.images(np.arange(NUM))
    assert server.requests[len(before) :] == ["/stream.json"]


def test_a_batch_in_order_takes_few_requests_and_one_image_few_bytes(
    folder: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "BLOCK_BYTES", 4096)
    split = StoredStream(server.url).train
    before = len(server.requests)
    split.images(np.arange(NUM))
    assert len(server.requests) - before <= 6
    (folder / "stream.json").write_text((folder / "stream.json").read_text() + " ")
    split = StoredStream(server.url).train
    before_bytes = server.sent
    split.images(np.array([7]))
    assert server.sent - before_bytes < 4 * 4096 + 2 * 4096


def test_a_server_that_fails_for_a_while_is_asked_again(server: Server) -> None:
    split = StoredStream(server.url).train
    server.failures = 3
    assert not any(isinstance(image, BadSampleError) for image in split.images(np.arange(NUM)))
    server.failures = 100
    with pytest.raises(DriftlineError, match=r"cannot read .* then resume"):
        StoredStream(server.url)


def test_bytes_damaged_on_the_way_are_read_again(server: Server) -> None:
    split = StoredStream(server.url).train
    server.flips = 1
    assert not any(isinstance(image, BadSampleError) for image in split.images(np.arange(NUM)))
    assert server.flips == 0


def test_a_damaged_cache_is_not_believed(folder: Path, server: Server, tmp_path: Path) -> None:
    StoredStream(server.url).train.images(np.arange(NUM))
    for path in (tmp_path / "cache").rglob("blocks/*/*"):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 8
        path.write_bytes(content)
    assert_same(StoredStream(server.url), StoredStream(folder))


def test_a_changed_stream_does_not_meet_the_old_ones_cache(folder: Path, server: Server) -> None:
    StoredStream(server.url).train.images(np.arange(NUM))
    text = (folder / "stream.json").read_text()
    (folder / "stream.json").write_text(text.replace('"name": "x"', '"name": "y"'))
    before = len(server.requests)
    assert StoredStream(server.url).name == "y"
    StoredStream(server.url).train.images(np.arange(NUM))
    assert len(server.requests) - before > 4


def test_missing_files_and_servers_without_ranges_are_named(
    folder: Path, server: Server, tmp_path: Path
) -> None:
    with pytest.raises(DriftlineError, match="is no stream"):
        StoredStream(server.url + "/validation/nothing")
    (folder / "images-00001.bin").rename(tmp_path / "away")
    split = StoredStream(server.url).train
    with pytest.raises(DriftlineError, match=r"images-00001\.bin is missing"):
        split.images(np.arange(NUM))
    server.ranges = False
    with pytest.raises(DriftlineError, match="ignores ranges"):
        split.images(np.array([50]))
    with pytest.raises(DriftlineError, match="cannot open nosuch://place"):
        StoredStream("nosuch://place")


def test_the_cache_keeps_within_its_bounds(tmp_path: Path) -> None:
    cache = BlockCache(tmp_path / "c", max_bytes=10 * 104)
    for i in range(50):
        cache.put(str(i), bytes([i]) * 100)
        cache.get("40")
        stored = [p.stat().st_size for p in (tmp_path / "c").rglob("*") if p.is_file()]
        assert sum(stored) == cache.num_bytes <= 10 * 104
    assert cache.get("49") == bytes([49]) * 100
    assert cache.get("40") is not None
    assert cache.get("39") is None
    assert BlockCache(tmp_path / "c", max_bytes=10 * 104).num_bytes == cache.num_bytes


def test_many_threads_share_one_remote_stream(folder: Path, server: Server) -> None:
    split, local = StoredStream(server.url).train, StoredStream(folder).train
    wrong: list[int] = []

    def read(seed: int) -> None:
        batches = np.random.default_rng(seed).integers(0, NUM, (10, 6))
        wrong.extend(seed for batch in batches if split.payloads(batch) != local.payloads(batch))

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
