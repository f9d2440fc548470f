"""Mounts and block devices that come to a machine while it is being recorded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from lo2io.kernel import procfs, sysfs

if TYPE_CHECKING:
    from lo2io.model import BlockDevice, SpoolMeta


def with_new_devices(meta: SpoolMeta, root: Path = Path("/")) -> SpoolMeta:
    """Add the mounts and block devices that have come since the description was made. Those that are gone stay in it.

    Args:
        meta: The description.
        root: Where ``proc`` and ``sys`` lie.
    """
    now = {device.device: device for device in sysfs.read_devices(root)}
    known = [_newer(device, now.pop(device.device, device)) for device in meta.devices]
    return replace(
        meta,
        mounts=tuple(dict.fromkeys((*meta.mounts, *procfs.read_mounts(root=root)))),
        devices=(*known, *now.values()),
    )


def _newer(device: BlockDevice, now: BlockDevice) -> BlockDevice:
    """The device as it is now if it has got an image since, else as described: a loop device can exist without one."""
    return now if now.image and not device.image else device
