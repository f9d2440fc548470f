"""Work that is slow for a known reason: the report finds the reason, and no other that the layers tell."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from workloads import slow, waits
from workloads.disks import loop_device
from workloads.record import record, verified

from lo2io.reports.findings.layers import LAYER_RULES
from lo2io.reports.summary.summary import summarize

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.alone,  # the share of the recording that each fault takes is compared with a threshold
    pytest.mark.requires(
        "root", "tracefs", "events", "losetup", "mkfs.ext4", "sched:sched_switch", "sched:sched_waking"
    ),
    pytest.mark.usefixtures("busy_cpus"),
]

PROGRAM = Path(slow.__file__)
DISK_BYTES = 400 << 20
PLAIN = ("mkfs.ext4", "-q", "-F")
SMALL_JOURNAL = (*PLAIN, "-b", "1024", "-N", "60000", "-J", "size=1")
MOST_DIRTY = 8 << 20
OF_ALL_LAYERS = {"faults-one-by-one"}
"""Rules that need a layer which is off by default."""


@pytest.fixture
def disk() -> Iterator[Path]:
    """A device of 400 MiB in a file."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder, loop_device(Path(folder) / "image", DISK_BYTES) as disk:
        yield disk


def limit_dirty(folder: Path) -> None:
    """Slow writers of this file system down from a few dirty pages on."""
    device = folder.stat().st_dev
    of_device = Path(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}")
    if not (of_device / "max_bytes").exists():
        pytest.skip("this kernel has no limit of dirty bytes for one device (Linux 6.2)")
    (of_device / "strict_limit").write_text("1", encoding="ascii")
    (of_device / "max_bytes").write_text(str(MOST_DIRTY), encoding="ascii")


def rules_found(disk: Path, place: Path, rule: str, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The rules of the layers that are found in work that is slow for one of them."""
    (place / "mnt").mkdir(parents=True)
    make = SMALL_JOURNAL if rule == "journal-bound" else PLAIN
    with waits.mounted(disk, place / "mnt", *make) as folder:
        if rule == "throttled-writer":
            limit_dirty(folder)
        monkeypatch.chdir(folder)
        if rule.endswith("read-ahead") or rule in OF_ALL_LAYERS:
            slow.prepare()
        options = ("--layers", "all") if rule in OF_ALL_LAYERS else ()
        run = record(place / "T", [sys.executable, "-S", PROGRAM, rule], *options, cwd=folder)
        monkeypatch.chdir(place)
    verified(place / "T")
    return {finding.rule for finding in summarize(run.trace).findings} & set(LAYER_RULES)


@pytest.mark.parametrize("rule", slow.WORK)
def test_the_reason_is_found(disk: Path, tmp_path: Path, rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rule of the layers has work that is slow for it, and for nothing else that they tell.

    Others on the machine may take so much of a disk or a CPU that the work waits for them. Then it is tried again.
    """
    assert set(slow.WORK) == set(LAYER_RULES)
    tries: list[set[str]] = []
    while len(tries) < 3 and {rule} not in tries:
        tries.append(rules_found(disk, tmp_path / str(len(tries)), rule, monkeypatch))
    assert tries[-1] == {rule}, tries
