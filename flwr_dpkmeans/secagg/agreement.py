"""What both sides of recoverable sums compute alike.

Neighbourhoods, shares, masks, and locks that agreement opens.

**Neighbourhoods.** Clients stand on a circle in the hashed order of the roster, and
each one's neighbours are the `degree` nearest: with them it masks, and they hold the
shares of its keys. For the worst way to split t clients that collude or fall silent, a
server must not learn both keys of a client (twice the threshold is more than the degree
plus the colluding neighbours), nor read a part of the sum or a second one, whoever it
says is gone; the silent must leave enough share-holders. ``README.md``, "Recoverable
sums", has the proof, after Bell, Bonawitz, Gascon, Lepoint, Raykova, "Secure
Single-Server Aggregation with (Poly)Logarithmic Overhead", 2020, section 3.3.

Up to `ALL_PAIRS_UP_TO` clients everybody neighbours everybody and all of this is
certain. Above, secrecy fails with a probability of at most 2^-40, over the order, which
is a hash of fresh public keys: hypergeometric tails for n neighbourhoods and n (n - 1)
/ 2 pairs of halves, in integers, since all parties must come to the same numbers. Too
few share-holders cost an attempt, in at most 2^-20 of all aggregations.

**Shares** are Shamir's over GF(2^8), the field of AES (x^8 + x^4 + x^3 + x + 1);
**locks** stand against a server that tells clients different cohorts or survivors:
`README.md`, "Recoverable sums".
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import comb

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.errors import LocalMisuseError, PlanError, ProtocolError
from flwr_dpkmeans.secagg.ciphers import mask
from flwr_dpkmeans.secagg.keys import KEY_BYTES, digest, keyed_tag
from flwr_dpkmeans.secagg.ring import Ring
from flwr_dpkmeans.secagg.roster import ALL_PAIRS_UP_TO, Roster

PRIVACY_BITS = 40
LIVENESS_BITS = 20
SMALLEST_COHORT = 6
MOST_HOLDERS = 255
"""Holders have the coordinates 1 to 255; 0 is the secret's."""
GIVEN_BYTES = 3 * KEY_BYTES
"""What a client gives for each neighbour.

a locked share, a ticket, and a padded share of the lock's key.
"""
LEAST_AUTHORS = 2
"""Key authors that must survive, so that one with a bad random generator does not open
the sum.
"""
MOST_SLOTS = 256
"""Aggregations that keys are shared for.

Each costs a client 96 bytes for every neighbour.
"""
Bytes = NDArray[np.uint8]
_POLYNOMIAL = 0x11B


@dataclass(frozen=True)
class RecoveryGraph:
    """Neighbourhoods of one run."""

    degree: int
    """Neighbours of each client, who also hold its key shares."""
    threshold: int
    """Shares that give a key back."""
    certain: bool
    """Whether its properties hold for every set of t clients, not only with probability
    1 - 2^-40.
    """

    def fewest_open(self, n_clients: int, max_silent: int) -> int:
        """Lower bound on the honest clients in a sum that a server can open, whatever
        it tells whom, plus t.

        Where everybody neighbours everybody, all were told of the same survivors.
        Otherwise clients on far parts of the circle may have been told of different
        ones, and nobody notices: (6) of the proof in `README.md`.
        """
        if self.certain:
            return n_clients
        half = self.degree // 2
        # In units of 1 / scale, as all numbers are whole there.
        scale = 4 * max(1, half - 1)
        short = max(scale, half**2)
        once = half**2 * scale - short * (2 * half - 1)
        found = (
            n_clients * ((self.threshold + 1) * scale - short)
            - (self.degree + 1) * max_silent * scale
            - once
        )
        return max(0, found) // ((self.degree + 1) * scale - short) + max_silent


@lru_cache(maxsize=64)
def recovery_graph(n_clients: int, max_silent: int) -> RecoveryGraph:
    """Choose the smallest neighbourhoods that keep these promises where t =
    `max_silent` collude or fall silent.
    """
    if n_clients < SMALLEST_COHORT:
        raise PlanError(
            f"{n_clients} clients take part, but dropout='recover' needs at least"
            f" {SMALLEST_COHORT}: choose dropout='retry'."
        )
    everybody = n_clients - 1
    max_silent = min(max(max_silent, 0), everybody)
    # On a smaller circle halves meet on its other side, and nothing says that one sum
    # at most can be read.
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
        f"max_silent is {max_silent} of {n_clients} clients, but dropout='recover' can"
        " keep sums both secret and recoverable for less than a third of them only,"
        " and about a sixth of a thousand: lower max_silent or choose dropout='retry'."
    )


