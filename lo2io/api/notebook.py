"""``%%lo2io`` in a Jupyter notebook: records the notebook's process while a cell runs, and shows the page below it."""

from __future__ import annotations

import argparse
import os
import shlex
from typing import TYPE_CHECKING, Any, NoReturn

from lo2io.api.recording import record
from lo2io.api.table import needed
from lo2io.errors import UsageError

if TYPE_CHECKING:
    from lo2io.api.trace import Trace

_HEIGHT = 800
"""Of the page in the notebook, in pixels."""


class Shown:
    """What a cell shows of its recording: the page; where a notebook shows only text, the report of one screen."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    def __repr__(self) -> str:
        """The report of one screen."""
        import io  # noqa: PLC0415 - as below

        from lo2io.reports.text.brief import render_brief  # noqa: PLC0415 - a recording starts without it
        from lo2io.reports.text.page import report_console  # noqa: PLC0415

        text = io.StringIO()
        render_brief(self._trace.summary(), report_console(text))
        return text.getvalue()

    def _repr_html_(self) -> str:
        from lo2io.reports.html.page import framed  # noqa: PLC0415

        return framed(self._trace.html(), _HEIGHT)


def record_cell(line: str, cell: str) -> None:
    """Record this process, its threads and children while the cell runs, and show the page.

    Args:
        line: Options of ``lo2io record``. ``-o T`` keeps the trace in this directory; else it is a temporary one.
        cell: The code.

    Raises:
        UsageError: The line cannot be understood.
        CaptureError: lo2io made no trace.
    """
    shell = needed("IPython").get_ipython()
    known, options = _Line(add_help=False, allow_abbrev=False).parse_known_args(_words(line))
    with record(pid=os.getpid(), output=known.output, options=options) as recording:
        done = shell.run_cell(cell)
    needed("IPython.display").display(Shown(recording.trace))
    done.raise_error()


class _Line(argparse.ArgumentParser):
    """The options of the line that this module reads itself."""

    def __init__(self, **how: Any) -> None:
        super().__init__(**how)
        self.add_argument("-o", "--output")

    def error(self, message: str) -> NoReturn:
        raise UsageError("read the line of %%lo2io", message, "write it like %%lo2io -o T --layers all")


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError as error:
        raise UsageError("read the line of %%lo2io", str(error), "close the quotes") from error
