"""``python -m flwr_dpkmeans plan``.

What to expect of a run, before any data are touched.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown
from rich.progress import Progress

from flwr_dpkmeans.algorithms.server.resolved_bounds import is_private
from flwr_dpkmeans.cli.plan_options import (
    PICTURE_FILE,
    PLAN_FILE,
    QUICK_SEEDS,
    TARGET_EXCESS,
    PlanOptions,
)
from flwr_dpkmeans.data.bounds.stated_bounds import read_ranges
from flwr_dpkmeans.data.own_table import open_table
from flwr_dpkmeans.data.schema import Schema
from flwr_dpkmeans.data.schema_source import schema_of
from flwr_dpkmeans.errors import ConfigurationError, DPKMeansError, listed
from flwr_dpkmeans.options import option_defaults
from flwr_dpkmeans.planner.forecast import Forecast, make_forecast
from flwr_dpkmeans.planner.present import described
from flwr_dpkmeans.planner.request import PlanningRequest
from flwr_dpkmeans.results.rendering import MARKDOWN
from flwr_dpkmeans.results.whole_files import write_whole

MakeForecast = Callable[[PlanningRequest, Callable[[int, int], None]], Forecast]


def print_forecast(
    options: PlanOptions,
    make: MakeForecast = make_forecast,
    screen: type[Console] = Console,
) -> int:
    """Forecast and print; 2 if something that was asked for does not exist, else 0.

    Parameters
    ----------
    options : PlanOptions
        Of the command line.
    make : callable, optional
        Makes the forecast of a request, and says how far it is.
    screen : type, optional
        Class of consoles.
    """
    try:
        forecast = make_one(options, make, screen)
        if options.output is not None:
            _write(forecast, Path(options.output))
    except DPKMeansError as error:
        print(error, file=sys.stderr)
        return 2
    if options.json:
        print(_json(forecast), end="")
    elif screen().is_terminal:
        screen().print(Markdown(described(forecast, MARKDOWN)))
    else:
        print(forecast)  # whole, as nobody knows how wide it may be
    return 0


def make_one(
    options: PlanOptions,
    make: MakeForecast = make_forecast,
    screen: type[Console] = Console,
) -> Forecast:
    """Forecast with a progress bar, or a line where it would not be seen.

    Both are on the error stream: output stays clean.
    """
    request = request_of(options)
    console = screen(stderr=True)
    if not console.is_terminal:
        # Older versions of rich write an empty line for a bar that is switched off.
        return make(request, _begun)
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("simulating on synthetic data", total=None)
        return make(
            request,
            lambda done, total: progress.update(task, completed=done, total=total),
        )


def request_of(options: PlanOptions) -> PlanningRequest:
    """What is to be forecast, with the shape of a table that is like the run's."""
    values = {field.name: getattr(options, field.name) for field in fields(options)}
    values["target_excess"] = _target_excess(options)
    if options.like is not None:
        values |= _read_shape(options, options.like)
    if options.quick:
        values["seeds"] = min(options.seeds, QUICK_SEEDS)
    field_names = [field.name for field in fields(PlanningRequest) if field.init]
    shape = {name: values[name] for name in field_names if name in values}
    others = {*option_defaults(), "bounds_domain"} - {*shape, "algorithm"}
    run_options = {name: value for name, value in values.items() if name in others}
    algorithms = tuple(options.algorithm)
    return PlanningRequest(**shape, options=run_options, algorithms=algorithms)


def _target_excess(options: PlanOptions) -> float:
    if options.accuracy is None:
        stated = options.target_excess
        return TARGET_EXCESS if stated is None else stated
    if not options.accuracy > 1.0:
        raise ConfigurationError(
            f"accuracy is {options.accuracy:g}, but it must be above 1: give 1.05."
        )
    return round(options.accuracy - 1.0, 12)


def _begun(done: int, total: int) -> None:
    if done == 1:
        what = f"simulating about {total} points of curves on synthetic data"
        print(
            f"{what}: minutes, if there are hundreds of clients",
            file=sys.stderr,
            flush=True,
        )


def _read_shape(options: PlanOptions, like: str) -> dict[str, int]:
    """Take names and kinds of a table's columns.

    And how many rows it has only where that is said to be public.
    """
    table, schema = open_table(like), schema_of(options.bounds)
    names = _named_columns(options.bounds, schema)
    table.one_each(names, "bounds" if schema is None else "the schema")
    shape, what = dict[str, int](), "names and kinds of columns"
    if not names:
        texts = [column.name for column in table.columns if column.values is None]
        shape["n_features"] = len(table.columns) - len(texts)
        what += f"; {shape['n_features']} are numbers"
        if texts:
            what += f", others take a schema: {listed(texts)}"
    if options.count_rows:
        if options.private_count:
            raise ConfigurationError(
                "count_rows says that N is public, and private_count that not: leave"
                " one out."
            )
        shape["n_examples"] = table.n_rows
        what += f"; the number of rows, {table.n_rows}"
    print(f"read of {table}: {what}; nothing else", file=sys.stderr)
    return shape


def _named_columns(bounds: str | None, schema: Schema | None) -> list[str]:
    """Names of the columns that a schema, or a file of bounds, names."""
    if schema is not None:
        return [column.name for column in schema.columns]
    if bounds is None or is_private(bounds):
        return []
    return list(read_ranges(bounds).names)


def _json(forecast: Forecast) -> str:
    return json.dumps(forecast.to_dict(), indent=2, allow_nan=False) + "\n"


def _write(forecast: Forecast, folder: Path) -> None:
    """Both files, with their absolute paths on the error stream."""
    written = write_whole(folder / PLAN_FILE, _json(forecast).encode())
    print(f"wrote {written}", file=sys.stderr)
    print(f"wrote {forecast.plot(folder / PICTURE_FILE)}", file=sys.stderr)
