"""Is the noise of shares what the accountant assumed, and are the coins of sampled
clients what they should be?

The server's view of an aggregation, less the shares of those that work with it, must
have the planned variance: not less, which would not be private, and not more, which
would be waste. A check rejects right noise with probability below 1e-7, and wrong
noise, 30 percent off in variance either way, with almost certainty.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from support.protocol_federation import make_federation, record_truth
from support.watching import calls_of
from support.wrong_trust import plant_trust

from flwr_dpkmeans import federate
from flwr_dpkmeans.algorithms.server.held_points import hold_points
from flwr_dpkmeans.flower.client.wrapped import Wrapped
from flwr_dpkmeans.flower.strategy import PrivateKMeans
from flwr_dpkmeans.node.policy import ClientPolicy
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.privacy.noise import NoiseSource, SecureNoise, SeededNoise
from flwr_dpkmeans.privacy.release import Block, GaussianRelease, vector_length
from flwr_dpkmeans.secagg.ring import FixedPointVector
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.local import run_direct
from flwr_dpkmeans.sums.plan import Plan, PlannedRound, takes_part
from flwr_dpkmeans.sums.public_facts import ServerFacts
from flwr_dpkmeans.sums.trust import Distributed, Shares, trust_model

GRID = 2.0**16
LEVEL = 1e-7
LEAST_SAMPLE = 4000
DISTRIBUTED = trust_model("distributed")
FACTS = ServerFacts(40, (0.0,) * 6, 0.8, 0.5, 1.5, 1.2, 1.3)


def plan_of(
    n_clients: int, facts: ServerFacts = FACTS, seed: int = 1, **values: Any
) -> Plan:
    config = parse_config(
        **(
            {
                "n_clusters": 4,
                "bounds": ((-1.0,), (1.0,)),
                "algorithm": "feddp_kmeans",
                "trust": "distributed",
                "max_iter": 1,
                "noise": "seeded",
                "random_state": seed,
            }
            | values
        )
    )
    return draft_plan(
        config,
        run_id=1,
        n_clients=n_clients,
        seed=seed,
        n_features=len(facts.centre),
        server=facts,
    )


def variance_p(sample: NDArray[np.float64], std: float) -> float:
    """Two-sided p-value of the sample's sum of squares, by chi-square."""
    statistic = float((sample**2).sum()) / std**2
    return float(
        2
        * min(
            stats.chi2.cdf(statistic, sample.size),
            stats.chi2.sf(statistic, sample.size),
        )
    )


def accepts_only(sample: NDArray[np.float64], std: float) -> None:
    """The sample has this standard deviation, and the test would have seen 30 percent
    of variance either way.
    """
    assert sample.size >= LEAST_SAMPLE
    assert variance_p(sample, std) > LEVEL
    for factor in (0.7, 1.3):
        assert variance_p(sample * math.sqrt(factor), std) < LEVEL
        assert variance_p(sample, std * math.sqrt(factor)) < LEVEL


def assumed_std(plan: Plan, index: int) -> list[float]:
    """Standard deviation, in grid steps, that the accountant's events stand for."""
    events = plan.events([index])
    blocks = plan.round_at(index).blocks
    assert len(events) == len(blocks)
    found = []
    for event, block in zip(events, blocks, strict=True):
        assert isinstance(event, GaussianRelease)
        found.append(event.noise_multiplier * block.sensitivity.bound * GRID)
    return found


def split(
    values: NDArray[np.int64], blocks: Sequence[Block]
) -> list[NDArray[np.float64]]:
    cuts = np.cumsum([block.size for block in blocks])[:-1]
    return [part.astype(np.float64) for part in np.split(values, cuts, axis=-1)]


def view_of(
    n_shares: int, blocks: Sequence[Block], shares: Shares, source: NoiseSource
) -> NDArray[np.int64]:
    """The sum of so many clients' vectors whose statistics are zero."""
    nothing = FixedPointVector(np.zeros(vector_length(blocks), dtype=np.uint64))
    vectors = [
        DISTRIBUTED.contribute(nothing, blocks, 16, shares, source).values
        for _ in range(n_shares)
    ]
    return np.sum(vectors, axis=0, dtype=np.uint64).view(np.int64)


# -- shares ----------------------------------------------------------------------------


