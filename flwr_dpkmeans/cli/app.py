"""All commands: ``flwr-dpkmeans ...``, or ``python -m flwr_dpkmeans ...``."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import click
import typer

from flwr_dpkmeans import __version__
from flwr_dpkmeans.cli.doctor import doctor
from flwr_dpkmeans.cli.forecasts import plan
from flwr_dpkmeans.cli.node import node
from flwr_dpkmeans.cli.owner import identity, ledger, schema
from flwr_dpkmeans.cli.parsing import Command, Group, PassingOn
from flwr_dpkmeans.cli.prediction import options, predict
from flwr_dpkmeans.cli.run import run
from flwr_dpkmeans.cli.superlink import results, server
from flwr_dpkmeans.deploy.proxies import leave_loopback_out
from flwr_dpkmeans.errors import DPKMeansError, nearest

SCRIPT, MODULE = "flwr-dpkmeans", "python -m flwr_dpkmeans"
_COMPLETION = "_FLWR_DPKMEANS_COMPLETE"
"""Set by a shell that asks what may come next; typer's scripts name it so."""
_PIPE_CLOSED = 141
"""What shells say of a program that SIGPIPE has ended."""
_BEFORE, _RUN, _PARTY, _SERVER = (
    "Before a run",
    "A run, and after it",
    "A party's node",
    "A server",
)

app = typer.Typer(
    cls=Group,
    help="Differentially private federated k-means for Flower.",
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
)
app.command(cls=Command, rich_help_panel=_BEFORE)(plan)
app.command(cls=PassingOn, rich_help_panel=_RUN)(run)
app.command(cls=Command, rich_help_panel=_RUN)(predict)
app.command(cls=Command, rich_help_panel=_RUN)(results)
app.add_typer(node, name="node", rich_help_panel=_PARTY)
app.add_typer(ledger, name="ledger", rich_help_panel=_PARTY)
app.add_typer(identity, name="identity", rich_help_panel=_PARTY)
app.add_typer(schema, name="schema", rich_help_panel=_BEFORE)
app.add_typer(server, name="server", rich_help_panel=_SERVER)
app.command(cls=Command, rich_help_panel=_BEFORE)(options)
app.command(cls=Command, rich_help_panel=_BEFORE)(doctor)

COMMANDS = (
    *("plan", "predict", "run", "ledger", "identity", "schema"),
    *("node", "server", "results", "options", "doctor"),
)
"""Names of all commands."""


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"flwr-dpkmeans {__version__}")
        raise typer.Exit


@app.callback()
def all_commands(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Print the package's version.",
            callback=_print_version,
            is_eager=True,
        ),
    ] = False,
) -> None:
    """Differentially private federated k-means for Flower."""
    del version


def main(arguments: Sequence[str] | None = None, commands: typer.Typer = app) -> int:
    """Run the command that a command line begins with.

    Parameters
    ----------
    arguments : sequence of str, optional
        Without the program's name; None: those of this process.
    commands : typer.Typer
        What the names stand for.

    Returns
    -------
    int
        The command's code, 1 if it fails, 2 without one.

    Raises
    ------
    SystemExit
        With code 2, of options that cannot be read.
    """
    leave_loopback_out(os.environ)
    words = list(sys.argv[1:] if arguments is None else arguments)
    is_asked = _COMPLETION in os.environ
    has_command = bool(words) and (words[0] in COMMANDS or words[0].startswith("-"))
    if not has_command and not is_asked:
        return _without_command(words)
    command = typer.main.get_command(commands)
    if is_asked:
        command.main(words, prog_name=SCRIPT)
    try:
        code = _invoked(command, words)
        # what a pipe does not take is told now, not at the end of Python
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # Whoever read has enough, as `head` has: no mistake, and nobody to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _PIPE_CLOSED
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        path = program_name() if context is None else context.command_path
        sentence = error.format_message().rstrip(".")
        print(f"{sentence} (see {path} --help)", file=sys.stderr)
        raise SystemExit(2) from error
    except (DPKMeansError, OSError, OverflowError) as error:  # the last one of a port
        print(error, file=sys.stderr)
        return 1


def program_name() -> str:
    """The program's name as it was typed."""
    return SCRIPT if Path(sys.argv[0]).stem == SCRIPT else MODULE


def _invoked(command: click.Command, words: list[str]) -> int:
    try:
        with command.make_context(program_name(), words) as context:
            return int(command.invoke(context) or 0)
    except click.exceptions.Exit as done:
        return done.exit_code


def _without_command(words: Sequence[str]) -> int:
    if words:
        sentence = f"there is no command {words[0]!r}: {nearest(words[0], COMMANDS)}"
        print(sentence, file=sys.stderr)
    print(f"{MODULE} {' | '.join(COMMANDS)} (each has --help)", file=sys.stderr)
    return 2
