"""What the noise has to hide: whose contribution, in which norm, and how much of it."""

from __future__ import annotations

import enum
import math
import numbers
from dataclasses import dataclass

from flwr_dpkmeans.errors import LocalMisuseError


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
    """The largest change of a query when one unit is added or removed.

    Parameters
    ----------
    norm : Norm
        The norm of the change.
    bound : float
        The largest norm of the change, in the units of the query; finite and greater than 0.
    unit : PrivacyUnit
        What is added or removed.

    Raises
    ------
    LocalMisuseError
        If `bound` is not finite and greater than 0, or `norm` or `unit` is not of its enumeration.

    Examples
    --------
    >>> Sensitivity(Norm.L2, 1.0, PrivacyUnit.RECORD).bound
    1.0
    """

    norm: Norm
    bound: float
    unit: PrivacyUnit

    def __post_init__(self) -> None:
        if not isinstance(self.norm, Norm):
            raise LocalMisuseError(f"norm is {self.norm!r}, but it must be a Norm: give Norm.L1 or Norm.L2.")
        if not isinstance(self.unit, PrivacyUnit):
            raise LocalMisuseError(
                f"unit is {self.unit!r}, but it must be a PrivacyUnit: give PrivacyUnit.RECORD or PrivacyUnit.CLIENT."
            )
        require_positive("the bound of a sensitivity", self.bound)


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
