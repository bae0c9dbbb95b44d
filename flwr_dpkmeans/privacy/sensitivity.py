"""What the noise has to hide: whose contribution, in which norm, and how much of it."""

from __future__ import annotations

import enum
import math
import numbers
import re
from dataclasses import dataclass

from flwr_dpkmeans.errors import LocalMisuseError, PlanError

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


def require_real(name: str, value: object, mend: str) -> float:
    """Return `value` as a float, or say that it must be a finite number and how to mend it.

    Parameters
    ----------
    name : str
        What the value is, as the subject of the error sentence.
    value : object
        The value that was given.
    mend : str
        The last part of the error sentence, for example "give a positive number such as 1.0".

    Returns
    -------
    float
        The value.

    Raises
    ------
    LocalMisuseError
        If the value is not a number, or NaN, or infinite.

    Examples
    --------
    >>> require_real("epsilon", 2, "give a number such as 1.0")
    2.0
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not math.isfinite(value):
        raise LocalMisuseError(f"{name} is {value!r}, but it must be a finite number: {mend}.")
    return float(value)


def require_positive(name: str, value: object) -> float:
    """Return `value` as a float, or raise if it is not finite and greater than 0.

    Parameters
    ----------
    name : str
        What the value is, as the subject of the error sentence.
    value : object
        The value that was given.

    Returns
    -------
    float
        The value.

    Raises
    ------
    LocalMisuseError
        If the value is not a finite number greater than 0.

    Examples
    --------
    >>> require_positive("epsilon", 0.5)
    0.5
    """
    mend = "give a positive number such as 1.0"
    number = require_real(name, value, mend)
    if not number > 0.0:
        raise LocalMisuseError(f"{name} is {value!r}, but it must be greater than 0: {mend}.")
    return number


def require_delta(value: object) -> float:
    """Return `value` as a float, or raise if it is not strictly between 0 and 1.

    Parameters
    ----------
    value : object
        The delta that was given.

    Returns
    -------
    float
        The delta.

    Raises
    ------
    LocalMisuseError
        If the value is not a number strictly between 0 and 1.

    Examples
    --------
    >>> require_delta(1e-6)
    1e-06
    """
    mend = "give a small number such as 1e-6"
    number = require_real("delta", value, mend)
    if not 0.0 < number < 1.0:
        raise LocalMisuseError(f"delta is {value!r}, but it must be greater than 0 and less than 1: {mend}.")
    return number
