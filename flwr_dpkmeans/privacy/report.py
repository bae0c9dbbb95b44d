"""The privacy report: what was protected, from whom, and at which cost."""

from __future__ import annotations

import hashlib
import json
import math
import platform
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from functools import lru_cache
from html import escape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

EVALUATION_ROUND, PROFILE_ROUND = "evaluation", "profile"
CLOSING_ROUNDS = (PROFILE_ROUND, EVALUATION_ROUND)
"""Names of the rounds that describe and measure the result instead of changing it, in
their order.
"""
COUNT_DEVIATIONS = 3.0
"""A count that is fewer noise scales above zero is called mostly noise."""
_IF_REPEATED = "with all retries, had clients fallen silent; ledgers are charged that"
_LARGER = 1.0 + 1e-9
_COSTS = ("epsilon", "epsilon_worst_case")
_INDICATORS, _GROUPS = "indicators", "group_counts"
_COUNTS = ("counts", _INDICATORS, "Lloyd counts")


@lru_cache(maxsize=1)
def _sentences() -> dict[str, str]:
    return tomllib.loads(
        Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
    )


def told(sentence: str, /, **values: object) -> str:
    """One of the sentences of ``report.toml`` beside this module, with its numbers and
    names.

    >>> told("public_rows", n=300)
    'The number of rows, 300, is public knowledge.'
    """
    return _sentences()[sentence].format(**values)


@dataclass(frozen=True)
class ReleaseLine:
    """One release as the report lists it.

    Sensitivity, scale and radius are in scaled units.
    """

    round_index: int
    attempt: int
    round_name: str
    array: str
    norm: str
    sensitivity: float
    """How far one unit can move the exact sum."""
    trust: str
    noise: str
    noise_scale: float
    """Standard deviation or Laplace scale that is priced.

    The multiplier is its ratio to the sensitivity.
    """
    noise_multiplier: float
    theorem: str
    """Why the sensitivity bound holds and what prices the noise."""
    epsilon_so_far: float
    """Cost of the run up to and including this aggregation."""
    radius: float | None
    surplus: float = 1.0
    """What all noise in the release is, over the priced one.

    Clients' shares that are not counted on are there, too.
    """

    @property
    def released_scale(self) -> float:
        """Standard deviation or Laplace scale of all noise in the release."""
        return self.noise_scale * self.surplus

    @property
    def standard_deviation(self) -> float:
        """Of all noise in one entry of the release."""
        return self.released_scale * (
            math.sqrt(2.0) if self.noise == "laplace" else 1.0
        )


def _plain(record: Any) -> dict[str, Any]:
    """What JSON can hold: lists, and None where a cost is infinite, as nothing else is."""
    return dict(
        json.loads(
            json.dumps(vars(record), default=vars),
            parse_constant={"Infinity": None}.__getitem__,
        )
    )


def _restored(values: Mapping[str, Any]) -> dict[str, Any]:
    known = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in values.items()
    }
    return known | {
        name: math.inf for name in _COSTS if name in known and known[name] is None
    }


