"""Whole federations with every line of every logger caught, and searched for what
nobody may read in them.

What is planted and searched for: rows, private, pair, group, tag and stream keys, the
first words of masks, exact statistics, the server's noise; under ``oblivious`` also
released sums and centroids. Each in every spelling that a careless line could have:
decimal, hexadecimal, base64, raw bytes.
"""

from __future__ import annotations

import base64
import itertools
import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context
from numpy.typing import NDArray
from support import watching as recording
from support.messages import RECORD
from support.protocol_federation import Federation, Truth, grid_parts, make_federation
from support.watching import Call

from flwr_dpkmeans.errors import DataError, RefusalError
from flwr_dpkmeans.flower.client.node_config import show_node_logs
from flwr_dpkmeans.flower.client.wrapped import Wrapped
from flwr_dpkmeans.flower.kmeans_client import KMeansClient
from flwr_dpkmeans.flower.messages.client_memory import remember
from flwr_dpkmeans.flower.mod import SecureAggregation
from flwr_dpkmeans.log import LineFormatter, LogFormat
from flwr_dpkmeans.node import node_log
from flwr_dpkmeans.node.policy import ClientPolicy
from flwr_dpkmeans.secagg import ciphers, keys
from flwr_dpkmeans.sums.plan import FIRST_NODE_ID
from flwr_dpkmeans.sums.round import State

SIZES = (30, 40, 50, 60, 70, 80)
VICTIM = FIRST_NODE_ID + 1
TRUSTS = ("oblivious", "central", "distributed")
SHORTEST = 7
"""Spellings with fewer characters are found by chance."""


# -- what is searched for --------------------------------------------------------------


