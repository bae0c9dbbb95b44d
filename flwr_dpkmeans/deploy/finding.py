"""What was seen of one item, and how it is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from flwr_dpkmeans.log import printable


class Verdict(StrEnum):
    """How an item is."""

    OK = "ok"
    NOTE = "note"
    WRONG = "wrong"


@dataclass(frozen=True)
class Finding:
    """What was seen of one item, as one sentence."""

    item: str
    verdict: Verdict
    says: str

    def __str__(self) -> str:
        return f"{self.verdict:<6}{self.item + ':':<12}{printable(self.says)}"


class NoteError(Exception):
    """Not wrong, but the operator should know."""
