"""A data set of Arrow that reads as few rows ahead as it can."""

from __future__ import annotations

from typing import Any

import pyarrow.dataset as ds


class FewAhead(ds.FileSystemDataset):  # type: ignore[misc]  # Arrow has no types
    """Files of which one batch, and one file, is read ahead. Arrow's own choice is 16 batches and 4 files."""

    def scanner(self, **choices: Any) -> ds.Scanner:
        """What DuckDB calls to read the rows."""
        return super().scanner(**choices, batch_readahead=1, fragment_readahead=1)
