"""Sweeps as lists of configurations: each equals what Hydra composes, and mistakes are
found before anything runs.
"""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.configuration_files import text_of

pytest.importorskip("hydra")
from hydra import compose, initialize_config_dir
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.flower.run_keys import run_keys
from flwr_dpkmeans.options import flat_options, task_kind
from flwr_dpkmeans.sums.trust import TRUST_MODELS, Central, register_trust
from simulations.experiments.algorithm_groups import group_texts
from simulations.experiments.configuration import (
    METRICS,
    flat,
    job_key,
    require_valid,
    run_config_of,
)
from simulations.experiments.expansion import CONFIGURATION, expand, narrowed
from simulations.experiments.job import run_job
from simulations.figures.specs import columns_of, parse_specs


class Notary(Central):
    """A trust model of somebody else's."""

    name = "notary"


PROJECT = CONFIGURATION.parent
ALGORITHMS = sorted(path.stem for path in (CONFIGURATION / "algorithm").glob("*.yaml"))
DATA = sorted(path.stem for path in (CONFIGURATION / "data").glob("*.yaml"))
PARTITIONS = sorted(path.stem for path in (CONFIGURATION / "partition").glob("*.yaml"))
EXPERIMENTS = sorted(
    path.stem for path in (CONFIGURATION / "experiment").glob("*.yaml")
)
RESULT_COLUMNS = {
    "epsilon",
    "delta",
    "n_iterations",
    "n_rows",
    "seconds",
    "cost_per_point",
    "cost_curve",
    *METRICS,
}

# A data set as a researcher might describe it: every kind of reference to another key.
MINE = """
name: mine
source: iris
n_clusters: 3
bounds: null
label_column: target
server: null
noise_2: 1
noise_3: 1
whole: ${data.noise_2}
chain: ${data.whole}
relative: ${.noise_3}
inside: "x-${data.noise_2}-y"
call: ${oc.select:data.noise_2,7}
own_seed: ${seed}
third: ${data.own_seed}
group: ${privacy}
"""


def by_hydra(overrides: Sequence[str], folder: Path = CONFIGURATION) -> list[Any]:
    """Every point as Hydra's own sweeper lists and composes it."""
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    [batch] = BasicSweeper.split_arguments(parsed, max_batch_size=None)
    with initialize_config_dir(str(folder), version_base=None):
        return [
            OmegaConf.to_container(compose("config", point), resolve=True)
            for point in batch
        ]


def in_one_order(points: Sequence[Any]) -> list[str]:
    """Configurations as text that tells numbers from words."""
    return sorted(json.dumps(point, sort_keys=True) for point in points)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The configuration that is shipped, with a data set of one's own."""
    copy = tmp_path_factory.mktemp("project") / "conf"
    shutil.copytree(CONFIGURATION, copy)
    (copy / "data" / "mine.yaml").write_text(MINE)
    return copy


@pytest.mark.parametrize(
    "overrides",
    [
        ("data=iris", "seed=range(0,2)", "algorithm=fastlloyd,glloyd"),
        ("data=synth", "seed=1,2", "data.separation=0.2,[0.1,0.3]", "data.seed=7"),
        ("data=synth", "seed=1,2", "data.seed=7,8", "partition.seed=9"),
        (
            "algorithm=feddp_kmeans",
            "data=mixture",
            "data.rows_per_client=50,100",
            "algorithm.budget_shares=[0.2,0.2,0.45,0.15],null",
        ),
        ("data=iris", "variant='a, b',\"it's\"", "data.bounds='0,10','-1,12'"),
        ("data=iris", "data.n_clusters=${n_clients},4", "n_clients=2,3"),
        (
            "data=iris",
            "algorithm=fastlloyd",
            "algorithm.radius_clipping=true,false",
            "privacy.epsilon=sort(1,1e-1)",
        ),
        ("data=iris", "n_clients=choice(2,3)", "partition=iid,contiguous"),
    ],
)
def test_each_point_is_what_hydra_composes(overrides: tuple[str, ...]) -> None:
    expected = {
        job_key(point) + str(point["variant"]): point for point in by_hydra(overrides)
    }
    found = expand(overrides).settings
    if any("variant" in one for one in overrides):
        # Runs that differ in their label only are one run.
        keys = {key[:24] for key in expected}
        assert sorted(job_key(point) for point in found) == sorted(keys)
        expected = {
            key: point for key, point in expected.items() if point["variant"] == "a, b"
        }
    assert in_one_order(found) == in_one_order(list(expected.values()))


