"""The report's page in a real browser: numbers, pictures, keyboard, colours, print, and silence on the network."""

from __future__ import annotations

import base64
import itertools
import json
import math
import re
import time
from typing import TYPE_CHECKING, Any

import pytest
from build.pagerig import draw_all, emulate, faults_for_all_readers, until
from build.tablemaker import OPENAT, READ, READV, WRITE, make_batch, write_trace
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from lo2io.reports.html.page import framed, gather_pictures, render_html
from lo2io.reports.html.sheets import sheets
from lo2io.reports.summary.summary import summarize
from lo2io.reports.summary.sums import gather

if TYPE_CHECKING:
    from pathlib import Path

    from selenium.webdriver import Chrome

    from lo2io.reports.summary.summary import Summary

SPAN = 1_000_000_000
NR_READS = 4_000
NR_FILES = 30
SDA = 8 << 20


def _trace(directory: Path) -> Any:
    """Reads of many files in a first half, big writes in the second; a ring, a disk, an error."""
    operations: list[dict[str, Any]] = []
    for index in range(NR_READS):
        begin = index * SPAN // (2 * NR_READS)
        operations.append(
            {"call": READ, "handle": index % NR_FILES, "task": 0, "bytes_result": 4096 * (1 + index % NR_FILES),
             "offset_bytes": index * 4096, "begin_time_ns": begin, "end_time_ns": begin + 2_000}
        )  # fmt: skip
    for index in range(100):
        begin = SPAN // 2 + index * SPAN // 250
        operations.append(
            {"call": WRITE, "handle": 0, "task": 1, "bytes_result": 1 << 20, "offset_bytes": index << 20,
             "begin_time_ns": begin, "end_time_ns": begin + 1_000_000}
        )  # fmt: skip
    operations.append({"call": OPENAT, "task": 0, "error": 2, "begin_time_ns": 5, "end_time_ns": 9})
    tables: dict[str, list[dict[str, Any]]] = {
        "tasks": [
            {"task": 0, "process": 7, "pid": 100, "tid": 100, "comm": b"reader"},
            {"task": 1, "process": 9, "pid": 200, "tid": 200, "comm": b"</td><script>boom()</script>"},
        ],
        "files": [{"file": number, "path": f"/data/<i>{number:02}".encode()} for number in range(NR_FILES)],
        "handles": [{"handle": number, "process": 7, "file": number, "fd": 3} for number in range(NR_FILES)],
        "operations": [{"id": index + 1, **row} for index, row in enumerate(operations)],
        "requests": [
            {"id": 90_000 + index, "device": SDA, "insert_time_ns": index * 1000, "issue_time_ns": index * 1000 + 300,
             "complete_time_ns": index * 1000 + 90_300, "sector": index * 8, "bytes_result": 4096}
            for index in range(50)
        ],
        "ring_requests": [
            {"id": 99_000, "ring": 0, "task": 0, "handle": 1, "opcode": READV, "submit_time_ns": 0,
             "complete_time_ns": SPAN // 2, "bytes_result": 100}
        ],
        "rings": [{"ring": 0, "task": 0, "nr_requests": 1}],
    }  # fmt: skip
    return write_trace(directory, [make_batch(**tables)], span=(0, SPAN))


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Summary]:
    """The page as a file, with its summary."""
    directory = tmp_path_factory.mktemp("page")
    trace = _trace(directory / "T")
    sums = gather(trace)
    summary = summarize(trace, sums)
    file = directory / "report.html"
    file.write_text(render_html(summary, gather_pictures(sums)), encoding="utf-8")
    return file, summary


@pytest.fixture
def page(browser: Chrome, report: tuple[Path, Summary]) -> Chrome:
    """The page, just opened, its numbers unpacked."""
    browser.get_log("browser")
    browser.get_log("performance")
    browser.get(report[0].as_uri())
    until(browser, "return document.documentElement.dataset.ready === 'yes'")
    return browser


