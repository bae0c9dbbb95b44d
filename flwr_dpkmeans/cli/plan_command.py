"""``python -m flwr_dpkmeans plan``: what to expect of a run, before any data are
touched.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown
from rich.progress import Progress

from flwr_dpkmeans.algorithms.server_points import is_private
from flwr_dpkmeans.data.own_table import open_table
from flwr_dpkmeans.data.points import read_ranges
from flwr_dpkmeans.data.schema import schema_of
from flwr_dpkmeans.deploy.command_lines import (
    PICTURE_FILE,
    PLAN_FILE,
    QUICK_SEEDS,
    parse,
)
from flwr_dpkmeans.errors import ConfigurationError, DPKMeansError, listed
from flwr_dpkmeans.options import option_defaults
from flwr_dpkmeans.planner.forecast import Forecast, make_forecast
from flwr_dpkmeans.planner.present import told
from flwr_dpkmeans.planner.request import PlanningRequest
from flwr_dpkmeans.results.page import MARKDOWN
from flwr_dpkmeans.results.whole_files import write_whole


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns 0, or 2 if something that was asked for does not exist."""
    options = parse("plan", arguments)
    try:
        forecast = _forecast(options)
        if options.output is not None:
            _write(forecast, Path(options.output))
    except DPKMeansError as error:
        print(error, file=sys.stderr)
        return 2
    if options.json:
        print(_json(forecast), end="")
    elif Console().is_terminal:
        Console().print(Markdown(told(forecast, MARKDOWN)))
    else:
        print(forecast)  # whole, as nobody knows how wide it may be
    return 0


def _forecast(options: argparse.Namespace) -> Forecast:
    """Forecast with a progress bar, or a line where it would not be seen, on the error
    stream: output stays clean.
    """
    if options.accuracy is not None:
        if not options.accuracy > 1.0:
            raise ConfigurationError(
                f"accuracy is {options.accuracy:g}, but it must be above 1: give 1.05."
            )
        options.target_excess = round(options.accuracy - 1.0, 12)
    if options.like is not None:
        _read_shape(options)
    told = vars(options) | (
        {"seeds": min(options.seeds, QUICK_SEEDS)} if options.quick else {}
    )
    shape = {
        one.name: told[one.name]
        for one in fields(PlanningRequest)
        if one.init and one.name in told
    }
    others = {*option_defaults(), "bounds_domain"} - {*shape, "algorithm"}
    given = {name: value for name, value in told.items() if name in others}
    request = PlanningRequest(
        **shape, options=given, algorithms=tuple(options.algorithm)
    )
    console = Console(stderr=True)
    if not console.is_terminal:
        # Older versions of rich write an empty line for a bar that is switched off.
        return make_forecast(request, _begun)
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("simulating on synthetic data", total=None)
        return make_forecast(
            request,
            lambda done, total: progress.update(task, completed=done, total=total),
        )


def _begun(done: int, total: int) -> None:
    if done == 1:
        what = f"simulating about {total} points of curves on synthetic data"
        print(
            f"{what}: minutes, if there are hundreds of clients",
            file=sys.stderr,
            flush=True,
        )


def _read_shape(options: argparse.Namespace) -> None:
    """Take names and kinds of a table's columns, and how many rows it has only where
    that is said to be public.
    """
    raw, schema, bounds = (
        open_table(options.like),
        schema_of(options.bounds),
        options.bounds,
    )
    named = [] if schema is None else [column.name for column in schema.columns]
    if schema is None and bounds is not None and not is_private(bounds):
        named = list(read_ranges(bounds).names)
    raw.one_each(named, "bounds" if schema is None else "the schema")
    said, text = (
        "names and kinds of columns",
        [column.name for column in raw.columns if column.values is None],
    )
    if not named:
        options.n_features = len(raw.columns) - len(text)
        said += f"; {options.n_features} are numbers" + (
            f", others take a schema: {listed(text)}" if text else ""
        )
    if options.count_rows:
        if options.private_count:
            raise ConfigurationError(
                "count_rows says that N is public, and private_count that not: leave"
                " one out."
            )
        options.n_examples = raw.n_rows
        said += f"; the number of rows, {raw.n_rows}"
    print(f"read of {raw}: {said}; nothing else", file=sys.stderr)


def _json(forecast: Forecast) -> str:
    return json.dumps(forecast.to_dict(), indent=2, allow_nan=False) + "\n"


def _write(forecast: Forecast, folder: Path) -> None:
    """Both files, with their absolute paths on the error stream."""
    written = write_whole(folder / PLAN_FILE, _json(forecast).encode())
    print(f"wrote {written}", file=sys.stderr)
    print(f"wrote {forecast.plot(folder / PICTURE_FILE)}", file=sys.stderr)
