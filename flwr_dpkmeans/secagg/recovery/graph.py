"""How many neighbours share masks and key shares, and how many of them give a key back.

Clients stand on a circle in the hashed order of the roster, and each one's neighbours are the `degree` nearest: with
them it masks, and they hold the shares of its keys. With t of n clients that collude or fall silent, these must hold
(after Bell, Bonawitz, Gascon, Lepoint, Raykova, "Secure Single-Server Aggregation with (Poly)Logarithmic Overhead",
2020, section 3.3), each for the worst way to split t:

* a server cannot learn both keys of a client, nor read the shares of a client that is given up: twice the threshold is
  more than the degree plus the colluding neighbours, since these give a share of both and everybody else of one;
* colluding neighbours alone do not reach the threshold, which follows;
* no part of the sum can be read, whoever the server says is gone, and also if it is not honest, and one sum at most:
  two halves of neighbourhoods that do not overlap would need more colluders than the threshold allows for (`README.md`
  beside this package has the proof, which takes a circle of twice the degree);
* the silent leave enough share-holders.

Up to `ALL_PAIRS_UP_TO` clients everybody neighbours everybody and all of this is certain. Above, the first three fail
with a probability of at most 2^-40 together, over the order, which is a hash of fresh public keys: hypergeometric tails
for n neighbourhoods and n (n - 1) / 2 pairs of halves, in integers, since all parties must come to the same numbers.
The fourth costs an attempt, and fails with at most 2^-20 in an aggregation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import comb

from flwr_dpkmeans.errors import PlanError
from flwr_dpkmeans.secagg.recovery.shamir import MOST_HOLDERS
from flwr_dpkmeans.secagg.roster import ALL_PAIRS_UP_TO

PRIVACY_BITS = 40
LIVENESS_BITS = 20
SMALLEST_COHORT = 6


@dataclass(frozen=True)
class RecoveryGraph:
    """Neighbourhoods of one run."""

    degree: int
    """Neighbours of each client, who also hold its key shares."""
    threshold: int
    """Shares that give a key back."""
    certain: bool
    """Whether its properties hold for every set of t clients, not only with probability 1 - 2^-40."""

    def fewest_open(self, n_clients: int, max_silent: int) -> int:
        """Lower bound on the honest clients in a sum that a server can open, whatever it tells whom, plus t.

        Where everybody neighbours everybody, all were told of the same survivors. Otherwise clients on far parts of
        the circle may have been told of different ones, and nobody notices. Let A be the honest clients in the sum, S
        these and all that collude, k the degree, h half of it and f(c) the members of S from c - h to c + h.

        * f(a) > threshold for every a in A, by the tickets.
        * In a gap of A of h places or more, the h places behind the client before it and the h places in front of the
          client after it have at least threshold - h colluders each. Two of these halves that do not overlap would have
          more than are allowed for, so (but for 2^-40, see above) at most one gap is so long, and is shorter than 2h:
          only in such a gap do both halves share colluders.
        * f changes by at most one from place to place, so in a gap of L places it falls short by at most 1, 2, ... up
          to the middle and back: by (L + 1)^2 / 4 in all. In gaps below h that is at most w = h^2 / (4 (h - 1)) a
          place; the long one, L = 2h - 1 at worst, falls short by h^2, so by x = h^2 - w (2h - 1) more than its w L.
        * Each member of S is counted k + 1 times, so (k + 1) (|A| + t) >= n (threshold + 1) - w (n - |A|) - x.
        """
        if self.certain:
            return n_clients
        half = self.degree // 2
        # In units of 1 / scale, as all numbers are whole there.
        scale = 4 * max(1, half - 1)
        short = max(scale, half**2)
        once = max(0, half**2 * scale - short * (2 * half - 1))
        found = n_clients * ((self.threshold + 1) * scale - short) - (self.degree + 1) * max_silent * scale - once
        return max(0, found) // ((self.degree + 1) * scale - short) + max_silent


@lru_cache(maxsize=64)
def recovery_graph(n_clients: int, max_silent: int) -> RecoveryGraph:
    """Choose the smallest neighbourhoods that keep these promises where t = `max_silent` collude or fall silent."""
    if n_clients < SMALLEST_COHORT:
        raise PlanError(
            f"{n_clients} clients take part, but dropout='recover' needs at least {SMALLEST_COHORT}: choose "
            "dropout='retry'."
        )
    everybody = n_clients - 1
    max_silent = min(max(max_silent, 0), everybody)
    # On a smaller circle halves meet on its other side, and nothing says that one sum at most can be read.
    for degree in range(2, min(n_clients // 2, MOST_HOLDERS) + 1, 2):
        if n_clients <= ALL_PAIRS_UP_TO:
            break
        graph = _sparse(n_clients, max_silent, degree)
        if graph is not None:
            return graph
    threshold = (everybody + max_silent) // 2 + 1
    if everybody <= MOST_HOLDERS and everybody - max_silent >= threshold:
        return RecoveryGraph(everybody, threshold, certain=True)
    raise PlanError(
        f"max_silent is {max_silent} of {n_clients} clients, but dropout='recover' can keep sums both secret and "
        "recoverable for less than a third of them only, and about a sixth of a thousand: lower max_silent or choose "
        "dropout='retry'."
    )


def _sparse(n_clients: int, max_silent: int, degree: int) -> RecoveryGraph | None:
    """Neighbourhoods of this size, if they keep the promises."""
    # n neighbourhoods and n (n - 1) / 2 pairs of halves.
    colluding = _quantile(n_clients, max_silent, degree, comb(n_clients + 1, 2) << PRIVACY_BITS)
    silent = _quantile(n_clients, max_silent, degree, n_clients << LIVENESS_BITS)
    threshold = (degree + colluding) // 2 + 1
    return RecoveryGraph(degree, threshold, certain=False) if degree - silent >= threshold else None


def _quantile(n_clients: int, marked: int, degree: int, odds: int) -> int:
    """Least number that the marked nodes exceed among `degree` others with a probability of at most 1 / odds."""
    everything = comb(n_clients - 1, degree)
    tail = 0
    for number in range(min(marked, degree), -1, -1):
        tail += comb(marked, number) * comb(n_clients - 1 - marked, degree - number)
        if tail * odds > everything:
            return number
    return 0