def column(page: Chrome, table: str, heading: str) -> list[float]:
    """The values of a column of numbers, in the order shown, of the rows shown."""
    headings = page.execute_script(
        "return [...document.getElementById(arguments[0]).tHead.rows[0].cells].map((head) => head.textContent)", table
    )
    values: list[float] = page.execute_script(
        "return [...document.getElementById(arguments[0]).tBodies[0].rows].filter((row) => !row.hidden)"
        ".map((row) => Number(row.cells[arguments[1]].dataset.value))",
        table,
        headings.index(heading),
    )
    return values


def test_numbers_are_the_summary_s(page: Chrome, report: tuple[Path, Summary]) -> None:
    """Cards and tables hold the exact values; names are text and never markup."""
    summary = report[1]
    cards = {
        card.get_dom_attribute("data-card"): float(card.get_dom_attribute("data-value"))
        for card in page.find_elements(By.CSS_SELECTOR, "[data-card]")
    }
    assert cards["calls"] == summary.activity.calls == NR_READS + 101
    assert cards["read by calls"] == summary.activity.bytes_read
    assert cards["written by calls"] == 100 << 20
    assert cards["errors"] == 1
    assert cards["block requests"] == 50
    assert column(page, "t-files", "read") == [row.activity.bytes_read for row in summary.files]
    assert column(page, "t-calls", "p99") == [row.latency.p99_ns for row in summary.calls]
    assert column(page, "t-devices", "device p50") == [row.device.p50_ns for row in summary.devices]
    assert summary.io is not None
    assert column(page, "t-slowest", "took") == [row.duration_ns for row in summary.io.slowest]
    assert "</td><script>boom()</script> (200)" in page.find_element(By.ID, "t-processes").text
    assert page.find_element(By.ID, "completeness").text == summary.completeness_line


def test_nothing_leaves_the_page(page: Chrome, report: tuple[Path, Summary]) -> None:
    """All pictures are drawn without an error on the console, and without a request but for the page itself."""
    draw_all(page)
    drawn = page.execute_script("return [...charts.values()].every((chart) => chart.node.dataset.drawn === 'yes')")
    assert drawn
    time.sleep(0.3)
    assert page.get_log("browser") == []
    messages = [json.loads(entry["message"])["message"] for entry in page.get_log("performance")]
    asked = [each["params"]["request"]["url"] for each in messages if each["method"] == "Network.requestWillBeSent"]
    assert [url for url in asked if not url.startswith(("data:", "blob:"))] == [report[0].as_uri()]


def test_pictures_show_the_tables(page: Chrome, report: tuple[Path, Summary]) -> None:
    """Sums of curves, heat maps and histograms are those of the tables."""
    draw_all(page)
    summary = report[1]
    assert summary.rings is not None
    read = page.execute_script(
        "return charts.get('bandwidth').node.data[0].y.reduce((sum, value) => sum + value, 0)"
        " * charts.get('bandwidth').node.layout.meta.size * pictures.heat.bin_ns / 1e9"
    )
    assert read == pytest.approx(summary.activity.bytes_read + summary.rings.bytes_read)
    heat = page.execute_script(
        "return charts.get('heat-files').node.data[0].z.flat().reduce((sum, value) => sum + value, 0)"
        " * pictures.heat.bin_ns / 1e9"
    )
    assert heat == pytest.approx(read)
    assert histogram_sum(page) == NR_READS
    served = page.execute_script("return charts.get('depth').node.data[0].y.reduce((sum, value) => sum + value, 0)")
    assert served * page.execute_script("return pictures.heat.bin_ns") == pytest.approx(50 * 90_000, rel=0.01)


def histogram_sum(page: Chrome) -> int:
    """Latencies counted in the histogram."""
    total: int = page.execute_script(
        "return charts.get('latency-histogram').node.data[0].y.reduce((sum, value) => sum + value, 0)"
    )
    return total


def test_zoom_by_keyboard(page: Chrome) -> None:
    """The two times change the span of all pictures over time, and the histogram's calls; one button undoes it."""
    draw_all(page)
    stop = page.find_element(By.ID, "to")
    stop.clear()
    stop.send_keys("0.25", Keys.TAB)
    pictures_over_time = "[...charts].filter(([name]) => name !== 'latency-histogram')"
    ranges = f"{pictures_over_time}.map(([, chart]) => chart.node.layout.xaxis.range)"
    until(page, f"return {ranges}.every((range) => range[0] === 0 && range[1] === 0.25)")
    # Half of the reads' half second; the bins at the edge lie wholly on one side.
    assert histogram_sum(page) == pytest.approx(NR_READS / 2, rel=0.02)
    page.find_element(By.ID, "whole").send_keys(Keys.ENTER)
    until(page, f"return {ranges}.every((range) => range[1] >= 1)")
    assert histogram_sum(page) == NR_READS


