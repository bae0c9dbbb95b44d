"""Every option that is a number: its default, what it may be, and what its error
sentences offer.
"""

from __future__ import annotations

import math
import re
from dataclasses import MISSING, fields
from typing import Any

import pytest

from flwr_dpkmeans.algorithms.feddp.feddp_kmeans import FedDPKMeansOptions
from flwr_dpkmeans.algorithms.feddp.server_lloyd import ServerLloydOptions
from flwr_dpkmeans.algorithms.kmeans_task import KMeansTask
from flwr_dpkmeans.algorithms.lloyd_family.fastlloyd import FastLloydOptions
from flwr_dpkmeans.algorithms.one_place.optimal_task import OptimalOptions
from flwr_dpkmeans.algorithms.proxy.proxy_lloyd import ProxyLloydOptions
from flwr_dpkmeans.algorithms.statistics.histograms_task import HistogramsOptions
from flwr_dpkmeans.algorithms.statistics.naive_bayes import NaiveBayesOptions
from flwr_dpkmeans.algorithms.statistics.radii_task import RadiiOptions
from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.options import Auto
from flwr_dpkmeans.sums.option_rules import rule_of
from flwr_dpkmeans.sums.settings import Settings

# option, default, least, most, offered
WHOLE: dict[type, list[tuple[str, Any, int, int | None, int]]] = {
    Settings: [("n_examples", None, 1, 10**15, 1000),
               ("n_features", None, 1, 65_536, 2), ("random_state", None, 0, None, 7),
               ("n_clients", None, 2, None, 10), ("min_clients", 2, 2, None, 2),
               ("max_silent", None, 0, None, 1), ("max_retries", 1, 0, 1000, 1),
               ("examples_per_client", 50, 1, 10_000_000, 50),
               ("rows_per_person", None, 1, 65_536, 1),
               ("n_classes", 0, 0, 100_000, 3)],
    Auto: [("max_clusters", 20, 1, None, 20)],
    KMeansTask: [("n_clusters", MISSING, 1, 100_000, 10)],
    FastLloydOptions: [("max_iter", None, 0, 1000, 5)],
    FedDPKMeansOptions: [("max_iter", None, 0, 1000, 5), ("n_init", 20, 1, 10_000, 20)],
    ServerLloydOptions: [("max_iter", None, 0, 1000, 5), ("n_init", 20, 1, 10_000, 20)],
    ProxyLloydOptions: [("max_iter", None, 0, 1000, 5), ("n_init", 20, 1, 10_000, 20)],
    OptimalOptions: [("n_init", 20, 1, 10_000, 20)],
    HistogramsOptions: [("bins", 20, 1, 10_000, 20)],
    NaiveBayesOptions: [("classes", 2, 2, 1000, 3)],
}  # fmt: skip
# option, default, the largest number below the range, the smallest above it, offered
REAL: dict[type, list[tuple[str, Any, float, float, str]]] = {
    Settings: [("epsilon", 1.0, 0.0, math.inf, "1.0"),
               ("delta", None, -5e-324, 1.0, "1e-6"),
               ("max_epsilon", None, 0.0, math.inf, "2.0"),
               ("count_share", 0.02, 0.0, 0.5, "0.02"),
               ("client_sampling_rate", 1.0, 0.0, math.inf, "0.1"),
               ("max_weight", None, 0.0, math.inf, "20.0"),
               ("bounds_share", 0.1, 0.0, 0.5, "0.1"),
               ("evaluation_share", 0.05, 0.0, 0.5, "0.05"),
               ("evaluation_radius", None, 1e-6, 1e6, "0.5")],
    FastLloydOptions: [("alpha", 0.8, 1e-6, 1e6, "0.8"),
                       ("tolerance", None, 0.0, math.inf, "0.01")],
    ServerLloydOptions: [("tolerance", None, 0.0, math.inf, "0.01")],
    FedDPKMeansOptions: [("data_radius", None, 0.0, math.inf, "11.0"),
                         ("weight_threshold", 3.0, -5e-324, math.inf, "1.5"),
                         ("outer_product_bound", None, 0.0, math.inf, "1500.0"),
                         ("weights_bound", None, 0.0, math.inf, "1.0"),
                         ("lloyd_share", 0.3, 0.0, 1.0, "0.3"),
                         ("margin", 1.0, 0.0, math.inf, "1.0"),
                         ("means_bound", None, 0.0, math.inf, "21.0"),
                         ("indicators_bound", None, 0.0, math.inf, "10.0"),
                         ("sums_bound", None, 0.0, math.inf, "400.0"),
                         ("counts_bound", None, 0.0, math.inf, "30.0"),
                         ("least_weight", None, 1e-9, 1.0, "0.1"),
                         ("deviation", None, 0.0, math.inf, "0.5"),
                         ("tolerance", None, 0.0, math.inf, "0.01")],
    RadiiOptions: [("reach", 1.0, 2.0**-16, 1e3, "1.0")],
    NaiveBayesOptions: [("smoothing", 1.0, 0.0, 1e6, "1.0"),
                        ("least_deviation", 0.001, 2.0**-16, 1.0, "0.001")],
}  # fmt: skip


def rows(table: dict[type, list[Any]]) -> list[Any]:
    return [
        pytest.param(kind, *row, id=f"{kind.__name__}.{row[0]}")
        for kind, some in table.items()
        for row in some
    ]


def declared(kind: type, name: str) -> Any:
    return next(one for one in fields(kind) if one.name == name)


@pytest.mark.parametrize(
    ("kind", "name", "default", "least", "most", "offered"), rows(WHOLE)
)
def test_whole_numbers(
    kind: type, name: str, default: Any, least: int, most: int | None, offered: int
) -> None:
    one = declared(kind, name)
    take = rule_of(one).take
    assert one.default == default
    assert take(name, least) == least
    mend = rf"of at least {least}: give {offered}\."
    if name == "max_iter":
        mend = f"without a limit: give {offered}, or leave it out"
    with pytest.raises(ConfigurationError, match=mend):
        take(name, least - 1)
    if most is None:
        assert take(name, 10**30) == 10**30
    else:
        assert take(name, most) == most
        with pytest.raises(ConfigurationError, match=f"at most {most}:"):
            take(name, most + 1)


@pytest.mark.parametrize(
    ("kind", "name", "default", "low", "high", "offered"), rows(REAL)
)
def test_real_numbers(
    kind: type, name: str, default: Any, low: float, high: float, offered: str
) -> None:
    one = declared(kind, name)
    take = rule_of(one).take
    assert one.default == default
    for inside in (math.nextafter(low, math.inf), math.nextafter(high, 0.0)):
        assert take(name, inside) == inside
    for outside in (low, high):
        with pytest.raises(ConfigurationError, match=re.escape(f": give {offered}.")):
            take(name, outside)


def takes_number(take: Any) -> bool:
    """Whether an option is a number: it takes 3 or 0.25 as they are."""
    for value in (3, 0.25):
        try:
            taken = take("option", value)
        except ConfigurationError:
            continue
        if type(taken) in (int, float) and taken == value:
            return True
    return False


def test_no_number_is_missing_above() -> None:
    known = {
        (kind, row[0])
        for table in (WHOLE, REAL)
        for kind, some in table.items()
        for row in some
    }  # type: ignore[attr-defined]
    for kind in {*WHOLE, *REAL}:
        for one in fields(kind):
            rule = rule_of(one) if one.name in kind.__annotations__ else None
            if rule is not None and takes_number(rule.take):
                assert (kind, one.name) in known
