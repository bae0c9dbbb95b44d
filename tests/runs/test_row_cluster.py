"""Rows on a Ray or Dask cluster: the same bits as in one process, and one sentence for
what goes wrong.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import dask
import distributed
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from flwr.app import Context, RecordDict
from support.golden_runs import FILE, RUNS, Run, digest_of, name_of
from support.installed import install

from flwr_dpkmeans import __version__, federate
from flwr_dpkmeans.data.loading.declared_tables import load_stated
from flwr_dpkmeans.data.loading.layout import Layout
from flwr_dpkmeans.errors import ConfigurationError, DataError
from flwr_dpkmeans.flower import engines, row_cluster
from flwr_dpkmeans.flower.client.node_config import node_settings
from flwr_dpkmeans.flower.client.node_table import load_client
from flwr_dpkmeans.flower.kmeans_client import STATISTIC, KMeansClient
from flwr_dpkmeans.flower.row_cluster import ClusterClient
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.public_facts import ServerFacts
from flwr_dpkmeans.sums.wire import dump_plan

BY_RECORD = [run for run in RUNS if run[0][2] == "record" and run[1] == "inprocess"]


def summed_here(groups: Iterable[Any], of_block: Callable[[Any], Any]) -> Iterator[Any]:
    """A cluster as far as a client asks it: each group of rows is worked on in turn."""
    return (
        answer for group in groups for answer in row_cluster.of_group(group, of_block)
    )


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let the clients of the in-process engine have their rows elsewhere, in two or
    three groups of 20.
    """
    numbers = count()

    def client(
        X: Any,
        feature_names: tuple[str, ...] = (),
        labels: Any = None,
        persons: None = None,
    ) -> ClusterClient:
        names = [*(feature_names or (f"x{place}" for place in range(X.shape[1])))]
        given = dict(zip(names, np.asarray(X).T, strict=True)) | (
            {} if labels is None else {"of class": labels}
        )
        source = tmp_path / f"{next(numbers)}.parquet"
        table = pa.table(
            {name: np.ascontiguousarray(cells) for name, cells in given.items()}
        )
        pq.write_table(table, source, row_group_size=20)
        layout = Layout(tuple(names), "" if labels is None else "of class")
        made = ClusterClient(
            f"ray://{source}", partial(load_stated, layout=layout, schema=None)
        )
        # As the tables of that engine have none, and may then not be mixed with a
        # server's points that have none.
        made.feature_names = tuple(feature_names)
        return made

    monkeypatch.setattr(engines, "KMeansClient", client)
    here = replace(row_cluster.ENGINES["ray"], joined=lambda: nullcontext(summed_here))
    monkeypatch.setitem(row_cluster.ENGINES, "ray", here)


@pytest.mark.sample(3)
@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("run", BY_RECORD, ids=name_of)
def test_blocks_that_are_summed_elsewhere_give_the_same_bits(run: Run) -> None:
    # Of centroids and counts; the report also says that these tables have names.
    assert (
        digest_of(run).split()[0]
        == json.loads(FILE.read_text())[name_of(run)].split()[0]
    )


@pytest.mark.parametrize("task", ["moments", "histograms", "naive_bayes"])
def test_a_statistic_that_is_summed_elsewhere_has_the_same_bits(
    task: str, request: pytest.FixtureRequest
) -> None:
    parts = [np.random.default_rng(9).normal(size=(n, 3)).round(3) for n in (90, 70, 1)]
    labels = (
        [np.arange(len(part)) % 2 for part in parts] if task == "naive_bayes" else None
    )
    more: dict[str, Any] = {"classes": 2} if labels else {}

    def found() -> list[bytes]:
        given = {
            "bounds": (-3, 3),
            "noise": "seeded",
            "random_state": 1,
            "labels": labels,
            **more,
        }
        return [
            array.tobytes()
            for array in federate(task, parts, **given).result.arrays.values()
        ]

    whole = found()
    request.getfixturevalue("elsewhere")
    assert found() == whole


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize(
    ("algorithm", "name"),
    [("proxy_lloyd", "covariance"), ("feddp_kmeans", "outer-product")],
)
def test_a_sum_that_is_rounded_at_its_end_is_rounded_once(
    algorithm: str, name: str
) -> None:
    # The sensitivity has room for one rounding. Pairs of rows that are rounded up
    # become pairs that are rounded down where one more row comes first, so that
    # rounding each block would move an entry by half a step for each.
    facts = (
        ServerFacts(5, (0.0, 0.0), 1.5, 2.0) if algorithm == "feddp_kmeans" else None
    )
    run = parse_config(
        n_clusters=2,
        algorithm=algorithm,
        bounds=((-1.0,), (1.0,)),
        n_examples=280,
        trust="distributed",
    )
    plan = draft_plan(run, run_id=1, n_clients=2, seed=0, n_features=2, server=facts)
    (index,) = (place for place, one in enumerate(plan.rounds, 1) if one.name == name)
    arrays = {
        "centroids": np.zeros((2, 2)),
        "counts": np.zeros(2),
        "centre": np.zeros(2),
        "spread": np.ones(1),
    }
    config: dict[str, Any] = {
        "task": STATISTIC,
        "plan": dump_plan(plan),
        "round": index,
        "arrays": json.dumps([*arrays]),
    }
    rows = np.random.default_rng(3).uniform(-1, 1, (280, 2))

    def found(client: Any) -> Any:
        return np.ravel(
            client(rows, feature_names=("a", "b")).fit(
                [*arrays.values(), np.zeros(0)], config
            )[0]
        )

    assert found(engines.KMeansClient).tolist() == found(KMeansClient).tolist()


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("n_fine", [0, 6])
def test_a_block_that_cannot_be_summed_ends_the_sum_without_a_cell(n_fine: int) -> None:
    client: Any = engines.KMeansClient(np.full((20, 2), 0.25))

    def work(one: KMeansClient) -> Any:
        if len(one.points) > n_fine:
            raise ValueError("a cell is 0.25")
        return np.ones(2)

    with pytest.raises(DataError, match=r"^a block of the table on a Ray") as caught:
        client.summed(work)
    assert "0.25" not in str(caught.value)
    assert client.summed(lambda one: one.points.sum(axis=0)).tolist() == [5.0, 5.0]


