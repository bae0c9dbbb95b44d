"""``flwr-dpkmeans run``: checks before `flwr run --stream`, and how the run ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import click
import typer

from flwr_dpkmeans.cli.option_objects import takes
from flwr_dpkmeans.cli.parsing import UNKNOWN, WORDS


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What the checks need of Flower's arguments, all of which it takes."""

    app: Annotated[str, typer.Argument(help="The app's folder.")] = "."
    superlink: Annotated[
        str | None,
        typer.Argument(help="A SuperLink's name in Flower's configuration."),
    ] = None
    run_config: Annotated[
        list[str],
        typer.Option(
            "--run-config", "-c", help="Keys of the run, as 'key=value key=value'."
        ),
    ] = field(default_factory=list)
    server: Annotated[
        Path | None,
        typer.Option(help="Folder of server init: where to run, and among whom."),
    ] = None
    federation_config: Annotated[
        list[str],
        typer.Option(help="Of Flower's simulation, as 'num-supernodes=10'."),
    ] = field(default_factory=list)
    federation: Annotated[
        str | None, typer.Option(help="A federation's name, for Flower.")
    ] = None
    format: Annotated[
        str | None, typer.Option(help="How Flower prints, such as json.")
    ] = None


@takes(RunOptions)
def run(options: RunOptions) -> int:
    """Check the configuration and the table, then run flwr run --stream.

    The exit code says how the run ended. Every argument of flwr run will do: see flwr
    run --help.
    """
    from flwr_dpkmeans.deploy.run_command import RunRequest, run_app

    meta = click.get_current_context().meta
    request = RunRequest(
        app=options.app,
        superlink=options.superlink,
        run_config=options.run_config,
        server=options.server,
        federation_config=options.federation_config,
        format=options.format,
        words=meta[WORDS],
        unknown=meta[UNKNOWN],
    )
    return run_app(request)
