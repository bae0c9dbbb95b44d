"""Whether clusters are as far apart as FedDP-KMeans' theory asks (its appendix)."""

from __future__ import annotations

import math
from typing import Any

from flwr_dpkmeans.algorithms.feddp.appendix.simplification import least_rows
from flwr_dpkmeans.algorithms.server.box_widths import squared_unit
from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.settings import Settings

QUARTER = 0.25
"""Of the start's budget, for either (Algorithm 5, lines 2 and 4)."""
SPACING = 100.0
"""Distance of the parts over the largest diameter of one."""


def require_known(options: Any, settings: Settings) -> None:
    """Refuse either without the public numbers that it is computed from.

    And these numbers alone.
    """
    used = options.reduce_diameter or options.simplify_server_data
    for name, is_needed in {
        "least_weight": used,
        "deviation": options.reduce_diameter,
    }.items():
        if is_needed != (getattr(options, name) is not None):
            why = "it is needed" if is_needed else "nothing needs it"
            raise ConfigurationError(
                f"{name} is {getattr(options, name)}, but {why}: give public knowledge"
                f" such as {name}=0.1 with reduce_diameter, or leave both out."
            )
    if used and (not settings.unit.by_row or settings.n_examples is None):
        raise ConfigurationError(
            f"unit is {settings.unit.value!r} and n_examples {settings.n_examples}, but"
            " Lemma 17 and Algorithm 4 are about a public number of rows: choose"
            " unit='record' and declare n_examples, or leave both out."
        )


def separation_cautions(plan: Plan) -> tuple[str, ...]:
    """What the plan's public numbers say against these steps.

    And against centroids of the clearest rows alone.
    """
    config, facts = plan.config, plan.server
    cautions = []
    if facts is not None and plan.n_features is not None and config.reduce_diameter:
        distance = connecting_distance(config, plan.n_features)
        if SPACING * distance > facts.data_radius:
            cautions.append(
                f"reduce_diameter puts parts {SPACING * distance:.3g} apart (in the"
                f" box; server points nearer than {distance:.3g} are one part), but"
                f" rows are clipped to {facts.data_radius:.3g} anyway: it changes"
                " nothing and costs a quarter of the start's budget; leave it out."
            )
    halving = [
        planned for planned in plan.rounds if planned.name.startswith("simplify-")
    ]
    if halving:
        noise = plan.released_std(halving[0], halving[0].blocks[0])
        if noise > least_rows(config):
            cautions.append(
                f"simplify_server_data asks {len(halving)} times, each with noise of"
                f" {noise:.3g} rows, whether a server point stands for over"
                f" {least_rows(config):.3g}: noise decides; leave it out, or raise"
                " epsilon."
            )
    if config.margin != 1.0:
        cautions.append(
            f"margin is {config.margin:g}: the first centroids are of the rows that are"
            " clear by that much, perhaps next to none, and where that was so Lloyd"
            " rounds did not mend it; give margin=1."
        )
    return tuple(cautions)


def connecting_distance(config: RunConfig, n_features: int) -> float:
    """D of Lemma 17, up to which it connects server points, in scaled units.

    4 log(n) sqrt(d) sigma.
    """
    unit = squared_unit(config.settings.bounds)
    if unit is None:
        raise ConfigurationError(
            f"deviation is {config.deviation:g}, in the caller's units, but the"
            " features' bounds have different widths: give all features one width."
        )
    return (
        4.0
        * math.log(config.n_examples)
        * math.sqrt(n_features / unit)
        * float(config.deviation)
    )
