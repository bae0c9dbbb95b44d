"""A strategy from a run's configuration."""

from __future__ import annotations

from typing import Any

from flwr_dpkmeans import foreign_names
from flwr_dpkmeans.algorithms.one_place.not_federated import algorithm_entry
from flwr_dpkmeans.data.bundled import BUNDLED
from flwr_dpkmeans.data.loading.layout import Layout
from flwr_dpkmeans.data.loading.server_table import load_server_table
from flwr_dpkmeans.data.loading.source import require_source
from flwr_dpkmeans.data.loading.table import Table
from flwr_dpkmeans.data.schema_source import schema_of
from flwr_dpkmeans.data.simulated.mixture import MIXTURE_BOUNDS
from flwr_dpkmeans.data.simulated.partition import (
    COLUMN_KINDS,
    MIXTURE,
    Partition,
    parse_sizes,
)
from flwr_dpkmeans.errors import ConfigurationError, member, nearest, require_positive
from flwr_dpkmeans.flower.client.ray_nodes import OutputFiles
from flwr_dpkmeans.flower.client.simulated_tables import (
    RunValues,
    mixture_of,
    simulated_part,
)
from flwr_dpkmeans.flower.messages.parties import Parties
from flwr_dpkmeans.flower.messages.server_kind import is_simulated_server
from flwr_dpkmeans.flower.run_keys import (
    DEFAULTS,
    SIMULATED,
    keys_of,
    own_keys,
    run_keys,
)
from flwr_dpkmeans.flower.strategies.timeouts import Timeouts
from flwr_dpkmeans.flower.strategy import PrivateKMeans
from flwr_dpkmeans.log import LogOptions
from flwr_dpkmeans.options import AUTO, DEFAULT_ALGORITHM, foreign_table, task_kind
from flwr_dpkmeans.sums.public_facts import ServerData
from flwr_dpkmeans.sums.round import Array
from flwr_dpkmeans.sums.settings import EvaluationKind
from flwr_dpkmeans.sums.task import TASKS


def checked_strategy(
    run_config: RunValues,
    n_nodes: int,
    *,
    simulated: bool | None = None,
) -> PrivateKMeans:
    """Build the strategy, and refuse at once what simulated nodes would refuse.

    So many of them (0: not known), after a minute.

    Their table (file, columns, cells, split) and the plan for it are looked at as they
    look at them. `simulated` is whether this will be a simulation, if not this process
    is one.
    """
    simulated = is_simulated_server() if simulated is None else simulated
    strategy = strategy_from_run_config(run_config, simulated=simulated)
    source = str({**DEFAULTS, **run_config}["data"])
    if simulated and source != MIXTURE:
        node = {"partition-id": 0, "num-partitions": n_nodes} if n_nodes else {}
        table = simulated_part(source, run_config, node)
        n_clients = strategy.config.n_clients or n_nodes
        if n_clients:
            width = len(table.names) or table.points.shape[1]
            strategy.rehearse(
                n_clients,
                width,
                table.names,
                has_labels=table.labels is not None,
                has_persons=table.persons is not None,
                has_weights=table.weights is not None,
            )
    return strategy


def strategy_from_run_config(
    run_config: RunValues,
    *,
    server_points: Array | None = None,
    simulated: bool | None = None,
) -> PrivateKMeans:
    """Build the strategy from Flower's run configuration.

    a file of server data is read here.

    Keys are those of `run_keys`; ``"auto"`` leaves an option to the run.
    `server_points` (n_server, d) are the server's own where they are in memory already.
    Raises a ConfigurationError with the nearest valid key, with one sentence on the
    value, or for an option of an algorithm that was not chosen, and a DataError if the
    server's data are unusable.
    """
    require_known(run_config)
    kind = task_kind(run_config.get("algorithm", DEFAULT_ALGORITHM))
    makes_clusters = "n_clusters" in kind.parameter_names()
    if makes_clusters and "n-clusters" not in run_config:
        raise ConfigurationError(
            "the run configuration has no n-clusters: give it, such as n-clusters=10."
        )
    config = {
        **DEFAULTS,
        **run_config,
        SIMULATED: is_simulated_server() if simulated is None else simulated,
    }
    for key in ("data", "server-data"):
        if config[key]:
            require_source(key, str(config[key]), MIXTURE)
    _require_partition(config)
    member("output-files", config["output-files"], OutputFiles)
    LogOptions.of(config)
    if config.get("evaluation") == EvaluationKind.EXACT.value and not config[SIMULATED]:
        raise ConfigurationError(
            "evaluation is 'exact', which releases sums without noise and exists in"
            " simulation only: choose evaluation='private'."
        )
    server_data = _server_data(config) if server_points is None else server_points
    options = _public_facts(config) | _stated_options(config)
    parties = Parties.of_texts(str(config["parties"]), str(config["without"]))
    n_clients = parties.expected(_unless_auto(config, "num-clients"))
    if n_clients is None and not config[SIMULATED]:
        raise ConfigurationError(
            "num-clients is 'auto', but outside a simulation nobody knows how many"
            " clients are still to join: give the number that must take part, such as"
            " num-clients=3, or name them, such as parties='ward-7, ward-9'."
        )
    if makes_clusters:
        # Flower may bring an override that stands beside "auto" as text.
        n_clusters = config["n-clusters"]
        if isinstance(n_clusters, str) and n_clusters.isdecimal():
            n_clusters = int(n_clusters)
        options |= {"n_clusters": n_clusters, "max_clusters": config["max-clusters"]}
    return PrivateKMeans(
        bounds=_bounds(config, has_server_points=server_data is not None),
        bounds_domain=_unless_auto(config, "bounds-domain"),
        server_data=server_data,
        timeouts=Timeouts(
            config["join-timeout"],
            config["round-timeout"],
            config["run-timeout"],
            config["concurrent"],
        ),
        n_clients=n_clients,
        parties=parties,
        **options,
    )


