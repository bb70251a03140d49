"""Charts from arrays: a theme that fits a page and a paper, builders, and saving without a browser."""

from driftline.charts.bars import bars, difference_bars, heat_matrix
from driftline.charts.lines import error_cdf, lines, over_steps, over_time
from driftline.charts.maps import world_map
from driftline.charts.panels import panels
from driftline.charts.save import Column, save, spec_of
from driftline.charts.theme import PALETTE, Mode, Series, config

__all__ = [
    "PALETTE",
    "Column",
    "Mode",
    "Series",
    "bars",
    "config",
    "difference_bars",
    "error_cdf",
    "heat_matrix",
    "lines",
    "over_steps",
    "over_time",
    "panels",
    "save",
    "spec_of",
    "world_map",
]
