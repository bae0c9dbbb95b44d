"""Figures of a results table, without running anything again.

`python -m simulations.figures TABLE --help`.

A sweep's Parquet table lists its figures in its metadata, and all of them are drawn.
Options ask for another one:

    python -m simulations.figures results.parquet --kind curve --x privacy.epsilon --y
    nicv --series algorithm.name
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import yaml

from flwr_dpkmeans.errors import ConfigurationError, DPKMeansError
from flwr_dpkmeans.results.whole_files import write_whole
from simulations.figures.drawing import draw_fronts, draw_lines
from simulations.figures.frame import encode
from simulations.figures.heatmap import draw_heatmap
from simulations.figures.kinds import (
    KINDS,
    AblationSpec,
    AreaSpec,
    CurveSpec,
    ElbowSpec,
    FigureSpec,
    HeatmapSpec,
    ParetoSpec,
    SharesSpec,
)
from simulations.figures.looks import looks_of, readable
from simulations.figures.numbers import (
    Numbers,
    curve_numbers,
    elbow_numbers,
    pareto_numbers,
    setting_columns,
    shares_numbers,
)
from simulations.figures.ratios import ablation_numbers, area_numbers, heatmap_numbers
from simulations.figures.shares import encoded, shares_files
from simulations.figures.specs import check_columns, parse_specs
from simulations.figures.table import (
    ASKED,
    Results,
    Selection,
    averaged_note,
    left_out_note,
    notes_of,
    read_results,
    select,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TEXT_OPTIONS = (
    "name",
    "title",
    "kind",
    "x",
    "y",
    "rows",
    "columns",
    "x_scale",
    "y_scale",
    "of",
    "true_k",
)
_LIST_OPTIONS = ("series", "panel", "settings")
_BARE = {"title": "", "footer": False}


def figures_of(table: str | Path, output: str | Path | None = None) -> list[Path]:
    """Draw all figures that a results table lists in its metadata.

    Parameters
    ----------
    table : str or Path
        A Parquet file that a sweep wrote.
    output : str or Path, optional
        Folder of the figures; by default `figures` beside the table.

    Returns
    -------
    list of Path
        What was written: for each figure PNG, PDF and a CSV of its numbers; for tables
        of shares Markdown and CSV. Empty for a table that lists no figures.

    Raises
    ------
    DataError
        If the table cannot be read.
    ConfigurationError
        If a figure cannot be drawn from it; the others are written before.
    """
    results = read_results(Path(table))
    return write_figures(results, parse_specs(results.figures), _folder(table, output))


def write_figures(
    results: Results, specs: Sequence[FigureSpec], folder: Path
) -> list[Path]:
    """Draw figures and write them, each file whole or not at all.

    Raises
    ------
    ConfigurationError
        If one of them cannot be drawn; the others are written before.
    """
    written, refused = [], []
    for spec in specs:
        try:
            files = figure_files(spec, results)
        except DPKMeansError as error:
            refused.append(error)
            continue
        written += [
            write_whole(folder / name, content) for name, content in files.items()
        ]
    if len(refused) == 1:
        raise refused[0]
    if refused:
        raise ConfigurationError(
            f"{len(refused)} of {len(specs)} figures cannot be drawn:"
            f" {'; '.join(map(str, refused))}"
        )
    return written


def figure_files(
    spec: FigureSpec,
    results: Results,
    encode: Callable[[Figure], Mapping[str, bytes]] = encode,
) -> dict[str, bytes]:
    """Draw one figure.

    Parameters
    ----------
    spec : FigureSpec
        What is shown.
    results : Results
        The table.
    encode : callable, optional
        Makes a figure's images, by kind.

    Returns
    -------
    dict of bytes
        By file name. Equal tables give equal bytes.

    Raises
    ------
    ConfigurationError
        If the specification does not fit the table.
    DataError
        If the table has nothing to show.
    """
    selection = _selected(spec, results)
    notes = [
        *averaged_note(selection.rows, _cell(spec, selection.rows)),
        *notes_of(selection),
    ]
    if results.missing:
        names = ", ".join(readable(("data.name",), name) for name in results.missing)
        notes.append(f"Not run, as the files were not there: {names}.")
    if isinstance(spec, SharesSpec):
        shares, rounds = shares_numbers(spec, selection)
        return shares_files(
            spec, shares, rounds, [*notes, *left_out_note(shares.left_out)]
        )
    looks = looks_of(spec.series, results.rows)
    shown = _numbers(spec, selection)
    named = {
        readable(spec.series, name) if spec.series else "all": n
        for name, n in shown.left_out.items()
    }
    notes += left_out_note(named)
    if isinstance(spec, HeatmapSpec):
        figure = draw_heatmap(spec, shown, looks, notes)
    elif isinstance(spec, ParetoSpec):
        figure = draw_fronts(spec, shown, looks, notes)
    elif isinstance(spec, CurveSpec | AreaSpec | AblationSpec | ElbowSpec):
        figure = draw_lines(spec, shown, looks, notes)
    images = {
        f"{spec.name}.{kind}": content for kind, content in encode(figure).items()
    }
    return {**images, f"{spec.name}.csv": encoded(_headed(spec, shown))}


def refusal_of(spec: FigureSpec, results: Results) -> DPKMeansError | None:
    """Say why a figure cannot be made of a table; None if it can. Nothing is drawn."""
    try:
        selection = _selected(spec, results)
        if isinstance(spec, SharesSpec):
            shares_numbers(spec, selection)
        else:
            _numbers(spec, selection)
    except DPKMeansError as error:
        return error
    return None


def _selected(spec: FigureSpec, results: Results) -> Selection:
    """The rows of a figure, which have all its columns."""
    check_columns(spec, list(results.rows.columns))
    return select(spec.name, results, spec.where)


def _cell(spec: FigureSpec, rows: pd.DataFrame) -> tuple[str, ...]:
    """Columns whose combinations are the points of a figure."""
    if isinstance(spec, ParetoSpec | SharesSpec):
        columns: tuple[str, ...] = setting_columns(spec, rows)
    elif isinstance(spec, HeatmapSpec):
        columns = (spec.rows, spec.columns, ASKED)
    elif isinstance(spec, AreaSpec):
        columns = (spec.x, ASKED)
    else:
        columns = (spec.x,) if isinstance(spec, CurveSpec | AblationSpec) else ()
    return tuple(dict.fromkeys((*spec.panel, *spec.series, *columns)))


def _numbers(spec: FigureSpec, selection: Selection) -> Numbers:
    """The numbers of one figure with lines or cells."""
    match spec:
        case CurveSpec():
            return curve_numbers(spec, selection)
        case AreaSpec():
            return area_numbers(spec, selection)
        case HeatmapSpec():
            return heatmap_numbers(spec, selection)
        case ParetoSpec():
            return pareto_numbers(spec, selection)
        case AblationSpec():
            return ablation_numbers(spec, selection)
        case ElbowSpec():
            return elbow_numbers(spec, selection)
    raise AssertionError(spec)


def _headed(spec: FigureSpec, shown: Numbers) -> Any:
    """Cells with the names of what they are."""
    y = {"auc": "area", "heatmap": "area", "ablation": "ratio"}.get(spec.kind, spec.y)
    if isinstance(spec, AreaSpec) and spec.baseline:
        y = "area_ratio"
    if isinstance(spec, HeatmapSpec):
        return shown.cells.rename(
            columns={"row": spec.rows, "column": spec.columns, "y": y}
        )
    x = "k" if isinstance(spec, ElbowSpec) else spec.x  # type: ignore[attr-defined]
    return shown.cells.rename(columns={"x": x, "y": y})


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw what the table or the command line asks for.

    a mistake is one sentence on stderr and exit code 2.
    """
    options = _parser().parse_args(arguments)
    try:
        results = read_results(Path(options.table))
        specs = _specs(options, results)
        specs = (
            tuple(dataclasses.replace(spec, **_BARE) for spec in specs)
            if options.bare
            else specs
        )
        for path in write_figures(
            results, specs, _folder(options.table, options.output)
        ):
            print(path)
    except DPKMeansError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2
    return 0


