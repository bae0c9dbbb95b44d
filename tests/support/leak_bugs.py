"""Slips in what is sent, masked, logged and told, and in who takes part.

Patches of the real code.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flwr.app import MetricRecord
from numpy.typing import NDArray

from flwr_dpkmeans.flower import mod, strategy
from flwr_dpkmeans.flower.kmeans_client import KMeansClient
from flwr_dpkmeans.privacy.release import Block, vector_length
from flwr_dpkmeans.secagg import ciphers, keys
from flwr_dpkmeans.secagg.keys import digest
from flwr_dpkmeans.secagg.recover import Recover
from flwr_dpkmeans.secagg.retry import Retry
from flwr_dpkmeans.sums import local as direct
from flwr_dpkmeans.sums import plan as plan_module
from flwr_dpkmeans.sums.client import Client
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.trust import Broadcast, Central, Oblivious
from support.crypto import replace_derivation, replace_stream
from support.messages import RECORD
from support.statistics import plant_coin
from support.wrong_trust import plant_trust

Array = NDArray[np.float64]
Words = NDArray[np.uint64]


def _reply_with(
    patch: pytest.MonkeyPatch,
    add: Callable[[Any, Any], None],
    number: Callable[[Any], float],
) -> None:
    """Let a client add a number of its own to every masked reply."""
    honest_fit, honest_content = KMeansClient.fit, mod.content_of
    last: list[float] = [0.0]

    def fit(self: KMeansClient, parameters: Any, config: Any) -> Any:
        last[:] = [number(self.points)]
        return honest_fit(self, parameters, config)

    def content(packet: Any) -> Any:
        made = honest_content(packet)
        if packet.vector is not None:
            add(made, last[0])
        return made

    patch.setattr(KMeansClient, "fit", fit)
    _plant_content(patch, content)


def _plant_content(patch: pytest.MonkeyPatch, content: Callable[[Any], Any]) -> None:
    """Let ``content(packet)`` be what a client replies."""
    patch.setattr(mod, "content_of", content)


def number_of_rows_as_a_metric(patch: pytest.MonkeyPatch) -> None:
    def add(content: Any, value: float) -> None:
        content["metrics"] = MetricRecord({"num_examples": int(value)})

    _reply_with(patch, add, len)


def inertia_in_the_reply(patch: pytest.MonkeyPatch) -> None:
    def add(content: Any, value: float) -> None:
        content.config_records[RECORD]["inertia"] = value

    _reply_with(patch, add, lambda points: float(np.square(points).sum()))


def movement_in_the_reply(patch: pytest.MonkeyPatch) -> None:
    """For the sake of an early stop.

    Under ``oblivious`` the server knows the noise and subtracts it.
    """
    honest, contribute = mod.content_of, Client._contribute
    last: list[float] = []

    def remembering(self: Client, memory: Any, *args: Any) -> Any:
        last[:] = [] if memory.clusters is None else list(memory.clusters.movements)
        return contribute(self, memory, *args)

    def content(packet: Any) -> Any:
        made = honest(packet)
        if last:
            made.config_records[RECORD]["movement"] = last[-1]
        return made

    patch.setattr(Client, "_contribute", remembering)
    _plant_content(patch, content)


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


def exact_sizes_in_the_metrics(patch: pytest.MonkeyPatch) -> None:
    """What the server writes beside its noised result."""
    metrics = strategy.step_metrics
    last: list[float] = []  # Empty where the server has no sum.

    def tell(words: Words) -> None:
        last[:] = [float(words.view(np.int64)[-1]) / 2.0**16]

    def with_size(step: Any) -> MetricRecord:
        record = metrics(step)
        if last:
            record["size-of-last-cluster"] = last[0]
        return record

    plant_trust(patch, Chatty(tell))
    patch.setattr(strategy, "step_metrics", with_size)


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
    generate, enter = keys.generate_group_key, Retry._in_attempt

    def entered(state: Any, request: Any) -> Any:
        new = enter(state, request)
        if not new.own_group_key:
            return new
        return replace(
            new, own_group_key=kept.setdefault(state.private_key, generate())
        )

    patch.setattr(Retry, "_in_attempt", entered)


def tag_without_a_key(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(keys, "keyed_tag", lambda _, *parts: digest(*parts))


class Careless(Oblivious):
    """The server sends on what it cannot read anyway; the clients can."""

    def draw(self, blocks: Sequence[Block], *_: Any, **__: Any) -> Words:
        return np.zeros(vector_length(blocks), dtype=np.uint64)


def no_noise_on_a_sum_that_is_hidden(patch: pytest.MonkeyPatch) -> None:
    plant_trust(patch, Careless())


def shares_given_twice(patch: pytest.MonkeyPatch) -> None:
    """A client does not remember that it has opened an aggregation."""
    unmask = Recover.unmask

    def forgetful(state: Any, request: Any) -> Any:
        return state, unmask(state, request)[1]

    patch.setattr(Recover, "unmask", forgetful)


def one_coin_for_all(patch: pytest.MonkeyPatch) -> None:
    """Thrown once for all clients: whoever takes part knows who else does."""
    thrown: dict[tuple[int, int], bool] = {}

    def coin(plan: Plan, node_id: int, round_index: int, attempt: int) -> bool:
        own = plan_module.takes_part(plan, node_id, round_index, attempt)
        if node_id == direct.FIRST_NODE_ID:
            thrown[round_index, attempt] = own
        return thrown[round_index, attempt]

    plant_coin(patch, coin)


def coins_from_the_plans_seed(patch: pytest.MonkeyPatch) -> None:
    """Everybody, the server too, knows who takes part."""

    def coin(plan: Plan, node_id: int, round_index: int, attempt: int) -> bool:
        generator = np.random.default_rng([plan.seed, node_id, round_index, attempt])
        return bool(generator.random() < plan.config.client_sampling_rate)

    plant_coin(patch, coin)


def always_in(patch: pytest.MonkeyPatch) -> None:
    plant_coin(patch, lambda *_: True)