@pytest.mark.parametrize("unit", ["record", "client"])
@pytest.mark.parametrize(
    ("n_clients", "silent"), [(3, 0), (8, 0), (8, 1), (8, 3), (30, 10)]
)
def test_honest_shares_alone_carry_what_the_accountant_assumed(
    unit: str, n_clients: int, silent: int
) -> None:
    """M - max(1, t)."""
    plan = plan_of(n_clients, unit=unit, max_silent=silent)
    shares = Shares(n_clients, silent)
    assert plan.shares == shares
    n_honest = n_clients - max(1, silent)
    assert shares.n_honest == n_honest
    source = SeededNoise(np.random.default_rng(n_clients + silent))
    for index, planned in enumerate(plan.rounds, start=1):
        smallest = min(block.size for block in planned.blocks)
        draws = -(-LEAST_SAMPLE // smallest)
        views = np.stack(
            [view_of(n_honest, planned.blocks, shares, source) for _ in range(draws)]
        )
        for sample, std in zip(
            split(views, planned.blocks), assumed_std(plan, index), strict=True
        ):
            accepts_only(sample.ravel(), std)


def test_secure_shares_are_of_the_same_size() -> None:
    facts = ServerFacts(1100, (0.0,) * 6, 0.8, 0.5)
    plan = plan_of(5, facts, noise="secure", max_silent=2)
    blocks = plan.rounds[1].blocks
    views = np.stack([view_of(3, blocks, plan.shares, SecureNoise()) for _ in range(4)])
    accepts_only(views.ravel().astype(np.float64), assumed_std(plan, 2)[0])


def test_shares_are_discrete_gaussians_and_independent() -> None:
    facts = ServerFacts(3000, (0.0,) * 6, 0.8, 0.5)
    plan = plan_of(4, facts)
    blocks = plan.rounds[1].blocks
    source = SeededNoise(np.random.default_rng(0))
    single = [
        view_of(1, blocks, plan.shares, source).astype(np.float64) for _ in range(3)
    ]
    share = assumed_std(plan, 2)[0] / math.sqrt(3)
    for sample in single:
        assert stats.kstest(sample / share, "norm").pvalue > LEVEL
        assert stats.kstest(sample / share * 1.3, "norm").pvalue < LEVEL
    for a, b in itertools.combinations(single, 2):
        assert abs(np.corrcoef(a, b)[0, 1]) < 6 / math.sqrt(3000)


def test_a_smaller_roster_gets_larger_shares() -> None:
    """After a dropout the others' shares still add up to the planned noise."""
    facts = ServerFacts(LEAST_SAMPLE, (0.0,) * 6, 0.8, 0.5)
    plan = plan_of(9, facts, max_silent=2)
    for left in (9, 8, 7):
        shares = Shares(left, plan.max_silent)
        view = view_of(
            left - 2,
            plan.rounds[1].blocks,
            shares,
            SeededNoise(np.random.default_rng(left)),
        )
        accepts_only(view.astype(np.float64), assumed_std(plan, 2)[0])


class Recorder:
    """What goes into and comes out of every client's half of the trust model."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.statistics: list[NDArray[np.int64]] = []
        self.noise: list[NDArray[np.int64]] = []
        self.shares: list[Shares] = []
        recorder = self

        class Recorded(Distributed):
            def contribute(
                self, vector: Any, blocks: Any, bits: int, shares: Shares, source: Any
            ) -> Any:
                result = super().contribute(vector, blocks, bits, shares, source)
                recorder.statistics.append(vector.values.view(np.int64).copy())
                recorder.noise.append((result.values - vector.values).view(np.int64))
                recorder.shares.append(shares)
                return result

        plant_trust(patch, Recorded())


def points_of(n: int, d: int = 6, seed: int = 0) -> NDArray[np.float64]:
    return np.rint(np.random.default_rng(seed).uniform(-0.9, 0.9, (n, d)) * GRID) / GRID


@pytest.mark.parametrize("unit", ["record", "client"])
def test_the_noise_of_a_whole_run_less_one_clients_share(
    monkeypatch: pytest.MonkeyPatch, unit: str
) -> None:
    """The server and one client see the planned noise."""
    recorder = Recorder(monkeypatch)
    plan = plan_of(6, unit=unit)
    held = hold_points(plan.config, points_of(LEAST_SAMPLE))
    plan = plan_of(6, held.facts, unit=unit, n_init=1)
    run_direct(
        plan, [points_of(30, seed=i) for i in range(6)], server_points=held.on_server
    )
    weights = np.stack(recorder.noise[6:12]).astype(np.float64)
    assert {shares.n_honest for shares in recorder.shares} == {5}
    for own in range(6):
        accepts_only(weights.sum(axis=0) - weights[own], assumed_std(plan, 2)[0])
    # Everybody together has a sixth more variance than was planned.
    accepts_only(weights.sum(axis=0), assumed_std(plan, 2)[0] * math.sqrt(6 / 5))
    # No client draws the same noise as another one, nor the same twice.
    streams = {noise[:20].tobytes() for noise in recorder.noise}
    assert len(streams) == len(recorder.noise)


# -- coins -----------------------------------------------------------------------------

RATE = 0.3


def sampled_plan(seed: int = 1, rate: float = RATE, noise: str = "seeded") -> Plan:
    """A plan whose coins are looked at, without the noise that would have to be
    calibrated for it.
    """
    plan = plan_of(50, seed=seed, unit="client")
    config = parse_config(
        n_clusters=4,
        bounds=((-1.0,), (1.0,)),
        algorithm="feddp_kmeans",
        trust="distributed",
        unit="client",
        noise=noise,
        client_sampling_rate=rate,
        max_iter=1,
    )
    return replace(plan, config=config)


def coins(plan: Plan, nodes: int, rounds: int, attempts: int = 1) -> NDArray[np.bool_]:
    return np.array(
        [
            [
                [takes_part(plan, n, r, a) for a in range(attempts)]
                for r in range(1, rounds + 1)
            ]
            for n in range(2, nodes + 2)
        ]
    )


@pytest.mark.parametrize("noise", ["seeded", "secure"])
@pytest.mark.parametrize("rate", [0.1, 0.3, 0.9])
def test_coins_fall_as_often_as_they_should(noise: str, rate: float) -> None:
    thrown = coins(sampled_plan(rate=rate, noise=noise), 4000, 4)
    assert stats.binomtest(int(thrown.sum()), thrown.size, rate).pvalue > LEVEL
    for factor in (0.7, 1.3):
        other = min(rate * factor, 0.999)
        assert stats.binomtest(int(thrown.sum()), thrown.size, other).pvalue < LEVEL


@pytest.mark.parametrize("noise", ["seeded", "secure"])
def test_coins_are_independent_over_rounds_clients_attempts_and_seeds(
    noise: str,
) -> None:
    def dependence(a: NDArray[np.bool_], b: NDArray[np.bool_]) -> float:
        table = np.array(
            [[(a & b).sum(), (a & ~b).sum()], [(~a & b).sum(), (~a & ~b).sum()]]
        )
        return float(stats.chi2_contingency(table, correction=False).pvalue)

    thrown = coins(sampled_plan(rate=0.5, noise=noise), 1200, 3, 2)
    for first, second in itertools.combinations(
        [(r, a) for r in range(3) for a in range(2)], 2
    ):
        assert dependence(thrown[:, *first], thrown[:, *second]) > LEVEL
    # Neighbouring clients, and clients a power of two apart.
    for lag in (1, 2, 16):
        assert dependence(thrown[lag:].ravel(), thrown[:-lag].ravel()) > LEVEL
    other = coins(sampled_plan(seed=2, rate=0.5, noise=noise), 1200, 3, 2)
    assert dependence(thrown.ravel(), other.ravel()) > LEVEL
    # The check sees what it should see.
    assert dependence(thrown.ravel(), thrown.ravel()) < LEVEL
    # Each client's number of rounds is binomial.
    times = thrown.reshape(len(thrown), -1).sum(axis=1)
    expected = stats.binom.pmf(np.arange(7), 6, 0.5) * len(thrown)
    assert stats.chisquare(np.bincount(times, minlength=7), expected).pvalue > LEVEL


def test_secure_coins_do_not_depend_on_any_seed() -> None:
    seeded, secure = sampled_plan(rate=0.5), sampled_plan(rate=0.5, noise="secure")
    assert np.array_equal(coins(seeded, 200, 1), coins(seeded, 200, 1))
    found = []
    for _ in range(2):
        random.seed(0)
        np.random.seed(0)  # noqa: NPY002
        found.append(coins(secure, 200, 1))
    assert not np.array_equal(*found)


def test_everybody_takes_part_without_sampling_and_in_a_count() -> None:
    assert coins(sampled_plan(rate=1.0), 300, 2).all()
    plan = sampled_plan(rate=0.01)
    counting = replace(plan, preliminary=(PlannedRound("count", "distributed", ()),))
    assert all(takes_part(counting, node, 0, 0) for node in range(300))
    assert not all(takes_part(counting, node, 1, 0) for node in range(300))


def test_who_stays_out_sends_zeros_under_full_noise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A whole run."""
    recorder = Recorder(monkeypatch)
    n_clients = 400
    # Sums that can be recovered always have masks, which would take most of the time.
    values = {
        "unit": "client",
        "client_sampling_rate": RATE,
        "masking": False,
        "dropout": "retry",
    }
    held = hold_points(plan_of(n_clients, **values).config, points_of(40))
    plan = plan_of(n_clients, held.facts, **values, n_init=1)
    run_direct(
        plan,
        [points_of(5, seed=i) for i in range(n_clients)],
        server_points=held.on_server,
    )
    assert len(recorder.noise) == 4 * n_clients
    rounds = [
        recorder.statistics[i * n_clients : (i + 1) * n_clients] for i in range(4)
    ]
    there = np.array([[bool(vector.any()) for vector in vectors] for vectors in rounds])
    assert stats.binomtest(int(there.sum()), there.size, RATE).pvalue > LEVEL
    # The coins are those of `takes_part`: one for all arrays of a round, another one in
    # the next round.
    expected = [
        [takes_part(plan, 2 + i, r, 0) for i in range(n_clients)] for r in range(1, 5)
    ]
    assert np.array_equal(there, np.array(expected))
    assert len({row.tobytes() for row in there}) == 4
    for index, (planned, present) in enumerate(
        zip(plan.rounds, there, strict=True), start=1
    ):
        noise = np.stack(recorder.noise[(index - 1) * n_clients : index * n_clients])
        share = plan.shares.factor
        for part, block in zip(
            split(noise, planned.blocks), planned.blocks, strict=True
        ):
            std = block.noise_scale * GRID * share
            for who in (present, ~present):
                sample = part[who].ravel()
                assert variance_p(sample, std) > LEVEL
                if sample.size >= LEAST_SAMPLE:
                    accepts_only(sample, std)


def sampled_federation(rate: float) -> tuple[Any, Any, Plan]:
    kept = record_truth()
    federation = make_federation(
        [points_of(20, seed=i) for i in range(12)], policy=ClientPolicy(max_delta=0.5)
    )
    config = parse_config(
        n_clusters=3,
        bounds=((-1.0,), (1.0,)),
        algorithm="feddp_kmeans",
        trust="distributed",
        unit="client",
        client_sampling_rate=rate,
        random_state=3,
        n_features=6,
        n_init=1,
        max_iter=3,
        noise="seeded",
    )
    strategy = PrivateKMeans.from_config(
        config, server_points=points_of(30, seed=99), on_step=lambda _: None
    )
    with federation.grid.running():
        strategy.start(federation.grid)
    return kept, federation, strategy.run.plan


def test_clients_behind_the_mod_send_zeros_under_full_noise() -> None:
    """The same through Flower's messages."""
    kept, federation, plan = sampled_federation(0.5)
    there = []
    for (index, attempt), vectors in kept.statistics.items():
        assert len(vectors) == 12
        for node, statistic in vectors.items():
            noise = kept.sent[index, attempt][node] - statistic
            assert np.count_nonzero(noise) >= 0.99 * noise.size - 1
            there.append(bool(statistic.any()))
            assert there[-1] is takes_part(plan, node, index, attempt)
    assert len(there) == 12 * 6
    assert 15 <= sum(there) <= 57
    sizes: dict[int, set[int]] = {}
    for position, message in enumerate(federation.grid.received):
        for record in message.content.array_records.values():
            sizes.setdefault(position // 12, set()).add(
                sum(len(array.data) for array in record.values())
            )
    assert all(len(found) == 1 for found in sizes.values())


def test_staying_out_takes_the_same_work() -> None:
    """Amplification holds only while nobody learns the coins."""
    with calls_of(Wrapped.compute) as asked:
        sampled_federation(0.5)
    assert len(asked) == 12 * 6


# -- what is told of it ----------------------------------------------------------------


@pytest.mark.parametrize("trust", ["oblivious", "central", "distributed"])
@pytest.mark.parametrize("n_clients", [2, 3, 8])
def test_the_noise_that_a_report_tells_is_in_the_release(
    trust: str, n_clients: int
) -> None:
    """Shares that nobody counts on are there all the same."""
    rows = [np.zeros((500, 1))] * n_clients
    found = federate(
        "histograms", rows, bounds=(-1, 1), trust=trust, bins=4000, epsilon=1.0
    )
    (line,) = found.privacy.releases
    (counts,) = found["counts"]
    empty = np.delete(counts, counts.argmax())  # the zeros are in one bin
    assert np.std(empty) == pytest.approx(line.standard_deviation, rel=0.06)
    assert line.surplus == pytest.approx(
        math.sqrt(n_clients / (n_clients - 1)) if trust == "distributed" else 1.0
    )
