"""Compares tables with what a machine really did."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reference.fact_histories import COPIES, DUPS, Witness, name

if TYPE_CHECKING:
    from pathlib import Path

    from build.kernelwriter import KernelSpool

    from reference.compare import Tables

WITHOUT_OFFSET = ("read", "write", "writev")


def written(builder: KernelSpool) -> Path:
    """Events that are not recorded were left out on purpose: no kernel lacks close(2)."""
    return builder.write(lacking=tuple(name for name in builder.meta().lacking if not name.endswith("_close")))


def assert_true(machine: Witness, tables: Tables) -> None:
    """The tables state the truth."""
    names = {f"h{number}": row["file"] and row["file"][-1] for number, row in enumerate(tables["handles"])}
    for row in tables["operations"]:
        met = machine.truth.get((row["tid"], row["begin_time_ns"]))
        if met is None or not met.done:
            continue
        second = met.second if row["call"] in (*DUPS, *COPIES) else None
        for told, file in ((row["handle"], met.file), (row["handle2"], second)):
            if told is not None and names[told] is not None:
                assert file is not None, (row, names[told])
                assert names[told] == name(file), row
        if row["call"] in WITHOUT_OFFSET and row["offset_bytes"] is not None and row["error"] == 0:
            assert row["offset_bytes"] == met.position, row
