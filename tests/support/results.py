"""Reports and results of runs that nobody made, to be written, drawn and read."""

from __future__ import annotations

from typing import Any

import numpy as np

from flwr_dpkmeans.data.points import Bounds
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.privacy.report import PrivacyReport
from flwr_dpkmeans.results.model import Model
from flwr_dpkmeans.results.run_result import RunResult
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.statement import build_report


def report_of(
    k: int,
    d: int,
    attempts: list[tuple[int, int]] | None = None,
    counted: int | None = None,
    **values: Any,
) -> PrivacyReport:
    settings: dict[str, Any] = {"n_examples": 1000, "max_iter": 3}
    config = parse_config(n_clusters=k, bounds=((-1.0,), (1.0,)), **(settings | values))
    plan = draft_plan(
        config, run_id=1, n_clients=4, seed=1, n_features=d, n_examples=counted
    )
    return build_report(
        plan,
        attempts
        or [(index, 0) for index in range(plan.first_round, plan.last_round + 1)],
    )


def result_of(
    k: int = 4, d: int = 2, *, report: PrivacyReport | None = None, **values: Any
) -> RunResult:
    generator = np.random.default_rng(k + d)
    centroids = generator.uniform(0, 16, (k, d))
    told = report or report_of(k, d)
    points, counts = (
        values.pop("centroids", centroids),
        values.pop("counts", generator.normal(100, 80, k)),
    )
    bounds = Bounds(*values.pop("bounds", ((-1.0,), (1.0,))))
    model = Model(points, counts, bounds, told, values.pop("feature_names", ()))
    return RunResult(model, told, **({"movements": (0.5, 0.25, 0.125)} | values))