@pytest.mark.usefixtures("elsewhere")
def test_a_sum_at_client_level_is_refused_before_anything_is_sent() -> None:
    run = next(run for run in RUNS if run[0][2] == "client" and run[1] == "inprocess")
    with pytest.raises(Exception, match="could not answer") as caught:
        digest_of(run)
    assert "row" not in str(caught.value)


def context(**config: Any) -> Context:
    return Context(
        1,
        2,
        {"data-path": "ray:///shared/rows", "data-id": "rows", **config},
        RecordDict(),
        {},
    )


def test_the_policy_of_a_node_with_a_cluster_allows_record_level_only(
    tmp_path: Path,
) -> None:
    policy = tmp_path / "policy.toml"
    for units, allowed in (
        ('["record", "client"]', ("record",)),
        ("[]", ("record",)),
        ('["client"]', None),
    ):
        policy.write_text(f"allowed-units = {units}\n")
        given = context(policy=str(policy), ledger=str(tmp_path / "ledger"))
        if allowed:
            assert node_settings(given).policy.allowed_units == allowed
        else:
            with pytest.raises(
                ConfigurationError,
                match=r"^allowed-units is \('client',\), but a cluster sums",
            ):
                node_settings(given)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    (tmp_path / "rows").mkdir()
    pq.write_table(pa.table({"a": [0.5]}), tmp_path / "rows" / "0.parquet")
    return tmp_path / "rows"


def described(rows: Path, kind: str = "ray") -> Any:
    client = load_client(context(columns="a", **{"data-path": f"{kind}://{rows}"}))
    return client.fit([], {"task": "describe"})


def join_ray(monkeypatch: pytest.MonkeyPatch, join: MagicMock) -> None:
    """Let ``join(address, ...)`` stand for joining a cluster."""
    ray = MagicMock(init=join)
    ray.is_initialized.return_value = False
    install(monkeypatch, ray=ray, ray__data=ray.data)


def test_no_cluster_and_no_ray_are_one_sentence_each(
    monkeypatch: pytest.MonkeyPatch, rows: Path
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "10.1.2.3:6379")
    join_ray(monkeypatch, MagicMock(side_effect=ConnectionError("at 10.1.2.3:6379")))
    with pytest.raises(DataError, match="a Ray cluster, but none answers") as caught:
        described(rows)
    assert "10.1.2.3" not in str(caught.value)
    install(monkeypatch, ray=None)
    with pytest.raises(DataError, match="Ray is not there: pip install"):
        described(rows)


@pytest.mark.parametrize("address", [None, "", "auto", "ray://auto", "ray://"])
def test_a_ray_cluster_that_anybody_started_is_never_joined(
    address: str | None, monkeypatch: pytest.MonkeyPatch, rows: Path
) -> None:
    """What is pickled there would run in the node."""
    joined = MagicMock()
    join_ray(monkeypatch, joined)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if address is not None:
        monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(DataError, match=r"Ray cluster, but none answers: .* set"):
        described(rows)
    joined.assert_not_called()


def test_a_ray_cluster_is_joined_at_the_address_that_its_owner_states(
    monkeypatch: pytest.MonkeyPatch, rows: Path
) -> None:
    joined = MagicMock()
    join_ray(monkeypatch, joined)
    monkeypatch.setenv("RAY_ADDRESS", "10.1.2.3:6379")
    described(rows)
    assert joined.call_args.args == ("10.1.2.3:6379",)


