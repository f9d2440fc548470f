"""Waiting for the report's page in a browser.

>>> browser.get("data:text/html,<p>here")
>>> until(browser, "return document.querySelector('p').textContent")
'here'
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import axe_core_python

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


def emulate(page: Chrome, scheme: str) -> None:
    """Set the preference of the user's system."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def faults_for_all_readers(page: Chrome) -> list[Any]:
    """What axe-core, the accessibility checker, blames by WCAG 2.1 A and AA, or by good practice."""
    page.execute_script((Path(axe_core_python.__file__).parent / "axe.min.js").read_text())
    found: list[Any] = page.execute_async_script(
        "const done = arguments[0]; axe.run().then((found) => done(found.violations.map((each) =>"
        " [each.id, each.help, each.nodes.slice(0, 3).map((node) => node.html.slice(0, 200))])))"
    )
    return found
