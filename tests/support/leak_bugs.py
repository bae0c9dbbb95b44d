"""Slips in what is sent, masked, logged and told, and in who takes part.

Patches of the real code.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
import pytest
from flwr.app import Array as FlowerArray
from flwr.app import Context, Message, MetricRecord, RecordDict
from numpy.typing import NDArray

from flwr_dpkmeans.flower.kmeans_client import KMeansClient
from flwr_dpkmeans.flower.messages.client_memory import recall
from flwr_dpkmeans.flower.mod import SecureAggregation
from flwr_dpkmeans.flower.strategy import PrivateKMeans
from flwr_dpkmeans.privacy.release import Block, vector_length
from flwr_dpkmeans.secagg import ciphers, keys
from flwr_dpkmeans.secagg.messages import UnmaskReply, UnmaskRequest
from flwr_dpkmeans.secagg.recover import Recover
from flwr_dpkmeans.secagg.retry import Retry
from flwr_dpkmeans.sums import local as direct
from flwr_dpkmeans.sums import plan as plan_module
from flwr_dpkmeans.sums.client import contribution
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.trust import Broadcast, Central, Oblivious
from support.crypto import replace_derivation, replace_stream
from support.machine import replace_entropy
from support.messages import RECORD, VECTOR_RECORD
from support.watching import watch
from support.wrong_trust import plant_trust

Array = NDArray[np.float64]
Words = NDArray[np.uint64]


class TalkativeMod(SecureAggregation):
    """Adds something of its own to every masked reply."""

    def __init__(self, client: KMeansClient, settings: Any) -> None:
        super().__init__(settings)
        self.points = client.points

    def add(self, content: RecordDict, context: Context) -> None:
        """Say it."""
        raise NotImplementedError

    def answer(self, message: Message, context: Context, wrap: Any) -> Message:
        reply = super().answer(message, context, wrap)
        if VECTOR_RECORD in reply.content.array_records:
            self.add(reply.content, context)
        return reply


class NumberOfRows(TalkativeMod):
    """As a metric."""

    def add(self, content: RecordDict, context: Context) -> None:
        content["metrics"] = MetricRecord({"num_examples": len(self.points)})


class Inertia(TalkativeMod):
    def add(self, content: RecordDict, context: Context) -> None:
        inertia = float(np.square(self.points).sum())
        content.config_records[RECORD]["inertia"] = inertia


class Movement(TalkativeMod):
    """For the sake of an early stop.

    Under ``oblivious`` the server knows the noise and subtracts it.
    """

    def add(self, content: RecordDict, context: Context) -> None:
        memory = recall(context)
        assert memory is not None
        if memory.clusters is not None and memory.clusters.movements:
            content.config_records[RECORD]["movement"] = memory.clusters.movements[-1]


class Chatty(Central):
    """Says of each sum what it should not: `tell` gets its exact words."""

    def __init__(self, tell: Callable[[Words], None]) -> None:
        self.tell = tell

    def broadcast(self, aggregate: Any, *args: Any) -> Broadcast:
        self.tell(aggregate.values)
        return super().broadcast(aggregate, *args)


def sums_in_the_servers_log(patch: pytest.MonkeyPatch) -> None:
    def tell(words: Words) -> None:
        logging.getLogger("flwr_dpkmeans.server").info(
            "cluster sizes %s", words[-3:].view(np.int64) >> 16
        )

    plant_trust(patch, Chatty(tell))


_EXACT: list[float] = []
"""The last sum that the server had; none where it has no sum."""


def note_sums(patch: pytest.MonkeyPatch) -> None:
    """Let the server remember exact sums, for the strategies below."""

    def tell(words: Words) -> None:
        _EXACT[:] = (words.view(np.int64) / 2.0**16).tolist()

    _EXACT.clear()
    plant_trust(patch, Chatty(tell))


class SizesInMetrics(PrivateKMeans):
    """What the server writes beside its noised result."""

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        arrays, metrics = super().aggregate_train(server_round, replies)
        if metrics is not None and _EXACT:
            metrics["size-of-last-cluster"] = _EXACT[-1]
        return arrays, metrics


class ExactResult(PrivateKMeans):
    """Clients get noise, but what the server publishes is the exact sum."""

    def start(self, *args: Any, **options: Any) -> Any:
        result = super().start(*args, **options)
        if _EXACT:
            counts = np.array(_EXACT[-self.config.n_clusters :])
            result.arrays["counts"] = FlowerArray(counts)
        return result


def _streams_without(
    patch: pytest.MonkeyPatch, of: str, place: int, *, transcript: bool = True
) -> None:
    """Leave the round (0) or the attempt (1) out of the streams of a purpose, or the
    transcript out of its keys.
    """
    derive, stream = keys.derive_key, ciphers.stream
    marked: set[bytes] = set()

    def shorter(key: bytes, purpose: str, *context: Any) -> bytes:
        if purpose != of:
            return derive(key, purpose, *context)
        marked.add(
            derived := derive(key, purpose, *(context if transcript else context[:-1]))
        )
        return derived

    def repeated(key: bytes, asked: tuple[int, int], length: int) -> Any:
        left = tuple(
            0 if key in marked and i == place else part for i, part in enumerate(asked)
        )
        return stream(key, left, length)

    replace_derivation(patch, shorter)
    replace_stream(patch, repeated)


def one_mask_for_all_rounds(patch: pytest.MonkeyPatch) -> None:
    _streams_without(patch, "mask", 0)


def one_blinding_for_all_rounds(patch: pytest.MonkeyPatch) -> None:
    _streams_without(patch, "blind", 0)


def one_mask_for_all_attempts(patch: pytest.MonkeyPatch) -> None:
    """The attempt, and the roster that changes with it, are not in the key."""
    _streams_without(patch, "mask", 1, transcript=False)


def one_blinding_for_all_attempts(patch: pytest.MonkeyPatch) -> None:
    """Authors keep their keys, and neither the attempt nor its roster is in the
    stream's.
    """
    _streams_without(patch, "blind", 1, transcript=False)
    kept: dict[bytes, bytes] = {}
    drawing: list[bytes] = []
    draw = os.urandom

    def drawn(n_bytes: int) -> bytes:
        fresh = draw(n_bytes)
        return kept.setdefault(drawing[0], fresh) if drawing else fresh

    replace_entropy(patch, drawn)
    watch(
        Retry.admit,
        lambda _: drawing.clear(),
        begin=lambda call: drawing.append(call.arguments["self"].private_key),
    )


def tag_without_a_key(patch: pytest.MonkeyPatch) -> None:
    derive = keys.derive_key
    replace_derivation(
        patch,
        lambda secret, purpose, *context: (
            bytes(32) if purpose == "tag" else derive(secret, purpose, *context)
        ),
    )


class Careless(Oblivious):
    """The server sends on what it cannot read anyway; the clients can."""

    def draw(self, blocks: Sequence[Block], *_: Any, **__: Any) -> Words:
        return np.zeros(vector_length(blocks), dtype=np.uint64)


def no_noise_on_a_sum_that_is_hidden(patch: pytest.MonkeyPatch) -> None:
    plant_trust(patch, Careless())


class ForgetfulParty(Recover):
    """Does not remember that it has opened an aggregation."""

    def unmask(self, request: UnmaskRequest) -> tuple[Self, UnmaskReply]:
        return self, super().unmask(request)[1]


def _plant_coin(
    patch: pytest.MonkeyPatch, coin: Callable[[Any, int, int, int], bool]
) -> None:
    """Let ``coin(plan, node_id, round_index, attempt)`` say who takes part."""
    patch.setattr(contribution, "takes_part", coin)


def one_coin_for_all(patch: pytest.MonkeyPatch) -> None:
    """Thrown once for all clients: whoever takes part knows who else does."""
    thrown: dict[tuple[int, int], bool] = {}

    def coin(plan: Plan, node_id: int, round_index: int, attempt: int) -> bool:
        own = plan_module.takes_part(plan, node_id, round_index, attempt)
        if node_id == direct.FIRST_NODE_ID:
            thrown[round_index, attempt] = own
        return thrown[round_index, attempt]

    _plant_coin(patch, coin)


def coins_from_the_plans_seed(patch: pytest.MonkeyPatch) -> None:
    """Everybody, the server too, knows who takes part."""

    def coin(plan: Plan, node_id: int, round_index: int, attempt: int) -> bool:
        generator = np.random.default_rng([plan.seed, node_id, round_index, attempt])
        return bool(generator.random() < plan.config.client_sampling_rate)

    _plant_coin(patch, coin)


def always_in(patch: pytest.MonkeyPatch) -> None:
    _plant_coin(patch, lambda *_: True)
