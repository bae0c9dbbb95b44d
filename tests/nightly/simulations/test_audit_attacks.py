"""Attacks on released centroids and sums.

Measures of success, scores by hand, games of the real code, command.
"""

from __future__ import annotations

import csv
import doctest
import json
import math
import re
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from scipy.stats import norm

from flwr_dpkmeans.errors import LocalMisuseError
from flwr_dpkmeans.sums.build import build_algorithm
from simulations.audit import (
    attack_games,
    attack_reconstruction,
    attack_runs,
    attack_scores,
    attack_success,
    attacks,
)
from simulations.audit.attack_games import (
    Game,
    Played,
    contribution,
    information,
    load_pool,
    make_game,
    play,
)
from simulations.audit.attack_reconstruction import log_likelihoods, reconstruct
from simulations.audit.attack_runs import (
    ABSENT,
    Cell,
    Chunk,
    game_of,
    measure,
    run_chunk,
)
from simulations.audit.attack_scores import (
    ATTACKS,
    DIRECT,
    direct_scores,
    fit_ratio,
    shadow_features,
)
from simulations.audit.attack_success import (
    advantage,
    area_under_curve,
    epsilon_delta_bound,
    gdp_bound,
    roc_curve,
    true_positive_rate,
)
from simulations.audit.bounds import Scores


def gaussians(mu: float, runs: int, seed: int = 0) -> Scores:
    """Scores of N(0, 1) and of N(mu, 1)."""
    generator = np.random.default_rng(seed)
    return Scores(generator.normal(0.0, 1.0, runs), generator.normal(mu, 1.0, runs))


@pytest.fixture(scope="module")
def game() -> Game:
    """FastLloyd at a large epsilon, on blobs."""
    return game_of(Cell("fastlloyd", 8.0, "blobs", "seeded"))


@pytest.mark.parametrize(
    "module",
    [
        attack_games,
        attack_scores,
        attack_success,
        attack_runs,
        attack_reconstruction,
        attacks,
    ],
)
def test_examples(module: ModuleType) -> None:
    assert doctest.testmod(module).failed == 0


def test_bounds_by_hand() -> None:
    assert gdp_bound(np.array([0.1]), 2.0)[0] == pytest.approx(
        norm.cdf(norm.ppf(0.1) + 2.0)
    )
    assert gdp_bound(np.array([0.1]), math.inf)[0] == 1.0
    low, high = epsilon_delta_bound(np.array([0.01, 0.7]), 1.0, 0.02)
    assert low == pytest.approx(0.02 + math.e * 0.01)
    assert high == pytest.approx(1.0 - math.exp(-1.0) * (1.0 - 0.02 - 0.7))
    # A Gaussian plan's own curve lies below that of its epsilon and delta, and touches
    # it.
    rates, (mu, delta) = np.linspace(1e-4, 1.0, 5000), (1.0, 1e-3)
    from flwr_dpkmeans.privacy.gaussian import gaussian_epsilon

    gap = epsilon_delta_bound(rates, gaussian_epsilon(mu, delta), delta) - gdp_bound(
        rates, mu
    )
    assert 0.0 <= gap.min() + 1e-9 < 1e-4


def test_measures_of_gaussians_enclose_the_truth() -> None:
    """Of 40 at 95%, 8 misses have a probability below 1e-3."""
    mu, missed = 1.5, {"auc": 0, "advantage": 0, "rate": 0}
    for seed in range(40):
        scores = gaussians(mu, 800, seed)
        auc, best = (
            area_under_curve(scores, mu),
            advantage(gaussians(mu, 300, 1000 + seed), scores, mu),
        )
        rate = true_positive_rate(scores, 0.05, mu)
        missed["auc"] += not auc.low <= norm.cdf(mu / math.sqrt(2.0)) <= auc.high
        missed["rate"] += not rate.low <= rate.bound <= rate.high
        missed["advantage"] += best.is_above
        assert rate.bound == pytest.approx(norm.cdf(norm.ppf(0.05) + mu))
        assert auc.bound == pytest.approx(norm.cdf(mu / math.sqrt(2.0)))
        assert best.bound == pytest.approx(2.0 * norm.cdf(mu / 2.0) - 1.0)
        assert rate.low <= rate.value <= rate.high
        assert auc.high - auc.low < 0.06
        assert rate.high - rate.low < 0.35
    assert missed["auc"] <= 8
    assert missed["rate"] <= 3
    assert missed["advantage"] == 0


