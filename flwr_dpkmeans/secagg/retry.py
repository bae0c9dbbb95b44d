"""A client of sums that are repeated without whoever fell silent.

Each pair of clients adds and subtracts one mask, so that masks cancel in the sum of
all; if a vector is missing they do not, and a new attempt is asked for.

====================  ==========================  ==================================
state                 event                       next state
====================  ==========================  ==================================
`KEYED`               first `SumRequest`          `SUMMING` at (first round, attempt)
`SUMMING` at (r, a)   `SumRequest` (r + 1, a)     `SUMMING` at (r + 1, a); opens
                                                  release (r, a)
`SUMMING` at (r, a)   `SumRequest` (r, a' > a)    `SUMMING` at (r, a'); smaller
                                                  roster, no release
`SUMMING` at (r, a)   `FinishRequest` (r, a)      `FINISHED`; opens release (r, a)
anything              `StopRequest`               `FINISHED`
anything else                                     `ProtocolError`, and the state stays
====================  ==========================  ==================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from flwr_dpkmeans.errors import ProtocolError
from flwr_dpkmeans.secagg import ciphers, keys, messages
from flwr_dpkmeans.secagg.blinding import Keys
from flwr_dpkmeans.secagg.keys import KEY_BYTES, piece
from flwr_dpkmeans.secagg.party import Party, Phase, changed
from flwr_dpkmeans.secagg.ring import Ring
from flwr_dpkmeans.secagg.roster import Roster


@dataclass(frozen=True)
class Retry(Party):
    """A client of a run that repeats sums; see `Party`."""

    pair_keys: Keys = field(default=(), repr=False)
    """Keys agreed with the neighbours of the current attempt."""
    mask_keys: bytes = field(default=b"", repr=False)
    """Keys of the masks under `transcript`, end to end, in the order of `pair_keys`."""

    def admit(
        self,
        request: messages.SumRequest,
        first_round: int,
        closing_round: int = 0,
    ) -> Retry:
        """See `Party.admit`."""
        self._require_admissible(request, first_round, closing_round)
        if request.attempt == self.attempt:
            if request.roster is not None:
                # Against a second cohort under the masks of the first.
                raise ProtocolError(
                    "a second roster was announced for an attempt that has one: stop"
                    " the run."
                )
            entered = self.with_boxes(request.boxes)
        else:
            entered = self._in_attempt(request)
        return changed(entered, phase=Phase.ADMITTED, round_index=request.round_index)

    def _in_attempt(self, request: messages.SumRequest) -> Retry:
        """Enter a new attempt, if its roster is as it should be.

        Agree on keys with its neighbours, and become an author if named.
        """
        roster = request.roster
        if roster is None or roster.attempt != request.attempt:
            # Against an old roster under a new attempt's number, and so masks of both.
            raise ProtocolError(
                f"attempt {request.attempt} was opened without its own roster: restart"
                " the run."
            )
        self._require_own_place(roster, request.attempt)
        if request.boxes:
            # Against group keys that the new attempt's authors did not draw for it.
            raise ProtocolError(
                "sealed group keys came with a new roster: they are replayed or of"
                " another attempt."
            )
        if self.roster is not None:
            _require_smaller(roster, self.roster)
        neighbours = roster.neighbours(self.node_id, self.max_silent)
        pair_keys = self._agreed_keys(roster, neighbours, dict(self.pair_keys))
        entered = changed(
            self,
            attempt=request.attempt,
            roster=roster,
            pair_keys=tuple([(peer, pair_keys[peer]) for peer in neighbours]),
            own_group_key=self._fresh_group_key(roster),
            group_keys=(),
        )
        if self.authored:
            return entered
        return entered._with_group_keys({}, roster)

    def with_boxes(self, boxes: Mapping[int, bytes]) -> Retry:
        """Open the authors' boxes of the current attempt, if they are due."""
        if not self.authored or self.group_keys:
            return super().with_boxes(boxes)
        cohort = self.cohort
        authors = set(cohort.authors(self.max_silent))
        others = sorted(authors - {self.node_id})
        if sorted(boxes) != others:
            # Against a sum that fewer authors blind than the plan says.
            raise ProtocolError(
                f"sealed group keys came from nodes {sorted(boxes)}, but the authors of"
                f" attempt {self.attempt} are {others}: restart the run."
            )
        pair_keys = self._agreed_keys(cohort, others, dict(self.pair_keys))
        opened = {}
        for author, box in boxes.items():
            pair_key = pair_keys[author]
            opened[author] = self._open(pair_key, "box", author, box, KEY_BYTES)
        return self._with_group_keys(opened, cohort)

    def _add_masks(
        self,
        values: Ring,
        transcript: bytes,
    ) -> tuple[Retry, dict[int, bytes]]:
        """Add all masks; an author seals its new key for everybody else."""
        if not self.pair_keys:
            # Against a vector that nothing hides.
            raise ProtocolError(
                "a client without neighbours would send its vector as it is: restart"
                " the run."
            )
        mask_keys, masks = self._masks(transcript, len(values))
        values += masks
        masked = changed(self, mask_keys=mask_keys)
        if self.own_group_key and not self.group_keys:
            return masked, self._sealed_group_key()
        return masked, {}

    def _masks(
        self,
        transcript: bytes,
        length: int,
    ) -> tuple[bytes, Ring]:
        """Expand the masks of later neighbours, less those of earlier ones.

        With their keys, end to end.
        """
        mask_keys = self.mask_keys
        if transcript != self.transcript:
            derived = [
                self._mask_key(pair_key, transcript) for _, pair_key in self.pair_keys
            ]
            mask_keys = b"".join(derived)
        total = np.zeros(length, dtype=np.uint64)
        for index, (peer, _) in enumerate(self.pair_keys):
            words = self._mask(piece(mask_keys, index), length)
            if self.node_id < peer:
                total += words
            else:
                total -= words
        return mask_keys, total

    def _mask_key(self, pair_key: bytes, transcript: bytes) -> bytes:
        """Derive the key of the masks with one neighbour, which derives the same."""
        return keys.derive_key(pair_key, "mask", transcript)

    def _mask(self, mask_key: bytes, length: int) -> Ring:
        """Expand the mask with one neighbour, which expands the same."""
        return ciphers.stream(mask_key, self.attempt_id, length)

    def _sealed_group_key(self) -> dict[int, bytes]:
        """Seal the new group key for each other client."""
        peers = self.cohort.others_than(self.node_id)
        pair_keys = self._agreed_keys(self.cohort, peers, dict(self.pair_keys))
        boxes = {}
        for peer in peers:
            boxes[peer] = self._seal(pair_keys[peer], "box", peer, self.own_group_key)
        return boxes

    @property
    def _box_scope(self) -> tuple[int, ...]:
        """Group keys are of one attempt."""
        return (self.attempt,)


def _require_smaller(roster: Roster, before: Roster) -> None:
    """Raise unless a later roster has fewer clients, with the keys that they had."""
    is_smaller = len(roster.members) < len(before.members)
    are_unchanged = all(before.keys.get(node) == key for node, key in roster.members)
    if not (is_smaller and are_unchanged):
        # Against clients that join when identities are looked at no more.
        raise ProtocolError(
            "a later attempt's roster adds a node or changes a key: stop the run."
        )
