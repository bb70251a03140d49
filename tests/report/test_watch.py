from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from driftline.config import RunConfig
from driftline.metrics.albums import rescore
from driftline.report.watch import LivePage, make_server
from driftline.types import PREDICTION, DriftlineError

from .make_runs import Skill, as_log, finish, grow, predictions

CONFIG = RunConfig(stream="world:4000")


def rows(first: int, last: int) -> np.ndarray:
    made = predictions(4000, 20, CONFIG.batch_size, Skill())
    made["scored"] = rescore(as_log(made), CONFIG.batch_size, CONFIG.test_every).scored
    return made[first:last]


@pytest.fixture
def growing(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").write_text(CONFIG.to_toml())
    return tmp_path / "run"


@contextmanager
def served(path: Path) -> Iterator[int]:
    with make_server(path) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def get(port: int, target: str, host: str | None = None) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", target, headers={"Host": host or f"127.0.0.1:{port}"})
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def last_online(news: dict) -> float:
    name = news["report"]["figures"]["online"]["forms"]["Linear"]["data"]["d0"]
    columns = news["report"]["pool"][name]
    words = columns["run"]["words"]
    return [v for v, run, k in zip(columns["value"], columns["run"]["codes"], columns["kind"]["codes"], strict=True)
            if words[run] == "run" and columns["kind"]["words"][k] == "sample"][-1]  # fmt: skip


def test_the_page_starts_empty_grows_and_ends(growing: Path) -> None:
    live = LivePage(growing)
    assert "has not made a step yet" in live.page()
    grow(growing, rows(0, 1500), CONFIG)
    news = live.news("")
    assert news is not None
    assert last_online(news) == pytest.approx(
        np.mean(rows(0, 1500)["label"] == rows(0, 1500)["pred"]), abs=1e-5
    )
    assert live.news(news["report"]["version"]) is None
    grow(growing, rows(1500, 4000), CONFIG)
    more = live.news(news["report"]["version"])
    assert more is not None
    assert last_online(more) == pytest.approx(
        np.mean(rows(0, 4000)["label"] == rows(0, 4000)["pred"]), abs=1e-5
    )
    assert not more["report"]["finished"]
    finish(growing, CONFIG, num=4000)
    end = live.news(more["report"]["version"])
    assert end is not None
    assert end["report"]["finished"]
    assert "backward" in end["report"]["figures"]


def test_a_log_cut_back_by_a_resume_is_read_again(growing: Path) -> None:
    grow(growing, rows(0, 2000), CONFIG)
    live = LivePage(growing)
    live.news("")
    with (growing / "predictions.bin").open("r+b") as file:
        file.truncate(500 * PREDICTION.itemsize)
    news = live.news("")
    assert news is not None
    assert last_online(news) == pytest.approx(
        np.mean(rows(0, 500)["label"] == rows(0, 500)["pred"]), abs=1e-5
    )


def test_the_server_answers_for_the_page_its_news_and_nothing_else(growing: Path) -> None:
    grow(growing, rows(0, 500), CONFIG)
    with served(growing) as port:
        status, page = get(port, "/")
        assert status == 200
        assert "connect-src 'self'" in page
        status, text = get(port, "/data.json?since=x")
        version = json.loads(text)["report"]["version"]
        assert get(port, f"/data.json?since={version}") == (204, "")
        assert get(port, "/config.toml")[0] == 404
        assert get(port, "/../config.toml")[0] == 404


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8765", "127.0.0.1.evil.example", "[::1]", ""])
def test_another_host_name_is_refused(growing: Path, host: str) -> None:
    with served(growing) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.putrequest("GET", "/", skip_host=True)
        connection.putheader("Host", host)
        connection.endheaders()
        answer = connection.getresponse()
        assert answer.status == 403
        assert b"<html" not in answer.read()


def test_the_server_listens_on_the_loopback_address_alone(growing: Path) -> None:
    with make_server(growing) as server:
        assert server.server_address[0] == "127.0.0.1"


def test_a_port_in_use_and_a_directory_that_is_no_run_are_refused(growing: Path, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(DriftlineError, match="choose another --port"):
            make_server(growing, taken.getsockname()[1])
    with pytest.raises(DriftlineError, match="not a run"):
        make_server(tmp_path)


def test_ctrl_c_ends_it_without_a_traceback(growing: Path) -> None:
    code = f"from pathlib import Path; from driftline.report import watch; watch(Path({str(growing)!r}), 0)"
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell's background jobs ignore Ctrl-C, and so would what they start.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None
    assert "http://127.0.0.1:" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "Traceback" not in err
    assert "stopped" in out
