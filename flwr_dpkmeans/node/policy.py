"""What a client allows: its own limits, held against the server's public plan before anything leaves.

A policy is read from the client's own disk, never from the server. It is permissive by default, so that a
simulation (including the non-private baseline) runs without one. A deployed node begins with `DEPLOYED` and refuses
every run until its policy states `REQUIRED` limits, or says ``allow-anything = true``; ``policy.example.toml`` beside
this module is a strict one to begin with.
The sentences of a refusal are sent to the server, so they hold public plan values and policy values only:
in particular never what the client has spent before.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from flwr_dpkmeans.errors import BudgetError, ConfigurationError, RefusalError, nearest, told_apart

# Accounting ends in floating point: a plan calibrated to exactly its limit must not fail by a rounding error.
_RELATIVE_SLACK = 1e-9
# Names in a plan come from the server, so what a sentence repeats of them is bounded.
_LONGEST_QUOTE = 60

_NOISE_SOURCES = ("secure", "seeded")
_NON_NEGATIVE_LIMITS = ("max_epsilon_per_run", "max_epsilon_total", "max_delta_total")
_SWITCHES = ("require_secure_noise", "allow_non_private", "allow_server_data", "allow_anything")
_KEY_DIGITS = 64
REQUIRED = (
    *("max_epsilon_per_run", "max_epsilon_total", "max_delta"),
    *("allowed_trust", "allowed_units", "min_cohort"),
)
"""Limits that a deployed node must state: without one of them a server could ask for anything finite."""
_NAME_LISTS = (
    *("allowed_trust", "allowed_algorithms", "allowed_units", "allowed_evaluation", "allowed_dropout"),
    "allowed_columns",
)


@dataclass(frozen=True)
class PlanSummary:
    """What a client's policy needs to know of a plan.

    The client computes the costs itself from the public plan; it never copies them from a message.

    Parameters
    ----------
    algorithm : str
        Name of the algorithm.
    trust : str
        Name of the trust model.
    unit : str
        Name of the privacy unit, e.g. one record.
    epsilon : float
        Cost of the run without retries; infinite for a non-private algorithm.
    epsilon_worst_case : float
        Cost of the run with all allowed retries; infinite for a non-private algorithm.
    delta : float
        Delta of the run.
    n_clients : int
        Declared size of the cohort.
    min_clients : int
        Smallest number of clients with which the run goes on.
    noise : str
        Where the noise comes from: "secure" or "seeded".
    bounds_lower, bounds_upper : tuple of float, shape (n_features,)
        The plan's public box, in the units of the data; one entry holds for every feature.
    server_data : bool
        Whether the run starts from the server's own points.
    evaluation : str
        Kind of evaluation after the last round: "none", "private" or "exact".
    n_features : int or None
        Width of the tables; None while the plan does not say.
    dropout : str
        What happens when clients fall silent: "retry" or "recover".
    max_silent : int
        Clients that may collude or fall silent.
    terms_digest : str
        SHA-256 of the plan without what differs from run to run.
    bounds_by_name : bool
        Whether the box belongs to columns that the plan names, in an order of its own: it is then held against the own
        table by `ClientPolicy.check_box`, and not by `ClientPolicy.check`.
    """

    algorithm: str
    trust: str
    unit: str
    epsilon: float
    epsilon_worst_case: float
    delta: float
    n_clients: int
    min_clients: int
    noise: str
    bounds_lower: tuple[float, ...]
    bounds_upper: tuple[float, ...]
    server_data: bool = False
    evaluation: str = "none"
    n_features: int | None = None
    dropout: str = "retry"
    max_silent: int = 0
    terms_digest: str = ""
    bounds_by_name: bool = False


@dataclass(frozen=True)
class ClientPolicy:
    """The limits of one client; the defaults allow an ordinary simulation.

    Parameters
    ----------
    max_epsilon_per_run : float
        Largest worst-case epsilon of one run.
    max_epsilon_total : float
        Largest sum of worst-case epsilons over all runs on one data set in one unit of privacy (basic composition).
        Each unit has this total of its own: allow one of them, or one row pays for both.
    max_delta : float
        Largest delta of one run, in [0, 1).
    max_delta_total : float
        Largest sum of deltas over the same runs.
    allowed_trust, allowed_algorithms, allowed_units, allowed_evaluation, allowed_dropout : tuple of str
        Names that a plan may use; empty allows all. ``allowed-evaluation = ["none"]`` forbids evaluations,
        ``allowed-dropout = ["retry"]`` sums that are recovered from key shares.
    min_cohort : int
        Smallest `min_clients` of a plan, at least 1.
    require_secure_noise : bool
        Refuse plans whose noise comes from a seed.
    allow_non_private : bool
        Allow plans whose epsilon is infinite. A finite epsilon limit refuses them all the same.
    allow_server_data : bool
        Allow runs that start from the server's own points.
    allowed_bounds : tuple of (float, float), optional
        For each column of the own table, in its order, the lowest and highest value that the plan's box may reach; a
        single pair holds for every column. None allows every box.
    pinned_peers : tuple of (name, public key), optional
        Long-term identities (Ed25519, 64 hexadecimal digits) of all parties that may take part; the own one may be
        among them. A table of names and keys is taken as well, or a list of keys alone. None takes every party that
        the server announces.
    min_max_silent : int
        Smallest `max_silent` of a plan: that many others may work with the server without seeing single rows.
    runs_per_day : int, optional
        Runs on one data set that may begin to release within 24 hours, counted from the ledger.
    allowed_columns : tuple of str
        Names that the columns of the node's own table must be among; empty accepts all. Held against the table, and
        not against the plan, before the node answers.
    approved_plan_digests : tuple of str
        Digests (SHA-256, 64 hexadecimal digits) of whole plans without run id and seeds that alone are accepted; empty
        accepts all. A refusal says the digest of what was asked for.
    allow_anything : bool
        Lift the rule that a deployed node's policy must state certain limits; those that it states still hold.
    unstated : tuple of str
        No key of a file: required limits that the policy has not stated. It refuses every plan while there are any.

    Raises
    ------
    ConfigurationError
        If a limit has the wrong type or is out of its range.

    Examples
    --------
    >>> policy = ClientPolicy(max_epsilon_per_run=1.0)
    >>> plan = PlanSummary("dp", "local", "record", 0.5, 0.75, 1e-6, 5, 3, "secure", (0.0,), (1.0,))
    >>> policy.check(plan, spent_total=0.0)
    """

    max_epsilon_per_run: float = math.inf
    max_epsilon_total: float = math.inf
    max_delta: float = 1e-2
    max_delta_total: float = math.inf
    allowed_trust: tuple[str, ...] = ()
    allowed_algorithms: tuple[str, ...] = ()
    allowed_units: tuple[str, ...] = ()
    min_cohort: int = 2
    require_secure_noise: bool = False
    allow_non_private: bool = True
    allow_server_data: bool = True
    allowed_bounds: tuple[tuple[float, float], ...] | None = None
    allowed_evaluation: tuple[str, ...] = ()
    allowed_dropout: tuple[str, ...] = ()
    pinned_peers: tuple[tuple[str, str], ...] | None = None
    min_max_silent: int = 0
    runs_per_day: int | None = None
    allowed_columns: tuple[str, ...] = ()
    approved_plan_digests: tuple[str, ...] = ()
    allow_anything: bool = False
    unstated: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in _NON_NEGATIVE_LIMITS:
            if not (_is_number(getattr(self, name)) and getattr(self, name) >= 0):
                raise _invalid(name, getattr(self, name), "a number of at least 0", "give a limit such as 1.0")
        if not (_is_number(self.max_delta) and 0 <= self.max_delta < 1):
            raise _invalid("max_delta", self.max_delta, "a number of at least 0 and below 1", "give one such as 1e-6")
        for name, least in (("min_cohort", 1), ("min_max_silent", 0), ("runs_per_day", 1)):
            value = getattr(self, name)
            unlimited = name == "runs_per_day" and value is None
            if not unlimited and (isinstance(value, bool) or not isinstance(value, int) or value < least):
                raise _invalid(name, value, f"a whole number of at least {least}", "give one such as 3")
        for name in _SWITCHES:
            if not isinstance(getattr(self, name), bool):
                raise _invalid(name, getattr(self, name), "a boolean", "give true or false")
        for name in _NAME_LISTS:
            object.__setattr__(self, name, _names(name, getattr(self, name)))
        object.__setattr__(self, "approved_plan_digests", _digests("approved_plan_digests", self.approved_plan_digests))
        if self.allowed_bounds is not None:
            object.__setattr__(self, "allowed_bounds", _bounds(self.allowed_bounds))
        if self.pinned_peers is not None:
            object.__setattr__(self, "pinned_peers", _peers(self.pinned_peers))

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any], *, base: ClientPolicy | None = None) -> ClientPolicy:
        """Build a policy from keys spelt with hyphens or underscores; a missing key keeps its default.

        Parameters
        ----------
        mapping : mapping of str to value
            The limits by name.
        base : ClientPolicy, optional
            Where missing keys are taken from; the permissive defaults if left out.

        Returns
        -------
        ClientPolicy
            The policy.

        Raises
        ------
        ConfigurationError
            If a key is unknown or given twice, or a limit is not valid.

        Examples
        --------
        >>> ClientPolicy.from_mapping({"min-cohort": 3}).min_cohort
        3
        """
        valid = [field.name for field in fields(cls) if field.name != "unstated"]
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
        """Read a policy from a TOML file with the limits as its top-level keys.

        Parameters
        ----------
        path : str or Path
            The file on the client's own disk.
        base : ClientPolicy, optional
            Where missing keys are taken from; the permissive defaults if left out.

        Returns
        -------
        ClientPolicy
            The policy.

        Raises
        ------
        ConfigurationError
            If the file cannot be read, is not TOML, or holds a limit that is not valid.

        Examples
        --------
        >>> import tempfile, pathlib
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder) / "policy.toml"
        ...     _ = path.write_text("max-epsilon-per-run = 2.0")
        ...     ClientPolicy.from_toml(path).max_epsilon_per_run
        2.0
        """
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
        """Refuse everything while a deployed node's policy is incomplete; names of keys are public.

        Raises
        ------
        RefusalError
            With the keys that are missing.

        Examples
        --------
        >>> ClientPolicy.from_mapping({"allow-anything": True}, base=DEPLOYED).require_complete()
        """
        if self.unstated and not self.allow_anything:
            keys = ", ".join(name.replace("_", "-") for name in self.unstated)
            raise RefusalError(
                f"this client's policy does not limit {keys}, and without that a deployed client takes part in no run: "
                "have its owner state these keys, or allow-anything = true."
            )

    def check(self, plan: PlanSummary, spent_total: float, spent_delta: float = 0.0, runs_today: int = 0) -> None:
        """Refuse a plan that this client does not allow; return quietly otherwise.

        Parameters
        ----------
        plan : PlanSummary
            The public plan, with costs that this client computed itself.
        spent_total : float
            Epsilon that other runs in the plan's unit have spent on the data set (`Ledger.past`); for a run that is
            being resumed, without its own charge.
        spent_delta : float
            Delta of the same runs.
        runs_today : int
            Other runs that released something within 24 hours.

        Raises
        ------
        RefusalError
            If the plan is malformed, or its algorithm, trust model, unit, cohort, noise or box is not allowed.
        BudgetError
            If its epsilon or delta is more than this client allows.
        ConfigurationError
            If `spent_total` or `spent_delta` is negative or not a number.

        Examples
        --------
        >>> plan = PlanSummary("dp", "local", "record", 2.0, 3.0, 1e-6, 5, 3, "secure", (0.0,), (1.0,))
        >>> ClientPolicy(max_epsilon_per_run=1.0).check(plan, spent_total=0.0)
        Traceback (most recent call last):
        flwr_dpkmeans.errors.BudgetError: the plan's worst-case epsilon is 3, but this client's max_epsilon_per_run \
