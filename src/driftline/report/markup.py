"""HTML, written by hand and escaped everywhere: text from users' data is never markup.

In: figures, tables, text. Out: strings of HTML.
"""

from __future__ import annotations

from html import escape

from driftline.charts.theme import DASHES, PALETTE
from driftline.report.figure import Choice, Figure, Table
from driftline.report.page_data import has_zoom


def table_html(table: Table, caption: str) -> str:
    """A table that a screen reader can walk: caption, heads of columns and of rows.

    >>> "&lt;b&gt;" in table_html(Table(["<b>"], [["x"]]), "c")
    True
    """
    head = "".join(f'<th scope="col">{escape(h)}</th>' for h in table.head)
    body = "".join(
        f'<tr><th scope="row">{escape(first)}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in rest)
        + "</tr>"
        for first, *rest in table.rows
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}"><table><caption>{escape(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def figure_html(figure: Figure, *, wide: bool = False) -> str:
    """A figure: title and controls, the place where the script draws, how to read it, and its figures as a table."""
    key = escape(figure.key)
    is_map = figure.key == "map"
    reach = ' tabindex="0"' if is_map else ""
    return (
        f'<figure id="{key}"{" class=wide" if wide else ""}><header><h3>{escape(figure.title)}</h3><div class="tools">{_tools(figure)}</div></header>'
        f'<div id="{key}-says" data-live="{key}-says" hidden>{escape(figure.says)}</div>'
        f'<div class="chart{" map" if is_map else ""}" data-chart="{key}" role="img" aria-labelledby="{key}-says"{reach}></div>'
        f"<figcaption>{escape(figure.caption)}</figcaption>"
        f'<details><summary>Figures as a table</summary><div data-live="{key}-table">{table_html(figure.table, figure.title)}</div></details></figure>'
    )


def _tools(figure: Figure) -> str:
    parts = [_choice(figure, choice) for choice in figure.choices if len(choice.values) > 1]
    if len(figure.charts) > 1:
        parts.append(_forms(figure))
    if has_zoom(next(iter(figure.charts.values()))):
        parts.append(_zoom(figure))
    return "".join(parts)


def _choice(figure: Figure, choice: Choice) -> str:
    options = "".join(
        f'<option value="{escape(v)}"{" selected" if v == choice.chosen else ""}>{escape(v)}</option>'
        for v in choice.values
    )
    return (
        f'<label>{escape(choice.title)} <select data-choice="{escape(figure.key)}/{escape(choice.field)}" '
        f'autocomplete="off">{options}</select></label>'
    )


def _forms(figure: Figure) -> str:
    labels = "".join(
        f'<label><input type="radio" name="form-{escape(figure.key)}" data-form="{escape(figure.key)}" value="{escape(name)}"'
        f'{" checked" if i == 0 else ""} autocomplete="off">{escape(name)}</label>'
        for i, name in enumerate(figure.charts)
    )
    return f'<span class="forms" role="radiogroup" aria-label="{escape(figure.title)}: form">{labels}</span>'


def _zoom(figure: Figure) -> str:
    steps = (("\u2212", "Zoom out", 1 / 1.6), ("Reset", "Reset zoom", 0), ("+", "Zoom in", 1.6))
    buttons = "".join(
        f'<button type="button" data-zoom="{escape(figure.key)}" data-factor="{factor:g}" aria-label="{name}: {escape(figure.title)}">'
        f"{text}</button>"
        for text, name, factor in steps
    )
    return f'<span class="zoom">{buttons}</span>'


def run_toggle(name: str, index: int) -> str:
    """A checkbox that shows or hides a run, with its colour and dash."""
    color = f"var(--run-{index % len(PALETTE)})"
    dash = " ".join(str(d) for d in DASHES[(index + index // len(PALETTE)) % len(DASHES)])
    line = f'<line x1="0" y1="6" x2="26" y2="6" style="stroke:{color}" stroke-width="3" stroke-dasharray="{dash}"/>'
    return (
        f'<label class="run"><input type="checkbox" data-run="{escape(name)}" checked autocomplete="off">'
        f'<svg width="26" height="12" aria-hidden="true">{line}</svg><span title="{escape(name)}">{escape(name)}</span></label>'
    )
