"""One entry for every experiment: `python -m simulations.run data=iris
privacy.epsilon=0.5`; `-m` sweeps.

One run prints its row and writes it, with the privacy report, into its folder. A sweep,
or an experiment such as ``+experiment=fastlloyd_fig2``, writes a table with one row per
run, and the figures that the experiment names; the same command again continues a sweep
that was stopped. Hydra's own options, such as ``--cfg job`` and ``--help``, work as
usual.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

try:
    import hydra
    from omegaconf import DictConfig
except ModuleNotFoundError as error:
    raise SystemExit(
        f"{error.name} is not installed: pip install -e '.[simulations]'"
    ) from error

from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.results.whole_files import write_folder
from flwr_dpkmeans.results.writer import REPORT_FILE
from simulations.commands import RESUMES, exit_code
from simulations.experiments.composition import store_packages
from simulations.experiments.engines import run_settings
from simulations.experiments.expansion import CONFIGURATION, Sweep, expand
from simulations.experiments.job import log_quietly, rehearsed_row, result_row
from simulations.experiments.sweep import labels_of, run_sweep
from simulations.experiments.table import JOURNAL_FILE, table_of
from simulations.experiments.workers import default_workers
from simulations.figures.specs import parse_specs
from simulations.figures.table import Results, counted

_MANY = ("-m", "--multirun")
_OUTPUTS = "outputs"
_REASONS = 5
"""Of failed runs, the commonest, are told at the end; the table has all."""
_HYDRAS = (
    "--help",
    "-h",
    "--hydra-help",
    "--version",
    "--cfg",
    "-c",
    "--info",
    "-i",
    "--shell-completion",
    "-sc",
)
"""Options with which Hydra shows something and runs nothing."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for.

    Parameters
    ----------
    arguments : sequence of str, optional
        Without the program's name; None: the process's own.

    Returns
    -------
    int
        0; 1 if a run of a sweep failed (its row says why); 2 for a mistake of the
        caller, which is one sentence on stderr; 130 if stopped by the keyboard.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    options = [
        word.split("=")[0]
        for word in words
        if word.startswith("-") and word not in _MANY
    ]
    if set(options) & set(_HYDRAS):
        _hydras_own()
        return 0
    if options:
        print(
            f"ConfigurationError: there is no option {options[0]!r} here: look at"
            " --help.",
            file=sys.stderr,
        )
        return 2
    overrides = [word for word in words if word not in _MANY]
    log_quietly()
    return exit_code(
        lambda: _ran(overrides, many=bool(set(words) & set(_MANY))), RESUMES
    )


def _ran(overrides: Sequence[str], *, many: bool) -> int:
    """What the overrides name: one run, or a sweep."""
    sweep = expand(overrides)
    if sweep.name is None and len(sweep.settings) == 1 and not many:
        return _run_once(sweep.settings[0])
    if sweep.name is None and not many:
        raise ConfigurationError(
            f"the overrides name {len(sweep.settings)} runs: sweep over them with -m."
        )
    return _many(sweep, overrides)


def _run_once(settings: Mapping[str, Any]) -> int:
    """One run: its row on stdout, its files in a folder."""
    outcome, data = run_settings(settings)
    row = result_row(settings, outcome, data)
    stamp = datetime.now().astimezone().strftime("%Y-%m-%d/%H-%M-%S")
    folder = Path(settings["output"] or f"{_OUTPUTS}/{stamp}")
    line = json.dumps(row)
    print(line)
    for sentence in outcome.privacy.warnings:
        print(f"warning: {sentence}", file=sys.stderr)
    files = {
        "row.json": line.encode() + b"\n",
        REPORT_FILE: outcome.privacy.to_json().encode(),
    }
    for path in write_folder(folder, files):
        print(f"wrote {path}", file=sys.stderr)
    return 0


def _many(sweep: Sweep, overrides: Sequence[str]) -> int:
    """A sweep: table and figures in a folder that the same command finds again."""
    output = sweep.common["output"]
    named = sorted(word for word in overrides if not word.startswith("workers="))
    digest = hashlib.sha256(repr(named).encode()).hexdigest()[:8]
    sweep = with_figures_that_can_be_drawn(sweep)
    if sweep.missing:
        print(
            f"left out, as their files are not in data_dir={sweep.common['data_dir']}:"
            f" {', '.join(sweep.missing)}",
            file=sys.stderr,
        )
    folder = Path(output or f"{_OUTPUTS}/{sweep.name or f'sweep-{digest}'}")
    # One Ray run takes all cores by itself.
    on_ray = any(settings["engine"]["name"] == "ray" for settings in sweep.settings)
    workers = default_workers(
        1 if on_ray and sweep.common["workers"] is None else sweep.common["workers"]
    )
    result = run_sweep(sweep, folder, workers=workers)
    print(
        f"{result.n_run} runs ({result.n_reused} were finished before,"
        f" {result.n_failed} failed): {result.table}",
        file=sys.stderr,
    )
    if result.n_others:
        others = counted(result.n_others, "earlier run")
        print(
            f"not in this table, as the command does not ask for them: {others} of"
            f" {JOURNAL_FILE}",
            file=sys.stderr,
        )
    for reason, n_runs in result.reasons.most_common(_REASONS):
        print(f"{n_runs} failed: {reason}", file=sys.stderr)
    if sweep.common["sweep"]["figures"]:
        from simulations.figures.plot import figures_of

        for path in figures_of(result.table):
            print(path)
    print(result.table)
    return 1 if result.n_failed else 0


def with_figures_that_can_be_drawn(sweep: Sweep) -> Sweep:
    """A sweep less the figures that its runs cannot make whatever they find, which are
    named before the first run.

    Raises
    ------
    ConfigurationError, DataError
        If there are figures and none can be made.
    """
    figures = sweep.common["sweep"]
    specs = parse_specs(figures["figures"])
    if not specs:
        return sweep
    from simulations.figures.plot import refusal_of

    rows = [
        {**rehearsed_row(settings), **labels_of(settings, sweep.name)}
        for settings in sweep.settings
    ]
    results = Results(table_of(rows).to_pandas(), missing=sweep.missing)
    refusals = [refusal_of(spec, results) for spec in specs]
    text = "; ".join(str(refusal).removesuffix(".") for refusal in refusals if refusal)
    if all(refusals):
        raise ConfigurationError(
            f"nothing was run: {text}; or add sweep.figures=[] for the table alone."
        )
    if not text:
        return sweep
    print(f"figures left out, as these runs cannot make them: {text}.", file=sys.stderr)
    drawn = [
        figure
        for figure, refusal in zip(figures["figures"], refusals, strict=True)
        if not refusal
    ]
    return replace(
        sweep, common={**sweep.common, "sweep": {**figures, "figures": drawn}}
    )


def _hydras_own() -> None:
    """Hydra's help and configuration printing."""
    store_packages()

    @hydra.main(version_base=None, config_path=str(CONFIGURATION), config_name="config")
    def entry(_: DictConfig) -> None:
        """Never called: each of these options shows something instead."""

    entry()


if __name__ == "__main__":
    raise SystemExit(main())