is 1: lower the plan's epsilon or its number of retries.
        """
        for name, spent in (("spent_total", spent_total), ("spent_delta", spent_delta)):
            if not (_is_number(spent) and spent >= 0):
                raise _invalid(name, spent, "a number of at least 0", "take it from the ledger")
        self.require_complete()
        _refuse_malformed(plan)
        self._check_names(plan)
        self._check_agreed(plan)
        if self.runs_per_day is not None and runs_today >= self.runs_per_day:
            raise RefusalError(
                f"this client's runs_per_day is {self.runs_per_day}, and as many others have begun within 24 hours: "
                "start the run later, or leave this client out."
            )
        self._check_cohort_and_noise(plan)
        if not plan.bounds_by_name:
            self.check_box(plan.bounds_lower, plan.bounds_upper, plan.n_features)
        self._check_costs(plan, spent_total, spent_delta)

    def _check_agreed(self, plan: PlanSummary) -> None:
        """Hold the plan's digest against those that the owner has agreed to."""
        if self.approved_plan_digests and plan.terms_digest not in self.approved_plan_digests:
            raise RefusalError(
                f"the plan's terms have the digest {plan.terms_digest!r}, which is not one of this client's "
                "approved_plan_digests: plan as agreed, or have its owner add it."
            )

    def check_columns(self, names: Sequence[str]) -> None:
        """Refuse a run on a table with columns that the owner did not list.

        Parameters
        ----------
        names : sequence of str
            Of the node's own table; empty if it has none.

        Raises
        ------
        RefusalError
            Which tells numbers only: names are the node's own.
        """
        n_unlisted = len(set(names) - set(self.allowed_columns)) if names else 1
        if self.allowed_columns and n_unlisted:
            raise RefusalError(
                f"this client's policy allows {len(self.allowed_columns)} columns, and its table of {len(names)} names "
                f"has {n_unlisted} besides them or none: have its owner name the right columns."
            )

    def _check_names(self, plan: PlanSummary) -> None:
        for kind, value, allowed in (
            ("algorithm", plan.algorithm, self.allowed_algorithms),
            ("trust model", plan.trust, self.allowed_trust),
            ("privacy unit", plan.unit, self.allowed_units),
            ("evaluation", plan.evaluation, self.allowed_evaluation),
            ("dropout", plan.dropout, self.allowed_dropout),
        ):
            if allowed and value not in allowed:
                names = ", ".join(repr(name) for name in allowed)
                raise RefusalError(
                    f"the plan's {kind} is {_quote(value)}, but this client allows only {names}: plan with one of them."
                )

    def _check_cohort_and_noise(self, plan: PlanSummary) -> None:
        if plan.min_clients < self.min_cohort:
            raise RefusalError(
                f"the plan goes on with {plan.min_clients} clients, but this client's min_cohort is "
                f"{self.min_cohort}: raise the plan's min_clients."
            )
        if plan.max_silent < self.min_max_silent:
            raise RefusalError(
                f"the plan's max_silent is {plan.max_silent}, but this client's min_max_silent is "
                f"{self.min_max_silent}: raise the plan's max_silent."
            )
        if plan.server_data and not self.allow_server_data:
            raise RefusalError(
                "the plan starts from the server's own points, but this client's allow_server_data is false: plan "
                "without them, such as with 'proxy_lloyd'."
            )
        if self.require_secure_noise and plan.noise != "secure":
            raise RefusalError(
                f"the plan's noise is {_quote(plan.noise)}, but this client requires 'secure': drop the noise seed."
            )

    def check_box(self, lower: Sequence[float], upper: Sequence[float], n_features: int | None) -> None:
        """Refuse a box that reaches beyond what this client allows.

        Parameters
        ----------
        lower, upper : sequence of float
            In the order of the own table's columns; one entry holds for all.
        n_features : int or None
            None while the plan does not say.

        Raises
        ------
        RefusalError
        """
        if self.allowed_bounds is None:
            return
        one_pair = len(lower) == 1
        n_features = n_features or (len(self.allowed_bounds) if one_pair else len(lower))
        allowed = self.allowed_bounds * n_features if len(self.allowed_bounds) == 1 else self.allowed_bounds
        if len(allowed) != n_features:
            raise RefusalError(
                f"the plan's box has {n_features} features, but this client's allowed_bounds has {len(allowed)}: "
                "plan for the features that were agreed on."
            )
        repeats = n_features if one_pair else 1
        boxes = zip([*lower] * repeats, [*upper] * repeats, allowed, strict=True)
        for feature, (low, high, (lowest, highest)) in enumerate(boxes):
            if not (lowest <= low and high <= highest):
                raise RefusalError(
                    f"the plan's bounds of feature {feature} are [{low:g}, {high:g}], but this client allows only "
                    f"[{lowest:g}, {highest:g}]: plan with bounds inside these."
                )

    def _check_costs(self, plan: PlanSummary, spent_total: float, spent_delta: float) -> None:
        worst = plan.epsilon_worst_case
        if math.isinf(worst) and not self.allow_non_private:
            raise RefusalError(
                f"the plan's algorithm {_quote(plan.algorithm)} has an epsilon of inf, but this client allows private "
                "runs only: plan with a finite epsilon."
            )
        if not _within(worst, self.max_epsilon_per_run):
            cost, most = told_apart(worst, self.max_epsilon_per_run)
            raise BudgetError(
                f"the plan's worst-case epsilon is {cost}, but this client's max_epsilon_per_run is {most}: lower the "
                "plan's epsilon or its number of retries."
            )
        if not _within(spent_total + worst, self.max_epsilon_total):
            cost, most = told_apart(worst, self.max_epsilon_total)
            raise BudgetError(
                f"the plan's worst-case epsilon is {cost}, but it does not fit into what is left of this client's "
                f"max_epsilon_total of {most}: lower the plan's epsilon or leave this client out."
            )
        if not _within(plan.delta, self.max_delta):
            cost, most = told_apart(plan.delta, self.max_delta)
            raise BudgetError(
                f"the plan's delta is {cost}, but this client's max_delta is {most}: lower the plan's delta."
            )
        if not _within(spent_delta + plan.delta, self.max_delta_total):
            cost, most = told_apart(plan.delta, self.max_delta_total)
            raise BudgetError(
                f"the plan's delta is {cost}, but it does not fit into what is left of this client's max_delta_total "
                f"of {most}: lower the plan's delta or leave this client out."
            )


