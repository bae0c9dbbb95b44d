"""What a client allows: its own limits, held against the server's public plan before
anything leaves.

A policy is read from the client's own disk, never from the server. It is permissive by
default, so that a simulation (including the non-private baseline) runs without one. A
deployed node begins with `DEPLOYED` and refuses every run until its policy states
`REQUIRED` limits, or says ``allow-anything = true``; ``policy.example.toml`` beside
this module is a strict one to begin with. The sentences of a refusal are sent to the
server, so they hold public plan values and policy values only: in particular never what
the client has spent before.

A limit is one field of `ClientPolicy`: its default, how it is read, and what it refuses
in which words.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    InstanceOf,
    StringConstraints,
    TypeAdapter,
    ValidationError,
)

from flwr_dpkmeans.errors import (
    BudgetError,
    ConfigurationError,
    RefusalError,
    invalid,
    nearest,
    told_apart,
)
from flwr_dpkmeans.node.ledger import Past
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.settings import Box

# Accounting ends in floating point: a plan calibrated to exactly its limit must not
# fail by a rounding error.
_RELATIVE_SLACK = 1e-9
_STEPS = 60
"""Equal steps of a total, in which what other runs have spent of it is counted.

So many runs of one price fit into a total as would without steps, for 2, 3, 4, 5, 6,
10, 12, 15, 20, 30 and 60 runs.
"""
# Names in a plan come from the server, so what a sentence repeats of them is bounded.
_LONGEST_QUOTE = 60
_KEY = "[0-9a-fA-F]{64}"  # a SHA-256 digest or an Ed25519 key, as people copy it


@dataclass(frozen=True)
class Asked:
    """What limits are held against: a plan, and what it costs on this client's data."""

    plan: Plan
    epsilon: float
    """What the whole run can cost, computed here and never copied from a message.

    Infinite if it is not private.
    """
    past: Past
    """What other runs on the data set have cost."""
    terms: str = ""
    """SHA-256 of the plan without what differs from run to run.

    Needed where the policy approves digests.
    """
    plans_today: int = 0
    """Other runs of which this client looked at a plan within 24 hours, and released
    nothing.
    """

    @property
    def runs_today(self) -> int:
        """Other runs that began to release within 24 hours."""
        earliest = datetime.now(UTC) - timedelta(days=1)
        return sum(
            datetime.fromisoformat(begun) >= earliest for begun in self.past.begun
        )


Read = Callable[[str, Any], Any]
"""``read(name, value)`` returns a valid limit, or raises."""
Refuse = Callable[[Any, Asked], str | bool]
"""``refuse(limit, asked)`` is the sentence of a refusal, or False."""


@dataclass(frozen=True)
class Limit:
    """How a limit is read, and what it refuses in which words."""

    read: Read
    refuse: Refuse
    is_required: bool = False
    error: type[RefusalError | BudgetError] = RefusalError
    of_past: bool = False
    """Whether it looks at what other runs have cost, so that it must be asked anew."""


# -- how limits are read ---------------------------------------------------------------


def _valid(kind: Any, bound: str, mend: str) -> Read:
    """Read a value of a type as pydantic knows it, without conversions but those that
    the type allows.
    """
    adapter: TypeAdapter[Any] = TypeAdapter(kind, config=ConfigDict(strict=True))

    def read(name: str, value: Any) -> Any:
        try:
            return adapter.validate_python(value)
        except ValidationError as error:
            raise invalid(name, value, bound, mend) from error

    return read


def _increasing(pair: tuple[float, float]) -> tuple[float, float]:
    if not pair[0] < pair[1]:  # as NaN is not
        raise ValueError("the pair is not increasing")
    return pair


def _whole(least: int, *, optional: bool = False) -> Read:
    kind: Any = Annotated[int, Field(ge=least)]
    return _valid(
        kind | None if optional else kind,
        f"a whole number of at least {least}",
        "give one such as 3",
    )


_List = Field(strict=False)  # TOML's lists, and tuples
_Digest = Annotated[str, StringConstraints(pattern=f"^{_KEY}$", to_lower=True)]
_Pair = Annotated[tuple[float, float], _List, AfterValidator(_increasing)]
_amount = _valid(
    Annotated[float, Field(ge=0)], "a number of at least 0", "give a limit such as 1.0"
)
_delta = _valid(
    Annotated[float, Field(ge=0, lt=1)],
    "a number of at least 0 and below 1",
    "give one such as 1e-6",
)
_Names = Annotated[tuple[InstanceOf[str], ...], _List]
_names = _valid(
    _Names,
    "a list of names",
    "put the names in brackets, or leave it empty to allow all",
)
_digests = _valid(
    Annotated[tuple[_Digest, ...], _List],
    "a list of digests of 64 hexadecimal digits",
    "copy each of them wholly",
)
_Pairs = Annotated[tuple[_Pair, ...], Field(strict=False, min_length=1)]
_bounds = _valid(
    _Pairs | None, "a list of increasing pairs", "give one such as [[0.0, 1.0]]"
)