def test_an_attack_that_breaks_the_guarantee_is_seen() -> None:
    """Scores of twice the mu that is claimed lie above every bound."""
    cell = Cell("fastlloyd", 2.0, "blobs", "seeded")
    for actual, above in ((1.4, True), (0.5, False)):
        row = measure(
            cell,
            "canary",
            "exact",
            gaussians(actual, 500, 1),
            gaussians(actual, 2000, 2),
            0.7,
            0.9999,
        )
        assert row.is_above is above
        assert row.auc.is_above is above
        assert row.rates[0.1].is_above is above
        assert row.advantage.is_above is above


def test_rates_with_few_runs_say_nothing() -> None:
    rate = true_positive_rate(gaussians(5.0, 100), 0.001, 5.0)
    assert rate.low == 0.0
    assert rate.high > 0.9
    with pytest.raises(LocalMisuseError, match="between 0 and 1"):
        true_positive_rate(gaussians(1.0, 10), 0.0, 1.0)


def test_measures_by_hand() -> None:
    scores = Scores(np.array([0.0, 1.0, 2.0, 3.0]), np.array([2.0, 3.0, 4.0, 5.0]))
    assert area_under_curve(scores, 1.0).value == pytest.approx(
        (2.5 + 3.5 + 4 + 4) / 16
    )
    # One of four may be a false positive: above 2.0 there are three of four.
    assert true_positive_rate(scores, 0.25, 1.0).value == 0.75
    assert true_positive_rate(scores, 0.2, 1.0).value == 0.5
    assert advantage(scores, scores, 1.0).value == 0.5
    false, true = roc_curve(scores)
    assert all(a <= b for a, b in pairwise(false))
    assert (false[-1], true[-1]) == (1.0, 1.0)
    apart = area_under_curve(Scores(np.zeros(50), np.ones(50)), 1.0)
    assert (apart.value, apart.high) == (1.0, 1.0)
    assert 0.9 < apart.low < 1.0
    same = area_under_curve(Scores(np.zeros(50), np.zeros(50)), 1.0)
    assert same.value == 0.5


@pytest.mark.parametrize(
    "algorithm", ["fastlloyd", "glloyd", "proxy_lloyd", "feddp_kmeans"]
)
def test_what_is_subtracted_is_the_sum_of_the_other_rows(algorithm: str) -> None:
    """The white-box adversary works from the rows it knows."""
    own = make_game(algorithm, 2.0, load_pool("blobs"))
    assert own.epsilon == pytest.approx(2.0, rel=1e-6)
    for name, target in own.targets.items():
        played = play(own, 5, target)
        assert (played.rows[-1] == target).all(), name
        for one in played.rounds:
            step = build_algorithm(own.plan).rounds[one.index - 1]
            others = [played.rows[:-1][0::2], played.rows[:-1][1::2]]
            known = sum(
                np.concatenate(
                    [np.ravel(array) for array in step.arrays_of(rows, one.state)]
                )
                for rows in others
            )
            # A client rounds its scaled sum once, so a row's part may differ by grid
            # steps.
            left = one.exact - contribution(own.plan, one, target) - known
            assert np.abs(left).max() <= 8 * 2.0**-16
            assert np.abs((one.released - one.exact) / one.scales).max() < 6.0
        # What releases show of a row is never more than what is claimed, and of the
        # canary nearly all of it.
        assert information(own.plan, played, target) <= own.mu**2 * (1.0 + 1e-9)
    assert (
        information(own.plan, play(own, 6, None), own.targets["canary"])
        > 0.5 * own.mu**2
    )


def test_noise_has_the_planned_spread(game: Game) -> None:
    """Else all attacks would be measured against too much or too little noise."""
    residuals = np.concatenate(
        [
            (one.released - one.exact) / one.scales
            for seed in range(60)
            for one in play(game, seed, None).rounds
        ]
    )
    assert abs(residuals.std() - 1.0) < 0.06
    assert abs(residuals.mean()) < 0.06


