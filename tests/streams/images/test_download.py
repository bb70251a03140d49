"""Downloads against a server that misbehaves in every way we know of."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from driftline.streams.images import web
from driftline.streams.images.download import UrlSource, fetch_images
from driftline.streams.images.ingest import IngestProgress
from driftline.streams.images.sources import Missing
from driftline.streams.images.web import Browser, Limits, WebError, is_public
from driftline.streams.store import ImageFormat, StoredStream, finish_stream, verify
from driftline.types import ClassTable, DriftlineError

LIMITS = Limits(connect_s=2, read_s=0.4, total_s=3, max_bytes=100_000, allow_private=True)


def source(**options: Any) -> UrlSource:
    settings: dict[str, Any] = {"first_wait_s": 0.01, "attempts": 3, "limits": LIMITS} | options
    return UrlSource(**settings)


@pytest.mark.parametrize(
    "name", ["image", "octets", "chunked", "redirect", "recovers", "later", "image/with space/ü?q=ü"]
)
def test_what_can_be_had_is_had(shared_bad_server: Any, name: str) -> None:
    assert list(source().read([f"{shared_bad_server.url}/{name}"])) == [shared_bad_server.image]


@pytest.mark.parametrize(
    ("name", "reason", "passing"),
    [
        ("nothing", "HTTP status 404", False),
        ("dead", "HTTP status 410", False),
        ("broken", "HTTP status 500", True),
        ("muchlater", "HTTP status 429", True),
        ("slow", "timed out", True),
        ("dribble", "timed out", True),
        ("dribblehead", "timed out", True),
        ("truncated", "cut short: 50 of", True),
        ("cutchunk", "connection failed", True),
        ("hangup", "connection failed", True),
        ("nonsense", "connection failed", True),
        ("html", "not an image", False),
        ("empty", "empty answer", False),
        ("huge", "too large", False),
        ("endless", "too large", False),
        ("squeezed", "compressed", False),
        ("loop", "redirects", False),
        ("tofile", "not an http", False),
        ("placeholder", "no longer available", False),
    ],
)
def test_what_cannot_be_had_has_its_reason(
    shared_bad_server: Any, name: str, reason: str, passing: bool
) -> None:
    (found,) = source(attempts=1).read([f"{shared_bad_server.url}/{name}"])
    assert isinstance(found, Missing)
    assert reason in found.reason
    assert found.passing == passing


def test_only_what_may_pass_is_asked_for_again(bad_server: Any) -> None:
    list(source().read([f"{bad_server.url}/{name}" for name in ("broken", "nothing", "html")]))
    assert bad_server.asked == {"/broken": 3, "/nothing": 1, "/html": 1}


def test_nobody_listening_is_a_passing_failure() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (found,) = source(attempts=2).read([f"http://127.0.0.1:{port}/"])
    assert isinstance(found, Missing)
    assert found.passing


def test_private_addresses_are_refused_unless_asked_for(bad_server: Any) -> None:
    careful = source(limits=Limits())
    for url in [
        bad_server.url,
        bad_server.url.replace("127.0.0.1", "localhost"),
        bad_server.url.replace("127.0.0.1", "0.0.0.0"),
    ]:
        (found,) = careful.read([url + "/image"])
        assert isinstance(found, Missing)
        assert "private address" in found.reason
    assert not bad_server.asked


@pytest.mark.parametrize("name", ["inward", "metadata"])
def test_a_redirect_to_a_private_address_is_refused(
    bad_server: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(web, "is_public", lambda address: address == "127.0.0.1" or is_public(address))
    careful = source(limits=Limits(connect_s=1))
    (found,) = careful.read([f"{bad_server.url}/{name}"])
    assert isinstance(found, Missing)
    assert "private address" in found.reason
    assert bad_server.asked == {f"/{name}": 1}


def test_the_connection_goes_to_the_address_that_was_checked(
    bad_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name server that answers differently the second time gains nothing: there is no second time."""
    port = bad_server.server_address[1]
    answers = iter(["127.0.0.1", "127.0.0.2"])
    asked = []

    def resolve(host: str, port: int, **options: Any) -> list[Any]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (next(answers), port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(web, "is_public", lambda address: address == "127.0.0.1")
    assert Browser(Limits()).get(f"http://photos.example:{port}/image") == bad_server.image
    with pytest.raises(WebError, match="private address"):
        Browser(Limits()).get(f"http://photos.example:{port}/image")
    assert asked == ["photos.example"] * 2
    assert sum(bad_server.asked.values()) == 1


def test_connections_are_used_again(bad_server: Any) -> None:
    browser = Browser(LIMITS)
    for i in range(10):
        assert browser.get(f"{bad_server.url}/image/{i}") == bad_server.image
    assert bad_server.connections == 1
    browser.close()


def test_an_idle_connection_that_was_closed_is_opened_anew(bad_server: Any) -> None:
    browser = Browser(LIMITS)
    assert browser.get(f"{bad_server.url}/image") == bad_server.image
    (idle,) = browser._idle.values()
    idle.sock._inner.shutdown(socket.SHUT_RDWR)  # type: ignore[union-attr]
    assert browser.get(f"{bad_server.url}/image") == bad_server.image
    assert bad_server.connections == 2


def test_order_is_kept_whatever_arrives_first(shared_bad_server: Any) -> None:
    names = ["recovers/o", "image", "nothing", "later/o", "image", "html", "image"]
    found = list(source(concurrency=8).read([f"{shared_bad_server.url}/{name}" for name in names]))
    assert [isinstance(one, bytes) for one in found] == [True, True, False, True, True, False, True]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="making a certificate needs openssl")
