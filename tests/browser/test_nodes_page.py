"""The page of many nodes in a real browser: keyboard, colours, narrow screens, print, and silence on the network."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from build.made_hosts import host_with
from build.merged_traces import small_cluster
from build.pagerig import emulate, faults_for_all_readers, until
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

import lo2io
from lo2io.reports.html.nodes_page import render_nodes_html
from lo2io.reports.nodes.summary import NodesFinding

if TYPE_CHECKING:
    from pathlib import Path

    from selenium.webdriver import Chrome

LONG = "/scratch/" + "folder_with_a_long_name" * 20 + "/<img src=x>\u202e&amp;\n"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of eight hosts: one has no trace, two have disks and losses, five have a rank each, and one is slow."""
    folder = tmp_path_factory.mktemp("nodes-page")
    small_cluster(folder / "T", "ab", "system")
    for number in range(5):
        slow = 100 if number == 3 else 1
        host_with(folder / "T", f"<img>{'long_name_of_a_host_' * 5}{number}", [(LONG, slow * 20, 4096)], rank=number)
    (folder / "T" / "host=none").mkdir()
    page = folder / "page.html"
    summary = lo2io.open(folder / "T").hosts_summary()
    finding = NodesFinding("small-reads", tuple(host.host for host in summary.hosts), 9, 1_000_000, LONG)
    page.write_text(render_nodes_html(replace(summary, findings=(finding,))), encoding="utf-8")
    return page


@pytest.fixture
def page(browser: Chrome, file: Path) -> Chrome:
    """The page, just opened."""
    browser.get_log("browser")
    browser.get_log("performance")
    browser.get(file.as_uri())
    until(browser, "return document.readyState === 'complete'")
    return browser


def test_works_by_keyboard_and_loads_nothing(page: Chrome, file: Path) -> None:
    """Tables sort and filter, names make no elements, the console is silent, and nothing but the page is asked for."""
    page.find_element(By.XPATH, "//table[@id='t-hosts']//button[.='time']").send_keys(Keys.ENTER, Keys.ENTER)
    times = page.execute_script(
        "return [...document.querySelectorAll('#t-hosts tbody tr')].map((row) => Number(row.cells[9].dataset.value))"
    )
    assert times == sorted(times)
    assert len(set(times)) == 3
    page.find_element(By.CSS_SELECTOR, "input[data-table='t-ranks']").send_keys("host_3")
    assert len([row for row in page.find_elements(By.CSS_SELECTOR, "#t-ranks tbody tr") if row.is_displayed()]) == 1
    assert page.find_elements(By.TAG_NAME, "img") == []
    assert page.get_log("browser") == []
    messages = [json.loads(entry["message"])["message"] for entry in page.get_log("performance")]
    asked = [each["params"]["request"]["url"] for each in messages if each["method"] == "Network.requestWillBeSent"]
    assert asked == [file.as_uri()]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessible(page: Chrome, scheme: str) -> None:
    """axe-core finds nothing to blame, in both colours."""
    emulate(page, scheme)
    until(page, f"return matchMedia('(prefers-color-scheme: {scheme})').matches")
    found = faults_for_all_readers(page)
    emulate(page, "light")
    assert found == []


def test_fits_narrow_screens_and_paper(page: Chrome) -> None:
    """At 400 pixels nothing is wider than the window but what scrolls in itself. On A4, no table is cut off."""
    try:
        for width in (400, 1200):
            screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
            page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
            assert page.execute_script("return document.documentElement.scrollWidth") <= width
        paper = {"width": 718, "height": 1123, "deviceScaleFactor": 1, "mobile": True}
        page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", paper)
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
        widths = page.execute_script(
            "return [...document.querySelectorAll('.table')].map((table) => [table.scrollWidth, table.clientWidth])"
        )
        assert len(widths) == 11
        assert [row for row in widths if row[0] > row[1]] == []
    finally:
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