@pytest.mark.parametrize(
    "overrides",
    [
        ("data=mine", "data.noise_2=1,2"),
        ("data=mine", "data.noise_3=1,2"),
        ("data=mine", "seed=1,2", "privacy.epsilon=0.5,2"),
        ("data=mine", "seed=1,2", "data.own_seed=8,9"),
        ("data=mine", "seed=1,2", "data.whole=8"),
    ],
)
def test_references_of_every_kind_follow(
    overrides: tuple[str, ...], folder: Path
) -> None:
    assert in_one_order(expand(overrides, folder).settings) == in_one_order(
        by_hydra(overrides, folder)
    )


def test_equal_runs_are_one() -> None:
    assert len(expand(["data=iris", "privacy.epsilon=1,1.0", "seed=2,2"]).settings) == 1
    # Without privacy there is no epsilon to differ in.
    found = expand(
        ["data=iris", "algorithm=lloyd,glloyd", "privacy.epsilon=0.5,1,2"]
    ).settings
    assert sorted(one["algorithm"]["name"] for one in found) == ["glloyd"] * 3 + [
        "lloyd"
    ]


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (("data=irs",), "data is 'irs', which conf/data has not: did you mean 'iris'"),
        (("algorithm=fastlloyd,gloyd",), "did you mean 'glloyd'"),
        (("algoritm=fastlloyd",), "did you mean 'algorithm'"),
        (
            ("data=iris", "+privacy.epsilom=1,2"),
            "there is no key 'privacy.epsilom' .* did you mean 'privacy.epsilon'",
        ),
        (
            ("data=iris", "algorithm=glloyd", "algorithm.alpha=1"),
            "but the algorithm is 'glloyd'.* choose 'fastlloyd'",
        ),
        (("data=iris", "algorithm.n_clusters=4"), "no key 'algorithm.n_clusters' .*"),
        (("data=iris", "privacy.epsilon=1,0"), "epsilon is 0"),
        (("data=iris", "privacy.epsilon=interval(0,1)"), "no finite list"),
        (("data=iris", "seed"), "cannot be read"),
        (("data=iris", "experiment=fastlloyd_fig2,feddp_fig1"), "one at a time"),
        (
            ("data=file", "data.path=x.csv", "data.n_clusters=3"),
            "Missing mandatory value: bounds",
        ),
    ],
)
def test_mistakes_are_found_before_anything_runs(
    overrides: tuple[str, ...], sentence: str
) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        expand(overrides)


def parsed(*overrides: str) -> dict[str, Any]:
    found = OverridesParser.create().parse_overrides(list(overrides))
    return {override.key_or_group: override for override in found}


def names(grids: Sequence[Mapping[str, Any]], key: str) -> list[str]:
    found = [grid[key] for grid in grids]
    return [
        (
            ",".join(one.sweep_string_iterator())
            if one.is_sweep_override()
            else one.get_value_element_as_str()
        )
        for one in found
    ]


def test_an_experiment_is_narrowed_by_what_is_given() -> None:
    grids = [
        parsed(
            "data=iris,wine",
            "algorithm=fastlloyd,glloyd",
            "seed=range(0,9)",
            "data.bounds=range",
        ),
        parsed("data=iris,wine", "algorithm=fastlloyd", "algorithm.alpha=1,2"),
        parsed("data=synth", "data.n_points=9", "algorithm=lloyd"),
    ]
    found = narrowed(grids, parsed("seed=3"))
    assert names(found, "seed") == ["3"] * 3
    # An option that one sweep varies is not asked of algorithms without it; one that
    # none varies is of all.
    plain, varied, other = narrowed(
        grids, parsed("algorithm.alpha=3", "algorithm.max_iter=5")
    )
    assert names([varied], "algorithm.alpha") == ["3"]
    assert "algorithm.alpha" not in {*plain, *other}
    assert names([plain, varied, other], "algorithm.max_iter") == ["5"] * 3
    found = narrowed(grids, parsed("algorithm=fastlloyd"))
    assert (names(found, "algorithm"), names(found, "data")) == (
        ["fastlloyd"] * 2,
        ["iris,wine"] * 2,
    )
    # A method of one's own joins where a sweep sets no options of others.
    found = narrowed(grids, parsed("algorithm=fastlloyd,mine"))
    assert names(found, "algorithm") == ["fastlloyd,mine", "fastlloyd", "mine"]
    # Bounds are of every data set, a number of points is not.
    found = narrowed(grids, parsed("data=mine"))
    assert (names(found, "data"), names(found, "algorithm")) == (
        ["mine"] * 2,
        ["fastlloyd,glloyd", "fastlloyd"],
    )
    # What one group leaves out does not come back by the other.
    found = narrowed(grids, parsed("algorithm=glloyd", "data=wine"))
    assert (names(found, "algorithm"), names(found, "data")) == (["glloyd"], ["wine"])
    with pytest.raises(ConfigurationError, match="data=iris fits no sweep"):
        narrowed(grids, parsed("algorithm=lloyd", "data=iris"))
    with pytest.raises(ConfigurationError, match="algorithm=mine fits no sweep"):
        narrowed(grids[1:2], parsed("algorithm=fastlloyd,mine"))
    assert narrowed([], parsed("algorithm=mine")) == []


