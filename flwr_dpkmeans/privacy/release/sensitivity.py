"""How far one unit more or less moves a query, and why no farther."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from functools import cached_property

from flwr_dpkmeans.errors import invalid, require_positive

_ROW = re.compile(r"([A-Z]\d+): (.*)", re.DOTALL)


class PrivacyUnit(enum.Enum):
    """Whose presence or absence the guarantee hides."""

    RECORD = "record"
    """One row."""
    PERSON = "person"
    """All rows of one person at one party, which together weigh no more than one row.
    """
    CLIENT = "client"
    """All rows of one client."""

    @property
    def bounded(self) -> PrivacyUnit:
        """The unit that sensitivities are stated for.

        What one row moves at most, all rows of a person move together [U1].
        """
        if self is PrivacyUnit.PERSON:
            return PrivacyUnit.RECORD
        return self

    @property
    def by_row(self) -> bool:
        """Whether sums are bounded row by row, not client by client."""
        return self.bounded is PrivacyUnit.RECORD

    @property
    def things(self) -> str:
        """What a sum is taken over, in words."""
        words = {
            PrivacyUnit.RECORD: "rows",
            PrivacyUnit.PERSON: "persons",
            PrivacyUnit.CLIENT: "clients",
        }
        return words[self]


class Norm(enum.Enum):
    """The norm in which a sensitivity is measured.

    L1 for Laplace noise, L2 for Gaussian noise.
    """

    L1 = "l1"
    L2 = "l2"


@dataclass(frozen=True)
class Sensitivity:
    """The largest change of a query by one unit more or less, and why it is no larger.

    One function makes both, bound and reason, so that no bound travels with another
    one's proof. A `LocalMisuseError` is raised if a value is of another type, or
    `bound` is not finite and greater than 0.

    Examples
    --------
    >>> reason = "S2: one row lies in at most one cluster"
    >>> counts = Sensitivity(Norm.L2, 1.0, PrivacyUnit.RECORD, reason, True)
    >>> counts.proof
    ('S2', 'one row lies in at most one cluster')
    """

    norm: Norm
    bound: float
    """The largest norm of the change, in the units of the query."""
    unit: PrivacyUnit
    because: str = ""
    """Why the bound holds, in half a sentence for the report, after the row of the
    proof table that shows it if there is one. No plan is drafted without it.
    """
    nonnegative: bool = False
    """Whether the query is a sum of numbers of at least 0."""

    def __post_init__(self) -> None:
        """Refuse values of other types, and bounds that are none."""
        if not isinstance(self.norm, Norm):
            raise invalid("norm", self.norm, "a Norm", "give Norm.L1 or Norm.L2")
        if not isinstance(self.unit, PrivacyUnit):
            raise invalid(
                "unit",
                self.unit,
                "a PrivacyUnit",
                "give PrivacyUnit.RECORD or PrivacyUnit.CLIENT",
            )
        require_positive("the bound of a sensitivity", self.bound)
        if not isinstance(self.because, str):
            raise invalid(
                "because", self.because, "half a sentence", "say why the bound holds"
            )

    @cached_property
    def proof(self) -> tuple[str, str]:
        """The row of the proof table that shows the bound, and the reason without it.

        The row is "" where `because` names none.
        """
        match = _ROW.fullmatch(self.because)
        if match is None:
            return "", self.because
        return match[1], match[2]
