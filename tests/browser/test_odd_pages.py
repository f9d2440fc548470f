"""Pages of unusual traces: empty, of one call, with names that are long or markup; on a narrow screen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import build
import pytest
from build.pagerig import draw_all, until
from build.tablemaker import READ, make_batch, meta, write_trace
from selenium.webdriver.common.by import By

from lo2io.reports.html.page import gather_pictures, render_html
from lo2io.reports.summary.summary import summarize
from lo2io.reports.summary.sums import gather

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from selenium.webdriver import Chrome

SPAN = 1_000_000
NAME = "/a" + "/folder-with-a-long-name" * 60 + "/<img src=x>\u202e&amp;\n.txt"
NOTHING = "nothing of this kind was recorded"


def shown(browser: Chrome, directory: Path, read: str = "read", **tables: list[dict[str, Any]]) -> Chrome:
    """The page of these rows, with all of its pictures drawn. Reads have the name ``read``."""
    trace = write_trace(directory / "T", [make_batch(**tables)], spool=meta(command=(NAME,)), span=(0, SPAN))
    trace.metadata["calls"][READ]["name"] = read
    sums = gather(trace)
    file = directory / "page.html"
    file.write_text(render_html(summarize(trace, sums), gather_pictures(sums)), encoding="utf-8")
    browser.get_log("browser")
    browser.get(file.as_uri())
    until(browser, "return document.documentElement.dataset.ready === 'yes'")
    draw_all(browser)
    return browser


def test_example_of_the_rig(browser: Chrome, tmp_path: Path) -> None:
    """It shows the true result."""
    build.run_example("pagerig", tmp_path, browser=browser)


def one_call() -> dict[str, list[dict[str, Any]]]:
    """A read of 4 KiB by a process whose name is markup."""
    return {
        "tasks": [{"task": 0, "process": 7, "pid": 100, "tid": 100, "comm": b"<b>x</b>\x1b"}],
        "files": [{"file": 0, "path": NAME.encode(), "mode": 0o100644}],
        "handles": [{"handle": 0, "process": 7, "file": 0, "fd": 3}],
        "operations": [
            {"id": 1, "task": 0, "call": READ, "handle": 0, "offset_bytes": 8192, "bytes_result": 4096,
             "begin_time_ns": 1000, "end_time_ns": 3000}
        ],
    }  # fmt: skip


def texts(page: Chrome) -> dict[str, str]:
    """The text in place of each picture."""
    found: dict[str, str] = page.execute_script(
        "return Object.fromEntries([...charts]"
        ".map(([name, chart]) => [name, chart.drawn ? '' : chart.node.textContent]))"
    )
    return found


def test_of_nothing(browser: Chrome, tmp_path: Path) -> None:
    """Each empty picture says so, takes no room, and has no choices; the console is silent."""
    page = shown(browser, tmp_path)
    assert set(texts(page).values()) == {NOTHING}
    heights = page.execute_script("return [...charts.values()].map((chart) => chart.node.offsetHeight)")
    assert max(heights) < 60
    choices = page.find_elements(By.CSS_SELECTOR, "#offsets select")
    assert [(each.is_enabled(), each.text) for each in choices] == [(False, "none")] * 2
    assert page.get_log("browser") == []


def test_of_one_call(browser: Chrome, tmp_path: Path) -> None:
    """Only what the call did is drawn; a picture that one choice empties comes back by another."""
    page = shown(browser, tmp_path, **one_call())
    empty = {name for name, text in texts(page).items() if text == NOTHING}
    assert empty == {"depth", "device-points"}
    for value, expected in (("written", NOTHING), ("read", "")):
        page.find_element(By.CSS_SELECTOR, f"[data-for='heat-files'] option[value='{value}']").click()
        assert texts(page)["heat-files"] == expected
    assert page.execute_script("return charts.get('heat-files').node.data[0].z.flat().filter((z) => z > 0).length") == 1
    page.execute_script("setRange([0, 0.0005])")
    assert page.execute_script("return charts.get('heat-files').node.layout.xaxis.range") == [0, 0.0005]
    assert page.get_log("browser") == []


@pytest.fixture
def narrow(browser: Chrome) -> Iterator[Chrome]:
    """A telephone's width."""
    size = {"width": 480, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    yield browser
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_long_names_on_a_narrow_screen(narrow: Chrome, tmp_path: Path) -> None:
    """No element is wider than the screen, tables scroll. Names are text, with unprintable characters escaped."""
    page = shown(narrow, tmp_path, **one_call())
    width, room = page.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
    assert width <= room == 480
    assert page.execute_script("return document.querySelectorAll('img, main b').length") == 0
    labels = page.execute_script(
        "return ['heat-files', 'heat-processes'].flatMap((name) => "
        "[...charts.get(name).node.querySelectorAll('.ytick text')].map((tick) => tick.textContent))"
    )
    assert labels[0] == "…&amp;\\n.txt"
    assert labels[1] == "…>\\x1b (100)"
    pointed = page.execute_script("return charts.get('heat-files').node.data[0].text[0][0]")
    assert "/&lt;img src=x&gt;\\u202e&amp;amp;\\n.txt<br>" in pointed
    assert page.get_log("browser") == []


def test_a_call_whose_name_is_markup(browser: Chrome, tmp_path: Path) -> None:
    """Names of calls come from the trace, and anybody may have written it."""
    page = shown(browser, tmp_path, "<a href=x>read</a>", **one_call())
    words = page.execute_script("return charts.get('timeline').node.data.flatMap((trace) => trace.text).map(String)")
    assert [text for text in words if text.startswith("&lt;a href=x&gt;read&lt;/a&gt; #1: ")]