def _specs(options: argparse.Namespace, results: Results) -> tuple[Any, ...]:
    """What is drawn: the command line's figure, those of a file, or of the table."""
    keys: dict[str, Any] = {
        key: getattr(options, key) for key in _TEXT_OPTIONS if getattr(options, key)
    }
    keys |= {
        key: getattr(options, key) for key in _LIST_OPTIONS if getattr(options, key)
    }
    keys |= {"where": _pairs(options.where)} if options.where else {}
    if options.baseline:
        keys["baseline"] = (
            _pairs(options.baseline)
            if options.kind == AblationSpec.kind
            else options.baseline[0]
        )
    if options.spec and keys:
        raise ConfigurationError(
            f"both --spec and --{next(iter(keys)).replace('_', '-')} are given: give"
            " one of them."
        )
    if options.spec:
        return parse_specs(_read_yaml(Path(options.spec)))
    if keys:
        return parse_specs(
            {
                "name": "_".join(filter(None, (options.kind, options.y))) or "figure",
                **keys,
            }
        )
    if not results.figures:
        raise ConfigurationError(
            f"{options.table} lists no figures: add --kind, such as --kind curve, or"
            " --spec FILE."
        )
    return parse_specs(results.figures)


def _read_yaml(path: Path) -> object:
    """Read a file of specifications."""
    try:
        return yaml.safe_load(path.read_text())
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigurationError(
            f"{path} cannot be read as YAML ({type(error).__name__}): give a list of"
            " figures."
        ) from error