def test_zoom_by_mouse(page: Chrome) -> None:
    """The span that one picture selects is shown by the others."""
    draw_all(page)
    page.execute_script("Plotly.relayout(charts.get('timeline').node, {'xaxis.range[0]': 0.5, 'xaxis.range[1]': 0.75})")
    until(page, "return charts.get('bandwidth').node.layout.xaxis.range[0] === 0.5")
    assert page.find_element(By.ID, "from").get_property("value") == "0.5"
    assert page.find_element(By.ID, "to").get_property("value") == "0.75"
    assert histogram_sum(page) == 0


def test_tables_sort_and_filter_by_keyboard(page: Chrome, report: tuple[Path, Summary]) -> None:
    """Enter on a heading sorts, the greatest first, and then the other way. Typed text leaves the rows that have it."""
    heading = page.find_element(By.XPATH, "//table[@id='t-files']//button[.='read']")
    heading.send_keys(Keys.ENTER)
    values = sorted((row.activity.bytes_read for row in report[1].files), reverse=True)
    assert column(page, "t-files", "read") == values
    heading.send_keys(Keys.ENTER)
    assert column(page, "t-files", "read") == values[::-1]
    assert page.find_element(By.XPATH, "//table[@id='t-files']//th[.='read']").get_dom_attribute("aria-sort")
    box = page.find_element(By.CSS_SELECTOR, "input[data-table='t-files']")
    box.send_keys("<i>1")
    assert len(column(page, "t-files", "read")) == 10
    assert f"10 of {len(report[1].files)} rows" in page.find_element(By.ID, "files").text


def test_choices_change_pictures(page: Chrome) -> None:
    """Written instead of read bytes, one class of operations, another file, a device's latencies."""
    draw_all(page)
    page.find_element(By.CSS_SELECTOR, "[data-for='heat-processes'] option[value='written']").click()
    written = page.execute_script(
        "return charts.get('heat-processes').node.data[0].z.flat().reduce((sum, value) => sum + value, 0)"
        " * pictures.heat.bin_ns / 1e9"
    )
    assert written == pytest.approx(100 << 20)
    page.find_element(By.CSS_SELECTOR, "[data-for='timeline'] option[value='write']").click()
    slices = page.execute_script("return charts.get('timeline').node.data.slice(1).map((trace) => trace.name)")
    assert slices == ["write"]
    page.find_element(By.XPATH, "//*[@data-for='latency']/option[.='sda: device']").click()
    assert histogram_sum(page) == 50


def test_scales_and_legends_can_be_read(page: Chrome) -> None:
    """Below each picture stand its colours, each with a name and a look of its own. Sizes have powers of 1024."""
    draw_all(page)
    keys = page.execute_script(
        "return Object.fromEntries([...charts].map(([name, chart]) => [name, chart.key.innerText]))"
    )
    assert keys["timeline"].split("\n")[0] == "share of the time in calls, or in the device"
    assert "the longest calls, one by one:" in keys["timeline"]
    assert keys["heat-files"].split("\n")[::2] == ["bytes a second", keys["heat-files"].split("\n")[2]]
    assert re.fullmatch(r"bytes a second\n0\n[0-9.]+ MiB/s", keys["heat-files"])
    unit = page.execute_script("return charts.get('bandwidth').node.layout.yaxis.title.text")
    assert unit == "MiB a second"
    assert page.execute_script("return [byteRate(1023), bytes(1024), bytes(1.5 * 2 ** 30), bytes(1023.9 * 1024)]") == [
        "1023 B/s", "1 KiB", "1.5 GiB", "1024 KiB",
    ]  # fmt: skip
    looks = page.execute_script(
        "return [...charts.values()].map(({ key }) => "
        "[...key.querySelectorAll('.entry')].map((entry) => entry.querySelector('.look').outerHTML))"
    )
    assert max(map(len, looks)) > 2
    assert all(len(set(entries)) == len(entries) for entries in looks)
    page.find_element(By.CSS_SELECTOR, "[data-for='file-points'] option[value='1']").click()
    assert page.execute_script("return charts.get('file-points').key.innerText") == "●\nread"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_are_distinct(page: Chrome, scheme: str) -> None:
    """Each two of the twelve differ by 20 in CIE L*a*b*, and each from the ground by 3 to 1 (WCAG 2.1, 1.4.11)."""
    emulate(page, scheme)
    until(page, f"return matchMedia('(prefers-color-scheme: {scheme})').matches")
    colours = page.execute_script("return [...Array(COLORS).keys()].map((index) => color(`c${index}`))")
    paper = page.execute_script("return color('paper')")
    emulate(page, "light")
    assert min(contrast(paper, each) for each in colours) >= 3
    apart = {pair: math.dist(*map(lab, pair)) for pair in itertools.combinations(colours, 2)}
    assert {pair: far for pair, far in apart.items() if far < 20} == {}


