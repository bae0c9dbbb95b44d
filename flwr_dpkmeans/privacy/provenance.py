"""Where a result comes from: run, machine, plan and code."""

from __future__ import annotations

import hashlib
import json
import platform
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from flwr_dpkmeans.privacy.plain_records import (
    PlainRecord,
    plain_record,
    restore_record,
)

_PACKAGE = Path(__file__).resolve().parents[1]
_LIBRARIES = (
    "flwr",
    "numpy",
    "scipy",
    "scikit-learn",
    "opendp",
    "dp-accounting",
    "cryptography",
)


@dataclass(frozen=True)
class Provenance:
    """Which run made a result: where, by which plan and code, and among whom.

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
    """SHA-256 of this package's own files that decide results, the same on every party
    that ran the same code.
    """
    versions: tuple[str, ...] = ()
    """This package, Python, and the libraries that results depend on."""
    cohort: tuple[str, ...] = ()
    """Node ids of the first roster, each with the first digits of its identity or else
    of its key in this run.
    """

    @classmethod
    def of(
        cls,
        run_id: int,
        party: str,
        plan_digest: bytes,
        *,
        columns_digest: str = "",
        data_id: str = "",
        started: str = "",
        app_hash: str = "",
        cohort: tuple[str, ...] = (),
    ) -> Provenance:
        """Say what this process can at the end of a run; see `Provenance`."""
        return cls(
            run_id=str(run_id),
            party=party,
            plan_digest=plan_digest.hex(),
            sources_hash=sources_hash(),
            versions=versions(),
            finished=utc_now(),
            columns_digest=columns_digest,
            data_id=data_id,
            started=started,
            app_hash=app_hash,
            cohort=cohort,
        )

    @classmethod
    def from_dict(cls, values: PlainRecord) -> Provenance:
        """Undo `to_dict`; what this version does not know is left out."""
        restored = restore_record(values)
        names = {item.name for item in fields(cls)}
        return cls(**{name: restored[name] for name in names & restored.keys()})

    def to_dict(self) -> PlainRecord:
        """Return plain values with stable keys."""
        return plain_record(self)

    @property
    def digest(self) -> str:
        """SHA-256 over all of it, to be compared by eye or found in a log."""
        text = json.dumps(self.to_dict(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def __str__(self) -> str:
        # Empty where no plan was sent.
        plan = ""
        if self.plan_digest:
            plan = f"plan {self.plan_digest[:16]}, "
        return f"run {self.run_id}, {self.party}, {plan}provenance {self.digest[:16]}"


def utc_now() -> str:
    """Return this moment in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


_ROOMS_AROUND_A_RUN = frozenset({"baselines", "cli", "deploy", "planner"})
"""What ``fab-exclude`` in pyproject.toml leaves out of Flower's app."""


@lru_cache(maxsize=1)
def sources_hash(package: Path = _PACKAGE) -> str:
    """Hash names and contents of the files that decide results, with SHA-256.

    Modules, and values and words in TOML. Not the examples for people
    (``*.example.toml``) nor the rooms around a run, which Flower's app does not have.
    """
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*")):
        room = path.relative_to(package).parts[0]
        if path.suffix not in (".py", ".toml") or room in _ROOMS_AROUND_A_RUN:
            continue
        if path.name.endswith(".example.toml"):
            continue
        name = path.relative_to(package).as_posix()
        content = path.read_bytes()
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


@lru_cache(maxsize=1)
def versions() -> tuple[str, ...]:
    """List the versions of this package, Python, and the libraries that are there."""
    from flwr_dpkmeans import __version__

    lines = [f"flwr-dpkmeans {__version__}", f"python {platform.python_version()}"]
    for name in _LIBRARIES:
        try:
            lines.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return tuple(lines)
