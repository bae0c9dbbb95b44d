"""What a client allows: its own limits, held against the server's public plan before anything leaves.

A policy is read from the client's own disk, never from the server. It is permissive by default, so that a
simulation (including the non-private baseline) runs without one. A deployed node begins with `DEPLOYED` and refuses
every run until its policy states `REQUIRED` limits, or says ``allow-anything = true``; ``policy.example.toml`` beside
this module is a strict one to begin with.
The sentences of a refusal are sent to the server, so they hold public plan values and policy values only:
in particular never what the client has spent before.

A limit is one field of `ClientPolicy`: its default, how it is read, and what it refuses in which words. A new one is
such a field and its line of the example, which a test compares.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

from flwr_dpkmeans.errors import BudgetError, ConfigurationError, RefusalError, nearest, told_apart
from flwr_dpkmeans.node.ledger import Past
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.settings import Box

# Accounting ends in floating point: a plan calibrated to exactly its limit must not fail by a rounding error.
_RELATIVE_SLACK = 1e-9
# Names in a plan come from the server, so what a sentence repeats of them is bounded.
_LONGEST_QUOTE = 60
_NOISE_SOURCES = ("secure", "seeded")
_KEY_DIGITS = 64


@dataclass(frozen=True)
class Asked:
    """What limits are held against: a plan, and what it costs on this client's data."""

    plan: Plan
    epsilon: float
    """What the whole run can cost, computed here and never copied from a message; infinite if it is not private."""
    past: Past
    """What other runs on the data set have cost."""
    terms: str = ""
    """SHA-256 of the plan without what differs from run to run; needed where the policy approves digests."""

    @property
    def runs_today(self) -> int:
        """Other runs that began to release within 24 hours."""
        earliest = datetime.now(UTC) - timedelta(days=1)
        return sum(datetime.fromisoformat(begun) >= earliest for begun in self.past.begun)


@dataclass(frozen=True)
class Limit:
    """How a limit is read (``read(name, value)`` returns it or raises) and what it refuses (`_limit`)."""

    read: Callable[[str, Any], Any]
    refuse: Callable[[Any, Asked], str | bool]
    is_required: bool
    error: type[RefusalError | BudgetError]
    of_past: bool
    """Whether it looks at what other runs have cost, so that it must be asked anew."""


def _limit(
    default: Any,
    read: Callable[[str, Any], Any],
    refuse: Callable[[Any, Asked], str | bool] = lambda limit, asked: False,
    *,
    required: bool = False,
    error: type[RefusalError | BudgetError] = RefusalError,
    of_past: bool = False,
) -> Any:
    """A field of the policy: ``refuse(limit, asked)`` is the sentence of a refusal, or False; see `Limit`."""
    return field(default=default, metadata={"limit": Limit(read, refuse, required, error, of_past)})


# -- how limits are read ------------------------------------------------------------------------------------------


