"""What one iteration of the masked protocol costs over a real SuperLink on loopback,
for `simulations.papers.fastlloyd.table3`.
"""

from __future__ import annotations

import re
import statistics
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from flwr_dpkmeans.errors import ConfigurationError
from simulations.flower.deployment import Deployment, LogLine, deployed
from simulations.flower.flower_processes import DeploymentError
from simulations.flower.sites import default_policy
from simulations.papers.fastlloyd.round_cost import Problem

_STEP = re.compile(r"round (\d+)/(\d+) \(")
_PLAN = "plan: "


@dataclass(frozen=True)
class SuperLinkCost:
    """What was measured of one run.

    Parameters
    ----------
    trips : tuple of float
        Seconds of each iteration from the second on: one round trip.
    start : float
        Seconds from `flwr run` to the plan.
    keys : float
        Seconds from the plan to the first masked sum: two round trips, and the app's
        way to the nodes.
    end : float
        Seconds from the last masked sum to the server's report: the round trip of the
        last release, with the clients' pictures and files.
    bytes_up, bytes_down : int
        Of one iteration, between both SuperNodes and the SuperLink, with HTTP and
        polling.
    other_bytes : int
        Of the rest of the run, the app's files included.
    """

    trips: tuple[float, ...]
    start: float
    keys: float
    end: float
    bytes_up: int
    bytes_down: int
    other_bytes: int

    @property
    def trip(self) -> float:
        """Mean seconds of an iteration."""
        return statistics.fmean(self.trips)


def measure_over_superlink(
    problem: Problem,
    *,
    n_rounds: int = 3,
    epsilon: float = 1.0,
    deploy: Callable[..., AbstractContextManager[Deployment]] = deployed,
) -> SuperLinkCost:
    """Start SuperLink and SuperNodes, run FastLloyd once, and end them.

    Parameters
    ----------
    problem : Problem
        What is clustered; each client's rows go into a file of its own node.
    n_rounds : int
        Iterations of the run, 2 to 7.
    epsilon : float
        Total of the run.
    deploy : callable, optional
        Starts the processes, and ends them.

    Returns
    -------
    SuperLinkCost

    Raises
    ------
    ConfigurationError
        If there is no second iteration to measure.
    DeploymentError
        If a process fails.
    """
    if n_rounds < 2:
        raise ConfigurationError(
            f"the number of rounds is {n_rounds}, but at least 2 are needed: give one"
            " such as 3."
        )
    with tempfile.TemporaryDirectory(prefix="dpkmeans-superlink-") as name:
        folder = Path(name)
        paths = []
        for index, part in enumerate(problem.parts):
            paths.append(folder / f"rows-{index}.npy")
            np.save(paths[-1], part)
        (folder / "policy.toml").write_text(default_policy(epsilon))
        policy = str(folder / "policy.toml")
        with deploy(
            folder, [{"data-path": str(path), "policy": policy} for path in paths]
        ) as deployment:
            return read_cost(_run(deployment, problem, n_rounds, epsilon))


def read_cost(lines: Sequence[LogLine]) -> SuperLinkCost:
    """Take times and bytes from a run's log.

    Parameters
    ----------
    lines : sequence of LogLine
        With one line for the plan, one for each iteration, and the report after them.

    Returns
    -------
    SuperLinkCost

    Raises
    ------
    DeploymentError
        If the run did not get to its end.

    Examples
    --------
    >>> from simulations.flower.relay import Traffic
    >>> rounds = ("round 1/2 (lloyd-1); ...", "round 2/2 (lloyd-2); ...")
    >>> texts = ("plan: 2 rounds", *rounds, "PRIVATE: fastlloyd")
    >>> lines = [LogLine(6.0 * i, text, Traffic(i, i)) for i, text in enumerate(texts)]
    >>> read_cost(lines).trips
    (6.0,)
    """
    plan = next((line for line in lines if line.text.startswith(_PLAN)), None)
    steps = [line for line in lines if _STEP.match(line.text)]
    after = lines[lines.index(steps[-1]) + 1 :] if steps else []
    last_step = _STEP.match(steps[-1].text) if steps else None
    is_at_end = last_step is not None and last_step[1] == last_step[2]
    if plan is None or not is_at_end or len(steps) < 2 or not after:
        text = " | ".join(line.text for line in lines[-5:] if line.text)
        raise DeploymentError(
            f"the run ended after {len(steps)} aggregations and before its report:"
            f" {text or 'no log'}"
        )
    first, last = steps[0], steps[-1]
    iterations = last.traffic - first.traffic
    count = len(steps) - 1
    return SuperLinkCost(
        trips=tuple(later.seconds - step.seconds for step, later in pairwise(steps)),
        start=plan.seconds,
        keys=first.seconds - plan.seconds,
        end=after[0].seconds - last.seconds,
        bytes_up=iterations.up // count,
        bytes_down=iterations.down // count,
        other_bytes=after[0].traffic.total - iterations.total,
    )


def _run(
    deployment: Deployment, problem: Problem, n_rounds: int, epsilon: float
) -> list[LogLine]:
    """The project's own app over what is deployed."""
    n_rows, n_features = problem.points.shape
    return deployment.run(
        f"algorithm='fastlloyd' n-clusters={problem.n_clusters} n-features={n_features}"
        f" n-examples={n_rows} num-clients={problem.n_clients} bounds='-1,1'"
        f" epsilon={epsilon!r} max-iter={n_rounds} data=''"
    )
