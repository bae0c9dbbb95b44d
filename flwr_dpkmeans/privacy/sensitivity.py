"""What the noise has to hide: whose contribution, in which norm, and how much of it."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

from flwr_dpkmeans.errors import LocalMisuseError, PlanError, require_positive

_ROW = re.compile(r"([A-Z]\d+): (.*)", re.DOTALL)


class PrivacyUnit(enum.Enum):
    """Whose presence or absence the guarantee hides.

    Examples
    --------
    >>> PrivacyUnit("client") is PrivacyUnit.CLIENT
    True
    """

    RECORD = "record"
    CLIENT = "client"


class Norm(enum.Enum):
    """The norm in which a sensitivity is measured: L1 for Laplace noise, L2 for Gaussian noise.

    Examples
    --------
    >>> Norm("l2") is Norm.L2
    True
    """

    L1 = "l1"
    L2 = "l2"


@dataclass(frozen=True)
class Sensitivity:
    """The largest change of a query when one unit is added or removed, and why it is no larger.

    One function makes both, bound and reason, so that no bound travels with another one's proof.

    Parameters
    ----------
    norm : Norm
        The norm of the change.
    bound : float
        The largest norm of the change, in the units of the query; finite and greater than 0.
    unit : PrivacyUnit
        What is added or removed.
    because : str
        Why the bound holds, in half a sentence for the report, after the row of the proof table that shows it if there
        is one: "S2: one row lies in at most one cluster". No plan is drafted without it.
    nonnegative : bool
        Whether the query is a sum of numbers of at least 0.

    Raises
    ------
    LocalMisuseError
        If `bound` is not finite and greater than 0, `norm` or `unit` is not of its enumeration, or `because` no string.

    Examples
    --------
    >>> counts = Sensitivity(Norm.L2, 1.0, PrivacyUnit.RECORD, "S2: one row lies in at most one cluster", True)
    >>> counts.proof
    ('S2', 'one row lies in at most one cluster')
    """

    norm: Norm
    bound: float
    unit: PrivacyUnit
    because: str = ""
    nonnegative: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.norm, Norm):
            raise LocalMisuseError(f"norm is {self.norm!r}, but it must be a Norm: give Norm.L1 or Norm.L2.")
        if not isinstance(self.unit, PrivacyUnit):
            raise LocalMisuseError(
                f"unit is {self.unit!r}, but it must be a PrivacyUnit: give PrivacyUnit.RECORD or PrivacyUnit.CLIENT."
            )
        require_positive("the bound of a sensitivity", self.bound)
        if not isinstance(self.because, str):
            raise LocalMisuseError(
                f"because is {self.because!r}, but it must be half a sentence: say why the bound holds."
            )

    @property
    def proof(self) -> tuple[str, str]:
        """The row of the proof table that `because` names ("" if none), and the reason without it."""
        named = _ROW.fullmatch(self.because)
        return (named[1], named[2]) if named else ("", self.because)

    def require_reason(self, name: str) -> None:
        """Refuse a sensitivity that cannot say why it holds, while nothing has been sent: the report must say it.

        Parameters
        ----------
        name : str
            Of the array.

        Raises
        ------
        PlanError
            If `because` is empty.
        """
        if not self.proof[1].strip():
            raise PlanError(
                f"the sensitivity of {name!r} is {self.bound:g}, but nothing says why it is no larger: give "
                "Sensitivity(because=...), half a sentence for the report."
            )
