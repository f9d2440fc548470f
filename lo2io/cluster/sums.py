"""The sums of each node beside its tables, and the report of all nodes."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pyarrow as pa

from lo2io.errors import TraceError
from lo2io.folder import Folder, private_umask
from lo2io.reports.nodes.summary import HostFacts, NodesSummary, add_up
from lo2io.reports.nodes.sums import SCHEMA, SUMS_FILE, VERSION, sum_up
from lo2io.trace.directory import give_away
from lo2io.trace.names import DIRECTORY, PART
from lo2io.trace.reader import open_trace
from lo2io.trace.selection.selection import Selection

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lo2io.cluster.nodes import Node, Nodes

_REMEDY = "remove the file: the tables count then"


def write_sums(trace: Path) -> None:
    """Sum a node's trace up, and write the sums beside its tables, whole or not at all.

    Raises:
        TraceError: A table is damaged, or the sums cannot be written.
    """
    sums = _packed(sum_up(open_trace(trace)))
    try:
        with private_umask(), Folder.open(trace / DIRECTORY) as folder:
            folder.remove(f"{SUMS_FILE}{PART}")
            folder.write(f"{SUMS_FILE}{PART}", sums.to_pybytes())
            folder.rename(f"{SUMS_FILE}{PART}", folder, SUMS_FILE)
            give_away(folder, itself=False)
    except OSError as error:
        raise TraceError(f"write {trace / DIRECTORY / SUMS_FILE}", error.strerror or str(error)) from error


def summarize_nodes(nodes: Nodes) -> NodesSummary:
    """The report of all nodes. Nodes without sums, and parts of traces, are summed up from their tables.

    Raises:
        TraceError: A table, or a file of sums, is damaged.
    """
    made: dict[str, pa.Buffer] = {}
    ready = {node.host for node in nodes.nodes if _has_sums(node)}

    def each() -> Iterator[tuple[HostFacts, pa.Table]]:
        for node in nodes.nodes:
            start, stop = node.span
            facts = HostFacts(node.host, node.alignment.method, node.alignment.error_ns, stop - start)
            if node.host in ready:
                yield facts, _load(node)
            else:
                if node.host not in made:
                    made[node.host] = _packed(sum_up(node.trace))
                yield facts, pa.ipc.open_file(made[node.host]).read_all()

    return add_up(
        str(nodes.path),
        each,
        span_ns=nodes.metadata["stop_ns"] - nodes.metadata["start_ns"],
        left_out=nodes.left_out,
        nr_summed=len(nodes.nodes) - len(ready),
    )


def _packed(sums: pa.Table) -> pa.Buffer:
    """Sums as their file has them."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, SCHEMA, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(sums)
    return sink.getvalue()


def _has_sums(node: Node) -> bool:
    """True if the node has sums with all that this version of lo2io sums up."""
    path = node.trace.path / DIRECTORY / SUMS_FILE
    if isinstance(node.trace, Selection) or not path.exists():
        return False
    with _reading(path) as reader:
        return (reader.schema.metadata or {}).get(b"version") == str(VERSION).encode()


def _load(node: Node) -> pa.Table:
    """The sums of a node.

    Raises:
        TraceError: The file is damaged.
    """
    with _reading(node.trace.path / DIRECTORY / SUMS_FILE) as reader:
        table = reader.read_all()
        table.validate(full=True)
        return table


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[pa.RecordBatchFileReader]:
    try:
        with pa.OSFile(str(path)) as file, pa.ipc.open_file(file) as reader:
            yield reader
    except (OSError, ValueError, pa.ArrowException) as error:
        raise TraceError(f"cannot read the sums {path}", str(error), _REMEDY) from error
