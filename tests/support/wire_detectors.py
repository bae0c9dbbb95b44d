"""What the server gets, adds up and writes; AssertionError if it can read any of it."""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from flwr.app import Message
from numpy.typing import NDArray

from flwr_dpkmeans.errors import ProtocolError
from flwr_dpkmeans.flower.strategy import PrivateKMeans
from flwr_dpkmeans.secagg import ciphers
from flwr_dpkmeans.secagg.retry import Retry
from flwr_dpkmeans.sums.trust import trust_model
from support.messages import RECORD
from support.protocol_federation import (
    Federation,
    count_readable,
    grid_parts,
    make_federation,
    received_vectors,
    small_config,
)
from support.watching import Call, stop_watching, watch

Array = NDArray[np.float64]
Words = NDArray[np.uint64]


def federation_run(
    parts: Sequence[Array],
    *,
    late_in_round: int | None = None,
    run_id: int | None = None,
    strategy_class: type[PrivateKMeans] = PrivateKMeans,
    nodes: Mapping[str, Any] | None = None,
    **values: Any,
) -> Watched:
    """Run everything, with options of `make_federation`.

    In one round the first reply without sealed keys comes too late, and the sum is
    asked for again.

    Returns
    -------
    Watched
        With every reply, also the late one.
    """
    federation = make_federation(parts, run_id=run_id, **(nodes or {}))
    federation.strategy_class = strategy_class
    replies: list[Message] = []
    late: list[Message] = []

    def on_reply(reply: Message) -> list[Message]:
        replies.append(reply)
        rounds = [index for index, _ in received_vectors([reply])]
        if (
            rounds == [late_in_round]
            and not late
            and "boxes" not in reply.content.config_records[RECORD]
        ):
            late.append(reply)
            return []
        return [reply]

    federation.faults.on_reply = on_reply
    values = {
        "n_features": parts[0].shape[1],
        "n_examples": 300,
        "epsilon": 4.0,
    } | values
    with _streams() as streams:
        result = federation.start(small_config(**values))
    return Watched(federation, result, replies, streams)


@contextmanager
def _streams() -> Iterator[list[tuple[int, tuple[int, int], bytes]]]:
    """The streams that clients add to their vectors.

    (node, (round, attempt), its first words).
    """
    used: list[tuple[int, tuple[int, int], bytes]] = []
    now: list[tuple[int, tuple[int, int]]] = []

    def note_stream(call: Call) -> None:
        used.extend((*place, call.result[:4].tobytes()) for place in now)

    def begin_answer(call: Call) -> None:
        state, request = [*call.arguments.values()][:2]
        now[:] = [(state.node_id, (request.round_index, request.attempt))]

    watch(ciphers.stream, note_stream)
    watch(Retry.answer, lambda _: now.clear(), begin=begin_answer)
    yield used
    stop_watching()


@dataclass(frozen=True)
class Watched:
    """A run with Flower's messages, and all replies."""

    federation: Federation
    result: Any
    replies: list[Message] = field(repr=False)
    streams: list[tuple[int, tuple[int, int], bytes]] = field(repr=False)

    @property
    def vectors(self) -> dict[tuple[int, int], dict[int, Words]]:
        """Masked vectors by (round, attempt) and sender."""
        return received_vectors(self.replies)


def require_unreadable(run: Watched) -> None:
    """Nothing that the server can add up or subtract, over clients, rounds and
    attempts, is a readable number.
    """
    tries: list[tuple[str, Words]] = []
    sums: list[tuple[tuple[int, int], Words]] = []
    by_place = sorted(run.vectors.items())
    blinded = trust_model(run.federation.plan.config.trust).blinded
    for place, vectors in by_place:
        tries += [(f"{place} of node {node}", words) for node, words in vectors.items()]
        total: Words = np.sum(list(vectors.values()), axis=0, dtype=np.uint64)
        sums.append((place, total))
        if blinded:
            tries.append((f"the sum of {place}", total))
    for (place, vectors), (other, others) in itertools.combinations(by_place, 2):
        for node in set(vectors) & set(others):
            tries.append(
                (
                    f"{other} less {place} of node {node}",
                    _less(others[node], vectors[node]),
                )
            )
    if blinded:
        for (place, total), (other, another) in itertools.combinations(sums, 2):
            tries.append(
                (f"the sum of {other} less that of {place}", _less(another, total))
            )
    for name, words in tries:
        assert count_readable(words) <= 1, f"{name} is readable"


def _less(one: Words, other: Words) -> Words:
    n = min(len(one), len(other))
    return np.asarray(one[:n] - other[:n])