def _is_number(value: object) -> bool:
    """Whether a value is a real number (infinity is one, a boolean and NaN are not)."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and not math.isnan(value)


def _invalid(name: str, value: object, bound: str, mend: str) -> ConfigurationError:
    """Say that a limit is not valid."""
    return ConfigurationError(f"{name} is {value!r}, but it must be {bound}: {mend}.")


def _valid(is_valid: Callable[[Any], bool], bound: str, mend: str) -> Callable[[str, Any], Any]:
    """Read a value as it is, if it is valid."""

    def read(name: str, value: Any) -> Any:
        if not is_valid(value):
            raise _invalid(name, value, bound, mend)
        return value

    return read


_amount = _valid(lambda value: _is_number(value) and value >= 0, "a number of at least 0", "give a limit such as 1.0")
_probability = _valid(
    lambda value: _is_number(value) and 0 <= value < 1, "a number of at least 0 and below 1", "give one such as 1e-6"
)
_switch = _valid(lambda value: isinstance(value, bool), "a boolean", "give true or false")


def _whole(least: int) -> Callable[[str, Any], Any]:
    """Read a whole number of at least `least`."""
    return _valid(
        lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= least,
        f"a whole number of at least {least}",
        "give one such as 3",
    )


def _optional(read: Callable[[str, Any], Any]) -> Callable[[str, Any], Any]:
    """Where None sets no limit."""
    return lambda name, value: None if value is None else read(name, value)


def _names(name: str, value: object) -> tuple[str, ...]:
    """Check a list of names; a bare string would otherwise be taken letter by letter."""
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) for item in value):
        raise _invalid(name, value, "a list of names", "put the names in brackets, or leave it empty to allow all")
    return tuple(value)


def _digests(name: str, value: object) -> tuple[str, ...]:
    """Check a list of SHA-256 digests; they are kept in small letters."""
    digests = tuple(digest.lower() for digest in _names(name, value))
    for digest in digests:
        if not re.fullmatch(rf"[0-9a-f]{{{_KEY_DIGITS}}}", digest):
            raise _invalid(name, digest, f"a list of digests of {_KEY_DIGITS} hexadecimal digits", "copy the whole one")
    return digests


def _bounds(name: str, value: object) -> tuple[tuple[float, float], ...]:
    """Check the allowed box: a list of (lowest, highest) pairs."""
    pairs = value if isinstance(value, (list, tuple)) else ()
    valid = all(isinstance(pair, (list, tuple)) and len(pair) == 2 and all(map(_is_number, pair)) for pair in pairs)
    if not (pairs and valid and all(pair[0] < pair[1] for pair in pairs)):
        raise _invalid(name, value, "a list of increasing pairs", "give one such as [[0.0, 1.0]]")
    return tuple((float(lowest), float(highest)) for lowest, highest in pairs)


def _peers(name: str, value: object) -> tuple[tuple[str, str], ...]:
    """Check the pinned peers: a table of names and keys, a list of keys, or pairs as this returns them."""
    entries: list[Any] = []
    if isinstance(value, Mapping):
        entries = list(value.items())
    elif isinstance(value, (list, tuple)):
        entries = list(value)
    if not entries:
        # An empty list is refused, too: it would look like pins, and whether it allows all or none is anybody's guess.
        bound = "a table of names and keys or a list of keys, of at least one party"
        raise _invalid(name, value, bound, "list the other parties' keys, or leave it out")
    pairs = tuple(_peer("", entry) if isinstance(entry, str) else _peer(*_two(entry)) for entry in entries)
    keys = [key for _, key in pairs]
    names = [name for name, _ in pairs if name]
    for what, items in (("key", keys), ("name", names)):
        twice = [item for item in items if items.count(item) > 1]
        if twice:
            raise ConfigurationError(
                f"pinned_peers has the {what} {_quote(twice[0])} twice, but each party has one of its own: remove one."
            )
    return pairs


def _two(entry: object) -> tuple[object, object]:
    """A pair, or something that is no peer."""
    return (entry[0], entry[1]) if isinstance(entry, (list, tuple)) and len(entry) == 2 else ("", entry)


def _peer(name: object, key: object) -> tuple[str, str]:
    """Check one pinned peer; its key is kept in small letters."""
    if not isinstance(name, str) or not name.isprintable() or len(name) > _LONGEST_QUOTE:
        raise ConfigurationError(
            f"pinned_peers has the name {_quote(name)}, but a name has at most {_LONGEST_QUOTE} printable characters: "
            "shorten it."
        )
    if not isinstance(key, str) or not re.fullmatch(rf"[0-9a-fA-F]{{{_KEY_DIGITS}}}", key):
        raise ConfigurationError(
            f"pinned_peers has the key {_quote(key)}, but a key has {_KEY_DIGITS} hexadecimal digits: copy what "
            "'python -m flwr_dpkmeans identity show PATH' prints on that party's machine."
        )
    return name, key.lower()


# -- what limits refuse, and in which words -----------------------------------------------------------------------


def _within(value: float, limit: float) -> bool:
    """Whether a cost is at most its limit, up to rounding; false for NaN."""
    return value <= limit * (1.0 + _RELATIVE_SLACK)


def _quote(value: object) -> str:
    """Repeat a name from a plan, escaped and cut to a bounded length."""
    text = ascii(value)
    return text if len(text) <= _LONGEST_QUOTE else text[:_LONGEST_QUOTE] + "..."


def _above(
    what: str, but: str, cost: Callable[[Asked], float], spent: Callable[[Past], float] = lambda past: 0.0
) -> Callable[[float, Asked], str | bool]:
    """Refuse a cost that is more than the limit leaves besides what other runs have spent, which is not told."""

    def refuse(limit: float, asked: Asked) -> str | bool:
        if _within(spent(asked.past) + cost(asked), limit):
            return False
        value, most = told_apart(cost(asked), limit)
        return f"the plan's {what} is {value}, but {but.format(most)}."

    return refuse


def _other_than(kind: str, value: Callable[[Plan], str]) -> Callable[[Sequence[str], Asked], str | bool]:
    """Refuse names that are not in a list; an empty one allows all."""

    def refuse(allowed: Sequence[str], asked: Asked) -> str | bool:
        names, planned = ", ".join(map(repr, allowed)), value(asked.plan)
        return bool(allowed and planned not in allowed) and (
            f"the plan's {kind} is {_quote(planned)}, but this client allows only {names}: plan with one of them."
        )

    return refuse


def has_bounds_by_name(plan: Plan) -> bool:
    """Whether a plan names the columns that its bounds belong to, so that only their owner knows their order."""
    return bool(plan.settings.feature_names) and len(plan.settings.bounds[0]) > 1


def _beyond(allowed: Sequence[tuple[float, float]] | None, box: Box, n_features: int | None) -> str | bool:
    """Say where a box reaches beyond the allowed one, both in the order of the own table's columns."""
    if allowed is None:
        return False
    lower, upper = box
    one_pair = len(lower) == 1
    n_features = n_features or (len(allowed) if one_pair else len(lower))
    pairs = [*allowed] * n_features if len(allowed) == 1 else allowed
    if len(pairs) != n_features:
        return (
            f"the plan's box has {n_features} features, but this client's allowed_bounds has {len(pairs)}: plan for "
            "the features that were agreed on."
        )
    repeats = n_features if one_pair else 1
    boxes = zip([*lower] * repeats, [*upper] * repeats, pairs, strict=True)
    for feature, (low, high, (lowest, highest)) in enumerate(boxes):
        if not (lowest <= low and high <= highest):
            return (
                f"the plan's bounds of feature {feature} are [{low:g}, {high:g}], but this client allows only "
                f"[{lowest:g}, {highest:g}]: plan with bounds inside these."
            )
    return False


