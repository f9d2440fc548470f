"""What a trace itself tells about the write-back of its block requests; ``write_backs.py`` compares it with the tables.

In: blocks of events. Out: attributes by request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from lo2io.otf2.read.definitions import BLOCK_PARADIGM, handles_of, narrowed

if TYPE_CHECKING:
    from lo2io.otf2.read.definitions import Definitions
    from lo2io.verify.plain import Columns

REASON: Final = "Reason"
"""The attribute's name."""


class ToldWriteBacks:
    """What attributes of block requests tell about write-back. Memory grows with the number of such requests."""

    def __init__(self, definitions: Definitions) -> None:
        named = {definitions.name("attribute", ref): ref for ref in definitions.table("attribute")}
        self._definitions = definitions
        self._disks = np.array(sorted(handles_of(definitions, BLOCK_PARADIGM)), np.uint32)
        self._reason = named.get(REASON)
        self.reasons: dict[int, str] = {}
        """Matching id of a request → its reason."""

    def __bool__(self) -> bool:
        return bool(len(self._disks))

    def take(self, columns: Columns) -> None:
        """Note the attributes of a block of events."""
        if self._reason is None or not self:
            return
        owner, details = columns.attributes()
        mine = (details["ref"] == self._reason) & np.isin(columns.ref[owner], self._disks)
        for ident, value in zip(columns.ident[owner[mine]].tolist(), details["value"][mine].tolist(), strict=True):
            self.reasons[ident] = self._definitions.text(narrowed("string", value))