def _peers(name: str, value: object) -> tuple[tuple[str, str], ...] | None:
    """The pinned peers: a table of names and keys, a list of keys, or pairs as this
    returns them; None pins nobody.
    """
    if value is None:
        return None
    entries = (
        value.items()
        if isinstance(value, Mapping)
        else value
        if isinstance(value, (list, tuple))
        else ()
    )
    if not entries:
        # An empty list is refused, too: it would look like pins, and whether it allows
        # all or none is anybody's guess.
        bound = "a table of names and keys or a list of keys, of at least one party"
        raise invalid(
            name, value, bound, "list the other parties' keys, or leave it out"
        )
    pairs = tuple(_peer(entry) for entry in entries)
    for what, items in (
        ("key", [key for _, key in pairs]),
        ("name", [name for name, _ in pairs if name]),
    ):
        twice = [item for item in items if items.count(item) > 1]
        if twice:
            raise ConfigurationError(
                f"pinned_peers has the {what} {_quote(twice[0])} twice, but each party"
                " has one of its own: remove one."
            )
    return pairs


def _peer(entry: object) -> tuple[str, str]:
    """One pinned peer: a key or a pair of name and key.

    The key is kept in small letters.
    """
    name, key = (
        entry if isinstance(entry, (list, tuple)) and len(entry) == 2 else ("", entry)
    )
    if (
        not isinstance(name, str)
        or not name.isprintable()
        or len(name) > _LONGEST_QUOTE
    ):
        raise ConfigurationError(
            f"pinned_peers has the name {_quote(name)}, but a name has at most"
            f" {_LONGEST_QUOTE} printable characters: shorten it."
        )
    if not (isinstance(key, str) and re.fullmatch(_KEY, key)):
        raise ConfigurationError(
            f"pinned_peers has the key {_quote(key)}, but a key has 64 hexadecimal"
            " digits: copy what 'python -m flwr_dpkmeans identity show PATH' prints on"
            " that party's machine."
        )
    return name, key.lower()


# -- kinds of limits: what they refuse, and in which words -----------------------------


def _quote(value: object) -> str:
    """Repeat a name from a plan, escaped and cut to a bounded length."""
    text = ascii(value)
    return text if len(text) <= _LONGEST_QUOTE else text[:_LONGEST_QUOTE] + "..."


def _limit(
    default: Any, read: Read, refuse: Refuse = lambda limit, asked: False, **kind: Any
) -> Any:
    """A field of the policy, see `Limit`.

    Without `refuse` it is held against something else than plans.
    """
    return field(default=default, metadata={"limit": Limit(read, refuse, **kind)})


def _in_steps(spent: float, total: float) -> float:
    """Round what other runs have spent of a total up to the next of `_STEPS` steps.

    Whether a plan fits tells what is left. Without steps a server would find that to
    any digit, plan after plan and at no cost, and with it what each run elsewhere has
    cost.
    """
    if not 0.0 < total < math.inf or not math.isfinite(spent):
        return spent
    step = total / _STEPS
    return step * math.ceil(spent / step * (1.0 - _RELATIVE_SLACK))


def _at_most(
    name: str,
    what: str,
    spent: Callable[[Past], float] | None = None,
    *,
    default: float = math.inf,
    read: Read = _amount,
    required: bool = False,
) -> Any:
    """A limit on a plan's epsilon or delta, besides what other runs have `spent`, which
    is not told.
    """
    if spent is None:
        mend = (
            "the plan's epsilon or its number of retries"
            if what == "epsilon"
            else "the plan's delta"
        )
        words = f"this client's {name} is {{}}: lower {mend}."
    else:
        words = (
            f"it does not fit into what is left of this client's {name} of {{}}: lower"
            f" the plan's {what} or leave "
        )
        words += "this client out."
    value = "worst-case epsilon" if what == "epsilon" else what

    def refuse(limit: float, asked: Asked) -> str | bool:
        own = asked.epsilon if what == "epsilon" else asked.plan.delta
        others = 0.0 if spent is None else _in_steps(spent(asked.past), limit)
        # NaN is within no limit.
        if own + others <= limit * (1.0 + _RELATIVE_SLACK):
            return False
        planned, most = told_apart(own, limit)
        told = words.format(most)
        if math.isinf(own):  # no number would do
            told = (
                f"{told.partition(': ')[0]}: plan with a finite {what}, or have that"
                " limit be inf."
            )
        return f"the plan's {value} is {planned}, but {told}"

    return _limit(
        default,
        read,
        refuse,
        is_required=required,
        error=BudgetError,
        of_past=spent is not None,
    )


