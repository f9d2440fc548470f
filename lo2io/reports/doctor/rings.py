"""The doctor's questions about io_uring, and what the answers mean for a trace.

In: the catalog and the kernel's tracefs. Out: :class:`RingFacts`, and the text about them.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lo2io.catalog.layouts import field_name
from lo2io.catalog.rings import RING_LONE_ROLES, RING_REQUEST_ROLES, RING_ROLE_FIELDS
from lo2io.kernel import access
from lo2io.kernel.tracefs import event_exists, load_format
from lo2io.model import Role

if TYPE_CHECKING:
    from pathlib import Path

    from lo2io.catalog.catalog import Catalog

FOLLOWED: Final = "requests in rings are followed from submission to completion"
"""The meaning if every tracepoint works."""
_LACKING = {
    Role.RING_REFUSE: "completions of requests that were refused at once are orphans",
    Role.RING_OVERFLOW: "requests whose completion finds no room stay in flight",
    Role.RING_FILE_GET: "descriptors of requests are unknown",
    Role.RING_PUNT: "when a request goes to a worker is unknown",
    Role.RING_POLL_ARM: "which requests waited for their file is unknown",
    Role.RING_WAKE: "who woke a request is unknown",
    Role.RING_LINK: "links are unknown",
    Role.RING_FAIL_LINK: "whose failure ended a linked request is unknown",
    Role.RING_DEFER: "which requests were drained is unknown",
    Role.RING_CREATE: "sizes and flags of rings are known from /proc only",
    Role.RING_SHORT_WRITE: "of writes done in part only the result is known",
}
"""A role that no tracepoint plays → what follows for a trace."""
_UNNAMED = {
    Role.RING_SUBMIT: "requests are known by user_data and order only",
    Role.RING_COMPLETE: "completions are matched by user_data and order, which the trace says of each",
    Role.RING_FILE_GET: "descriptors are given to the request that the thread submits",
}
"""A role with samples that name no request → what follows for a trace."""


@dataclass(frozen=True, slots=True)
class RingFacts:
    """The facts about io_uring."""

    setup: access.Attempt
    """This process's answer from io_uring_setup(2), asked without making a ring."""
    disabled: str = ""
    """``kernel.io_uring_disabled``; empty: the kernel has no such setting (before Linux 6.6)."""
    readable: bool = True
    """False if tracefs could not be read: then nothing is known of the tracepoints."""
    there: int = 0
    """Number of io_uring tracepoints that both lo2io and this kernel have."""
    missing: tuple[str, ...] = ()
    """Tracepoints that this kernel lacks, under any name."""
    lacking: frozenset[Role] = frozenset()
    """Roles that no tracepoint of this kernel plays."""
    unnamed: frozenset[Role] = frozenset()
    """Roles with samples that could name a request, but do not."""


def ask_rings(catalog: Catalog, tracefs: Path, root: Path, *, readable: bool) -> RingFacts:
    """Ask the kernel for io_uring, its setting and its tracepoints.

    Args:
        catalog: It tells which tracepoints play which role.
        tracefs: As ``find_tracefs`` found it.
        root: The folder above ``proc``.
        readable: True if tracefs may be read.
    """
    setup, disabled = access.try_io_uring(), access.read_io_uring_disabled(root)
    if not readable:
        return RingFacts(setup, disabled, readable=False)
    specs = [spec for spec in catalog.tracepoints if spec.role in RING_ROLE_FIELDS]
    there = {spec.event: spec for spec in specs if event_exists(tracefs, spec.event)}
    played = {spec.role for spec in there.values()}
    named = set()
    for event, spec in there.items():
        layout, _ = load_format(tracefs, event)
        if "req" in spec.fields and layout.field(field_name(layout, spec, "req")) is not None:
            named.add(spec.role)
    return RingFacts(
        setup,
        disabled,
        there=len(there),
        missing=tuple(spec.event for spec in specs if spec.role not in played),
        lacking=frozenset({*RING_REQUEST_ROLES.values(), *RING_LONE_ROLES.values()} - played),
        unnamed=frozenset(played & _UNNAMED.keys() - named),
    )


def describe_rings(facts: RingFacts) -> tuple[bool, str, str]:
    """True if requests of rings can be followed; what was found; and what this means for a trace."""
    state, meaning = _state(facts)
    if not facts.readable:
        unknown = "it is not known whether requests in rings can be followed" if meaning == FOLLOWED else meaning
        return True, f"{state}; its tracepoints could not be read", unknown
    if facts.setup.error == errno.ENOSYS and not facts.there:
        return True, state, meaning
    missing = f"; not {', '.join(facts.missing)}" if facts.missing and facts.there else ""
    found = f"{state}; {facts.there} of {facts.there + len(facts.lacking)} tracepoints{missing}"
    if facts.lacking & {Role.RING_SUBMIT, Role.RING_COMPLETE}:
        seen = "its calls and the block requests they cause are recorded, the requests in the rings are not"
        return False, found, seen
    limits = [text for role, text in _LACKING.items() if role in facts.lacking]
    limits += [text for role, text in _UNNAMED.items() if role in facts.unnamed]
    return True, found, "; ".join([meaning, *limits])


def _state(facts: RingFacts) -> tuple[str, str]:
    """The state of io_uring for programs, and its meaning."""
    if facts.setup.error == errno.ENOSYS:
        return "this kernel has none", "programs do without rings, and what they do instead is recorded"
    setting = f"kernel.io_uring_disabled is {facts.disabled}"
    if facts.disabled == "2":
        return f"off: {setting}", "programs do without rings, and what they do instead is recorded"
    if facts.disabled == "1":
        meaning = "programs of other users do without rings, and what they do instead is recorded"
        return f"for privileged users and kernel.io_uring_group only: {setting}", meaning
    if not facts.setup.ok:
        return f"refused here ({facts.setup})", "programs under the same restrictions do without rings"
    return "on", FOLLOWED