@dataclass(frozen=True)
class PrivacyReport:
    """What a run guarantees.

    Examples
    --------
    >>> from flwr_dpkmeans import FederatedKMeans
    >>> rows = np.linspace(-1.0, 1.0, 200).reshape(100, 2)
    >>> report = FederatedKMeans(2, bounds=(-1.0, 1.0), random_state=0, engine="direct").fit([rows, rows]).privacy_
    >>> report.unit, report.is_private, round(report.epsilon, 3)
    ('record', True, 1.0)
    >>> PrivacyReport.from_dict(report.to_dict()) == report
    True
    """

    is_private: bool
    """False if any noise was missing or seeded; `warnings` says why."""
    epsilon: float
    """Cost of the whole plan at `delta`, or its worst case if an aggregation was
    repeated; ``inf`` without noise.
    """
    delta: float
    epsilon_requested: float
    epsilon_worst_case: float
    """The most that the run could have cost with all retries, which ledgers are
    charged.
    """
    unit: str
    neighbours: str
    trust: str
    guarantee: str
    """Who is held off under which assumption."""
    algorithm: str
    noise: str
    n_clients: int
    """Cohort at the start."""
    n_attempts: int
    """Aggregations including repeated ones."""
    n_examples: int | None
    """N that the plan used."""
    n_examples_source: str
    """``declared public``, ``private count`` or ``not needed``."""
    slack: float
    """Part of epsilon that pays for discrete instead of continuous noise.

    The sum of the bounds on the log-ratios of their probabilities, which hold up to a
    probability of exp(-100) for each release.
    """
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]
    releases: tuple[ReleaseLine, ...]
    version: int = 1
    provenance: Provenance | None = field(default=None, compare=False)
    """Where the report comes from; reports are equal whatever it says."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values with stable keys.

        An infinite epsilon becomes None, which JSON can hold.
        """
        return _plain(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> PrivacyReport:
        """Undo `to_dict`."""
        exact = {"epsilon_so_far": math.inf}
        lines = [
            ReleaseLine(**(one | exact if one["epsilon_so_far"] is None else one))
            for one in values["releases"]
        ]
        provenance = values.get("provenance")
        origin = None if provenance is None else Provenance.from_dict(provenance)
        return cls(
            **_restored(values) | {"releases": tuple(lines), "provenance": origin}
        )

    def to_json(self) -> str:
        """Indented JSON of `to_dict`."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.line})"

    def _repr_html_(self) -> str:
        return html_table([("run", self.line), *self._facts()])

    @property
    def is_exact(self) -> bool:
        """Whether what the result follows from was released without noise."""
        return {
            one.noise for one in self.releases if one.round_name not in CLOSING_ROUNDS
        } == {"none"}

    @property
    def line(self) -> str:
        """One line: whether it is private, what it cost, and what ran."""
        head = "PRIVATE" if self.is_private else "NOT PRIVATE"
        cost = (
            f"epsilon {_show(self.epsilon)} at delta {self.delta:.3g} per {self.unit};"
            f" {self.algorithm}"
        )
        return (
            f"{head}: {cost}, {self.cohort}, trust {self.trust!r},"
            f" {'no' if self.is_exact else self.noise} noise"
        )

    @property
    def may_cost_more(self) -> bool:
        """Whether somebody may fall silent, so that the run could have cost more, which
        ledgers are charged.
        """
        in_one_place = self.trust == "curator" or told("simulated") in self.assumptions
        return not in_one_place and self.epsilon_worst_case > self.epsilon * _LARGER

    @property
    def cohort(self) -> str:
        """Who took part."""
        return "one table" if self.n_clients == 1 else f"{self.n_clients} clients"

    def _facts(self) -> list[tuple[str, str]]:
        """Everything but assumptions and releases, with a word for each, and last where
        these are.
        """
        cost = f"epsilon {_show(self.epsilon)} at delta {self.delta:.3g}"
        asked = _show(self.epsilon_requested)
        if asked != _show(self.epsilon):
            cost += f" (asked for {asked})"
        cohort, known = (
            f"{self.cohort}, {self.n_attempts} aggregations",
            self.n_examples or "unknown",
        )
        return [
            ("cost", cost),
            *(
                [
                    (
                        "at most",
                        f"epsilon {_show(self.epsilon_worst_case)} {_IF_REPEATED}",
                    )
                ]
                if self.may_cost_more
                else []
            ),
            ("unit", f"one {self.unit}: {self.neighbours}"),
            ("guarantee", self.guarantee),
            ("cohort", f"{cohort}, N = {known} ({self.n_examples_source})"),
            *([] if self.provenance is None else [("from", str(self.provenance))]),
            *(("WARNING", warning) for warning in self.warnings),
            (
                "more",
                (
                    f"{len(self.assumptions)} assumptions, {len(self.releases)}"
                    " releases: print(report.details())"
                ),
            ),
        ]

    def __str__(self) -> str:
        return "\n".join(
            [self.line, *(f"  {word:<11} {text}" for word, text in self._facts())]
        )

    def details(self) -> str:
        """All of it as text: also what is assumed, and the noise of every release."""
        facts = [
            *self._facts()[:-1],
            *(("assumes", assumption) for assumption in self.assumptions),
        ]
        lines = [self.line, *(f"  {word:<11} {text}" for word, text in facts)]
        lines.append(
            f"  releases    round/attempt  {'array':<18}  sensitivity     noise        "
            "        epsilon so far"
        )
        for line in self.releases:
            noise = (
                f"{line.noise} {line.noise_scale:.4g}"
                if line.noise != "none"
                else "none"
            )
            lines.append(
                f"              {f'{line.round_index}/{line.attempt}':<13} "
                f" {line.array:<18}  {line.norm} {line.sensitivity:<11.4g}  {noise:<19}"
                f"  {_show(line.epsilon_so_far)}"
            )
        return "\n".join(lines)


def html_table(rows: Iterable[Sequence[str]]) -> str:
    """A small table for a notebook; the first cell of each row is its head."""
    lines = []
    for head, *cells in rows:
        others = "".join(
            f'<td style="text-align: left">{escape(cell)}</td>' for cell in cells
        )
        lines.append(
            '<tr><th scope="row" style="text-align:'
            f' left">{escape(head)}</th>{others}</tr>'
        )
    return f"<table>{''.join(lines)}</table>"


def faint_clusters(
    counts: Sequence[float] | NDArray[np.float64], report: PrivacyReport
) -> tuple[int, ...]:
    """Clusters that are mostly noise: those whose noisy count is less than three noise
    scales above zero.

    The `report`'s last release of counts, (n_clusters,), says how much noise they have;
    none of it, no cluster is.
    """
    line = _last_counts(report)
    if line is None:
        return ()
    least = COUNT_DEVIATIONS * line.released_scale
    return tuple(j for j, count in enumerate(counts) if count < least)


def counts_deviation(report: PrivacyReport) -> float | None:
    """Standard deviation of the noise on each of the last released counts.

    None if none were released.
    """
    line = _last_counts(report)
    return None if line is None else line.standard_deviation


def counted(report: PrivacyReport) -> str:
    """What the last released counts are of.

    Records or, at client level, what each client adds to them.
    """
    line = _last_counts(report)
    if report.unit != "client" or line is None:
        return f"{report.unit}s"
    sampled = told("sampled", rate=0, coin="").partition("0")[0]
    sample = " of a round's sample" * any(
        one.startswith(sampled) for one in report.assumptions
    )
    if line.array == _INDICATORS:
        return f"clients{sample} with rows there"
    most = line.sensitivity
    if counts_rows(line.array, most):
        return f"rows{sample}, of each client cut to a norm of {most:g}"
    return (
        f"clients{sample}, each by the shares of its rows"
        + f", cut to a norm of {most:.3g}" * (most < 1.0)
    )


def counts_rows(array: str, most: float) -> bool:
    """Whether a client's counts, at most so long, are of rows.

    Not ones where it has some, nor shares of length 1.
    """
    return array != _INDICATORS and most > 1.0


def _last_counts(report: PrivacyReport) -> ReleaseLine | None:
    """The last release of clusters' counts.

    Without any, of other groups', which a profile of clusters has, too.
    """
    clusters = [line for line in report.releases if line.array in _COUNTS]
    lines = clusters or [line for line in report.releases if line.array == _GROUPS]
    return lines[-1] if lines else None


def _show(epsilon: float) -> str:
    return "infinite" if math.isinf(epsilon) else f"{epsilon:.4g}"


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
    """Which run made a result, on whose machine, by which plan, with which code, and
    among whom.

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
        cls, run_id: int, party: str, plan_digest: bytes, **known: Any
    ) -> Provenance:
        """What this process can say at the end of a run; `known` are further fields."""
        known |= {
            "sources_hash": sources_hash(),
            "versions": versions(),
            "finished": utc_now(),
        }
        return cls(
            str(run_id),
            party,
            plan_digest.hex(),
            **known,
        )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Provenance:
        """Undo `to_dict`; what this version does not know is left out."""
        known = {field.name for field in fields(cls)}
        return cls(
            **{
                name: value
                for name, value in _restored(values).items()
                if name in known
            }
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values with stable keys."""
        return _plain(self)

    @property
    def digest(self) -> str:
        """SHA-256 over all of it, to be compared by eye or found in a log."""
        return hashlib.sha256(
            json.dumps(self.to_dict(), sort_keys=True).encode()
        ).hexdigest()

    def __str__(self) -> str:
        plan = (
            f"plan {self.plan_digest[:16]}, " if self.plan_digest else ""
        )  # no plan was sent
        return f"run {self.run_id}, {self.party}, {plan}provenance {self.digest[:16]}"


def utc_now() -> str:
    """This moment in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@lru_cache(maxsize=1)
def sources_hash() -> str:
    """SHA-256 over names and contents of the files that decide results.

    Modules, and values and words in TOML.

    Not the examples for people (``*.example.toml``), which Flower's app does not have.
    """
    found = hashlib.sha256()
    for path in sorted(
        path for path in _PACKAGE.rglob("*") if path.suffix in (".py", ".toml")
    ):
        if path.name.endswith(".example.toml"):
            continue
        content = path.read_bytes()
        found.update(
            f"{path.relative_to(_PACKAGE).as_posix()}\0{len(content)}\0".encode()
            + content
        )
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