def test_games_repeat_and_differ(game: Game) -> None:
    first, again, other = (play(game, seed, None) for seed in (3, 3, 4))
    assert (first.iterates == again.iterates).all()
    assert (first.iterates != other.iterates).any()
    assert (first.rows != other.rows).any()
    with_target = play(game, 3, game.targets["outlier"])
    assert len(with_target.rows) == len(first.rows) + 1 == game.plan.n_examples
    assert (with_target.rows[:-1] == first.rows).all()


def test_scores_by_hand(game: Game) -> None:
    played = play(game, 1, None)
    target = np.array([0.25, 0.5])
    moved = Played(
        played.rounds,
        np.array([[[0.0, 0.5], [1.0, 1.0]], [[0.125, 0.25], [1.0, 1.0]]]),
        played.rows,
    )
    nearest, average, movement, _, _ = direct_scores(
        game.plan, moved, target, present=False
    )
    assert nearest == average == pytest.approx(-math.hypot(0.125, 0.25))
    assert movement == pytest.approx(0.125)
    assert shadow_features(moved, np.array([1.0, 1.0])).tolist() == [1.0, 1.0, 0.0]
    assert shadow_features(moved, np.array([0.125, 0.0])).tolist() == [
        0.125,
        0.25,
        0.25,
    ]


def test_the_exact_ratio_is_the_difference_of_log_densities(game: Game) -> None:
    target = game.targets["canary"]
    for present in (False, True):
        played = play(game, 9, target if present else None)
        expected = 0.0
        for one in played.rounds:
            own = contribution(game.plan, one, target)
            others = one.exact - own if present else one.exact
            expected += float(
                (norm.logpdf(one.released, others + own, one.scales)).sum()
            )
            expected -= float((norm.logpdf(one.released, others, one.scales)).sum())
        exact = direct_scores(game.plan, played, target, present=present)[
            DIRECT.index("exact")
        ]
        assert exact == pytest.approx(expected, rel=1e-9)


def test_shadow_ratio_beats_chance_on_fresh_features() -> None:
    generator = np.random.default_rng(2)
    mixing = generator.normal(size=(3, 3))
    shift = np.array([0.5, 0.0, -0.5])
    draws = [generator.normal(size=(1500, 3)) @ mixing for _ in range(4)]
    ratio = fit_ratio(draws[0], draws[1] + shift)
    best = float(np.sqrt(shift @ np.linalg.solve(mixing.T @ mixing, shift)))
    auc = area_under_curve(
        Scores(ratio.scores(draws[2]), ratio.scores(draws[3] + shift)), math.inf
    )
    assert auc.low < norm.cdf(best / math.sqrt(2.0)) < auc.high
    # A few wild shadow runs do not spoil the fit.
    spoilt = draws[0].copy()
    spoilt[:20] += 1000.0
    ratio = fit_ratio(spoilt, draws[1] + shift)
    again = area_under_curve(
        Scores(ratio.scores(draws[2]), ratio.scores(draws[3] + shift)), math.inf
    )
    assert again.value > auc.value - 0.03
    # Features that never change do no harm.
    constant = fit_ratio(np.ones((50, 2)), np.ones((50, 2)))
    assert np.isfinite(constant.scores(np.ones((3, 2)))).all()


def test_attacks_order_as_they_should(game: Game) -> None:
    """White box beats chance clearly at epsilon 8, below the bound."""
    for algorithm, least in (("fastlloyd", 0.8), ("lloyd", 1.0)):
        cell = Cell(algorithm, 8.0, "blobs", "seeded")
        absent, _ = run_chunk(Chunk(cell, ABSENT, False, 0, 50))
        present, features = run_chunk(Chunk(cell, "canary", False, 0, 50))
        assert (absent.shape, present.shape, features.shape) == (
            (3, 50, 5),
            (1, 50, 5),
            (1, 50, 3),
        )
        place = DIRECT.index("exact")
        scores = Scores(absent[2, :, place], present[0, :, place])
        auc = area_under_curve(scores, game.mu, 0.999999)
        assert auc.value >= least
        if algorithm == "fastlloyd":
            assert not auc.is_above
        else:
            assert (
                area_under_curve(
                    Scores(absent[2, :, 0], present[0, :, 0]), math.inf
                ).value
                > 0.75
            )


