"""Waiting for the nodes of a run, and for its turn."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Mapping

from flwr.serverapp import Grid

from flwr_dpkmeans.errors import CohortError, listed
from flwr_dpkmeans.flower._private import flower_home
from flwr_dpkmeans.flower.messages.exchange import Listener
from flwr_dpkmeans.flower.messages.parties import ANYBODY, Parties
from flwr_dpkmeans.flower.messages.server_kind import is_deployed
from flwr_dpkmeans.log import name_nodes, placed_logger
from flwr_dpkmeans.node.durable_files import lock

logger = placed_logger("flwr_dpkmeans.server")

_JOINING_POLL_SECONDS = 0.5

_SETTLED_SECONDS = 3.0

_REMIND_SECONDS = 30.0

TURN_FILE = "flwr-dpkmeans.turn"
"""In the SuperLink's Flower home: whose run it is holds its lock."""


@contextlib.contextmanager
def turn(grid: Grid, *, concurrent: bool) -> Iterator[None]:
    """Ask a deployment's nodes only while no other run of its SuperLink does.

    Unless that is wanted.

    A node answers one message at a time, so that runs at once are slow, and late.
    ServerApps of one SuperLink have one Flower home; where they run on several hosts,
    each host has a turn.
    """
    if concurrent or not is_deployed(grid):
        yield
        return
    with (flower_home() / TURN_FILE).open("a") as file:
        start, last_reminder = time.monotonic(), -math.inf
        while not lock(file.fileno(), wait=False):
            if (now := time.monotonic()) - last_reminder >= _REMIND_SECONDS:
                last_reminder, waited = now, now - start
                logger.info(
                    f"waiting for another run's end, for {waited:.0f} s so far"
                    " (concurrent=true: not waiting)"
                )
            time.sleep(_JOINING_POLL_SECONDS)
        yield


def wait_for_nodes(
    grid: Grid,
    n_clients: int | None,
    min_clients: int,
    wait: float,
    joined: Listener[int] = list,
    parties: Parties = ANYBODY,
) -> list[int]:
    """Wait until the expected nodes have joined.

    And return their ids in ascending order.

    With `n_clients` exactly this many take part, those with the lowest ids; without,
    all that are there once none has come or gone for 3 s or the time (seconds) is up,
    at least `min_clients`. `parties` that are named take part, and no others. Too few
    in time are a `CohortError`.
    """
    start = time.monotonic()
    n_clients = parties.expected(n_clients)
    wanted = n_clients or min_clients
    last: list[int] = []
    changed = last_reminder = start
    while True:
        # The SuperLink knows a node by its key, and the operator has named the key.
        names = {node.node_id: node.name for node in grid.get_nodes()}
        name_nodes(names)
        names = parties.among(names)
        nodes = sorted(names)
        now = time.monotonic()
        if nodes != last:
            last, changed = nodes, now
            joined(nodes)
            if len(nodes) < wanted:
                logger.info(_waiting(wanted, names, parties))
                last_reminder = now
        elif len(nodes) < wanted and now - last_reminder >= _REMIND_SECONDS:
            waited = f"{now - start:.0f} of {wait:g} s"
            logger.info(f"still {_waiting(wanted, names, parties, waited)}")
            last_reminder = now
        if n_clients is not None and len(nodes) >= n_clients:
            return nodes[:n_clients]
        settled = now - changed >= _SETTLED_SECONDS or getattr(
            grid, "is_complete", False
        )
        expired = now - start >= wait
        if n_clients is None and len(nodes) >= min_clients and (settled or expired):
            return nodes
        if expired:
            option = "min-clients" if n_clients is None else "num-clients"
            raise _too_few(wanted, names, parties, wait, option)
        time.sleep(min(_JOINING_POLL_SECONDS, wait - (now - start)))


def _waiting(
    wanted: int,
    nodes: Mapping[int, str],
    parties: Parties,
    waited: str = "",
) -> str:
    """Who is waited for, by name if parties are named, and how long so far."""
    so_far = f" after {waited}" if waited else ""
    whom = listed(parties.missing(nodes)) or f"{wanted} clients"
    there = f"{len(nodes)} joined so far"
    if waited:
        there += f", nodes {sorted(nodes)}"
    return f"waiting for {whom}{so_far}: {there}"


def _too_few(
    wanted: int,
    nodes: Mapping[int, str],
    parties: Parties,
    wait: float,
    option: str,
) -> CohortError:
    missing = parties.missing(nodes)
    if missing:
        return CohortError(
            f"{listed(missing)} did not join within {wait:g} s, of {wanted} parties"
            " that are named: have them started, or correct parties."
        )
    are_named = any(nodes.values())
    there = f" ({listed(list(nodes.values()))})" if are_named else ""
    return CohortError(
        f"{len(nodes)} of {wanted} clients joined within {wait:g} s{there}: start more"
        " nodes (in simulation: "
        f'--federation-config "num-supernodes={wanted}"), or lower {option}.'
    )