def test_a_certificate_that_nobody_vouches_for_is_refused(bad_server: Any, tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout {key} -out {certificate}"
    subprocess.run(command.split(), check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    bad_server.socket = context.wrap_socket(bad_server.socket, server_side=True)
    (found,) = source().read([bad_server.url.replace("http://127.0.0.1", "https://localhost") + "/image"])
    assert isinstance(found, Missing)
    assert "certificate" in found.reason
    assert not found.passing


def stream_of_urls(path: Path, urls: list[str]) -> None:
    count = len(urls)
    rows = pl.DataFrame(
        {
            "id": [str(i) for i in range(count)],
            "image": urls,
            "time": range(count),
            "user": [1] * count,
            "label": pl.Series([0] * count, dtype=pl.Int32),
            "lat": [0.0] * count,
            "lon": [0.0] * count,
        }
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    rows.write_parquet(path.parent / "rows.parquet")
    rows[:5].write_parquet(path.parent / "validation.parquet")
    finish_stream(
        path, name="web", classes=ClassTable(("only",)), how={"table": "x"}, train_rows=path.parent / "rows.parquet",
        validation_rows=path.parent / "validation.parquet", image=ImageFormat("none", 16),
    )  # fmt: skip


def test_a_stream_gets_its_images_and_the_dead_links_are_listed(bad_server: Any, tmp_path: Path) -> None:
    urls = [
        f"{bad_server.url}/{'dead' if i % 10 == 3 else 'heals' if i % 10 == 7 else 'image'}/{i}"
        for i in range(40)
    ]
    path = tmp_path / "stream"
    stream_of_urls(path, urls)
    seen: list[tuple[str, IngestProgress]] = []
    options: dict[str, Any] = {"source": source(attempts=1), "rows_per_shard": 8, "workers": 2}
    first = fetch_images(path, **options, progress=lambda name, state: seen.append((name, state)))
    assert (first.train.num_kept, first.num_passing) == (32, 4)
    assert first.train.reasons == {"HTTP status 410": 4, "HTTP status 503": 4}
    last = dict(seen)
    assert (last["train"].rows_done, last["train"].failed) == (40, 8)
    assert (last["validation"].rows_done, last["validation"].failed) == (5, 1)
    stream = StoredStream(path)
    assert stream.manifest.how["table"] == "x"
    assert stream.train.samples(0, 32).time.tolist() == [i for i in range(40) if i % 10 not in (3, 7)]
    failed = pl.read_parquet(path / "failed.parquet")
    assert failed.filter(pl.col("reason") == "HTTP status 410")["image"].to_list() == [
        u for u in urls if "dead" in u
    ]

    bad_server.healed = True
    before = bad_server.asked.total()
    second = fetch_images(path, **options)
    assert (second.train.num_kept, second.num_passing) == (36, 0)
    assert bad_server.asked.total() == before + 4
    assert len(StoredStream(path).train) == 36
    assert verify(path).ok
    with pytest.raises(DriftlineError, match="has its images already"):
        fetch_images(path, **options)


FETCH = """
import sys
from pathlib import Path
from driftline.streams.images.download import UrlSource, fetch_images
from driftline.streams.images.web import Limits

if __name__ == "__main__":
    source = UrlSource(concurrency=2, limits=Limits(allow_private=True))
    fetch_images(Path(sys.argv[1]), source=source, rows_per_shard=64, workers=int(sys.argv[2]))
"""


@pytest.mark.parametrize("workers", [0, 1])
def test_a_killed_fetch_asks_again_only_for_what_was_under_way(
    bad_server: Any, tmp_path: Path, workers: int
) -> None:
    stream_of_urls(tmp_path / "whole" / "stream", urls := [f"{bad_server.url}/image/{i}" for i in range(128)])
    fetch_images(tmp_path / "whole" / "stream", source=source(), rows_per_shard=64, workers=0)
    bad_server.asked.clear()
    path = tmp_path / "killed" / "stream"
    stream_of_urls(path, urls)
    (tmp_path / "fetch.py").write_text(FETCH)
    command = [sys.executable, str(tmp_path / "fetch.py"), str(path), str(workers)]
    for wanted in (30, 80, 110):
        process = subprocess.Popen(command)
        while process.poll() is None and bad_server.asked.total() < wanted:
            time.sleep(0.001)
        process.kill()
        process.wait()
    fetch_images(path, source=source(), rows_per_shard=64, workers=workers)
    assert bad_server.asked.total() < 133 + 3 * 20
    names = ["stream.json", "samples.parquet", "images-00000.bin", "images-00001.bin", "images-00001.idx"]
    for name in names:
        assert (path / name).read_bytes() == (tmp_path / "whole" / "stream" / name).read_bytes(), name


def test_a_stream_none_of_whose_links_live_is_refused_and_can_be_tried_again(
    bad_server: Any, tmp_path: Path
) -> None:
    path = tmp_path / "stream"
    stream_of_urls(path, [f"{bad_server.url}/heals/{i}" for i in range(12)])
    options: dict[str, Any] = {"source": source(attempts=1), "workers": 0}
    with pytest.raises(DriftlineError, match=r"none of the first 12 images .*mostly: HTTP status 503"):
        fetch_images(path, **options)
    bad_server.healed = True
    assert fetch_images(path, **options).train.num_kept == 12


def test_a_few_dead_links_of_a_small_validation_set_stop_nothing(bad_server: Any, tmp_path: Path) -> None:
    path = tmp_path / "stream"
    stream_of_urls(path, [f"{bad_server.url}/{'dead' if i < 5 else 'image'}/{i}" for i in range(12)])
    fetch_images(path, source=source(), workers=0)
    assert (len(StoredStream(path).train), len(StoredStream(path).validation)) == (7, 0)


def test_a_stream_without_addresses_says_so(tmp_path: Path) -> None:
    path = tmp_path / "stream"
    stream_of_urls(path, ["x"] * 6)
    samples = pl.read_parquet(path / "samples.parquet").drop("image")
    samples.write_parquet(path / "samples.parquet")
    with pytest.raises(DriftlineError, match="no column 'image'"):
        fetch_images(path)
