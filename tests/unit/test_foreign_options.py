"""An option that the run would ignore is refused at every door, with the name of what
has it.
"""

from __future__ import annotations

import importlib
import math
import pkgutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.flat import flat_estimator, run_config

from flwr_dpkmeans import Auto, FastLloydOptions, FedDPKMeansOptions, FederatedKMeans
from flwr_dpkmeans.algorithms.lookup import clusterings
from flwr_dpkmeans.algorithms.one_place.not_federated import NOT_FEDERATED
from flwr_dpkmeans.data.schema import Schema
from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.flower import strategies
from flwr_dpkmeans.flower.run_config import strategy_from_run_config
from flwr_dpkmeans.flower.strategy import PrivateKMeans
from flwr_dpkmeans.kmeans.public_points.packing import PackingMethod
from flwr_dpkmeans.options import (
    flat_options,
    object_of,
    option_defaults,
    options_of,
    read_config,
    resolve_n_clusters,
    schema_settings,
)
from flwr_dpkmeans.planner import PlanningRequest
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.option_rules import Options

BOUNDS = (0.0, 1.0)
for module in pkgutil.walk_packages(strategies.__path__, f"{strategies.__name__}."):
    # A class that nobody has imported yet is nobody's subclass.
    importlib.import_module(module.name)
STRATEGIES = {kind.algorithm: kind for kind in PrivateKMeans.__subclasses__()}
PARTS = [np.random.default_rng(i).uniform(0, 1, (100, 2)) for i in range(3)]
SERVER = np.random.default_rng(9).uniform(0, 1, (60, 2))
OTHERS: dict[str, Any] = {
    "max_iter": 3,
    "alpha": 0.6,
    "schedule": "constant",
    "post_processing": "none",
    "radius_clipping": False,
    "packing": "halve",
    "noise_kind": "paper",
    "budget_shares": (0.25, 0.25, 0.25, 0.25),
    "lloyd_share": 0.5,
    "weight_threshold": 2.0,
    "n_init": 5,
    "margin": 0.9,
    "server_prior": False,
    "data_radius": 0.5,
    "outer_product_bound": 0.5,
    "weights_bound": 5.0,
    "means_bound": 0.5,
    "indicators_bound": 2.0,
    "sums_bound": 0.5,
    "counts_bound": 2.0,
    "noise_schedule": "growing",
    "tolerance": 0.5,
    "reduce_diameter": True,
    "simplify_server_data": True,
    "least_weight": 0.2,
    "deviation": 0.1,
    "n_components": 1,
    "n_levels": 5,
    "examples_per_client": 20,
    "client_sampling_rate": 0.5,
    "max_silent": 1,
    "max_weight": 4.0,
    "masking": False,
}
"""Every option that not all algorithms have, with a value that is not its default."""
WITH_SERVER = {"feddp_kmeans", "feddp_choose_k", "server_kmeans++", "server_lloyd"}
FOREIGN = {
    option: [
        one for one in (*clusterings(), *NOT_FEDERATED) if option not in options_of(one)
    ]
    for option in OTHERS
    if option != "client_sampling_rate"
}
"""By option, the algorithms that do not have it."""


def sentence_of(call: Callable[[], object]) -> str:
    with pytest.raises(ConfigurationError) as caught:
        call()
    return str(caught.value)


def estimator(algorithm: str, **values: Any) -> FederatedKMeans:
    given = {"server_data": SERVER} if algorithm in WITH_SERVER else {"bounds": BOUNDS}
    return flat_estimator(
        algorithm=algorithm, **(given | {"n_clusters": 3, "engine": "direct"} | values)
    )


def of_flwr_run(algorithm: str, **values: Any) -> RunConfig:
    keys = run_config(algorithm=algorithm, **values)
    keys = {
        key: ",".join(map(str, value)) if isinstance(value, tuple) else value
        for key, value in keys.items()
    }
    given = {"algorithm": algorithm, "n-clusters": 3, "num-clients": 3, "bounds": "0,1"}
    points = SERVER if algorithm in WITH_SERVER else None
    return strategy_from_run_config(given | keys, server_points=points).config