def test_a_method_of_ones_own_runs_once_at_each_epsilon_of_an_experiment() -> None:
    for name, data in (("feddp_fig1", "mixture"), ("fastlloyd_fig2", "iris,wine")):
        found = expand(
            [
                f"+experiment={name}",
                "algorithm=proxy_lloyd,balcan",
                f"data={data}",
                "seed=0",
            ]
        ).settings
        own = [run for run in found if run["algorithm"]["name"] == "balcan"]
        assert (
            len(own)
            == 5 * len({run["data"]["name"] for run in found})
            == 5 * len(data.split(","))
        )
        assert {run["variant"] for run in own} == {None}
        assert {run["privacy"]["epsilon"] for run in own} == {
            run["privacy"]["epsilon"] for run in found
        }
    epsilons = "privacy.epsilon=1,2"
    # One that can use the server's points, or do without, runs both ways.
    grids = [
        parsed("data=mixture", "data.server=own", "algorithm=a", epsilons),
        parsed(
            "data=mixture",
            "data.server=null",
            "variant=without",
            "algorithm=a",
            epsilons,
        ),
        parsed("data=mixture", "data.server=held_out", "algorithm=b", epsilons),
        parsed("data=mixture", "algorithm=c"),
    ]
    assert (
        names(narrowed(grids, parsed("algorithm=proxy_lloyd")), "algorithm")
        == ["proxy_lloyd"] * 3
    )
    assert names(narrowed(grids, parsed("algorithm=mine")), "data.server") == [
        "own",
        "held_out",
    ]
    # Where all that vary epsilon have options of their own, it gets theirs.
    grids[:3] = [parsed("data=mixture", "algorithm=a", "algorithm.alpha=1,2", epsilons)]
    assert names(narrowed(grids, parsed("algorithm=c,mine")), "privacy.epsilon") == [
        "1,2"
    ]
    assert names(
        narrowed(grids, parsed("algorithm=c,mine", "privacy.epsilon=3")),
        "privacy.epsilon",
    ) == ["3"]


