"""The top of the page: the few figures that matter as cards (one run) and the table of all runs.

In: digests. Out: HTML. Figures come from `summary.json` where the run is finished, from the log where it goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from driftline.report.digest import RunDigest
from driftline.report.figure import count, number, percent

SCORINGS = {
    "album": "first album of each test point",
    "batch": "all photos of each step",
    "sample": "each photo once",
}


def figures_of(d: RunDigest) -> dict[str, Any]:
    """The run's summary; for a run that goes on, as much of it as its log gives."""
    if d.run.is_finished:
        return d.run.summary
    return {
        "online_accuracy": d.online_accuracy(),
        "blind": {**d.online_accuracy("blind"), "k": d.fold.blind_k},
        "chance": 1 / max(len(d.classes), 1),
        "samples": d.fold.num_rows,
        "steps": len(d.curves),
        "seed": d.run.config.seed,
    }


def compute(d: RunDigest) -> int:
    """Gradient steps of all members: what a comparison at equal compute must hold equal.

    A PoLRS run of three members does three times the work of a single model for each batch.
    """
    known = d.run.summary.get("gradient_steps")
    return (
        int(known) if known is not None else len(d.curves) * d.run.config.gd_steps * d.run.config.num_members
    )


@dataclass(frozen=True)
class Column:
    """A column of the headline table: the figure, a note under it, and whether more or less is better (0: neither)."""

    title: str
    value: Callable[[RunDigest, dict[str, Any]], float | None]
    text: Callable[[float | None], str]
    note: Callable[[RunDigest, dict[str, Any]], str] = lambda _d, _f: ""
    better: int = 0


def _online(scoring: str) -> Column:
    return Column(
        f"online, {scoring}",
        lambda _d, f: f.get("online_accuracy", {}).get(scoring),
        percent,
        lambda _d, f: f"blind {percent(f['blind'][scoring])}" if scoring in f.get("blind", {}) else "",
        1,
    )


def _end(direction: str) -> Column:
    """Transfer over the whole range: back from the last weights, forward from the first kept ones."""
    at = "H" if direction == "backward" else "H/3"
    return Column(
        f"{direction} at {at}",
        lambda _d, f: f.get(direction, {}).get(at, {}).get("area"),
        percent,
        lambda _d, f: f"to {percent(f[direction][at].get('end'))}" if at in f.get(direction, {}) else "",
        1,
    )


COLUMNS = (
    _online("album"),
    _online("batch"),
    _online("sample"),
    Column("validation", lambda _d, f: f.get("validation_accuracy"), percent, better=1),
    Column("chance", lambda _d, f: f.get("chance"), percent),
    _end("backward"),
    _end("forward"),
    Column(
        "error, km (median)",
        lambda _d, f: (f.get("geolocation_error_km") or {}).get("median"),
        number,
        lambda _d, f: _within(f, "25"),
        -1,
    ),
    Column(
        "gradient steps", lambda d, _f: compute(d), count, lambda d, _f: f"batch {d.run.config.batch_size}"
    ),
    Column(
        "samples/s",
        lambda _d, f: f.get("samples_per_second"),
        count,
        lambda _d, f: f"{count(f['samples'])} in {count(f['seconds'])} s" if "seconds" in f else "",
    ),
    Column("memory, MB", lambda _d, f: f.get("peak_rss_mb"), count),
    Column("seed", lambda d, _f: d.run.config.seed, lambda v: str(v)),
)


def _within(figures: dict[str, Any], km: str) -> str:
    share = (figures.get("geolocation_error_km") or {}).get("share_under", {}).get(km)
    return "" if share is None else f"{percent(share)} < {km} km"


def headline_html(found: Sequence[RunDigest]) -> str:
    """Cards for one run, and the table for one or many."""
    figures = [figures_of(d) for d in found]
    shown = [
        c for c in COLUMNS if any(c.value(d, f) is not None for d, f in zip(found, figures, strict=True))
    ]
    head = "".join(f'<th scope="col">{escape(c.title)}</th>' for c in shown)
    best = [_best(c, [c.value(d, f) for d, f in zip(found, figures, strict=True)]) for c in shown]
    rows = "".join(
        f'<tr><th scope="row">{escape(d.name)}</th>'
        + "".join(
            _cell(c, d, f, is_best=best[i] is not None and c.value(d, f) == best[i])
            for i, c in enumerate(shown)
        )
        + "</tr>"
        for d, f in zip(found, figures, strict=True)
    )
    cards = _cards(found[0], figures[0]) if len(found) == 1 else ""
    return (
        f'{cards}<div class="scroll head" tabindex="0" role="region" aria-label="Headline figures"><table>'
        f"<thead><tr><th scope=col>run</th>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
        + (
            f'<p class="note">{escape(_caption(len(found)))}</p>'
            if any(d.fold.num_rows for d in found)
            else ""
        )
    )


def _caption(num_runs: int) -> str:
    scorings = "; ".join(f"{name}: {meaning}" for name, meaning in SCORINGS.items())
    best = " The best of each column is bold." if num_runs > 1 else ""
    return (
        f"Online accuracy in the three scorings ({scorings}), each with the blind classifier under it.{best}"
    )


def _best(column: Column, values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    if not column.better or len(known) < 2:
        return None
    return max(known) if column.better > 0 else min(known)


def _cell(column: Column, d: RunDigest, figures: dict[str, Any], *, is_best: bool) -> str:
    value = column.value(d, figures)
    note = column.note(d, figures) if value is not None else ""
    small = f"<small>{escape(note)}</small>" if note else ""
    return f"<td{' class=best' if is_best else ''}>{escape(column.text(value))}{small}</td>"


def _cards(d: RunDigest, figures: dict[str, Any]) -> str:
    cards: list[tuple[str, str]] = []
    online, blind = figures.get("online_accuracy", {}).get("album"), figures.get("blind", {}).get("album")
    if online is not None:
        cards.append((percent(online), "average online accuracy (album scoring)"))
    if online is not None and blind:
        cards.append((f"{online / blind:.1f}\u00d7", f"the blind classifier, which reaches {percent(blind)}"))
    if "validation_accuracy" in figures:
        cards.append((percent(figures["validation_accuracy"]), "accuracy on the validation photos"))
    if figures.get("chance"):
        cards.append((percent(figures["chance"]), f"chance, with {count(len(d.classes))} classes"))
    median = (figures.get("geolocation_error_km") or {}).get("median")
    if median is not None:
        cards.append((f"{count(median)} km", "median distance between photo and predicted place"))
    if figures.get("samples"):
        speed = (
            f", {count(figures['samples_per_second'])} a second"
            if figures.get("samples_per_second")
            else " so far"
        )
        how = (
            "photos learned from, shuffled" if d.run.is_supervised else "photos predicted, then learned from"
        )
        cards.append((count(figures["samples"]), how + speed))
    return (
        '<div class="cards">'
        + "".join(f'<div class="card"><b>{escape(b)}</b><p>{escape(p)}</p></div>' for b, p in cards)
        + "</div>"
    )