def test_every_option_that_not_all_have_is_tried_here() -> None:
    of_some = set().union(*map(options_of, (*clusterings(), *NOT_FEDERATED)))
    assert (
        of_some
        == {*OTHERS, "n_clusters", "choose_n_clusters"}
        <= set(option_defaults())
    )


@pytest.mark.parametrize("option", FOREIGN)
def test_options_of_other_algorithms_are_refused(option: str) -> None:
    for algorithm in FOREIGN[option]:
        given = {
            "n_clusters": 3,
            "bounds": ((0.0,), (1.0,)),
            "algorithm": algorithm,
            option: OTHERS[option],
        }
        text = sentence_of(partial(read_config, **given))
        assert text.startswith(f"{option} is ")
        assert (
            f", but the algorithm is {algorithm!r}, which has no such option: leave it"
            " out, or choose " in text
        )
        owners = {
            name for name in STRATEGIES if name != algorithm and repr(name) in text
        }
        # Sums of arrays have no name to choose.
        assert owners == {
            name for name in clusterings() if option in options_of(name)
        } & {*STRATEGIES} - {algorithm}


def at_the_doors() -> list[tuple[str, str]]:
    """Each option once, with the algorithm that was chosen least so far."""
    chosen: list[tuple[str, str]] = []
    for option, algorithms in FOREIGN.items():
        so_far = Counter(algorithm for algorithm, _ in chosen)
        chosen.append((min(algorithms, key=so_far.__getitem__), option))
    return chosen


def test_every_algorithm_comes_to_the_doors() -> None:
    assert {algorithm for algorithm, _ in at_the_doors()} == {
        *clusterings(),
        *NOT_FEDERATED,
    }


@pytest.mark.parametrize(("algorithm", "option"), at_the_doors())
def test_every_door_refuses_with_the_same_sentence(algorithm: str, option: str) -> None:
    given = {option: OTHERS[option]}
    told = {
        sentence_of(
            lambda: read_config(
                n_clusters=3, bounds=((0.0,), (1.0,)), algorithm=algorithm, **given
            )
        )
    }
    # Which say nothing without ClientLevel, or without weights of rows.
    unsaid = ("examples_per_client", "max_weight")
    if algorithm != "feddp_choose_k" and option not in unsaid:
        told.add(sentence_of(lambda: estimator(algorithm, **given).fit(PARTS)))
    if algorithm in STRATEGIES:
        told.add(sentence_of(lambda: STRATEGIES[algorithm](3, bounds=BOUNDS, **given)))
    if all(option not in options_of(one) for one in clusterings()):
        pass  # of a baseline in one place, for which a federation has no key
    elif algorithm in clusterings() and "." not in next(iter(run_config(**given))):
        told.add(sentence_of(lambda: of_flwr_run(algorithm, **given)))
    elif algorithm in clusterings() and option not in ("max_silent", "masking"):
        text = sentence_of(lambda: of_flwr_run(algorithm, **given))
        (key,) = run_config(**given)
        assert text.startswith(f"{key} is ")
        assert (
            f", but the algorithm is {algorithm!r}: leave it out, or choose algorithm="
            in text
        )
    (text,) = told
    assert text.startswith(f"{option} is ")
    assert (
        f", but the algorithm is {algorithm!r}, which has no such option: leave it out,"
        " or choose " in text
    )


def test_a_default_that_is_given_is_not_refused() -> None:
    given = {
        "alpha": 0.8, "schedule": "step", "margin": 1, "noise_kind": "gaussian",
        "evaluation_share": 0.05,
    }  # fmt: skip
    assert (
        read_config(n_clusters=3, bounds=((0,), (1,)), **given).algorithm
        == "proxy_lloyd"
    )


WITHOUT_EFFECT: list[tuple[dict[str, Any], str]] = [
    ({"evaluation_share": 0.1},
     "evaluation_share is 0.1, but evaluation is 'none', so that it has no effect"),
    ({"n_classes": 3},
     "n_classes is 3, but evaluation is 'none', so that it has no effect"),
    ({"evaluation_radius": 0.5},
     "evaluation_radius is 0.5, but evaluation is 'none', so that it has no effect"),
    ({"bounds_share": 0.2},
     "bounds_share is 0.2, but bounds are not 'private', so that it has no effect"),
    ({"count_share": 0.1, "n_examples": 300},
     "count_share is 0.1, but the rows are not counted"),
    ({"max_clusters": 9},
     "max_clusters is 9, but n_clusters is 3 and not 'auto', so that it has no"
     " effect"),
    ({"examples_per_client": 9},
     "examples_per_client is 9, but unit is 'record', so that it has no effect"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "start"), WITHOUT_EFFECT)
