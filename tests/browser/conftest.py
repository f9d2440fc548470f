"""A headless browser, and a report's page in it."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from selenium.webdriver import Chrome

_OPTIONS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--window-size=1400,1000",
)  # fmt: skip


@pytest.fixture(scope="session")
def browser() -> Iterator[Chrome]:
    """Chromium, which logs all its network requests."""
    programs = [shutil.which("chromium") or shutil.which("chromium-browser"), shutil.which("chromedriver")]
    if None in programs:
        reason = "needs chromium and chromedriver (Debian: chromium-driver)"
        (pytest.fail if os.environ.get("LO2IO_RUN_KERNEL_TESTS") == "1" else pytest.skip)(reason)
    from selenium import webdriver  # noqa: PLC0415  of the tests that have a browser alone

    options = webdriver.ChromeOptions()
    options.binary_location = str(programs[0])
    for option in _OPTIONS:
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    running = webdriver.Chrome(options=options, service=webdriver.ChromeService(str(programs[1])))
    running.set_script_timeout(30)
    yield running
    running.quit()
