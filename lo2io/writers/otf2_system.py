"""Definitions of the machine: its block devices as nodes of the system tree, with the locations of their requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lo2io._native._lib import lib
from lo2io.units import split_kernel_dev
from lo2io.writers.otf2_parts import HOST_NODE

if TYPE_CHECKING:
    from lo2io.model import BlockDevice
    from lo2io.writers.otf2_parts import Parts


def write_devices(parts: Parts) -> dict[int, tuple[str, int]]:
    """A PROCESS group of one CPU_THREAD location per device: the only kind of location every reader handles.

    Returns:
        By the reference of the device's handle: its name and node.
    """
    trace = parts.trace
    view = trace.view
    found = [i for i in range(view.nr_locations) if view.locations[i].kind == lib.LO2_OTF2_DEVICE]
    if not found:
        return {}
    devices = {device.device: device for device in trace.meta.devices}
    parent = parts.node("block devices", "block devices", HOST_NODE)
    handles = {}
    for location in found:
        number = view.locations[location].key
        name = trace.device_name(number)
        node = parts.node(name, "block device", parent)
        major, minor = split_kernel_dev(number)
        parts.text_property("SystemTreeNodeProperty", node, "Device", f"{major}:{minor}")
        if number in devices:
            _describe(parts, node, devices[number])
        parts.location(location, f"{name} requests", parts.group(f"block {name}", node))
        handles[view.locations[location].handle] = (f"/dev/{name}" if number in devices else name, node)
    return handles


def _describe(parts: Parts, node: int, device: BlockDevice) -> None:
    if device.scheduler:
        parts.text_property("SystemTreeNodeProperty", node, "Scheduler", device.scheduler)
    if device.model:
        parts.text_property("SystemTreeNodeProperty", node, "Model", device.model)
    if device.rotational is not None:
        parts.text_property("SystemTreeNodeProperty", node, "Rotational", "yes" if device.rotational else "no")
    if device.size_bytes is not None:
        parts.number_property("SystemTreeNodeProperty", node, "Size in bytes", device.size_bytes)
