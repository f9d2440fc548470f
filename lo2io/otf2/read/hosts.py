"""The hosts of a merged archive, whose events are read one host after the other.

Merging gives each host handles of its own, so the order of events matters within a host alone. Memory then grows with
one host's locations: libotf2 keeps a location's tables of ids for as long as its reader is open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lo2io.otf2.library import Library
    from lo2io.otf2.read.definitions import Definitions

HOSTS_PROPERTY: Final = "HOSTS"
"""The property ``LO2IO::…`` of merged archives: how many hosts they have."""
APPLICATION_PROPERTY: Final = "APPLICATION"
"""The property ``LO2IO::…`` of archives merged with an application's own: the first number that ends no id of the
application's locations. Ids of lo2io's locations end with it or a greater one."""
_NODE: Final = "node"


def is_merged(library: Library, reader: int) -> bool:
    """True for an archive that lo2io has merged."""
    return library.property(reader, f"LO2IO::{HOSTS_PROPERTY}") is not None


def application_of(library: Library, reader: int) -> int:
    """The first number above the lower 32 bits of all ids of an application's locations; 0: no application."""
    found = library.property(reader, f"LO2IO::{APPLICATION_PROPERTY}") or ""
    return int(found) if found.isdecimal() else 0


def by_host(definitions: Definitions, locations: Sequence[int]) -> list[list[int]]:
    """The locations of each host: of each node of the system tree of class *node*. Others are together."""
    nodes, groups = definitions.table("node"), definitions.table("location-group")
    found: dict[int, list[int]] = {}
    hosts: dict[int, int] = {}
    for ref in locations:
        group = groups.get(definitions.table("location")[ref][3])
        below = -1 if group is None else group[2]
        if below not in hosts:
            hosts[below] = _host_of(definitions, below, len(nodes))
        found.setdefault(hosts[below], []).append(ref)
    return list(found.values())


def _host_of(definitions: Definitions, node: int, most: int) -> int:
    """The outermost node of class *node* around a node; -1: there is none. ``most``: ancestors, in case of a circle."""
    nodes, host = definitions.table("node"), -1
    for _ in range(most):
        if node not in nodes:
            break
        if definitions.text(nodes[node][1]) == _NODE:
            host = node
        node = nodes[node][2]
    return host