def lab(text: str) -> tuple[float, float, float]:
    """A colour (#rrggbb) as CIE L*a*b* with white D65; source: IEC 61966-2-1 and CIE 15."""
    parts = [int(text[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089
    x, y, z = (part ** (1 / 3) if part > 0.008856 else 7.787 * part + 16 / 116 for part in (x, y, z))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("width", [400, 800, 1200, 1600])
def test_reads_well_at_each_width(page: Chrome, width: int) -> None:
    """Nothing is wider than the window, and the times of all pictures stand one below the other."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        page.get(page.current_url)
        until(page, "return document.documentElement.dataset.ready === 'yes'")
        draw_all(page)
        assert page.execute_script("return document.documentElement.scrollWidth") <= width
        places = (
            "[...charts].filter(([name]) => OVER_TIME(name)).map(([, { node }]) => {"
            " const box = node.querySelector('.nsewdrag').getBoundingClientRect();"
            " return [box.left, box.right, node.getBoundingClientRect().right]; })"
        )
        until(page, f"return new Set({places}.map(String)).size === 1")
        left, right, end = page.execute_script(f"return {places}[0]")
        assert width / 2 < right - left < end - left
        assert page.execute_script("return document.querySelector('nav').offsetHeight") < 150
        assert page.get_log("browser") == []
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_times_shown_in_pieces(page: Chrome) -> None:
    """The page says in which pieces of time bytes count, and that they count at the end."""
    text = page.find_element(By.ID, "over-time").text
    assert "Bytes count in the 4.17 ms in which their call or request completed" in text


def test_menu_is_short(page: Chrome, report: tuple[Path, Summary]) -> None:
    """Six entries in one line; the last one opens the list of all tables, by keyboard, too."""
    shown = [each.text for each in page.find_elements(By.CSS_SELECTOR, "nav a, nav summary") if each.is_displayed()]
    assert shown == ["findings", "over time", "timeline", "offsets", "latency", "tables"]
    page.find_element(By.CSS_SELECTOR, "nav summary").send_keys(Keys.ENTER)
    listed = [each.text for each in page.find_elements(By.CSS_SELECTOR, "nav li a") if each.is_displayed()]
    assert listed == [sheet.title for sheet in sheets(report[1])]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessible(page: Chrome, scheme: str) -> None:
    """axe-core, the accessibility checker, finds nothing to blame by WCAG 2.1 A and AA, or by good practice."""
    emulate(page, scheme)
    draw_all(page)
    found = faults_for_all_readers(page)
    emulate(page, "light")
    assert found == []


def test_in_a_frame(browser: Chrome, report: tuple[Path, Summary], tmp_path: Path) -> None:
    """A notebook shows the page in a frame that can reach nothing outside; its pictures are drawn."""
    outer = tmp_path / "outer.html"
    outer.write_text(f"<!doctype html><body>{framed(report[0].read_text(encoding='utf-8'), 700)}", encoding="utf-8")
    browser.get_log("browser")
    browser.get(outer.as_uri())
    frame = browser.find_element(By.TAG_NAME, "iframe")
    assert frame.size["height"] == 700
    browser.switch_to.frame(frame)
    until(browser, "return document.documentElement.dataset.ready === 'yes'")
    draw_all(browser)
    assert browser.execute_script("return charts.get('bandwidth').node.dataset.drawn") == "yes"
    assert (
        browser.execute_script("try { return parent.document.title } catch (error) { return error.name }")
        == "SecurityError"
    )
    assert browser.get_log("browser") == []
    browser.switch_to.default_content()


def test_size(report: tuple[Path, Summary]) -> None:
    """The page has at most 2 MB, and names the licence of the library that it holds."""
    assert report[0].stat().st_size < 2_000_000
    assert "Licensed under the MIT license" in report[0].read_text(encoding="utf-8")


def test_light_and_dark(page: Chrome) -> None:
    """Text contrasts with its ground by 4.5 to 1 in both (WCAG 2.1, 1.4.3), and pictures follow."""
    draw_all(page)
    grounds = set()
    for scheme in ("light", "dark"):
        emulate(page, scheme)
        until(page, f"return matchMedia('(prefers-color-scheme: {scheme})').matches")
        paper, ink, dim, accent, bad = (
            page.execute_script("return color(arguments[0])", name) for name in ("paper", "ink", "dim", "accent", "bad")
        )
        assert min(contrast(paper, other) for other in (ink, dim, accent, bad)) >= 4.5
        until(page, "return charts.get('bandwidth').node.layout.paper_bgcolor === color('paper')")
        grounds.add(paper)
    emulate(page, "light")
    assert len(grounds) == 2


def contrast(first: str, second: str) -> float:
    """Contrast ratio of two colours (#rrggbb); source: WCAG 2.1, relative luminance."""

    def luminance(text: str) -> float:
        parts = [int(text[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


def test_printed_whole(page: Chrome) -> None:
    """On paper, all pictures are drawn, even those that were never in view, and all rows of the longest table."""
    pdf = base64.b64decode(page.execute_cdp_cmd("Page.printToPDF", {})["data"])
    assert pdf.startswith(b"%PDF")
    until(page, "return [...charts.values()].every((chart) => chart.node.dataset.drawn === 'yes')")
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) >= 4


def test_paper_is_white(page: Chrome) -> None:
    """The pictures are light on paper, also for those who read the screen dark."""
    emulate(page, "dark")
    until(page, "return matchMedia('(prefers-color-scheme: dark)').matches")
    grounds = "return ['bandwidth', 'timeline'].map((name) => charts.get(name).node.layout.paper_bgcolor)"
    page.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert page.execute_script(grounds) == ["#ffffff"] * 2
    page.execute_script("dispatchEvent(new Event('afterprint'))")
    assert len({"#ffffff", *page.execute_script(grounds)}) == 2
    emulate(page, "light")


def test_nothing_is_cut_off_on_paper(page: Chrome) -> None:
    """The widest table and each picture fit on A4 with Chromium's margins. Then pictures fit the window again."""
    wide = "[...charts.values()].map(({ node }) => node.querySelector('.main-svg').getBoundingClientRect().right)"
    paper = {"width": 718, "height": 1123, "deviceScaleFactor": 1, "mobile": True}  # no scroll bar takes room
    page.execute_script("dispatchEvent(new Event('beforeprint'))")
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", paper)
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        widths = "[...document.querySelectorAll('.table')].map((table) => [table.scrollWidth, table.clientWidth])"
        found = page.execute_script(f"return {widths}")
        assert [row for row in found if row[0] > row[1]] == []
        rights = page.execute_script(f"return {wide}")
        assert len(rights) == 9
        assert 600 < min(rights) <= max(rights) <= 718
        page.execute_script("dispatchEvent(new Event('afterprint'))")
    finally:
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    until(page, f"return Math.min(...{wide}) > 1200")


def test_readable_without_scripts(browser: Chrome, report: tuple[Path, Summary]) -> None:
    """All tables are there if the browser runs no script."""
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get(report[0].as_uri())
        rows = browser.find_elements(By.CSS_SELECTOR, "#t-files tbody tr")
        assert len(rows) == len(report[1].files)
        assert browser.find_element(By.TAG_NAME, "noscript").text.startswith("The pictures need JavaScript")
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
