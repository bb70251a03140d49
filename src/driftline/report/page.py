"""The report as one HTML file that needs no server and no network.

In: run directories. Out: a page with everything inside it: figures, data, images, and the script that draws them.
"""

from __future__ import annotations

import base64
import hashlib
import shlex
from collections.abc import Sequence
from functools import lru_cache
from html import escape
from importlib import resources
from pathlib import Path

import numpy as np
import vl_convert

from driftline.charts.theme import NIGHT, PALETTE
from driftline.report.catalogue import build_figures
from driftline.report.compare import check_comparable
from driftline.report.digest import RunDigest, digests
from driftline.report.figure import Figure, Table, count
from driftline.report.headline import figures_of, headline_html
from driftline.report.markup import figure_html, run_toggle, table_html
from driftline.report.page_data import Json, page_data, safe_json
from driftline.report.photos import strip_html
from driftline.types import DriftlineError
from driftline.version import VERSION

GROUPS = {
    "accuracy": ("Accuracy over time", ("online", "months")),
    "inside": ("Inside the run", ("rate", "buffer", "training", "loss")),
    "transfer": ("Transfer to the past and the future", ("backward", "forward", "matrix")),
    "places": ("Places", ("map", "error")),
    "classes": ("Classes", ("changed",)),
}
WIDE = frozenset({"online", "months", "matrix", "map", "error", "changed"})
NAVIGATION = {
    "summary": "Summary",
    **{key: title.split(" ")[0] for key, (title, _) in GROUPS.items()},
    "again": "Run again",
}


def write_report(runs: Sequence[Path], out: Path) -> list[str]:
    """Write the page about one run or several side by side; returns warnings about the comparison."""
    found = digests(runs)
    warnings = check_comparable([d.run for d in found])
    page = render(found, warnings)
    out = Path(out)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(page, encoding="utf-8")
    except OSError as error:
        raise DriftlineError(f"cannot write {out}: {error}; choose another --out") from None
    return warnings


def render(found: Sequence[RunDigest], warnings: Sequence[str] = ()) -> str:
    """The whole page as text."""
    figures = build_figures(found, interactive=True)
    data = page_data(figures, finished=all(d.run.is_finished for d in found))
    return document(_title(found), [d.name for d in found], content_html(found, figures, warnings), data)


def content_html(found: Sequence[RunDigest], figures: Sequence[Figure], warnings: Sequence[str] = ()) -> str:
    """Everything between the toolbar and the footer; a live page asks for it again."""
    by_key = {figure.key: figure for figure in figures}
    groups = [
        _group(key, title, [by_key[k] for k in keys if k in by_key]) for key, (title, keys) in GROUPS.items()
    ]
    notes = "".join(f'<p class="warning" role="note">{escape(w)}</p>' for w in warnings)
    return (
        f'<header class="top"><p class="eyebrow">driftline report</p><h1>{escape(_title(found))}</h1>'
        f'<p class="lede" data-live="lede">{escape(_lede(found))}</p>{notes}</header>'
        f'<section id="summary"><h2>Summary</h2><div data-live="summary">{headline_html(found)}</div></section>'
        + "".join(groups)
        + _photos(found)
        + _again(found)
    )


def _title(found: Sequence[RunDigest]) -> str:
    return found[0].name if len(found) == 1 else f"{len(found)} runs compared"


def _lede(found: Sequence[RunDigest]) -> str:
    streams = ", ".join(dict.fromkeys(d.run.config.stream for d in found))
    ranges = [r for d in found if (r := d.time_range())]
    if not ranges:
        return f"Stream {streams}. The run has not made a step yet."
    first, last = (
        str(np.datetime64(t, "s").astype("datetime64[D]"))
        for t in (min(r[0] for r in ranges), max(r[1] for r in ranges))
    )
    photos = max(figures_of(d).get("samples") or 0 for d in found)
    unfinished = (
        ""
        if all(d.run.is_finished for d in found)
        else " The run is not finished: figures are up to the last step written."
    )
    offline = all(d.run.is_supervised for d in found)
    how = "learned from in random order" if offline else "each tested first and then learned from"
    return f"Stream {streams}: {count(photos)} photos from {first} to {last}, {how}.{unfinished}"


def _group(key: str, title: str, figures: Sequence[Figure]) -> str:
    if not figures:
        return ""
    body = "".join(figure_html(figure, wide=figure.key in WIDE) for figure in figures)
    return f'<section id="{key}"><h2>{escape(title)}</h2><div class="grid">{body}</div></section>'