def test_options_without_effect_are_refused(given: dict[str, Any], start: str) -> None:
    with pytest.raises(ConfigurationError, match="has no options of its own"):
        estimator("proxy_lloyd", **given)
    doors: list[Callable[[], object]] = [
        lambda: STRATEGIES["proxy_lloyd"](3, bounds=BOUNDS, **given),
        lambda: of_flwr_run("proxy_lloyd", **given),
    ]
    for door in doors:
        text = sentence_of(door)
        assert text.startswith(start)
        assert ": leave " in text


@pytest.mark.parametrize(
    "option",
    ["weights_bound", "means_bound", "indicators_bound", "sums_bound", "counts_bound"],
)
def test_clip_bounds_of_clients_say_nothing_to_records(option: str) -> None:
    text = sentence_of(lambda: estimator("feddp_kmeans", **{option: 2.0}).fit(PARTS))
    assert (
        text
        == f"{option} is 2.0, but unit is 'record', so that it has no effect: leave it"
        " out, or choose unit='client'."
    )


def test_an_evaluation_share_of_an_exact_evaluation_is_refused() -> None:
    given = {"algorithm": "glloyd", "evaluation": "exact", "evaluation_share": 0.2}
    text = sentence_of(
        lambda: read_config(n_clusters=3, bounds=((0.0,), (1.0,)), **given)
    )
    assert text.startswith(
        "evaluation_share is 0.2, but evaluation is 'exact', so that it has no effect"
    )
    with pytest.raises(ConfigurationError, match="ExactEvaluation has no option"):
        FederatedKMeans(3, evaluation="exact").set_params(evaluation__share=0.2)


# -- comparisons: each algorithm gets only its own -------------------------------------


def test_a_comparison_gives_each_algorithm_only_its_own_options() -> None:
    options = {"n_clusters": 3, "alpha": 0.6, "packing": "halve", "n_init": 5}
    request = PlanningRequest(
        1_000, 2, 3, options, algorithms=("proxy_lloyd", "fastlloyd", "glloyd")
    )
    given = [
        {"n_init": 5},
        {"alpha": 0.6, "packing": PackingMethod.HALVE},
        {"packing": PackingMethod.HALVE},
    ]
    tasks = [request.config(name).task for name in request.algorithms]
    assert [task.options for task in tasks] == [
        replace(task.option_class()(), **own)
        for task, own in zip(tasks, given, strict=True)
    ]


def test_a_comparison_refuses_what_none_of_the_compared_has() -> None:
    options = {"n_clusters": 3, "margin": 0.9}
    text = sentence_of(
        lambda: PlanningRequest(
            1_000, 2, 3, options, algorithms=("proxy_lloyd", "fastlloyd")
        )
    )
    assert text.startswith(
        "margin is 0.9, but the algorithm is 'proxy_lloyd', which has no such option"
    )
    assert "'feddp_kmeans'" in text
    assert (
        sentence_of(
            lambda: FederatedKMeans(3, algorithm=FedDPKMeansOptions(margin=0.9)).plan(
                1_000, 2, 3
            )
        )
        == text
    )


def test_choosing_k_drops_what_only_the_clustering_has_and_refuses_the_rest() -> None:
    settings: dict[str, Any] = {"epsilon": 8.0, "max_iter": 2, "margin": 0.9}
    settings |= {"evaluation": "private", "n_classes": 3}
    assert 1 <= estimator("feddp_kmeans", **settings).choose_k(PARTS, 6).n_clusters <= 6
    assert (
        1
        <= estimator("feddp_kmeans", n_clusters=Auto(4), **settings)
        .choose_k(PARTS)
        .n_clusters
        <= 4
    )
    assert "alpha is 0.6" in sentence_of(lambda: estimator("feddp_kmeans", alpha=0.6))


