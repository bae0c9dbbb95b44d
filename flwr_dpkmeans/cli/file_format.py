"""How a file of delimited text is written, as four commands ask for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import click
import typer

if TYPE_CHECKING:
    from flwr_dpkmeans.data.files.dialect import Dialect

_PANEL = "How the file is written (default: found out)"
_YES_OR_NO = click.Choice(("yes", "no"))


@dataclass(frozen=True, kw_only=True)
class FileFormat:
    """What is stated of a file; None is found out."""

    separator: Annotated[
        str | None,
        typer.Option(
            help="What stands between cells of a text file: one character, or tab.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    decimal: Annotated[
        str | None,
        typer.Option(help="Its decimal mark: . or ,", rich_help_panel=_PANEL),
    ] = None
    thousands: Annotated[
        str | None,
        typer.Option(
            help="Its mark between groups of three digits.", rich_help_panel=_PANEL
        ),
    ] = None
    encoding: Annotated[
        str | None,
        typer.Option(
            help="Its encoding, such as utf-8, utf-16, latin-1.", rich_help_panel=_PANEL
        ),
    ] = None
    header: Annotated[
        str | None,
        typer.Option(
            click_type=_YES_OR_NO,
            help="Whether its first record has names.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    row_names: Annotated[
        str | None,
        typer.Option(
            click_type=_YES_OR_NO,
            help="Whether records begin with a name, as R writes them.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    skip_lines: Annotated[
        int | None,
        typer.Option(help="Lines before the header.", rich_help_panel=_PANEL),
    ] = None
    missing: Annotated[
        str | None,
        typer.Option(
            help="Texts that are missing cells too, such as '?,-999'.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    comment: Annotated[
        str | None,
        typer.Option(help="What lines of comments begin with.", rich_help_panel=_PANEL),
    ] = None
    dates: Annotated[
        str | None,
        typer.Option(
            help="How dates are written beside ISO 8601, such as %d.%m.%Y.",
            rich_help_panel=_PANEL,
        ),
    ] = None

    @property
    def dialect(self) -> Dialect:
        """What is stated, as readers of files take it."""
        from flwr_dpkmeans.data.files.dialect import Dialect

        return Dialect.of_scalars(
            {
                "separator": self.separator,
                "decimal": self.decimal,
                "thousands": self.thousands,
                "encoding": self.encoding,
                "header": self.header,
                "row_names": self.row_names,
                "skip_lines": self.skip_lines,
                "missing": self.missing,
                "comment": self.comment,
                "dates": self.dates,
            }
        )
