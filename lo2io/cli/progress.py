"""A progress bar for long work, on a terminal only, not in a file or a pipe."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PATIENCE_S = 0.5
"""Shorter work shows no bar, and does not import one."""


@contextlib.contextmanager
def conversion_progress(spool: Path) -> Iterator[Callable[[int], None] | None]:
    """Progress of reading a spool.

    Yields:
        A function to call with the bytes read so far; None if no bar is wanted.
    """
    if not sys.stderr.isatty():
        yield None
        return
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        bar: list[tuple[object, object]] = []

        def advance(bytes_read: int) -> None:
            if not bar:
                if time.monotonic() - started < PATIENCE_S:
                    return
                bar.append(_start(stack, spool))
            progress, task = bar[0]
            progress.update(task, completed=bytes_read)  # type: ignore[attr-defined]

        yield advance


def _start(stack: contextlib.ExitStack, spool: Path) -> tuple[object, object]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from lo2io.spool.format import RECORD_ENDINGS

    columns = (TextColumn("converting"), BarColumn(), DownloadColumn(binary_units=True), TimeRemainingColumn())
    total = sum(path.stat().st_size for ending in RECORD_ENDINGS for path in spool.glob(f"*{ending}"))
    progress = stack.enter_context(Progress(*columns, console=Console(stderr=True), transient=True))
    return progress, progress.add_task("convert", total=total)


@contextlib.contextmanager
def share_progress(what: str) -> Iterator[Callable[[float], None]]:
    """Progress of work with a known share of finished work.

    Args:
        what: The word before the bar.

    Yields:
        A function to call with the share, from 0 to 1. If no bar is wanted, the function does nothing.
    """
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        bar: list[tuple[object, object]] = []

        def advance(share: float) -> None:
            if not bar:
                if not sys.stderr.isatty() or time.monotonic() - started < PATIENCE_S:
                    return
                bar.append(_start_share(stack, what))
            progress, task = bar[0]
            progress.update(task, completed=share)  # type: ignore[attr-defined]

        yield advance


def _start_share(stack: contextlib.ExitStack, what: str) -> tuple[object, object]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn(what), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    progress = stack.enter_context(Progress(*columns, console=Console(stderr=True), transient=True))
    return progress, progress.add_task(what, total=1.0)
