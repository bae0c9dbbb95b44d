"""Bounded waiting for the cohort."""

from __future__ import annotations

import time
from collections.abc import Callable

from flwr.serverapp import Grid

from flwr_dpkmeans.errors import CohortError

_POLL_SECONDS = 0.5
_SETTLED_SECONDS = 3.0
_REMIND_SECONDS = 30.0


def wait_for_nodes(
    grid: Grid,
    n_clients: int | None,
    min_clients: int,
    timeout: float,
    *,
    say: Callable[[str], None] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> list[int]:
    """Wait until the expected nodes have joined.

    Parameters
    ----------
    grid : Grid
        Flower's grid.
    n_clients : int or None
        Exactly this many take part (the lowest node ids if there are more); None: all that are there once none has
        come or gone for 3 s, or when the time is up.
    min_clients : int
        With `n_clients` None, the least number.
    timeout : float
        Seconds.
    say : callable
        Told what is being waited for.
    clock, sleep : callable
        For tests.

    Returns
    -------
    list of int
        Ascending node ids.

    Raises
    ------
    CohortError
        If too few joined in time.
    """
    start = clock()
    wanted = n_clients or min_clients
    last: list[int] = []
    changed = told = start
    while True:
        nodes = sorted(grid.get_node_ids())
        now = clock()
        if nodes != last:
            last, changed = nodes, now
            if len(nodes) < wanted:
                say(f"waiting for {wanted} clients: {len(nodes)} joined so far")
                told = now
        elif len(nodes) < wanted and now - told >= _REMIND_SECONDS:
            waited = f"{now - start:.0f} of {timeout:g} s"
            say(f"still waiting for {wanted} clients after {waited}: {len(nodes)} joined so far, nodes {nodes}")
            told = now
        if n_clients is not None and len(nodes) >= n_clients:
            return nodes[:n_clients]
        settled = now - changed >= _SETTLED_SECONDS or getattr(grid, "is_complete", False)
        expired = now - start >= timeout
        if n_clients is None and len(nodes) >= min_clients and (settled or expired):
            return nodes
        if expired:
            option = "min-clients" if n_clients is None else "num-clients"
            raise CohortError(
                f"{len(nodes)} of {wanted} clients joined within {timeout:g} s: start more nodes (in simulation: "
                f'--federation-config "num-supernodes={wanted}"), or lower {option}.'
            )
        sleep(min(_POLL_SECONDS, timeout - (now - start)))