def require_known(run_config: RunValues) -> None:
    """Refuse a key that does not exist, with the nearest that does."""
    names = {key.name for key in run_keys()}
    for key in run_config:
        if key not in names:
            answer = foreign_names.answer(key, foreign_names.KEYS)
            if answer:
                raise ConfigurationError(
                    f"there is no run-config key {key!r}, as {answer}."
                )
            # One that all share stands in no table, as max-iter does.
            option = key.rpartition(".")[2]
            in_tables = [name for name in names if name.endswith(f".{key}")]
            similar = [option] if option in names else sorted(in_tables)
            mend = nearest(key, names)
            if similar:
                mend = f"did you mean {' or '.join(map(repr, similar))}?"
            raise ConfigurationError(f"there is no run-config key {key!r}: {mend}")


def _stated_options(config: RunValues) -> dict[str, Any]:
    """The options that are stated and not automatic, by their flat names."""
    kind = algorithm_entry(config["algorithm"])
    for other in TASKS.values():
        for key in keys_of(other) if other is not kind else ():
            value = _unless_auto(config, key.name)
            if value is not None:
                foreign_table(
                    key.name,
                    key.option,
                    value,
                    other,
                    kind.name,
                )
    values = {
        key.option: _unless_auto(config, key.name)
        for key in (*own_keys(), *keys_of(kind))
        if key.option
    }
    return {option: value for option, value in values.items() if value is not None}


def _unless_auto(config: RunValues, key: str) -> Any:
    """What a key was given; None where it is left to the run."""
    value = config.get(key, AUTO)
    return None if isinstance(value, str) and value == AUTO else value


def _simulated_source(config: RunValues) -> str:
    """What `data` names in a simulation.

    Deployed nodes bring their own files, so nothing is known of them.
    """
    return str(config["data"]) if config[SIMULATED] else ""


def _public_facts(config: RunValues) -> dict[str, Any]:
    """What is public of the tables: names as stated.

    a bundled data set's size and names are in its documentation.
    """
    source = _simulated_source(config)
    facts: dict[str, object] = {}
    if source == MIXTURE:
        facts["n_features"] = mixture_of(config).n_features
    elif source in BUNDLED:
        for name in ("n_examples", "n_features", "feature_names"):
            facts[name] = getattr(BUNDLED[source], name)
    if schema_of(config.get("bounds")) is not None:
        return {key: value for key, value in facts.items() if key == "n_examples"}
    columns = _unless_auto(config, "columns")
    names = Layout.of("" if columns is None else columns).columns
    if names:
        facts["feature_names"] = names
    return facts


def _server_data(config: RunValues) -> Table | Array | None:
    """The server's own points.

    A file, a bundled data set, or those of the generated mixture.
    """
    source = str(config["server-data"])
    if not source and _simulated_source(config) == MIXTURE:
        kind = algorithm_entry(config["algorithm"])
        if kind.server_data is ServerData.NEEDED:
            source = MIXTURE
    if not source:
        return None
    if source == MIXTURE:
        return mixture_of(config).server_points()
    schema = schema_of(config.get("bounds"))
    left_out = {
        str(config[key])
        for key in (
            "label-column",
            "partition-column",
            "person-column",
            "weight-column",
        )
    }
    return load_server_table(source, ignored=left_out - {""}, schema=schema)


def _bounds(config: RunValues, *, has_server_points: bool) -> object:
    """Bounds as stated, or the documented ones of the data.

    None where neither are, or they follow from server data.
    """
    stated, source = _unless_auto(config, "bounds"), _simulated_source(config)
    if stated is not None or has_server_points:
        return stated
    if source == MIXTURE:
        return MIXTURE_BOUNDS
    return BUNDLED[source].bounds if source in BUNDLED else None


def _require_partition(config: RunValues) -> None:
    kind = str(config["partition"])
    member("partition", kind, Partition)
    if config["data"] == MIXTURE and kind != Partition.IID.value:
        raise ConfigurationError(
            f"partition is {kind!r}, but the rows of the mixture are drawn for each"
            " client: leave partition='iid'."
        )
    if kind in COLUMN_KINDS and not config["partition-column"]:
        raise ConfigurationError(
            f"partition is {kind!r}, but partition-column does not say by which column:"
            " name one of the file's columns, or 'target' for bundled data."
        )
    require_positive("partition-alpha", config["partition-alpha"])
    if kind == Partition.FIXED_SIZES.value:
        parse_sizes(config["partition-sizes"])
