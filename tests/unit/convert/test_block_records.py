"""How block requests may be written."""

from __future__ import annotations

import pytest

from lo2io.convert.convert import check_block_records
from lo2io.errors import UsageError
from lo2io.model.trace import BLOCK_RECORDS


def test_an_unknown_form_is_refused() -> None:
    """The error names the known ones."""
    for known in (None, *BLOCK_RECORDS):
        check_block_records(known)
    with pytest.raises(UsageError, match="odd") as caught:
        check_block_records("odd")
    assert all(known in caught.value.remedy for known in BLOCK_RECORDS)
