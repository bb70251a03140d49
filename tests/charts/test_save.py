from __future__ import annotations

import io
import re
import socket
from pathlib import Path

import polars as pl
import pytest
from PIL import Image

from driftline.charts import Series, error_cdf, heat_matrix, over_time, panels, save, world_map
from driftline.types import DriftlineError

FRAME = pl.DataFrame({"x": [0, 10**8, 0, 10**8], "value": [0.1, 0.2, 0.3, 0.1], "run": ["a", "a", "b", "b"]})
SERIES = Series(("a", "b"))


def test_a_figure_fills_its_column_at_300_dots_an_inch(tmp_path: Path) -> None:
    chart = over_time(FRAME, SERIES, "accuracy")
    files = save(chart, tmp_path / "single") + save(chart, tmp_path / "double", width="double")
    assert [f.name for f in files] == [
        f"{w}.{e}" for w in ("single", "double") for e in ("png", "svg", "pdf")
    ]
    widths = {f.stem: Image.open(io.BytesIO(f.read_bytes())).width for f in files if f.suffix == ".png"}
    assert widths["single"] == pytest.approx(3.5 * 300, abs=8)
    assert widths["double"] == pytest.approx(516 / 72 * 300, abs=8)
    assert files[2].read_bytes().startswith(b"%PDF")
    svg = files[1].read_text()
    assert "average" not in svg
    assert "accuracy" in svg
    sizes = {float(s) for s in re.findall(r'font-size="([\d.]+)px"', svg)}
    assert sizes
    assert min(sizes) >= 7


def test_saving_never_opens_a_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object) -> None:
        raise AssertionError("a figure must not need the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    assert save(over_time(FRAME, SERIES, "accuracy"), tmp_path / "x", ("svg",))


@pytest.mark.parametrize("formats", [("gif",), ("png", "exe"), ()])
def test_an_unknown_format_is_refused_before_anything_is_written(
    tmp_path: Path, formats: tuple[str, ...]
) -> None:
    with pytest.raises(DriftlineError, match="choose from png, svg, pdf"):
        save(over_time(FRAME, SERIES, "accuracy"), tmp_path / "x", formats)
    assert not list(tmp_path.iterdir())


def test_panels_stand_side_by_side_within_the_page(tmp_path: Path) -> None:
    chart = over_time(FRAME, SERIES, "accuracy")
    file = save(panels({"(a)": chart, "(b)": chart}), tmp_path / "grid", ("png",), width="double")[0]
    image = Image.open(file)
    assert image.width <= 516 / 72 * 300 * 1.03
    assert image.width > 1.5 * image.height


def test_the_marks_of_the_error_curve_are_named(tmp_path: Path) -> None:
    errors = pl.DataFrame({"x": [1.0, 5000.0], "value": [0.1, 1.0], "run": ["a", "a"]})
    svg = save(error_cdf(errors, Series(("a",))), tmp_path / "e", ("svg",))[0].read_text()
    assert all(name in svg for name in ("street", "city", "region", "country", "continent"))


def test_a_map_draws_one_shape_a_cell(tmp_path: Path) -> None:
    def square(lon: float) -> dict[str, object]:
        ring = [[lon, 0], [lon, 9], [lon + 9, 9], [lon + 9, 0], [lon, 0]]
        return {"type": "Polygon", "coordinates": [ring]}

    rows = pl.DataFrame({"label": [4, 7], "name": ["p", "q"], "accuracy": [0.1, 0.9], "count": [3, 40]})
    for measure in ("accuracy", "count"):
        chart = world_map(square(100), {4: square(0), 7: square(40)}, rows, measure=measure)  # type: ignore[arg-type]
        svg = save(chart, tmp_path / measure, ("svg",), width="double")[0].read_text()
        assert re.findall(r'<path aria-label="(.)" [^>]*aria-roledescription="geoshape"', svg) == ["p", "q"]


def test_a_matrix_writes_its_figures_in_its_cells(tmp_path: Path) -> None:
    cells = pl.DataFrame(
        {"row": ["H", "H"], "column": ["2010", "2011"], "value": [0.25, 0.5], "count": [4, 4]}
    )
    chart = heat_matrix(cells, rows_title="until", columns_title="on")
    svg = save(chart, tmp_path / "m", ("svg",), width="double")[0].read_text()
    assert ">25%<" in svg
    assert ">50%<" in svg
