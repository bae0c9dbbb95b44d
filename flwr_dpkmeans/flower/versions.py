"""Which versions each side speaks: stated with the plan and with its answer, and checked before anything else is.

This is for a sentence that helps. What keeps versions apart is that they are in every key, signature and plan digest:
a side that states a false one gains nothing, as masks of two versions add up to noise.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flwr_dpkmeans import __version__
from flwr_dpkmeans.errors import VersionError
from flwr_dpkmeans.secagg import keys
from flwr_dpkmeans.sums import plan

_PROTOCOL, _PLAN, _PACKAGE = "protocol", "plan_format", "package"
_HIGHEST = 10**6
# Another party's text is shown only in this form, which holds no words.
_RELEASE = re.compile(r"[0-9]{1,5}(\.[0-9]{1,5}){0,3}((a|b|rc|\.post|\.dev)[0-9]{1,5})?")


@dataclass(frozen=True)
class Versions:
    """What one side speaks.

    Parameters
    ----------
    protocol : int
        Of masked aggregation: keys, masks, tags and signatures.
    plan_format : int
        Of plans.
    package : str
        Release of flwr-dpkmeans, for the sentence only: releases may differ. Empty if unknown.

    Examples
    --------
    >>> str(Versions(1, 5, "0.1.0"))
    'protocol 1 and plan format 5 (flwr-dpkmeans 0.1.0)'
    """

    protocol: int
    plan_format: int
    package: str = ""

    def __str__(self) -> str:
        """Both numbers, and the release that has them."""
        release = f" (flwr-dpkmeans {self.package})" if self.package else ""
        return f"protocol {self.protocol} and plan format {self.plan_format}{release}"

    def speaks_with(self, other: Versions) -> bool:
        """Whether the two sides understand each other."""
        return (self.protocol, self.plan_format) == (other.protocol, other.plan_format)


def own_versions() -> Versions:
    """What this installation speaks."""
    return Versions(keys.PROTOCOL_VERSION, plan.PLAN_VERSION, __version__)


def version_fields() -> dict[str, int | str]:
    """The header entries that state the own versions."""
    own = own_versions()
    return {_PROTOCOL: own.protocol, _PLAN: own.plan_format, _PACKAGE: own.package}


def stated_versions(header: Mapping[str, Any]) -> Versions | None:
    """The versions that a header states; None if it does not, or not in a readable way.

    Examples
    --------
    >>> stated_versions({"protocol": 2, "plan_format": 7, "package": "0.3.0"})
    Versions(protocol=2, plan_format=7, package='0.3.0')
    >>> stated_versions({"protocol": "2"}) is None
    True
    """
    protocol, plan_format, package = (header.get(name) for name in (_PROTOCOL, _PLAN, _PACKAGE))
    if not (_is_number(protocol) and _is_number(plan_format)):
        return None
    known = isinstance(package, str) and _RELEASE.fullmatch(package) is not None
    return Versions(protocol, plan_format, package if known else "")  # type: ignore[arg-type]


def require_same_versions(header: Mapping[str, Any], *, sender: str, receiver: str) -> None:
    """Refuse to go on with a side that speaks, or says that it speaks, something else.

    Parameters
    ----------
    header : mapping
        Of the plan's message, or of its answer.
    sender, receiver : str
        Who wrote it and who reads it, such as ``"node 3"`` and ``"the server"``.

    Raises
    ------
    VersionError
        With both sides' versions.
    """
    own, stated = own_versions(), stated_versions(header)
    if stated is not None and stated.speaks_with(own):
        return
    told = f"speaks {stated}" if stated is not None else "states no version that can be read"
    raise VersionError(
        f"{sender} {told}, but {receiver} speaks {own}: install the same version of flwr-dpkmeans on the server and on "
        "every node."
    )


def _is_number(value: object) -> bool:
    """Whether a version is an integer of a plausible size."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _HIGHEST
