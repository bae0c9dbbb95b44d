"""The door to the baselines that need all rows in one place.

What each finds, and the report of what it costs.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.baselines.balcan import balcan
from flwr_dpkmeans.baselines.cover_budget import CentralLine
from flwr_dpkmeans.baselines.cover_points import Draws
from flwr_dpkmeans.baselines.max_cover import max_cover
from flwr_dpkmeans.baselines.noisy_averages import MaxCoverResult
from flwr_dpkmeans.baselines.pooled import k_fed, optimal
from flwr_dpkmeans.data.points import Bounds
from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.kernels.assignment import nearest_centroids
from flwr_dpkmeans.kernels.grid import round_to_grid
from flwr_dpkmeans.privacy.accounting import compose_epsilon
from flwr_dpkmeans.privacy.noise import NoiseKind, noise_source
from flwr_dpkmeans.privacy.release import (
    PROOF_PAGE,
    ExactRelease,
    GaussianRelease,
)
from flwr_dpkmeans.privacy.report import PrivacyReport, ReleaseLine
from flwr_dpkmeans.privacy.sentences import report_sentence
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.price import resolve_delta
from flwr_dpkmeans.sums.round import State
from flwr_dpkmeans.sums.settings import Box, EvaluationKind
from flwr_dpkmeans.sums.statement import (
    discreteness_cost,
    released_cautions,
    spending_cautions,
)
from flwr_dpkmeans.threads import one_thread

Array = NDArray[np.float64]

_Found = tuple[Array, Array, PrivacyReport]
"""Centroids, (n_clusters, n_features), in the scaled box.

Rows per cluster, noisy if private; the report.
"""
_TRUST = "central"


def fit(config: RunConfig, parts: Sequence[Array]) -> tuple[State, Box, PrivacyReport]:
    """Run a baseline on parts, (n_i, n_features) each, in the caller's units.

    a ConfigurationError if it cannot.
    """
    if config.evaluation is not EvaluationKind.NONE:
        raise ConfigurationError(
            f"evaluation is {config.evaluation.value!r}, but {config.algorithm!r} runs"
            " on all rows in one place, without rounds: leave evaluation out and"
            " measure the result there."
        )
    if config.private_bounds:
        raise ConfigurationError(
            f"bounds are 'private', but {config.algorithm!r} runs on all rows in one"
            " place and needs declared ones: give bounds, or choose 'proxy_lloyd'."
        )
    require_central(config)
    bounds = Bounds(*config.bounds).for_features(parts[0].shape[1])
    scaled = [round_to_grid(bounds.scale(part)) for part in parts]
    with one_thread():
        centroids, counts, privacy = _FITS[config.algorithm](
            config, scaled, resolve_delta(config, len(parts))
        )
    return (
        State({"centroids": centroids, "counts": counts}),
        (bounds.lower, bounds.upper),
        privacy,
    )


def require_central(config: RunConfig) -> None:
    """Refuse client-level privacy and another trust model than ``central``.

    No central baseline has either.
    """
    if not config.unit.by_row:
        raise ConfigurationError(
            f"unit is {config.unit.value!r}, but {config.algorithm!r} protects 'record'"
            " only: choose unit='record', or the algorithm 'proxy_lloyd' for 'client'."
        )
    if config.trust != _TRUST:
        raise ConfigurationError(
            f"trust is {config.trust!r}, but {config.algorithm!r} needs all rows in one"
            " place: choose trust='central', or the algorithm 'proxy_lloyd' for"
            " 'distributed'."
        )


def _optimal(
    config: RunConfig,
    parts: Sequence[Array],
    delta: float,
) -> _Found:
    """Central k-means."""
    centroids = optimal(
        parts,
        config.n_clusters,
        n_init=config.n_init,
        random_state=config.random_state,
    )
    warning = (
        "Central k-means without noise: exact centroids of all rows are released. In"
        " simulation only."
    )
    return _exact(
        config,
        parts,
        centroids,
        delta,
        warning,
    )


def _k_fed(
    config: RunConfig,
    parts: Sequence[Array],
    delta: float,
) -> _Found:
    """One-shot federated k-means."""
    centroids = k_fed(parts, config.n_clusters, random_state=config.random_state)
    warning = (
        "k-FED needs each client's own centres, which sums under masks cannot give, and"
        " adds no noise. In simulation only."
    )
    return _exact(
        config,
        parts,
        centroids,
        delta,
        warning,
    )


def _noisy(
    method: Callable[..., MaxCoverResult],
    config: RunConfig,
    parts: Sequence[Array],
    delta: float,
) -> _Found:
    """Central differentially private k-means."""
    if config.n_examples is None:
        raise ConfigurationError(
            f"n_examples is 'private', but {config.algorithm!r} releases no private"
            " count: declare a number, or choose the algorithm 'proxy_lloyd'."
        )
    seeded = config.noise is NoiseKind.SEEDED
    seed = (
        config.random_state if config.random_state is not None else secrets.randbits(62)
    )
    source = noise_source(config.noise, seed if seeded else None)
    clustering = method(
        np.concatenate(parts),
        config.n_clusters,
        epsilon=config.epsilon,
        delta=delta,
        draws=Draws(source, np.random.default_rng([seed, 1])),
        n_examples=config.n_examples,
        n_components=config.n_components,
        n_levels=config.n_levels,
    )
    warnings = (
        (
            (
                "The noise comes from a seeded generator: whoever knows the seed can"
                " subtract it."
            ),
        )
        if seeded
        else ()
    )
    report = _report(
        config,
        parts,
        delta,
        clustering.lines,
        warnings,
    )
    report = replace(
        report, warnings=report.warnings + released_cautions(report, clustering.counts)
    )
    return clustering.centroids, clustering.counts, report


_FITS: Mapping[str, Callable[[RunConfig, Sequence[Array], float], _Found]] = (
    MappingProxyType(
        {
            "k_fed": _k_fed,
            "optimal": _optimal,
            "max_cover": partial(_noisy, max_cover),
            "balcan": partial(_noisy, balcan),
        }
    )
)


def _exact(
    config: RunConfig,
    parts: Sequence[Array],
    centroids: Array,
    delta: float,
    warning: str,
) -> _Found:
    """The result of a baseline without noise."""
    labels, _ = nearest_centroids(np.concatenate(parts), centroids)
    counts = np.bincount(labels, minlength=config.n_clusters).astype(np.float64)
    theorem = "no noise: exact centroids are released, and nothing is proved [M7]."
    # All centroids of the box may move from one corner to the opposite one.
    line = CentralLine(
        ExactRelease("centroids"),
        2.0 * math.sqrt(centroids.size),
        0.0,
        theorem,
        "none",
    )
    return (
        centroids,
        counts,
        _report(
            config,
            parts,
            delta,
            [line],
            (warning,),
        ),
    )


def _lines(
    config: RunConfig,
    lines: Sequence[CentralLine],
    delta: float,
) -> tuple[ReleaseLine, ...]:
    """The report's line of each release."""
    events = [line.event for line in lines]
    return tuple(
        ReleaseLine(
            round_index=1,
            attempt=0,
            round_name=config.algorithm,
            array=line.name,
            norm="l2" if isinstance(line.event, GaussianRelease) else "l1",
            sensitivity=line.sensitivity,
            trust=_TRUST,
            noise=line.noise,
            noise_scale=line.noise_scale,
            noise_multiplier=line.noise_scale / line.sensitivity,
            theorem=line.theorem,
            epsilon_so_far=compose_epsilon(events[:position], delta),
            radius=None,
        )
        for position, line in enumerate(lines, start=1)
    )


