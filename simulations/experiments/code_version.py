"""Which sources made a result, so that a later command does not take it for one of
today's.
"""

from __future__ import annotations

import hashlib
import logging
import sys
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.sums.task import TASKS
from flwr_dpkmeans.sums.trust import TRUST_MODELS

_OWN = ("flwr_dpkmeans", "simulations")


def code_version(row: Mapping[str, Any] = MappingProxyType({})) -> str:
    """Hash of the sources that a row's run uses.

    This project's, and of packages that brought its method.

    Parameters
    ----------
    row : mapping
        With ``algorithm.name`` and ``trust.name``; without them this project's sources
        count alone.

    Returns
    -------
    str
        Kept with each row.
    """
    task = TASKS.get(row.get("algorithm.name", ""))
    trust = TRUST_MODELS.get(str(row.get("trust.name") or getattr(task, "trust", "")))
    # What a method is derived from decides of it too.
    used = {
        kind.__module__.split(".")[0]
        for kind in (*getattr(task, "__mro__", ()), *type(trust).__mro__)
    }
    return _version_of((*_OWN, *sorted(used - {*_OWN, *sys.stdlib_module_names})))


def require_this_code(
    n_others: int, results: str, files: str, *, take_others: bool
) -> None:
    """Refuse results of which some were made by other sources than today's.

    Or warn of them, if they are to be taken.

    Parameters
    ----------
    n_others : int
        How many.
    results, files : str
        What they are among, and what is to be deleted, for the sentence.
    take_others : bool

    Raises
    ------
    ConfigurationError
        If there are some and they are not to be taken.
    """
    if not n_others:
        return
    sentence = f"{n_others} of {results} were made by other sources than today's"
    if not take_others:
        raise ConfigurationError(
            f"{sentence}: delete {files}, choose another output=..., or take them with"
            " other_code=true (of simulations.rivals: --other-code)."
        )
    logging.getLogger("simulations").warning("%s, and are taken as they are.", sentence)


@lru_cache
def _version_of(packages: tuple[str, ...]) -> str:
    """Hash of the sources of imported packages, or of modules that are none."""
    digest = hashlib.sha256()
    for module in map(sys.modules.get, packages):
        whole = [
            path
            for root in getattr(module, "__path__", ())
            for path in sorted(Path(root).rglob("*.py"))
        ]
        file = getattr(module, "__file__", None)
        for path in whole or ([Path(file)] if file else []):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