def require_single_use(run: Watched) -> None:
    """No client adds one stream to two vectors."""
    assert run.streams
    places: dict[tuple[int, bytes], set[tuple[int, int]]] = {}
    for node, place, key in run.streams:
        places.setdefault((node, key), set()).add(place)
    twice = [
        (node, sorted(used)) for (node, _), used in places.items() if len(used) > 1
    ]
    assert not twice, f"one stream, several vectors: {twice[:3]}"


def different_parts() -> tuple[list[Array], list[Array]]:
    """As unlike as data can be: other rows, other numbers of rows, an empty client."""
    return grid_parts([150, 100, 50], 3, seed=1), [
        np.full((300, 3), 0.875),
        np.zeros((0, 3)),
        np.full((90, 3), -0.5),
    ]


def require_equal_replies(one: Watched, other: Watched) -> None:
    """Apart from words and keys of fixed lengths, runs on other data bring the server
    the very same replies.
    """
    # Which clients are key authors is drawn by lot, so who sent what is left out.
    shown, theirs = (sorted(map(_plain, run.replies), key=repr) for run in (one, other))
    assert len(shown) == len(theirs)
    for mine, another in zip(shown, theirs, strict=True):
        assert mine == another, f"replies tell data apart: {mine} and {another}"


def _plain(message: Message) -> dict[str, Any]:
    """All of a reply that is not random: headers, metrics, names and lengths."""
    assert not message.has_error()
    shown: dict[str, Any] = {}
    for name, config in message.content.config_records.items():
        for key, value in config.items():
            shown[f"{name}.{key}"] = len(value) if isinstance(value, bytes) else value
    for name, arrays in message.content.array_records.items():
        for key, array in arrays.items():
            shown[f"{name}.{key}"] = (tuple(array.shape), array.dtype)
    for name, metrics in message.content.metric_records.items():
        shown[name] = dict(metrics)
    return shown


@cache
def _numbers() -> re.Pattern[str]:
    return re.compile(
        r"\d+(\.\d+)? ?s\b|run \d+|\d{10,}|(plan|provenance) [0-9a-f]{16}"
    )


class Lines(logging.Handler):
    """What the server's program logs."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno == logging.WARNING:
            # What is warned of follows from noised releases, where the server may see
            # them.
            return
        # Time and the run's number differ anyway, and so do digests over them.
        self.lines.append(_numbers().sub("*", record.getMessage()))

    def __enter__(self) -> Lines:
        logger = logging.getLogger("flwr_dpkmeans.server")
        self._level = logger.level
        logger.setLevel(logging.INFO)
        logger.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logger = logging.getLogger("flwr_dpkmeans.server")
        logger.setLevel(self._level)
        logger.removeHandler(self)


def require_equal_lines(one: Sequence[str], other: Sequence[str]) -> None:
    """The server's log is the same whatever the rows are."""
    assert one
    assert len(one) == len(other)
    for mine, another in zip(one, other, strict=True):
        assert mine == another, (
            f"the server's log tells data apart: {mine!r} and {another!r}"
        )


def require_equal_metrics(one: Watched, other: Watched) -> None:
    """Every metric of the server's result is the same whatever the rows are.

    Released movements are left out.
    """

    def metrics(run: Watched) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name in (
            "train_metrics_clientapp",
            "evaluate_metrics_clientapp",
            "evaluate_metrics_serverapp",
        ):
            for index, record in getattr(run.result, name).items():
                found |= {
                    f"{name} {index} {key}": value
                    for key, value in dict(record).items()
                    if key != "movement"
                }
        return found

    mine, another = metrics(one), metrics(other)
    different = {
        key for key in mine.keys() | another.keys() if mine.get(key) != another.get(key)
    }
    assert mine
    assert not different, f"the server's metrics tell data apart: {sorted(different)}"


def tags_of(run: Watched) -> set[bytes]:
    """State tags that the server gets."""
    records = [
        reply.content.config_records[RECORD]
        for reply in run.replies
        if not reply.has_error()
    ]
    return {
        tag for record in records if isinstance(tag := record.get("tag"), bytes) and tag
    }


def require_keyed_tags(one: Watched, other: Watched) -> None:
    """Two runs of one number that end in the same states give other tags.

    No guess of a state can be tested.
    """
    assert tags_of(one)
    assert tags_of(one).isdisjoint(tags_of(other)), (
        "equal states have equal tags in two runs"
    )


def require_one_opening(
    ask: Callable[[tuple[int, ...]], object], survivors: Sequence[tuple[int, ...]]
) -> None:
    """A client that has opened an aggregation opens it no second time, for whatever
    survivors.
    """
    answered = []
    for named in survivors:
        try:
            ask(named)
            answered.append(named)
        except ProtocolError:
            continue
    assert len(answered) == 1, f"opened for {len(answered)} sets of survivors"
