"""`lo2io merge`: one archive of the traces of many nodes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from lo2io.rights import confine
from lo2io.signals import ended_by_signals

Recording = Annotated[Path, typer.Argument(metavar="T", help="Directory of a recording on many nodes: T/host=NAME.")]


Keep = Annotated[bool, typer.Option("--keep-corrections", help="Take T/host=NAME/lo2io/clock.arrow as they are.")]


def merge(recording: Recording, keep_corrections: Keep = False) -> None:
    """Make one OTF2 archive of the traces of many nodes.

    The archive is T/traces.otf2. Events stay in the nodes' traces and are linked, not copied. Nodes without a whole
    trace are left out, and named. After a further node was recorded, merge again.
    """
    from lo2io.cli.progress import share_progress
    from lo2io.cluster.merge import merge as merge_nodes

    confine([recording], [recording])
    with ended_by_signals(), share_progress("merging") as progress:
        merged = merge_nodes(recording, lambda done, of: progress(done / of), keep_corrections=keep_corrections)
    print(recording)
    locations, events = (sum(host[name] for host in merged.hosts) for name in ("locations", "events"))
    print(f"lo2io: {len(merged.hosts):,} hosts, {locations:,} locations, {events:,} events", file=sys.stderr)
    for host, reason in merged.left_out.items():
        print(f"lo2io: left out {host}: {reason}", file=sys.stderr)
    errors = [host["error_ns"] for host in merged.hosts]
    methods = ", ".join(dict.fromkeys(host["clock"] for host in merged.hosts))
    doubt = "an unknown error" if None in errors else f"{max(errors) / 1e3:,.1f} µs"
    print(f"lo2io: clocks: {methods}; times are right within {doubt}", file=sys.stderr)
    for notice in merged.notices:
        print(f"lo2io: {notice}", file=sys.stderr)