def _sparse(n_clients: int, max_silent: int, degree: int) -> RecoveryGraph | None:
    # n neighbourhoods and n (n - 1) / 2 pairs of halves.
    colluding = _quantile(
        n_clients, max_silent, degree, comb(n_clients + 1, 2) << PRIVACY_BITS
    )
    silent = _quantile(n_clients, max_silent, degree, n_clients << LIVENESS_BITS)
    threshold = (degree + colluding) // 2 + 1
    return (
        RecoveryGraph(degree, threshold, certain=False)
        if degree - silent >= threshold
        else None
    )


def _quantile(n_clients: int, marked: int, degree: int, odds: int) -> int:
    """Least number that the marked nodes exceed among `degree` others with a
    probability of at most 1 / odds.
    """
    everything = comb(n_clients - 1, degree)
    tail = 0
    for number in range(min(marked, degree), 0, -1):
        tail += comb(marked, number) * comb(n_clients - 1 - marked, degree - number)
        if tail * odds > everything:
            return number
    return 0


def share(secret: bytes, n_holders: int, threshold: int) -> list[bytes]:
    """Split a secret so that `threshold` shares give it back and fewer say nothing
    about it.

    Each byte is the constant term of its own random polynomial of degree ``threshold -
    1`` (Shamir 1979). Share number i belongs to coordinate i + 1 and is as long as the
    secret.
    """
    if not 1 <= threshold <= n_holders <= MOST_HOLDERS:
        raise LocalMisuseError(
            f"{n_holders} share-holders with a threshold of {threshold} were asked for,"
            f" but both must lie between 1 and {MOST_HOLDERS} and the threshold may not"
            " be larger: choose another graph."
        )
    length = len(secret)
    coefficients = np.frombuffer(
        os.urandom((threshold - 1) * length), dtype=np.uint8
    ).reshape(threshold - 1, length)
    holders = np.arange(1, n_holders + 1, dtype=np.uint8)
    values = np.zeros((n_holders, length), dtype=np.uint8)
    for coefficient in coefficients:
        values = _times(holders, values ^ coefficient)
    values ^= np.frombuffer(secret, dtype=np.uint8)
    return [row.tobytes() for row in values]


def reconstruct(shares: Mapping[int, bytes]) -> bytes:
    """Interpolate the secret from shares by coordinate.

    The threshold's number of them is right, more are as well.

    With too few shares or a wrong one this is not the secret.
    """
    if (
        not shares
        or not all(1 <= x <= MOST_HOLDERS for x in shares)
        or len({len(s) for s in shares.values()}) != 1
    ):
        raise ProtocolError(
            "shares of a key are missing, of different lengths or of unknown holders:"
            " restart the run."
        )
    coordinates = tuple(shares)
    table = np.stack([np.frombuffer(part, dtype=np.uint8) for part in shares.values()])
    weighted = _times(lagrange_weights(coordinates), table)
    return bytes(np.bitwise_xor.reduce(weighted, axis=0).tobytes())


def lagrange_weights(coordinates: Sequence[int]) -> Bytes:
    """Weights with which shares at these coordinates add up to the value at 0."""
    x = np.asarray(coordinates, dtype=np.int64)
    exponents, logarithms = _powers()
    # In a field of characteristic 2 minus is plus, so the weight is the product over
    # the others of x_j / (x_j + x_i).
    sums = logarithms[x[:, None] ^ x[None, :]]
    np.fill_diagonal(sums, 0)
    own = logarithms[x]
    weights = exponents[(own.sum() - own - sums.sum(axis=1)) % MOST_HOLDERS]
    return np.asarray(weights, dtype=np.uint8)


def _times(constants: Bytes, values: Bytes) -> Bytes:
    rows = constants.astype(np.int64)[:, None] << 8
    return np.asarray(_products().take(rows | values))


