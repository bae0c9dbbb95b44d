"""Proxy variables of the environment, which Flower's connections follow."""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from dataclasses import dataclass
from urllib.parse import urlsplit

NO_PROXY = "none"
"""For a node: whatever the environment says, the SuperLink is asked directly."""
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_SCHEMES = ("https", "http", "all")
_EXCEPTIONS = ("no_proxy", "NO_PROXY")


@dataclass(frozen=True)
class Proxy:
    """What stands between this machine and an address."""

    variable: str
    """Of the environment, by which it is named."""
    host: str
    """With its port, and without the password that the variable may hold."""

    def __str__(self) -> str:
        return f"the proxy {self.host} of {self.variable}"


def leave_loopback_out(environment: MutableMapping[str, str]) -> None:
    """Except this machine from its proxies, besides what is excepted already.

    A proxy elsewhere would look for the programs of this machine on its own.
    """
    stated = [environment.get(variable, "") for variable in _EXCEPTIONS]
    names = [name.strip() for name in ",".join(stated).split(",")]
    excepted = dict.fromkeys([*filter(None, names), *_LOOPBACK])
    value = "*" if "*" in names else ",".join(excepted)
    # Programs read the one or the other, and the first where there are both.
    for variable in _EXCEPTIONS:
        environment[variable] = value


def choose_proxy(url: str, environment: MutableMapping[str, str]) -> None:
    """Put a node's own proxy in place of the environment's; "" leaves these alone."""
    if url == "":
        return
    for scheme in _SCHEMES:
        variable = f"{scheme}_proxy"
        environment.pop(variable, None)
        environment.pop(variable.upper(), None)
    if url != NO_PROXY:
        environment["https_proxy"] = url
        environment["http_proxy"] = url


def proxy_before(address: str, *, insecure: bool = False) -> Proxy | None:
    """Find the proxy that this process asks an address HOST:PORT through.

    None: it is asked directly.
    """
    # Late, as no command's help waits for it.
    from urllib.request import getproxies_environment, proxy_bypass

    proxies = getproxies_environment()
    if proxy_bypass(address):
        return None
    for scheme in ("http" if insecure else "https", "all"):
        if scheme not in proxies:
            continue
        lower = f"{scheme}_proxy"
        variable = lower if lower in os.environ else lower.upper()
        return Proxy(variable, _without_password(proxies[scheme]))
    return None


def _without_password(url: str) -> str:
    whole = url if "://" in url else f"//{url}"
    _, _, host = urlsplit(whole).netloc.rpartition("@")
    return host or "without an address"
