"""Renews ``docs/reference/commands.md`` from the commands themselves (``python
tests/commands_page.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import typer

from flwr_dpkmeans.cli.app import app

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "flwr_dpkmeans" / "docs" / "reference" / "commands.md"
MARK = "<!-- commands: made by `python tests/commands_page.py` -->\n"


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command by its whole name, such as ``node check``."""
    root = typer.main.get_command(app)
    assert isinstance(root, click.Group)
    for name, command in root.commands.items():
        if isinstance(command, click.Group):
            for below, part in command.commands.items():
                yield f"{name} {below}", part
        else:
            yield name, command


def typed(name: str, command: click.Command) -> str:
    """A command with its arguments; ``--help`` has the options."""
    arguments = [
        parameter.human_readable_name.upper()
        for parameter in command.params
        if isinstance(parameter, click.Argument)
    ]
    return " ".join([name, *arguments])


def summary(command: click.Command) -> str:
    """The first sentence of a command's help."""
    text = " ".join((command.help or "").split())
    return text.partition(". ")[0].removesuffix(".") + "."


def rows() -> Iterator[str]:
    """A line for each command."""
    yield "\n| command | what it does |\n|---|---|"
    for name, command in commands():
        yield f"| `{typed(name, command)}` | {summary(command)} |"


def page() -> str:
    """The page as it should be: what is above the mark, and the commands below it."""
    return PAGE.read_text().partition(MARK)[0] + MARK + "\n".join(rows()) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
