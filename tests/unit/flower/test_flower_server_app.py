"""What a ServerApp refuses before a simulation, and says at the end of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.flower.run_config import checked_strategy

BASE: dict[str, Any] = {
    "algorithm": "fastlloyd", "n-clusters": 3, "num-clients": 3, "bounds": "0,8",
}  # fmt: skip


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
    with pytest.raises(ConfigurationError, match="num-clients is 'auto', but outside"):
        checked_strategy(auto, 3, simulated=False)
