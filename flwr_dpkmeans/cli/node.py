"""``flwr-dpkmeans node``: a party's node, which runs approved apps only."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from flwr_dpkmeans.cli.file_format import FileFormat
from flwr_dpkmeans.cli.option_objects import takes
from flwr_dpkmeans.cli.parsing import Command, Group

NodeFile = Annotated[Path, typer.Argument(help="NODE.toml, or its folder.")]
AsJson = Annotated[bool, typer.Option("--json", help="The same for programs.")]
Port = Annotated[int, typer.Option(help="Of the page; 0: any that is free.")]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        help="The token of the page's address; made if absent (default: a new token)."
    ),
]
Apps = Annotated[
    bool,
    typer.Option(
        "--apps", help="Isolation 'process': the part that runs apps, as its own user."
    ),
]
Patient = Annotated[
    bool,
    typer.Option(
        "--wait",
        help="Wait to be let in again, and while the clock is wrong.",
    ),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run", help="Print Flower's own command line, and start nothing."
    ),
]
PAGE_PORT = 8400
_SET_UP, _OPERATE = "Set up", "Operate"
_ROWS, _FOLDER = "The rows", "The folder"

node = typer.Typer(cls=Group, help="A party's node, which runs approved apps only.")


@dataclass(frozen=True, kw_only=True)
class InitOptions(FileFormat):
    """What a party's folder is made of."""

    name: Annotated[str, typer.Argument(help="Of the party, in the invitation.")]
    invitation: Annotated[
        Path, typer.Option(help="invitation.toml, as it goes around.")
    ]
    data: Annotated[
        str,
        typer.Option(
            help="A file, a database's URL, or ray:///PATH, dask:///PATH.",
            rich_help_panel=_ROWS,
        ),
    ]
    query: Annotated[
        str,
        typer.Option(
            help="What the database is asked for (SQL).", rich_help_panel=_ROWS
        ),
    ] = ""
    columns: Annotated[
        str,
        typer.Option(
            help="Clustered ones, such as age,height; left out: all that hold numbers.",
            rich_help_panel=_ROWS,
        ),
    ] = ""
    schema: Annotated[
        Path | None,
        typer.Option(
            help="In place of columns: the schema that all parties share.",
            rich_help_panel=_ROWS,
        ),
    ] = None
    folder: Annotated[
        Path, typer.Option(help="Where the folder is made.", rich_help_panel=_FOLDER)
    ] = Path()
    max_epsilon_total: Annotated[
        float,
        typer.Option(help="What all runs together may cost.", rich_help_panel=_FOLDER),
    ] = 20.0
    app: Annotated[
        Path,
        typer.Option(
            help="The own copy of the project, or its .fab file.",
            rich_help_panel=_FOLDER,
        ),
    ] = Path()
    start: Annotated[
        bool, typer.Option("--start", help="Then wait for all others, and start.")
    ] = False
    wait: Patient = False


@node.command("init", cls=Command, rich_help_panel=_SET_UP)
@takes(InitOptions)
def init(options: InitOptions) -> int:
    """Make this party's folder NAME with keys and strict files.

    It is written into the invitation, too.
    """
    from flwr_dpkmeans.deploy import node_command
    from flwr_dpkmeans.deploy.node_setup import NewNode

    new = NewNode(
        name=options.name,
        invitation=options.invitation,
        data=options.data,
        query=options.query,
        columns=options.columns,
        schema=options.schema,
        dialect=options.dialect,
        folder=options.folder,
        max_epsilon_total=options.max_epsilon_total,
        app=options.app,
    )
    return node_command.make_node(new, start=options.start, patient=options.wait)


@node.command("pin", cls=Command, rich_help_panel=_SET_UP)
def pin(file: NodeFile) -> int:
    """Write the identities of the complete invitation into the policy.

    They are printed, to be compared.
    """
    from flwr_dpkmeans.deploy import node_command

    return node_command.pin_parties(file)


@node.command("check", cls=Command, rich_help_panel=_SET_UP)
def check(file: NodeFile, *, apps: Apps = False) -> int:
    """Look at everything, and print a line for each item."""
    from flwr_dpkmeans.deploy import node_command

    return node_command.check_node(file, apps=apps)


@node.command("data-changed", cls=Command, rich_help_panel=_SET_UP)
def data_changed(file: NodeFile) -> int:
    """Record in the ledger that other rows, columns or keys than before are meant."""
    from flwr_dpkmeans.deploy import node_command

    return node_command.accept_data(file)


@node.command("hash", cls=Command, rich_help_panel=_SET_UP)
def print_hash(
    app: Annotated[Path, typer.Argument(help="Project, or .fab file.")],
) -> int:
    """Print the hash of a reviewed app, for allowed-apps."""
    from flwr_dpkmeans.deploy import node_command

    return node_command.print_hash(app)


@node.command("start", cls=Command, rich_help_panel=_OPERATE)
def start(
    file: NodeFile,
    *,
    apps: Apps = False,
    wait: Patient = False,
    dry_run: DryRun = False,
) -> int:
    """Look at everything, then run flower-supernode with the guard.

    Or say what is wrong.
    """
    from flwr_dpkmeans.deploy import node_command

    return node_command.start_node(
        file,
        apps=apps,
        patient=wait,
        dry_run=dry_run,
    )


@node.command("status", cls=Command, rich_help_panel=_OPERATE)
def status(file: NodeFile, *, json: AsJson = False) -> int:
    """Print what was asked, given and refused, and what is left."""
    from flwr_dpkmeans.deploy import node_command

    return node_command.print_status(file, as_json=json)


@node.command("dashboard", cls=Command, rich_help_panel=_OPERATE)
def dashboard(
    file: NodeFile,
    *,
    port: Port = PAGE_PORT,
    token_file: TokenFile = None,
) -> int:
    """Show the same as a live page on this machine, with numbers for Prometheus."""
    from flwr_dpkmeans.deploy import node_command

    return node_command.show_page(file, port, token_file)
