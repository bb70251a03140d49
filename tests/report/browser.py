"""A headless Chromium for the tests of the page: its console, its network traffic, its pointer."""

from __future__ import annotations

import base64
import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
MISSING = "no browser here: install Debian's chromium and chromium-driver to run this test"
FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage --hide-scrollbars"
)
WAIT_S = 60.0


class Browser:
    """One window."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, url: str, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        self.driver.get_log("browser")
        self.driver.get_log("performance")
        self.driver.get(url)

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def until(self, script: str, what: str = "") -> Any:
        """Wait until a script returns something true."""
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            if found := self.run(script):
                return found
            time.sleep(0.05)
        raise AssertionError(f"never happened: {what or script}; console: {self.console()}")

    def show(self, key: str) -> None:
        """Scroll to a chart and wait until it is drawn."""
        self.run(f"document.getElementById('{key}').scrollIntoView({{behavior: 'instant', block: 'center'}})")
        self.until(
            f"return document.querySelector('[data-chart={key}][data-drawn] svg') !== null", f"{key} drawn"
        )

    def hover(self, key: str, selector: str = "svg", x: float = 0.5, y: float = 0.5, index: int = 0) -> None:
        """Move the pointer over part of a chart."""
        box = self.run(
            f"const e = document.querySelectorAll('[data-chart={key}] {selector}')[{index}];"
            "e.scrollIntoView({behavior: 'instant', block: 'nearest'}); const r = e.getBoundingClientRect();"
            "return [r.x, r.y, r.width, r.height]"
        )
        for shift in (3, 0):  # a pointer comes from somewhere
            at = {"x": box[0] + x * box[2] + shift, "y": box[1] + y * box[3] + shift}
            self.driver.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": "mouseMoved", **at})

    def console(self) -> list[str]:
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]

    def screenshot(self, path: Path) -> None:
        """What is on the screen."""
        path.write_bytes(
            base64.b64decode(self.driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})["data"])
        )


@contextmanager
def browser() -> Iterator[Browser]:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    with TemporaryDirectory() as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM or ""
        for flag in [*FLAGS.split(), f"--user-data-dir={profile}"]:
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        driver = webdriver.Chrome(options=options, service=Service(DRIVER))
        try:
            yield Browser(driver)
        finally:
            driver.quit()