def _report(
    config: RunConfig,
    parts: Sequence[Array],
    delta: float,
    lines: Sequence[CentralLine],
    warnings: tuple[str, ...],
) -> PrivacyReport:
    """The report of a central baseline."""
    events = [line.event for line in lines]
    epsilon = compose_epsilon(events, delta)
    private = not warnings
    # A seed or missing noise is all there is to say of a run that protects nobody.
    cautions = spending_cautions(config.epsilon, epsilon) if private else ()
    n_examples = (
        sum(len(part) for part in parts)
        if config.n_examples is None
        else config.n_examples
    )
    guarantee = (
        "One party holds all rows and publishes the noisy centroids. Holds against"
        f" everyone except that party. Proofs: {PROOF_PAGE}, row T6 and those that each"
        " line names."
        if private
        else "None: this run is not private, see the warnings."
    )
    return PrivacyReport(
        is_private=private,
        epsilon=epsilon,
        delta=delta,
        epsilon_requested=config.epsilon,
        epsilon_worst_case=epsilon,
        unit=config.unit.value,
        neighbours=report_sentence(config.unit.value),
        trust=_TRUST,
        guarantee=guarantee,
        algorithm=config.algorithm,
        noise=config.noise.value,
        n_clients=len(parts),
        n_attempts=1,
        n_examples=n_examples,
        n_examples_source="declared public",
        slack=discreteness_cost(events),
        assumptions=(
            (
                "The bounds are public knowledge and were not taken from the data;"
                " values outside are clipped."
            ),
            f"The number of rows, {n_examples}, is public knowledge.",
            (
                "Columns were matched by name."
                if config.feature_names
                else report_sentence("unnamed")
            ),
            "All rows are brought to one place: this is no federated protocol.",
        ),
        warnings=(*warnings, *cautions),
        releases=_lines(config, lines, delta),
    )
