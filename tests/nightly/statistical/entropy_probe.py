"""Everything secret that a process can draw, as text.

By itself, in forks, spawned processes and threads.

`python entropy_probe.py` seeds all that can be seeded with constants and prints one
JSON object, of who drew what.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from flwr_dpkmeans.node.identity import Identity
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.privacy.noise import (
    NoiseKind,
    OpenDPNoise,
    SecureNoise,
    noise_source,
)
from flwr_dpkmeans.secagg.ciphers import seal, stream
from flwr_dpkmeans.secagg.keys import (
    agree_pair_keys,
    generate_group_key,
    generate_private_key,
    public_key_of,
)
from flwr_dpkmeans.secagg.messages import ShareRequest
from flwr_dpkmeans.secagg.recover import Recover
from flwr_dpkmeans.secagg.roster import Roster
from flwr_dpkmeans.secagg.shamir import share
from flwr_dpkmeans.secagg.slots import Slots
from flwr_dpkmeans.sums.plan import Plan, PlannedRound, make_noise_source, takes_part

SEED = 20240607
PEER = public_key_of(bytes(range(32)))
CONFIG = parse_config(
    n_clusters=2,
    bounds=((-1.0,), (1.0,)),
    unit="client",
    random_state=SEED,
    client_sampling_rate=0.5,
)
PLAN = Plan(
    1,
    CONFIG,
    3,
    0,
    SEED,
    1e-6,
    100,
    1,
    (),
    (PlannedRound("lloyd", "oblivious", ()),) * 128,
)
SOURCE, BY_OPENDP = SecureNoise(), OpenDPNoise()
"""Shared by all drawers of a process, so that a fork finds its measurements, and any
buffer of bytes, warm.
"""
PLANTED = random.Random(SEED)
"""A generator in the process's own memory: forks repeat it, and so do seeded processes.
"""


def _mask() -> bytes:
    return stream(
        agree_pair_keys(generate_private_key(), {3: PEER}, 1, 2)[3], (1, 0), 2
    ).tobytes()


def _recovery_secrets() -> bytes:
    state = Recover(1, 2, bytes(32), 2, 0, False, b"", slots=Slots(1, 3, 2))
    others = {node: public_key_of(bytes([node] * 32)) for node in range(3, 9)}
    return state.share(ShareRequest(Roster.of(0, {2: state.public_key, **others})))[
        0
    ].masters


DRAWS: dict[str, Callable[[], bytes]] = {
    "gaussian": lambda: SOURCE.discrete_gaussian(1e12, 4).tobytes(),
    "laplace": lambda: SOURCE.discrete_laplace(1e12, 4).tobytes(),
    "gaussian by OpenDP": lambda: BY_OPENDP.discrete_gaussian(1e12, 4).tobytes(),
    "gaussian of a new source": lambda: (
        noise_source(NoiseKind.SECURE).discrete_gaussian(1e12, 4).tobytes()
    ),
    "gaussian of the plan": lambda: (
        make_noise_source(PLAN, "client", 2, 1, 0).discrete_gaussian(1e12, 4).tobytes()
    ),
    "private key": generate_private_key,
    "group key": generate_group_key,
    "mask": _mask,
    "nonce": lambda: seal(bytes(32), b"", b""),
    "Shamir coefficients": lambda: share(bytes(16), 3, 2)[0],
    "keys of recovered sums": _recovery_secrets,
    "identity": lambda: Identity.generate().private_key,
    "coins": lambda: bytes(takes_part(PLAN, 2, index, 0) for index in range(1, 129)),
}


def draw_all() -> dict[str, str]:
    """One draw of each kind."""
    return {name: draw().hex() for name, draw in DRAWS.items()} | {
        "planted": PLANTED.randbytes(16).hex()
    }


def seed_everything() -> None:
    """What somebody may seed for repeatable experiments."""
    random.seed(SEED)
    np.random.seed(SEED)  # noqa: NPY002
    PLANTED.seed(SEED)


def _in_fork(rest: int) -> list[tuple[str, dict[str, str]]]:
    """What a forked child draws, after `rest` further forks below it have drawn."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            found = (_in_fork(rest - 1) if rest else []) + [
                (f"fork {rest}", draw_all())
            ]
            with os.fdopen(write, "wb") as file:
                file.write(json.dumps(found).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        found = json.loads(file.read())
    os.waitpid(pid, 0)
    return [(name, draws) for name, draws in found]


def main() -> None:
    """Draw in this process, in its forks and theirs, in threads, and in a spawned
    process that is seeded alike.
    """
    seed_everything()
    drawn = {"own": draw_all()}
    for index in range(3):
        # The parent draws between the forks, so that each starts from a buffer that was
        # just used.
        drawn |= {f"{name} of {index}": draws for name, draws in _in_fork(index)}
        drawn[f"own after {index}"] = draw_all()
    with ThreadPoolExecutor(4) as pool:
        threads = [pool.submit(draw_all) for _ in range(4)]
        drawn |= {
            f"thread {index}": thread.result() for index, thread in enumerate(threads)
        }
    with multiprocessing.get_context("spawn").Pool(
        1, initializer=seed_everything
    ) as processes:
        drawn["spawned"] = processes.apply(draw_all)
    sys.stdout.write(json.dumps(drawn))


if __name__ == "__main__":
    main()
