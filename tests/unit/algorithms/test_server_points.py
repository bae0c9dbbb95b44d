"""What follows from a server's points before a run.

Bounds by hand, and whose names and boxes hold.
"""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from support.limits import SetLimits

from flwr_dpkmeans.algorithms.feddp.feddp_kmeans import FedDPKMeansTask
from flwr_dpkmeans.algorithms.server.box_units import (
    in_box,
    in_callers_units,
    plan_bounds,
)
from flwr_dpkmeans.algorithms.server.box_widths import squared_unit
from flwr_dpkmeans.algorithms.server.held_points import hold_points
from flwr_dpkmeans.algorithms.server.resolved_bounds import (
    DEFAULT_DOMAIN,
    is_private,
    resolve_bounds,
)
from flwr_dpkmeans.algorithms.server.server_facts import (
    bounds_from_server,
    derive_server_facts,
    facts_without_server,
)
from flwr_dpkmeans.data.points import Bounds
from flwr_dpkmeans.data.rows import Rows
from flwr_dpkmeans.data.schema import Schema
from flwr_dpkmeans.errors import ConfigurationError, DataError, PlanError
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.draft import draft_plan

Floats = NDArray[np.float64]
GRID = 2.0**16


def config_of(**values: Any) -> RunConfig:
    settings: dict[str, Any] = {
        "n_clusters": 2,
        "bounds": ((-1.0,), (1.0,)),
        "algorithm": "feddp_kmeans",
    }
    return parse_config(**(settings | {"trust": "central"} | values))


def test_a_cube_around_the_mean_takes_in_all_points() -> None:
    """The mean is (1, 2), and the farthest points are 5 away."""
    assert bounds_from_server(np.array([[4.0, 6.0], [-2.0, -2.0], [1.0, 2.0]])) == (
        (-4.0, -3.0),
        (6.0, 7.0),
    )
    assert bounds_from_server(np.array([[0.0], [0.5]])) == ((0.0,), (0.5,))


def on_a_line(*counts: tuple[float, int]) -> Floats:
    """Points of one column around 1/4, at so many times some distances."""
    sides = [
        side * distance
        for distance, count in counts
        for side in (1.0, -1.0)
        for _ in range(count)
    ]
    return 0.25 + np.array(sides + [0.0] * (41 - len(sides)))[:, None]


@pytest.mark.parametrize(
    ("points", "given", "radius", "outer"),
    [
        # Of 41 distances the 39th is the quantile 0.95, the 21st the median; the two
        # largest are 0.75.
        (on_a_line((0.75, 1), (0.5, 3), (0.25, 8)), {}, 0.5, 0.0625),
        # Outer products are clipped to no more than the radius, squared.
        (on_a_line((0.75, 1), (0.5, 3), (0.25, 8)), {"data_radius": 0.125}, 0.125,
         0.015625),
        (on_a_line((0.75, 1), (0.5, 3), (0.25, 8)), {"data_radius": 0.625}, 0.625,
         0.0625),
        # Where half of the points are at the centre the radius stands for the median,
        # and the largest one for both.
        (on_a_line((0.75, 1), (0.5, 7)), {}, 0.5, 0.25),
        (on_a_line((0.75, 1)), {}, 0.75, 0.5625),
    ],
)  # fmt: skip
def test_clip_bounds_of_rows_are_quantiles(
    points: Floats, given: Any, radius: float, outer: float
) -> None:
    facts = derive_server_facts(config_of(**given), points)
    assert (facts.n_points, facts.centre) == (41, (0.25,))
    assert (facts.data_radius, facts.outer_product_bound) == pytest.approx(
        (radius, outer), rel=1e-11
    )


def test_as_many_points_as_clusters_are_enough() -> None:
    assert derive_server_facts(config_of(), np.array([[-0.5], [0.5]])).n_points == 2
    with pytest.raises(DataError, match="there are 1 server points, but 2 clusters"):
        derive_server_facts(config_of(), np.array([[0.5]]))


@pytest.mark.parametrize(
    ("more", "refused"), [(5e-7, False), (1e-6, False), (2e-6, True)]
)
def test_widths_that_differ_by_a_millionth_are_one_width(
    more: float, refused: bool
) -> None:
    box = ((0.0, 0.0), (4.0, 4.0 * (1.0 + more)))
    config = config_of(bounds=box, data_radius=0.5, outer_product_bound=0.02)
    assert (squared_unit(box) is None) is refused
    if refused:
        with pytest.raises(ConfigurationError, match="a distance in the caller's"):
            facts_without_server(config, 2)
    else:
        facts = facts_without_server(config, 2)
        assert (facts.data_radius, facts.outer_product_bound) == (0.25, 0.005)
        assert squared_unit(box) == 4.0


