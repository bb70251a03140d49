"""A study as one HTML file: findings, figures and tables, with nothing to load.

In: the document of `findings.json` and the figures beside it. Out: a page. The figures are SVG inside `img`, which no browser lets
run a script, and the page has none of its own.
"""

from __future__ import annotations

import base64
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from driftline.experiments.document import effect_text, sides_text, spread_text, table_of
from driftline.report.figure import Table
from driftline.report.markup import table_html
from driftline.streams.durable import replacing
from driftline.version import VERSION

Json = dict[str, Any]

_STYLE = """
.verdict { display: inline-block; padding: 0 .5em; border-radius: .6em; border: 1px solid currentColor; white-space: nowrap; }
.finding { margin: 1.2em 0; } .finding p { margin: .2em 0; }
.finding caption { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
.study .scroll { max-height: none; }
.study img { background: #fff; width: 100%; height: auto; }
.study img.single { width: min(100%, 34rem); }
"""


def write_study_page(document: Json, folder: Path) -> Path:
    """Write `study.html` into the study's directory."""
    path = folder / "study.html"
    with replacing(path) as temporary:
        temporary.write_text(render_study(document, folder), encoding="utf-8")
    return path


def render_study(document: Json, folder: Path) -> str:
    """The whole page as text."""
    style = resources.files("driftline.report").joinpath("assets", "page.css").read_text(encoding="utf-8")
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    )
    sections = "".join(_figure(name, figure, folder) for name, figure in document["figures"].items())
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>Study of {escape(document["stream"]["name"])} · driftline</title><link rel="icon" href="data:,">'
        f'<style>{style}{_STYLE}</style></head><body><main class="wrap study">{_top(document)}{sections}</main>'
        f'<footer class="wrap">Made by driftline {VERSION}. This page is one file: it loads nothing and sends nothing.</footer>'
        "</body></html>"
    )


def _top(document: Json) -> str:
    stream = document["stream"]
    seeds = len(document["seeds"])
    lede = (
        f"{stream['samples']:,} photos, {stream['classes']} classes, {stream['validation']:,} validation photos; "
        f"{seeds} {'seed' if seeds == 1 else 'seeds'}, scale {document['scale']}, made {document['made'][:10]}."
    )
    rows = [
        [
            finding["claim"],
            name,
            finding["verdict"],
            effect_text(finding["checks"][0]) if finding["checks"] else "–",
        ]
        for name, figure in document["figures"].items()
        for finding in figure["findings"]
    ]
    table = table_html(Table(["claim", "figure", "verdict", "first effect"], rows), "Findings")
    return (
        f'<header class="top"><p class="eyebrow">driftline study</p><h1>{escape(stream["name"])}</h1><p class="lede">{escape(lede)}</p></header>'
        f'<section id="findings"><h2>Findings</h2>{table}<p>{escape(document["rule"])}</p></section>'
    )


def _figure(name: str, figure: Json, folder: Path) -> str:
    failed = "".join(
        f'<p class="warning">{escape(run)}: {escape(why)}</p>' for run, why in figure["failed"].items()
    )
    image = "".join(_image(folder / file, figure) for file in figure["files"] if file.endswith(".svg"))
    head, rows = table_of(name, figure)
    table = table_html(Table(head, rows), f"{figure['title']}: runs") if rows else ""
    findings = "".join(_finding(finding) for finding in figure["findings"])
    return (
        f'<section id="{escape(name)}"><h2>{escape(figure["title"])}</h2>{failed}{image}'
        f"<p>{escape(figure['caption'])}</p>{findings}{table}</section>"
    )


def _image(path: Path, figure: Json) -> str:
    data = base64.b64encode(path.read_bytes()).decode()
    claims = " ".join(f"{f['claim']} {f['verdict']}." for f in figure["findings"])
    narrow = ' class="single"' if figure["width"] == "single" else ""
    return f'<img{narrow} src="data:image/svg+xml;base64,{data}" alt="{escape(figure["title"] + ". " + claims)}">'


def _finding(finding: Json) -> str:
    rows = [
        [c["what"], sides_text(c), effect_text(c), spread_text(c), c["verdict"]] for c in finding["checks"]
    ]
    head = ["comparison", "values", "effect (90 % interval)", "over seeds", "verdict"]
    note = f"<p>{escape(finding['note'])}</p>" if finding["note"] else ""
    return (
        f'<div class="finding"><p><strong>{escape(finding["claim"])}</strong> <span class="verdict">{escape(finding["verdict"])}</span></p>'
        f"<p>The paper: {escape(finding['paper'])}</p>{note}{table_html(Table(head, rows), finding['claim'])}</div>"
    )