def _photos(found: Sequence[RunDigest]) -> str:
    strip = strip_html(found)
    if not strip:
        return ""
    note = "Photos in the order of the stream, with the truth in bold and what was predicted at that moment."
    return f'<section id="photos"><h2>Photos over time</h2><p class="lede">{note}</p><div data-live="photos">{strip}</div></section>'


def _again(found: Sequence[RunDigest]) -> str:
    parts = []
    for d in found:
        command = f"driftline run --config {shlex.quote(str(d.run.path / 'config.toml'))} --out {shlex.quote(d.name + '-again')}"
        files = Table(["file", "bytes"], [[name, count(size)] for name, size in d.run.listing()])
        versions = Table(
            ["part", "version"],
            [[str(k), str(v)] for k, v in dict(d.run.summary.get("versions", {})).items()],
        )
        inner = (
            f"<pre><code>{escape(command)}</code></pre><pre><code>{escape(d.run.config.to_toml())}</code></pre>"
            f"{table_html(files, 'Files')}{table_html(versions, 'Versions') if versions.rows else ''}"
        )
        parts.append(
            f"<details{' open' if len(found) == 1 else ''}><summary>{escape(d.name)}</summary>{inner}</details>"
        )
    note = "The same settings, seed and stream give the same predictions. Files and versions are those of the run."
    return f'<section id="again"><h2>How to run it again</h2><p class="lede">{note}</p>{"".join(parts)}</section>'


def _toolbar(names: Sequence[str], data: Json) -> str:
    toggles = "".join(run_toggle(name, i) for i, name in enumerate(names))
    legend = "Runs" if len(names) > 1 else "Run"
    present = {key for key, (_, keys) in GROUPS.items() if any(k in data["figures"] for k in keys)} | {
        "summary",
        "again",
    }
    links = "".join(
        f'<a href="#{key}">{escape(text)}</a>' for key, text in NAVIGATION.items() if key in present
    )
    state = '<span class="badge" id="live" role="status">live</span>' if data["live"] else ""
    return (
        f'<div class="bar"><div class="wrap"><fieldset class="runs"><legend>{legend}</legend>{toggles}</fieldset>{state}'
        f'<nav aria-label="Sections">{links}<button type="button" id="theme" aria-label="Light or dark">\u25d0</button></nav></div></div>'
    )


def document(title: str, names: Sequence[str], content: str, data: Json) -> str:
    """A whole HTML document: toolbar for the runs, the content, the data and the scripts."""
    libraries, script, style = _libraries(), _asset("page.js"), _run_colors() + _asset("page.css")
    # Only these two scripts may run, and neither may make new ones from text.
    reach = "'self'" if data["live"] else "'none'"
    policy = (
        f"default-src 'none'; script-src {_hash(libraries)} {_hash(script)}; style-src 'unsafe-inline'; img-src data:; "
        f"connect-src {reach}; base-uri 'none'; form-action 'none'"
    )
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{policy}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="generator" content="driftline {VERSION}">'
        f'<title>{escape(title)} · driftline</title><link rel="icon" href="data:,"><style>{style}</style></head><body>'
        f'<a class="skip" href="#content">Skip to the figures</a>{_toolbar(names, data)}<main class="wrap" id="content" tabindex="-1">{content}</main>'
        f'<footer class="wrap">Made by driftline {VERSION}. {_promise(data)}</footer>'
        f'<div id="tip" role="tooltip" hidden></div><script type="application/json" id="data">{safe_json(data)}</script>'
        f"<script>{libraries}</script><script>{script}</script></body></html>"
    )


def _promise(data: Json) -> str:
    if data["live"]:
        return "This page follows the run through the server that made it, on this machine alone."
    return "This page is one file: it loads nothing and sends nothing."


def _run_colors() -> str:
    """Colours of the runs as CSS variables, by day and by night."""
    day, night = (
        "".join(f"--run-{i}:{color};" for i, color in enumerate(colors))
        for colors in (PALETTE, NIGHT.values())
    )
    asked = f':root:not([data-theme="light"]){{{night}}}'
    return f':root{{{day}}}@media(prefers-color-scheme:dark){{{asked}}}:root[data-theme="dark"]{{{night}}}'


def _asset(name: str) -> str:
    return resources.files("driftline.report").joinpath("assets", name).read_text(encoding="utf-8")


@lru_cache(maxsize=1)
def _libraries() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, from the package that also draws the figures."""
    text: str = vl_convert.javascript_bundle("window.vegaEmbed=vegaEmbed;")
    return text.replace("</script", "<\\/script")


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