def _one_of(
    kind: str, planned: Callable[[Plan], str], *, required: bool = False
) -> Any:
    """A list of names that a plan's must be among; an empty one allows all."""

    def refuse(allowed: Sequence[str], asked: Asked) -> str | bool:
        names, name = ", ".join(map(repr, allowed)), planned(asked.plan)
        return bool(allowed and name not in allowed) and (
            f"the plan's {kind} is {_quote(name)}, but this client allows only {names}:"
            " plan with one of them."
        )

    return _limit((), _names, refuse, is_required=required)


def _at_least(
    default: int,
    least: int,
    planned: Callable[[Plan], int],
    words: str,
    *,
    required: bool = False,
) -> Any:
    """A whole number of at least `least` that a plan's must not be below."""
    return _limit(
        default,
        _whole(least),
        lambda own, asked: (
            planned(asked.plan) < own and words.format(planned(asked.plan), own)
        ),
        is_required=required,
    )


def _switch(default: bool, is_refused: Callable[[Asked], bool], words: str) -> Any:
    """True or false: the one that is not the default refuses some plans."""

    def refuse(own: bool, asked: Asked) -> str | bool:
        names = {
            "noise": _quote(asked.plan.settings.noise.value),
            "algorithm": _quote(asked.plan.config.algorithm),
        }
        return own is not default and is_refused(asked) and words.format(**names)

    return _limit(default, _valid(bool, "a boolean", "give true or false"), refuse)


def has_bounds_by_name(plan: Plan) -> bool:
    """Whether a plan names the columns that its bounds belong to, so that only their
    owner knows their order.
    """
    return bool(plan.settings.feature_names) and len(plan.settings.bounds[0]) > 1


def _beyond(
    allowed: Sequence[tuple[float, float]] | None, box: Box, n_features: int | None
) -> str | bool:
    """Say where a box reaches beyond the allowed one, both in the order of the own
    table's columns.
    """
    if allowed is None:
        return False
    lower, upper = box
    one_pair = len(lower) == 1
    n_features = n_features or (len(allowed) if one_pair else len(lower))
    pairs = [*allowed] * n_features if len(allowed) == 1 else allowed
    if len(pairs) != n_features:
        return (
            f"the plan's box has {n_features} features, but this client's"
            f" allowed_bounds has {len(pairs)}: plan for the features that were"
            " agreed on."
        )
    repeats = n_features if one_pair else 1
    boxes = zip([*lower] * repeats, [*upper] * repeats, pairs, strict=True)
    for feature, (low, high, (lowest, highest)) in enumerate(boxes):
        if not (lowest <= low and high <= highest):
            return (
                f"the plan's bounds of feature {feature} are [{low:g}, {high:g}], but"
                f" this client allows only [{lowest:g}, {highest:g}]: plan with bounds"
                " inside these."
            )
    return False


