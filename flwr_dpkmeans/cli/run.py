"""``flwr-dpkmeans run``: checks before `flwr run --stream`, and how the run ended."""

from __future__ import annotations

from collections.abc import Sequence
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
    without: Annotated[
        str | None,
        typer.Option(help="Names of nodes that do not take part, as ward-8."),
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
    from flwr_dpkmeans.deploy.node_command import settings_text
    from flwr_dpkmeans.deploy.run_command import RunRequest, run_app

    meta = click.get_current_context().meta
    words = list(meta[WORDS])
    run_config = list(options.run_config)
    if options.without is not None:
        # Flower has no such option, but the app has a key of this name.
        setting = settings_text({"without": options.without})
        run_config.append(setting)
        words = [*_leave_out(words, "--without"), "--run-config", setting]
    request = RunRequest(
        app=options.app,
        superlink=options.superlink,
        run_config=run_config,
        server=options.server,
        federation_config=options.federation_config,
        format=options.format,
        words=words,
        unknown=meta[UNKNOWN],
    )
    return run_app(request)


def _leave_out(words: Sequence[str], option: str) -> list[str]:
    """Words of a command line without an option and its value."""
    others = list[str]()
    rest = iter(words)
    for word in rest:
        if word == option:
            next(rest, None)
        elif not word.startswith(f"{option}="):
            others.append(word)
    return others
