"""Findings and tables as JSON, and as the words in which people read them.

In: findings, runs. Out: the entries of `findings.json`, and short texts made from those entries alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from driftline.experiments.results import RunResult
from driftline.experiments.setting import StudyScoring
from driftline.experiments.verdicts import Check, Finding

Json = dict[str, Any]

COLUMNS: Mapping[str, str] = {
    "album": "online, album",
    "sample": "online, all samples",
    "window": "online, window",
    "backward_h": "backward at H",
    "backward_2h3": "backward at 2H/3",
    "forward_2h3": "forward at 2H/3",
    "validation": "validation",
    "blind": "blind, album",
    "within_750_km": "within 750 km",
    "median_km": "median error, km",
}
"""Columns of the table of a figure's runs; which of them a run has depends on its kind."""
DISTANCES = ("within_750_km", "median_km")


def finding_json(finding: Finding) -> Json:
    """A finding as an entry of `findings.json`."""
    return {
        "key": finding.key,
        "claim": finding.claim,
        "paper": finding.paper,
        "verdict": finding.verdict,
        "note": finding.note,
        "checks": [check_json(check) for check in finding.checks],
    }


def check_json(check: Check) -> Json:
    """A comparison as an entry of `findings.json`; accuracies are shares, effects their differences."""
    low, high = check.interval
    return {
        "what": check.what,
        "verdict": check.verdict,
        "unit": check.unit,
        "first": _number(check.first),
        "second": _number(check.second),
        "effect": _number(check.effect),
        "interval_90": [_number(low), _number(high)],
        "claim": check.claim,
        "margin": _number(check.margin),
        "items": check.num_items,
        "seeds": len(check.effects) if check.by_seed else 0,
        "effect_by_seed": [_number(e) for e in check.effects],
        "range_over_seeds": [_number(min(check.effects)), _number(max(check.effects))]
        if len(check.effects) > 1
        else None,
        "standard_error_over_seeds": _number(check.seed_error),
        "standard_error_of_photos": _number(check.item_error),
    }


def _number(value: float | None) -> float | None:
    """JSON has no NaN."""
    return None if value is None or not math.isfinite(value) else round(float(value), 6)


# -- tables


def row_json(label: str, runs: Sequence[RunResult], scoring: StudyScoring) -> Json:
    """The figures of a label's runs: mean and range over seeds of everything they have."""
    row: Json = {"run": label}
    for key, of in _readers(scoring).items():
        values = [value for value in (of(run) for run in runs) if value is not None]
        if values:
            row[key] = {
                "mean": _number(float(np.mean(values))),
                "low": _number(min(values)),
                "high": _number(max(values)),
            }
    row["gradient_steps"] = runs[0].summary["gradient_steps"]
    row["seconds"] = round(float(np.mean([run.summary["seconds"] for run in runs])), 1)
    return row


def _readers(scoring: StudyScoring) -> dict[str, Callable[[RunResult], float | None]]:
    def window(run: RunResult) -> float | None:
        if scoring != "window" or run.is_offline:
            return None
        return run.blocks("window").measure().value

    def error(run: RunResult) -> Json:
        found: Json = run.summary.get("geolocation_error_km", {})
        return found

    return {
        "album": lambda run: run.summary.get("online_accuracy", {}).get("album"),
        "sample": lambda run: run.summary.get("online_accuracy", {}).get("sample"),
        "window": window,
        "backward_h": lambda run: _end(run, "backward", "H"),
        "backward_2h3": lambda run: _end(run, "backward", "2H/3"),
        "forward_2h3": lambda run: _end(run, "forward", "2H/3"),
        "validation": lambda run: run.summary.get("validation_accuracy"),
        "blind": lambda run: run.summary.get("blind", {}).get("album"),
        "within_750_km": lambda run: error(run).get("share_under", {}).get("750"),
        "median_km": lambda run: error(run).get("median"),
    }


def _end(run: RunResult, way: str, checkpoint: str) -> float | None:
    end: float | None = run.summary.get(way, {}).get(checkpoint, {}).get("end")
    return end


# -- words


def effect_text(check: Json) -> str:
    """The effect of a comparison with its interval.

    >>> effect_text({"unit": "points", "effect": 0.0123, "interval_90": [0.004, 0.0206]})
    '+1.2 points (+0.4 to +2.1)'
    """
    if check["effect"] is None:
        return "not measured"
    scale, unit = (100, "points") if check["unit"] == "points" else (1, check["unit"])
    digits = 1 if check["unit"] == "points" else 2
    effect, low, high = (
        "–" if v is None else f"{v * scale:+.{digits}f}" for v in (check["effect"], *check["interval_90"])
    )
    interval = f" ({low} to {high})" if low != high else ""
    return f"{effect} {unit}{interval}"


def sides_text(check: Json) -> str:
    """Both sides of a comparison.

    >>> sides_text({"unit": "points", "first": 0.4, "second": 0.375})
    '40.0 % and 37.5 %'
    """
    return " and ".join(_side(check, name) for name in ("first", "second"))


def _side(check: Json, name: str) -> str:
    if check[name] is None:
        return "–"
    return f"{100 * check[name]:.1f} %" if check["unit"] == "points" else f"{check[name]:.2f}"


def spread_text(check: Json) -> str:
    """What is known of the spread over seeds.

    >>> spread_text({"seeds": 1, "range_over_seeds": None})
    'one seed: no spread'
    """
    if check["seeds"] == 0:
        return "counted"
    if check["range_over_seeds"] is None:
        return "one seed: no spread"
    scale = 100 if check["unit"] == "points" else 1
    low, high = (f"{v * scale:+.1f}" for v in check["range_over_seeds"])
    return f"{check['seeds']} seeds: {low} to {high}"


def cell_text(key: str, value: Json | None) -> str:
    """A cell of a figure's table: mean, and in brackets half the range over seeds.

    >>> cell_text("album", {"mean": 0.25, "low": 0.24, "high": 0.26}), cell_text("median_km", {"mean": 900, "low": 900, "high": 900})
    ('25.0 % (±1.0)', '900')
    """
    if value is None:
        return "–"
    half = (value["high"] - value["low"]) / 2
    if key == "median_km":
        return f"{value['mean']:,.0f}" + (f" (±{half:,.0f})" if half else "")
    return f"{100 * value['mean']:.1f} %" + (f" (±{100 * half:.1f})" if half else "")


def table_of(name: str, figure: Json) -> tuple[list[str], list[list[str]]]:
    """Head and rows of a figure's table: the columns that any of its runs has, distances only where they are the subject."""
    hidden = () if name == "geolocation" else DISTANCES
    keys = [key for key in COLUMNS if key not in hidden and any(key in row for row in figure["table"])]
    head = ["run", *(COLUMNS[key] for key in keys), "gradient steps"]
    rows = [
        [row["run"], *(cell_text(key, row.get(key)) for key in keys), f"{row['gradient_steps']:,}"]
        for row in figure["table"]
    ]
    return head, rows
