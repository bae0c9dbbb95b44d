"""What a run of the example is told, before there are clients."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

MECHANISMS = {"gaussian": "fastlloyd", "laplace": "fastlloyd_laplace", "none": "lloyd"}
"""Algorithm for each value of `Params.dp`."""


@dataclass
class Params:
    """Parameters of a run.

    Clients that are made with it are listed in it, so that a server finds them.

    Parameters
    ----------
    k, dim : int
        Clusters and features.
    max_dist : float, optional
        Radius around a centroid beyond which rows are left out and no step goes, the
        same in every iteration. Left out: the paper's (equations 22 to 25), after a
        first iteration over half the box's diagonal.
    dp : str
        ``gaussian``, ``laplace`` (every iteration, and the run by basic composition, is
        purely private) or ``none``.
    epsilon, delta : float
        Budget of the run; delta is left to the plan, which takes 1 / (N ln N).
    num_clients : int
        Clients of the run.
    iters : int, optional
        Iterations. Left out: the paper's estimate (equation 21), which is here once
        there is a `Server`.
    seed : int, optional
        Of the start's sphere packing; drawn where it is left out. Noise and masks are
        never seeded.
    """

    k: int
    dim: int
    max_dist: float | None = None
    dp: str = "gaussian"
    epsilon: float = 1.0
    num_clients: int = 2
    delta: float | None = None
    iters: int | None = None
    seed: int | None = None
    clients: dict[int, Any] = field(default_factory=dict, repr=False)
