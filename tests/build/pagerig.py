"""Waiting for the report's page in a browser.

>>> browser.get("data:text/html,<p>here")
>>> until(browser, "return document.querySelector('p').textContent")
'here'
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from selenium.webdriver import Chrome


def until(page: Chrome, script: str) -> Any:
    """The script's answer, as soon as that is true."""
    for _ in range(200):
        found = page.execute_script(script)
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"never true: {script}")


def draw_all(page: Chrome) -> None:
    """Draw all that has not come into view."""
    page.execute_script("for (const name of charts.keys()) draw(name);")
