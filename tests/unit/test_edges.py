"""Edges that nothing else looks at: defaults, ties, exact squares, and checks that are
left out where nobody asks.
"""

from __future__ import annotations

import logging
import math
import re
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from flwr_dpkmeans import FederatedKMeans
from flwr_dpkmeans.__main__ import main
from flwr_dpkmeans.algorithms import kmeans_task
from flwr_dpkmeans.algorithms.kmeans_task import counts_std
from flwr_dpkmeans.algorithms.moments import MomentsTask
from flwr_dpkmeans.algorithms.naive_bayes import pulled_together
from flwr_dpkmeans.algorithms.noise_budget import root_at_least
from flwr_dpkmeans.data.partition import MixtureClients
from flwr_dpkmeans.data.points import Bounds, read_ranges
from flwr_dpkmeans.data.schema import widened
from flwr_dpkmeans.deploy.app_guard import Guard, GuardError, write_programs
from flwr_dpkmeans.errors import ConfigurationError, PlanError, ProtocolError
from flwr_dpkmeans.flower.kmeans_client import KMeansClient
from flwr_dpkmeans.kmeans.projected import standing_out
from flwr_dpkmeans.kmeans.proxies import ellipsoid_of
from flwr_dpkmeans.kmeans.ranges import _with_tails, as_integers
from flwr_dpkmeans.node.limit_values import LONGEST_QUOTE, quote
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.privacy.losses import grid_step
from flwr_dpkmeans.privacy.noise import SecureNoise
from flwr_dpkmeans.privacy.release import PrivacyUnit
from flwr_dpkmeans.secagg.packing import pack_boxes, unpack_boxes
from flwr_dpkmeans.secagg.pins import MOST_FINGERPRINTS, fingerprints
from flwr_dpkmeans.secagg.roster import Roster
from flwr_dpkmeans.sums.build import build_algorithm
from flwr_dpkmeans.sums.checks.sound import MAX_VECTOR_LENGTH
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.round import PrivateSum, State
from flwr_dpkmeans.sums.wire import MAX_BLOB_BYTES

BOX = ((-1.0, -1.0), (1.0, 1.0))


def test_the_root_of_a_square_is_exact() -> None:
    assert [root_at_least(square) for square in (1, 4, 9, 2**40)] == [
        1.0,
        2.0,
        3.0,
        2.0**20,
    ]
    for square in (2, 3, 5, 6, 7, 1000):
        root = root_at_least(square)
        assert Fraction(math.nextafter(root, 0.0)) ** 2 < square <= Fraction(root) ** 2


def test_noise_is_drawn_around_zero() -> None:
    """Of 4,000 draws of one grid step's deviation the mean is off by .016.

    One step more would be 60 of these.
    """
    source = SecureNoise()
    assert abs(source.discrete_gaussian(1.0, 4000).mean()) < 0.25
    assert abs(source.discrete_laplace(1.0, 4000).mean()) < 0.25


def test_a_mixtures_client_has_fifty_rows_unless_told() -> None:
    assert MixtureClients().client_points(0).shape == (50, 100)


def test_the_column_named_feature_names_the_rows_even_if_some_of_the_index_are_texts() -> (
    None
):
    sides = {"lower": [0.0, 0.0], "upper": [1.0, 1.0]}
    assert read_ranges(
        pd.DataFrame(sides | {"feature": ["a", "b"]}, index=["x", "y"])
    ).names == ("a", "b")
    assert read_ranges(pd.DataFrame(sides, index=["x", "y"])).names == ("x", "y")
    assert read_ranges(pd.DataFrame(sides, index=["x", 7])).names == ("x", "7")
    assert read_ranges(pd.DataFrame(sides)).names == ()


def test_one_hash_among_other_words_is_no_list_of_hashes(tmp_path: Path) -> None:
    guard = Guard(
        frozenset({"a" * 64, "everything"}), tmp_path / "apps", tmp_path / "alerts.log"
    )
    with pytest.raises(GuardError, match="SHA-256"):
        write_programs(guard, tmp_path / "programs")


def test_the_lowest_eigenvalue_says_how_wide_the_bulk_is() -> None:
    """Values -4, -1, 0, 3, 5 around 0: the lowest reaches 4 below the median, so that 5
    stands out and 3 does not.
    """
    assert standing_out(np.diag([-4.0, -1.0, 0.0, 3.0, 5.0]), 0.0, 5) == 1


