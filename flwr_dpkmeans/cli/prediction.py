"""``flwr-dpkmeans predict`` and ``flwr-dpkmeans options``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from flwr_dpkmeans.cli.file_format import FileFormat
from flwr_dpkmeans.cli.option_objects import takes


@dataclass(frozen=True, kw_only=True)
class PredictOptions(FileFormat):
    """A model, a table, and where its labels are written."""

    model: Annotated[
        str,
        typer.Argument(help="model.json of a run, or what FederatedKMeans.save wrote."),
    ]
    table: Annotated[
        str, typer.Argument(help="A table's file, or a folder of .parquet.")
    ]
    output: Annotated[
        str,
        typer.Option(
            "-o",
            "--output",
            help="The .csv file to write; one that is there is replaced.",
        ),
    ]


@takes(PredictOptions)
def predict(options: PredictOptions) -> int:
    """Label the rows of a table by a model.

    Columns are found by name, in any order and among others.
    """
    from flwr_dpkmeans.cli.app_commands import write_labels

    return write_labels(
        options.model,
        options.table,
        options.output,
        options.dialect,
    )


def options(
    *,
    toml: Annotated[
        bool,
        typer.Option(
            "--toml", help="The block tool.flwr.app.config of pyproject.toml."
        ),
    ] = False,
) -> int:
    """List the keys of flwr run, with their defaults."""
    from flwr_dpkmeans.cli.app_commands import print_options

    return print_options(toml=toml)
