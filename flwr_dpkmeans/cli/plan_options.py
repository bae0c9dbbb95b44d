"""The options of ``flwr-dpkmeans plan``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import typer

PLAN_FILE, PICTURE_FILE = "plan.json", "plan.png"
QUICK_SEEDS = 5
TARGET_EXCESS = 0.1
_TABLE, _RUN = "The table", "The run"
_GOAL, _SIMULATION = "What is wanted", "The simulation"
_AS_IN_A_RUN = "As in a run: see flwr-dpkmeans options."


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """A run's public shape, and how it is forecast."""

    n_examples: Annotated[
        int | None,
        typer.Option(
            "--n-examples",
            "--n",
            help="Rows of all clients together; a guess is enough.",
            rich_help_panel=_TABLE,
        ),
    ] = None
    count_rows: Annotated[
        bool,
        typer.Option(
            "--count-rows",
            help="Their number is public, and that of the file of --like.",
            rich_help_panel=_TABLE,
        ),
    ] = False
    n_features: Annotated[
        int,
        typer.Option(
            "--n-features",
            "--d",
            help="Columns; 0: those of a schema, of bounds, or of --like.",
            rich_help_panel=_TABLE,
        ),
    ] = 0
    like: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="A table whose columns' names and kinds are read, and nothing else.",
            rich_help_panel=_TABLE,
        ),
    ] = None
    bounds: Annotated[
        str | None,
        typer.Option(
            "--bounds",
            "--schema",
            help=(
                "Public bounds, 'low,high' or a file, or a schema: noise is in their"
                " units (default: a fraction of half their range); or 'private'."
            ),
            rich_help_panel=_TABLE,
        ),
    ] = None
    bounds_domain: Annotated[
        str | None,
        typer.Option(
            help="With private bounds: a public range that they lie in.",
            rich_help_panel=_TABLE,
        ),
    ] = None
    private_count: Annotated[
        bool,
        typer.Option(
            "--private-count",
            help="The number of rows is a guess that the run counts privately.",
            rich_help_panel=_TABLE,
        ),
    ] = False
    n_clusters: Annotated[
        int,
        typer.Option(
            "--n-clusters",
            "--k",
            help="Clusters.",
            rich_help_panel=_RUN,
        ),
    ] = 10
    n_clients: Annotated[
        int,
        typer.Option(
            "--n-clients",
            "--clients",
            "--num-clients",
            help="Clients.",
            rich_help_panel=_RUN,
        ),
    ] = 2
    epsilon: Annotated[
        float, typer.Option(help="Total over the run.", rich_help_panel=_RUN)
    ] = 1.0
    delta: Annotated[
        float | None,
        typer.Option(help="Default: 1/(N ln N).", rich_help_panel=_RUN),
    ] = None
    unit: Annotated[
        str | None,
        typer.Option(
            help="What is protected: record (default) or client.", rich_help_panel=_RUN
        ),
    ] = None
    trust: Annotated[
        str | None,
        typer.Option(
            help="oblivious, central or distributed; default: each algorithm's own.",
            rich_help_panel=_RUN,
        ),
    ] = None
    algorithm: Annotated[
        list[str],
        typer.Option(
            metavar="NAME...",
            help="Candidates; default: all private ones without server data.",
            rich_help_panel=_RUN,
        ),
    ] = field(default_factory=list)
    evaluation: Annotated[
        str | None,
        typer.Option(
            help=(
                "none (default) or private: one more round with its share of the"
                " budget."
            ),
            rich_help_panel=_RUN,
        ),
    ] = None
    max_iter: Annotated[
        int | None, typer.Option(help=_AS_IN_A_RUN, rich_help_panel=_RUN)
    ] = None
    max_silent: Annotated[
        int | None, typer.Option(help=_AS_IN_A_RUN, rich_help_panel=_RUN)
    ] = None
    max_retries: Annotated[
        int | None, typer.Option(help=_AS_IN_A_RUN, rich_help_panel=_RUN)
    ] = None
    examples_per_client: Annotated[
        int | None, typer.Option(help=_AS_IN_A_RUN, rich_help_panel=_RUN)
    ] = None
    random_state: Annotated[
        int | None, typer.Option(help=_AS_IN_A_RUN, rich_help_panel=_RUN)
    ] = None
    accuracy: Annotated[
        float | None,
        typer.Option(
            metavar="RATIO",
            help=(
                "Cost that is wanted, over the non-private optimum's: 1.05 is 5% above,"
                " and which epsilon takes it is said."
            ),
            rich_help_panel=_GOAL,
        ),
    ] = None
    target_excess: Annotated[
        float | None,
        typer.Option(
            help=f"The same, less 1 (default: {TARGET_EXCESS:g}).",
            rich_help_panel=_GOAL,
        ),
    ] = None
    spread: Annotated[
        float,
        typer.Option(
            help="Clusters' deviation over half the range.", rich_help_panel=_SIMULATION
        ),
    ] = 0.15
    seeds: Annotated[
        int,
        typer.Option(
            help="Synthetic data sets for each point.", rich_help_panel=_SIMULATION
        ),
    ] = 20
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help=f"{QUICK_SEEDS} synthetic data sets for each point.",
            rich_help_panel=_SIMULATION,
        ),
    ] = False
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON instead of a table.")
    ] = False
    output: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER", help=f"Write {PLAN_FILE} and {PICTURE_FILE} there."
        ),
    ] = None
