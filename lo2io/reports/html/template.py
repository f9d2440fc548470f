"""The template of all pages: head, findings, totals, pictures if there are any, tables.

In: words and tables. Out: the text of one file. The file loads nothing: plotly.js, style and numbers are
part of it, and its content security policy forbids all else. Sources: the policy is W3C's CSP 3;
assets/plotly/README.md says where plotly.js comes from.
"""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from lo2io._version import __version__
from lo2io.errors import Lo2ioError
from lo2io.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lo2io.reports.html.cells import Sheet

MAGIC: Final = b"<!doctype html>\n<!-- lo2io report -->"
"""The beginning of the page. A file that begins otherwise is never replaced."""
_ASSETS: Final = files("lo2io.reports.html") / "assets"
_PLOTLY: Final = "plotly/plotly-cartesian.min.js"


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What a page says. All texts are plain: the template escapes them."""

    title: str
    subtitle: str
    completeness_line: str
    complete: bool
    trace: str
    """The directory."""
    sheets: Sequence[Sheet]
    cards: Sequence[tuple[str, str, float]]
    """Name, text and exact value of each number at the top."""
    findings: Sequence[dict[str, Any]]
    """Each has a ``title`` and ``lines``."""
    links: Sequence[tuple[str, str]]
    """Parts that the menu names beside the tables: the id and the word of each."""
    notices: Sequence[str] = ()
    hints: Sequence[str] = ()
    """Why nothing was recorded."""
    confines: Sequence[str] = ()
    """What the page is about, and what it leaves out."""
    answer: dict[str, Any] | None = None
    """Where the time went."""


def fill(page: Page, pictures: dict[str, Any] | None = None) -> str:
    """Make the file. Without pictures it has no place for them, and no plotly.js.

    Raises:
        Lo2ioError: Jinja is not installed.
    """
    try:
        from jinja2 import Environment  # noqa: PLC0415  costs 20 ms, and only this page needs it
    except ImportError as error:
        raise Lo2ioError("cannot draw the report", str(error), "pip install jinja2") from error
    template = Environment(autoescape=True, trim_blocks=False).from_string(_asset("page.html.j2"))
    return template.render(
        version=__version__,
        page=page,
        css=_asset("page.css"),
        tables_js=_asset("tables.js"),
        drawn=_drawn(pictures) if pictures else None,
    )


def _drawn(pictures: dict[str, Any]) -> dict[str, str]:
    return {
        "heat_bin": format_duration(pictures["heat"]["bin_ns"]),
        "fine_bin": format_duration(pictures["fine"]["bin_ns"]),
        "charts_js": _asset("charts.js"),
        "plotly_notice": _plotly_notice(),
        "plotly": _packed(_asset(_PLOTLY)),
        "numbers": _packed(json.dumps(pictures, separators=(",", ":"))),
    }


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def _plotly_notice() -> str:
    """The comment at plotly.js's start, with its version, copyright and licence."""
    return _asset(_PLOTLY).partition("*/")[0] + "*/"


def _packed(text: str) -> str:
    """A text gzipped in base64: less than half of plotly.js, a tenth of JSON. Every browser can unpack it."""
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()
