"""The folder of this node in the directory of a recording on many nodes."""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING

from lo2io.cluster.layout import host_folder
from lo2io.errors import InUseError
from lo2io.trace.directory import locked_directory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lo2io.folder import Folder


@contextlib.contextmanager
def host_directory(directory: Path, host: str) -> Iterator[tuple[Folder, str]]:
    """Lock this node's folder while its trace is written, as :func:`~lo2io.trace.directory.locked_directory` does.

    Two nodes may have one name: containers often do. So if somebody writes there already, a number follows the name.

    Yields:
        The folder, and the name that it gave the host.

    Raises:
        UsageError: The folder cannot be opened or made.
    """
    with contextlib.ExitStack() as stack:
        for number in itertools.count(1):
            name = host if number == 1 else f"{host} ({number})"
            try:
                folder = stack.enter_context(locked_directory(directory / host_folder(name)))
            except InUseError:
                continue
            break
        yield folder, name
