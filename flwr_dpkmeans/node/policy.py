"""What a client allows.

Its own limits, held against the server's public plan before anything leaves.

A policy is read from the client's own disk, never from the server. It is permissive by
default, so that a simulation (including the non-private baseline) runs without one. A
deployed node begins with `DEPLOYED` and refuses every run until its policy states
`REQUIRED` limits, or says ``allow-anything = true``; ``policy.example.toml`` beside
this module is a strict one to begin with. The sentences of a refusal are sent to the
server; `node.limits` says what they hold.

A limit is one field of `ClientPolicy`: its default, how it is read, and what it refuses
in which words.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from flwr_dpkmeans.errors import BudgetError, ConfigurationError, RefusalError, nearest
from flwr_dpkmeans.node.ledger import Past
from flwr_dpkmeans.node.limit_values import (
    quote,
    read_amount,
    read_bounds,
    read_delta,
    read_digests,
    read_names,
    read_peers,
)
from flwr_dpkmeans.node.limits import (
    DELTA,
    EPSILON,
    Limit,
    at_least,
    at_most,
    at_most_a_day,
    beyond_bounds,
    beyond_total,
    has_bounds_by_name,
    limit_field,
    one_of,
    switch,
)
from flwr_dpkmeans.node.proposal import Proposal
from flwr_dpkmeans.privacy.gaussian_cost import Total
from flwr_dpkmeans.privacy.noise import NoiseKind

_SECURE_NOISE = (NoiseKind.SECURE, NoiseKind.OPENDP)


def _refuse_bounds(
    allowed: Sequence[tuple[float, float]] | None, proposal: Proposal
) -> str | None:
    plan = proposal.plan
    if has_bounds_by_name(plan):
        # `ClientPolicy.check_box` holds them against the own table's order.
        return None
    return beyond_bounds(allowed, plan.settings.bounds, plan.n_features)


def _refuse_trust(allowed: Sequence[str], proposal: Proposal) -> str | None:
    plan = proposal.plan
    names = ", ".join(map(repr, allowed))
    if not allowed:
        return None
    if plan.settings.trust not in allowed:
        return (
            f"the plan's trust model is {quote(plan.settings.trust)}, but this client"
            f" allows only {names}: plan with one of them."
        )
    for planned in plan.all_rounds:
        # What comes before the first round may have another model than the run.
        if planned.trust not in allowed:
            return (
                f"the plan's round {quote(planned.name)} has the trust model"
                f" {quote(planned.trust)}, but this client allows only {names}: declare"
                " what that round is to find, or have this client's owner allow it."
            )
    return None


def _refuse_terms(approved: Sequence[str], proposal: Proposal) -> str | None:
    if not approved or proposal.terms in approved:
        return None
    return (
        f"the plan's terms have the digest {proposal.terms!r}, which is not one of this"
        " client's approved_plan_digests: plan as agreed, or have its owner add it."
    )


@dataclass(frozen=True)
class ClientPolicy:
    """The limits of one client; the defaults allow an ordinary simulation.

    The keys of a policy file are these names, with hyphens; ``policy.example.toml``
    says what each is about. A limit of the wrong type or out of its range is a
    ConfigurationError.

    Examples
    --------
    >>> policy = ClientPolicy(max_epsilon_per_run=1.0, allowed_trust=["distributed"])
    >>> policy.allowed_trust
    ('distributed',)
    """

    plans_per_day: int | None = at_most_a_day(
        lambda proposal: proposal.plans_today,
        "this client's plans_per_day is {}, and it looked at as many others within 24"
        " hours whose runs released nothing: start the run later, or leave this client"
        " out.",
    )
    """Most plans within 24 hours that are held against what is left, without a release
    that pays for the answer.

    The answers tell what runs elsewhere have cost; it comes before those limits, so
    that its refusals tell nothing.
    """
    max_epsilon_per_run: float = at_most("max_epsilon_per_run", EPSILON, required=True)
    max_epsilon_total: float = limit_field(math.inf, read_amount, is_required=True)
    """Total epsilon of all runs on one data set in one unit of privacy, at
    `max_delta_total`: the ledger adds up squared GDP parameters of their worst cases.

    Each unit has this total of its own: allow one of them, or one row pays for both.
    """
    max_delta: float = at_most(
        "max_delta",
        DELTA,
        default=1e-2,
        read=read_delta,
        required=True,
    )
    """Largest delta of one run, in [0, 1)."""
    max_delta_total: float = limit_field(math.inf, read_amount)
    """Total delta of all of them; left out, it is `max_delta`."""
    own_delta_share: float = limit_field(0.01, read_delta)
    """Part of it for what is not Gaussian: all of delta of runs that sample clients, or
    count rows before Laplace noise, and of entries of an older version. With 0 no
    second run fits, as no noise is exactly Gaussian.
    """
    allowed_trust: tuple[str, ...] = limit_field(
        (), read_names, _refuse_trust, is_required=True
    )
    """Trust models that a plan's rounds may have; empty, as for all such lists, allows
    all.

    Rounds that come before the first one are "distributed" in an "oblivious" or
    "central" run, too.
    """
    allowed_algorithms: tuple[str, ...] = one_of(
        "algorithm", lambda plan: plan.config.algorithm
    )
    allowed_units: tuple[str, ...] = one_of(
        "privacy unit", lambda plan: plan.settings.unit.value, required=True
    )
    min_cohort: int = at_least(
        2,
        1,
        lambda plan: plan.settings.min_clients,
        "the plan goes on with {} clients, but this client's min_cohort is {}: raise"
        " the plan's min_clients.",
        required=True,
    )
    """Smallest `min_clients` of a plan, at least 1."""
    require_secure_noise: bool = switch(
        False,
        lambda proposal: proposal.plan.settings.noise not in _SECURE_NOISE,
        "the plan's noise is {noise}, but this client requires 'secure': drop the noise"
        " seed.",
    )
    allow_non_private: bool = switch(
        True,
        lambda proposal: math.isinf(proposal.epsilon),
        "the plan's algorithm {algorithm} has an epsilon of inf, but this client allows"
        " private runs only: plan with a finite epsilon.",
    )
    """Allow plans whose epsilon is infinite.

    A finite epsilon limit refuses them all the same.
    """
    allow_server_data: bool = switch(
        True,
        lambda proposal: proposal.plan.server is not None,
        "the plan starts from the server's own points, but this client's"
        " allow_server_data is false: plan without them, such as with 'proxy_lloyd'.",
    )
    allowed_bounds: tuple[tuple[float, float], ...] | None = limit_field(
        None, read_bounds, _refuse_bounds
    )
    """For each column of the own table, in its order, the lowest and highest value that
    the plan's box may reach; a single pair holds for every column. None allows every
    box.
    """
    allowed_evaluation: tuple[str, ...] = one_of(
        "evaluation", lambda plan: plan.settings.evaluation.value
    )
    """Evaluations that a plan may have; ``["none"]`` forbids them."""
    allowed_dropout: tuple[str, ...] = one_of(
        "dropout", lambda plan: plan.dropout.value
    )
    """What may happen when clients fall silent.

    ``["retry"]`` forbids sums that are recovered from key shares.
    """
    pinned_peers: tuple[tuple[str, str], ...] | None = limit_field(None, read_peers)
    """Names and long-term identities (Ed25519, 64 hexadecimal digits) of all parties
    that may take part; the own one may be among them. A table of names and keys is
    taken as well, or a list of keys alone. None takes every party that the server
    announces.
    """
    min_max_silent: int = at_least(
        0,
        0,
        lambda plan: plan.max_silent,
        "the plan's max_silent is {}, but this client's min_max_silent is {}: raise the"
        " plan's max_silent.",
    )
    runs_per_day: int | None = at_most_a_day(
        lambda proposal: proposal.runs_today,
        "this client's runs_per_day is {}, and as many others have begun within 24"
        " hours: start the run later, or leave this client out.",
    )
    allowed_columns: tuple[str, ...] = limit_field((), read_names)
    """Names that the columns of the node's own table must be among, with a schema also
    those that are only profiled (``ward=A`` of a category); empty accepts all.
    `check_columns` holds it against the table, before the node answers.
    """
    approved_plan_digests: tuple[str, ...] = limit_field(
        (), read_digests, _refuse_terms
    )
    """Digests (SHA-256, 64 hexadecimal digits) of whole plans without run id and seeds
    that alone are accepted; empty accepts all. A refusal says the digest of what was
    asked for.
    """
    allow_anything: bool = switch(False, lambda proposal: False, "")
    """Lift the rule that a deployed node's policy must state certain limits.

    Those that it states still hold.
    """
    unstated: tuple[str, ...] = ()
    """Required limits that the policy's file has not stated.

    A file has no such key. The policy refuses every plan while there are any.
    """

    def __post_init__(self) -> None:
        for name, limit in LIMITS.items():
            object.__setattr__(self, name, limit.read(name, getattr(self, name)))

    @classmethod
    def from_mapping(
        cls,
        mapping: Mapping[str, object],
        *,
        base: ClientPolicy | None = None,
    ) -> ClientPolicy:
        """Build a policy from keys spelt with hyphens or underscores.

        Parameters
        ----------
        mapping : mapping of str to object
            Limits by their names.
        base : ClientPolicy, optional
            The policy that a missing key is taken from; a permissive one by default.

        Raises
        ------
        ConfigurationError
            For a key that is unknown or there twice, and a limit that is not valid.
        """
        limits: dict[str, Any] = {}
        for key, value in mapping.items():
            name = str(key).replace("-", "_")
            if name not in LIMITS:
                raise ConfigurationError(
                    f"the policy key {key!r} is not known:"
                    f" {nearest(name, list(LIMITS))}"
                )
            if name in limits:
                raise ConfigurationError(
                    f"the policy key {name!r} is given twice, but once is enough:"
                    " remove one."
                )
            limits[name] = value
        policy = replace(cls() if base is None else base, **limits)
        stated = {name for name in limits if policy._limits_anything(name)}
        unstated = [name for name in policy.unstated if name not in stated]
        return replace(policy, unstated=tuple(unstated))

    def _limits_anything(self, name: str) -> bool:
        # An empty list allows all.
        return getattr(self, name) not in (math.inf, ())

    @classmethod
    def from_toml(
        cls,
        path: str | Path,
        *,
        base: ClientPolicy | None = None,
    ) -> ClientPolicy:
        """Read a policy from a TOML file on the client's own disk.

        Its keys are the limits; see `from_mapping`.
        """
        return cls.from_mapping(read_toml(path, f"the policy file {path}"), base=base)

    @property
    def total(self) -> Total:
        """What all runs of one unit may cost together."""
        epsilon = self.max_epsilon_total
        delta = self.max_delta_total
        if math.isinf(delta) and not math.isinf(epsilon):
            delta = self.max_delta
        return Total(epsilon, delta, self.own_delta_share)

    def require_complete(self) -> None:
        """Refuse everything while a deployed node's policy is incomplete.

        Names of keys are public.
        """
        if self.unstated and not self.allow_anything:
            keys = ", ".join(name.replace("_", "-") for name in self.unstated)
            raise RefusalError(
                f"this client's policy does not limit {keys}, and without that a"
                " deployed client takes part in no run: have its owner state these"
                " keys, or allow-anything = true."
            )

    def check(self, proposal: Proposal) -> None:
        """Refuse a plan that this client does not allow; return quietly otherwise.

        For a run that is being resumed, the proposal leaves out its own charge.

        Raises
        ------
        BudgetError
            For an epsilon or delta beyond the limits.
        RefusalError
            For an incomplete policy, and any other value.
        """
        alone = replace(proposal, past=Past(), plans_today=0)
        refusal = _refusal_of_plan(self, alone)
        if refusal is not None:
            error, reason = refusal
            raise error(reason)
        for name, limit in LIMITS.items():
            value = getattr(self, name)
            if not limit.of_past or value in (None, math.inf):
                continue
            sentence = limit.refuse(value, proposal)
            if sentence is not None:
                raise limit.error(sentence)
        sentence = beyond_total(proposal, self.total)
        if sentence is not None:
            raise BudgetError(sentence)

    def check_columns(self, names: Sequence[str]) -> None:
        """Refuse a run on a table with columns that the owner did not list.

        The refusal has numbers only: names are the node's own.

        Parameters
        ----------
        names : sequence of str
            Names of the table's columns; empty where there is no table.
        """
        if not self.allowed_columns:
            return
        unlisted = set(names) - set(self.allowed_columns)
        if unlisted or not names:
            raise RefusalError(
                f"this client's policy allows {len(self.allowed_columns)} columns, and"
                f" its table of {len(names)} names has {max(1, len(unlisted))} besides"
                " them or none: have its owner name the right columns."
            )

    def check_box(
        self,
        lower: Sequence[float],
        upper: Sequence[float],
        n_features: int,
    ) -> None:
        """Refuse a box that reaches beyond what this client allows.

        Its bounds are in the order of the own table's columns.
        """
        box = (tuple(lower), tuple(upper))
        sentence = beyond_bounds(self.allowed_bounds, box, n_features)
        if sentence is not None:
            raise RefusalError(sentence)


LIMITS: dict[str, Limit] = {
    item.name: item.metadata["limit"]
    for item in fields(ClientPolicy)
    if "limit" in item.metadata
}
"""Every key of a policy."""
REQUIRED = tuple(name for name, limit in LIMITS.items() if limit.is_required)
"""Limits that a deployed node must state.

