"""The one configuration object of a clustering run; `flwr run`, the estimator, the strategies and Hydra all build it.

Everything in `KMeansConfig` is public: it travels to every client inside the plan.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any

from flwr_dpkmeans.config_checks import (
    as_integer,
    as_real,
    as_shares,
    choice,
    require_bounds,
    require_cells,
    require_integer,
    require_names,
    require_real,
    require_sampling,
    require_shares,
)
from flwr_dpkmeans.errors import ConfigurationError, nearest
from flwr_dpkmeans.kmeans.packing import PackingMethod
from flwr_dpkmeans.kmeans.update import PostProcessing
from flwr_dpkmeans.privacy.noise import NoiseKind
from flwr_dpkmeans.privacy.release import PrivacyUnit

DEFAULT_ALGORITHM = "proxy_lloyd"
"""What a run takes unless another algorithm is chosen."""


class NoiseFamily(Enum):
    """Noise of FedDP-KMeans: one Gaussian accounting for everything, or the paper's Gaussian and Laplace mixture."""

    GAUSSIAN = "gaussian"
    PAPER = "paper"


class Schedule(Enum):
    """FastLloyd's radius over the iterations: half the diagonal first, then the radius; or always the radius."""

    STEP = "step"
    CONSTANT = "constant"


class Evaluation(Enum):
    """Metrics of the result: none, one more private round, or exact sums, which only a simulation may release."""

    NONE = "none"
    PRIVATE = "private"
    EXACT = "exact"


class Dropout(Enum):
    """What happens when clients fall silent: the sum is asked for again without them, or recovered from key shares."""

    RETRY = "retry"
    RECOVER = "recover"


