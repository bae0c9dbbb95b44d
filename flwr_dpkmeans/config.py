"""The one configuration object of a clustering run; `flwr run`, the estimator, the strategies and Hydra all build it.

Everything in `KMeansConfig` is public: it travels to every client inside the plan.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, TypeVar

from flwr_dpkmeans.errors import ConfigurationError, nearest
from flwr_dpkmeans.kmeans.packing import PackingMethod
from flwr_dpkmeans.kmeans.update import PostProcessing
from flwr_dpkmeans.privacy.samplers import NoiseKind
from flwr_dpkmeans.privacy.sensitivity import PrivacyUnit

EnumT = TypeVar("EnumT", bound=Enum)


class NoiseFamily(Enum):
    """Noise of FedDP-KMeans: one Gaussian accounting for everything, or the paper's Gaussian and Laplace mixture."""

    GAUSSIAN = "gaussian"
    PAPER = "paper"


class Schedule(Enum):
    """FastLloyd's radius over the iterations: half the diagonal first, then the radius; or always the radius."""

    STEP = "step"
    CONSTANT = "constant"


@dataclass(frozen=True)
class KMeansConfig:
    """Public parameters of a run.

    Parameters
    ----------
    n_clusters : int
        Number of clusters, k >= 1.
    bounds : pair of tuples of float
        Public lower and upper bounds, each of length 1 (every feature) or n_features.
    algorithm : str
        Name of a registered algorithm.
    epsilon : float
        Cost of a run without dropouts, > 0.
    delta : float or None
        None: 1/(N ln N) if N is declared, else 1e-6.
    unit : PrivacyUnit
        Unit of privacy.
    trust : str
        Name of a registered trust model.
    noise : NoiseKind
        Secure by default.
    feature_names : tuple of str
        Names that the bounds belong to, in their order; a client whose columns are named otherwise refuses. Empty:
        bounds are matched by position.
    n_examples : int or None
        Number of rows in all, if it is public; None: estimated with `count_share` of the budget.
    n_features : int or None
        Width of the table; None: asked from the clients (it is schema, not data).
    max_iter : int or None
        Overrides the algorithm's number of iterations; 0 is for algorithms whose start is private already.
    alpha, schedule, post_processing, radius_clipping
        FastLloyd's options; `post_processing` None means the algorithm's own default.
    packing : PackingMethod
        Sphere packing's search.
    random_state : int or None
        Seed of the public randomness (and of the noise, if that is seeded); None: drawn for the run.
    n_clients : int or None
        Cohort to wait for; None: whoever is there.
    min_clients : int
        Smallest cohort whose sum is released, >= 2.
    max_silent : int or None
        Clients that may collude or fall silent; None: 0 up to 32 clients, 20 above.
    max_retries : int
        Attempts that may follow a dropout; each one costs.
    max_epsilon : float or None
        Refuse a plan whose worst case (all retries used) costs more.
    count_share : float
        Share of the budget that the private count takes when `n_examples` is None.
    noise_kind : NoiseFamily
        FedDP-KMeans and the baselines on its rounds: noise of sums, histograms and counts.
    budget_shares : tuple of four floats or None
        FedDP-KMeans: shares of outer product, weights, sums, counts; None: the paper's rule of thumb for the unit.
    lloyd_share : float
        FedDP-KMeans: share of the budget that all Lloyd rounds together take, if there are any.
    weight_threshold : float or None
        FedDP-KMeans: weights below so many standard deviations of their noise are dropped; None: 2 at record level, 1
        at client level, where the noise is larger beside the weights (measured on the paper's mixture).
    n_init : int
        FedDP-KMeans: restarts of k-means on the server points.
    margin : float
        FedDP-KMeans: rows whose distances to the two nearest centres have a larger ratio are left out of the centers
        round; 1 keeps all.
    data_radius, outer_product_bound, weights_bound, means_bound, indicators_bound : float or None
        FedDP-KMeans' clip bounds, in the caller's units, relative to the server points' mean; None: from server data.
    examples_per_client : int
        Declared number of rows of a client, for the clip bounds of client-level privacy.
    client_sampling_rate : float
        Client-level privacy: each client takes part in a round with this probability, by a coin of its own.
    choose_n_clusters : bool
        Let the algorithm choose the number of clusters, up to `n_clusters`.
    masking : bool
        False turns masks off, in simulation without Flower only.

    Raises
    ------
    ConfigurationError
        If a value is of the wrong type or out of range.

    Examples
    --------
    >>> KMeansConfig(n_clusters=3, bounds=((-1.0,), (1.0,))).algorithm
    'fastlloyd'
    """

    n_clusters: int
    bounds: tuple[tuple[float, ...], tuple[float, ...]]
    algorithm: str = "fastlloyd"
    epsilon: float = 1.0
    delta: float | None = None
    unit: PrivacyUnit = PrivacyUnit.RECORD
    trust: str = "oblivious"
    noise: NoiseKind = NoiseKind.SECURE
    n_examples: int | None = None
    n_features: int | None = None
    max_iter: int | None = None
    alpha: float = 0.8
    schedule: Schedule = Schedule.STEP
    post_processing: PostProcessing | None = None
    radius_clipping: bool = True
    packing: PackingMethod = PackingMethod.BISECT
    random_state: int | None = None
    n_clients: int | None = None
    min_clients: int = 2
    max_silent: int | None = None
    max_retries: int = 1
    max_epsilon: float | None = None
    count_share: float = 0.02
    feature_names: tuple[str, ...] = ()
    noise_kind: NoiseFamily = NoiseFamily.GAUSSIAN
    budget_shares: tuple[float, ...] | None = None
    lloyd_share: float = 0.3
    weight_threshold: float | None = None
    n_init: int = 20
    margin: float = 1.0
    data_radius: float | None = None
    outer_product_bound: float | None = None
    weights_bound: float | None = None
    means_bound: float | None = None
    indicators_bound: float | None = None
    examples_per_client: int = 50
    client_sampling_rate: float = 1.0
    choose_n_clusters: bool = False
    masking: bool = True

    def __post_init__(self) -> None:
        for name, least, whole in _INTEGERS:
            _require_integer(name, getattr(self, name), least, whole)
        for name, low, high, example in _REALS:
            _require_real(name, getattr(self, name), low, high, example)
        for name in ("algorithm", "trust"):
            if not isinstance(getattr(self, name), str):
                raise ConfigurationError(f"{name} is {getattr(self, name)!r}, but it must be a name: give a string.")
        for name in ("radius_clipping", "choose_n_clusters", "masking"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigurationError(
                    f"{name} is {getattr(self, name)!r}, but it must be a boolean: give True or False."
                )
        for name, kind in _CHOICES.items():
            value = getattr(self, name)
            if not isinstance(value, kind) and not (name == "post_processing" and value is None):
                raise ConfigurationError(f"{name} is {value!r}, but it must be a {kind.__name__}: use parse_config.")
        for name, most in _LARGEST.items():
            if (getattr(self, name) or 0) > most:
                raise ConfigurationError(
                    f"{name} is {getattr(self, name)}, but it must be at most {most}: give a smaller one."
                )
        _require_bounds(self.bounds, self.n_features)
        _require_shares(self.budget_shares)
        _require_sampling(self.client_sampling_rate, self.unit)
        if self.margin > 1.0:
            raise ConfigurationError(
                f"margin is {self.margin:g}, but a nearest distance is at most the second one: give 1.0 or less."
            )
        if self.n_examples is not None and self.n_examples < self.n_clusters:
            raise ConfigurationError(
                f"n_examples is {self.n_examples}, but {self.n_clusters} clusters need at least as many rows: "
                "choose fewer clusters or add data."
            )
        per_record = self.unit is PrivacyUnit.RECORD
        if (
            per_record
            and self.delta is not None
            and self.n_examples is not None
            and self.delta >= 1.0 / self.n_examples
        ):
            raise ConfigurationError(
                f"delta is {self.delta:g}, but it must be below 1/N = {1.0 / self.n_examples:g} or a run may publish "
                "whole rows: leave delta unset for 1/(N ln N)."
            )
        if self.n_clients is not None and self.n_clients < self.min_clients:
            raise ConfigurationError(
                f"n_clients is {self.n_clients}, but min_clients asks for at least {self.min_clients}: "
                "start more clients or lower min_clients."
            )


_INTEGERS: tuple[tuple[str, int, int], ...] = (
    ("n_clusters", 1, 10),
    ("n_examples", 1, 1000),
    ("n_features", 1, 2),
    ("max_iter", 0, 5),
    ("random_state", 0, 7),
    ("n_clients", 2, 10),
    ("min_clients", 2, 2),
    ("max_silent", 0, 1),
    ("max_retries", 0, 1),
    ("n_init", 1, 20),
    ("examples_per_client", 1, 50),
)
_LARGEST = {
    "n_clusters": 100_000,
    "n_features": 65_536,
    "max_iter": 1_000,
    "max_retries": 1_000,
    "n_init": 10_000,
    "examples_per_client": 10_000_000,
}
"""A plan comes from a server that may be hostile, so what a client builds from it is bounded."""
_REALS: tuple[tuple[str, float, float, str], ...] = (
    ("epsilon", 0.0, math.inf, "1.0"),
    ("delta", 0.0, 1.0, "1e-6"),
    ("alpha", 0.0, math.inf, "0.8"),
    ("max_epsilon", 0.0, math.inf, "2.0"),
    ("count_share", 0.0, 0.5, "0.02"),
    ("lloyd_share", 0.0, 1.0, "0.3"),
    ("weight_threshold", -5e-324, math.inf, "1.5"),
    ("margin", 0.0, math.inf, "1.0"),
    ("data_radius", 0.0, math.inf, "11.0"),
    ("outer_product_bound", 0.0, math.inf, "1500.0"),
    ("weights_bound", 0.0, math.inf, "1.0"),
    ("means_bound", 0.0, math.inf, "21.0"),
    ("indicators_bound", 0.0, math.inf, "10.0"),
    ("client_sampling_rate", 0.0, math.inf, "0.1"),
)
_CHOICES: dict[str, type[Enum]] = {
    "unit": PrivacyUnit,
    "noise": NoiseKind,
    "schedule": Schedule,
    "post_processing": PostProcessing,
    "packing": PackingMethod,
    "noise_kind": NoiseFamily,
}
DEFAULT_MAX_CLUSTERS = 20
"""Largest number of clusters that ``n_clusters="auto"`` considers."""
CLIP_BOUNDS = ("data_radius", "outer_product_bound", "weights_bound", "means_bound", "indicators_bound")
"""Fields that hold a clip bound of FedDP-KMeans."""
_OPTIONAL = frozenset(
    (
        *("delta", "n_examples", "n_features", "max_iter", "random_state", "n_clients", "max_silent", "max_epsilon"),
        *("weight_threshold", *CLIP_BOUNDS),
    )
)


def resolve_n_clusters(n_clusters: object, max_clusters: int) -> dict[str, Any]:
    """Turn ``"auto"`` into the fields that let the algorithm choose.

    Examples
    --------
    >>> resolve_n_clusters("auto", 20)
    {'n_clusters': 20, 'choose_n_clusters': True}
    >>> resolve_n_clusters(3, 20)
    {'n_clusters': 3}
    """
    if n_clusters == "auto":
        return {"n_clusters": max_clusters, "choose_n_clusters": True}
    if isinstance(n_clusters, str) and not n_clusters.isdigit():
        raise ConfigurationError(f"n_clusters is {n_clusters!r}, but it must be a number or 'auto': give 10.")
    return {"n_clusters": int(n_clusters) if isinstance(n_clusters, str) else n_clusters}


def parse_config(**values: Any) -> KMeansConfig:
    """Build a configuration from plain values: strings for choices, any real for a float.

    Parameters
    ----------
    **values
        Fields of `KMeansConfig`; unknown names are refused with the nearest valid one.

    Returns
    -------
    KMeansConfig

    Raises
    ------
    ConfigurationError
        With one sentence that names the value, the bound and the mend.

    Examples
    --------
    >>> parse_config(n_clusters=3, bounds=((0,), (1,)), unit="record").unit
    <PrivacyUnit.RECORD: 'record'>
    """
    known = {field.name for field in fields(KMeansConfig)}
    for name in values:
        if name not in known:
            raise ConfigurationError(f"there is no parameter {name!r}: {nearest(name, known)}")
    for name, example in (("n_clusters", "10"), ("bounds", "(-1.0, 1.0), which must be public")):
        if name not in values:
            raise ConfigurationError(f"{name!r} is missing, but every run needs it: give a value such as {example}.")
    converted = dict(values)
    for name, kind in _CHOICES.items():
        if name in converted and converted[name] is not None:
            converted[name] = choice(name, converted[name], kind)
    for name, *_ in _REALS:
        if name in converted:
            converted[name] = _as_real(converted[name])
    for name, *_ in _INTEGERS:
        if name in converted and converted[name] is not None and not isinstance(converted[name], bool):
            converted[name] = _as_integer(converted[name])
    if converted.get("budget_shares") is not None:
        converted["budget_shares"] = _as_shares(converted["budget_shares"])
    return KMeansConfig(**converted)


def _as_shares(value: object) -> object:
    """Accept a sequence of numbers, or a string of numbers with commas, as budget shares."""
    parts = value.split(",") if isinstance(value, str) else value
    try:
        return tuple(float(part) for part in parts)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        return value


def _require_shares(shares: object) -> None:
    """One sentence for budget shares that are not four positive numbers."""
    if shares is None:
        return
    usable = isinstance(shares, tuple) and len(shares) == 4 and all(_is_finite(s) and s > 0.0 for s in shares)
    if not usable:
        raise ConfigurationError(
            f"budget_shares are {shares!r}, but they must be four positive numbers (outer product, weights, sums, "
            "counts): give (0.2, 0.2, 0.45, 0.15)."
        )


def _require_sampling(rate: float, unit: PrivacyUnit) -> None:
    """One sentence for a sampling rate that is no probability, or that would hide no client."""
    if rate > 1.0:
        raise ConfigurationError(
            f"client_sampling_rate is {rate:g}, but it is a probability: give a number above 0 and at most 1."
        )
    if rate < 1.0 and unit is not PrivacyUnit.CLIENT:
        raise ConfigurationError(
            f"client_sampling_rate is {rate:g}, but sampling clients amplifies client-level privacy only: choose "
            "unit='client' or leave the rate at 1."
        )


def choice(name: str, value: object, kind: type[EnumT]) -> EnumT:
    """Turn a string into a member of an enumeration, or say which one is nearest."""
    if isinstance(value, kind):
        return value
    for member in kind:
        if member.value == value:
            return member
    raise ConfigurationError(f"{name} is {value!r}, which is not known: {nearest(value, (m.value for m in kind))}")


def _as_integer(value: object) -> object:
    """Accept NumPy integers and whole floats (a TOML or Hydra number) as integers."""
    index = getattr(value, "__index__", None)
    if index is not None:
        return index()
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _as_real(value: object) -> object:
    """Accept integers and NumPy numbers as floats; an integer beyond their range becomes infinite, and is refused."""
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        return value
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _require_integer(name: str, value: object, low: int, example: int) -> None:
    """One sentence for a count that is not an integer of at least `low`."""
    if value is None and name in _OPTIONAL:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise ConfigurationError(f"{name} is {value!r}, but it must be an integer of at least {low}: give {example}.")


def _require_real(name: str, value: object, low: float, high: float, example: str) -> None:
    """One sentence for a number outside the open interval (low, high)."""
    if value is None and name in _OPTIONAL:
        return
    if not isinstance(value, int | float) or isinstance(value, bool) or not low < value < high:
        least = f"greater than {low:g}" if low >= 0.0 else "of at least 0"
        bound = least if math.isinf(high) else f"between {low:g} and {high:g}"
        raise ConfigurationError(f"{name} is {value!r}, but it must be a finite number {bound}: give {example}.")


def _require_bounds(bounds: object, n_features: int | None) -> None:
    """One sentence for bounds that are missing, reversed, not finite or of the wrong number."""
    if not isinstance(bounds, tuple) or len(bounds) != 2 or not all(isinstance(b, tuple) for b in bounds):
        raise ConfigurationError(f"bounds are {bounds!r}, but they must be a pair (lower, upper): give (-1.0, 1.0).")
    lower, upper = bounds
    if len(lower) != len(upper) or not lower:
        raise ConfigurationError(
            f"there are {len(lower)} lower and {len(upper)} upper bounds, but each feature needs one of both."
        )
    if n_features is not None and len(lower) not in (1, n_features):
        raise ConfigurationError(
            f"there are bounds for {len(lower)} features, but the table has {n_features}: give one pair for all "
            "features or one pair for each."
        )
    for feature, (low, high) in enumerate(_pairs(lower, upper)):
        if not all(map(_is_finite, (low, high))) or not low < high:
            raise ConfigurationError(
                f"feature {feature} has lower bound {low!r} and upper bound {high!r}, but the lower one must be finite "
                "and below the upper one: swap or widen them, and leave out a constant column."
            )


def _is_finite(value: object) -> bool:
    """Whether a bound is a number at all, and a finite one."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _pairs(lower: Iterable[float], upper: Iterable[float]) -> Iterable[tuple[float, float]]:
    """Zip two bound tuples of equal length."""
    return zip(lower, upper, strict=True)