def _states(limits: Mapping[str, Any], name: str) -> bool:
    """Whether limits hold one of this name that is not without end; an empty list of names allows all."""
    return name in limits and limits[name] != math.inf and limits[name] not in ((), [])


def _refuse_malformed(plan: PlanSummary) -> None:
    """Refuse values that no honest plan has; a NaN would otherwise pass or fail every comparison at random."""
    if not (_is_number(plan.epsilon) and _is_number(plan.epsilon_worst_case) and _is_number(plan.delta)):
        raise RefusalError("the plan's epsilon or delta is not a number, but both must be: correct the plan.")
    if not (plan.epsilon >= 0 and _within(plan.epsilon, plan.epsilon_worst_case)):
        cost, most = told_apart(plan.epsilon, plan.epsilon_worst_case)
        raise RefusalError(
            f"the plan's epsilon is {cost}, but it must lie between 0 and its worst-case epsilon of {most}: correct "
            "the plan."
        )
    if not 0 <= plan.delta < 1:
        raise RefusalError(
            f"the plan's delta is {plan.delta:.6g}, but it must be at least 0 and below 1: correct the plan."
        )
    if not 1 <= plan.min_clients <= plan.n_clients:
        raise RefusalError(
            f"the plan's min_clients is {plan.min_clients}, but it must lie between 1 and its n_clients of "
            f"{plan.n_clients}: correct the plan."
        )
    if plan.noise not in _NOISE_SOURCES:
        raise RefusalError(
            f"the plan's noise is {_quote(plan.noise)}, but it must be 'secure' or 'seeded': correct it."
        )
    _refuse_malformed_box(plan)


