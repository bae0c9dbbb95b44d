"""What this project costs, measured in one run.

``python -m simulations.benchmarks.scale [--quick] [--output FILE.png]``.

Prints the tables of `simulations.benchmarks.kernel_speed` (noise, kernels beside the
machine's rates, whole fits beside scikit-learn's), curves of growth in rows, columns,
clusters and clients with their slopes, seconds of this process for each client, message
and vector, what follows for larger federations, and a tree of aggregators over masked
vectors, whose sum it compares with the plain one. Figures that others published are
marked as such. What it all means stands in `flwr_dpkmeans/docs/results.md`.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from rich.table import Table

from flwr_dpkmeans import FederatedKMeans
from flwr_dpkmeans.flower.in_process_grid import InProcessGrid, Node
from flwr_dpkmeans.flower.messages.replies import message_of
from flwr_dpkmeans.options import Cohort
from flwr_dpkmeans.results.pictures.figures import new_figure, png_of
from flwr_dpkmeans.results.whole_files import write_whole
from flwr_dpkmeans.secagg import ciphers, keys
from flwr_dpkmeans.secagg.messages import Stage
from flwr_dpkmeans.secagg.ring import Ring
from flwr_dpkmeans.sums.wire import Request
from flwr_dpkmeans.threads import one_thread
from simulations.benchmarks import kernel_speed
from simulations.benchmarks.kernel_speed import Timing, timed
from simulations.commands import wide_console
from simulations.papers.fastlloyd.table3 import choose_cases

ROWS, FEATURES, CLUSTERS, DEGREE = 50, 20, 10, 22
"""Of each client; neighbours with which it shares masks where 20 may be silent."""
ASKED = (1, 0)


@dataclass(frozen=True)
class Costs:
    """Seconds of one process.

    Parameters
    ----------
    plain, masked : float
        Of one client's whole run of three sums, on both sides, without and with masks.
    flower : float
        Of one message and its reply through Flower's objects, to a client that does
        nothing.
    agreement, word, addition : float
        Of one X25519 agreement, one word of a mask, and one word that a server adds.
    """

    plain: float
    masked: float
    flower: float
    agreement: float
    word: float
    addition: float


def seconds(work: Callable[[], object], times: int = 1) -> float:
    """Least seconds of this process in three runs, by the number of times that `work`
    does its work.
    """
    measurements = []
    for _ in range(3):
        start = time.process_time()
        work()
        measurements.append(time.process_time() - start)
    return min(measurements) / times


def table_of(client: int) -> np.ndarray:
    """Rows of one virtual client, always the same."""
    return np.random.default_rng(client).uniform(-1.0, 1.0, (ROWS, FEATURES))


def fit(n_clients: int, *, masking: bool) -> None:
    """A whole run of the direct engine that holds one table at a time."""
    points = np.random.default_rng(0).uniform(-1.0, 1.0, (200, FEATURES))
    cohort = Cohort(masking=masking, max_silent=DEGREE - 2 if masking else None)
    options: dict[str, Any] = {
        "unit": "client",
        "delta": 1e-9,
        "noise": "seeded",
        "random_state": 0,
        "engine": "direct",
    }
    model = FederatedKMeans(
        CLUSTERS, algorithm="feddp_kmeans", server_data=points, cohort=cohort, **options
    )
    with warnings.catch_warnings(action="ignore"):  # of seeded noise
        model.fit(clients=table_of, n_clients=n_clients)


def null_messages(n_messages: int) -> None:
    """Messages through Flower's objects to a client that answers with what it got."""
    app = ClientApp()

    @app.train()
    def answer(message: Message, _: Context) -> Message:
        return Message(message.content, reply_to=message)

    grid = InProcessGrid([Node(app)])
    with grid.running():
        grid.send_and_receive(
            [message_of(2, Request(Stage.SUM)) for _ in range(n_messages)]
        )


def measure(n_clients: int) -> Costs:
    """Measure on this machine, with so many clients."""
    fit(100, masking=True)
    private, long = keys.generate_private_key(), 5000
    peers = {
        peer: keys.public_key_of(keys.generate_private_key()) for peer in range(200)
    }
    words = ciphers.stream(private, ASKED, long)
    with one_thread():
        return Costs(
            plain=seconds(lambda: fit(n_clients, masking=False), n_clients),
            masked=seconds(lambda: fit(n_clients, masking=True), n_clients),
            flower=seconds(lambda: null_messages(1000), 1000),
            agreement=seconds(
                lambda: keys.agree_pair_keys(private, peers, 1, 300), len(peers)
            ),
            word=seconds(
                lambda: [ciphers.stream(private, ASKED, long) for _ in range(500)],
                500 * long,
            ),
            addition=seconds(
                lambda: sum((words for _ in range(500)), start=words), 500 * long
            ),
        )


