"""Definitions of the machine: its CPUs and block devices as nodes of the system tree, with their locations."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lo2io.native._lib import lib
from lo2io.otf2.library import UNDEFINED_U64
from lo2io.otf2.write.parts import HOST_NODE
from lo2io.units import split_kernel_dev

if TYPE_CHECKING:
    from lo2io.model import BlockDevice
    from lo2io.otf2.write.parts import Parts


class DeviceFile(NamedTuple):
    """The string and file that a device's handle refers to."""

    name: str
    path: str
    node: int


def write_cpus(parts: Parts) -> None:
    """Write the nodes of packages, cores and CPUs beneath the host.

    Each CPU has a PROCESS group with one CPU_THREAD location, as readers expect of locations.
    """
    view = parts.trace.view
    topology = {cpu.cpu: cpu for cpu in parts.trace.meta.cpus}
    nodes: dict[tuple[int, ...], int] = {}
    found = [i for i in range(view.nr_locations) if view.locations[i].kind == lib.LO2_OTF2_CPU]
    for location in sorted(found, key=lambda i: view.locations[i].key):
        number = view.locations[location].key
        node = HOST_NODE
        if number in topology:
            package, core = topology[number].package, topology[number].core
            for place, name, kind, domain in (
                ((package,), f"package {package}", "package", "SOCKET"),
                ((package, core), f"package {package} core {core}", "core", "CORE"),
            ):
                if place not in nodes:
                    nodes[place] = parts.node(name, kind, node, (domain,))
                node = nodes[place]
        node = parts.node(f"cpu {number}", "cpu", node, ("PU",))
        parts.location(location, f"CPU {number}", parts.group(f"CPU {number} activity", node))


def write_devices(parts: Parts) -> dict[int, DeviceFile]:
    """Write a node and a group for each device.

    Requests as operations are on a CPU_THREAD location of a PROCESS group, the only kinds that every reader handles. A
    PROCESS group must have such a location, so a group with metrics alone is of type UNKNOWN.

    Returns:
        Reference of the device's handle → string and file of the handle.
    """
    trace = parts.trace
    view = trace.view
    if not view.nr_devices:
        return {}
    described = {device.device: device for device in trace.meta.devices}
    parent = parts.node("block devices", "block devices", HOST_NODE)
    handles = {}
    for device in (view.devices[i] for i in range(view.nr_devices)):
        name = trace.device_name(device.number)
        node = parts.node(name, "block device", parent)
        major, minor = split_kernel_dev(device.number)
        parts.text_property("SystemTreeNodeProperty", node, "Device", f"{major}:{minor}")
        if device.number in described:
            _describe(parts, node, described[device.number])
        has_requests = device.location != UNDEFINED_U64
        if has_requests or device.metrics_location != UNDEFINED_U64:
            group = parts.group(f"block {name}", node, kind="PROCESS" if has_requests else "UNKNOWN")
        if has_requests:
            parts.location(device.location, f"{name} requests", group)
            path = f"/dev/{name}" if device.number in described else name
            handles[view.locations[device.location].handle] = DeviceFile(name, path, node)
        if device.metrics_location != UNDEFINED_U64:
            parts.location(device.metrics_location, f"{name} metrics", group, "METRIC")
            parts.scopes[device.metrics_location] = ("SYSTEM_TREE_NODE", node)
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
