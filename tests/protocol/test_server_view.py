"""Of what the server receives and holds under ``oblivious`` it can read nothing."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType, ModuleType
from typing import Any

import numpy as np
import pytest
from flwr.app import Message
from scipy import stats
from support.crypto import no_blinding, replace_stream
from support.messages import (
    RECORD,
    VECTOR_RECORD,
    ServerRun,
    unpack_boxes,
    version_fields,
)
from support.protocol_federation import (
    Federation,
    Truth,
    Words,
    count_readable,
    grid_parts,
    make_federation,
    received_vectors,
    record_truth,
    small_config,
)

from flwr_dpkmeans.secagg import ciphers

SMALLEST_P = 1e-7
N_CLUSTERS, N_FEATURES = 6, 10
CONFIG: dict[str, Any] = {
    "n_clusters": N_CLUSTERS,
    "n_features": N_FEATURES,
    "n_examples": 1200,
    "max_iter": 8,
}


def uniform_parts(seed: int = 1) -> list[Any]:
    return grid_parts([300, 300, 300, 300], N_FEATURES, seed)


def constant_parts() -> list[Any]:
    """Every row in one corner: as unlike uniform rows as data can be."""
    return [np.full((300, N_FEATURES), 0.875)] * 4


def run_on(parts: Sequence[Any], **values: Any) -> Federation:
    federation = make_federation(parts)
    federation.start(small_config(**(CONFIG | values)))
    return federation


# -- (a) uniform and independent of the data -------------------------------------------


def uniformity(words: Words) -> dict[str, float]:
    """p-values of simple tests of uniform, independent 64-bit words."""
    octets = np.bincount(np.ascontiguousarray(words).view(np.uint8), minlength=256)
    bits = (
        np.unpackbits(np.ascontiguousarray(words).view(np.uint8))
        .reshape(len(words), 64)
        .sum(axis=0)
    )
    top = np.bincount((words >> np.uint64(60)).astype(int), minlength=16)
    unit = words.astype(np.float64) / 2.0**64
    return {
        "bytes": float(stats.chisquare(octets).pvalue),
        "top bits": float(stats.chisquare(top).pvalue),
        "each bit": float(
            64 * min(stats.binomtest(int(b), len(words)).pvalue for b in bits)
        ),
        "order": float(stats.kstest(unit, "uniform").pvalue),
        "neighbours": float(stats.pearsonr(unit[:-1], unit[1:]).pvalue),
    }


def require_uniform(words: Words, what: str) -> None:
    for test, p in uniformity(words).items():
        assert p > SMALLEST_P, f"{what}: {test} p = {p:.3g}"


def views(federation: Federation) -> dict[str, Words]:
    """What the server can compute from what it received."""
    by_round = received_vectors(federation.grid.received)
    # Of each round: (clients, entries). Rounds may differ in length, and are compared
    # as far as both reach.
    rounds = [
        np.stack([vectors[node] for node in sorted(vectors)])
        for _, vectors in sorted(by_round.items())
    ]
    sums = [vectors.sum(axis=0, dtype=np.uint64) for vectors in rounds]

    def differences(arrays: Sequence[Words]) -> Words:
        pairs = [
            (one, other, min(one.shape[-1], other.shape[-1]))
            for one, other in itertools.pairwise(arrays)
        ]
        return np.concatenate(
            [
                (other[..., :both] - one[..., :both]).ravel()
                for one, other, both in pairs
            ]
        )

    return {
        "single vectors": np.concatenate([vectors.ravel() for vectors in rounds]),
        "sums over clients": np.concatenate(sums),
        "sums over half of the clients": np.concatenate(
            [v[:2].sum(axis=0, dtype=np.uint64) for v in rounds]
        ),
        "differences between rounds": differences(rounds),
        "differences between clients": np.concatenate(
            [(v[1:] - v[:-1]).ravel() for v in rounds]
        ),
        "differences of sums": differences(sums),
    }


def require_indistinguishable(one: Federation, other: Federation) -> None:
    """Two-sample tests on everything the server can compute in two runs."""
    theirs = views(other)
    for name, words in views(one).items():
        require_uniform(words, name)
        p = float(
            stats.ks_2samp(
                words.astype(np.float64), theirs[name].astype(np.float64)
            ).pvalue
        )
        assert p > SMALLEST_P, f"{name}: the runs differ, p = {p:.3g}"


@pytest.mark.parametrize("algorithm", ["proxy_lloyd", "fastlloyd"])
def test_runs_on_very_different_data_are_indistinguishable(algorithm: str) -> None:
    one, other = (
        run_on(parts, algorithm=algorithm)
        for parts in (uniform_parts(), constant_parts())
    )
    require_indistinguishable(one, other)


def test_received_words_are_unrelated_to_the_statistics(truth: Truth) -> None:
    federation = run_on(uniform_parts())
    for key, vectors in received_vectors(federation.grid.received).items():
        for node, words in vectors.items():
            exact = truth.statistics[key][node].view(np.int64).astype(np.float64)
            masked = words.astype(np.float64)
            assert stats.spearmanr(exact, masked).pvalue > SMALLEST_P
            assert stats.pearsonr(exact, masked).pvalue > SMALLEST_P


# -- (b) no word equals a true or noised statistic -------------------------------------


def server_words(
    federation: Federation, noise: Sequence[Words] = ()
) -> Iterator[tuple[str, Words]]:
    """Every subset sum of vectors that it can make, with and without its noise."""
    by_round = received_vectors(federation.grid.received)
    for position, (key, vectors) in enumerate(sorted(by_round.items())):
        for size in range(1, len(vectors) + 1):
            for nodes in itertools.combinations(sorted(vectors), size):
                total = np.sum(
                    [vectors[node] for node in nodes], axis=0, dtype=np.uint64
                )
                yield f"round {key}, nodes {nodes}", total
                if position < len(noise):
                    yield (
                        f"round {key}, nodes {nodes}, plus noise",
                        total + noise[position],
                    )
                    yield (
                        f"round {key}, nodes {nodes}, minus noise",
                        total - noise[position],
                    )


def true_words(truth: Truth) -> set[int]:
    """Every exact statistic, subset sum and noised sum, entry by entry."""
    values: set[int] = set()
    for position, (_, statistics) in enumerate(sorted(truth.statistics.items())):
        for size in range(1, len(statistics) + 1):
            for nodes in itertools.combinations(sorted(statistics), size):
                total = np.sum(
                    [statistics[node] for node in nodes], axis=0, dtype=np.uint64
                )
                values.update(total.tolist())
                if position < len(truth.server_noise):
                    values.update((total + truth.server_noise[position]).tolist())
    for released in truth.released.values():
        values.update(released.tolist())
    return values


def require_no_true_word(federation: Federation, truth: Truth) -> None:
    forbidden = true_words(truth)
    for name, words in server_words(federation, truth.server_noise):
        assert forbidden.isdisjoint(words.tolist()), (
            f"{name} holds a true or noised statistic"
        )
        assert count_readable(words) <= 1, f"{name} is readable"


def windows(blob: bytes) -> set[int]:
    """Every 8 consecutive bytes, as an integer in either byte order."""
    return {
        int.from_bytes(blob[i : i + 8], order)
        for i in range(len(blob) - 7)
        for order in ("little", "big")  # type: ignore[misc]
    }


def test_no_received_word_equals_a_true_or_noised_statistic(truth: Truth) -> None:
    federation = run_on(uniform_parts())
    assert len(truth.server_noise) == federation.plan.last_round
    # The recorded truth is the truth: what clients released is the exact sum plus the
    # server's noise.
    for index, noise in enumerate(truth.server_noise, start=1):
        assert np.array_equal(
            truth.released[index], truth.exact_sum((index, 0)) + noise
        )
    require_no_true_word(federation, truth)


def test_no_blob_holds_a_true_or_noised_statistic(truth: Truth) -> None:
    federation = run_on(uniform_parts())
    integers = true_words(truth)
    floats = np.array(sorted(integers), dtype=np.uint64).view(np.int64) / 2.0**16
    forbidden = integers | set(np.unique(floats).view(np.uint64).tolist())
    n_blobs = 0
    for message in federation.grid.received:
        for name, value in message.content.config_records[RECORD].items():
            blobs = (
                unpack_boxes(value).values()
                if name == "boxes"
                else [value]
                if isinstance(value, bytes)
                else []
            )
            for blob in blobs:
                n_blobs += 1
                assert forbidden.isdisjoint(windows(blob)), (
                    f"{name} of a reply holds a true or noised statistic"
                )
    assert n_blobs > 4 * federation.plan.last_round


# -- (c) the sum never appears in server memory ----------------------------------------


def arrays_below(
    root: object, seen: set[int] | None = None
) -> Iterator[np.ndarray[Any, Any]]:
    """All numpy arrays, and bytes as words, that an object reaches."""
    seen = set() if seen is None else seen
    stack = [root]
    while stack:
        item = stack.pop()
        if id(item) in seen or isinstance(
            item, (str, int, float, type, ModuleType, FrameType)
        ):
            continue
        seen.add(id(item))
        if isinstance(item, np.ndarray):
            yield item
        elif isinstance(item, bytes | bytearray):
            yield np.frombuffer(bytes(item[: len(item) // 8 * 8]), dtype=np.uint64)
        elif isinstance(item, Mapping):
            stack += [*item.keys(), *item.values()]
        elif isinstance(item, list | tuple | set | frozenset):
            stack += item
        else:
            stack += list(getattr(item, "__dict__", {}).values())
            stack += [
                getattr(item, slot)
                for slot in getattr(type(item), "__slots__", ())
                if hasattr(item, slot)
            ]
            stack += [
                cell.cell_contents for cell in getattr(item, "__closure__", None) or ()
            ]


class MemoryChecker:
    """Looks for sums in the server's objects and in its functions' variables."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._known: tuple[int, int] = (0, 0)
        self._forbidden: dict[bytes, list[Words]] = {}
        self.n_arrays = 0
        self.found: list[str] = []

    def forbidden(self) -> dict[bytes, list[Words]]:
        """Plain and noised sums so far, by three entries at either end."""
        known = (
            sum(map(len, self._truth.statistics.values())),
            len(self._truth.server_noise),
        )
        if known != self._known:
            self._known, self._forbidden = known, {}
            for words in self._sums():
                for ends in (words[:3], words[-3:]):
                    self._forbidden.setdefault(ends.tobytes(), []).append(words)
        return self._forbidden

    def _sums(self) -> list[Words]:
        sums = [self._truth.exact_sum(key) for key in self._truth.statistics]
        noises = self._truth.server_noise
        noised = [
            total + noise
            for total in sums
            for noise in noises
            if total.shape == noise.shape
        ]
        return [
            *sums,
            *noised,
            *(
                v
                for statistics in self._truth.statistics.values()
                for v in statistics.values()
            ),
        ]

    def check(self, root: object, place: str) -> None:
        """Walk from one object."""
        forbidden = self.forbidden()
        for array in arrays_below(root):
            self.n_arrays += 1
            if self._equals(array, forbidden):
                self.found.append(place)

    @staticmethod
    def _equals(
        array: np.ndarray[Any, Any], forbidden: dict[bytes, list[Words]]
    ) -> bool:
        """Whether an array holds a vector, or an end of it, as words or numbers."""
        flat = np.ravel(array)
        # Zeros alone, as those of the first centroids, equal the empty bins at a
        # histogram's end.
        if flat.dtype.kind not in "uif" or flat.size <= 2 or not flat.any():
            return False
        with np.errstate(invalid="ignore", over="ignore"):
            candidates = [flat] if flat.dtype.kind in "ui" else [flat * 2.0**16, flat]
            ends = [
                (one, np.r_[one[:3], one[-3:]].astype(np.int64)) for one in candidates
            ]
        return any(
            np.array_equal(one, part.view(np.int64)) or np.array_equal(one, part)
            for one, six in ends
            for half in (six[:3], six[3:])
            for words in forbidden.get(half.tobytes(), ())
            if flat.size <= words.size
            for part in (words[: flat.size], words[words.size - flat.size :])
        )

    def watch(self, call: Callable[[], Any]) -> Any:
        """Call a server function and look at every variable and value below it."""

        def profile(frame: FrameType, event: str, result: Any) -> None:
            if event == "return" and "flwr_dpkmeans" in frame.f_code.co_filename:
                sys.setprofile(None)
                self.check(
                    [list(frame.f_locals.values()), result], frame.f_code.co_qualname
                )
                sys.setprofile(profile)

        before = sys.getprofile()
        sys.setprofile(profile)
        try:
            return call()
        finally:
            sys.setprofile(before)


