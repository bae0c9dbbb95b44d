"""Versions that two sides of a run speak."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeGuard

from flwr_dpkmeans import __version__
from flwr_dpkmeans.errors import VersionError
from flwr_dpkmeans.secagg import keys
from flwr_dpkmeans.sums.plan import Plan

_HIGHEST = 10**6
# Another party's text is shown only in this form, which holds no words.
_RELEASE = re.compile(
    r"[0-9]{1,5}(\.[0-9]{1,5}){0,3}((a|b|rc|\.post|\.dev)[0-9]{1,5})?"
)


@dataclass(frozen=True)
class Versions:
    """What one side speaks."""

    protocol: int
    """Of masked aggregation: keys, masks, tags and signatures."""
    plan_format: int
    package: str = ""
    """Release of flwr-dpkmeans, for the sentence only: releases may differ.

    Empty if unknown.
    """

    def __str__(self) -> str:
        release = f" (flwr-dpkmeans {self.package})" if self.package else ""
        return f"protocol {self.protocol} and plan format {self.plan_format}{release}"


def installed_versions() -> Versions:
    """What this installation speaks."""
    return Versions(keys.PROTOCOL_VERSION, Plan.version, __version__)


def stated_versions(header: Mapping[str, object]) -> Versions | None:
    """The versions that a header states; None if it states none that can be read."""
    protocol = header.get("protocol")
    plan_format = header.get("plan_format")
    if not _is_version(protocol) or not _is_version(plan_format):
        return None
    package = header.get("package")
    if not isinstance(package, str) or not _RELEASE.fullmatch(package):
        package = ""
    return Versions(protocol, plan_format, package)


def _is_version(number: object) -> TypeGuard[int]:
    """Whether something that came from elsewhere is a version's number."""
    if not isinstance(number, int) or isinstance(number, bool):
        return False
    return 0 <= number <= _HIGHEST


def require_same_versions(
    stated: Versions | None,
    *,
    sender: str,
    receiver: str,
) -> None:
    """Refuse (`VersionError`) to go on with a side that speaks something else.

    Or says that it does.

    This is for a sentence that helps. What keeps versions apart is that they are in
    every key, signature and plan digest: a side that states a false one gains nothing,
    as masks of two versions add up to noise.
    """
    here = installed_versions()
    if stated is None:
        speaks = "states no version that can be read"
    else:
        is_same_protocol = stated.protocol == here.protocol
        if is_same_protocol and stated.plan_format == here.plan_format:
            return
        speaks = f"speaks {stated}"
    raise VersionError(
        f"{sender} {speaks}, but {receiver} speaks {here}: install the same version of"
        " flwr-dpkmeans on the server and on every node."
    )
