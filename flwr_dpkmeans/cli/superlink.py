"""``flwr-dpkmeans server``: a SuperLink and its parties by name; and ``results``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from flwr_dpkmeans.cli.node import PAGE_PORT, AsJson, DryRun, Port, TokenFile
from flwr_dpkmeans.cli.option_objects import takes
from flwr_dpkmeans.cli.parsing import Command, Group
from flwr_dpkmeans.deploy import SERVER_PORTS

Folder = Annotated[Path, typer.Argument(help="The server's folder.")]
_SET_UP, _OPERATE = "Set up", "Operate"

server = typer.Typer(cls=Group, help="A SuperLink, and its parties by name.")


@dataclass(frozen=True, kw_only=True)
class InitOptions:
    """What a server's folder is made of."""

    folder: Annotated[Path, typer.Argument(help="The folder that is made.")]
    parties: Annotated[
        list[str], typer.Option(metavar="NAME...", help="At least two names.")
    ]
    federation: Annotated[
        str | None, typer.Option(help="Its name (default: the folder's).")
    ] = None
    address: Annotated[
        str | None,
        typer.Option(help="HOST:PORT that nodes connect to (default: this machine)."),
    ] = None
    port: Annotated[
        int | None,
        typer.Option(
            help=(
                f"On this machine (default: a free one from {SERVER_PORTS[0]} to"
                f" {SERVER_PORTS[-1]})."
            )
        ),
    ] = None
    app: Annotated[Path, typer.Option(help="Project or .fab file (default: here).")] = (
        Path()
    )


@server.command("init", cls=Command, rich_help_panel=_SET_UP)
@takes(InitOptions)
def init(options: InitOptions) -> int:
    """Make a folder: certificates, server.toml, and the invitation that goes around."""
    from flwr_dpkmeans.deploy import server_command

    return server_command.make_server(
        options.folder,
        options.parties,
        federation=options.federation,
        address=options.address,
        port=options.port,
        app=options.app,
    )


@server.command("check", cls=Command, rich_help_panel=_SET_UP)
def check(folder: Folder) -> int:
    """Look at everything, and print a line for each item."""
    from flwr_dpkmeans.deploy import server_command

    return server_command.check_server(folder)


@server.command("propose", cls=Command, rich_help_panel=_OPERATE)
def propose(
    app: Annotated[Path, typer.Argument(help="Project, or .fab file.")],
    folder: Folder,
) -> int:
    """Write a new version of the app into the invitation and server.toml.

    Or an old one, which the parties still allow.
    """
    from flwr_dpkmeans.deploy import server_command

    return server_command.propose(folder, app)


@server.command("start", cls=Command, rich_help_panel=_OPERATE)
def start(
    folder: Folder,
    *,
    background: Annotated[
        bool, typer.Option("--background", help="Return as soon as it answers.")
    ] = False,
    dry_run: DryRun = False,
) -> int:
    """Look at everything, then run flower-superlink.

    The invited parties are let in as they appear.
    """
    from flwr_dpkmeans.deploy import server_command

    return server_command.start_server(folder, background=background, dry_run=dry_run)


@server.command("status", cls=Command, rich_help_panel=_OPERATE)
def status(folder: Folder, *, json: AsJson = False) -> int:
    """Say who is there, and how each run is or ended."""
    from flwr_dpkmeans.deploy import server_command

    return server_command.print_status(folder, as_json=json)


@server.command("dashboard", cls=Command, rich_help_panel=_OPERATE)
def dashboard(
    folder: Folder,
    *,
    port: Port = PAGE_PORT,
    token_file: TokenFile = None,
) -> int:
    """Show the runs below a folder as a live page on this machine.

    With numbers for Prometheus.
    """
    from flwr_dpkmeans.deploy import server_command

    return server_command.show_page(folder, port, token_file)


def results(
    path: Annotated[
        Path,
        typer.Argument(
            help="The server's folder, NODE.toml or its folder, or a folder of results."
        ),
    ] = Path(),
) -> int:
    """Print a line for each party's result.

    Its run, when it ended, what it cost or why it failed, its page.
    """
    from flwr_dpkmeans.deploy import server_command

    return server_command.print_results(path)
