"""Downloads against a server that misbehaves in every way we know of."""

from __future__ import annotations

import gzip
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from driftline.streams import web
from driftline.streams.decode import encode
from driftline.streams.download import UrlSource, fetch_images
from driftline.streams.images import IngestProgress
from driftline.streams.sources import Missing
from driftline.streams.store import ImageFormat, StoredStream, finish_stream, verify
from driftline.streams.web import Browser, Limits, WebError, is_public
from driftline.types import ClassTable, DriftlineError

IMAGE = encode(np.full((20, 30, 3), 90, np.uint8))
LIMITS = Limits(connect_s=2, read_s=0.4, total_s=3, max_bytes=100_000, allow_private=True)


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: Counter[str] = Counter()
        self.connections = 0
        self.healed = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that hang up are what these tests are about."""


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.server.connections += 1

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def answer(self, body: bytes, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers and "Transfer_Encoding" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        name = self.path.strip("/").split("/")[0]
        self.server.asked[self.path] += 1
        getattr(self, f"serve_{name}", self.serve_missing)()

    def serve_missing(self) -> None:
        self.answer(b"gone", 404)

    def serve_image(self) -> None:
        self.answer(IMAGE, Content_Type="image/jpeg")

    def serve_octets(self) -> None:
        self.answer(IMAGE, Content_Type="application/octet-stream")

    def serve_chunked(self) -> None:
        self.answer(b"%x\r\n%s\r\n0\r\n\r\n" % (len(IMAGE), IMAGE), Transfer_Encoding="chunked")

    def serve_dead(self) -> None:
        self.answer(b"gone", 410)

    def serve_broken(self) -> None:
        self.answer(b"oops", 500)

    def serve_recovers(self) -> None:
        if self.server.asked[self.path] < 3:
            self.answer(b"oops", 500)
        else:
            self.serve_image()

    def serve_heals(self) -> None:
        if self.server.healed:
            self.serve_image()
        else:
            self.answer(b"oops", 503)

    def serve_later(self) -> None:
        if self.server.asked[self.path] == 1:
            self.answer(b"slow down", 429, Retry_After="1")
        else:
            self.serve_image()

    def serve_muchlater(self) -> None:
        self.answer(b"slow down", 429, Retry_After="86400")

    def serve_slow(self) -> None:
        time.sleep(1.5)
        self.serve_image()

    def serve_dribble(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        for _ in range(100):
            self.wfile.write(b"\xff")
            time.sleep(0.1)

    def serve_dribblehead(self) -> None:
        for _ in range(100):
            self.wfile.write(b"H")
            time.sleep(0.1)

    def serve_truncated(self) -> None:
        self.answer(IMAGE[:50], Content_Length=str(len(IMAGE)))
        self.close_connection = True

    def serve_cutchunk(self) -> None:
        self.answer(b"%x\r\n%s" % (len(IMAGE), IMAGE[:50]), Transfer_Encoding="chunked")
        self.close_connection = True

    def serve_hangup(self) -> None:
        self.connection.shutdown(socket.SHUT_RDWR)
        self.close_connection = True

    def serve_html(self) -> None:
        self.answer(b"<html>not here</html>", Content_Type="image/jpeg")

    def serve_empty(self) -> None:
        self.answer(b"")

    def serve_huge(self) -> None:
        self.answer(b"", Content_Length=str(10**12))
        self.close_connection = True

    def serve_endless(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while True:
            self.wfile.write(b"1000\r\n" + bytes(4096) + b"\r\n")

    def serve_squeezed(self) -> None:
        self.answer(gzip.compress(bytes(10**7)), Content_Encoding="gzip")

    def serve_redirect(self) -> None:
        self.answer(b"", 302, Location="/image/after-redirect")

    def serve_loop(self) -> None:
        self.answer(b"", 302, Location="/loop")

    def serve_inward(self) -> None:
        self.answer(b"", 302, Location=f"http://127.0.0.2:{self.server.server_address[1]}/image")

    def serve_metadata(self) -> None:
        self.answer(b"", 307, Location="http://169.254.169.254/latest/meta-data/")

    def serve_tofile(self) -> None:
        self.answer(b"", 301, Location="file:///etc/passwd")

    def serve_placeholder(self) -> None:
        self.answer(b"", 302, Location="/image/photo_unavailable.png")

    def serve_nonsense(self) -> None:
        self.wfile.write(b"SSH-2.0-OpenSSH\r\n\r\n")
        self.close_connection = True


@pytest.fixture(scope="module")
def shared() -> Iterator[Server]:
    yield from serving()


@pytest.fixture
def server() -> Iterator[Server]:
    yield from serving()


def serving() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def source(**options: Any) -> UrlSource:
    settings: dict[str, Any] = {"first_wait_s": 0.01, "attempts": 3, "limits": LIMITS} | options
    return UrlSource(**settings)


@pytest.mark.parametrize(
    "name", ["image", "octets", "chunked", "redirect", "recovers", "later", "image/with space/ü?q=ü"]
)
def test_what_can_be_had_is_had(shared: Server, name: str) -> None:
    assert list(source().read([f"{shared.url}/{name}"])) == [IMAGE]


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
def test_what_cannot_be_had_has_its_reason(shared: Server, name: str, reason: str, passing: bool) -> None:
    (found,) = source(attempts=1).read([f"{shared.url}/{name}"])
    assert isinstance(found, Missing)
    assert reason in found.reason
    assert found.passing == passing


def test_only_what_may_pass_is_asked_for_again(server: Server) -> None:
    list(source().read([f"{server.url}/{name}" for name in ("broken", "nothing", "html")]))
    assert server.asked == {"/broken": 3, "/nothing": 1, "/html": 1}


def test_nobody_listening_is_a_passing_failure() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (found,) = source(attempts=2).read([f"http://127.0.0.1:{port}/"])
    assert isinstance(found, Missing)
    assert found.passing


def test_private_addresses_are_refused_unless_asked_for(server: Server) -> None:
    careful = source(limits=Limits())
    for url in [
        server.url,
        server.url.replace("127.0.0.1", "localhost"),
        server.url.replace("127.0.0.1", "0.0.0.0"),
    ]:
        (found,) = careful.read([url + "/image"])
        assert isinstance(found, Missing)
        assert "private address" in found.reason
    assert not server.asked


@pytest.mark.parametrize("name", ["inward", "metadata"])
def test_a_redirect_to_a_private_address_is_refused(
    server: Server, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(web, "is_public", lambda address: address == "127.0.0.1" or is_public(address))
    careful = source(limits=Limits(connect_s=1))
    (found,) = careful.read([f"{server.url}/{name}"])
    assert isinstance(found, Missing)
    assert "private address" in found.reason
    assert server.asked == {f"/{name}": 1}


def test_the_connection_goes_to_the_address_that_was_checked(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name server that answers differently the second time gains nothing: there is no second time."""
    port = server.server_address[1]
    answers = iter(["127.0.0.1", "127.0.0.2"])
    asked = []

    def resolve(host: str, port: int, **options: Any) -> list[Any]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (next(answers), port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(web, "is_public", lambda address: address == "127.0.0.1")
    assert Browser(Limits()).get(f"http://photos.example:{port}/image") == IMAGE
    with pytest.raises(WebError, match="private address"):
        Browser(Limits()).get(f"http://photos.example:{port}/image")
    assert asked == ["photos.example"] * 2
    assert sum(server.asked.values()) == 1


def test_connections_are_used_again(server: Server) -> None:
    browser = Browser(LIMITS)
    for i in range(10):
        assert browser.get(f"{server.url}/image/{i}") == IMAGE
    assert server.connections == 1
    browser.close()


def test_an_idle_connection_that_was_closed_is_opened_anew(server: Server) -> None:
    browser = Browser(LIMITS)
    assert browser.get(f"{server.url}/image") == IMAGE
    (idle,) = browser._idle.values()
    idle.sock._inner.shutdown(socket.SHUT_RDWR)  # type: ignore[union-attr]
    assert browser.get(f"{server.url}/image") == IMAGE
    assert server.connections == 2


def test_order_is_kept_whatever_arrives_first(shared: Server) -> None:
    names = ["recovers/o", "image", "nothing", "later/o", "image", "html", "image"]
    found = list(source(concurrency=8).read([f"{shared.url}/{name}" for name in names]))
    assert [isinstance(one, bytes) for one in found] == [True, True, False, True, True, False, True]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="making a certificate needs openssl")