Without one of them a server could ask for anything finite.
"""
DEPLOYED = ClientPolicy(
    plans_per_day=20,
    allow_non_private=False,
    require_secure_noise=True,
    unstated=REQUIRED,
)
"""What a deployed node's policy file is read on top of.

It gives nothing to runs that its owner did not speak of.
"""
IN_SIMULATION = ClientPolicy(max_delta=0.5)
"""All parties of a simulation are the caller's own, so only a plan's own limits apply.
"""


def read_toml(path: str | Path, name: str) -> dict[str, object]:
    """Read a TOML file on this machine.

    One that cannot be read is a ConfigurationError that calls it `name`.
    """
    try:
        # Editors of Windows put a byte order mark before a text, which TOML has not.
        text = Path(path).read_bytes().decode("utf-8-sig")
        return tomllib.loads(text)
    except OSError as error:
        raise ConfigurationError(
            f"{name} cannot be read ({error.strerror or error}): correct its path."
        ) from error
    except ValueError as error:
        # Not TOML, or not UTF-8.
        raise ConfigurationError(
            f"{name} is not valid TOML ({error}): correct it."
        ) from error


@lru_cache(maxsize=16)
def _refusal_of_plan(
    policy: ClientPolicy,
    proposal: Proposal,
) -> tuple[type[RefusalError | BudgetError], str] | None:
    """Say what a policy has against a plan, whatever other runs have cost.

    Cached for all messages of a run.
    """
    policy.require_complete()
    plan = proposal.plan
    min_clients = plan.settings.min_clients
    if min_clients > plan.n_clients:
        return RefusalError, (
            f"the plan's min_clients is {min_clients}, but it must lie"
            f" between 1 and its n_clients of {plan.n_clients}: correct the plan."
        )
    # Limits on the budget come last.
    for error in (RefusalError, BudgetError):
        for name, limit in LIMITS.items():
            if limit.error is not error or limit.of_past:
                continue
            sentence = limit.refuse(getattr(policy, name), proposal)
            if sentence is not None:
                return error, sentence
    return None
