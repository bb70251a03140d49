"""Screenshots for the documentation: wide and narrow, light and dark, one run, several, labels alone, unfinished, live.

`python -m tests.report.screenshots docs/images` makes runs by arithmetic and photographs their pages; with run directories
after the folder it photographs those instead.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from driftline.config import RunConfig
from driftline.report import write_report

from .browser import Browser, browser
from .make_runs import Skill, make_run

WORLD = "world:20000"


def made_up(folder: Path) -> dict[str, list[Path]]:
    """Runs for each kind of page."""
    five = {
        "replay": (RunConfig(stream=WORLD), Skill(0.10, 0.42, 0)),
        "polrs-adrep": (
            RunConfig(stream=WORLD, schedule="polrs", adaptive_buffer=True, seed=1),
            Skill(0.12, 0.52, 1),
        ),
        "cosine": (RunConfig(stream=WORLD, schedule="cosine"), Skill(0.10, 0.36, 2)),
        "no-replay": (RunConfig(stream=WORLD, replay="none", batch_size=256), Skill(0.08, 0.28, 3)),
        "supervised": (RunConfig(stream=WORLD, learner="supervised"), Skill(0.10, 0.38, 4)),
    }
    paths = [make_run(folder / name, config, skill=skill) for name, (config, skill) in five.items()]
    return {
        "one": paths[:1],
        "five": paths,
        "labels": [make_run(folder / "labels-only", RunConfig(stream="shop"), places=False)],
        "unfinished": [
            make_run(folder / "unfinished", five["polrs-adrep"][0], num=8000, total=20000, finished=False)
        ],
    }


def photograph(
    window: Browser, page: Path, target: Path, *, width: int, dark: bool, at: str | None = None
) -> None:
    window.open(page.as_uri(), width=width, height=900 if width > 600 else 800, dark=dark)
    for key in window.run("return [...document.querySelectorAll('[data-chart]')].map(e => e.dataset.chart)"):
        window.show(key)
    window.run("scrollTo({top: 0, behavior: 'instant'})")
    if at:
        window.run(f"document.getElementById('{at}').scrollIntoView({{behavior: 'instant'}})")
    window.run("return document.fonts.ready")
    window.screenshot(target)


def main() -> None:
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as folder, browser() as window:
        given = [Path(p) for p in sys.argv[2:]]
        runs = {"one": given[:1], "five": given} if given else made_up(Path(folder))
        for name, paths in runs.items():
            write_report(paths, Path(folder) / f"{name}.html")
        shots = [
            ("one", "report-one-light", 1280, False, None),
            ("one", "report-one-dark", 1280, True, None),
            ("one", "report-map-dark", 1280, True, "places"),
            ("five", "report-five-light", 1280, False, None),
            ("five", "report-five-transfer", 1280, False, "transfer"),
            ("five", "report-five-phone", 390, False, "accuracy"),
            ("five", "report-five-phone-dark", 390, True, None),
            ("labels", "report-labels-light", 1280, False, None),
            ("unfinished", "report-unfinished-light", 1280, False, None),
        ]
        for name, target, width, dark, at in shots:
            if name in runs:
                photograph(
                    window,
                    Path(folder) / f"{name}.html",
                    out / f"{target}.png",
                    width=width,
                    dark=dark,
                    at=at,
                )


if __name__ == "__main__":
    main()