def test_reconstruction(game: Game) -> None:
    """Without noise the row is read off."""
    exact = reconstruct(game_of(Cell("lloyd", 8.0, "blobs", "seeded")), 2)
    assert exact.errors["box attack"] < 1e-9
    assert exact.errors["box guess"] > 0.2
    noisy = reconstruct(game, 5)
    assert 0.05 < noisy.gains["rows attack"] < noisy.errors["rows guess"]


def test_likelihoods_are_log_densities_up_to_a_constant(game: Game) -> None:
    target, candidates = game.pool.rows[0], game.pool.rows[1:6]
    played = play(game, 2, target)
    found = log_likelihoods(game, played, target, candidates)
    expected = np.zeros(len(candidates))
    for one in played.rounds:
        others = one.exact - contribution(game.plan, one, target)
        for place, row in enumerate(candidates):
            mean = others + contribution(game.plan, one, row)
            expected[place] += norm.logpdf(one.released, mean, one.scales).sum()
    assert np.diff(found) == pytest.approx(np.diff(expected), rel=1e-6, abs=1e-9)


def test_games_of_different_kinds_share_nothing() -> None:
    """Else attacks would know what they are measured on."""
    cell = Cell("glloyd", 8.0, "blobs", "seeded")
    kinds = [
        (ABSENT, False),
        (ABSENT, True),
        ("outlier", False),
        ("outlier", True),
        ("typical", False),
    ]
    features = [
        run_chunk(Chunk(cell, world, shadow, 0, 2))[1][0, :, :2]
        for world, shadow in kinds
    ]
    assert len({tuple(one.ravel()) for one in features}) == len(kinds)
    noises = []
    for seed in (
        attack_runs.seed_of(Chunk(cell, world, shadow, 0, 2)) for world, shadow in kinds
    ):
        noises.append(tuple(play(game_of(cell), seed, None).rounds[0].released))
    assert len(set(noises)) == len(kinds)


def test_likelihoods_prefer_the_true_row_where_there_is_hardly_noise() -> None:
    loud = make_game("fastlloyd", 2000.0, load_pool("blobs"))
    target = loud.pool.rows[3]
    played = play(loud, 1, target)
    candidates = np.concatenate([loud.pool.rows[:20]])
    assert int(np.argmax(log_likelihoods(loud, played, target, candidates))) == 3


def test_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = [
        "algorithm=glloyd,lloyd",
        "epsilon=8",
        "data=blobs",
        "trials=20",
        "shadows=20",
        "reconstructions=2",
    ]
    assert attacks.main([*arguments, "workers=1", f"output={tmp_path}"]) == 0
    printed = capsys.readouterr().out
    assert str(tmp_path / "attacks.csv") in printed
    with (tmp_path / "attacks.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 2 * 3 * len(ATTACKS)
    assert {line["above_bound"] for line in lines} == {"False"}
    stored = json.loads((tmp_path / "attacks.json").read_text())
    assert [one["algorithm"] for one in stored["reconstruction"]] == ["glloyd", "lloyd"]
    assert stored["attacks"][0]["tpr_at_0.01_bound"] == pytest.approx(
        float(gdp_bound(np.array([0.01]), stored["attacks"][0]["mu"])[0])
    )
    assert (tmp_path / "attacks.png").read_bytes().startswith(b"\x89PNG")
    # The same games are not played again, other ones are.
    scores = tmp_path / "scores"
    written = {path: path.stat().st_mtime_ns for path in scores.iterdir()}
    table = (tmp_path / "attacks.csv").read_bytes()
    arguments[-1] = "reconstructions=0"
    assert attacks.main([*arguments, "workers=1", f"output={tmp_path}"]) == 0
    assert (tmp_path / "attacks.csv").read_bytes() == table
    assert written == {path: path.stat().st_mtime_ns for path in scores.iterdir()}
    # Nor are scores taken for today's that other code left.
    for path in (tmp_path / "scores").iterdir():
        with np.load(path) as stored:
            np.savez(path, **{**stored, "code": "another"})  # type: ignore[arg-type]
    capsys.readouterr()
    assert attacks.main([*arguments, "workers=1", f"output={tmp_path}"]) == 2
    assert re.search(
        r"2 of 2 files of scores in .* take them with other_code=true",
        capsys.readouterr().err,
    )
    assert (
        attacks.main([*arguments, "workers=1", f"output={tmp_path}", "other_code=true"])
        == 0
    )
