"""Neighbourhoods of recoverable sums: who masks with whom, and holds whose key shares.

Clients stand on a circle in the hashed order of the roster, and each one's neighbours
are the `degree` nearest: with them it masks, and they hold the shares of its keys. For
the worst way to split t clients that collude or fall silent, a server must not learn
both keys of a client (twice the threshold is more than the degree plus the colluding
neighbours), nor read a part of the sum or a second one, whoever it says is gone; the
silent must leave enough share-holders. After Bell, Bonawitz, Gascon, Lepoint, Raykova,
"Secure Single-Server Aggregation with (Poly)Logarithmic Overhead", 2020, section 3.3.

Up to `ALL_PAIRS_UP_TO` clients everybody neighbours everybody and all of this is
certain. Above, secrecy fails with a probability of at most 2^-40, over the order, which
is a hash of fresh public keys: hypergeometric tails for n neighbourhoods and n (n - 1)
/ 2 pairs of halves, in integers, since all parties must come to the same numbers. Too
few share-holders cost an attempt, in at most 2^-20 of all aggregations.

Why one sum opens, and how large it is. Call a client opened if its lock is.

1. Twice the threshold exceeds degree plus colluding neighbours. So an opened client,
   which a threshold around it calls a survivor, is never given up.
2. Let A be the clients in a sum that can be read. Masks that lead out of A lead to
   clients that were given up or collude. The former are not opened, and those outside
   of A's cohort lack the tickets, so every member has a threshold of neighbours within
   A and the colluders.
3. Let k be the degree, h half of it, and q the colluders that the threshold allows for:
   it is at least (k + q + 1) / 2. The h places before or behind a client are a half.
   Two halves that do not overlap have more than q colluders together with a probability
   below 2^-40, over all pairs of halves and all neighbourhoods
   (`test_two_heavy_halves_are_as_rare_as_promised`). From here on they have not.
4. A goes around the whole circle
   (`test_a_part_that_can_be_read_needs_more_colluders_than_are_counted_on`). For where
   A has a gap of h places or more, the client before it finds at most h of its
   threshold on the one side. So at least (q + 1) / 2 colluders are in the half behind
   it, and likewise in the half before the client after the gap. In a gap of 2h or more
   these two halves do not overlap, and in two gaps of h or more two of the four do not:
   neither exists. One gap of h to 2h - 1 places may: its halves share colluders (a
   chance of 2^-18.5 with 1,000 clients and t = 125:
   `test_one_heavy_half_is_not_rare_and_so_neither_is_one_long_gap`).
   `RecoveryGraph.fewest_open` charges it, once.
5. There is one such A. Let A and B be two smallest sums; they share nobody. Go around
   the circle, from each member of A or B to the next one. Where the two are of
   different sums there is a change, with p before and r = p + g behind it. F is the
   half behind p and C the half before r; they overlap in the g - 1 places between. Add
   up what p and r have around them. Of the places near one or both, those between count
   nothing unless they collude, the others once, and colluders near both once more. So F
   and C have at least 2 threshold + 2 - (k + 2) >= q + 1 colluders together, those in
   both counted twice; if g > h, by (4). Two changes with F and F', and C and C', that
   do not overlap would have 2q + 2 and at most 2q. The same holds for F with C' and F'
   with C. Either is there if n >= 4h = 2k: a run is what lies between two changes that
   follow each other, from its first member to its last, x places on. If x >= h - 1 and
   the rest of the circle's members are as far apart, F and F' do not overlap, nor do C
   and C'. If the rest is in h - 1 places, one sum has a gap of 2h. So all runs have x
   <= h - 2. Around a run, the C of its first and the F of its second change do not
   overlap, so the others must: g + x + g' <= 2h. Start at the change with the smallest
   g: at the first one whose p and r are both h or more places on they are at most 3h -
   2 <= n - h on, so F and F' do not overlap, nor do C and C'. Therefore circles are at
   least twice as long as a neighbourhood
   (`test_circles_are_twice_as_long_as_a_neighbourhood`), and smaller cohorts are all
   neighbours. Integer programming finds no second sum, and no smaller one, on all
   circles that it can decide (`test_no_part_is_smaller_and_no_two_are_read`).
6. How many are in A (`RecoveryGraph.fewest_open`): let S be A and all that collude, t
   of them, and f(c) the members of S from c - h to c + h. f(a) > threshold for every a
   in A, by the tickets. f changes by at most one from place to place. So in a gap of L
   places it falls short by at most 1, 2, ... up to the middle and back: by (L + 1)^2 /
   4 in all. In gaps below h that is at most w = h^2 / (4 (h - 1)) a place. The long one
   of (4), L = 2h - 1 at worst, falls short by h^2, so by x = h^2 - w (2h - 1) more than
   its w L. Each member of S is counted k + 1 times, so (k + 1) (|A| + t) >= n
   (threshold + 1) - w (n - |A|) - x. Where everybody neighbours everybody, all opened
   clients were told the same, for certain
   (`test_a_server_that_tells_everybody_what_it_likes_reads_no_part`,
   `test_nobody_cuts_the_circle_by_telling_everybody_something_else`).
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
        ones, and nobody notices: the bound is (6) of this module's proof.

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
