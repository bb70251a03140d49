from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from driftline.config import RunConfig
from driftline.report import write_report
from driftline.report.compare import check_comparable
from driftline.report.digest import MAX_POINTS
from driftline.report.run_files import load_run
from driftline.types import DriftlineError

from .make_runs import Skill, make_run

HOSTILE = '</script><script>document.title="broken"</script><img src=x onerror=alert(1)>"\'&'
WORLD = "world:3000"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    made = {
        "er": RunConfig(stream=WORLD),
        "polrs": RunConfig(stream=WORLD, schedule="polrs", adaptive_buffer=True, seed=3),
        "cosine": RunConfig(stream=WORLD, schedule="cosine"),
        "large": RunConfig(stream=WORLD, batch_size=256, replay="none"),
        "offline": RunConfig(stream=WORLD, learner="supervised"),
    }
    paths = {
        n: make_run(folder / n, c, num=3000, num_classes=40, skill=Skill(seed=i))
        for i, (n, c) in enumerate(made.items())
    }
    paths["labels"] = make_run(
        folder / "labels", RunConfig(stream="shop"), num=3000, num_classes=40, places=False
    )
    paths["growing"] = make_run(
        folder / "growing", RunConfig(stream=WORLD), num=1500, num_classes=40, finished=False
    )
    return paths