def conduct(federation: Federation, checker: MemoryChecker, **values: Any) -> ServerRun:
    """Run the protocol step by step and look into the server at each step."""
    grid = federation.grid
    config = small_config(
        **({"n_examples": 1200, "n_features": 3, "max_iter": 3} | values)
    )
    run = ServerRun(
        config, run_id=grid.run.run_id, seed=11, node_ids=grid.get_node_ids()
    )
    with grid.running():
        run.take_keys(grid.send_and_receive(run.keys_messages()))
        for index in range(run.plan.first_round, 99):
            run.open_round(index)
            step = None
            while step is None:
                replies = grid.send_and_receive(checker.watch(run.sum_messages))
                checker.check(run, f"server before round {index}")
                step = checker.watch(lambda replies=replies: run.take_sums(replies))
                checker.check(run, f"server after round {index}")
            if run.plan.is_final and index == run.plan.last_round:
                break
        replies = grid.send_and_receive(checker.watch(run.finish_messages))
        checker.watch(lambda: run.take_finish(replies))
        checker.check(run, "server at the end")
    return run


@pytest.mark.parametrize("algorithm", ["proxy_lloyd", "fastlloyd", "sulloyd"])
def test_no_sum_appears_in_server_memory(truth: Truth, algorithm: str) -> None:
    checker = MemoryChecker(truth)
    federation = make_federation(grid_parts([300] * 4, 3))
    run = conduct(federation, checker, algorithm=algorithm)
    assert checker.found == []
    assert checker.n_arrays > 100
    assert run.clusters is None
    client = federation.clients[2]
    assert client.cluster_centers_ is not None