RECOVER_ABOVE = 100
"""Deployed cohorts larger than this recover sums unless told otherwise: a repetition would hardly find them all."""


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
        None: 1/(N ln N) if N is declared, else 1e-6. A private count of so many rows that this is not below 1/N
        lowers it.
    unit : PrivacyUnit
        Unit of privacy.
    trust : str
        Name of a registered trust model.
    noise : NoiseKind
        Secure by default.
    feature_names : tuple of str
        Names of the columns, in the order that bounds and server data have; each client puts its table in it, and one
        whose columns are named otherwise refuses. Empty: clients compare digests of their names.
    allow_unnamed : bool
        Let tables without column names take part beside named ones: they are matched by position.
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
        Clients that may collude or fall silent; None: with ``dropout="retry"`` 0 up to 32 clients, above that a tenth
        of them, at most 20; with ``"recover"`` an eighth of them, at least 1.
    dropout : Dropout or None
        What happens when clients fall silent. Retry: one round trip for each aggregation, which is repeated without
        them. Recover: two round trips, and any n - `max_silent` clients are enough. None:
        recover in deployments of more than `RECOVER_ABOVE` clients, else retry.
    max_retries : int
        Attempts that may follow a dropout; what they can cost is charged beforehand.
    max_epsilon : float or None
        Refuse a plan whose worst case (all retries used) costs more; where rows are counted first, no more is charged.
    count_share : float
        Share of the budget that the private count takes when `n_examples` is None.
    private_bounds : bool
        Let private histograms find each column's range; `bounds` then is the public domain that it lies in.
    bounds_share : float
        Share of the budget that these histograms take together.
    evaluation : Evaluation
        Whether one more round after the algorithm's last measures the result.
    evaluation_share : float
        Share of the budget that a private evaluation takes.
    n_classes : int
        Public number of label classes that an evaluation counts by; 0: labels are not looked at.
    evaluation_radius : float or None
        Distance, in scaled units, from which on an evaluation counts rows as if they were there; None: from k and d.
    noise_kind : NoiseFamily
        FedDP-KMeans and the baselines on its rounds: noise of sums, histograms and counts.
    budget_shares : tuple of four floats or None
        FedDP-KMeans: shares of outer product, weights, sums, counts; None: the paper's rule of thumb for the unit.
    lloyd_share : float
        FedDP-KMeans: share of the budget that all Lloyd rounds together take, if there are any; without effect, and not
        refused, if there are none, since ``start(num_rounds=...)`` may still ask for some.
    weight_threshold : float
        FedDP-KMeans: weights below so many standard deviations of their noise are dropped, except the largest 40%.
    n_init : int
        FedDP-KMeans: restarts of k-means on the server points.
    server_prior : bool
        FedDP-KMeans: let the server points' own outer product support the noisy one, by precision; False: the released
        matrix alone, as in the paper.
    margin : float
        FedDP-KMeans: rows whose distances to the two nearest centres have a larger ratio are left out of the centers
        round; 1 keeps all.
    data_radius, outer_product_bound, weights_bound, means_bound, indicators_bound : float or None
        FedDP-KMeans' clip bounds, in the caller's units, relative to the server points' mean; None: from server data.
    examples_per_client : int
        Declared number of rows of a client, for the clip bounds of client-level privacy; a private count counts no
        more of each.
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
    'proxy_lloyd'
    """

    n_clusters: int
    bounds: tuple[tuple[float, ...], tuple[float, ...]]
    algorithm: str = DEFAULT_ALGORITHM
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
    allow_unnamed: bool = False
    noise_kind: NoiseFamily = NoiseFamily.GAUSSIAN
    budget_shares: tuple[float, ...] | None = None
    lloyd_share: float = 0.3
    weight_threshold: float = 3.0
    n_init: int = 20
    margin: float = 1.0
    server_prior: bool = True
    data_radius: float | None = None
    outer_product_bound: float | None = None
    weights_bound: float | None = None
    means_bound: float | None = None
    indicators_bound: float | None = None
    examples_per_client: int = 50
    client_sampling_rate: float = 1.0
    choose_n_clusters: bool = False
    masking: bool = True
    private_bounds: bool = False
    bounds_share: float = 0.05
    evaluation: Evaluation = Evaluation.NONE
    evaluation_share: float = 0.05
    n_classes: int = 0
    evaluation_radius: float | None = None
    dropout: Dropout | None = None

    def __post_init__(self) -> None:
        for name, least, whole in _INTEGERS:
            if getattr(self, name) is not None or name not in _OPTIONAL:
                require_integer(name, getattr(self, name), least, whole)
        for name, low, high, example in _REALS:
            if getattr(self, name) is not None or name not in _OPTIONAL:
                require_real(name, getattr(self, name), low, high, example)
        for name in ("algorithm", "trust"):
            if not isinstance(getattr(self, name), str):
                raise ConfigurationError(f"{name} is {getattr(self, name)!r}, but it must be a name: give a string.")
        for name in (
            "radius_clipping",
            "choose_n_clusters",
            "server_prior",
            "masking",
            "private_bounds",
            "allow_unnamed",
        ):
            if not isinstance(getattr(self, name), bool):
                raise ConfigurationError(
                    f"{name} is {getattr(self, name)!r}, but it must be a boolean: give True or False."
                )
        for name, kind in _CHOICES.items():
            value = getattr(self, name)
            if not isinstance(value, kind) and not (name in _OPTIONAL_CHOICES and value is None):
                raise ConfigurationError(f"{name} is {value!r}, but it must be a {kind.__name__}: use parse_config.")
        for name, most in _LARGEST.items():
            if (getattr(self, name) or 0) > most:
                raise ConfigurationError(
                    f"{name} is {getattr(self, name)}, but it must be at most {most}: give a smaller one."
                )
        require_bounds(self.bounds, self.n_features)
        require_names(self.feature_names, len(self.bounds[0]), self.n_features)
        self._require_no_distances()
        self._require_room()
        require_cells(self.n_clusters, self.n_classes)
        require_shares(self.budget_shares)
        require_sampling(self.client_sampling_rate, self.unit)
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

    def dropout_of(self, n_clients: int) -> Dropout:
        """What happens when clients fall silent: as given, else by the size of the cohort."""
        if self.dropout is not None:
            return self.dropout
        return Dropout.RECOVER if n_clients > RECOVER_ABOVE else Dropout.RETRY

    def preliminary_share(self, *, counts: bool) -> float:
        """Share of the budget that the releases before the algorithm's own take, with a private count or without."""
        count = self.count_share if counts and self.n_examples is None else 0.0
        return count + (self.bounds_share if self.private_bounds else 0.0)

    def reserved_share(self, *, counts: bool) -> float:
        """Share of the budget that is not the algorithm's own: of releases before it, and of a private evaluation."""
        evaluated = self.evaluation_share if self.evaluation is Evaluation.PRIVATE else 0.0
        return self.preliminary_share(counts=counts) + evaluated

    def _require_room(self) -> None:
        """Refuse shares that leave the algorithm nothing, and an exact evaluation that would miss clients."""
        if self.reserved_share(counts=True) >= 1.0:
            raise ConfigurationError(
                f"count_share, bounds_share and evaluation_share together are {self.reserved_share(counts=True):g}, "
                "but they must leave the algorithm a part of the budget: give smaller ones."
            )
        if self.evaluation is Evaluation.EXACT and self.client_sampling_rate < 1.0:
            raise ConfigurationError(
                f"evaluation is 'exact', but client_sampling_rate is {self.client_sampling_rate:g}, so that clients "
                "sit out: choose evaluation='private' or leave the rate at 1."
            )

    def _require_no_distances(self) -> None:
        """Refuse clip bounds in the data's units where the box, and so their scale, is not known yet."""
        for name in ("data_radius", "outer_product_bound", "means_bound"):
            if self.private_bounds and getattr(self, name) is not None:
                raise ConfigurationError(
                    f"{name} is {getattr(self, name)}, in the units of the data, but with private bounds the box that "
                    f"data are scaled to is not known before the run: leave {name} out, or give bounds."
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
    ("n_classes", 0, 3),
)
_LARGEST = {
    "n_clusters": 100_000,
    "n_examples": 10**15,
    "n_features": 65_536,
    "max_iter": 1_000,
    "max_retries": 1_000,
    "n_init": 10_000,
    "examples_per_client": 10_000_000,
    "n_classes": 100_000,
}
"""A plan comes from a server that may be hostile, so what a client builds from it is bounded."""
_REALS: tuple[tuple[str, float, float, str], ...] = (
    ("epsilon", 0.0, math.inf, "1.0"),
    ("delta", 0.0, 1.0, "1e-6"),
    ("alpha", 1e-6, 1e6, "0.8"),
    ("max_epsilon", 0.0, math.inf, "2.0"),
    ("count_share", 0.0, 0.5, "0.02"),
    ("bounds_share", 0.0, 0.5, "0.05"),
    ("evaluation_share", 0.0, 0.5, "0.05"),
    ("evaluation_radius", 1e-6, 1e6, "0.5"),
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
    "evaluation": Evaluation,
    "dropout": Dropout,
}
_OPTIONAL_CHOICES = ("post_processing", "dropout")
DEFAULT_MAX_CLUSTERS = 20
"""Largest number of clusters that ``n_clusters="auto"`` considers."""
CLIP_BOUNDS = ("data_radius", "outer_product_bound", "weights_bound", "means_bound", "indicators_bound")
"""Fields that hold a clip bound of FedDP-KMeans."""
_OPTIONAL = frozenset(
    (
        *("delta", "n_examples", "n_features", "max_iter", "random_state", "n_clients", "max_silent", "max_epsilon"),
        "evaluation_radius",
        *CLIP_BOUNDS,
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
    if isinstance(n_clusters, str) and n_clusters == "auto":
        require_integer("max_clusters", as_integer(max_clusters), 1, DEFAULT_MAX_CLUSTERS)
        return {"n_clusters": max_clusters, "choose_n_clusters": True}
    if max_clusters != DEFAULT_MAX_CLUSTERS:
        raise ConfigurationError(
            f"max_clusters is {max_clusters!r}, but n_clusters is {n_clusters!r} and not 'auto', so that it has no "
            "effect: leave one of the two out."
        )
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
        if name in converted and not (name in _OPTIONAL_CHOICES and converted[name] is None):
            converted[name] = choice(name, converted[name], kind)
    for name, *_ in _REALS:
        if name in converted:
            converted[name] = as_real(converted[name])
    for name, *_ in _INTEGERS:
        if name in converted and converted[name] is not None and not isinstance(converted[name], bool):
            converted[name] = as_integer(converted[name])
    if converted.get("budget_shares") is not None:
        converted["budget_shares"] = as_shares(converted["budget_shares"])
    return KMeansConfig(**converted)
