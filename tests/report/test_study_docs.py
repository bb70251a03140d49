"""The pages of a study: the documentation keeps what people wrote in it, and text from data is never markup."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from PIL import Image

from driftline.experiments.document import finding_json
from driftline.experiments.verdicts import Finding, Measure, greater
from driftline.report.study_docs import comments, render_docs, write_study_docs
from driftline.report.study_page import render_study


def document(name: str = "world", effect: float = 0.1) -> dict[str, Any]:
    check = greater("a over b", [Measure(0.3 + effect)] * 3, [Measure(0.3)] * 3)
    finding = Finding("k", "A beats B.", "It did.", (check,))
    value = {"mean": 0.4, "low": 0.39, "high": 0.41}
    return {
        "stream": {"name": name, "samples": 1000, "classes": 5, "validation": 10},
        "seeds": [0, 1, 2],
        "scale": "quick",
        "made": "2026-01-02T03:04:05+00:00",
        "driftline": "1",
        "rule": "The rule.",
        "conditions": {"command": "driftline reproduce all", "jobs": 2, "threads": 1, "torch": "2"},
        "figures": {
            "shift": {
                "title": "Shift",
                "caption": "How to read it.",
                "width": "single",
                "files": ["figures/shift.png", "figures/shift.svg"],
                "failed": {},
                "findings": [finding_json(finding)],
                "table": [{"run": "a", "album": value, "gradient_steps": 1000}],
            }
        },
    }


def folder_with_figures(tmp_path: Path) -> Path:
    (tmp_path / "figures").mkdir()
    Image.new("RGBA", (40, 30), "teal").save(tmp_path / "figures" / "shift.png")
    (tmp_path / "figures" / "shift.svg").write_text("picture")
    return tmp_path


def test_commentary_survives_a_new_run(tmp_path: Path) -> None:
    folder = folder_with_figures(tmp_path)
    page = tmp_path / "docs" / "study.md"
    write_study_docs(document(), folder, page)
    first = page.read_text()
    assert "| a over b | 40.0 % and 30.0 % | +10.0 points | 3 seeds: +10.0 to +10.0 | held |" in first
    marked = "<!-- comment shift -->\n"
    page.write_text(first.replace(marked, marked + "Because the world turns.\n\nAnd more.\n"))
    write_study_docs(document(effect=-0.1), folder, page)
    second = page.read_text()
    assert "Because the world turns.\n\nAnd more.\n" in second
    assert "**did not hold**" in second
    assert comments(second)["shift"] == "Because the world turns.\n\nAnd more.\n"
    with Image.open(page.parent / "images" / "study-shift.png") as picture:
        assert picture.size == (40, 30)
        assert picture.convert("RGB").getpixel((5, 5)) == (0, 128, 128)


def test_rendering_twice_changes_nothing() -> None:
    once = render_docs(document(), {"overview": "Words.\n"})
    assert render_docs(document(), comments(once)) == once


def test_the_page_holds_everything_and_escapes_names(tmp_path: Path) -> None:
    page = render_study(document(name="<script>alert(1)</script>"), folder_with_figures(tmp_path))
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "A beats B." in page
    assert 'src="data:image/svg+xml;base64,' in page


def test_a_figure_whose_run_failed_says_so(tmp_path: Path) -> None:
    made = document()
    made["figures"]["shift"] |= {
        "failed": {"one year, seed 0": "lr = 9: diverged"},
        "findings": [],
        "files": [],
        "table": [],
    }
    assert "diverged" in render_study(made, tmp_path)
    assert "diverged" in render_docs(made, {})