@pytest.mark.parametrize(
    ("scale", "standard", "more"),
    [
        ("bounds", (), {}),
        ("standard", ((2, 1.0),), {"private_bounds": True, "bounds_share": 0.05}),
    ],
)
def test_a_schema_says_what_its_bounds_cost(
    scale: str, standard: tuple[Any, ...], more: dict[str, Any]
) -> None:
    said = {
        "ward": {"kind": "category", "values": ["A", "B"]},
        "sick": {"kind": "flag", "weight": 0.0},
    }
    schema = Schema(columns=said, scale=scale, profile=["sick"], profile_share=0.1)
    expected = {"schema_digest": schema.digest, "standard_columns": standard}
    assert (
        schema_settings(schema)
        == expected
        | {
            "profile_widths": (0, 1),
            "profile_share": 0.1,
        }
        | more
    )
    assert schema_settings((0, 1)) == {}


@pytest.mark.parametrize(
    ("n_clusters", "most", "found"),
    [
        ("auto", 20, {"n_clusters": 20, "choose_n_clusters": True}),
        ("auto", 1, {"n_clusters": 1, "choose_n_clusters": True}),
        ("auto", 0,
         "max_clusters is 0, but it must be an integer of at least 1: give 20."),
        (10, 20, {"n_clusters": 10}),
        ("10", 20, "n_clusters is '10', but it must be an integer or 'auto': give 10."),
        (3.0, 20, "n_clusters is 3.0, but it must be an integer or 'auto': give 3."),
        (math.inf, 20,
         "n_clusters is inf, but it must be an integer or 'auto': give 10."),
        (7, 20, {"n_clusters": 7}),
        (7, 19, "max_clusters is 19, but n_clusters is 7 and not 'auto', so that it has"
         " no effect: leave one of the two out."),
        ("ten", 20,
         "n_clusters is 'ten', but it must be an integer or 'auto': give 10."),
    ],
)  # fmt: skip
def test_a_number_of_clusters_is_chosen_up_to_a_most_or_given(
    n_clusters: Any, most: int, found: Any
) -> None:
    if isinstance(found, str):
        assert sentence_of(lambda: resolve_n_clusters(n_clusters, most)) == found
    else:
        assert resolve_n_clusters(n_clusters, most) == found


def test_the_path_of_a_schema_stands_for_it_where_bounds_may_and_nowhere_else(
    tmp_path: Path,
) -> None:
    (tmp_path / "schema.toml").write_text('[columns]\nsick = { kind = "flag" }\n')
    path = str(tmp_path / "schema.toml")
    assert flat_options({"bounds": path, "noise": path, "evaluation": None}) == {
        "bounds": Schema(columns={"sick": {"kind": "flag"}}),
        "noise": path,
        "evaluation": "none",
    }
    assert flat_options({"bounds": (0, 1)}) == {"bounds": (0, 1)}


def test_what_has_no_options_of_its_own_has_a_sentence() -> None:
    for argument, mend in (
        ("epsilon", "leave them out"),
        ("unit", "give one such as ClientLevel\\(.* first"),
    ):
        with pytest.raises(
            ConfigurationError,
            match=rf"^{argument} is 'x', which has no options of its own: {mend}",
        ):
            object_of(argument, "x")


def test_a_value_without_effect_is_shown_as_it_is_read() -> None:
    text = sentence_of(
        lambda: read_config(
            n_clusters=3, bounds=((0,), (1,)), examples_per_client=np.int64(9)
        )
    )
    assert text.startswith(
        "examples_per_client is 9, but unit is 'record', so that it has no effect:"
        " leave it out"
    )


def test_what_an_object_says_is_not_taken_back_by_an_argument_that_is_none() -> None:
    given = {"algorithm": FastLloydOptions(max_iter=3), "max_iter": None}
    assert (
        flat_options(given)["max_iter"]
        == flat_options(dict(reversed(given.items())))["max_iter"]
        == 3
    )


@dataclass(frozen=True)
class NobodysOptions(Options):
    """Of an algorithm that was not registered."""


def test_options_of_no_algorithm_or_of_several_name_none() -> None:
    for given, whose in (
        (NobodysOptions(), "no algorithm has"),
        (Options(), "moments and .* both have"),
    ):
        with pytest.raises(
            ConfigurationError,
            match=rf"^algorithm is .*, but {whose} such options: give its name",
        ):
            flat_options({"algorithm": given})
