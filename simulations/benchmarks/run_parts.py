"""Where the seconds of `flwr run` go: this package, Flower, Ray.

The default job, on a SuperLink that is started for it. Each part ends with a line of
the log, which is looked at five times a second.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from simulations.flower.ray_settings import RayBackend
from simulations.flower.ray_superlink import EngineError, RaySuperLink

PROJECT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Part:
    """A part of a run, up to the first line of the log with some words.

    Parameters
    ----------
    name : str
        What happens in it.
    owner : str
        Whose code takes the time.
    ends_with : str
        Words of the line; where there are none, the part ends with the run.
    """

    name: str
    owner: str
    ends_with: str = ""


PARTS = (
    Part("SuperLink starts, the app's bundle is made", "Flower", "Successfully inst"),
    Part("server app and Ray's cluster start", "Flower, Ray", " starts with "),
    Part("plan", "this package", "plan: "),
    Part("workers start, and import the client app", "Ray, imports", "round trip 1 of"),
    Part("rounds", "this package, Ray's messages", "clients confirmed"),
    Part("files are listed, cluster and run end", "Ray, Flower"),
)
"""In their order. Clients write their results before they confirm the last round."""


@dataclass
class Watched:
    """When the parts of one run ended, in seconds since the command.

    Parameters
    ----------
    log : Path
        File of the run's output.
    ends : list of float
        Of the parts that are over.
    """

    log: Path
    ends: list[float] = field(default_factory=list)

    def look(self, seconds: float) -> None:
        """Note which parts are over by now."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        for part in PARTS[len(self.ends) :]:
            if not part.ends_with or part.ends_with not in text:
                return
            self.ends.append(seconds)

    def lengths(self, seconds: float) -> list[float]:
        """How long each part took, of a run that took so many seconds."""
        starts = [0.0, *self.ends]
        ends = [*self.ends, seconds]
        return [end - start for start, end in zip(starts, ends, strict=True)]


def measure(n_nodes: int) -> list[float]:
    """Run the default job once; seconds of each of `PARTS`."""
    with tempfile.TemporaryDirectory() as folder:
        watched = Watched(Path(folder) / "log")
        with RaySuperLink(RayBackend()) as superlink:
            finished = superlink.run_app(
                PROJECT,
                n_nodes=n_nodes,
                log=watched.log,
                watch=watched.look,
            )
        watched.look(finished.seconds)
        if len(watched.ends) != len(PARTS) - 1:
            last = (finished.output.strip().splitlines() or [""])[-1]
            raise EngineError(
                f"the run ended after {len(watched.ends)} of {len(PARTS)} parts with"
                f" {last!r}: run the command of the README by hand."
            )
        return watched.lengths(finished.seconds)


def table_of(runs: Sequence[Sequence[float]]) -> Table:
    """Medians of several runs, with the least and the most."""
    load = os.getloadavg()[0]
    table = Table(
        "part",
        "whose",
        "seconds",
        "least, most",
        title=f"flwr run: {len(runs)} runs, machine load {load:.1f}",
    )
    for part, seconds in zip(PARTS, zip(*runs, strict=True), strict=True):
        spread = f"{min(seconds):.1f}, {max(seconds):.1f}"
        table.add_row(
            part.name, part.owner, f"{statistics.median(seconds):.1f}", spread
        )
    whole = [sum(run) for run in runs]
    table.add_row(
        "whole",
        "",
        f"{statistics.median(whole):.1f}",
        f"{min(whole):.1f}, {max(whole):.1f}",
    )
    return table


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m simulations.benchmarks.run_parts", description=__doc__
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--clients", type=int, default=10)
    options = parser.parse_args(arguments)
    runs = [measure(options.clients) for _ in range(options.repeats)]
    Console().print(table_of(runs))


if __name__ == "__main__":
    main()