@pytest.mark.parametrize(
    "address",
    [None, "", 8786, "not an address", "127.0.0.1", "foo://x:1", "127.0.0.1:1"],
)
def test_a_dask_cluster_that_is_none_is_one_sentence(
    address: object, rows: Path
) -> None:
    # Without an address none is looked for: whoever listens where Dask does by default
    # would run code in the node.
    told = (
        r"Dask cluster, but none answers: .* and set DASK_SCHEDULER_ADDRESS to its"
        r" address"
    )
    given = {"scheduler-address": address, "distributed.comm.timeouts.connect": 0.3}
    with dask.config.set(given), pytest.raises(DataError, match=told) as caught:
        described(rows, "dask")
    assert "127.0.0.1" not in str(caught.value)


def test_no_dask_is_one_sentence(monkeypatch: pytest.MonkeyPatch, rows: Path) -> None:
    install(monkeypatch, distributed=None)
    with pytest.raises(DataError, match=r"pip install 'flwr-dpkmeans\[dask\]'"):
        described(rows, "dask")


def test_a_cluster_that_is_gone_takes_no_result_along(
    rows: Path, caplog: pytest.LogCaptureFixture
) -> None:
    client = load_client(context(columns="a", **{"data-path": f"dask://{rows}"}))
    assert client.outside({}).tolist() == [0.0, 0.0]
    assert (
        "the own rows are not held against the result: the table is on a Dask cluster,"
        " but none" in caplog.text
    )