def _refuse_malformed_box(plan: PlanSummary) -> None:
    """Refuse a box whose sides are not finite or not in order."""
    if len(plan.bounds_lower) != len(plan.bounds_upper):
        raise RefusalError(
            f"the plan has {len(plan.bounds_lower)} lower and {len(plan.bounds_upper)} upper bounds, but it needs as "
            "many of both: correct the plan."
        )
    for feature, (lower, upper) in enumerate(zip(plan.bounds_lower, plan.bounds_upper, strict=True)):
        if not (math.isfinite(lower) and math.isfinite(upper) and lower < upper):
            raise RefusalError(
                f"the plan's bounds of feature {feature} are [{lower:g}, {upper:g}], but they must be finite and in "
                "increasing order: correct the plan."
            )


def _within(value: float, limit: float) -> bool:
    """Whether a cost is at most its limit, up to rounding; false for NaN."""
    return value <= limit * (1.0 + _RELATIVE_SLACK)


def _is_number(value: object) -> bool:
    """Whether a value is a real number (infinity is one, a boolean and NaN are not)."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and not math.isnan(value)


def _quote(value: object) -> str:
    """Repeat a name from a plan, escaped and cut to a bounded length."""
    text = ascii(value)
    return text if len(text) <= _LONGEST_QUOTE else text[:_LONGEST_QUOTE] + "..."


def _invalid(name: str, value: object, bound: str, mend: str) -> ConfigurationError:
    """Say that a limit is not valid."""
    return ConfigurationError(f"{name} is {value!r}, but it must be {bound}: {mend}.")


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


def _bounds(value: object) -> tuple[tuple[float, float], ...]:
    """Check the allowed box: a list of (lowest, highest) pairs."""
    pairs = value if isinstance(value, (list, tuple)) else ()
    valid = all(isinstance(pair, (list, tuple)) and len(pair) == 2 and all(map(_is_number, pair)) for pair in pairs)
    if not (pairs and valid and all(pair[0] < pair[1] for pair in pairs)):
        raise _invalid("allowed_bounds", value, "a list of increasing pairs", "give one such as [[0.0, 1.0]]")
    return tuple((float(lowest), float(highest)) for lowest, highest in pairs)


def _peers(value: object) -> tuple[tuple[str, str], ...]:
    """Check the pinned peers: a table of names and keys, a list of keys, or pairs as this returns them."""
    entries: list[Any] = []
    if isinstance(value, Mapping):
        entries = list(value.items())
    elif isinstance(value, (list, tuple)):
        entries = list(value)
    if not entries:
        # An empty list is refused, too: it would look like pins, and whether it allows all or none is anybody's guess.
        bound = "a table of names and keys or a list of keys, of at least one party"
        raise _invalid("pinned_peers", value, bound, "list the other parties' keys, or leave it out")
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


DEPLOYED = ClientPolicy(allow_non_private=False, require_secure_noise=True, unstated=REQUIRED)
"""What a deployed node's policy file is read on top of: it gives nothing to runs that its owner did not speak of."""