def _pairs(texts: Sequence[str]) -> Mapping[str, list[object]]:
    """Read COLUMN=VALUE or COLUMN=VALUE,VALUE."""
    named: dict[str, list[object]] = {}
    for text in texts:
        column, sign, values = text.partition("=")
        if not sign:
            raise ConfigurationError(
                f"{text!r} has no '=': write COLUMN=VALUE, such as data.name=iris."
            )
        named[column] = [
            yaml.safe_load(value) if value else "" for value in values.split(",")
        ]
    return named


def _folder(table: str | Path, output: str | Path | None) -> Path:
    table = Path(table)
    return (
        Path(output)
        if output
        else (table if table.is_dir() else table.parent) / "figures"
    )


def _parser() -> argparse.ArgumentParser:
    """Command-line options."""
    parser = argparse.ArgumentParser(
        prog="python -m simulations.figures",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "table", metavar="TABLE", help="Parquet file of a sweep, or CSV"
    )
    parser.add_argument(
        "--output",
        default="",
        metavar="FOLDER",
        help="default: 'figures' beside the table",
    )
    parser.add_argument(
        "--spec",
        default="",
        metavar="FILE",
        help="YAML with a list of figures, or an experiment's file",
    )
    parser.add_argument(
        "--bare",
        action="store_true",
        help="without title and footer, for a paper that has its own",
    )
    parser.add_argument("--kind", default="", help=", ".join(KINDS))
    for name in _TEXT_OPTIONS:
        if name != "kind":
            parser.add_argument(
                f"--{name.replace('_', '-')}",
                default="",
                help="see simulations/figures/kinds.py",
            )
    for name in _LIST_OPTIONS:
        parser.add_argument(
            f"--{name}", nargs="+", metavar="COLUMN", help="one column or more"
        )
    parser.add_argument(
        "--where", nargs="+", metavar="COLUMN=VALUE", help="only rows with these values"
    )
    parser.add_argument(
        "--baseline",
        nargs="+",
        metavar="VALUE",
        help="a series; kind ablation: COLUMN=VALUE ...",
    )
    return parser