def test_files_that_change_during_a_run_are_told(
    rows: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given = context(columns="a", **{"data-path": f"dask://{rows}"})
    load_client(given)
    assert "were written as the run went on" not in caplog.text
    pq.write_table(pa.table({"a": [0.5, 0.25]}), rows / "1.parquet")
    load_client(given)
    assert "were written as the run went on" in caplog.text


def test_a_block_whose_workers_die_of_it_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Ray would go on for ever; Dask's scheduler gives up by itself.
    data = MagicMock()
    install(monkeypatch, ray=MagicMock(data=data), ray__data=data)
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:6379")
    with row_cluster.ENGINES["ray"].joined() as summed:
        summed([{"file": "a", "group": 0}], MagicMock())
    assert data.from_items.return_value.flat_map.call_args.kwargs["max_retries"] == 5


def test_a_dask_cluster_without_a_worker_that_can_ends_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def summed_at(address: str) -> None:
        with (
            dask.config.set({"scheduler-address": address}),
            row_cluster.ENGINES["dask"].joined() as summed,
        ):
            next(iter(summed([{"file": "a", "group": 0}], MagicMock())))

    how: dict[str, Any] = {"processes": False, "protocol": "tcp://"}
    how |= {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    with (
        distributed.LocalCluster(n_workers=0, **how) as cluster,
        pytest.raises(DataError, match=r"^the Dask cluster has no worker"),
    ):
        summed_at(cluster.scheduler_address)
    for versions in (
        {"worker": "0.0.9"},
        {"worker": ModuleNotFoundError("row_cluster"), "other": __version__},
    ):
        client = MagicMock()
        client.run.return_value = versions
        install(monkeypatch, distributed=MagicMock(Client=lambda *_, c=client, **__: c))
        lacks = f"^a worker of the Dask cluster lacks flwr-dpkmeans {__version__}"
        with pytest.raises(DataError, match=lacks):
            summed_at("tcp://127.0.0.1:1")


@pytest.mark.parametrize(
    ("kind", "variable"), [("ray", "RAY_ADDRESS"), ("dask", "DASK_SCHEDULER_ADDRESS")]
)
def test_a_path_that_each_machine_would_begin_elsewhere_is_refused(
    kind: str, variable: str
) -> None:
    with pytest.raises(
        DataError,
        match=rf"give '{kind}:///shared/rows', and where the cluster is by {variable}",
    ):
        ClusterClient(
            f"{kind}://rows", partial(load_stated, layout=Layout(), schema=None)
        )


SCHEMA = """
profile = ["kind", "a"]
[columns]
a = { kind = "number", bounds = [-2, 2], missing = "centre" }
b = { kind = "number", bounds = [-2, 2] }
kind = { kind = "category", values = ["x", "y"] }
"""
ON_TWO_MACHINES = """
import json, logging, os, sys
from functools import partial
from pathlib import Path
import numpy as np
from flwr_dpkmeans.data.schema import Schema
from flwr_dpkmeans.data.loading.layout import Layout
from flwr_dpkmeans.data.loading.declared_tables import load_stated
from flwr_dpkmeans.flower import row_cluster

kind, folder = sys.argv[1], Path(sys.argv[2])
if kind == "ray":
    import ray
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 1, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    cluster.add_node(num_cpus=1)
    address = os.environ["RAY_ADDRESS"] = cluster.address
    machines = lambda: len(ray.nodes())
else:
    import dask
    from distributed import LocalCluster

    loopback = "127.0.0.1:0"
    how = {"host": "127.0.0.1", "dashboard_address": loopback}
    how["worker_dashboard_address"] = loopback
    # Pickled as between machines, without two starts more.
    how |= {"processes": False, "protocol": "tcp://"}
    cluster = LocalCluster(n_workers=2, threads_per_worker=1, **how)
    address = cluster.scheduler_address
    dask.config.set({"scheduler-address": address})
    machines = lambda: len(cluster.scheduler_info["workers"])
try:
    logging.basicConfig(level=logging.INFO, stream=sys.stdout)
    row_cluster._BLOCK_ROWS = 100
    schema = Schema.load(folder / "schema.toml")
    load = partial(load_stated, layout=Layout(label_column="class"), schema=schema)
    client = row_cluster.ClusterClient(f"{kind}://{folder / 'rows'}", load)
    whole = load(folder / "rows").points
    grid = lambda points: np.rint(2.0**16 * np.asarray(points)).sum(axis=0)
    cells = lambda one: np.hstack([one.points, one.beside])
    both = lambda one: np.append(len(one.points), grid(cells(one)))
    counted, *found = client.summed(both)
    same = np.array_equal(found, grid(whole))
    same = same and bool(kind == "ray" or client.count() == counted)
    described = client.fit([], {"task": "describe"})[2]["n_features"]
    print("FOUND", json.dumps([same, int(counted), len(whole), machines(), described]))
    # Each question to Ray Data takes seconds.
    works = [lambda one: one.outside({}), lambda one: 1 / 0]
    works.append(lambda one: load("/nowhere"))
    for work in works[:1] if kind == "ray" else works:
        try:
            client.summed(work)
        except Exception as error:
            print("FAILED", type(error).__name__, error)
    print("ADDRESS", address)
finally:
    if kind == "ray":
        ray.shutdown()
        cluster.shutdown()
    else:
        cluster.close()
"""


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("kind", "needed"),
    [pytest.param("ray", "ray.data", marks=pytest.mark.ray), ("dask", "distributed")],
)
def test_two_machines_of_a_cluster_sum_what_one_process_does(
    kind: str, needed: str, tmp_path: Path
) -> None:
    pytest.importorskip(needed)
    rng, n = np.random.default_rng(1), 700
    frame = pd.DataFrame(
        {
            "a": rng.normal(size=n),
            "b": rng.normal(size=n),
            "kind": rng.choice(["x", "y", "?"], n),
        }
    )
    frame["class"] = np.arange(n) % 3
    frame.loc[[0, 99, 300], "a"] = np.nan
    (tmp_path / "rows").mkdir()
    for place, part in enumerate((frame[:400], frame[400:])):
        part.to_parquet(tmp_path / "rows" / f"{place}.parquet", row_group_size=50)
    # Whole numbers in one file, of which one fits into no type of the other's column;
    # text of numbers in another.
    one = {"class": [0], "b": [0.5], "kind": ["x"]}
    pq.write_table(pa.table({"a": [2**53 + 1], **one}), tmp_path / "rows" / "2.parquet")
    pq.write_table(pa.table({"a": ["0.25"], **one}), tmp_path / "rows" / "3.parquet")
    (tmp_path / "schema.toml").write_text(SCHEMA)
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("RAY_")
    }
    environment |= {
        "PYTHONPATH": os.pathsep.join(sys.path),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_TMPDIR": "/tmp",
    }
    environment["RAY_raylet_start_wait_time_s"] = "300"  # a busy machine takes minutes
    run = subprocess.run(
        [sys.executable, "-c", ON_TWO_MACHINES, kind, tmp_path],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env=environment,
    )
    lines = run.stdout.splitlines()
    assert [line for line in lines if line.startswith("FOUND")] != [], run.stderr[
        -3000:
    ]
    same, counted, kept, machines, described = json.loads(
        next(line[6:] for line in lines if line.startswith("FOUND"))
    )
    assert same
    assert counted == kept == int((frame["kind"] != "?").sum()) + 2
    assert machines == 2
    assert described == 4
    failed = [line for line in lines if line.startswith("FAILED")]
    assert len(failed) == (1 if kind == "ray" else 3)
    told = (
        f"FAILED DataError a block of the table on a {kind.capitalize()} cluster cannot"
        " be summed: "
    )
    assert all(line.startswith(told) for line in failed)
    (address,) = (
        line.removeprefix("ADDRESS ") for line in lines if line.startswith("ADDRESS")
    )
    assert not any(address in line for line in failed)