def test_no_sum_appears_in_server_memory_after_a_dropout(truth: Truth) -> None:
    checker = MemoryChecker(truth)
    federation = make_federation(grid_parts([300] * 4, 3))
    federation.faults.on_reply = lambda reply: [] if _answers(reply, 2, 4) else [reply]
    run = conduct(federation, checker)
    later = [(index, 1) for index in range(3, run.plan.last_round + 1)]
    assert sorted(truth.statistics) == [(1, 0), (2, 0), (2, 1), *later]
    assert checker.found == []


def test_private_count_is_the_only_public_release(truth: Truth) -> None:
    """Without N, the noised count becomes public."""
    checker = MemoryChecker(truth)
    federation = make_federation(grid_parts([300] * 4, 3))
    run = conduct(federation, checker, n_examples=None)
    assert run.plan.count is not None
    assert checker.found == []
    exact = int(truth.exact_sum((0, 0)).view(np.int64)[0])
    assert exact == 1200 * 2**16
    assert all(
        exact not in np.ravel(array).tolist()
        for array in arrays_below(run)
        if array.dtype.kind in "ui"
    )


def _answers(reply: Message, round_index: int, node: int) -> bool:
    vectors = received_vectors([reply])
    return reply.metadata.src_node_id == node and any(
        key[0] == round_index for key in vectors
    )


