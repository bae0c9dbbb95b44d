"""A progress bar in a terminal or a notebook, for fits that take long."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer

from flwr_dpkmeans.log import placed_logger
from flwr_dpkmeans.sums.statement import Step

logger = placed_logger("flwr_dpkmeans.estimator")

_SECONDS_BEFORE_BAR = 2.0


@contextmanager
def progress_bar(
    seconds_before: float = _SECONDS_BEFORE_BAR,
) -> Iterator[Callable[[Step], None]]:
    """Show each step that the block reports as a bar, after `seconds_before`.

    Only where somebody looks on, in a terminal or a notebook; else steps are logged.
    """
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    if not (console.is_terminal or console.is_jupyter):
        yield logger.debug
        return
    bar = Progress(console=console, transient=True)
    task = bar.add_task("clustering", total=None)

    def show(step: Step) -> None:
        n_done = max(0, step.round_index)
        bar.update(task, completed=n_done, total=step.n_rounds or None)

    timer = Timer(seconds_before, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield show
    finally:
        timer.cancel()
        timer.join()
        if bar.live.is_started:
            bar.stop()
