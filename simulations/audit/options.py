"""What the command line asks for: `key=value` arguments, lists of audits, and the grid
over everything.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from flwr_dpkmeans.algorithms.lookup import clusterings
from flwr_dpkmeans.errors import ConfigurationError, DPKMeansError, nearest
from flwr_dpkmeans.options import option_defaults
from flwr_dpkmeans.privacy.release import NoiseShape
from flwr_dpkmeans.sums.option_rules import Rule, rule_of
from flwr_dpkmeans.sums.settings import Settings
from flwr_dpkmeans.sums.task import TASKS
from flwr_dpkmeans.sums.trust import TRUST_MODELS
from simulations.audit.audit import ONE_RUN, AuditOptions
from simulations.audit.cases import build_cases
from simulations.experiments.workers import workers_of

DEFAULT_OUTPUT = "outputs/audit"
_LISTS = ("algorithm", "trust", "unit", "adversary", "case", "engine", "method")
_WHOLE = ("trials", "until", "retries", "workers")
_NUMBERS = ("n_clients", "n_features")
"""Whole numbers of a run that its cases need before the configuration is checked."""
_OWN = ("workers", "output", "suite")
_SUITES = ("all", "quick")
_NOTHING = ("none", "private", "")
SUITE_TRIALS = 2500
TIGHT_TRIALS = 10_000
"""Of single Gaussian releases, which show how tight a bound can be."""
_SLOW = {
    "feddp_kmeans": 1000,
    "feddp_choose_k": 1000,
    "server_lloyd": 1000,
    "proxy_lloyd": 1500,
}
"""Runs with k-means in them take some three times as long."""
QUICK_TRIALS = 150


@dataclass(frozen=True)
class Request:
    """What is to be done.

    Parameters
    ----------
    audits : tuple of AuditOptions
        In order.
    workers : int
        Processes.
    output : Path
        Folder of the results.
    name : str
        Of its files.
    """

    audits: tuple[AuditOptions, ...]
    workers: int
    output: Path
    name: str


def parse_request(arguments: Sequence[str]) -> Request:
    """Read `key=value` arguments.

    Parameters
    ----------
    arguments : sequence of str
        Keys of `AuditOptions`, fields of `RunConfig`, ``workers``, ``output`` and
        ``suite``;
        those in `_LISTS` take several values, separated by commas.

    Returns
    -------
    Request

    Raises
    ------
    ConfigurationError
        If a key is unknown, or has a value that it cannot have.

    Examples
    --------
    >>> request = parse_request(["algorithm=glloyd,sulloyd", "trust=central"])
    >>> [(audit.algorithm, audit.trust) for audit in request.audits]
    [('glloyd', 'central'), ('sulloyd', 'central')]
    """
    texts = _read(arguments)
    workers = workers_of(texts.pop("workers", None))
    output, suite = Path(texts.pop("output", DEFAULT_OUTPUT)), texts.pop("suite", None)
    if suite is not None:
        if suite not in _SUITES:
            raise ConfigurationError(
                f"suite is {suite!r}, which is not known: {nearest(suite, _SUITES)}"
            )
        others = [key for key in texts if key not in ("trials", "confidence")]
        if others:
            raise ConfigurationError(
                f"{others[0]} was given with suite={suite!r}, which sets it itself:"
                " leave one of the two out."
            )
        changes = {key: _audit_value(key, text) for key, text in texts.items()}
        return Request(
            tuple(replace(audit, **changes) for audit in suite_audits(suite)),
            workers,
            output,
            f"audit_{suite}",
        )
    lists = {key: texts.pop(key).split(",") for key in _LISTS if key in texts}
    common: dict[str, Any] = {}
    for key in _audit_keys():
        if key in texts:
            common[key] = _audit_value(key, texts.pop(key))
    values = {}
    for key, text in texts.items():
        value = plain(text)
        if key in _NUMBERS and value is not None:
            value = _whole(key, text)
        values[key] = value
    audits = []
    for names in itertools.product(*lists.values()):
        choice: dict[str, Any] = dict(zip(lists, names, strict=True))
        audits.append(AuditOptions(**choice, **common, values=values))
    return Request(tuple(audits), workers, output, "audit")


def plain(text: str) -> Any:
    """Read a value: a number, true, false, none, or a word.

    Examples
    --------
    >>> plain("0.5"), plain("3"), plain("true"), plain("none"), plain("paper")
    (0.5, 3, True, None, 'paper')
    """
    lowered = text.lower()
    if lowered in _NOTHING[:1] or not text:
        return None
    if lowered in ("true", "false"):
        return lowered == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def suite_audits(name: str) -> tuple[AuditOptions, ...]:
    """The audits of a suite: ``quick``, or ``all`` combinations that exist, with what
    runs can have besides.
    """
    if name == "quick":
        return tuple(replace(audit, trials=QUICK_TRIALS) for audit in _quick())
    return (*_grid(), *_besides())


def _quick() -> Iterator[AuditOptions]:
    """One of each kind, in seconds.

    At an epsilon that so few runs can say something about.
    """
    short = {"max_iter": 1, "epsilon": 8.0}
    yield AuditOptions("fastlloyd", trust="oblivious", case="edge", values=short)
    yield AuditOptions(
        "fastlloyd", trust="oblivious", case="edge", adversary="server", values=short
    )
    yield AuditOptions(
        "sphere_packing", trust="distributed", unit="client", case="edge", values=short
    )
    yield AuditOptions("sulloyd", trust="central", case="edge", values=short)


def _grid() -> Iterator[AuditOptions]:
    """Every algorithm, unit and trust model that go together."""
    for algorithm, entry in clusterings().items():
        if entry.noise is NoiseShape.NONE:
            continue
        trials = _SLOW.get(algorithm, SUITE_TRIALS)
        for unit, trust in itertools.product(entry.units, TRUST_MODELS):
            audit = AuditOptions(
                algorithm, unit.value, trust, trials=trials, case="edge"
            )
            try:
                build_cases(algorithm, trust, unit.value, "edge", {})
            except DPKMeansError:
                continue
            yield audit


def _besides() -> Iterator[AuditOptions]:
    """Other adversaries, releases and noise, and attempts that are repeated."""
    base = AuditOptions("glloyd", trust="central", case="edge", trials=SUITE_TRIALS)
    yield replace(base, algorithm="fastlloyd", trust="oblivious", adversary="server")
    yield replace(
        base,
        algorithm="proxy_lloyd",
        trust="oblivious",
        adversary="server",
        trials=1500,
    )
    yield replace(base, trust="distributed", adversary="clients")
    yield replace(
        base,
        algorithm="fastlloyd",
        trust="central",
        trials=TIGHT_TRIALS,
        values={"max_iter": 1},
    )
    # Epsilons at which the count by itself, with 49% of the budget, has one of about 1.
    count = {"n_examples": None, "count_share": 0.49, "epsilon": 1.5}
    yield replace(base, trust="oblivious", until=0, trials=TIGHT_TRIALS, values=count)
    outer = AuditOptions(
        "feddp_kmeans", "client", "central", case="edge", until=1, trials=TIGHT_TRIALS
    )
    yield replace(outer, values={"epsilon": 2.1})
    yield replace(base, algorithm="sulloyd", until=0, trials=5000, values=count)
    yield replace(
        base,
        values={"private_bounds": True, "bounds_share": 0.3, "max_iter": 1},
        trials=1000,
    )
    yield replace(
        base,
        values={
            "evaluation": "private",
            "evaluation_share": 0.49,
            "max_iter": 1,
            "evaluation_radius": 0.1,
        },
    )
    profile = {
        "profile_widths": (1, 1, 2),
        "profile_share": 0.49,
        "schema_digest": "0" * 64,
        "max_iter": 1,
    }
    yield replace(base, values=profile)
    yield replace(base, algorithm="sphere_packing", unit="client", values=profile)
    gaps = profile | {"gap_columns": (0, 1, -1)}
    yield replace(base, values=gaps)
    sampled = {"client_sampling_rate": 0.5, "max_iter": 1}
    yield replace(
        base,
        algorithm="sphere_packing",
        unit="client",
        trust="distributed",
        values=sampled,
    )
    paper = {"noise_kind": "paper", "max_iter": 1}
    yield replace(base, algorithm="sphere_packing", values=paper)
    yield replace(base, algorithm="sphere_packing", unit="client", values=paper)
    messages = replace(base, engine="messages", trials=400, values={"max_iter": 1})
    yield replace(messages, trust="oblivious")
    yield replace(messages, trust="distributed", retries=1)
    yield replace(
        messages,
        trust="distributed",
        retries=1,
        values={"max_iter": 1, "dropout": "recover"},
    )
    yield replace(
        base, algorithm="fastlloyd", method=ONE_RUN, trials=100, values={"epsilon": 8.0}
    )


def _read(arguments: Iterable[str]) -> dict[str, str]:
    """Arguments by key; ``--all`` and ``--quick`` are suites."""
    texts: dict[str, str] = {}
    for argument in arguments:
        if argument in ("--all", "--quick"):
            argument = f"suite={argument[2:]}"
        key, equals, value = argument.partition("=")
        if not equals:
            raise ConfigurationError(
                f"{argument!r} is no key=value: give one such as algorithm=fastlloyd,"
                " or --all."
            )
        if key not in _all_keys():
            raise ConfigurationError(
                f"there is no key {key!r}: {nearest(key, _all_keys())}"
            )
        _require_single(key, value)
        texts[key] = value
    return texts


def _require_single(key: str, text: str) -> None:
    """Refuse several values of a key that takes one.

    Some options of a run are lists themselves.
    """
    first, comma, _ = text.partition(",")
    if not comma or key in (*_LISTS, "output"):
        return
    kinds: tuple[Any, ...] = (
        Settings,
        *TASKS.values(),
        *(kind.option_class() for kind in TASKS.values()),
    )
    rules = [
        rule_of(option)
        for kind in kinds
        for option in fields(kind)
        if option.name == key
    ]
    takes_one = key in (*_audit_keys(), *_OWN, *_NUMBERS) or any(
        rule is not None and _takes(rule, first) and not _takes(rule, text)
        for rule in rules
    )
    if takes_one:
        raise ConfigurationError(
            f"{key} is {text!r}, but it takes one value: give {first}; several are for"
            f" {', '.join(_LISTS)}."
        )


def _takes(rule: Rule, text: str) -> bool:
    """Whether an option may have a value."""
    try:
        rule.take("", plain(text))
    except (ConfigurationError, TypeError):
        return False
    return True


def _audit_keys() -> tuple[str, ...]:
    """Keys of an audit's own."""
    return tuple(field.name for field in fields(AuditOptions) if field.name != "values")


def _all_keys() -> tuple[str, ...]:
    """All keys that there are."""
    return (*_audit_keys(), *_OWN, *option_defaults())


def _audit_value(key: str, text: str) -> Any:
    """A value of `AuditOptions`."""
    if key in _WHOLE:
        return _whole(key, text)
    if key == "confidence":
        try:
            return float(text)
        except ValueError:
            raise ConfigurationError(
                f"confidence is {text!r}, but it must be a number: give 0.95."
            ) from None
    return text


def _whole(key: str, text: str) -> int:
    """A whole number."""
    try:
        return int(text)
    except ValueError:
        raise ConfigurationError(
            f"{key} is {text!r}, but it must be a whole number: give 2."
        ) from None


def differences(values: Mapping[str, Any]) -> str:
    """Further values of an audit, for its row."""
    return " ".join(f"{key}={value}" for key, value in values.items())
