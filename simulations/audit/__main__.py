"""Lower bounds on epsilon beside the claims.

`python -m simulations.audit algorithm=fastlloyd trust=oblivious`.

`--all` audits every algorithm, unit and trust model; `--quick` a few in seconds. Keys
are those of an audit (algorithm, trust, unit, adversary, case, method, engine, trials,
confidence, until, retries, workers, output) and all fields of a run's configuration,
such as epsilon=2 or evaluation=private. The keys algorithm, trust, unit, adversary,
case, engine and method take several values, separated by commas.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from flwr_dpkmeans.errors import DPKMeansError
from flwr_dpkmeans.results.whole_files import write_whole
from simulations.audit.audit import (
    ONE_RUN,
    AuditOptions,
    AuditResult,
    n_runs,
    run_audit,
)
from simulations.audit.canaries import run_one_run_audit
from simulations.audit.options import Request, differences, parse_request
from simulations.audit.picture import draw
from simulations.audit.result import (
    is_above,
    line_of,
    table_of,
    why_above,
    write_results,
)
from simulations.audit.trials import Measure, measuring
from simulations.commands import wide_console
from simulations.experiments.job import log_quietly

RunAudit = Callable[..., AuditResult]


def main(arguments: Sequence[str] | None = None, run: RunAudit | None = None) -> int:
    """Audit what the command line asks for.

    Parameters
    ----------
    arguments : sequence of str, optional
        Without the program's name; None: the process's own.
    run : callable, optional
        Runs one audit.

    Returns
    -------
    int
        0; 1 if a claim is refuted; 2 for a mistake of the caller, both with a sentence
        on stderr; 130 if stopped by the keyboard.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if set(words) & {"-h", "--help"}:
        print(__doc__)
        return 0
    log_quietly()
    try:
        request = parse_request(words)
        # Before hours of runs, not after them.
        write_whole(request.output / f"{request.name}.json", b"[]\n")
        results = _audited(request, run or _run_any)
        above = [is_above(result, len(results)) for result in results]
        console = wide_console(190)
        confidence = request.audits[0].confidence
        title = f"Lower bounds, confidence {confidence:g} each"
        console.print(table_of(results, title))
        for result in itertools.compress(results, above):
            print(why_above(result), file=sys.stderr)
        for path in _written(request, results):
            print(path, file=sys.stderr)
    except DPKMeansError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    return 1 if any(above) else 0


def _audited(request: Request, run: RunAudit) -> list[AuditResult]:
    """Run all audits, one after the other, each on all workers."""
    results = []
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with (
        measuring(request.workers) as measure,
        Progress(*columns, console=console) as progress,
    ):
        total = progress.add_task("all runs", total=sum(map(n_runs, request.audits)))
        for options in request.audits:
            task = progress.add_task(_name(options), total=n_runs(options))

            def advance(n: int, task: TaskID = task) -> None:
                progress.advance(task, n)
                progress.advance(total, n)

            results.append(run(options, measure, advance))
            progress.remove_task(task)
            # A suite that is stopped leaves what it has found.
            _written(request, results)
            if not console.is_terminal:
                print(line_of(results[-1]), file=sys.stderr, flush=True)
    return results


def _written(request: Request, results: Sequence[AuditResult]) -> list[Path]:
    """Write what there is so far."""
    above = [is_above(result, len(request.audits)) for result in results]
    return write_results(
        results, request.output, request.name, draw(results, above), len(request.audits)
    )


def _run_any(
    options: AuditOptions, measure: Measure, advance: Callable[[int], None]
) -> AuditResult:
    """One audit, of whatever method."""
    if options.method == ONE_RUN:
        return run_one_run_audit(options, advance)
    return run_audit(options, measure, advance)


def _name(options: AuditOptions) -> str:
    """One audit in a line."""
    further = differences(options.values)
    parts = (options.algorithm, options.unit, options.trust, further)
    return " ".join(filter(None, parts))


if __name__ == "__main__":
    raise SystemExit(main())
