"""Exact discrete noise by OpenDP's samplers."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import lru_cache
from importlib import metadata

import numpy as np

from flwr_dpkmeans.errors import ConfigurationError, LocalMisuseError
from flwr_dpkmeans.privacy.exact_gaussian import Integers
from flwr_dpkmeans.privacy.noise.fork_watch import FORKS
from flwr_dpkmeans.privacy.noise.integer_noise import NoiseSource

# Before, a division in its arithmetic was wrong and Bernoulli(exp(-x)) with it:
# https://github.com/opendp/opendp/issues/2638
_OLDEST_OPENDP = (0, 14, 2)
_MOST_MEASUREMENTS = 64


class OpenDPNoise(NoiseSource):
    """Exact discrete noise from the operating system's entropy, drawn by OpenDP.

    It takes 10 to 20 microseconds per value. The samplers work on exact rationals
    (Canonne, Kamath and Steinke 2020). Threads may share it, and it takes no seed.
    Constant time is not claimed (`sharp_edges.md`).

    OpenDP takes its bytes from OpenSSL's generator, which each thread seeds from the
    operating system and which seeds itself again in a process with another number, so
    forked processes and workers do not share a stream; a fork with the number of a
    process before it (in a PID namespace of its own) is refused. A copy of a running
    process or machine that Python does not notice (a restored checkpoint, a cloned
    virtual machine) would repeat the noise.
    """

    def require_available(self, family: str) -> None:
        """Refuse all noise where OpenDP is not installed."""
        require_opendp()

    def _draw(
        self,
        family: str,
        scale: float,
        size: int,
    ) -> Integers:
        if size == 0:
            return np.zeros(0, dtype=np.int64)
        if FORKS.repeats:
            raise LocalMisuseError(
                "this process was forked under the number of one before it"
                f" ({os.getpid()}), so its noise could repeat that one's: start it"
                " afresh instead of forking it into a PID namespace."
            )
        measurement = build_measurement(family, scale)
        zeros = [0] * size
        return np.array(measurement(zeros), dtype=np.int64)


def require_opendp() -> None:
    """Raise ConfigurationError if OpenDP, which few runs need, is not installed."""
    installed = list(metadata.distributions(name="opendp"))
    if not installed:
        raise ConfigurationError(
            "Laplace noise and noise='opendp' are drawn by OpenDP, which is not"
            " installed: pip install 'flwr-dpkmeans[opendp]'."
        )


@lru_cache(maxsize=_MOST_MEASUREMENTS)
def build_measurement(family: str, scale: float) -> Callable[[list[int]], list[int]]:
    """Build OpenDP's mechanism for lists of 64-bit integers.

    It has no state and takes longer to build than to draw.
    """
    require_opendp()
    import opendp.prelude as dp

    require_unbiased(metadata.version("opendp"))
    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    measurement: Callable[[list[int]], list[int]]
    if family == "gaussian":
        measurement = dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), scale=scale)
    else:
        measurement = dp.m.make_laplace(domain, dp.l1_distance(T="i64"), scale=scale)
    return measurement


def require_unbiased(version: str) -> None:
    """Raise if this version of OpenDP draws another noise than what is priced."""
    numbers = re.findall(r"\d+", version)
    release = tuple(int(number) for number in numbers[:3])
    if release < _OLDEST_OPENDP:
        oldest = ".".join(str(number) for number in _OLDEST_OPENDP)
        raise LocalMisuseError(
            f"OpenDP is {version}, whose samplers are biased, but secure noise needs at"
            f" least {oldest}: upgrade opendp."
        )
