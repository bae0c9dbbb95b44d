"""Where a result comes from: one object that stands in report, metrics and centroids, and matches ledger and log."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_PACKAGE = Path(__file__).resolve().parents[1]
_LIBRARIES = ("flwr", "numpy", "scipy", "scikit-learn", "opendp", "dp-accounting", "cryptography")


@dataclass(frozen=True)
class Provenance:
    """Which run made a result, on whose machine, by which plan, with which code, and among whom.

    Nothing here depends on a row, a sum or a released value.
    """

    run_id: str
    """Flower's, as in ledger and log."""
    party: str
    """Who wrote this: ``server`` or ``client <node id>``."""
    plan_digest: str
    """SHA-256 of the plan that was agreed on, as in the ledger."""
    columns_digest: str = ""
    """Of the agreed column names; empty where tables have none."""
    data_id: str = ""
    """Name of the data set in the writer's ledger; empty on the server."""
    started: str = ""
    """UTC by the writer's clock, ISO 8601, as `finished`."""
    finished: str = ""
    app_hash: str = ""
    """SHA-256 of the FAB, which Flower tells the server only; else empty."""
    sources_hash: str = ""
    """SHA-256 of this package's own sources, the same on every party that ran the same code."""
    versions: tuple[str, ...] = ()
    """This package, Python, and the libraries that results depend on."""
    cohort: tuple[str, ...] = ()
    """Node ids of the first roster, each with the first digits of its identity or else of its key in this run."""

    @classmethod
    def of(cls, run_id: int, party: str, plan_digest: bytes, **known: Any) -> Provenance:
        """What this process can say at the end of a run; `known` are further fields."""
        known |= {"sources_hash": sources_hash(), "versions": versions(), "finished": utc_now()}
        return cls(str(run_id), party, plan_digest.hex(), **known)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Provenance:
        """Undo `to_dict`; what this version does not know is left out."""
        known = {field.name for field in fields(cls)}
        kept: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in values.items() if name in known
        }
        return cls(**kept)

    def to_dict(self) -> dict[str, Any]:
        """Plain values with stable keys."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @property
    def digest(self) -> str:
        """SHA-256 over all of it, to be compared by eye or found in a log."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()

    def __str__(self) -> str:
        """One line, as pictures and logs have it."""
        return f"run {self.run_id}, {self.party}, plan {self.plan_digest[:16]}, provenance {self.digest[:16]}"


def utc_now() -> str:
    """This moment in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@lru_cache(maxsize=1)
def sources_hash() -> str:
    """SHA-256 over names and contents of this package's modules."""
    found = hashlib.sha256()
    for path in sorted(_PACKAGE.rglob("*.py")):
        content = path.read_bytes()
        found.update(f"{path.relative_to(_PACKAGE).as_posix()}\0{len(content)}\0".encode() + content)
    return found.hexdigest()


@lru_cache(maxsize=1)
def versions() -> tuple[str, ...]:
    """This package's version, Python's, and those of the libraries that are there."""
    from flwr_dpkmeans import __version__

    found = [f"flwr-dpkmeans {__version__}", f"python {platform.python_version()}"]
    for name in _LIBRARIES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return tuple(found)
