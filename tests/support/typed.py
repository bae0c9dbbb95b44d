"""What a command line is read as."""

from __future__ import annotations

from typing import TypeVar

import typer

from flwr_dpkmeans.cli.option_objects import takes
from flwr_dpkmeans.cli.parsing import Command

OptionsT = TypeVar("OptionsT")


def typed_options(kind: type[OptionsT], line: str) -> OptionsT:
    """Options of one kind, as a command that takes them reads a line."""
    read: list[OptionsT] = []
    app = typer.Typer()
    app.command(cls=Command)(takes(kind)(lambda options: read.append(options) or 0))
    typer.main.get_command(app).main(line.split(), standalone_mode=False)
    (options,) = read
    return options
