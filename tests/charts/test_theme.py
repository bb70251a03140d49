from __future__ import annotations

import pytest

from driftline.charts.theme import DASHES, PALETTE, Series, config


def luminance(color: str) -> float:
    """Relative luminance as the WCAG defines it."""
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_no_two_of_many_series_share_both_colour_and_dash() -> None:
    names = tuple(f"run {i}" for i in range(len(PALETTE) * len(DASHES)))
    series = Series(names)
    looks = {(c, tuple(d)) for c, d in zip(series.color().range, series.dash().range, strict=True)}
    assert len(looks) == len(names)


def test_the_first_series_differ_without_colour() -> None:
    dashes = Series(tuple("abcdefg")).dash().range
    assert len({tuple(d) for d in dashes}) == 7


def test_a_series_keeps_its_look_when_others_are_left_out() -> None:
    whole = Series(("a", "b", "c"), ("blind",))
    part = whole.only({"c", "blind"})
    assert part.all == ["c", "blind"]
    assert part.color().range == [whole.color().range[2], whole.color().range[3]]
    assert part.dash().range == [whole.dash().range[2], whole.dash().range[3]]


@pytest.mark.parametrize(
    ("mode", "ground"), [("light", "#ffffff"), ("dark", "#14191d"), ("paper", "#ffffff")]
)
def test_text_on_every_ground_can_be_read(mode: str, ground: str) -> None:
    look = config(mode)  # type: ignore[arg-type]
    assert contrast(look["axis"]["labelColor"], ground) >= 4.5
    assert contrast(look["axis"]["titleColor"], ground) >= 4.5
