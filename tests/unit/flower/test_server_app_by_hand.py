"""What a ServerApp refuses before a simulation, and says at the end of a run, by hand."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.flower.server_app import checked_strategy, report_result
from flwr_dpkmeans.flower.strategy import KMeansResult
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.statement import build_report

BASE: dict[str, Any] = {
    "algorithm": "fastlloyd",
    "n-clusters": 3,
    "num-clients": 3,
    "bounds": "0,8",
}


@pytest.mark.parametrize("files", ["all", "first"])
def test_a_page_is_named_where_it_is_and_its_lack_where_all_clients_write(
    files: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = parse_config(
        n_clusters=2,
        bounds=((-1.0,), (1.0,)),
        n_examples=300,
        algorithm="fastlloyd",
        max_iter=1,
    )
    plan = draft_plan(config, run_id=1, n_clients=3, seed=0, n_features=2)
    report = build_report(plan, [(1, 0)])
    strategy: Any = SimpleNamespace(
        run=SimpleNamespace(plan=plan, clusters=None, report=report)
    )
    (tmp_path / "client-2").mkdir()
    page = tmp_path / "client-2" / "report.html"
    page.touch()
    result = KMeansResult(privacy=None, confirmed=(2, 3), node_ids=(2, 3, 4))
    with caplog.at_level(logging.INFO, logger="flwr_dpkmeans.server"):
        report_result(strategy, result, tmp_path, {"output-files": files})
    said = [record.getMessage() for record in caplog.records]
    lacking = [
        (
            "client 3 confirmed the result: its own log says where the files are, or"
            " why there are none"
        ),
        "client 4 did not confirm its result: look at its log",
    ]
    place = said.index("files of the server:")
    assert "\n".join(said[:place]).strip() == str(report).strip()
    written = sorted((tmp_path / "server").iterdir())
    assert sorted(said[place + 1 : place + 1 + len(written)]) == [
        f"  {path}" for path in written
    ]
    named = f"page of client 2, with all files beside it: {page}"
    where = [
        (
            "The server does not see what came out, as it knows the noise: clients have"
            " it, with how sure it is."
        ),
        f"Look at the first client's page: {page}",
    ]
    assert said[place + 1 + len(written) :] == [
        named,
        *lacking * (files == "all"),
        *where,
    ]


def test_simulated_nodes_refusals_are_said_before_they_are_asked(
    tmp_path: Path,
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a,b,kind\n" + "1,2,0\n3,4,1\n" * 4)
    run = BASE | {"data": str(path)}
    for more in (
        {},
        {"columns": "b,a"},
        {"label-column": "kind", "evaluation": "private", "n-classes": 2},
    ):
        for n_nodes in (0, 3):
            assert (
                checked_strategy(run | more, n_nodes, simulated=True).config.algorithm
                == "fastlloyd"
            )
    for more, sentence in (
        ({"columns": "c"}, "'c'"),
        ({"evaluation": "private", "n-classes": 2}, "this client has no labels"),
        ({"n-features": 5}, "table has 3 features, but the plan has 5"),
        ({"partition": "fixed_sizes", "partition-sizes": "1,2"}, "size"),
    ):
        checked_strategy(run | more, 3, simulated=False)
        with pytest.raises(Exception, match=sentence):
            checked_strategy(run | more, 3, simulated=True)
    auto = run | {"num-clients": "auto"}
    assert checked_strategy(auto, 0, simulated=True).config.n_clients is None
    with pytest.raises(
        ConfigurationError, match="num-clients is 'auto', but outside a simulation"
    ):
        checked_strategy(auto, 3, simulated=False)