def test_a_trust_model_of_ones_own_is_chosen_as_an_algorithm_is() -> None:
    register_trust(Notary())
    try:
        runs = expand(
            ["data=iris", "engine=direct", "algorithm=glloyd", "trust=notary,central"]
        ).settings
        assert [run["trust"] for run in runs] == [
            {"name": "notary"},
            {"name": "central"},
        ]
        assert run_job(runs[0])["trust"] == "notary"
        with pytest.raises(ConfigurationError, match=r"is 'notry', .* did you mean"):
            expand(["data=iris", "trust=notry"])
    finally:
        TRUST_MODELS.pop("notary")
    with pytest.raises(ConfigurationError, match="trust is 'notary', which conf/trust"):
        expand(["data=iris", "trust=notary"])


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file for each data set: nothing reads them before a run."""
    folder = tmp_path_factory.mktemp("data")
    for path in (CONFIGURATION / "data").glob("*.yaml"):
        given = yaml.safe_load(path.read_text()).get("path", "???")
        if given != "???":
            (folder / Path(given).name).write_bytes(b"")
    return folder


def experiment_of(name: str) -> dict[str, Any]:
    return dict(json.loads(text_of("experiment", name)))


# With one seed and without data sweeps: that each of its methods runs,
# tests/nightly/simulations/test_every_experiment.py says.
@pytest.mark.parametrize("name", EXPERIMENTS[1::2])
def test_every_second_experiment_expands(name: str, data_dir: Path) -> None:
    grids = experiment_of(name)["sweep"]["grids"]
    # One algorithm and one data set of the first sweep: to compose all of all takes a
    # minute.
    first = [
        f"{group}={grids[0][group].split(',')[0]}" for group in ("algorithm", "data")
    ]
    sweep = expand(
        [
            f"experiment={name}",
            *first,
            "seed=0",
            f"data_dir={data_dir}",
            "output=here",
            "workers=3",
        ]
    )
    assert sweep.name == name
    assert sweep.missing == ()
    assert (sweep.common["output"], sweep.common["workers"]) == ("here", 3)
    assert len({job_key(one) for one in sweep.settings}) == len(sweep.settings) > 0


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_figures_of_every_experiment_show_columns_that_its_runs_have(name: str) -> None:
    [first, *_] = (given := experiment_of(name))["sweep"]["grids"]
    point = together(
        *(first[group].split(",")[0] for group in ("algorithm", "data")), "iid"
    )
    columns = RESULT_COLUMNS | set(flat(point))
    for spec in parse_specs(given["sweep"]["figures"]):
        for key, column in columns_of(spec):
            assert column in columns or column.startswith("algorithm."), (
                spec.name,
                key,
                column,
            )


def leaves(group: str, option: str) -> set[str]:
    return {f"{group}.{key}" for key in json.loads(text_of(group, option))}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_sweep_of_an_experiment_names_keys_and_choices_that_there_are(
    name: str,
) -> None:
    given = experiment_of(name)
    top = json.loads(text_of(".", "config"))
    assert set(given) <= {*top, "engine", "privacy", "trust", "partition"}
    assert set(given["sweep"]) == {"title", "grids", "figures"}
    for grid in given["sweep"]["grids"]:
        for algorithm, data in itertools.product(
            grid["algorithm"].split(","), grid["data"].split(",")
        ):
            known = (
                {*top, "algorithm", "data"}
                | leaves("algorithm", algorithm)
                | leaves("data", data)
            )
            known |= leaves("privacy", "seeded") | leaves("partition", "iid")
            assert set(grid) <= known, (name, grid)


def test_a_sweep_of_data_that_every_set_takes_sets_keys_that_every_set_has() -> None:
    for option in DATA:
        assert leaves("data", option) >= {
            *(
                f"data.{key}"
                for key in (
                    "name",
                    "source",
                    "n_clusters",
                    "bounds",
                    "label_column",
                    "server",
                )
            )
        }


def together(algorithm: str, data: str, partition: str) -> dict[str, Any]:
    """Groups put together without Hydra, which would take a second for each dozen."""
    config = json.loads(text_of(".", "config"))
    chosen = {"algorithm": algorithm, "data": data, "partition": partition}
    chosen |= {"privacy": "seeded", "trust": "default", "engine": "direct"}
    for group, option in chosen.items():
        config[group] = json.loads(text_of(group, option))
    if data == "file":
        config["data"] |= {"path": "x.csv", "n_clusters": 3, "bounds": "0,1"}
    if partition == "fixed_sizes":
        config["partition"]["sizes"] = "100,50"
    found = OmegaConf.to_container(
        OmegaConf.create(config), resolve=True, throw_on_missing=True
    )
    assert isinstance(found, dict)
    return {str(key): value for key, value in found.items()}


def test_the_files_of_algorithms_are_generated() -> None:
    folder = PROJECT / "conf" / "algorithm"
    assert {path.name: path.read_text() for path in folder.iterdir()} == group_texts()


def test_options_of_a_group_are_of_its_algorithm_and_of_no_other() -> None:
    for algorithm in ALGORITHMS:
        name = json.loads(text_of("algorithm", algorithm))["name"]
        options = task_kind(name).option_class()()
        if options.get_params():
            assert flat_options({"algorithm": options})["algorithm"] == name


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_key_is_one_of_the_run_configuration(algorithm: str) -> None:
    known = {key.name for key in run_keys()}
    pairs = [("iris", partition) for partition in PARTITIONS] + [
        (data, "iid") for data in DATA
    ]
    for data, partition in pairs:
        settings = together(algorithm, data, partition)
        for evaluation in ("none", "private"):
            run_config = run_config_of({**settings, "evaluation": evaluation})
            assert set(run_config) <= known
            assert all(
                isinstance(value, str | int | float | bool)
                for value in run_config.values()
            )
        # Each is a configuration that a run may have, for rows of the default number of
        # clients.
        require_valid(settings)
