"""Specifications of figures, as `figures` of an experiment lists them, read and
checked.

Each is a mapping with `name`, `kind` and the keys of its kind
(`simulations.figures.kinds`). Nothing here reads a table or draws, so a sweep can check
its figures before it runs anything.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from flwr_dpkmeans.errors import ConfigurationError, nearest
from simulations.figures.kinds import (
    KINDS,
    AblationSpec,
    Columns,
    FigureSpec,
    HeatmapSpec,
    Scale,
    Values,
    keys_of,
)

_ONE_COLUMN = ("x", "y", "rows", "columns")
_MORE_COLUMNS = ("series", "panel", "settings")


def parse_specs(listed_specs: object) -> tuple[FigureSpec, ...]:
    """Read a list of specifications.

    Parameters
    ----------
    given : object
        A list of mappings, or a mapping with such a list as `figures` or
        `sweep.figures` (an experiment's file); None is an empty list.

    Returns
    -------
    tuple of FigureSpec
        In the same order.

    Raises
    ------
    ConfigurationError
        If a specification is no mapping, or a kind, key or value is not known, or two
        have one name.

    Examples
    --------
    >>> [spec] = parse_specs([{"name": "fig2", "kind": "curve", "panel": "data.name"}])
    >>> spec.series, spec.panel
    (('algorithm.name',), ('data.name',))
    >>> parse_specs([{"name": "fig2", "kind": "curv"}])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    flwr_dpkmeans.errors.ConfigurationError: figure 'fig2' has kind 'curv', ...
    """
    if isinstance(listed_specs, Mapping) and isinstance(
        listed_specs.get("sweep"), Mapping
    ):
        listed_specs = listed_specs["sweep"]
    if isinstance(listed_specs, Mapping) and "kind" not in listed_specs:
        if "figures" not in listed_specs:
            raise ConfigurationError(
                "the specification has neither a kind nor figures: give a kind such as"
                " curve."
            )
        listed_specs = listed_specs["figures"]
    if isinstance(listed_specs, Mapping):
        listed_specs = [listed_specs]
    if listed_specs is None:
        listed_specs = []
    if not isinstance(listed_specs, list | tuple):
        raise ConfigurationError(
            f"figures is {listed_specs!r}, but a list of mappings is needed: give each"
            " a name and a kind."
        )
    specs = tuple(_parse(mapping) for mapping in listed_specs)
    names = [spec.name for spec in specs]
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(
                f"{names.count(name)} figures have the name {name!r}: give each one of"
                " its own."
            )
    return specs


def columns_of(spec: FigureSpec) -> list[tuple[str, str]]:
    """Keys of a specification with the columns that they name."""
    columns = []
    for key in keys_of(type(spec)):
        value = getattr(spec, key)
        if key in _ONE_COLUMN:
            columns.append((key, value))
        elif key in _MORE_COLUMNS:
            columns += [(key, column) for column in value]
        elif key == "where" or (key == "baseline" and not isinstance(value, str)):
            columns += [(key, column) for column, _ in value]
        elif key == "true_k" and value and not value.isdigit():
            columns.append((key, value))
    return columns


def check_columns(spec: FigureSpec, columns: Collection[str]) -> None:
    """Refuse a specification that names columns which a table has not.

    Raises
    ------
    ConfigurationError
        With the nearest name that there is.
    """
    for key, column in columns_of(spec):
        if column not in columns:
            raise ConfigurationError(
                f"figure {spec.name!r} has {key} {column!r}, which is no column of the"
                f" table: {nearest(column, columns)}"
            )


def _parse(mapping: object) -> FigureSpec:
    """Read one specification."""
    if not isinstance(mapping, Mapping):
        raise ConfigurationError(
            f"a figure is {mapping!r}, but a mapping is needed: give it a name and a"
            " kind."
        )
    name = mapping.get("name")
    kind_name = mapping.get("kind")
    if not isinstance(name, str) or not re.fullmatch(
        r"[A-Za-z0-9_+-][A-Za-z0-9_.+-]*", name
    ):
        raise ConfigurationError(
            f"a figure has the name {name!r}, but files are named after it: use"
            " letters, digits, '.', '_', '+', '-'."
        )
    if not isinstance(kind_name, str) or kind_name not in KINDS:
        raise ConfigurationError(
            f"figure {name!r} has kind {kind_name!r}, which is not known:"
            f" {nearest(kind_name, KINDS)}"
        )
    kind = KINDS[kind_name]
    keys = keys_of(kind)
    for key in mapping:
        if key != "kind" and key not in keys:
            raise ConfigurationError(
                f"figure {name!r} has the key {key!r}, which kind {kind_name!r} has"
                f" not: {nearest(key, keys)}"
            )
    # A key that is null is one that was not given.
    values = {
        key: _read(name, kind, key, value)
        for key, value in mapping.items()
        if key != "kind" and value is not None
    }
    if kind is AblationSpec and not values.get("baseline"):
        raise ConfigurationError(
            f"figure {name!r} has no baseline, but an ablation is divided by one: give"
            " columns with their values."
        )
    if kind is HeatmapSpec and bool(values.get("baseline")) != bool(values.get("of")):
        raise ConfigurationError(
            f"figure {name!r} has one of baseline and of, but compares both: give both"
            " or none."
        )
    return kind(**values)


def _read(name: str, kind: type[FigureSpec], key: str, value: object) -> Any:
    """Read the value of one key."""
    readers: list[tuple[Iterable[str], Callable[[object], Any], str]] = [
        (("x_scale", "y_scale"), Scale, "one of 'linear', 'log', 'log2'"),
        (_MORE_COLUMNS, _columns, "a column or a list of columns"),
        (
            ("where", *(("baseline",) if kind is AblationSpec else ())),
            _wanted,
            "a mapping from columns to values",
        ),
        (("baseline", "of", "true_k"), _scalar, "a value"),
        (_ONE_COLUMN, _text, "a column"),
        (("name", "title"), _text, "text"),
        (("footer",), _flag, "true or false"),
    ]
    for keys, reader, wanted in readers:
        if key in keys:
            try:
                return reader(value)
            except (TypeError, ValueError):
                raise ConfigurationError(
                    f"figure {name!r} has {key} {value!r}, but it must be {wanted}:"
                    " change it or leave it out."
                ) from None
    raise AssertionError(key)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _scalar(value: object) -> str:
    if isinstance(value, list | tuple | Mapping):
        raise TypeError
    return str(value)


def _columns(value: object) -> Columns:
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list | tuple):
        raise TypeError
    return tuple(_text(column) for column in listed)


def _wanted(value: object) -> Values:
    if not isinstance(value, Mapping):
        raise TypeError
    return tuple(
        (
            _text(column),
            tuple(wanted) if isinstance(wanted, list | tuple) else (wanted,),
        )
        for column, wanted in value.items()
    )
