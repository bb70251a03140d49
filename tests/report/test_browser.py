"""The page in a real browser."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from driftline.config import RunConfig
from driftline.report import write_report
from driftline.report.watch import make_server

from .browser import CHROMIUM, DRIVER, MISSING, Browser, browser
from .make_runs import Skill, finish, grow, make_run, predictions

pytestmark = [pytest.mark.browser, pytest.mark.skipif(not (CHROMIUM and DRIVER), reason=MISSING)]

HOSTILE = '</script><script>document.title="broken"</script><img src=x onerror="document.title=1">'
NAMES = {i: f"{HOSTILE}{i}" for i in range(60)}
CONFIGS = {
    "first": RunConfig(stream="world:5000"),
    "second": RunConfig(stream="world:5000", schedule="polrs", adaptive_buffer=True),
    "offline": RunConfig(stream="world:5000", learner="supervised"),
}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("pages")
    runs = [
        make_run(folder / name, config, num=5000, num_classes=60, skill=Skill(seed=i), names=NAMES)
        for i, (name, config) in enumerate(CONFIGS.items())
    ]
    write_report(runs, folder / "page.html")
    return (folder / "page.html").as_uri()


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with browser() as opened:
        yield opened


def charts(window: Browser) -> list[str]:
    keys: list[str] = window.run(
        "return [...document.querySelectorAll('[data-chart]')].map(e => e.dataset.chart)"
    )
    return keys


LINES = "path[aria-roledescription='line mark']"


def drawn_lines(window: Browser, key: str) -> int:
    found: int = window.run(f'return document.querySelectorAll("[data-chart={key}] {LINES}").length')
    return found


def test_every_chart_is_drawn_without_an_error_and_without_a_request(window: Browser, page: str) -> None:
    window.open(page)
    keys = charts(window)
    assert len(keys) == 12
    for key in keys:
        window.show(key)
    assert window.console() == []
    assert [url for url in window.requests() if not url.startswith("data:")] == [page]
    assert window.run("return document.documentElement.scrollWidth <= innerWidth")


def test_only_charts_near_the_screen_are_drawn(window: Browser, page: str) -> None:
    window.open(page)
    window.show("online")
    assert window.run("return document.querySelector('[data-chart=changed][data-drawn]') === null")


def test_a_run_can_be_hidden_and_shown_with_the_keyboard(window: Browser, page: str) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    window.open(page)
    window.show("months")
    before = drawn_lines(window, "months")
    box = window.driver.find_element(By.CSS_SELECTOR, "[data-run=second]")
    box.send_keys(Keys.SPACE)
    window.until(f'return document.querySelectorAll("[data-chart=months] {LINES}").length === {before - 1}')
    box.send_keys(Keys.SPACE)
    window.until(f'return document.querySelectorAll("[data-chart=months] {LINES}").length === {before}')
    window.driver.find_element(By.TAG_NAME, "body").send_keys(Keys.TAB)
    assert window.console() == []


def test_linear_becomes_log_and_back(window: Browser, page: str) -> None:
    window.open(page)
    window.show("online")
    ticks = "return document.querySelector('[data-chart=online] .role-axis-label:last-of-type')?.textContent"
    before = window.run(ticks)
    for form in ("Log", "Linear"):
        window.run(f"document.querySelector('[data-form=online][value={form}]').click()")
        window.until(f"return document.querySelector('[data-chart=online]').dataset.drawn === '{form}'")
    assert window.run(ticks) == before
    assert window.console() == []


def test_another_scoring_shows_other_figures(window: Browser, page: str) -> None:
    window.open(page)
    window.show("online")
    shape = f'return document.querySelector("[data-chart=online] {LINES}").getAttribute("d")'
    before = window.run(shape)
    window.run(
        "const s = document.querySelector('[data-choice=\"online/kind\"]'); s.value = 'sample';"
        "s.dispatchEvent(new Event('input', {bubbles: true}))"
    )
    window.until(
        f'return document.querySelector("[data-chart=online] {LINES}").getAttribute("d") !== {before!r}'
    )


def test_hovering_shows_the_figures_of_the_nearest_point(window: Browser, page: str) -> None:
    window.open(page)
    window.show("online")
    window.hover("online", x=0.6, y=0.6)
    tip = window.until("const t = document.getElementById('tip'); return !t.hidden && t.textContent")
    assert "run" in tip
    assert "20" in tip  # a date
    assert "%" in tip


def test_zoom_narrows_the_axis_and_reset_restores_it(window: Browser, page: str) -> None:
    window.open(page)
    window.show("months")
    years = "return [...document.querySelectorAll('[data-chart=months] .role-axis-label')[0].querySelectorAll('text')]"
    years += ".map(t => t.textContent).sort().join()"
    before = window.run(years)
    for _ in range(3):
        window.run("document.querySelector('[data-zoom=months][data-factor=\"1.6\"]').click()")
    window.until(f"{years} !== {before!r}")
    window.run("document.querySelector('[data-zoom=months][data-factor=\"0\"]').click()")
    window.until(f"{years} === {before!r}")


def test_the_map_shows_cells_that_tell_their_figures_and_zooms(window: Browser, page: str) -> None:
    window.open(page)
    window.show("map")
    cells = "[data-chart=map] path[aria-roledescription=geoshape]"
    assert window.run(f"return document.querySelectorAll('{cells}').length") == 60
    colors = window.run(
        f"return new Set([...document.querySelectorAll('{cells}')].map(p => p.getAttribute('fill'))).size"
    )
    assert colors > 10
    window.hover("map", "path[aria-roledescription=geoshape]")
    tip = window.until("const t = document.getElementById('tip'); return !t.hidden && t.textContent")
    assert all(word in tip for word in ("class", "accuracy", "photos"))
    size = f"return document.querySelector('{cells}').getBoundingClientRect().width"
    before = window.run(size)
    window.run("document.querySelector('[data-zoom=map][data-factor=\"1.6\"]').click()")
    window.until(f"{size} > {before} * 1.3")
    window.run("document.querySelector('[data-form=map][value=Photos]').click()")
    window.until("return document.querySelector('[data-chart=map]').dataset.drawn === 'Photos'")
    assert window.console() == []


def test_a_hostile_class_name_stays_text(window: Browser, page: str) -> None:
    window.open(page)
    for key in charts(window):
        window.show(key)
    window.run("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    # Hover over every bar, so that a tooltip with the name appears too.
    bars = "path[aria-roledescription=bar]"
    tips = set()
    for i in range(window.run(f"return document.querySelectorAll('[data-chart=changed] {bars}').length")):
        window.hover("changed", bars, index=i)
        tips.add(window.until("const t = document.getElementById('tip'); return !t.hidden && t.textContent"))
    assert any(HOSTILE in tip for tip in tips)
    assert HOSTILE in window.run("return document.body.textContent")
    assert "driftline" in window.run("return document.title")
    assert window.run("return document.querySelectorAll('img:not([src^=\"data:image/\"])').length") == 0
    assert window.run("return document.querySelectorAll('script').length") == 3
    assert window.console() == []


@pytest.mark.parametrize("width", [1280, 375])
def test_the_page_fits_and_dark_is_dark(window: Browser, page: str, width: int) -> None:
    window.open(page, width=width, dark=True)
    window.show("online")
    assert window.run("return document.documentElement.scrollWidth <= innerWidth")
    ground = window.run("return getComputedStyle(document.body).backgroundColor")
    assert sum(int(c) for c in ground[4:-1].split(",")) < 150
    label = window.run(
        "return document.querySelector('[data-chart=online] .role-axis-label text').getAttribute('fill')"
    )
    assert int(label[1:3], 16) > 128
    window.run("document.getElementById('theme').click()")
    window.until("return getComputedStyle(document.body).backgroundColor === 'rgb(255, 255, 255)'")
    window.until(
        "return parseInt(document.querySelector('[data-chart=online] .role-axis-label text').getAttribute('fill').slice(1, 3), 16) < 128"
    )


def test_the_printed_page_has_every_chart(window: Browser, page: str) -> None:
    window.open(page)
    window.show("online")
    pdf = window.driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})["data"]
    assert len(pdf) > 100_000
    window.until(
        "return document.querySelectorAll('[data-chart][data-drawn]').length === document.querySelectorAll('[data-chart]').length"
    )


def test_the_live_page_updates_and_keeps_its_place(window: Browser, tmp_path: Path) -> None:
    config = RunConfig(stream="world:5000")
    run = make_run(tmp_path / "growing", config, num=2000, num_classes=20, finished=False)
    with make_server(run, every_ms=100) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            window.open(f"http://127.0.0.1:{server.server_port}/")
            window.show("training")
            top = "return Math.round(document.querySelector('[data-chart=training]').getBoundingClientRect().top)"
            at = window.run(top)
            shape = f'return document.querySelector("[data-chart=training] {LINES}").getAttribute("d")'
            before = window.run(shape)
            assert window.run("return scrollY") > 0
            window.until("return document.querySelector('[data-live=summary]').textContent.includes('2 000')")
            grow(run, predictions(5000, 20, config.batch_size, Skill())[2000:], config)
            window.until("return document.querySelector('[data-live=summary]').textContent.includes('5 000')")
            window.until(
                f'return document.querySelector("[data-chart=training] {LINES}").getAttribute("d") !== {before!r}'
            )
            assert abs(window.run(top) - at) <= 2
            finish(run, config)
            window.until("return document.getElementById('live').textContent === 'finished'")
            window.until("return document.querySelector('[data-chart=backward]') !== null")
            window.until("return document.querySelector('[data-chart=training][data-drawn] svg') !== null")
            assert abs(window.run(top) - at) <= 2
            asked = {url.split("?")[0] for url in window.requests() if not url.startswith("data:")}
            assert asked == {
                f"http://127.0.0.1:{server.server_port}/",
                f"http://127.0.0.1:{server.server_port}/data.json",
            }
            assert window.console() == []
        finally:
            server.shutdown()
            thread.join()