@dataclass(frozen=True)
class ClientPolicy:
    """The limits of one client; the defaults allow an ordinary simulation.

    The keys of a policy file are these names, with hyphens. Each field says what it is about; a limit of the wrong type
    or out of its range is a ConfigurationError.

    Examples
    --------
    >>> ClientPolicy(max_epsilon_per_run=1.0, allowed_trust=["distributed"]).allowed_trust
    ('distributed',)
    """

    max_epsilon_per_run: float = _limit(
        math.inf,
        _amount,
        _above(
            "worst-case epsilon",
            "this client's max_epsilon_per_run is {}: lower the plan's epsilon or its number of retries",
            lambda asked: asked.epsilon,
        ),
        required=True,
        error=BudgetError,
    )
    """Largest worst-case epsilon of one run."""
    max_epsilon_total: float = _limit(
        math.inf,
        _amount,
        _above(
            "worst-case epsilon",
            "it does not fit into what is left of this client's max_epsilon_total of {}: lower the plan's epsilon or "
            "leave this client out",
            lambda asked: asked.epsilon,
            lambda past: past.epsilon,
        ),
        required=True,
        error=BudgetError,
        of_past=True,
    )
    """Largest sum of worst-case epsilons over all runs on one data set in one unit of privacy (basic composition).

    Each unit has this total of its own: allow one of them, or one row pays for both.
    """
    max_delta: float = _limit(
        1e-2,
        _probability,
        _above("delta", "this client's max_delta is {}: lower the plan's delta", lambda asked: asked.plan.delta),
        required=True,
        error=BudgetError,
    )
    """Largest delta of one run, in [0, 1)."""
    max_delta_total: float = _limit(
        math.inf,
        _amount,
        _above(
            "delta",
            "it does not fit into what is left of this client's max_delta_total of {}: lower the plan's delta or leave "
            "this client out",
            lambda asked: asked.plan.delta,
            lambda past: past.delta,
        ),
        error=BudgetError,
        of_past=True,
    )
    """Largest sum of deltas over the same runs."""
    allowed_trust: tuple[str, ...] = _limit(
        (), _names, _other_than("trust model", lambda plan: plan.settings.trust), required=True
    )
    """Trust models that a plan may use; empty, as for all such lists, allows all."""
    allowed_algorithms: tuple[str, ...] = _limit(
        (), _names, _other_than("algorithm", lambda plan: plan.config.algorithm)
    )
    """Algorithms that a plan may use."""
    allowed_units: tuple[str, ...] = _limit(
        (), _names, _other_than("privacy unit", lambda plan: plan.settings.unit.value), required=True
    )
    """Units of privacy that a plan may use."""
    min_cohort: int = _limit(
        2,
        _whole(1),
        lambda least, asked: (
            asked.plan.settings.min_clients < least
            and f"the plan goes on with {asked.plan.settings.min_clients} clients, but this client's min_cohort is "
            f"{least}: raise the plan's min_clients."
        ),
        required=True,
    )
    """Smallest `min_clients` of a plan, at least 1."""
    require_secure_noise: bool = _limit(
        False,
        _switch,
        lambda required, asked: (
            required
            and asked.plan.settings.noise.value != "secure"
            and f"the plan's noise is {_quote(asked.plan.settings.noise.value)}, but this client requires 'secure': "
            "drop the noise seed."
        ),
    )
    """Refuse plans whose noise comes from a seed."""
    allow_non_private: bool = _limit(
        True,
        _switch,
        lambda allowed, asked: (
            not allowed
            and math.isinf(asked.epsilon)
            and f"the plan's algorithm {_quote(asked.plan.config.algorithm)} has an epsilon of inf, but this client "
            "allows private runs only: plan with a finite epsilon."
        ),
    )
    """Allow plans whose epsilon is infinite. A finite epsilon limit refuses them all the same."""
    allow_server_data: bool = _limit(
        True,
        _switch,
        lambda allowed, asked: (
            not allowed
            and asked.plan.server is not None
            and "the plan starts from the server's own points, but this client's allow_server_data is false: plan "
            "without them, such as with 'proxy_lloyd'."
        ),
    )
    """Allow runs that start from the server's own points."""
    allowed_bounds: tuple[tuple[float, float], ...] | None = _limit(
        None,
        _optional(_bounds),
        lambda allowed, asked: (
            not has_bounds_by_name(asked.plan)  # those are for `check_box`
            and _beyond(allowed, asked.plan.settings.bounds, asked.plan.n_features)
        ),
    )
    """For each column of the own table, in its order, the lowest and highest value that the plan's box may reach; a
    single pair holds for every column. None allows every box."""
    allowed_evaluation: tuple[str, ...] = _limit(
        (), _names, _other_than("evaluation", lambda plan: plan.settings.evaluation.value)
    )
    """Evaluations that a plan may have; ``["none"]`` forbids them."""
    allowed_dropout: tuple[str, ...] = _limit((), _names, _other_than("dropout", lambda plan: plan.dropout.value))
    """What may happen when clients fall silent; ``["retry"]`` forbids sums that are recovered from key shares."""
    pinned_peers: tuple[tuple[str, str], ...] | None = _limit(None, _optional(_peers))
    """Names and long-term identities (Ed25519, 64 hexadecimal digits) of all parties that may take part; the own one
    may be among them. A table of names and keys is taken as well, or a list of keys alone. None takes every party that
    the server announces."""
    min_max_silent: int = _limit(
        0,
        _whole(0),
        lambda least, asked: (
            asked.plan.max_silent < least
            and f"the plan's max_silent is {asked.plan.max_silent}, but this client's min_max_silent is {least}: raise "
            "the plan's max_silent."
        ),
    )
    """Smallest `max_silent` of a plan: that many others may work with the server without seeing single rows."""
    runs_per_day: int | None = _limit(
        None,
        _optional(_whole(1)),
        lambda most, asked: (
            most is not None
            and asked.runs_today >= most
            and f"this client's runs_per_day is {most}, and as many others have begun within 24 hours: start the run "
            "later, or leave this client out."
        ),
        of_past=True,
    )
    """Runs on one data set that may begin to release within 24 hours, counted from the ledger."""
    allowed_columns: tuple[str, ...] = _limit((), _names)
    """Names that the columns of the node's own table must be among; empty accepts all. `check_columns` holds it against
    the table, before the node answers."""
    approved_plan_digests: tuple[str, ...] = _limit(
        (),
        _digests,
        lambda approved, asked: (
            bool(approved)
            and asked.terms not in approved
            and f"the plan's terms have the digest {asked.terms!r}, which is not one of this client's "
            "approved_plan_digests: plan as agreed, or have its owner add it."
        ),
    )
    """Digests (SHA-256, 64 hexadecimal digits) of whole plans without run id and seeds that alone are accepted; empty
    accepts all. A refusal says the digest of what was asked for."""
    allow_anything: bool = _limit(False, _switch)
    """Lift the rule that a deployed node's policy must state certain limits; those that it states still hold."""
    unstated: tuple[str, ...] = ()
    """No key of a file: required limits that the policy has not stated. It refuses every plan while there are any."""

    def __post_init__(self) -> None:
        for name, limit in LIMITS.items():
            object.__setattr__(self, name, limit.read(name, getattr(self, name)))

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any], *, base: ClientPolicy | None = None) -> ClientPolicy:
        """Build a policy from keys spelt with hyphens or underscores; a missing key is as in `base`, else permissive.

        A key that is unknown or given twice, and a limit that is not valid, are a ConfigurationError.
        """
        valid = list(LIMITS)
        limits: dict[str, Any] = {}
        for key, value in mapping.items():
            name = str(key).replace("-", "_")
            if name not in valid:
                raise ConfigurationError(f"the policy key {key!r} is not known: {nearest(name, valid)}")
            if name in limits:
                raise ConfigurationError(f"the policy key {name!r} is given twice, but once is enough: remove one.")
            limits[name] = value
        policy = replace(base or cls(), **limits)
        return replace(policy, unstated=tuple(name for name in policy.unstated if not _states(limits, name)))

    @classmethod
    def from_toml(cls, path: str | Path, *, base: ClientPolicy | None = None) -> ClientPolicy:
        """Read a policy from a TOML file on the client's own disk, with the limits as its keys; see `from_mapping`."""
        try:
            with open(path, "rb") as file:
                mapping = tomllib.load(file)
        except OSError as error:
            reason = error.strerror or error
            raise ConfigurationError(f"the policy file {path} cannot be read ({reason}): correct its path.") from error
        except ValueError as error:  # not TOML, or not UTF-8
            raise ConfigurationError(f"the policy file {path} is not valid TOML ({error}): correct it.") from error
        return cls.from_mapping(mapping, base=base)

    def require_complete(self) -> None:
        """Refuse everything while a deployed node's policy is incomplete; names of keys are public."""
        if self.unstated and not self.allow_anything:
            keys = ", ".join(name.replace("_", "-") for name in self.unstated)
            raise RefusalError(
                f"this client's policy does not limit {keys}, and without that a deployed client takes part in no run: "
                "have its owner state these keys, or allow-anything = true."
            )

    def check_columns(self, names: Sequence[str]) -> None:
        """Refuse a run on a table (`names` of its columns; empty: no table) with columns that the owner did not list.

        The refusal tells numbers only: names are the node's own.
        """
        n_unlisted = len(set(names) - set(self.allowed_columns)) if names else 1
        if self.allowed_columns and n_unlisted:
            raise RefusalError(
                f"this client's policy allows {len(self.allowed_columns)} columns, and its table of {len(names)} names "
                f"has {n_unlisted} besides them or none: have its owner name the right columns."
            )

    def check(self, asked: Asked, *, only_past: bool = False) -> None:
        """Refuse a plan that this client does not allow; return quietly otherwise.

        With `only_past` the plan `passes`, and only what other runs have cost since then can refuse it. For a run that
        is being resumed, what is asked leaves out its own charge. An epsilon or delta beyond the limits
        is a BudgetError, an incomplete policy, a malformed plan and any other value a RefusalError.
        """
        for name, spent in (("past.epsilon", asked.past.epsilon), ("past.delta", asked.past.delta)):
            if type(spent) not in (int, float) or not spent >= 0:  # as NaN is not
                raise _invalid(name, spent, "a number of at least 0", "take it from the ledger")
        if not only_past:
            self.require_complete()
            _refuse_malformed(asked.plan, asked.epsilon)
        for name, limit in self._limits_on_past if only_past else _in_order():
            sentence = limit.refuse(getattr(self, name), asked)
            if sentence:
                raise limit.error(str(sentence))

    def passes(self, plan: Plan, epsilon: float, terms: str) -> bool:
        """Whether a plan keeps to all limits but those on the past; a policy or plan that cannot be read raises."""
        self.require_complete()
        _refuse_malformed(plan, epsilon)
        asked = Asked(plan, epsilon, Past(), terms)
        return not any(limit.refuse(getattr(self, name), asked) for name, limit in _in_order() if not limit.of_past)

    @cached_property
    def _limits_on_past(self) -> tuple[tuple[str, Limit], ...]:
        """Limits on what other runs have cost, besides those that allow everything."""
        limits = [(name, limit) for name, limit in _in_order() if limit.of_past]
        return tuple([(name, limit) for name, limit in limits if getattr(self, name) not in (None, math.inf)])

    def check_box(self, lower: Sequence[float], upper: Sequence[float], n_features: int) -> None:
        """Refuse a box, in the order of the own table's columns, that reaches beyond what this client allows."""
        sentence = _beyond(self.allowed_bounds, (tuple(lower), tuple(upper)), n_features)
        if sentence:
            raise RefusalError(str(sentence))


