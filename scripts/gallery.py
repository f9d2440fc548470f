#!/usr/bin/env python3
"""Take the pictures of a report's page that the documentation shows, in a headless Chromium.

usage: gallery.py TRACE FOLDER

Needs chromium, its driver and selenium, which `make test` installs. docs/index.md has the commands that made docs/img.
"""

import base64
import shutil
import sys
import tempfile
import time
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.common.by import By

from lo2io.reports.html.page import gather_pictures, render_html
from lo2io.reports.summary.summary import summarize
from lo2io.reports.summary.sums import gather
from lo2io.trace.reader import open_trace

WIDTH, HEIGHT = 1200, 900
SHOTS = {
    "html-top": ("header, #findings, #answer, #totals", "light"),
    "html-over-time": ("#over-time", "light"),
    "html-timeline": ("#timeline", "light"),
    "html-offsets": ("#offsets", "dark"),
    "html-latency": ("#latency", "dark"),
}
OPTIONS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={WIDTH},{HEIGHT}")


def start_browser() -> webdriver.Chrome:
    """A Chromium without a window."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("chromium-browser") or ""
    for option in OPTIONS:
        options.add_argument(option)
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))


def take(browser: webdriver.Chrome, selector: str, scheme: str, target: Path) -> None:
    """The part of the page that the selector's elements cover."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    time.sleep(1)
    boxes = [element.rect for element in browser.find_elements(By.CSS_SELECTOR, selector)]
    top = min(box["y"] for box in boxes)
    bottom = max(box["y"] + box["height"] for box in boxes)
    clip = {"x": 0, "y": top, "width": WIDTH, "height": bottom - top, "scale": 0.75}
    picture = browser.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})

    target.write_bytes(base64.b64decode(picture["data"]))


def main(trace: str, folder: str) -> None:
    """Draw the page and take its pictures."""
    sums = gather(open_trace(trace))
    page = render_html(summarize(sums.trace, sums), gather_pictures(sums))
    browser = start_browser()
    try:
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory) / "report.html"
            file.write_text(page, encoding="utf-8")
            browser.get(file.as_uri())
            while not browser.execute_script("return document.documentElement.dataset.ready"):
                time.sleep(0.1)
            browser.execute_script("for (const name of charts.keys()) draw(name)")
            browser.execute_script("document.querySelector('nav').style.position = 'static'")
            for name, (selector, scheme) in SHOTS.items():
                take(browser, selector, scheme, Path(folder) / f"{name}.png")
    finally:
        browser.quit()


if __name__ == "__main__":
    if len(sys.argv) != 3:  # noqa: PLR2004
        sys.exit(__doc__)
    main(*sys.argv[1:])
