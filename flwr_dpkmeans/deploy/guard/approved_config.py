"""Reads the configuration of approved apps, and of others not a byte."""

from __future__ import annotations

import hashlib
import io
import sys
import zipfile
from typing import TYPE_CHECKING

from .approved_fab import read_config
from .flower_seams import private

if TYPE_CHECKING:
    from flwr.app import UserConfig

    from flwr_dpkmeans.flower._private import ReadConfig, Run


def guarded_config(read: ReadConfig, allowed: frozenset[str] | None) -> ReadConfig:
    """Return what reads the configuration of a run whose app is approved.

    And of others not a byte.

    Parameters
    ----------
    read : callable
        Flower's own function.
    allowed : frozenset of str, optional
        SHA-256 of the approved apps; None, as in throw-away deployments, approves all.

    Notes
    -----
    The run of an app that is not approved goes on without a configuration: the process
    of its message has the guard, which refuses the app, alerts the owner and answers.
    Where an approved one cannot be read, such as for a key of the run that it does not
    have, the message is left alone: what is raised here would end the node.
    """

    def config_of(content: bytes, run: Run) -> UserConfig:
        digest = hashlib.sha256(content).hexdigest()
        if allowed is not None and digest not in allowed:
            return {}
        try:
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                # Some kilobytes may inflate to what fills the memory.
                read_config(archive)
            return read(content, run)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"[:200]
            print(
                f"the configuration of the app with SHA-256 {digest} cannot be read"
                f" ({reason!a}): its run is ignored",
                file=sys.stderr,
                flush=True,
            )
            raise private.run_is_over() from error

    return config_of
