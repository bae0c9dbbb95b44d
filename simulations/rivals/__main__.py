"""All rivals in one table: `python -m simulations.rivals --help`.

The same command again continues where it stopped.

Bounds, centres and radii of most sets follow from private rows, as in the papers, and
the noise is seeded: these runs protect nobody.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flwr_dpkmeans.errors import ConfigurationError, DPKMeansError
from flwr_dpkmeans.results.whole_files import write_whole
from simulations.commands import RESUMES, exit_code
from simulations.experiments.configuration import flat, job_key
from simulations.experiments.job import log_quietly
from simulations.experiments.sweep import require_rows_of_this_code, run_sweep
from simulations.experiments.table import Journal
from simulations.experiments.workers import add_workers
from simulations.rivals.rival_data import DPM, SETS, prepared
from simulations.rivals.rival_figure import draw
from simulations.rivals.rival_runs import METHODS, jobs, run
from simulations.rivals.rival_table import (
    Compared,
    beside_published,
    compared,
    markdown,
    wins,
)

_USUAL = tuple(name for name, rival in SETS.items() if rival.conditions != DPM)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is missing, and write table and figure.

    0, 1 if a run failed, or 2 for a mistake of the caller.
    """
    options = _parser().parse_args(arguments)
    log_quietly()
    return exit_code(lambda: _compare(options), RESUMES)


def _compare(options: argparse.Namespace) -> int:
    """Run, write, and say how many runs there were."""
    sets = options.sets or _there(options.data_dir)
    sweep = jobs(
        sets,
        options.methods,
        options.seeds,
        options.data_dir,
        other_code=options.other_code,
    )
    planned = {
        job_key(settings): {**flat(settings), "status": "done", "cost": 1.0}
        for settings in sweep.settings
    }
    folder = Path(options.output)
    finished = Journal(folder).finished()
    # The table has all of the folder's runs, not the sweep's alone.
    done = [row for row in finished.values() if row.get("status") == "done"]
    require_rows_of_this_code(done, folder, take_others=options.other_code)
    _require_comparable({**planned, **finished})
    result = run_sweep(sweep, folder, workers=options.workers, run=run)
    _write(folder)
    print(
        f"{result.n_run} runs, {result.n_reused} were finished before,"
        f" {result.n_failed} failed",
        file=sys.stderr,
    )
    return 1 if result.n_failed else 0


def _there(data_dir: str) -> list[str]:
    """The usual sets whose files are there."""
    rows = []
    for name in _USUAL:
        try:
            prepared(name, data_dir)
            rows.append(name)
        except DPKMeansError:
            print(
                f"left out, as its file is not in --data-dir {data_dir}: {name}",
                file=sys.stderr,
            )
    return rows


def _write(folder: Path) -> None:
    """Table and figure of all runs in the folder."""
    sets = _require_comparable(Journal(folder).finished())
    text = "\n".join([markdown(sets), wins(sets), beside_published(sets)])
    print(text)
    numbers = sorted(
        {area.n_seeds for compared_set in sets for area in compared_set.areas.values()}
    )
    title = (
        "All methods on the same rows"
        f" ({' to '.join(map(str, sorted({numbers[0], numbers[-1]})))} seeds)"
    )
    write_whole(folder / "rivals.md", text.encode())
    write_whole(folder / "rivals.png", draw(sets, title))


def _require_comparable(by_job: Mapping[str, Mapping[str, Any]]) -> list[Compared]:
    """The sets that have something to compare.

    Raises
    ------
    ConfigurationError
        If there is none.
    """
    sets = compared(list(by_job.values()))
    if sets:
        return sets
    raise ConfigurationError(
        "no set has runs of 'optimal', 'proxy_lloyd' and a rival, in the folder or"
        " asked for: add them to --methods."
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m simulations.rivals", description="All rivals in one table."
    )
    sets = f"of {', '.join(SETS)}; without it, all but dpm whose files are there"
    parser.add_argument("--sets", nargs="+", metavar="SET", help=sets)
    parser.add_argument(
        "--methods", nargs="+", default=list(METHODS), choices=METHODS, metavar="METHOD"
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--data-dir",
        default="data",
        help="folder with adult.npz, lsun.npz, s1.npz and yeast.npz",
    )
    add_workers(parser)
    parser.add_argument(
        "--other-code",
        action="store_true",
        help="take finished runs of other sources as they are",
    )
    parser.add_argument(
        "--output", default="outputs/rivals", help="folder of journal, table and figure"
    )
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