class Page(HTMLParser):
    """What a browser would see: tags with their attributes, and the text of each script."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._script = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._script = tag == "script"
        if self._script:
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self._script:
            self.scripts[-1] += data

    def handle_endtag(self, tag: str) -> None:
        self._script = False

    @property
    def charts(self) -> set[str | None]:
        return {a["data-chart"] for _, a in self.tags if "data-chart" in a}

    @property
    def data(self) -> dict[str, dict[str, dict[str, object]]]:
        return json.loads(self.scripts[0])


def report(paths: list[Path], out: Path) -> str:
    write_report(paths, out)
    return out.read_text()


LINES = {"online", "months", "rate", "buffer", "training", "loss", "backward", "forward", "matrix", "changed"}


def test_one_run_with_places_shows_every_chart(runs: dict[str, Path], tmp_path: Path) -> None:
    text = report([runs["er"]], tmp_path / "p.html")
    assert Page(text).charts == LINES | {"map", "error"}
    assert "33" in text
    assert "driftline run --config" in text


def test_five_runs_stand_side_by_side(runs: dict[str, Path], tmp_path: Path) -> None:
    page = Page(report([runs[n] for n in ("er", "polrs", "cosine", "large", "offline")], tmp_path / "p.html"))
    assert [a["data-run"] for _, a in page.tags if "data-run" in a] == [
        "er",
        "polrs",
        "cosine",
        "large",
        "offline",
    ]
    assert page.charts == LINES | {"map", "error"}


def test_a_stream_of_labels_alone_has_no_map(runs: dict[str, Path], tmp_path: Path) -> None:
    text = report([runs["labels"]], tmp_path / "p.html")
    assert Page(text).charts == LINES
    assert " km" not in re.sub(r"<script.*?</script>", "", text, flags=re.S).split("</style>")[1]


def test_a_run_in_progress_is_reported_up_to_its_last_step(runs: dict[str, Path], tmp_path: Path) -> None:
    text = report([runs["growing"]], tmp_path / "p.html")
    assert Page(text).charts == {"online", "months", "rate", "buffer", "training", "loss", "map", "changed"}
    assert "not finished" in text


def test_a_supervised_run_alone_can_be_reported(runs: dict[str, Path], tmp_path: Path) -> None:
    text = report([runs["offline"]], tmp_path / "p.html")
    assert {"months", "matrix", "loss", "rate"} <= Page(text).charts
    assert "learned from in random order" in text
    assert "1970" not in re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)


def test_the_page_holds_everything_it_needs(runs: dict[str, Path], tmp_path: Path) -> None:
    text = report([runs["er"], runs["polrs"]], tmp_path / "p.html")
    page = Page(text)
    for tag, attributes in page.tags:
        for name in ("src", "href", "action", "data", "poster"):
            value = attributes.get(name) or "#"
            assert value.startswith(("data:", "#")), (tag, value)
    policy = next(a["content"] for _, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert "default-src 'none'" in policy
    assert "connect-src 'none'" in policy
    assert "unsafe-eval" not in policy
    assert "script-src 'sha256-" in policy
    assert len(text) < 5_000_000


def test_figures_are_there_without_eyes(runs: dict[str, Path], tmp_path: Path) -> None:
    page = Page(report([runs["er"]], tmp_path / "p.html"))
    charts = [a for _, a in page.tags if "data-chart" in a]
    ids = {a["id"] for _, a in page.tags if "id" in a}
    assert all(a.get("role") == "img" and a.get("aria-labelledby") in ids for a in charts)
    assert sum(tag == "caption" for tag, _ in page.tags) >= len(charts)
    assert all(a.get("alt") for tag, a in page.tags if tag == "img")
    assert any(a.get("class") == "skip" for _, a in page.tags)


def test_points_are_aggregated(runs: dict[str, Path], tmp_path: Path) -> None:
    page = Page(report([runs["er"]], tmp_path / "p.html"))
    longest = max(
        len(column["codes"] if isinstance(column, dict) else column)  # type: ignore[arg-type]
        for columns in page.data["pool"].values()
        for column in columns.values()
    )
    assert (
        longest <= 3 * 2 * (MAX_POINTS + 1) + 6
    )  # three scorings, the learner and the blind classifier, chance


def test_text_from_the_users_data_is_never_markup(tmp_path: Path) -> None:
    config = RunConfig(stream=HOSTILE)
    path = make_run(
        tmp_path / "a<b>&'c", config, num=3000, num_classes=12, names={i: HOSTILE + str(i) for i in range(12)}
    )
    page = Page(report([path], tmp_path / "p.html"))
    assert sum(tag == "script" for tag, _ in page.tags) == 3
    assert not [a for _, a in page.tags if any(name.startswith("on") for name in a)]
    assert all((a.get("src") or "").startswith("data:image/") for tag, a in page.tags if tag == "img")
    words = json.dumps(page.data["pool"])
    assert json.dumps(HOSTILE)[1:-1] in words


def test_the_same_runs_give_the_same_page(runs: dict[str, Path], tmp_path: Path) -> None:
    assert report([runs["er"]], tmp_path / "a.html") == report([runs["er"]], tmp_path / "b.html")


def test_different_streams_are_compared_with_a_warning(runs: dict[str, Path], tmp_path: Path) -> None:
    warnings = write_report([runs["er"], runs["labels"]], tmp_path / "p.html")
    assert any("different streams (world:3000, shop)" in w for w in warnings)
    text = (tmp_path / "p.html").read_text()
    assert "different streams" in text
    assert "blind classifier (er)" in text
    assert write_report([runs["er"], runs["polrs"]], tmp_path / "p.html") == []


def test_different_scorings_are_refused(runs: dict[str, Path], tmp_path: Path) -> None:
    other = make_run(tmp_path / "other", RunConfig(stream=WORLD, test_every=128), num=600, num_classes=40)
    with pytest.raises(DriftlineError, match="test_every = 256 and 128"):
        write_report([runs["er"], other], tmp_path / "p.html")
    figures = json.loads((other / "summary.json").read_text())
    (other / "config.toml").write_text(RunConfig(stream=WORLD).to_toml())
    (other / "summary.json").write_text(json.dumps(figures | {"protocol": "other-2"}))
    with pytest.raises(DriftlineError, match="other-2"):
        check_comparable([load_run(runs["er"]), load_run(other)])


def test_no_run_and_an_unwritable_place_are_refused(runs: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(DriftlineError, match="at least one run"):
        write_report([], tmp_path / "p.html")
    (tmp_path / "file").write_text("")
    with pytest.raises(DriftlineError, match="cannot write"):
        write_report([runs["er"]], tmp_path / "file" / "p.html")