@dataclass(frozen=True)
class ClientPolicy:
    """The limits of one client; the defaults allow an ordinary simulation.

    The keys of a policy file are these names, with hyphens; ``policy.example.toml``
    says what each is about. A limit of the wrong type or out of its range is a
    ConfigurationError.

    Examples
    --------
    >>> ClientPolicy(max_epsilon_per_run=1.0, allowed_trust=["distributed"]).allowed_trust
    ('distributed',)
    """

    plans_per_day: int | None = _limit(
        None,
        _whole(1, optional=True),
        lambda most, asked: (
            asked.plans_today >= most
            and f"this client's plans_per_day is {most}, and it looked at as many others within 24 hours whose runs released nothing: start the run later, or leave this client out."
        ),
        of_past=True,
    )
    """Most plans within 24 hours that are held against what is left, without a release
    that pays for the answer.

    The answers tell what runs elsewhere have cost; it comes before those limits, so
    that its refusals tell nothing.
    """
    max_epsilon_per_run: float = _at_most(
        "max_epsilon_per_run", "epsilon", required=True
    )
    max_epsilon_total: float = _at_most(
        "max_epsilon_total", "epsilon", lambda past: past.epsilon, required=True
    )
    """Largest sum of worst-case epsilons over all runs on one data set in one unit of
    privacy (basic composition).

    Each unit has this total of its own: allow one of them, or one row pays for both.
    """
    max_delta: float = _at_most(
        "max_delta", "delta", default=1e-2, read=_delta, required=True
    )
    """Largest delta of one run, in [0, 1)."""
    max_delta_total: float = _at_most(
        "max_delta_total", "delta", lambda past: past.delta
    )
    allowed_trust: tuple[str, ...] = _one_of(
        "trust model", lambda plan: plan.settings.trust, required=True
    )
    """Trust models that a plan may use; empty, as for all such lists, allows all."""
    allowed_algorithms: tuple[str, ...] = _one_of(
        "algorithm", lambda plan: plan.config.algorithm
    )
    allowed_units: tuple[str, ...] = _one_of(
        "privacy unit", lambda plan: plan.settings.unit.value, required=True
    )
    min_cohort: int = _at_least(
        2,
        1,
        lambda plan: plan.settings.min_clients,
        "the plan goes on with {} clients, but this client's min_cohort is {}: raise"
        " the plan's min_clients.",
        required=True,
    )
    """Smallest `min_clients` of a plan, at least 1."""
    require_secure_noise: bool = _switch(
        False,
        lambda asked: asked.plan.settings.noise.value == "seeded",
        "the plan's noise is {noise}, but this client requires 'secure': drop the noise"
        " seed.",
    )
    allow_non_private: bool = _switch(
        True,
        lambda asked: math.isinf(asked.epsilon),
        "the plan's algorithm {algorithm} has an epsilon of inf, but this client allows"
        " private runs only: plan with a finite epsilon.",
    )
    """Allow plans whose epsilon is infinite.

    A finite epsilon limit refuses them all the same.
    """
    allow_server_data: bool = _switch(
        True,
        lambda asked: asked.plan.server is not None,
        "the plan starts from the server's own points, but this client's"
        " allow_server_data is false: plan without them, such as with 'proxy_lloyd'.",
    )
    allowed_bounds: tuple[tuple[float, float], ...] | None = _limit(
        None,
        _bounds,
        lambda allowed, asked: (
            not has_bounds_by_name(asked.plan)  # those are for `check_box`
            and _beyond(allowed, asked.plan.settings.bounds, asked.plan.n_features)
        ),
    )
    """For each column of the own table, in its order, the lowest and highest value that
    the plan's box may reach; a single pair holds for every column. None allows every
    box.
    """
    allowed_evaluation: tuple[str, ...] = _one_of(
        "evaluation", lambda plan: plan.settings.evaluation.value
    )
    """Evaluations that a plan may have; ``["none"]`` forbids them."""
    allowed_dropout: tuple[str, ...] = _one_of(
        "dropout", lambda plan: plan.dropout.value
    )
    """What may happen when clients fall silent.

    ``["retry"]`` forbids sums that are recovered from key shares.
    """
    pinned_peers: tuple[tuple[str, str], ...] | None = _limit(None, _peers)
    """Names and long-term identities (Ed25519, 64 hexadecimal digits) of all parties
    that may take part; the own one may be among them. A table of names and keys is
    taken as well, or a list of keys alone. None takes every party that the server
    announces.
    """
    min_max_silent: int = _at_least(
        0,
        0,
        lambda plan: plan.max_silent,
        "the plan's max_silent is {}, but this client's min_max_silent is {}: raise the"
        " plan's max_silent.",
    )
    runs_per_day: int | None = _limit(
        None,
        _whole(1, optional=True),
        lambda most, asked: (
            asked.runs_today >= most
            and f"this client's runs_per_day is {most}, and as many others have begun within 24 hours: start the run later, or leave this client out."
        ),
        of_past=True,
    )
    allowed_columns: tuple[str, ...] = _limit((), _names)
    """Names that the columns of the node's own table must be among, with a schema also
    those that are only profiled (``ward=A`` of a category); empty accepts all.
    `check_columns` holds it against the table, before the node answers.
    """
    approved_plan_digests: tuple[str, ...] = _limit(
        (),
        _digests,
        lambda approved, asked: (
            bool(approved)
            and asked.terms not in approved
            and f"the plan's terms have the digest {asked.terms!r}, which is not one of this client's approved_plan_digests: plan as agreed, or have its owner add it."
        ),
    )
    """Digests (SHA-256, 64 hexadecimal digits) of whole plans without run id and seeds
    that alone are accepted; empty accepts all. A refusal says the digest of what was
    asked for.
    """
    allow_anything: bool = _switch(False, lambda asked: False, "")
    """Lift the rule that a deployed node's policy must state certain limits.

    Those that it states still hold.
    """
    unstated: tuple[str, ...] = ()
    """No key of a file: required limits that the policy has not stated.

    It refuses every plan while there are any.
    """

    def __post_init__(self) -> None:
        for name, limit in LIMITS.items():
            object.__setattr__(self, name, limit.read(name, getattr(self, name)))

    @classmethod
    def from_mapping(
        cls, mapping: Mapping[str, Any], *, base: ClientPolicy | None = None
    ) -> ClientPolicy:
        """Build a policy from keys spelt with hyphens or underscores.

        a missing key is as in `base`, else permissive.

        A key that is unknown or given twice, and a limit that is not valid, are a
        ConfigurationError.
        """
        valid = list(LIMITS)
        limits: dict[str, Any] = {}
        for key, value in mapping.items():
            name = str(key).replace("-", "_")
            if name not in valid:
                raise ConfigurationError(
                    f"the policy key {key!r} is not known: {nearest(name, valid)}"
                )
            if name in limits:
                raise ConfigurationError(
                    f"the policy key {name!r} is given twice, but once is enough:"
                    " remove one."
                )
            limits[name] = value
        policy = replace(base or cls(), **limits)
        stated = {
            name for name in limits if getattr(policy, name) not in (math.inf, ())
        }  # an empty list allows all
        return replace(
            policy,
            unstated=tuple(name for name in policy.unstated if name not in stated),
        )

    @classmethod
    def from_toml(
        cls, path: str | Path, *, base: ClientPolicy | None = None
    ) -> ClientPolicy:
        """Read a policy from a TOML file on the client's own disk, with the limits as
        its keys; see `from_mapping`.
        """
        return cls.from_mapping(read_toml(path, f"the policy file {path}"), base=base)

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

    def check_columns(self, names: Sequence[str]) -> None:
        """Refuse a run on a table (`names` of its columns; empty: no table) with
        columns that the owner did not list.

        The refusal tells numbers only: names are the node's own.
        """
        n_unlisted = len(set(names) - set(self.allowed_columns)) if names else 1
        if self.allowed_columns and n_unlisted:
            raise RefusalError(
                f"this client's policy allows {len(self.allowed_columns)} columns, and"
                f" its table of {len(names)} names has {n_unlisted} besides them or"
                " none: have its owner name the right columns."
            )

    def check(self, asked: Asked) -> None:
        """Refuse a plan that this client does not allow; return quietly otherwise.

        For a run that is being resumed, what is asked leaves out its own charge. An
        epsilon or delta beyond the limits is a BudgetError, an incomplete policy and
        any other value a RefusalError.
        """
        refusal = _refusal(self, asked.plan, asked.epsilon, asked.terms)
        if refusal is not None:
            raise refusal[0](refusal[1])
        for name, limit in LIMITS.items():
            own = getattr(self, name)
            sentence = (
                limit.of_past
                and own not in (None, math.inf)
                and limit.refuse(own, asked)
            )
            if sentence:
                raise limit.error(str(sentence))

    def check_box(
        self, lower: Sequence[float], upper: Sequence[float], n_features: int
    ) -> None:
        """Refuse a box, in the order of the own table's columns, that reaches beyond
        what this client allows.
        """
        sentence = _beyond(
            self.allowed_bounds, (tuple(lower), tuple(upper)), n_features
        )
        if sentence:
            raise RefusalError(str(sentence))