@lru_cache(maxsize=1)
def _powers() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Powers of the generator, and logarithms to its base (that of 0 is not used)."""
    exponents, logarithms = np.zeros(255, dtype=np.int64), np.zeros(256, dtype=np.int64)
    value = 1  # the generator is x + 1: every factor is a doubling and an addition
    for power in range(255):
        exponents[power], logarithms[value] = value, power
        doubled = value << 1
        value = (doubled ^ (_POLYNOMIAL if doubled & 0x100 else 0)) ^ value
    return exponents, logarithms


@lru_cache(maxsize=1)
def _products() -> Bytes:
    """The multiplication table, flat: a * b stands at 256 a + b."""
    exponents, logarithms = _powers()
    table = exponents[(logarithms[:, None] + logarithms[None, :]) % 255].astype(
        np.uint8
    )
    table[0, :] = 0
    table[:, 0] = 0
    return np.asarray(table.ravel())


@dataclass(frozen=True)
class Slots:
    """Every aggregation that a run may have, and has keys for.

    One X25519 pair and one self-mask seed each.
    """

    first_round: int
    last_round: int
    """Of the plan; where it is not final yet, the last round that it may have."""
    n_attempts: int

    def __post_init__(self) -> None:
        if not (
            self.last_round >= self.first_round
            and self.n_attempts >= 1
            and self.number <= MOST_SLOTS
        ):
            raise PlanError(
                f"the plan may have {self.number} aggregations with all retries, but"
                f" dropout='recover' shares keys for at most {MOST_SLOTS}: lower"
                " max_retries or max_iter, or choose dropout='retry'."
            )

    @cached_property
    def number(self) -> int:
        return (self.last_round - self.first_round + 1) * self.n_attempts

    def place(self, round_index: int, attempt: int) -> int:
        """Place of an aggregation in the order of keys.

        One that is not planned is a `ProtocolError`.
        """
        if not (
            self.first_round <= round_index <= self.last_round
            and 0 <= attempt < self.n_attempts
        ):
            # Against a key that serves two aggregations: a dropout in one would open
            # the other.
            raise ProtocolError(
                f"round {round_index}, attempt {attempt} has no keys in this run, which"
                f" shared them for rounds {self.first_round} to {self.last_round} and"
                f" {self.n_attempts} attempt(s): stop the run."
            )
        return (round_index - self.first_round) * self.n_attempts + attempt


def piece(blob: bytes, place: int) -> bytes:
    """The 32 bytes at one place."""
    return blob[place * KEY_BYTES : (place + 1) * KEY_BYTES]


def least_survivors(n_sharers: int, max_silent: int, min_cohort: int) -> int:
    """Smallest number of clients whose sum may be opened."""
    return max(2, min_cohort, n_sharers - max_silent)


@lru_cache(maxsize=8)
def cohort_of(setup: Roster, attempt: int, node_ids: tuple[int, ...]) -> Roster:
    """Part of a roster; the clients of one process need the same one."""
    return Roster(attempt, tuple((node, setup.keys[node]) for node in node_ids))


def self_mask(
    seed: bytes,
    run_id: int,
    node_id: int,
    asked: tuple[int, int],
    transcript: bytes,
    length: int,
) -> Ring:
    """The mask that hides a vector whose pairwise masks were taken away, until it is
    known to have arrived.
    """
    return mask(seed, asked, length, "self", run_id, node_id, transcript)


def pair_mask(
    pair_key: bytes,
    node_id: int,
    peer: int,
    asked: tuple[int, int],
    transcript: bytes,
    length: int,
) -> Ring:
    """What `node_id` adds to its vector for `peer`: the other adds the negative."""
    shared = mask(pair_key, asked, length, "mask", transcript)
    return shared if node_id < peer else np.negative(shared)


def survivors_digest(survivors: Iterable[int]) -> bytes:
    """SHA-256 of a set of node ids."""
    return digest(
        "survivors", b"".join(node.to_bytes(8, "little") for node in sorted(survivors))
    )


def cohort_view(asked: tuple[int, int], transcript: bytes) -> bytes:
    """What an owner and a holder must have been told alike.

    The aggregation, the plan and the cohort.
    """
    return digest("cohort view", *asked, transcript)


def survivors_view(
    asked: tuple[int, int], transcript: bytes, survivors: Iterable[int]
) -> bytes:
    """What neighbours that give shares must have been told alike.

    The same and the survivors.
    """
    return digest("survivors view", *asked, transcript, survivors_digest(survivors))


def ticket(key: bytes, sender: int, recipient: int, view: bytes) -> bytes:
    """What `sender` gives the server so that it can use what `recipient` pads with it."""
    return keyed_tag(key, sender, recipient, view)


def lock(opening: bytes, owner: int) -> bytes:
    """Hides the share of one owner's key until the opening is known."""
    return keyed_tag(opening, "lock", owner)


def combine(*parts: bytes) -> bytes:
    """Exclusive or of strings of 32 bytes; once more with one of them takes it away."""
    value = 0
    for part in parts:
        value ^= int.from_bytes(part, "little")
    return value.to_bytes(KEY_BYTES, "little")


def unlock(
    holder: int,
    given: Mapping[int, Mapping[int, bytes]],
    coordinates: Mapping[int, int],
    threshold: int,
) -> dict[int, bytes]:
    """Read the shares that one client gave, with the tickets of its neighbours that
    gave some too, by `coordinates`.

    The share of each owner's key is still padded with the owner's ticket if it
    survived; with a wrong one it is noise.
    """
    parts = {
        coordinate: combine(
            piece(given[holder][peer], 2), piece(given[peer][holder], 1)
        )
        for peer, coordinate in list(coordinates.items())[:threshold]
    }
    opening = reconstruct(parts)
    return {
        owner: combine(piece(sent, 0), lock(opening, owner))
        for owner, sent in given[holder].items()
    }