POINTS = np.array([[0.0, 10.0], [2.0, 30.0], [4.0, 20.0]])
BOX = ((0.0, 0.0), (4.0, 40.0))
SCALED = np.array([[-1.0, -0.5], [0.0, 0.5], [1.0, 0.0]])


@pytest.mark.parametrize(
    ("values", "n_points", "is_kept", "is_public"),
    [
        ({}, 3, True, False),
        ({"trust": "oblivious"}, 3, False, True),
        # It needs what follows from them alone, so nobody has to see them.
        ({"algorithm": "sphere_packing"}, 0, False, False),
        ({"algorithm": "sphere_packing", "trust": "oblivious"}, 0, False, False),
    ],
)
def test_who_has_the_servers_points(
    values: Any, n_points: int, is_kept: bool, is_public: bool
) -> None:
    held = hold_points(config_of(bounds=BOX, **values), POINTS)
    assert held.scaled.tolist() == SCALED.tolist()
    assert held.facts.n_points == n_points
    assert (held.on_server is not None, held.public is not None) == (is_kept, is_public)
    assert held.public is None or held.public.table.tolist() == SCALED.tolist()


@pytest.mark.parametrize(
    ("n_features", "refused"), [(None, False), (2, False), (3, True)]
)
def test_the_servers_table_has_the_runs_columns(
    n_features: int | None, refused: bool
) -> None:
    config = config_of(n_features=n_features)
    if refused:
        with pytest.raises(ConfigurationError, match="the server's table has 2"):
            hold_points(config, SCALED)
    else:
        assert hold_points(config, SCALED).facts.n_points == 3


FRAME = pd.DataFrame(POINTS, columns=["a", "b"])
CUBE = math.hypot(2.0, 10.0)
NAMED = pd.DataFrame({"lower": [0.0, -1.0], "upper": [4.0, 1.0]}, index=["b", "a"])


@pytest.mark.parametrize(
    ("bounds", "server", "options", "box", "order", "columns"),
    [
        # Stated bounds, by position; names as given, or of the bounds, or of the
        # points.
        ((0, 9), None, {}, ((0.0,), (9.0,)), (), None),
        ((0, 9), None, {"names": ("a", "b")}, ((0.0,), (9.0,)), ("a", "b"), None),
        ((0, 9), FRAME, {}, ((0.0,), (9.0,)), ("a", "b"), [0, 1]),
        ((0, 9), FRAME, {"names": ("b", "a")}, ((0.0,), (9.0,)), ("b", "a"), [1, 0]),
        ((0, 9), POINTS, {}, ((0.0,), (9.0,)), (), [0, 1]),
        (NAMED, None, {}, ((0.0, -1.0), (4.0, 1.0)), ("b", "a"), None),
        (NAMED, FRAME, {}, ((0.0, -1.0), (4.0, 1.0)), ("b", "a"), [1, 0]),
        (NAMED, FRAME, {"names": ("a", "b")}, ((-1.0, 0.0), (1.0, 4.0)), ("a", "b"),
         [0, 1]),
        (NAMED, POINTS, {"allow_unnamed": True}, ((0.0, -1.0), (4.0, 1.0)), ("b", "a"),
         [0, 1]),
        # None: a cube around the points.
        (None, FRAME, {}, ((2 - CUBE, 20 - CUBE), (2 + CUBE, 20 + CUBE)), ("a", "b"),
         [0, 1]),
        (None, FRAME, {"names": ("b", "a")},
         ((20 - CUBE, 2 - CUBE), (20 + CUBE, 2 + CUBE)), ("b", "a"), [1, 0]),
        # Private ones, in a domain or anywhere.
        ("private", None, {}, tuple((end,) for end in DEFAULT_DOMAIN), (), None),
        ("private", FRAME, {"domain": (0, 5)}, ((0.0,), (5.0,)), ("a", "b"), [0, 1]),
    ],
)  # fmt: skip
def test_whose_bounds_and_names_hold(
    bounds: Any, server: Any, options: Any, box: Any, order: tuple[str, ...],
    columns: list[int] | None,
) -> None:  # fmt: skip
    found, names, points = resolve_bounds(
        bounds, server, options.pop("domain", None), **options
    )
    assert (found.lower, found.upper) == (pytest.approx(box[0]), pytest.approx(box[1]))
    assert names == order
    assert (None if points is None else points.tolist()) == (
        None if columns is None else POINTS[:, columns].tolist()
    )