def spellings_of_bytes(secret: bytes) -> Iterator[str]:
    """Hexadecimal, base64 at each alignment, and as Python shows bytes."""
    start = secret[:24]
    if len(start) < 8 or len(set(start)) < 5:
        return
    yield start.hex()
    yield repr(start)[2:-1]
    for shift in range(3):
        # The characters that depend on these bytes alone, wherever they lie in what was
        # encoded.
        whole = base64.b64encode(bytes(shift) + start).decode().rstrip("=")
        yield whole[4 if shift else 0 : 4 * ((shift + len(start)) // 3)]


def spellings_of_number(value: float) -> Iterator[str]:
    """In full, and as NumPy and formats shorten it."""
    for text in (repr(float(value)), f"{value:.8f}".rstrip("0"), f"{value:.6g}"):
        if len(text.lstrip("-")) >= SHORTEST:
            yield text.lstrip("-")


def spellings_of_array(array: NDArray[Any]) -> Iterator[str]:
    """Each number, and the bytes of some."""
    flat = np.ravel(array)
    for value in flat[:40]:
        yield from (
            spellings_of_number(value)
            if flat.dtype.kind == "f"
            else spellings_of_word(int(value))
        )
    for row in range(0, min(len(flat), 40), 2):
        yield from spellings_of_bytes(
            np.ascontiguousarray(flat[row : row + 4]).tobytes()
        )


def spellings_of_word(value: int) -> Iterator[str]:
    """A word of the ring as it is, signed, and as the statistic that it is."""
    signed = int(np.uint64(value).view(np.int64)) if value >= 0 else value
    for text in (str(value), str(signed), f"{value:x}"):
        if len(text.lstrip("-")) >= SHORTEST:
            yield text.lstrip("-")
    yield from spellings_of_number(signed / 2.0**16)


# -- everything that is logged ---------------------------------------------------------


OF_LOGGING = set(vars(logging.makeLogRecord({}))) | {"message"}
SHOWN = {"msg", "args", "exc_text", "stack_info"}


class Catcher(logging.Handler):
    """Keeps every record as each rendering shows it, and with all its fields."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[tuple[int | None, str]] = []
        self._renderings = [
            LineFormatter(LogFormat.TEXT),
            LineFormatter(LogFormat.JSON),
            logging.Formatter(),
        ]

    def emit(self, record: logging.LogRecord) -> None:
        shown = [rendering.format(record) for rendering in self._renderings]
        # Without what logging itself adds: times and thread numbers have digits enough
        # to be anything.
        kept = {
            name: value
            for name, value in record.__dict__.items()
            if name in SHOWN or name not in OF_LOGGING
        }
        text = "\n".join([*shown, repr(kept), str(record.args)])
        self.lines.append((getattr(record, "node", None), text))


@dataclass
class Watch:
    """The log of a federation and what may not be in it."""

    catcher: Catcher
    console: pytest.CaptureFixture[str]
    truth: Truth
    printed: str = ""
    secrets: list[bytes] = field(default_factory=list)
    masks: list[NDArray[np.uint64]] = field(default_factory=list)
    clusters: list[State] = field(default_factory=list)

    def texts(self, *, server: bool = False) -> str:
        """All lines, or those of the server."""
        lines = [
            text for node, text in self.catcher.lines if not server or node is None
        ]
        self.printed += "".join(self.console.readouterr())
        return "\n".join(lines if server else [*lines, self.printed])

    def forbidden(self, federation: Federation, *, centroids: bool) -> dict[str, str]:
        """Every spelling of every secret, with what it is."""
        found: dict[str, str] = {}

        def add(what: str, spellings: Iterable[str]) -> None:
            found.update(dict.fromkeys(spellings, what))

        for client in federation.clients.values():
            add("a row", spellings_of_array(client.points))
        for secret in self.secrets:
            add("a key", spellings_of_bytes(secret))
        for mask in self.masks:
            add("a mask", spellings_of_array(mask[:4]))
        for of_attempt in (*self.truth.statistics.values(), *self.truth.sent.values()):
            for words in of_attempt.values():
                add("a statistic", spellings_of_array(words))
                add("a statistic", spellings_of_array(words.view(np.int64) / 2.0**16))
        for noise in self.truth.server_noise:
            add("the server's noise", spellings_of_array(noise))
        if centroids:
            for client in federation.clients.values():
                if client.cluster_centers_ is not None and client.counts_ is not None:
                    add("a centroid", spellings_of_array(client.cluster_centers_))
                    add("a count", spellings_of_array(client.counts_))
            for clusters in self.clusters:
                add("a centroid", spellings_of_array(clusters.centroids))
                add("a count", spellings_of_array(clusters.counts))
            for released in self.truth.released.values():
                add("a released sum", spellings_of_array(released))
        return found

    def leaks(self, federation: Federation, *, centroids: bool) -> list[str]:
        """What is found in the log that may not be."""
        return found_in(self.texts(), self.forbidden(federation, centroids=centroids))


def hidden_bytes(state: Any) -> list[bytes]:
    """Keys and other secrets of a protocol state."""
    found: list[bytes] = []
    waiting: list[Any] = [
        getattr(state, each.name) for each in fields(state) if not each.repr
    ]
    while waiting:
        value = waiting.pop()
        if isinstance(value, bytes):
            found += [value] if value else []
        elif isinstance(value, list | tuple):
            waiting += value
        elif isinstance(value, Mapping):
            waiting += value.values()
        elif is_dataclass(value):
            waiting += [getattr(value, each.name) for each in fields(value)]
    return found


def found_in(text: str, forbidden: dict[str, str]) -> list[str]:
    """What of it is in a text."""
    found = [secret for secret in forbidden if secret in text]
    short = [secret for secret in found if len(secret.replace(".", "").lstrip("0")) < 8]
    return [
        f"{forbidden[secret]}: {secret}"
        for secret in found
        if len(short) >= 3 or secret not in short
    ]


@pytest.fixture
def watch(truth: Truth, capfd: pytest.CaptureFixture[str]) -> Iterator[Watch]:
    """Catch all loggers, Flower's too, what is printed, all keys and masks."""
    watched = Watch(Catcher(), capfd, truth)
    names = ("", "flwr", "flwr_dpkmeans")
    before = [
        (logging.getLogger(name), logging.getLogger(name).level) for name in names
    ]
    for logger, _ in before:
        logger.setLevel(logging.DEBUG)
    handlers = [(logging.getLogger(name), watched.catcher) for name in ("", "flwr")]
    if logging.getLogger("flwr").propagate:
        handlers.pop()
    for logger, handler in handlers:
        logger.addHandler(handler)

    def remembered(call: Call) -> None:
        memory = call.arguments["memory"]
        watched.secrets += hidden_bytes(memory.party)
        # The start is public: it follows from the plan's seed.
        watched.clusters += (
            [memory.clusters]
            if memory.clusters is not None and memory.clusters.movements
            else []
        )

    recording.watch(remember, begin=remembered)
    recording.watch(
        ciphers.stream, lambda call: watched.masks.append(call.result.copy())
    )
    recording.watch(keys.derive_key, lambda call: watched.secrets.append(call.result))
    yield watched
    for logger, handler in handlers:
        logger.removeHandler(handler)
    for logger, level in before:
        logger.setLevel(level)


# -- the federation --------------------------------------------------------------------


class TalkativeClient(KMeansClient):
    """Fails once with its rows in the exception's text, cause and notes."""

    def __init__(self, points: Any, at_call: int, error: type[Exception]) -> None:
        super().__init__(points)
        self._left, self._error = at_call, error

    def fit(self, parameters: Any, config: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            rows = self.points
            try:
                raise KeyError(f"{rows[0]} {rows.tobytes()!r} {rows.tobytes().hex()}")
            except KeyError as error:
                raise self._error(f"cannot handle {rows.tolist()} {rows!r}") from error
        return super().fit(parameters, config)


def rows(seed: int = 5) -> list[NDArray[np.float64]]:
    """Rows on the run's grid with so many digits that none is found by chance."""
    return [
        np.rint(part * 2**16) / 2**16 for part in grid_parts_of_full_precision(seed)
    ]


def grid_parts_of_full_precision(seed: int) -> list[NDArray[np.float64]]:
    return [part + 0.321 / 1024 for part in grid_parts(SIZES, seed=seed)]


def run(
    watch: Watch, trust: str, *, talkative: bool = True, drop: bool = True,
    show_logs: Callable[[Context], None] | None = None, **values: Any,
) -> Federation:  # fmt: skip
    """A private count, a client that fails, one that is lost, an evaluation."""
    parts = rows()
    client = TalkativeClient(parts[VICTIM - FIRST_NODE_ID], 2, ValueError)
    federation = make_federation(
        parts,
        loaders={VICTIM: lambda _: client} if talkative else None,
        mod_of=lambda _, settings: SecureAggregation(settings, show_logs=show_logs),
    )
    federation.clients[VICTIM] = client if talkative else federation.clients[VICTIM]
    for number, own in enumerate(federation.clients.values()):
        own.labels = np.arange(len(own.points)) % (3 + number)
    if drop:
        lost = itertools.count()
        federation.faults.on_reply = lambda reply: (
            []
            if reply.metadata.src_node_id == FIRST_NODE_ID + 3 and next(lost) == 3
            else [reply]
        )
    defaults: dict[str, Any] = {
        "algorithm": "glloyd", "max_iter": 3, "n_examples": None, "epsilon": 8.0,
    }  # fmt: skip
    evaluation = {
        "evaluation": "private", "n_classes": 3, "max_retries": 2, "min_clients": 2,
        "max_silent": 2,
    }  # fmt: skip
    federation.start(trust=trust, **(defaults | evaluation | values))
    return federation


@pytest.mark.parametrize("trust", TRUSTS)
def test_a_whole_run_leaves_nothing_private_in_any_log(
    trust: str, watch: Watch
) -> None:
    federation = run(watch, trust)
    found = watch.forbidden(federation, centroids=trust == "oblivious")
    kinds = {
        "a row",
        "a key",
        "a mask",
        "a statistic",
        *(["the server's noise"] if trust != "distributed" else []),
    }
    assert kinds <= set(found.values())
    assert len(found) > 1000
    assert watch.leaks(federation, centroids=trust == "oblivious") == []
    text = watch.texts()
    # The error path, the retries and the details were all in it.
    assert re.search(
        r"cannot answer: ValueError at .*test_logs_hold_no_secrets.py:\d+ in fit, after"
        r" KeyError at",
        text,
    )
    assert "did not answer: attempt 1" in text
    assert "did not answer: attempt 2" in text
    assert "the statistic took" in text
    assert "bytes in" in text
    assert "labels of some rows" in text
    assert '"event": "gave"' in text


@pytest.mark.parametrize("trust", TRUSTS)
def test_sums_that_are_recovered(trust: str, watch: Watch) -> None:
    federation = run(watch, trust, drop=False, dropout="recover", max_silent=1)
    assert {"a key", "a mask", "a statistic"} <= set(
        watch.forbidden(federation, centroids=False).values()
    )
    assert watch.leaks(federation, centroids=trust == "oblivious") == []
    text = watch.texts()
    assert "shared the keys of this run" in text
    assert "sent no vector and are left out" in text


def test_the_default_algorithm_too(watch: Watch) -> None:
    federation = run(
        watch, "oblivious", algorithm="proxy_lloyd", n_examples=180, max_iter=None
    )
    assert watch.leaks(federation, centroids=True) == []


@pytest.mark.parametrize("error", [ValueError, DataError, MemoryError])
def test_a_client_that_fails_at_once(error: type[Exception], watch: Watch) -> None:
    """The server is told that something is wrong."""
    parts = rows()
    client = TalkativeClient(parts[0], 0, error)
    federation = make_federation(parts, loaders={FIRST_NODE_ID: lambda _: client})
    with pytest.raises(RefusalError):
        federation.start()
    federation.clients[FIRST_NODE_ID] = client
    found = watch.forbidden(federation, centroids=True)
    assert found_in(watch.texts(server=True), found) == []
    if error is not DataError:
        assert watch.leaks(federation, centroids=True) == []


def test_a_refusal(watch: Watch) -> None:
    federation = make_federation(rows(), policy=ClientPolicy(max_epsilon_per_run=0.5))
    with pytest.raises(RefusalError):
        federation.start(epsilon=2.0)
    assert watch.leaks(federation, centroids=True) == []
    refused = [
        text
        for node, text in watch.catcher.lines
        if "refused: " in text and node is not None
    ]
    assert len(refused) == len(SIZES)
    told = [
        text
        for node, text in watch.catcher.lines
        if "refused (RefusalError): " in text and node is None
    ]
    assert len(told) == len(SIZES)


def test_the_server_does_not_learn_what_a_client_has_spent(watch: Watch) -> None:
    """Budget and limit of the data set are in the client's own log only."""
    federation = run(
        watch, "central", talkative=False, drop=False, evaluation="none", n_classes=0
    )
    spent = [
        text for node, text in watch.catcher.lines if "was spent in other runs" in text
    ]
    assert len(spent) >= len(SIZES)
    server = watch.texts(server=True)
    assert "spent" not in server
    assert "data set" not in server
    assert federation.charges() > 0


def test_a_servers_text_is_one_line_of_a_clients_log(watch: Watch) -> None:
    federation = make_federation(rows())
    evil = "sum\n2026 INFO run 1: all good\x1b[2J" + "y" * 50_000

    def poison(message: Any) -> bool:
        header = json.loads(str(message.content.config_records[RECORD]["header"])) | {
            "stage": evil
        }
        message.content.config_records[RECORD]["header"] = json.dumps(header)
        return True

    federation.faults.on_request = poison
    with pytest.raises(Exception, match=r"clients answered the plan|refused"):
        federation.start()
    lines = [text for node, text in watch.catcher.lines if node is not None]
    assert lines
    for text in lines:
        rendered = text.split("\n")[0]
        assert rendered.isprintable()
        assert len(rendered) < 5000


# -- the search itself -----------------------------------------------------------------

LEAKS: dict[str, Callable[[Any, Any], object]] = {
    "a private key": lambda memory, _: memory.party.private_key,
    "a key in hexadecimal": lambda memory, _: memory.party.private_key.hex(),
    "a key in base64": lambda memory, _: base64.b64encode(
        b"\0" + memory.party.pair_keys[0][1]
    ),
    "a key in an argument": lambda memory, _: {"tag": memory.party.tag_key},
    "a statistic": lambda _, arrays: arrays[0],
    "its bytes": lambda _, arrays: arrays[0].tobytes().hex(),
    "a number of it": lambda _, arrays: f"{arrays[0].ravel()[0]:.6g}",
    "centroids": lambda memory, _: memory.clusters.centroids,
    "something printed": lambda _, arrays: print(arrays[0]),
    "the memory's record": lambda memory, _: vars(memory.party),
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("what", LEAKS)
def test_the_search_finds_what_is_planted(what: str, watch: Watch) -> None:
    """A careless line in the mod is found, whatever it says."""

    def careless(call: Call) -> None:
        if call.arguments["index"] == 2:
            leak = LEAKS[what](call.arguments["memory"], call.result)
            node_log.logger.debug("here is %s", leak)

    recording.watch(Wrapped.compute, careless)
    federation = run(
        watch, "oblivious", talkative=False, drop=False, max_iter=2, evaluation="none",
        n_classes=0,
    )  # fmt: skip
    assert watch.leaks(federation, centroids=True)


def test_a_nodes_files_hold_nothing_private(watch: Watch, tmp_path: Path) -> None:
    """Lines that a node writes because its own configuration says so."""
    package = logging.getLogger("flwr_dpkmeans")
    kept = list(package.handlers)
    show = show_node_logs

    def shown(context: Context) -> None:
        log_format = ("text", "json")[context.node_id % 2]
        context.node_config = {
            "log-file": str(tmp_path / f"{context.node_id}.log"),
            "verbose": True,
            "log-format": log_format,
        }
        show(context)

    federation = run(watch, "oblivious", show_logs=shown)
    for handler in [handler for handler in package.handlers if handler not in kept]:
        package.removeHandler(handler)
        handler.close()
    texts = [path.read_text() for path in tmp_path.iterdir()]
    assert len(texts) == len(SIZES)
    assert all("gave: count" in text for text in texts)
    found = watch.forbidden(federation, centroids=True)
    assert [found_in(text, found) for text in texts] == [[]] * len(SIZES)
