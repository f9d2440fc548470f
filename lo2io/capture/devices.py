"""Mounts and block devices that come to a machine while it is being recorded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from lo2io.kernel import procfs, sysfs

if TYPE_CHECKING:
    from lo2io.model import SpoolMeta


def with_new_devices(meta: SpoolMeta, root: Path = Path("/")) -> SpoolMeta:
    """Add the mounts and block devices that have come since the description was made. Those that are gone stay in it.

    Args:
        meta: The description.
        root: Where ``proc`` and ``sys`` lie.
    """
    known = {device.device for device in meta.devices}
    return replace(
        meta,
        mounts=tuple(dict.fromkeys((*meta.mounts, *procfs.read_mounts(root=root)))),
        devices=(*meta.devices, *(device for device in sysfs.read_devices(root) if device.device not in known)),
    )
