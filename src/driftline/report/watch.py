"""The growing page of a run in progress, served to this machine alone.

In: a run directory that somebody else writes to. Out: HTTP on 127.0.0.1: the page, and what is new since a version. Only new
rows of the log are read each time. Requests under another host name are refused, so that no web page can read the run.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from driftline.report.catalogue import build_figures
from driftline.report.digest import RunDigest, open_fold
from driftline.report.log_fold import LogFold
from driftline.report.page import content_html, document
from driftline.report.page_data import page_data
from driftline.report.run_files import load_run
from driftline.types import DriftlineError

ADDRESS = "127.0.0.1"
EVERY_MS = 2000


class LivePage:
    """The page about one run as it is now; reads what was appended since the last time it was asked."""

    def __init__(self, path: Path, every_ms: int = EVERY_MS) -> None:
        self._path = path
        self._every_ms = every_ms
        self._run = load_run(path, allow_empty=True)
        self._fold = open_fold(self._run)
        self._lock = threading.Lock()
        self._stamp: list[tuple[str, int, int]] = []
        self._made: tuple[str, dict[str, Any]] = ("", {})

    def page(self) -> str:
        """The whole page."""
        content, data = self._now()
        return document(self._run.name, [self._run.name], content, data)

    def news(self, since: str) -> dict[str, Any] | None:
        """Content and data, or None when nothing is new since that version."""
        content, data = self._now()
        return None if data["version"] == since else {"content": content, "report": data}

    def _now(self) -> tuple[str, dict[str, Any]]:
        with self._lock:
            stamp = [
                (p.name, p.stat().st_size, p.stat().st_mtime_ns)
                for p in sorted(self._path.iterdir())
                if p.is_file()
            ]
            if stamp == self._stamp:
                return self._made
            self._read()
            found = [RunDigest(self._run, self._run.name, self._fold)]
            figures = build_figures(found, interactive=True)
            data = page_data(figures, finished=self._run.is_finished, live=True, every_ms=self._every_ms)
            self._stamp, self._made = stamp, (content_html(found, figures), data)
            return self._made

    def _read(self) -> None:
        """Take in new rows; start again where the log was cut back (a resumed run) or the run is finished."""
        self._run = load_run(self._path, allow_empty=True)
        if self._run.num_predictions() < self._fold.num_rows:
            self._fold = LogFold(self._fold.blind_k)
        for block in self._run.log_blocks(self._fold.num_rows):
            self._fold.add(block)


def make_server(path: Path, port: int = 0, every_ms: int = EVERY_MS) -> ThreadingHTTPServer:
    """A server on 127.0.0.1 for the run; port 0 takes a free one. The caller starts and stops it."""
    live = LivePage(path, every_ms)

    class Handler(BaseHTTPRequestHandler):
        """Answers for the page and for its news; everything else is not found."""

        def do_GET(self) -> None:
            """Serve `/` and `/data.json`."""
            if self.headers.get("Host", "").rsplit(":", 1)[0] not in (ADDRESS, "localhost"):
                return self._answer(403, "text/plain", "this server answers only to 127.0.0.1 and localhost")
            url = urlsplit(self.path)
            try:
                if url.path == "/":
                    return self._answer(200, "text/html", live.page())
                if url.path == "/data.json":
                    news = live.news(parse_qs(url.query).get("since", [""])[0])
                    return (
                        self._answer(200, "application/json", json.dumps(news))
                        if news
                        else self._answer(204, "", "")
                    )
            except (DriftlineError, FileNotFoundError) as error:
                # The run may be replacing a file at this moment; the page asks again.
                return self._answer(503, "text/plain", str(error))
            return self._answer(404, "text/plain", "no such page")

        def _answer(self, status: int, kind: str, text: str) -> None:
            body = text.encode()
            self.send_response(status)
            if kind:
                self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.send_header("Cross-Origin-Resource-Policy", "same-origin")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing: the terminal belongs to the user."""

    try:
        server = ThreadingHTTPServer((ADDRESS, port), Handler)
    except OSError as error:
        raise DriftlineError(
            f"cannot listen on {ADDRESS}:{port} ({error.strerror}): choose another --port"
        ) from None
    server.daemon_threads = True
    return server


def watch(path: Path, port: int = 8765) -> None:
    """Serve the growing page until Ctrl-C."""
    with make_server(path, port) as server:
        try:
            print(f"{path}: http://{ADDRESS}:{server.server_port}/  (Ctrl-C ends)", flush=True)
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            print("stopped")
