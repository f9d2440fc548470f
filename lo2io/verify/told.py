"""What a trace itself tells of write-back, of calls and of rings' requests.

In: blocks of events. Out: attributes by request, and by call. ``write_backs.py``, ``calls.py`` and ``works.py`` compare
them with the tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.model import UNKNOWN_I64
from lo2io.otf2.read.definitions import BLOCK_PARADIGM, handles_of, narrowed
from lo2io.otf2.read.events import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from lo2io.otf2.read.definitions import Definitions
    from lo2io.verify.plain import Columns

REASON: Final = "Reason"
CHARGED_TO: Final = "Charged to"
"""Names of attributes."""
CALL_ID: Final = "Call id"
WORKER, RUN_QUEUE, BLOCKED = "io_uring worker", "io_uring run queue", "io_uring blocked"
"""Attributes of the ends of requests that workers executed."""
OF_CALLS: Final = (
    *("Run queue", "Blocked", "FUSE requests", "FUSE time"),
    *("Block requests", "First block request", "Last block request"),
)
"""Attributes of calls' leaves, beside the id."""
_OPERATIONS: Final = (KINDS["IoOperationBegin"], KINDS["IoOperationComplete"])


class ToldWriteBacks:
    """What attributes of block requests tell about write-back, be the requests operations or samples.

    Memory grows with the number of requests with such attributes.
    """

    def __init__(self, definitions: Definitions) -> None:
        named = {definitions.name("attribute", ref): ref for ref in definitions.table("attribute")}
        self._definitions = definitions
        self._disks = np.array(sorted(handles_of(definitions, BLOCK_PARADIGM)), np.uint32)
        self._id, self._reason, self._charged = (named.get(name, -1) for name in ("RequestId", REASON, CHARGED_TO))
        self._found = len(self._disks) > 0
        self.reasons: dict[int, str] = {}
        """Id of a request → its reason."""
        self.charged: dict[int, int] = {}
        """The same → the thread that caused its writes."""

    def __bool__(self) -> bool:
        """True if block requests are in the trace."""
        return self._found

    def take(self, columns: Columns) -> None:
        """Note the attributes of a block of events."""
        owner, details = columns.attributes
        refs = details["ref"].astype(np.int64)
        sampled = refs == self._id
        self._found = self._found or bool(sampled.any())
        if self._reason < 0 and self._charged < 0:
            return
        idents = columns.ident.copy()
        idents[owner[sampled]] = details["value"][sampled]
        requests = np.zeros(columns.number, np.bool_)
        requests[owner[sampled]] = True
        requests |= np.isin(columns.ref, self._disks) & np.isin(columns.kind, _OPERATIONS)
        mine = requests[owner]

        def told(ref: int) -> Iterator[tuple[int, int]]:
            chosen = mine & (refs == ref)
            return zip(idents[owner[chosen]].tolist(), details["value"][chosen].tolist(), strict=True)

        self.charged.update(told(self._charged))
        self.reasons.update((ident, self._text(value)) for ident, value in told(self._reason))

    def _text(self, value: int) -> str:
        return self._definitions.text(narrowed("string", value))


class ToldCalls:
    """What the leaves of calls tell of their waits and requests.

    Memory: 64 B for each call that waited, or sent requests.
    """

    def __init__(self, definitions: Definitions) -> None:
        named = {definitions.name("attribute", ref): ref for ref in definitions.table("attribute")}
        self._id = named.get(CALL_ID, -1)
        self._refs = [named.get(name, -1) for name in OF_CALLS]
        self._parts: list[NDArray[np.uint64]] = []

    def __bool__(self) -> bool:
        """True if the trace tells of calls: those of older lo2ios do not."""
        return self._id >= 0

    def take(self, columns: Columns) -> None:
        """Note the attributes of a block of events."""
        if self._id < 0:
            return
        owner, details = columns.attributes
        refs = details["ref"].astype(np.int64)
        calls = refs == self._id
        rows = owner[calls]
        if not len(rows):
            return
        found = np.zeros((len(rows), 1 + len(OF_CALLS)), np.uint64)
        found[:, 0] = details["value"][calls]
        for place, ref in enumerate(self._refs, 1):
            chosen = (refs == ref) & np.isin(owner, rows)
            found[np.searchsorted(rows, owner[chosen]), place] = details["value"][chosen]
        self._parts.append(found)

    def by_id(self) -> Any:
        """A row for each call, in the order of ids: the id, then the values of ``OF_CALLS``; 0: absent."""
        rows = np.concatenate([np.zeros((0, 1 + len(OF_CALLS)), np.uint64), *self._parts])
        return rows[np.argsort(rows[:, 0], kind="stable")]


class ToldWorks:
    """What the ends of rings' requests tell of the time in which workers executed them.

    Memory: 24 B for each request that a worker executed.
    """

    def __init__(self, definitions: Definitions) -> None:
        named = {definitions.name("attribute", ref): ref for ref in definitions.table("attribute")}
        self._worker = named.get(WORKER, -1)
        self._refs = [named.get(name, -1) for name in (RUN_QUEUE, BLOCKED)]
        self._parts: list[NDArray[np.int64]] = []

    def __bool__(self) -> bool:
        """True if the trace can tell of that: those of older lo2ios cannot."""
        return min(self._refs) >= 0

    def take(self, columns: Columns) -> None:
        """Note the attributes of a block of events."""
        if not self:
            return
        owner, details = columns.attributes
        refs = details["ref"].astype(np.int64)
        rows = owner[refs == self._worker]
        if not len(rows):
            return
        found = np.full((len(rows), 3), UNKNOWN_I64, np.int64)
        found[:, 0] = columns.ident[rows].astype(np.int64)
        for place, ref in enumerate(self._refs, 1):
            chosen = (refs == ref) & np.isin(owner, rows)
            found[np.searchsorted(rows, owner[chosen]), place] = details["value"][chosen].astype(np.int64)
        self._parts.append(found)

    def by_id(self) -> NDArray[np.int64]:
        """A row for each request, in the order of ids: the id, its run queue and its waits; ``UNKNOWN_I64``: absent."""
        rows = np.concatenate([np.zeros((0, 3), np.int64), *self._parts])
        return rows[np.argsort(rows[:, 0], kind="stable")]
