"""Options of a command as one object, and those that exclude each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, TypeVar, get_type_hints

import click

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    OptionsT = TypeVar("OptionsT", bound=DataclassInstance)


def takes(
    options: type[OptionsT],
) -> Callable[[Callable[[OptionsT], int]], Callable[..., int]]:
    """Make a command of a function that takes all of its options as one object.

    Parameters
    ----------
    options : type
        Dataclass with an option or argument of typer for each field.

    Returns
    -------
    callable
        Decorator; what it returns has a keyword for each field, as typer reads them.
    """
    hints = get_type_hints(options, include_extras=True)

    def decorate(run: Callable[[OptionsT], int]) -> Callable[..., int]:
        def command(**values: object) -> int:
            return run(options(**values))

        parameters = [
            Parameter(
                field.name,
                Parameter.KEYWORD_ONLY,
                default=_default_of(field),
                annotation=hints[field.name],
            )
            for field in fields(options)
        ]
        command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = dict(hints)
        command.__doc__ = run.__doc__
        command.__name__ = run.__name__
        return command

    return decorate


def _default_of(field: Field[object]) -> object:
    if field.default_factory is not MISSING:
        return field.default_factory()
    if field.default is MISSING:
        return Parameter.empty
    return field.default


def require_one_at_most(**values: object) -> None:
    """Refuse more than one of options that exclude each other.

    Parameters
    ----------
    **values : object
        By the option's name; None and False are those that are not there.
    """
    present = [name for name, value in values.items() if value not in (None, False)]
    if len(present) > 1:
        first, second = (f"--{name.replace('_', '-')}" for name in present[:2])
        raise click.UsageError(
            f"{first} is not allowed with {second}", click.get_current_context()
        )