def test_a_quote_of_just_the_longest_length_is_whole() -> None:
    name = "n" * (LONGEST_QUOTE - 2)  # with its two quotation marks
    assert quote(name) == f"'{name}'"
    assert quote(name + "n").endswith("...")


def test_as_many_fingerprints_are_shown_as_there_may_be() -> None:
    def shown(n_members: int) -> int:
        return len(
            fingerprints(
                Roster.of(0, {node: node.to_bytes(32) for node in range(n_members)}), {}
            )
        )

    assert shown(MOST_FINGERPRINTS) == MOST_FINGERPRINTS
    assert shown(MOST_FINGERPRINTS + 1) == 1


def test_moments_are_given_on_in_their_shapes_only() -> None:
    plan = draft_plan(
        parse_config(algorithm="moments", bounds=BOX, n_examples=100),
        run_id=1,
        n_clients=2,
        seed=0,
        n_features=2,
    )
    task = plan.task
    assert isinstance(task, MomentsTask)
    arrays = {
        "rows": np.ones(1),
        "means": np.zeros((1, 2)),
        "deviations": np.ones((1, 2)),
    }
    assert task.admits(plan, None, State(arrays))
    for name, array in arrays.items():
        assert not task.admits(plan, None, State({**arrays, name: array[:0]}))
    assert not task.admits(
        plan, None, State({name: arrays[name] for name in ("rows", "means")})
    )


def test_no_iterations_are_fewer_than_none() -> None:
    for algorithm in ("fastlloyd", "glloyd", "lloyd"):
        with pytest.raises(ConfigurationError, match=r"max_iter is -1"):
            parse_config(
                n_clusters=2,
                bounds=BOX,
                algorithm=algorithm,
                n_examples=100,
                max_iter=-1,
            )


def test_what_an_evaluation_keeps_shortens_a_run_whose_length_follows_from_epsilon() -> (
    None
):
    def n_rounds(**given: Any) -> int:
        config = parse_config(
            n_clusters=2,
            bounds=BOX,
            algorithm="sulloyd",
            n_examples=600,
            epsilon=2.0,
            **given,
        )
        plan = draft_plan(config, run_id=1, n_clients=2, seed=0, n_features=2)
        return sum(planned.name.startswith("lloyd") for planned in plan.rounds)

    assert 2 < n_rounds() < 7
    assert n_rounds(evaluation="private", evaluation_share=0.4) < n_rounds()


def test_labels_are_asked_for_in_the_round_that_looks_at_them_only() -> None:
    asked = []
    client = KMeansClient(np.zeros((3, 2)), labels=lambda: asked.append(1) or [0, 1, 1])
    config = parse_config(
        n_clusters=2, bounds=BOX, n_examples=100, evaluation="private", n_classes=2
    )
    plan = draft_plan(config, run_id=1, n_clients=2, seed=0, n_features=2)
    steps: list[PrivateSum] = list(build_algorithm(plan).rounds)
    found = [client._classes(plan, step) for step in steps]
    assert [one is not None for one in found] == [False] * (len(steps) - 1) + [True]
    assert len(asked) == 1


@pytest.mark.filterwarnings("ignore::flwr_dpkmeans.errors.PrivacyWarning")
def test_a_table_whose_rows_all_have_labels_is_said_to_have_no_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = np.linspace(-1.0, 1.0, 40).reshape(20, 2)
    km = FederatedKMeans(
        2, bounds=(-1.0, 1.0), random_state=0, noise="seeded", engine="direct"
    ).fit([rows, rows])
    np.save(tmp_path / "rows.npy", rows)
    arguments = [
        str(km.save(tmp_path / "model.json")),
        str(tmp_path / "rows.npy"),
        "-o",
        str(tmp_path / "labels.csv"),
    ]
    assert main(["predict", *arguments]) == 0
    assert "no label" not in capsys.readouterr().out


def test_a_plan_that_counts_nothing_has_no_noise_on_counts() -> None:
    for unit in PrivacyUnit:
        plan: Any = SimpleNamespace(rounds=(), settings=SimpleNamespace(unit=unit))
        assert counts_std(plan) == (0.0, unit is PrivacyUnit.RECORD)


