"""What was passed over in a file, counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum


class PassedOver(StrEnum):
    """Why a record is no row."""

    UNCLOSED = "have a quote that does not close"
    TOO_LONG = "are longer than a record may be"
    TOO_FEW = "have fewer cells than there are columns"
    TOO_MANY = "have more cells than there are columns"
    ONE_MORE = "have one cell more than there are columns"


@dataclass
class Tally:
    """How many records a file has, and what became of them: for its owner only."""

    n_records: int = 0
    passed_over: Counter[PassedOver] = field(default_factory=Counter)
    n_trailing: int = 0
    """Records that end with a separator, behind which nothing stands."""
    n_row_names: int = 0
    """Records that begin with a name for which the header has no cell."""
    has_bad_bytes: bool = False
    """Whether bytes were found that are no text in the file's encoding."""

    @property
    def n_passed_over(self) -> int:
        """Number of records that are no rows."""
        return self.passed_over.total()
