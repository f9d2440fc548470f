"""What a trace itself tells about the write-back of its block requests; ``write_backs.py`` compares it with the tables.

In: blocks of events. Out: attributes by request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from lo2io.otf2.read.definitions import BLOCK_PARADIGM, handles_of, narrowed
from lo2io.otf2.read.events import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lo2io.otf2.read.definitions import Definitions
    from lo2io.verify.plain import Columns

REASON: Final = "Reason"
CHARGED_TO: Final = "Charged to"
"""Names of attributes."""
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