@pytest.mark.filterwarnings("ignore::flwr_dpkmeans.errors.PrivacyWarning")
@pytest.mark.parametrize("level", [logging.INFO, logging.WARNING])
def test_a_node_logs_what_it_was_asked_for_and_with_which_noise(
    level: int, caplog: pytest.LogCaptureFixture
) -> None:
    rows = np.linspace(-1.0, 1.0, 40).reshape(20, 2)
    model = FederatedKMeans(
        2,
        algorithm="fastlloyd",
        max_iter=1,
        bounds=(-1.0, 1.0),
        random_state=0,
        noise="seeded",
        engine="inprocess",
    )
    with caplog.at_level(level, logger="flwr_dpkmeans"):
        model.fit([rows, rows])
    messages = [record.getMessage() for record in caplog.records]
    asked = [
        message for message in messages if message.startswith("asked for: lloyd-1 (")
    ]
    assert len(asked) == (2 if level == logging.INFO else 0)
    for line in asked:
        noises = (
            r"relative_sums \(sensitivity [\d.]+, gaussian noise \+-[\d.]+\), counts"
            r" \(sensitivity 1, gaussian noise .*"
        )
        assert re.fullmatch(rf"asked for: lloyd-1 \(round 1 of 1\).*; {noises}", line)


def test_steps_of_a_loss_follow_its_deviation() -> None:
    """A sampled Gaussian of GDP 2 at rate 1/100.

    Its loss has the variance 0.01^2 (e^4 - 1) = 0.00536, of whose root 0.04 parts are
    0.00293; the power of two below is 2^-9. Twice the releases have the same deviation
    for each.
    """
    assert grid_step({(0.5, 0.01): 1}, ()) == 2.0**-9
    assert grid_step({(0.5, 0.01): 4}, ()) == 2.0**-9


def test_a_tail_ends_with_its_last_bin() -> None:
    """Bins of 12 stand out of a threshold of 10 alone, and of 14 for two of them not.

    The last one ends the tail.
    """
    counts = as_integers(np.array([12.0, 0.0, 12.0, 0.0, 100.0, 0.0, 12.0, 0.0, 12.0]))
    assert _with_tails(counts, (4, 4), 10.0) == (0, 8)
    assert _with_tails(counts, (4, 4), 13.0) == (4, 4)


def test_an_axis_without_variance_keeps_a_tenth_of_the_average() -> None:
    """Of 1 and 0 the average is .5, of which .05 is kept; both are scaled to their sum."""
    assert ellipsoid_of(
        np.diag([1.0, 0.0]), 0.0, 0.5
    ).variances.tolist() == pytest.approx([1.0, 0.05], rel=1e-3)


def test_an_array_that_no_step_has_made_is_named() -> None:
    with pytest.raises(
        PlanError, match="the state has no projected points: run the step"
    ):
        State({"centroids": np.zeros((1, 1))})["projected_points"]


def test_noise_that_is_as_large_as_a_cluster_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """1,000 rows in 4 clusters are 250 in each."""
    config = parse_config(
        n_clusters=4, bounds=((-1.0,), (1.0,)), n_examples=1000, algorithm="glloyd"
    )
    plan = draft_plan(config, run_id=1, n_clients=2, seed=7, n_features=2)
    for std, n_told in ((249.0, 0), (250.0, 1)):
        monkeypatch.setattr(kmeans_task, "counts_std", lambda _, std=std: (std, True))
        assert len(plan.task.cautions(plan)) == n_told


def test_the_longest_vector_has_twice_the_room_that_it_needs() -> None:
    """2^24 entries of 8 bytes are 2^27."""
    assert MAX_BLOB_BYTES == 2 * 8 * MAX_VECTOR_LENGTH == 268_435_456


def test_variances_that_differ_by_less_than_their_noise_become_their_mean() -> None:
    """1 and 3 differ from 2 by 1, less than the noise of 2."""
    found, left = pulled_together(
        np.array([[1.0], [3.0]]), np.ones(2), np.full((2, 1), 2.0)
    )
    assert found.tolist() == [[2.0], [2.0]]
    assert left.ravel() == pytest.approx([2.0 / math.sqrt(2.0)] * 2)  # of a mean of two


def test_a_range_is_not_widened_by_a_rounding_error() -> None:
    """One column is longer than the other by 1e-13 of it, which is 1e-4 of the other's
    1e9.
    """
    stated = Bounds((0.0, 0.0), (1e9, 1.0))
    assert widened([(1, 1.0), (1, 1.0)], stated, [1e9, 1.0 / (1.0 + 1e-13)]) == stated


@pytest.mark.parametrize(
    "blob", [pack_boxes({1: b"x"}) * 2, pack_boxes({1: b"xy"})[:-1]]
)
def test_boxes_that_are_repeated_or_cut_off_are_refused(blob: bytes) -> None:
    with pytest.raises(ProtocolError, match="cut off or repeated"):
        unpack_boxes(blob)
