"""``flwr-dpkmeans plan``: what to expect of a run, before any data are touched."""

from __future__ import annotations

import click

from flwr_dpkmeans.cli.option_objects import require_one_at_most, takes
from flwr_dpkmeans.cli.plan_options import PlanOptions


@takes(PlanOptions)
def plan(options: PlanOptions) -> int:
    """Forecast noise, accuracy, messages and minutes of a run from its public shape."""
    require_one_at_most(n_examples=options.n_examples, count_rows=options.count_rows)
    require_one_at_most(accuracy=options.accuracy, target_excess=options.target_excess)
    if options.n_examples is None and not options.count_rows:
        raise click.UsageError(
            "one of --n-examples and --count-rows is required",
            click.get_current_context(),
        )
    from flwr_dpkmeans.cli.plan_command import print_forecast

    return print_forecast(options)