# -- (d) replies carry the allowed fields and nothing else -----------------------------

ALLOWED = {
    "keys": ({RECORD}, {"header", "public_key", "plan_digest"},
             {"status", "n_features", *version_fields()}),
    "sum": ({RECORD, VECTOR_RECORD}, {"header", "tag"}, {"status", "round", "attempt"}),
    "first sum of an author": ({RECORD, VECTOR_RECORD}, {"header", "tag", "boxes"},
                               {"status", "round", "attempt"}),
    "finish": ({RECORD}, {"header", "tag"}, {"status"}),
}  # fmt: skip


def shape_of(message: Message) -> tuple[set[str], set[str], set[str]]:
    """Names of records, of config keys and of header keys."""
    assert not message.has_error()
    record = message.content.config_records[RECORD]
    return set(message.content), set(record), set(json.loads(str(record["header"])))


@pytest.mark.parametrize("trust", ["oblivious", "central", "distributed"])
@pytest.mark.parametrize("n_examples", [300, None])
def test_replies_carry_only_allowed_fields(trust: str, n_examples: int | None) -> None:
    federation = make_federation(grid_parts([150, 0, 150]))
    federation.start(trust=trust, n_examples=n_examples, epsilon=3.0)
    seen = set()
    sizes: dict[str, set[int]] = {}
    for message in federation.grid.received:
        shape = shape_of(message)
        kinds = [kind for kind, allowed in ALLOWED.items() if allowed == shape]
        assert kinds, f"a reply has the fields {shape}"
        seen.add(kinds[0])
        assert len(message.content.metric_records) == 0
        record = message.content.config_records[RECORD]
        header = json.loads(str(record["header"]))
        assert header["status"] == "ok"
        assert all(isinstance(value, int | str) for value in header.values())
        # The round's public number may have one digit or two.
        sizes.setdefault(kinds[0], set()).add(
            len(str(record["header"])) - len(str(header.get("round", "")))
        )
        for arrays in message.content.array_records.values():
            assert list(arrays) == ["vector"]
    expected = (
        set(ALLOWED)
        if trust == "oblivious"
        else set(ALLOWED) - {"first sum of an author"}
    )
    assert seen == expected
    # The empty client's replies look like everybody else's.
    assert all(len(lengths) == 1 for lengths in sizes.values()), sizes


