"""The directory of a recording on many nodes: its names, and what their files hold.

::

    T/host=NAME/                          a node's trace, as a trace of one machine is
    T/host=NAME/lo2io/metadata.json       boot_id, job: see lo2io.model.job.Job
    T/host=NAME/lo2io/clock_readings.arrow   the node's clocks, read once a second
    T/host=NAME/lo2io/clock.arrow         break points of the correction of its clock; merging writes it
    T/clocks/TIME.json                    a comparison of the nodes' clocks: a run of `lo2io clocks`
    T/cluster.json                        the nodes in order, the clocks' method and error; merging writes it
    T/traces.otf2 …                       the merged archive

Recorders write below their own ``host=NAME`` alone, so no node waits for another one. ``host=`` is the naming of Hive's
partitions, by which DuckDB, Polars and Arrow make a column of the folder.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from lo2io.errors import UsageError
from lo2io.trace.names import table_file

if TYPE_CHECKING:
    from pathlib import Path

CLUSTER_FILE: Final = "cluster.json"
"""A JSON object; what merging knows of the nodes."""
HOST_PREFIX: Final = "host="
CLOCKS: Final = "clocks"
"""The folder of comparisons of clocks."""
COMPARISON_PATTERN: Final = re.compile(r"\d+\.json")
"""A comparison is named by the time of its root in ns of CLOCK_REALTIME: names of one length sort by time."""
READINGS_TABLE: Final = "clock_readings"
"""The table of a node's readings of its clocks."""
CORRECTION_FILE: Final = table_file("clock")
"""Columns ``time_ns`` (of the node), ``offset_ns`` and ``error_ns``, in the folder of the node's tables."""
_HOST_NAME = re.compile(r"[A-Za-z0-9._-][A-Za-z0-9._ ()-]*")


def host_folder(host: str) -> str:
    """The folder of a node.

    Raises:
        UsageError: The name of the host cannot be the name of a folder.
    """
    if not _HOST_NAME.fullmatch(host):
        raise UsageError(f"make a folder for the host {host!r}", "the name has other characters", "rename the host")
    return f"{HOST_PREFIX}{host}"


def host_of(name: str) -> str | None:
    """The host whose folder this is; None: another folder."""
    return name.removeprefix(HOST_PREFIX) if name.startswith(HOST_PREFIX) and name != HOST_PREFIX else None


def host_folders(directory: Path) -> dict[str, Path]:
    """Host → folder of each node in a directory, by name. Empty: the directory is no recording of many nodes."""
    found = ((host_of(entry.name), entry) for entry in sorted(directory.iterdir()) if entry.is_dir())
    return {host: entry for host, entry in found if host is not None}


def comparisons(directory: Path) -> list[Path]:
    """The files of the comparisons of clocks, in the order of time."""
    folder = directory / CLOCKS
    if not folder.is_dir():
        return []
    found = (entry for entry in folder.iterdir() if COMPARISON_PATTERN.fullmatch(entry.name))
    return sorted(found, key=lambda entry: int(entry.stem))