LIMITS = {
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


def read_toml(path: str | Path, name: str) -> dict[str, Any]:
    """Read a TOML file on this machine.

    One that cannot be read is a ConfigurationError that calls it `name`.
    """
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise ConfigurationError(
            f"{name} cannot be read ({error.strerror or error}): correct its path."
        ) from error
    except ValueError as error:  # not TOML, or not UTF-8
        raise ConfigurationError(
            f"{name} is not valid TOML ({error}): correct it."
        ) from error


@lru_cache(maxsize=16)
def _refusal(
    policy: ClientPolicy, plan: Plan, epsilon: float, terms: str
) -> tuple[type[RefusalError | BudgetError], str] | None:
    """What a policy says against a plan, whatever other runs have cost.

    Asked once for all messages of a run.
    """
    policy.require_complete()
    settings, asked = plan.settings, Asked(plan, epsilon, Past(), terms)
    if settings.min_clients > plan.n_clients:
        return (
            RefusalError,
            (
                f"the plan's min_clients is {settings.min_clients}, but it must lie"
                f" between 1 and its n_clients of {plan.n_clients}: correct the plan."
            ),
        )
    for error in (RefusalError, BudgetError):  # those on the budget come last
        for name, limit in LIMITS.items():
            sentence = (
                limit.error is error
                and not limit.of_past
                and limit.refuse(getattr(policy, name), asked)
            )
            if sentence:
                return limit.error, str(sentence)
    return None
