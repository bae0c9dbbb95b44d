"""Looks at versions, folders, ports and processors before anything needs them."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from packaging.requirements import Requirement

from flwr_dpkmeans import __version__
from flwr_dpkmeans.cli.node import PAGE_PORT
from flwr_dpkmeans.deploy import SERVER_PORTS
from flwr_dpkmeans.deploy.finding import Finding, NoteError, Verdict
from flwr_dpkmeans.deploy.findings import (
    HOST,
    finding_of,
    require_free,
    require_room,
    require_writable,
)
from flwr_dpkmeans.errors import ConfigurationError, listed
from flwr_dpkmeans.flower._private import TRIED, is_tried
from flwr_dpkmeans.kernels.implementation import Implementation, kernels
from flwr_dpkmeans.resources import usable_processors

PACKAGE = "flwr-dpkmeans"
OLDEST_PYTHON, FIRST_UNTRIED_PYTHON = (3, 11), (3, 15)
_LOCAL_SUPERLINK = "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT", "39091"
"""Flower's variable, and the port where it is not set."""
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def print_findings(installed: Callable[[str], str] = version) -> int:
    """Print a line for each item; 1 if one is wrong.

    ``installed(name)`` is the version of a package that is here.
    """
    is_wrong = False
    for finding in findings(installed):
        print(finding, flush=True)
        is_wrong = is_wrong or finding.verdict is Verdict.WRONG
    return int(is_wrong)


def findings(installed: Callable[[str], str] = version) -> Iterator[Finding]:
    """Look at one item after the other."""
    looks: dict[str, Callable[[], str]] = {
        "package": _package,
        "python": _python,
        "flower": lambda: _flower(installed),
        "ray": lambda: _ray(installed),
        "libraries": lambda: _libraries(installed),
        "kernels": _kernels,
        "results": _results,
        "home": _flower_home,
        "temporary": _temporary,
        "here": _here,
        "server": require_server_port,
        "page": _page_port,
        "superlink": _local_superlink,
        "processors": _processors,
    }
    for item, look in looks.items():
        yield finding_of(item, look)


def _package() -> str:
    folder = Path(__file__).resolve().parents[1]
    return f"{PACKAGE} {__version__} in {folder}"


def _python() -> str:
    text = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        raise ConfigurationError(
            f"Python {text} is too old: install {oldest} or a later one."
        )
    if sys.version_info >= FIRST_UNTRIED_PYTHON:
        raise NoteError(f"Python {text} was not tried with this package")
    return f"Python {text}, {sys.executable}"


def _flower(installed: Callable[[str], str]) -> str:
    flower = _version_of("flwr", installed)
    if not is_tried(flower):
        raise NoteError(f"Flower {flower} was not tried: {' and '.join(TRIED)} were")
    return f"Flower {flower}, tried"


def _ray(installed: Callable[[str], str]) -> str:
    try:
        return f"Ray {installed('ray')}, for simulations"
    except PackageNotFoundError as error:
        raise NoteError(
            "Ray is not here, which simulations with `flwr run` need:"
            " pip install 'flwr[simulation]'"
        ) from error


def _libraries(installed: Callable[[str], str]) -> str:
    """Whether what the package asks for is here, in a version that it takes."""
    try:
        lines = requires(PACKAGE) or []
    except PackageNotFoundError as error:
        raise NoteError(
            f"{PACKAGE} is not installed here, so nothing says which versions it takes"
        ) from error
    requirements = [Requirement(line) for line in lines]
    # Ray has a line of its own: a deployed node runs without it.
    needed = [
        requirement
        for requirement in requirements
        if requirement.name != "ray"
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    ]
    for requirement in needed:
        present = _version_of(requirement.name, installed)
        if not requirement.specifier.contains(present, prereleases=True):
            raise ConfigurationError(
                f"{requirement.name} {present} is here, but the package takes"
                f" {requirement.specifier}: pip install"
                f" '{requirement.name}{requirement.specifier}'."
            )
    return f"{len(needed)} packages in versions that this one takes"


def _kernels() -> str:
    there = kernels()
    if there.implementation is Implementation.NUMPY:
        raise NoteError(there.because)
    return there.because


def _version_of(name: str, installed: Callable[[str], str]) -> str:
    try:
        return installed(name)
    except PackageNotFoundError as error:
        raise ConfigurationError(
            f"{name} is not installed: pip install {name}."
        ) from error


def _results() -> str:
    folder = Path.home() / PACKAGE
    require_room(folder)
    return require_writable(folder)


def _flower_home() -> str:
    folder = os.environ.get("FLWR_HOME", Path.home() / ".flwr")
    return require_writable(Path(folder))


def _temporary() -> str:
    return require_writable(Path(tempfile.gettempdir()))


def _here() -> str:
    try:
        return require_writable(Path.cwd())
    except ConfigurationError as error:
        raise NoteError(
            f"commands that write here cannot: {str(error).rstrip('.')}"
        ) from error


def require_server_port(ports: range = SERVER_PORTS) -> str:
    """Find a port for `server init`; ConfigurationError if all of them are taken."""
    for port in ports:
        try:
            require_free(HOST, port)
        except ConfigurationError:
            continue
        return f"port {port} is free for `server init`"
    raise ConfigurationError(
        f"no port from {ports[0]} to {ports[-1]} is free: give `server init` one by"
        " --port."
    )


def _page_port() -> str:
    return _free_or_note(PAGE_PORT, "a live page", "give it another one by --port")


def _local_superlink() -> str:
    variable, usual = _LOCAL_SUPERLINK
    text = os.environ.get(variable, usual)
    if not text.isdecimal():
        raise ConfigurationError(f"{variable} is {text!r}: give a port's number.")
    return _free_or_note(
        int(text),
        "simulations",
        f"Flower's SuperLink runs there already, or set {variable} to another one",
    )


def _free_or_note(
    port: int,
    what: str,
    mend: str,
) -> str:
    try:
        require_free(HOST, port)
    except ConfigurationError as error:
        raise NoteError(f"port {port}, for {what}, is taken: {mend}") from error
    return f"port {port} is free for {what}"


def _processors() -> str:
    limits = [f"{name}={os.environ[name]}" for name in _THREADS if name in os.environ]
    text = f"{usable_processors()} processors"
    return f"{text}, threads limited by {listed(limits)}" if limits else text