def test_a_certificate_that_nobody_vouches_for_is_refused(server: Server, tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout {key} -out {certificate}"
    subprocess.run(command.split(), check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    (found,) = source().read([server.url.replace("http://127.0.0.1", "https://localhost") + "/image"])
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


def test_a_stream_gets_its_images_and_the_dead_links_are_listed(server: Server, tmp_path: Path) -> None:
    urls = [
        f"{server.url}/{'dead' if i % 10 == 3 else 'heals' if i % 10 == 7 else 'image'}/{i}"
        for i in range(40)
    ]
    path = tmp_path / "stream"
    stream_of_urls(path, urls)
    seen: list[tuple[str, IngestProgress]] = []
    options: dict[str, Any] = {"source": source(attempts=1), "rows_per_shard": 8, "workers": 2}
    first = fetch_images(path, **options, progress=lambda name, state: seen.append((name, state)))
    assert (first.train.num_kept, first.num_passing) == (32, 4)
    assert first.train.reasons == {"HTTP status 410": 4, "HTTP status 503": 4}
    assert seen[-1][0] == "train"
    assert (seen[-1][1].rows_done, seen[-1][1].failed) == (40, 8)
    stream = StoredStream(path)
    assert stream.manifest.how["table"] == "x"
    assert stream.train.samples(0, 32).time.tolist() == [i for i in range(40) if i % 10 not in (3, 7)]
    failed = pl.read_parquet(path / "failed.parquet")
    assert failed.filter(pl.col("reason") == "HTTP status 410")["image"].to_list() == [
        u for u in urls if "dead" in u
    ]

    server.healed = True
    before = server.asked.total()
    second = fetch_images(path, **options)
    assert (second.train.num_kept, second.num_passing) == (36, 0)
    assert server.asked.total() == before + 4
    assert len(StoredStream(path).train) == 36
    assert verify(path).ok
    with pytest.raises(DriftlineError, match="has its images already"):
        fetch_images(path, **options)


FETCH = """
import sys
from pathlib import Path
from driftline.streams.download import UrlSource, fetch_images
from driftline.streams.web import Limits

if __name__ == "__main__":
    source = UrlSource(concurrency=2, limits=Limits(allow_private=True))
    fetch_images(Path(sys.argv[1]), source=source, rows_per_shard=64, workers=int(sys.argv[2]))
"""


@pytest.mark.parametrize("workers", [0, 1])
def test_a_killed_fetch_asks_again_only_for_what_was_under_way(
    server: Server, tmp_path: Path, workers: int
) -> None:
    stream_of_urls(tmp_path / "whole" / "stream", urls := [f"{server.url}/image/{i}" for i in range(128)])
    fetch_images(tmp_path / "whole" / "stream", source=source(), rows_per_shard=64, workers=0)
    server.asked.clear()
    path = tmp_path / "killed" / "stream"
    stream_of_urls(path, urls)
    (tmp_path / "fetch.py").write_text(FETCH)
    command = [sys.executable, str(tmp_path / "fetch.py"), str(path), str(workers)]
    for wanted in (30, 80, 110):
        process = subprocess.Popen(command)
        while process.poll() is None and server.asked.total() < wanted:
            time.sleep(0.001)
        process.kill()
        process.wait()
    fetch_images(path, source=source(), rows_per_shard=64, workers=workers)
    assert server.asked.total() < 133 + 3 * 20
    names = ["stream.json", "samples.parquet", "images-00000.bin", "images-00001.bin", "images-00001.idx"]
    for name in names:
        assert (path / name).read_bytes() == (tmp_path / "whole" / "stream" / name).read_bytes(), name


def test_a_stream_without_addresses_says_so(tmp_path: Path) -> None:
    path = tmp_path / "stream"
    stream_of_urls(path, ["x"] * 6)
    samples = pl.read_parquet(path / "samples.parquet").drop("image")
    samples.write_parquet(path / "samples.parquet")
    with pytest.raises(DriftlineError, match="no column 'image'"):
        fetch_images(path)
