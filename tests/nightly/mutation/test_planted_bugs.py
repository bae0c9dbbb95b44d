"""Planted bugs of the noise; and the table of all of them, with who catches what.

Detectors (`*_detectors.py`; none knows of a bug):

* AUDIT: `simulations.audit`, many runs with a target and without, the lower bound at
  confidence 1 - 1e-6;
* NOISE: one run with many entries: released less exact, for somebody who knows all
  rows, less what colluders put in;
* BOUND: real statistics on neighbouring tables, in the states of a real run, exact;
* CLAIM: what the releases of a run show of a target, added up, beside the claim
  (`simulations.audit.information`);
* NOBODY: a client without rows sends zeros, and how rows are spread over clients does
  not matter;
* WIRE: what the server gets, and what it can add and subtract; replies, logs and
  metrics of runs on unlike data;
* PRICE: vectors that were really sent, late ones too, priced by a formula of our own;
* COIN: who adds something of its own, in many runs of one plan.

Each bug (`*_bugs.py`), and what catches it:

* half the noise, of the server; of the shares: AUDIT, NOISE; NOISE;
* noise drawn once and kept: AUDIT (repeated), NOISE;
* one stream for sums and counts: AUDIT (residuals), NOISE;
* noise from the plan's seed: AUDIT (residuals), NOISE;
* an attempt's noise used again in the retry: NOISE;
* the triangle noised twice and averaged: NOISE;
* sigma / M instead of sigma / sqrt(M - t); t forgotten: NOISE;
* shares for the first cohort after a dropout: NOISE;
* the root of the multiplier: NOISE;
* rounded floats for integers: NOISE (the sampler at one grid step); nothing at large
  scales;
* the result read off the exact sum: NOISE (published counts);
* no noise on a sum that the server cannot read: NOISE;
* sensitivity without the radius: BOUND, CLAIM;
* residuals not divided by the released radius: BOUND;
* no radius in round 2: BOUND, CLAIM;
* no clip of a client's vector; of means; of rows: BOUND;
* rounded away from zero: BOUND;
* no slack for the rounded triangle: BOUND (CLAIM does not look at such rows);
* Laplace noise for a Euclidean bound (plan; clip): BOUND, CLAIM; BOUND;
* another cluster's centroid; a row in two clusters: BOUND;
* empty clusters counted as 1, before relative sums: BOUND, NOBODY;
* empty clusters sent as 1: NOBODY alone: no neighbour moves further than before;
* number of rows, inertia, movement in a reply: WIRE;
* exact sizes in the server's log; in its metrics: WIRE;
* one mask for all rounds; one blinding for all rounds: WIRE;
* one blinding for all attempts: WIRE (a late reply completes a readable difference);
* one mask for all attempts: WIRE (streams that are used twice; no word is readable);
* no blinding; tags without a key: WIRE;
* recovered sums opened twice: WIRE;
* report, ledger, worst case: round not attempt: PRICE;
* evaluation, count not charged: CLAIM, PRICE; CLAIM;
* delta counted twice; rounds forgotten: PRICE; CLAIM, PRICE;
* one coin for all; coins of the seed; always in: COIN.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from support import leak_bugs, noise_bugs
from support.noise_detectors import (
    Noise,
    audited,
    noise_of_published_counts,
    noise_of_retried_run,
    noise_of_run,
    require_claim,
    require_enough,
    require_exact_sampler,
    require_unrelated,
)
from support.planting import Bug, planted, require_caught

from flwr_dpkmeans.privacy.noise import NoiseKind, noise_source
from simulations.audit.audit import AuditResult

LARGE: dict[str, Any] = {"n_clusters": 40, "n_features": 8, "masking": False}
"""So many entries that one run shows the noise."""


# -- AUDIT -----------------------------------------------------------------------------


def audit(algorithm: str, epsilon: float, trials: int, max_iter: int) -> AuditResult:
    values = {"epsilon": epsilon, "max_iter": max_iter}
    return audited(algorithm=algorithm, trust="central", trials=trials, values=values)


clean_audit = cache(audit)


@pytest.mark.parametrize(
    ("bug", "options"),
    [
        (noise_bugs.half_the_noise_of_the_server, ("glloyd", 8.0, 500, 1)),
        (noise_bugs.one_stream_for_all_arrays, ("glloyd", 4.0, 120, 1)),
        (noise_bugs.noise_from_a_seed, ("glloyd", 4.0, 120, 1)),
        (noise_bugs.noise_drawn_once_and_kept, ("fastlloyd", 4.0, 120, 2)),
    ],
)
def test_the_audit_refutes_the_claim_of_a_planted_bug(
    bug: Bug, options: tuple[str, float, int, int]
) -> None:
    require_claim(clean_audit(*options))
    with planted(bug), pytest.raises(AssertionError, match="is claimed"):
        require_claim(audit(*options))


# -- NOISE: how much -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bug", "algorithm"),
    [
        (noise_bugs.half_the_noise_of_the_server, "glloyd"),
        (noise_bugs.half_the_noise_of_the_server, "sulloyd"),
        (noise_bugs.variance_for_the_deviation, "fastlloyd"),
    ],
)
def test_too_little_noise_of_the_server_is_caught_in_one_run(
    bug: Bug, algorithm: str
) -> None:
    require_caught(
        bug,
        lambda: require_enough(noise_of_run(algorithm, "central", **LARGE)),
        "of the planned noise",
    )


@pytest.mark.parametrize(
    "bug",
    [
        noise_bugs.half_the_noise_of_the_shares,
        noise_bugs.shares_of_variance_over_the_square,
        noise_bugs.silent_clients_not_subtracted,
    ],
)
def test_shares_that_are_too_small_are_caught_in_one_run(bug: Bug) -> None:
    """By a server that works with t clients."""
    values = LARGE | {"n_clients": 5, "max_silent": 2, "max_iter": 4}
    require_caught(
        bug,
        lambda: require_enough(noise_of_run("glloyd", "distributed", **values)),
        "of the planned noise",
    )


def test_shares_that_do_not_grow_after_a_dropout_are_caught() -> None:
    def detect() -> None:
        require_enough(
            noise_of_retried_run("glloyd", n_clusters=80, n_features=8, max_iter=4)
        )

    require_caught(
        noise_bugs.shares_for_the_first_cohort, detect, "of the planned noise"
    )


@pytest.mark.parametrize("algorithm", ["feddp_kmeans", "proxy_lloyd"])
def test_a_symmetric_matrix_noised_twice_is_caught(algorithm: str) -> None:
    def detect() -> None:
        require_enough(
            noise_of_run(
                algorithm, "central", n_clusters=3, n_features=40, masking=False
            )
        )

    require_caught(
        noise_bugs.triangle_noised_twice_and_averaged,
        detect,
        "outer_product.* of the planned noise",
    )


def test_a_hidden_sum_without_noise_is_caught_by_its_readers() -> None:
    def detect() -> None:
        require_enough(
            noise_of_run(
                "fastlloyd",
                "oblivious",
                "clients",
                n_clusters=40,
                n_features=8,
                max_iter=2,
            )
        )

    require_caught(
        leak_bugs.no_noise_on_a_sum_that_is_hidden, detect, "0.000 of the planned noise"
    )


def test_a_result_of_exact_sums_is_caught() -> None:
    def detect() -> None:
        kind = leak_bugs.ExactResult
        require_enough(noise_of_published_counts(strategy_class=kind))

    require_caught(leak_bugs.note_sums, detect, "0.000 of the planned noise")


def test_rounded_floats_are_caught_at_the_smallest_scale() -> None:
    require_exact_sampler(noise_source(NoiseKind.SECURE).discrete_gaussian)
    with pytest.raises(AssertionError, match="not a discrete Gaussian"):
        require_exact_sampler(noise_bugs.RoundedNoise().discrete_gaussian)


# -- NOISE: of whom --------------------------------------------------------------------


def of_two_runs(trust: str) -> list[Noise]:
    return [
        noise
        for _ in range(2)
        for noise in noise_of_run("glloyd", trust, max_iter=2, **LARGE)
    ]


@pytest.mark.parametrize(
    ("bug", "trust"),
    [
        (noise_bugs.noise_drawn_once_and_kept, "central"),
        (noise_bugs.one_stream_for_all_arrays, "central"),
        (noise_bugs.noise_from_a_seed, "central"),
        (noise_bugs.noise_from_a_seed, "distributed"),
    ],
)
def test_noise_that_is_used_twice_is_caught_in_two_runs(bug: Bug, trust: str) -> None:
    require_caught(bug, lambda: require_unrelated(of_two_runs(trust)), "share noise")


def test_noise_that_a_retry_uses_again_is_caught() -> None:
    def detect() -> None:
        require_unrelated(
            noise_of_retried_run("glloyd", n_clusters=40, n_features=8, max_iter=2)
        )

    require_caught(noise_bugs.noise_of_an_attempt_used_again, detect, "share noise")