@pytest.mark.parametrize(
    ("names", "server", "text"),
    [
        (("a", "b"), POINTS, "server_data has no column names, but the run's columns"),
        (("a", "c"), FRAME, "server_data lacks a column 'c': choose one of 'a', 'b'."),
        (("a", "bb"), FRAME, "server_data lacks a column 'bb': did you mean 'b'?"),
        (("a",), FRAME, "server_data has, besides the run's columns, a column 'b':"),
        (("a", "d", "c"), FRAME, "server_data lacks a column 'd': "),
        (("b",), FRAME.assign(c=0.0), "server_data has, besides the run's columns,"),
    ],
)  # fmt: skip
def test_other_columns_than_the_runs_are_refused(
    names: tuple[str, ...], server: Any, text: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        resolve_bounds((0, 9), server, names=names)
    assert str(caught.value).startswith(text)


SCHEMA = Schema(
    columns={
        name: {"kind": "number", "bounds": [0, high]}
        for name, high in (("b", 40), ("a", 4))
    }
)


@pytest.mark.parametrize("names", [(), ("b", "a")])
def test_a_schema_names_its_columns_itself(names: tuple[str, ...]) -> None:
    box, order, points = resolve_bounds(SCHEMA, FRAME, names=names)
    assert (box, order) == (Bounds((0.0, 0.0), (40.0, 4.0)), ("b", "a"))
    assert points is not None
    assert points.tolist() == POINTS[:, [1, 0]].tolist()
    assert resolve_bounds(SCHEMA, None, names=names)[2] is None


def test_other_names_beside_a_schema_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="columns are named beside a schema"):
        resolve_bounds(SCHEMA, None, names=("a", "b"))


def test_a_domain_is_for_private_bounds() -> None:
    with pytest.raises(ConfigurationError, match=r"bounds_domain is \(0, 5\)"):
        resolve_bounds((0, 9), None, (0, 5))
    assert [
        is_private(value)
        for value in ("private", "Private", None, np.array(["private"]))
    ] == [True] + [False] * 3


@pytest.mark.parametrize(("n", "d"), [(0, 2), (1, 3), (5, 1), (70_000, 1), (40_000, 2)])
@pytest.mark.parametrize("bits", [4, 16])
def test_rows_are_clipped_scaled_and_rounded_however_many_there_are(
    n: int, d: int, bits: int
) -> None:
    """A range from -2 to 6, whose middle is 2."""
    rows = np.random.default_rng(n).uniform(-4.0, 9.0, (n, d))
    expected = np.rint((np.clip(rows, -2.0, 6.0) - 2.0) / 4.0 * 2.0**bits) / 2.0**bits
    found = in_box(Bounds((-2.0,), (6.0,)), rows, bits)
    assert isinstance(found, np.ndarray)
    assert np.array_equal(found, expected)


def test_a_large_tables_rows_are_scaled_when_they_are_looked_at(
    set_limits: SetLimits,
) -> None:

    set_limits(table_bytes=8 * 6 - 1)
    found: Any = in_box(Bounds(*BOX), POINTS, 16)
    assert isinstance(found, Rows)
    assert (found.shape, found[1:3].tolist()) == ((3, 2), SCALED[1:3].tolist())


def test_centroids_go_back_into_the_callers_units() -> None:
    plan = draft_plan(
        replace(config_of(algorithm="glloyd", n_examples=100, bounds=BOX)), run_id=1,
        n_clients=2, seed=1, n_features=2,
    )  # fmt: skip
    assert plan_bounds(plan, 2) == Bounds(*BOX)
    assert in_callers_units(plan, SCALED).tolist() == POINTS.tolist()


def test_server_points_of_no_rows_are_no_start() -> None:
    for server, refused in (
        (None, True),
        (SimpleNamespace(n_points=0), True),
        (SimpleNamespace(n_points=1), False),
    ):
        known: Any = SimpleNamespace(server=server)
        task: Any = SimpleNamespace(name="feddp_kmeans")
        if refused:
            with pytest.raises(PlanError, match="starts from the server's own points"):
                FedDPKMeansTask.facts(task, known)
        else:
            assert FedDPKMeansTask.facts(task, known) is server