LIMITS = {item.name: item.metadata["limit"] for item in fields(ClientPolicy) if "limit" in item.metadata}
"""Every key of a policy."""
REQUIRED = tuple(name for name, limit in LIMITS.items() if limit.is_required)
"""Limits that a deployed node must state: without one of them a server could ask for anything finite."""
DEPLOYED = ClientPolicy(allow_non_private=False, require_secure_noise=True, unstated=REQUIRED)
"""What a deployed node's policy file is read on top of: it gives nothing to runs that its owner did not speak of."""


def _in_order() -> list[tuple[str, Limit]]:
    """All limits as they are asked: those on the budget last."""
    others = [item for item in LIMITS.items() if item[1].error is not BudgetError]
    return others + [item for item in LIMITS.items() if item[1].error is BudgetError]


def _states(limits: Mapping[str, Any], name: str) -> bool:
    """Whether limits hold one of this name that is not without end; an empty list of names allows all."""
    return name in limits and limits[name] != math.inf and limits[name] not in ((), [])


def _refuse_malformed(plan: Plan, epsilon: float) -> None:
    """Refuse values that no honest plan has; a NaN would otherwise pass or fail every comparison at random."""
    planned, settings = plan.epsilon if plan.is_final else plan.settings.epsilon, plan.settings
    if not (_is_number(planned) and _is_number(epsilon) and _is_number(plan.delta)):
        raise RefusalError("the plan's epsilon or delta is not a number, but both must be: correct the plan.")
    if not (planned >= 0 and _within(planned, epsilon)):
        cost, most = told_apart(planned, epsilon)
        raise RefusalError(
            f"the plan's epsilon is {cost}, but it must lie between 0 and its worst-case epsilon of {most}: correct "
            "the plan."
        )
    if not 0 <= plan.delta < 1:
        raise RefusalError(
            f"the plan's delta is {plan.delta:.6g}, but it must be at least 0 and below 1: correct the plan."
        )
    if not 1 <= settings.min_clients <= plan.n_clients:
        raise RefusalError(
            f"the plan's min_clients is {settings.min_clients}, but it must lie between 1 and its n_clients of "
            f"{plan.n_clients}: correct the plan."
        )
    if settings.noise.value not in _NOISE_SOURCES:
        raise RefusalError(
            f"the plan's noise is {_quote(settings.noise.value)}, but it must be 'secure' or 'seeded': correct it."
        )
    _refuse_malformed_box(*settings.bounds)


def _refuse_malformed_box(lower: Sequence[float], upper: Sequence[float]) -> None:
    """Refuse a box whose sides are not finite or not in order."""
    if len(lower) != len(upper):
        raise RefusalError(
            f"the plan has {len(lower)} lower and {len(upper)} upper bounds, but it needs as many of both: correct the "
            "plan."
        )
    for feature, (low, high) in enumerate(zip(lower, upper, strict=True)):
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise RefusalError(
                f"the plan's bounds of feature {feature} are [{low:g}, {high:g}], but they must be finite and in "
                "increasing order: correct the plan."
            )
