"""A web server on the loopback address that misbehaves in every way we know of; for the tests of downloads."""

from __future__ import annotations

import gzip
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

from driftline.streams.store.decode import encode

IMAGE = encode(np.full((20, 30, 3), 90, np.uint8))


class Server(ThreadingHTTPServer):
    daemon_threads = True
    image = IMAGE

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
def shared_bad_server() -> Iterator[Server]:
    yield from serving()


@pytest.fixture
def bad_server() -> Iterator[Server]:
    yield from serving()


def serving() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()
