"""Neighbourhoods of recoverable sums: who masks with whom, and holds whose key shares.

Clients stand on a circle in the hashed order of the roster, and each one's neighbours
are the `degree` nearest: with them it masks, and they hold the shares of its keys. For
the worst way to split t clients that collude or fall silent, a server must not learn
both keys of a client (twice the threshold is more than the degree plus the colluding
neighbours), nor read a part of the sum or a second one, whoever it says is gone; the
silent must leave enough share-holders. ``protocol.md``, "Recoverable sums", has the
proof, after Bell, Bonawitz, Gascon, Lepoint, Raykova, "Secure Single-Server Aggregation
with (Poly)Logarithmic Overhead", 2020, section 3.3.

Up to `ALL_PAIRS_UP_TO` clients everybody neighbours everybody and all of this is
certain. Above, secrecy fails with a probability of at most 2^-40, over the order, which
is a hash of fresh public keys: hypergeometric tails for n neighbourhoods and n (n - 1)
/ 2 pairs of halves, in integers, since all parties must come to the same numbers. Too
few share-holders cost an attempt, in at most 2^-20 of all aggregations.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import comb

from flwr_dpkmeans.errors import PlanError
from flwr_dpkmeans.secagg.roster import ALL_PAIRS_UP_TO
from flwr_dpkmeans.secagg.shamir import MOST_HOLDERS

PRIVACY_BITS = 40
"""Secrecy fails for one of 2^40 orders on the circle at most."""
LIVENESS_BITS = 20
"""Share-holders are too few for one of 2^20 aggregations at most."""
SMALLEST_COHORT = 6


@dataclass(frozen=True)
class RecoveryGraph:
    """Size of the neighbourhoods of one run."""

    degree: int
    """Neighbours of each client, who also hold its key shares."""
    threshold: int
    """Shares that give a key back."""
    certain: bool
    """Whether its properties hold for every set of t clients, not only with probability
    1 - 2^-40.
    """

    def fewest_open(self, n_clients: int, max_silent: int) -> int:
        """Bound the clients in a sum that a server can open, whatever it tells whom.

        Where everybody neighbours everybody, all were told of the same survivors.
        Otherwise clients on far parts of the circle may have been told of different
        ones, and nobody notices: the bound is (6) of the proof in `protocol.md`.

        Parameters
        ----------
        n_clients : int
            Clients on the circle: n of the proof.
        max_silent : int
            Clients that collude: t of the proof.

        Returns
        -------
        int
            Fewest honest clients in such a sum, |A| of the proof, plus t.
        """
        if self.certain:
            return n_clients
        half = self.degree // 2
        # The proof's w and x are fractions; times this, all numbers are whole.
        scale = 4 * max(1, half - 1)
        # w: how far tickets fall short at most, for each place in a gap.
        short_per_place = max(scale, half**2)
        # x: how much farther they do in the one gap that may be long.
        longest_gap = 2 * half - 1
        short_of_long_gap = half**2 * scale - short_per_place * longest_gap
        nearby = (self.degree + 1) * scale
        needed = (self.threshold + 1) * scale
        surplus = (
            n_clients * (needed - short_per_place)
            - max_silent * nearby
            - short_of_long_gap
        )
        fewest_honest = max(0, surplus) // (nearby - short_per_place)
        return fewest_honest + max_silent


@lru_cache(maxsize=64)
def recovery_graph(
    n_clients: int,
    max_silent: int,
    privacy_bits: int = PRIVACY_BITS,
    liveness_bits: int = LIVENESS_BITS,
) -> RecoveryGraph:
    """Choose the smallest neighbourhoods that keep these promises.

    Parameters
    ----------
    n_clients : int
        Clients that share keys.
    max_silent : int
        t: how many of them may collude or fall silent.
    privacy_bits, liveness_bits : int
        A sum is read, or lost, with a chance of at most 2 to the power of minus these.

    Raises
    ------
    PlanError
        If no neighbourhoods keep sums both secret and recoverable.
    """
    if n_clients < SMALLEST_COHORT:
        raise PlanError(
            f"{n_clients} clients take part, but dropout='recover' needs at least"
            f" {SMALLEST_COHORT}: choose dropout='retry'."
        )
    n_others = n_clients - 1
    max_silent = max(max_silent, 0)
    max_silent = min(max_silent, n_others)
    if n_clients > ALL_PAIRS_UP_TO:
        # On a smaller circle halves meet on its other side, and nothing says that one
        # sum at most can be read.
        largest_degree = min(n_clients // 2, MOST_HOLDERS)
        for degree in range(2, largest_degree + 1, 2):
            graph = sparse_graph(
                n_clients, max_silent, degree, privacy_bits, liveness_bits
            )
            if graph is not None:
                return graph
    threshold = (n_others + max_silent) // 2 + 1
    if n_others <= MOST_HOLDERS and n_others - max_silent >= threshold:
        return RecoveryGraph(n_others, threshold, certain=True)
    raise PlanError(
        f"max_silent is {max_silent} of {n_clients} clients, but dropout='recover' can"
        " keep sums both secret and recoverable for less than a third of them only,"
        " and about a sixth of a thousand: lower max_silent or choose dropout='retry'."
    )


def sparse_graph(
    n_clients: int,
    max_silent: int,
    degree: int,
    privacy_bits: int = PRIVACY_BITS,
    liveness_bits: int = LIVENESS_BITS,
) -> RecoveryGraph | None:
    """Return the graph of this degree if it keeps the promises, or else None."""
    n_neighbourhoods = n_clients
    n_pairs_of_halves = comb(n_clients, 2)
    n_unsafe = n_neighbourhoods + n_pairs_of_halves
    privacy_odds = n_unsafe * 2**privacy_bits
    liveness_odds = n_neighbourhoods * 2**liveness_bits
    colluding = rarely_exceeded(n_clients, max_silent, degree, privacy_odds)
    silent = rarely_exceeded(n_clients, max_silent, degree, liveness_odds)
    threshold = (degree + colluding) // 2 + 1
    if degree - silent < threshold:
        return None
    return RecoveryGraph(degree, threshold, certain=False)


def rarely_exceeded(
    n_clients: int,
    n_marked: int,
    degree: int,
    odds: int,
) -> int:
    """Return the least number of marked neighbours that is rarely exceeded.

    A hypergeometric tail, in integers.

    Parameters
    ----------
    n_clients, n_marked : int
        Clients on the circle, and how many of the others are marked.
    degree : int
        How many of the others are neighbours.
    odds : int
        The number is exceeded with a probability of at most ``1 / odds``.
    """
    n_unmarked = n_clients - 1 - n_marked
    n_neighbourhoods = comb(n_clients - 1, degree)
    tail = 0
    for number in range(min(n_marked, degree), 0, -1):
        tail += comb(n_marked, number) * comb(n_unmarked, degree - number)
        if tail * odds > n_neighbourhoods:
            return number
    return 0


def least_survivors(
    n_sharers: int,
    max_silent: int,
    min_cohort: int,
) -> int:
    """Return the smallest number of clients whose sum may be opened."""
    return max(2, min_cohort, n_sharers - max_silent)
