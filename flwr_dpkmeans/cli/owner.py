"""``flwr-dpkmeans ledger``, ``identity`` and ``schema``.

What a node's owner looks at and decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from flwr_dpkmeans.cli.file_format import FileFormat
from flwr_dpkmeans.cli.option_objects import takes
from flwr_dpkmeans.cli.parsing import Command, Group

LedgerPath = Annotated[Path, typer.Argument(help="The ledger file.")]
KeyPath = Annotated[Path, typer.Argument(help="The key file.")]

ledger = typer.Typer(
    cls=Group,
    help="Look at a privacy ledger.",
)
identity = typer.Typer(
    cls=Group,
    help="Make or show a node's long-term identity.",
)
schema = typer.Typer(
    cls=Group,
    help="Draft the schema that all parties share, or try it.",
)


@ledger.command("show", cls=Command)
def show_ledger(
    path: LedgerPath,
    *,
    json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="A list; a run is Flower's run id / node id.",
        ),
    ] = False,
) -> int:
    """Print what was spent, by data set, unit of privacy and run."""
    from flwr_dpkmeans.deploy.owner import owner_commands

    return owner_commands.show_ledger(path, as_list=json)


@ledger.command("verify", cls=Command)
def verify_ledger(path: LedgerPath) -> int:
    """Check every line, and the head file beside the ledger."""
    from flwr_dpkmeans.deploy.owner import owner_commands

    return owner_commands.verify_ledger(path)


@ledger.command("accept", cls=Command)
def accept_ledger(path: LedgerPath) -> int:
    """Go on with the ledger as it stands.

    For its owner, after looking at what is missing from it.
    """
    from flwr_dpkmeans.deploy.owner import owner_commands

    return owner_commands.accept_ledger(path)


@identity.command("new", cls=Command)
def new_identity(path: KeyPath) -> int:
    """Make a key file, and print its public key.

    The other parties pin it in their policies.
    """
    from flwr_dpkmeans.deploy.owner import owner_commands

    return owner_commands.new_identity(path)


@identity.command("show", cls=Command)
def show_identity(path: KeyPath) -> int:
    """Print the public key of a key file."""
    from flwr_dpkmeans.deploy.owner import owner_commands

    return owner_commands.show_identity(path)


@dataclass(frozen=True, kw_only=True)
class DraftOptions(FileFormat):
    """A table whose schema is drafted."""

    path: Annotated[str, typer.Argument(help="The table's file.")]


@schema.command("draft", cls=Command)
@takes(DraftOptions)
def draft(options: DraftOptions) -> int:
    """Write names and kinds of a table's columns into a .toml file beside it.

    The rest is yours.
    """
    from flwr_dpkmeans.deploy.owner import owner_commands

    return owner_commands.draft_schema(options.path, options.dialect)


@dataclass(frozen=True, kw_only=True)
class CheckOptions(FileFormat):
    """A schema, and an own table that is read by it."""

    path: Annotated[str, typer.Argument(help="The schema's file.")]
    table: Annotated[str, typer.Argument(help="A file, or a database's URL.")]
    query: Annotated[
        str,
        typer.Option(help="What the database is asked for (SQL)."),
    ] = ""


@schema.command("check", cls=Command)
@takes(CheckOptions)
def check(options: CheckOptions) -> int:
    """Say how an own table reads by a schema.

    What is missing, misspelt, or outside the bounds, and which values.
    """
    from flwr_dpkmeans.data.loading.layout import Layout
    from flwr_dpkmeans.deploy.owner import owner_commands

    layout = Layout(dialect=options.dialect, query=options.query)
    return owner_commands.check_schema(options.path, options.table, layout)