@dataclass(frozen=True)
class Tier:
    """One level of a tree of aggregators.

    Parameters
    ----------
    n_nodes : int
        How many aggregators it has.
    vectors : int
        Most vectors that one of them adds.
    cpu : float
        Seconds of all of them together.
    """

    n_nodes: int
    vectors: int
    cpu: float


def masked_vectors(
    n_clients: int, length: int
) -> tuple[Callable[[int], Ring], Callable[[int], Ring]]:
    """Each client's vector, plain and under masks with its neighbours on a circle.

    Keys of pairs are hashes of their numbers here, as X25519 would only take time;
    masks are those of a run.
    """

    def plain(client: int) -> Ring:
        return np.random.default_rng(client).integers(0, 2**40, length, dtype=np.uint64)

    def masked(client: int) -> Ring:
        total = plain(client)
        for step in itertools.chain(range(1, DEGREE // 2 + 1), range(-DEGREE // 2, 0)):
            peer = (client + step) % n_clients
            pair = b"%d %d" % (min(client, peer), max(client, peer))
            shared = ciphers.stream(hashlib.sha256(pair).digest(), ASKED, length)
            total = total + shared if client < peer else total - shared
        return total

    return plain, masked


def tree(n_clients: int, fan: int, length: int) -> tuple[list[Tier], bool, bool]:
    """Add masked vectors in groups of `fan`, and groups again, until one is left.

    Returns the tiers from the leaves up, whether the sum is the plain one, and whether
    that of a first group is.
    """
    plain, masked = masked_vectors(n_clients, length)
    zero = np.zeros(length, dtype=np.uint64)
    exact, first = sum((plain(client) for client in range(n_clients)), start=zero), None
    vectors: Iterator[Ring] = map(masked, range(n_clients))
    n_vectors, tiers = n_clients, list[Tier]()
    while n_vectors > 1:
        sums, cpu = [], 0.0
        while group := list(itertools.islice(vectors, fan)):
            start = time.process_time()
            sums.append(sum(group, start=zero))
            cpu += time.process_time() - start
        tiers.append(Tier(len(sums), min(fan, n_vectors), cpu))
        first = sums[0] if first is None and len(sums) > 1 else first
        vectors, n_vectors = iter(sums), len(sums)
    group_sum = sum(
        (plain(client) for client in range(min(fan, n_clients))), start=zero
    )
    return (
        tiers,
        np.array_equal(sums[0], exact),
        first is not None and np.array_equal(first, group_sum),
    )


@dataclass(frozen=True)
class Growth:
    """Processor seconds of whole fits of which one size doubles."""

    name: str
    sizes: tuple[int, ...]
    timings: tuple[Timing, ...]

    @property
    def slope(self) -> float:
        """Exponent of the power of the size that fits the medians best: 1 is linear."""
        medians = [timing.median for timing in self.timings]
        return float(np.polyfit(np.log(self.sizes), np.log(medians), 1)[0])


START = {"rows N": 20_000, "columns d": 8, "clusters k": 8, "clients M": 4}
"""Where each curve begins, and what the other three stay at."""


def growth(
    doublings: int, repeats: int, start: Mapping[str, int] = START
) -> Iterator[Growth]:
    """FastLloyd with masks in the direct engine, from `start`, one size doubled at a
    time.
    """
    for name, first in start.items():
        sizes = tuple(first << step for step in range(doublings + 1))
        timings: list[Timing] = []
        for size in sizes:
            n_rows, n_columns, n_clusters, n_clients = {**start, name: size}.values()
            rows = np.random.default_rng(0).uniform(-1.0, 1.0, (n_rows, n_columns))
            fit = FederatedKMeans(
                n_clusters,
                algorithm="fastlloyd",
                engine="direct",
                bounds=(-1.0, 1.0),
                max_iter=5,
            )
            timings.append(
                timed(partial(fit.fit, np.array_split(rows, n_clients)), repeats)
            )
        yield Growth(name, sizes, tuple(timings))


def growth_table(curves: Sequence[Growth]) -> Table:
    """A row for each curve."""
    others = ", ".join(f"{name} = {size:,}" for name, size in START.items())
    table = Table(
        "doubled",
        "processor seconds: median [least, most]",
        "slope",
        title=f"FastLloyd with masks; {others}",
    )
    for curve in curves:
        cells = (
            f"{size:,}: {timing}"
            for size, timing in zip(curve.sizes, curve.timings, strict=True)
        )
        table.add_row(curve.name, "\n".join(cells), f"{curve.slope:.2f}")
    return table


def draw_growth(curves: Sequence[Growth]) -> bytes:
    """The curves as a PNG, with what lies between the least and the most."""
    figure = new_figure(11, 3.2)
    panels = figure.subplots(1, len(curves), sharey=True)
    for axis, curve in zip(panels, curves, strict=True):
        medians = [timing.median for timing in curve.timings]
        low = [min(timing.cpu) for timing in curve.timings]
        high = [max(timing.cpu) for timing in curve.timings]
        axis.fill_between(curve.sizes, low, high, alpha=0.2, linewidth=0)
        axis.plot(curve.sizes, medians, marker="o")
        axis.set(
            xscale="log",
            yscale="log",
            title=f"slope {curve.slope:.2f}",
            xlabel=curve.name,
        )
        axis.grid(alpha=0.25)
    figure.axes[0].set_ylabel("processor seconds of a fit")
    return png_of(figure)


def published_table() -> Table:
    """What others say of their own code, on their own machines.

    To be read beside the measured, not against it.
    """
    title = (
        "PUBLISHED, not measured here: FastLloyd's Table 3, an iteration of two clients"
    )
    table = Table("rows x columns, k", "milliseconds", "bytes", title=title)
    for case in choose_cases([], None):
        shape = f"{case.n_rows:,} x {case.n_features}, {case.n_clusters}"
        table.add_row(
            shape,
            f"{case.paper_ms:g} ± {case.paper_ms_half_width:g}",
            f"{case.paper_bytes:,}",
        )
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print what follows."""
    parser = argparse.ArgumentParser(
        prog="python -m simulations.benchmarks.scale", description=__doc__
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="smaller sizes throughout: minutes, and coarse",
    )
    parser.add_argument(
        "--repeats",
        type=int,
        default=3,
        help="timed runs of each kernel and fit (default: 3)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("growth.png"),
        help="of the curves (default: growth.png)",
    )
    parser.add_argument(
        "--clients", type=int, default=1000, help="of the measured runs"
    )
    parser.add_argument(
        "--tree", type=int, default=100_000, help="clients of the tree of aggregators"
    )
    parser.add_argument(
        "--fan",
        type=int,
        default=320,
        help="vectors that one aggregator of the tree adds",
    )
    parser.add_argument(
        "--length", type=int, default=200, help="entries of a vector in the tree"
    )
    options = parser.parse_args(arguments)
    # On a smaller circle neighbours would meet themselves, and aggregators of one
    # vector add none.
    least_values = {
        "repeats": 1,
        "clients": 2,
        "tree": DEGREE + 1,
        "fan": 2,
        "length": 1,
    }
    for name, least in least_values.items():
        value = getattr(options, name)
        if value < least:
            parser.error(f"{name} is {value}, but it must be at least {least}.")
    console = wide_console()
    n_rows = 1_000_000
    if options.quick:
        n_rows = 20_000
        options.clients = min(options.clients, 100)
        options.tree = min(options.tree, 2000)
    with warnings.catch_warnings(action="ignore"), one_thread():
        for table in kernel_speed.tables(n_rows, options.repeats):
            console.print(table)
        curves = tuple(growth(2 if options.quick else 5, options.repeats))
    console.print(growth_table(curves))
    console.print(f"wrote {write_whole(options.output, draw_growth(curves))}")
    console.print(published_table())
    costs = measure(options.clients)
    console.print(
        f"One client's run of 3 sums ({ROWS} x {FEATURES} rows, {DEGREE} neighbours),"
        f" both sides: {1e3 * costs.plain:.2f} ms without and {1e3 * costs.masked:.2f}"
        f" ms with masks. One X25519 agreement {1e6 * costs.agreement:.0f} us, a word"
        f" of a mask {1e9 * costs.word:.2f} ns, a word added {1e9 * costs.addition:.2f}"
        f" ns, a message of Flower's and its reply {1e6 * costs.flower:.0f} us.",
        highlight=False,
    )
    table = Table(
        title=(
            "CPU seconds of one process that plays all parties, and what its server"
            " alone takes in"
        )
    )
    for column in (
        "clients",
        "without masks",
        "with masks",
        "Flower's messages",
        "GB of vectors of 650 entries",
    ):
        table.add_column(column, justify="right")
    for n_clients in (10**3, 10**4, 10**5, 10**6):
        each = (costs.plain, costs.masked, 5 * costs.flower)
        table.add_row(
            f"{n_clients:,}",
            *(f"{n_clients * rate:,.0f}" for rate in each),
            f"{3 * n_clients * 5200 / 1e9:,.2f}",
        )
    console.print(table)
    tiers, is_exact, is_readable = tree(options.tree, options.fan, options.length)
    for place, tier in enumerate(tiers, start=1):
        size = 8 * options.length * tier.vectors / 1e6
        console.print(
            f"tier {place}: {tier.n_nodes:,} aggregators, each adds at most"
            f" {tier.vectors:,} vectors ({size:.2f} MB):"
            f" {1e3 * tier.cpu / tier.n_nodes:.2f} ms of CPU each",
            highlight=False,
        )
    loads = ", ".join(f"{load:.1f}" for load in os.getloadavg())
    console.print(f"{os.cpu_count()} processors; load averages: {loads}")
    exact = "is exactly the plain one" if is_exact else "is NOT the plain one"
    console.print(
        f"the sum of {options.tree:,} masked vectors {exact}; one group's sum is"
        f" readable: {is_readable}"
    )
    return 0 if is_exact and not is_readable else 1


if __name__ == "__main__":
    raise SystemExit(main())
