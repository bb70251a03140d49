"""Figures as the JSON that the page's script draws from: specs without data, and one pool of columns that they share.

In: figures. Out: a value for `json.dumps`. Equal data of several charts are kept once; text columns as words and codes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

from driftline.charts import config, spec_of
from driftline.charts.theme import NIGHT, Chart
from driftline.report.figure import Figure

Json = dict[str, Any]


def page_data(figures: Sequence[Figure], *, finished: bool, live: bool = False, every_ms: int = 2000) -> Json:
    """Everything the script needs, with a version that changes when any of it does."""
    pool: Json = {}
    drawn = {figure.key: _figure(figure, pool) for figure in figures}
    report: Json = {
        "figures": drawn,
        "pool": pool,
        "themes": {"light": config("light"), "dark": config("dark")},
        "night": NIGHT,
        "live": live,
        "finished": finished,
        "every_ms": every_ms,
    }
    return report | {"version": _name(report)}


def safe_json(value: Json) -> str:
    """JSON that cannot end the script element it stands in.

    >>> safe_json({"name": "</script><b>"})
    '{"name":"\\\\u003c/script>\\\\u003cb>"}'
    """
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _figure(figure: Figure, pool: Json) -> Json:
    forms = {name: _form(chart, pool) for name, chart in figure.charts.items()}
    params = {p["name"] for form in forms.values() for p in _params(form["spec"])}
    return {
        "forms": forms,
        "choices": [{"field": c.field, "chosen": c.chosen} for c in figure.choices],
        "isMap": "map_zoom" in params,
    }


def has_zoom(chart: Chart) -> bool:
    """Whether the chart can be zoomed: lines along x, the map as a whole."""
    return any(p["name"] in ("zoom", "map_zoom") for p in _params(spec_of(chart)))


def _params(spec: Json) -> list[Json]:
    return [p for part in (spec, *spec.get("layer", [])) for p in part.get("params", [])]


def _form(chart: Chart, pool: Json) -> Json:
    spec: Json = spec_of(chart)
    given = spec.pop("datasets", {})
    for unused in ("config", "$schema"):
        spec.pop(unused, None)
    data: Json = {}
    for part in _data_parts(spec):
        values = part.pop("values", None) or given.get(part.get("name"), [])
        name = _name(values)
        pool.setdefault(name, _columns(values))
        # The same data under the same local name, so that a live page can tell a new spec from new data.
        local = next((k for k, v in data.items() if v == name), f"d{len(data)}")
        data[local] = name
        part.clear()
        part["name"] = local
    if any(p["name"] == "map_zoom" for p in _params(spec)):
        spec["height"] = "aspect"
    return {"spec": spec, "data": data}


def _data_parts(spec: Any) -> Iterator[Json]:
    """Every `data` object in a spec, in order."""
    if isinstance(spec, list):
        for item in spec:
            yield from _data_parts(item)
    elif isinstance(spec, dict):
        for key, item in spec.items():
            if key == "data" and isinstance(item, dict):
                yield item
            else:
                yield from _data_parts(item)


def _columns(rows: list[Json]) -> Json:
    if not rows:
        return {}
    return {field: _packed([row[field] for row in rows]) for field in rows[0]}


def _packed(values: list[Any]) -> Any:
    if not all(isinstance(v, str) for v in values):
        return [int(v) if isinstance(v, float) and v.is_integer() else v for v in values]
    words = list(dict.fromkeys(values))
    code = {word: i for i, word in enumerate(words)}
    return {"words": words, "codes": [code[v] for v in values]}


def _name(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]