def test_state_tags_are_keyed_under_oblivious() -> None:
    """Equal states give other tags in another run."""
    tags = []
    for _ in range(2):
        federation = make_federation(grid_parts([150, 150]))
        federation.start(algorithm="lloyd", max_iter=2)
        records = [
            m.content.config_records[RECORD]
            for m in federation.grid.received
            if not m.has_error()
        ]
        tags.append({bytes(r["tag"]) for r in records if r.get("tag")})
    assert len(tags[0]) == 2  # one for each release: all clients agree
    assert tags[0].isdisjoint(tags[1])


# -- (e) the checkers fire when the protection is taken away ---------------------------


def without_pair_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_stream(
        monkeypatch, lambda key, asked, length: np.zeros(length, dtype=np.uint64)
    )


def with_one_stream_for_all_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = ciphers.stream
    replace_stream(
        monkeypatch, lambda key, asked, length: honest(key, (0, asked[1]), length)
    )


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "sabotage",
    [no_blinding, without_pair_masks, with_one_stream_for_all_rounds],
)
def test_the_uniformity_checker_fires(
    monkeypatch: pytest.MonkeyPatch, sabotage: Callable[..., None]
) -> None:
    sabotage(monkeypatch)
    with pytest.raises(AssertionError, match=r"p = 0|p = .*e-"):
        require_indistinguishable(run_on(uniform_parts()), run_on(constant_parts()))


@pytest.mark.parametrize("sabotage", [no_blinding, without_pair_masks])
def test_the_word_checker_fires(
    monkeypatch: pytest.MonkeyPatch, sabotage: Callable[..., None]
) -> None:
    sabotage(monkeypatch)
    truth = record_truth()
    federation = run_on(uniform_parts())
    with pytest.raises(AssertionError, match=r"statistic|readable"):
        require_no_true_word(federation, truth)


@pytest.mark.parametrize("sabotage", [no_blinding, without_pair_masks])
def test_the_memory_checker_fires(
    monkeypatch: pytest.MonkeyPatch, sabotage: Callable[..., None]
) -> None:
    sabotage(monkeypatch)
    truth = record_truth()
    checker = MemoryChecker(truth)
    conduct(make_federation(grid_parts([300] * 4, 3)), checker)
    assert any("RetrySession.aggregate" in place for place in checker.found)
    assert any("server after round" in place for place in checker.found)


@pytest.mark.nightly
def test_the_memory_checker_fires_under_central(truth: Truth) -> None:
    """There the server is trusted with sums, so the checker must find them."""
    checker = MemoryChecker(truth)
    conduct(make_federation(grid_parts([300] * 4, 3)), checker, trust="central")
    assert any("RetrySession.aggregate" in place for place in checker.found)
