"""The privacy report: what was protected, from whom, and at which cost."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.privacy.plain_records import (
    PlainRecord,
    plain_record,
    restore_record,
)
from flwr_dpkmeans.privacy.provenance import Provenance
from flwr_dpkmeans.privacy.sentences import report_sentence

EVALUATION_ROUND = "evaluation"
PROFILE_ROUND = "profile"
CLOSING_ROUNDS = (PROFILE_ROUND, EVALUATION_ROUND)
"""Names of the rounds that describe and measure the result instead of changing it, in
their order.
"""
_IF_REPEATED = "with all retries, had clients fallen silent; ledgers are charged that"
_LARGER = 1.0 + 1e-9
_MORE = "print(report.details())"


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
        if self.noise == "laplace":
            return self.released_scale * math.sqrt(2.0)
        return self.released_scale


@dataclass(frozen=True)
class PrivacyReport:
    """What a run guarantees.

    Examples
    --------
    >>> import numpy as np
    >>> from flwr_dpkmeans import FederatedKMeans
    >>> rows = np.linspace(-1.0, 1.0, 200).reshape(100, 2)
    >>> model = FederatedKMeans(2, bounds=(-1, 1), random_state=0, engine="direct")
    >>> report = model.fit([rows, rows]).privacy_
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
    max_weight: float | None = None
    """Public maximum of the weights that rows have; None where they have none.

    Counts of releases and models are in rows of that weight.
    """
    provenance: Provenance | None = field(default=None, compare=False)
    """Where the report comes from; reports are equal whatever it says."""

    def to_dict(self) -> PlainRecord:
        """Return plain values with stable keys.

        An infinite epsilon becomes None, which JSON can hold.
        """
        plain = plain_record(self)
        if self.max_weight is None:
            # As reports were before rows could have weights.
            del plain["max_weight"]
        return plain

    @property
    def weight_unit(self) -> float:
        """What a row of full weight counts in a result, in the units of weights."""
        return 1.0 if self.max_weight is None else self.max_weight

    @classmethod
    def from_dict(cls, values: PlainRecord) -> PrivacyReport:
        """Undo `to_dict`; a report of a later version is a `ConfigurationError`."""
        if not isinstance(values, dict):
            raise TypeError(
                f"a report is a {type(values).__name__}, but it must be an object with"
                " names: give what to_dict made."
            )
        version = values.get("version", cls.version)
        if version > cls.version:
            raise ConfigurationError(
                f"the report is of version {version}, but {cls.version} is the last"
                " that is read here: upgrade flwr-dpkmeans."
            )
        lines = []
        for line in values["releases"]:
            if line["epsilon_so_far"] is None:
                line = {**line, "epsilon_so_far": math.inf}
            lines.append(ReleaseLine(**line))
        restored = restore_record(values)
        restored["releases"] = tuple(lines)
        if values.get("provenance") is not None:
            restored["provenance"] = Provenance.from_dict(values["provenance"])
        return cls(**restored)

    def to_json(self) -> str:
        """Return indented JSON of `to_dict`."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.line})"

    def _repr_html_(self) -> str:
        rows = [("run", self.line), *self._facts()]
        return html_table(rows)

    @property
    def is_exact(self) -> bool:
        """Whether what the result follows from was released without noise."""
        noises = set()
        for line in self.releases:
            if line.round_name not in CLOSING_ROUNDS:
                noises.add(line.noise)
        return noises == {"none"}

    @property
    def line(self) -> str:
        """One line: whether it is private, what it cost, and what ran."""
        head = "PRIVATE" if self.is_private else "NOT PRIVATE"
        noise = "no" if self.is_exact else self.noise
        return (
            f"{head}: {self._cost} per {self.unit}; {self.algorithm}, {self.cohort},"
            f" trust {self.trust!r}, {noise} noise"
        )

    @property
    def _cost(self) -> str:
        return f"epsilon {_show(self.epsilon)} at delta {self.delta:.3g}"

    @property
    def may_cost_more(self) -> bool:
        """Whether somebody may fall silent, so that the run could have cost more.

        Ledgers are charged that.
        """
        is_simulated = report_sentence("simulated") in self.assumptions
        if is_simulated or self.trust == "curator":
            return False
        return self.epsilon_worst_case > self.epsilon * _LARGER

    @property
    def cohort(self) -> str:
        """Who took part."""
        if self.n_clients == 1:
            return "one table"
        return f"{self.n_clients} clients"

    def _facts(self) -> list[tuple[str, str]]:
        """List everything but assumptions and releases, and last where these are."""
        facts = [*self._facts_of_result()]
        if self.provenance is not None:
            facts.append(("from", str(self.provenance)))
        for warning in self.warnings:
            facts.append(("WARNING", warning))
        n_assumptions = len(self.assumptions)
        n_releases = len(self.releases)
        more = f"{n_assumptions} assumptions, {n_releases} releases: {_MORE}"
        facts.append(("more", more))
        return facts

    def _facts_of_result(self) -> list[tuple[str, str]]:
        """List what it cost, whom it protects, and who took part."""
        cost = self._cost
        requested = _show(self.epsilon_requested)
        if requested != _show(self.epsilon):
            cost += f" (asked for {requested})"
        facts = [("cost", cost)]
        if self.may_cost_more:
            worst = _show(self.epsilon_worst_case)
            facts.append(("at most", f"epsilon {worst} {_IF_REPEATED}"))
        facts.append(("unit", f"one {self.unit}: {self.neighbours}"))
        facts.append(("guarantee", self.guarantee))
        n_examples = f"{self.n_examples}" if self.n_examples else "unknown"
        if self.max_weight is not None:
            n_examples += f" in rows of weight {self.max_weight:g}"
        cohort = f"{self.cohort}, {self.n_attempts} aggregations, N = {n_examples}"
        facts.append(("cohort", f"{cohort} ({self.n_examples_source})"))
        return facts

    def __str__(self) -> str:
        return "\n".join([self.line, *_indented(self._facts())])

    def details(self) -> str:
        """Return all of it as text: also what is assumed, and every release's noise."""
        facts = self._facts()[:-1]
        facts += [("assumes", assumption) for assumption in self.assumptions]
        lines = [self.line, *_indented(facts), _TABLE_HEAD]
        for line in self.releases:
            attempt = f"{line.round_index}/{line.attempt}"
            noise = "none"
            if line.noise != "none":
                noise = f"{line.noise} {line.noise_scale:.4g}"
            lines.append(
                f"              {attempt:<13} "
                f" {line.array:<18}  {line.norm} {line.sensitivity:<11.4g}  {noise:<19}"
                f"  {_show(line.epsilon_so_far)}"
            )
        return "\n".join(lines)


_TABLE_HEAD = (
    f"  releases    round/attempt  {'array':<18}  sensitivity     noise        "
    "        epsilon so far"
)


def _indented(facts: Iterable[tuple[str, str]]) -> list[str]:
    return [f"  {word:<11} {text}" for word, text in facts]


def html_table(rows: Iterable[Sequence[str]]) -> str:
    """Make a small table for a notebook; the first cell of each row is its head."""
    lines = []
    for head, *cells in rows:
        line = f'<th scope="row" style="text-align: left">{escape(head)}</th>'
        for cell in cells:
            line += f'<td style="text-align: left">{escape(cell)}</td>'
        lines.append(f"<tr>{line}</tr>")
    return f"<table>{''.join(lines)}</table>"


def _show(epsilon: float) -> str:
    if math.isinf(epsilon):
        return "infinite"
    return f"{epsilon:.4g}"
