"""Lines of the log: their place, the two renderings, what other parties' text can do to
them, what reprs show.
"""

from __future__ import annotations

import ast
import contextvars
import importlib
import inspect
import io
import json
import logging
import math
import os
import pkgutil
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import house
import numpy as np
import pytest
from flwr.app import Context, RecordDict
from support.engines import join_ray
from support.machine import type_command
from support.messages import stage_of
from support.protocol_federation import grid_parts, make_federation

import flwr_dpkmeans
from flwr_dpkmeans.errors import CohortError, ConfigurationError
from flwr_dpkmeans.flower.client import node_config as flower_node
from flwr_dpkmeans.flower.kmeans_client import KMeansClient
from flwr_dpkmeans.flower.messages.client_memory import recall
from flwr_dpkmeans.flower.progress import Progress
from flwr_dpkmeans.flower.server_app import ended_by
from flwr_dpkmeans.flower.strategies.run_log import round_trips_left
from flwr_dpkmeans.log import (
    LONGEST_LINE,
    LineFormatter,
    LogFormat,
    LogOptions,
    Place,
    event,
    name_nodes,
    named,
    placed,
    placed_logger,
    printable,
    set_log_place,
    show_logs,
    where_raised,
)
from flwr_dpkmeans.node.guard import NodeGuard
from flwr_dpkmeans.node.identity import Identity
from flwr_dpkmeans.node.ledger import MemoryLedger
from flwr_dpkmeans.node.node_log import logger
from flwr_dpkmeans.node.node_settings import NodeSettings
from flwr_dpkmeans.node.policy import ClientPolicy
from flwr_dpkmeans.secagg.messages import Stage
from flwr_dpkmeans.sums.plan import FIRST_NODE_ID

PACKAGE = logging.getLogger("flwr_dpkmeans")
SECRET = "4711.25"


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    """Leave the package's logger as it was."""
    before = (PACKAGE.level, PACKAGE.propagate, list(PACKAGE.handlers))
    of_all = list(logging.root.handlers)
    yield
    logging.root.handlers[:] = of_all
    for handler in PACKAGE.handlers:
        if handler not in before[2]:
            handler.close()
    PACKAGE.setLevel(before[0])
    PACKAGE.propagate, PACKAGE.handlers[:] = before[1], before[2]


def alone() -> io.StringIO:
    """A program that has set up no logging of its own, and its standard output."""
    logging.root.handlers[:] = []
    PACKAGE.handlers[:] = []
    return io.StringIO()


def node_context(**config: Any) -> Context:
    return Context(
        run_id=5, node_id=7, node_config=config, state=RecordDict(), run_config={}
    )


# -- the place -------------------------------------------------------------------------


def test_every_line_says_where_in_the_run_it_belongs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Server and clients, DEBUG lines too."""
    federation = make_federation(grid_parts((20, 20, 20)))
    with caplog.at_level(logging.DEBUG, "flwr_dpkmeans"):
        federation.start(algorithm="lloyd", max_iter=2)
    records: list[Any] = [
        record for record in caplog.records if record.name.startswith("flwr_dpkmeans")
    ]
    assert {record.run for record in records} == {federation.grid.run.run_id}
    by_side = {
        side: [r for r in records if (r.node is None) is (side == "server")]
        for side in ("server", "client")
    }
    assert {record.name for record in by_side["server"]} == {"flwr_dpkmeans.server"}
    assert {record.node for record in by_side["client"]} == set(federation.clients)
    for side, lines in by_side.items():
        assert {(line.round, line.attempt) for line in lines} == {
            (None, None),
            (1, 0),
            (2, 0),
        }, side


@pytest.mark.parametrize(
    "program", ["/opt/flower/bin/flwr-clientapp", "guarded flwr-clientapp", "notebook"]
)
def test_a_node_without_a_guard_is_warned_in_every_run(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    type_command(monkeypatch, [program, "--token", "x"])
    make_federation(grid_parts((20, 20))).start(algorithm="lloyd", max_iter=1)
    lines = [
        record.getMessage()
        for record in caplog.records
        if "runs whatever app" in record.getMessage()
    ]
    assert len(lines) == (2 if program.startswith("/") else 0)


def test_a_place_ends_with_its_block_even_when_it_raises(
    caplog: pytest.LogCaptureFixture,
) -> None:
    logger = placed_logger("flwr_dpkmeans.test")
    with (  # noqa: PT012
        pytest.raises(ValueError, match="x"),
        placed(Place(run=1, node=2)),
    ):
        set_log_place(3, 4)
        with placed(Place(run=9)):
            set_log_place(8, 0)
        logger.warning("inside")
        raise ValueError("x")
    logger.warning("outside")
    places = [
        [getattr(record, name) for name in ("run", "node", "round", "attempt")]
        for record in caplog.records
    ]
    assert places == [[1, 2, 3, 4], [None] * 4]


def test_every_logger_of_the_package_is_placed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No module makes a logger by itself: it may be called inside of a run."""
    root = Path(inspect.getfile(flwr_dpkmeans)).parent
    names = set()
    for path in root.rglob("*.py"):
        calls = [node for node in house.pieces_of(path) if isinstance(node, ast.Call)]
        made = {house.dotted(call.func) for call in calls}
        assert path.parent.name == "log" or not any(
            name.endswith("getLogger") for name in made
        ), path
        module = ".".join(path.relative_to(root.parent).with_suffix("").parts)
        given = [
            ast.unparse(call.args[0])
            for call in calls
            if house.dotted(call.func) == "placed_logger"
        ]
        if given:
            importlib.import_module(module)
        names |= {
            module if one == "__name__" else ast.literal_eval(one) for one in given
        }
    assert {
        "flwr_dpkmeans.server",
        "flwr_dpkmeans.mod",
        "flwr_dpkmeans.data",
        "flwr_dpkmeans.node.ledger",
    } <= names
    for name in names:
        with placed(Place(run=6)):
            logging.getLogger(name).warning("here")
        assert getattr(caplog.records[-1], "run", None) == 6, name


# -- the renderings --------------------------------------------------------------------


def record_of(
    message: str, *args: object, level: int = logging.INFO, node: int | None = None,
    **extra: Any,
) -> Any:  # fmt: skip
    with placed(Place(run=12, node=node)):
        set_log_place(2, 1)
        logger = logging.getLogger("flwr_dpkmeans.server")
        record = logger.makeRecord(
            logger.name, level, "file", 1, message, args, None, extra=extra
        )
        LineFormatter().format(record)
    return record


def test_text_lines() -> None:
    text = LineFormatter()
    assert text.format(record_of("round 2/5; %d clients", 3)) == "round 2/5; 3 clients"
    assert (
        text.format(record_of("gone", level=logging.WARNING))
        == "run 12 round 2 attempt 1: gone"
    )
    assert (
        text.format(record_of("gave", node=7))
        == "run 12 node 7 round 2 attempt 1: gave"
    )
    timed = LineFormatter(timed=True).format(record_of("gave", node=7))
    assert re.fullmatch(
        r"20\d\d-\d\d-\d\dT[\d:.]+\+00:00 INFO run 12 node 7 round 2 attempt 1: gave",
        timed,
    )


def test_json_lines() -> None:
    line = LineFormatter(LogFormat.JSON).format(
        record_of("gave", node=7, **event("gave", epsilon=0.5, path=Path("a")))
    )
    found = json.loads(line)
    assert found.pop("time").endswith("+00:00")
    assert found == {
        "level": "INFO", "logger": "flwr_dpkmeans.server", "run": "12", "node": "7",
        "round": 2, "attempt": 1, "event": "gave", "epsilon": 0.5, "path": "a",
        "message": "gave",
    }  # fmt: skip


EVIL = (
    "fine\n2026 INFO run 1: all good\r\x1b[2J\u2028\u202eli\x00\ud800" + "x" * 100_000
)


@pytest.mark.parametrize("log_format", LogFormat)
def test_no_text_makes_a_second_line_or_moves_the_cursor(log_format: LogFormat) -> None:
    line = LineFormatter(log_format).format(
        record_of("node %d: %s", 3, EVIL, level=logging.WARNING)
    )
    assert line.isprintable()
    assert len(line.splitlines()) == 1
    assert len(line) < LONGEST_LINE + 300
    assert "fine?2026 INFO" in line
    line.encode()


def test_printable() -> None:
    assert printable("a\tb\x7f", 10) == "a?b?"
    assert printable("abcdef", 3) == "abc..."
    assert printable("abc", 3) == "abc"
    assert printable(ValueError("x")) == "x"


# -- exceptions ------------------------------------------------------------------------


def raised() -> Exception:
    try:
        try:
            raise KeyError(SECRET)
        except KeyError as error:
            raise ValueError(f"row {SECRET}") from error
    except ValueError as error:
        return error


def outer() -> Exception:
    def raising() -> None:
        raise ValueError(SECRET)

    try:
        raising()
    except ValueError as error:
        return error
    raise AssertionError


def test_an_exception_is_told_by_kind_and_place() -> None:
    told = where_raised(raised())
    pattern = (
        r"ValueError at test_logs.py:\d+ in raised, after KeyError at test_logs.py:\d+"
        r" in raised"
    )
    assert re.fullmatch(pattern, told)
    assert SECRET not in where_raised(raised(), verbose=True)
    assert where_raised(ValueError(SECRET)) == "ValueError at an unknown place"
    hidden, shown = ValueError(SECRET), ValueError(SECRET)
    hidden.__context__ = shown.__context__ = KeyError(SECRET)
    hidden.__suppress_context__ = True  # as `from None` does
    assert where_raised(hidden) == "ValueError at an unknown place"
    assert (
        where_raised(shown)
        == "ValueError at an unknown place, after KeyError at an unknown place"
    )
    found = re.fullmatch(
        r"ValueError at (.*) in outer > (.*) in raising",
        where_raised(outer(), verbose=True),
    )
    assert found is not None
    assert where_raised(outer()) == f"ValueError at {found[2]} in raising"
    circle, other = ValueError("a"), ValueError("b")
    circle.__cause__, other.__cause__ = other, circle
    assert where_raised(circle).count("ValueError") == 2


@pytest.mark.parametrize("log_format", LogFormat)
def test_no_rendering_writes_an_exceptions_text(log_format: LogFormat) -> None:
    error = raised()
    record = record_of("stopped", level=logging.ERROR)
    record.exc_info = (type(error), error, error.__traceback__)
    line = LineFormatter(log_format).format(record)
    assert "ValueError at test_logs.py" in line
    record.exc_info = (ValueError, ValueError(SECRET), None)
    assert "stopped (ValueError at an unknown place)" in LineFormatter(
        log_format
    ).format(record)
    assert SECRET not in line


# -- options ---------------------------------------------------------------------------


def test_the_servers_options_come_from_the_run_configuration() -> None:
    assert LogOptions.of({}) == LogOptions()
    assert LogOptions.of({"log-format": "json", "verbose": True}) == LogOptions(
        LogFormat.JSON, True
    )
    # A server has no say in where anything is written, its own machine included.
    assert LogOptions.of({"log-file": "/etc/passwd"}).file is None


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"log-format": "jsn"},
         "log-format is 'jsn', which is not known: did you mean 'json'?"),
        ({"verbose": "yes"},
         "verbose is 'yes', but it must be true or false: correct it."),
    ],
)  # fmt: skip
def test_options_that_are_not_known_are_one_sentence(
    values: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        LogOptions.of(values)
    assert str(caught.value) == sentence


def test_lines_are_shown_once_and_verbose_ones_only_if_asked_for() -> None:
    out = alone()
    logger = placed_logger("flwr_dpkmeans.server")
    show_logs(stream=out)
    show_logs(stream=out)
    logger.info("said")
    logger.debug("details")
    show_logs(LogOptions(verbose=True), stream=out)
    logger.debug("more")
    assert out.getvalue().splitlines() == ["said", "more"]
    assert PACKAGE.propagate is False


def test_a_program_with_logging_of_its_own_keeps_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    PACKAGE.handlers[:] = []
    show_logs()
    assert PACKAGE.handlers == []
    assert PACKAGE.propagate
    assert capsys.readouterr().out == ""


def test_a_nodes_log_follows_the_nodes_own_configuration(tmp_path: Path) -> None:
    alone()
    path = tmp_path / "node.log"
    context = node_context(
        **{"log-file": str(path), "log-format": "json", "verbose": True}
    )
    context.run_config = {
        "log-file": str(tmp_path / "servers-wish"),
        "verbose": False,
        "log-format": "text",
    }
    flower_node.show_node_logs(context)
    logger.debug("details")
    flower_node.show_node_logs(node_context(**{"log-file": str(path)}))
    logger.debug("left out")
    logger.info("appended")
    first, second = path.read_text().splitlines()
    assert json.loads(first)["message"] == "details"
    assert second.endswith("INFO appended")
    assert [file.name for file in tmp_path.iterdir()] == ["node.log"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_log_file_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    alone()
    with pytest.raises(ConfigurationError, match=r"the log file .* cannot be written"):
        flower_node.show_node_logs(
            node_context(**{"log-file": str(tmp_path / "absent" / "node.log")})
        )


def test_virtual_clients_leave_logging_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    alone()
    join_ray(monkeypatch)
    flower_node.show_node_logs(node_context(**{"verbose": True, "partition-id": 0}))
    assert PACKAGE.handlers == []


# -- progress --------------------------------------------------------------------------


def test_progress_counts_round_trips_and_expects_the_rest_to_take_as_long() -> None:
    now = [100.0]
    progress = Progress(clock=lambda: now[0])
    now[0] += 6.0
    assert (
        progress.describe(3) == "round trip 0 of 3, 6 s so far, about 18 s to go"
    )  # at least one is counted as done
    progress.n_done += 1
    assert progress.describe(None) == "1 round trips done, 6 s so far"
    now[0] += 8.0
    progress.n_done += 1
    assert progress.describe(5) == "round trip 2 of 7, 14 s so far, about 35 s to go"


def test_a_run_says_how_far_it_is_and_how_it_ended(
    caplog: pytest.LogCaptureFixture,
) -> None:
    federation = make_federation(grid_parts((20, 20, 20)))
    with caplog.at_level(logging.INFO, "flwr_dpkmeans"):
        federation.start(algorithm="glloyd", max_iter=2, epsilon=2.0)
    assert round_trips_left(federation.plan, None) == 3
    lines = [
        record.getMessage()
        for record in caplog.records
        if record.name == "flwr_dpkmeans.server"
    ]
    assert (
        lines[0] == f"run {federation.plan.run_id} starts with 3 clients: nodes 2, 3, 4"
    )
    trips = [line for line in lines if line.startswith("progress: ")]
    assert [line.split(", ")[0] for line in trips] == [
        f"progress: round trip {i} of 4" for i in (1, 2, 3)
    ]
    assert all(line.endswith("of 2 (at most 2.551 with all retries)") for line in trips)
    pattern = (
        r"finished: 2 aggregations \(0 repeated\) in \d+ s; 3 of 3 clients confirmed"
        r" the result; epsilon 2 at delta .*"
    )
    assert re.fullmatch(pattern, lines[-1])


@pytest.mark.parametrize(("total", "told"), [(math.inf, ""), (8.0, " of 8")])
def test_a_client_says_how_much_of_its_limit_is_spent_if_it_has_one(
    total: float, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    federation = make_federation(
        grid_parts((20, 20)), policy=ClientPolicy(max_epsilon_total=total)
    )
    with caplog.at_level(logging.INFO, "flwr_dpkmeans"):
        federation.start(algorithm="fastlloyd", max_iter=1, epsilon=2.0)
    lines = [
        record.getMessage()
        for record in caplog.records
        if getattr(record, "node", None) == FIRST_NODE_ID
    ]
    (allowed,) = [
        line for line in lines if line.startswith("allowed by this node's policy")
    ]
    spent = rf"{told} at delta [\d.e-]+ on data set 'rows'"
    pattern = rf"allowed by this node's policy: epsilon 0{spent} was spent"
    assert re.match(pattern, allowed)
    (gave,) = [line for line in lines if line.startswith("gave: ")]
    assert re.search(rf"epsilon [1-9][\d.]*{spent}", gave)
    assert ("inf" in gave) is False


@pytest.mark.parametrize("dropout", ["retry", "recover"])
def test_round_trips_are_counted_as_they_take_place(
    dropout: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Two for each recovered sum and one for the shares; a repeated one on top."""
    federation = make_federation(grid_parts((20,) * 6))
    lost = iter([False] * 4 + [True])
    federation.faults.on_reply = lambda reply: (
        []
        if reply.metadata.src_node_id == FIRST_NODE_ID
        and dropout == "retry"
        and next(lost, False)
        else [reply]
    )
    with caplog.at_level(logging.INFO, "flwr_dpkmeans"):
        federation.start(
            algorithm="glloyd", max_iter=4, epsilon=2.0, dropout=dropout, max_silent=1
        )
    lines = [
        record.getMessage()
        for record in caplog.records
        if record.name == "flwr_dpkmeans.server"
    ]
    told = [
        re.findall(r"round trip (\d+) of (\d+)", line)[0]
        for line in lines
        if line.startswith("progress: ")
    ]
    if dropout == "retry":
        # The reply to the fourth round is lost, so there is one more round trip than
        # expected.
        assert told == [("1", "6"), ("2", "6"), ("3", "6"), ("4", "6"), ("6", "7")]
    else:
        assert told == [
            ("2", "11"), ("4", "11"), ("6", "11"), ("8", "11"), ("10", "11"),
        ]  # fmt: skip


# -- reprs -----------------------------------------------------------------------------

# Arrays and bytes that a repr may show: public ones, made-up data, and results in their
# owner's hands.
SHOWN = {
    *("MaxCoverResult", "NoisyAverages", "GaussianMixture"),
    *("SyntheticData", "KMeansResult", "Mixture", "ClusterChoice", "Ellipsoid"),
    # On the wire: public keys, digests, signatures, tags, sealed boxes, commitments.
    *(
        "KeysReply",
        "Credential",
        "SumRequest",
        "SumReply",
        "FinishRequest",
        "FinishReply",
        "Roster",
    ),
    *("ShareReply", "UnmaskReply"),
}
SHOWN_FIELDS = {"plan_digest", "agreed_digest", "transcript", "identities"}


def dataclasses_of_the_package() -> Iterator[type[Any]]:
    for module in pkgutil.walk_packages(flwr_dpkmeans.__path__, "flwr_dpkmeans."):
        if not module.name.endswith("__main__"):
            for kind in vars(importlib.import_module(module.name)).values():
                if (
                    inspect.isclass(kind)
                    and is_dataclass(kind)
                    and kind.__module__ == module.name
                ):
                    yield kind


def test_no_dataclass_prints_arrays_or_bytes_unless_it_may() -> None:
    for kind in dataclasses_of_the_package():
        shown = {
            field.name
            for field in fields(kind)
            if field.repr
            and kind.__dataclass_params__.repr
            and re.search(
                r"bytes|Array\b|NDArray|Ring\b|ReleasedSum \|", str(field.type)
            )
        }
        assert (
            kind.__name__ in SHOWN
            or "Callable" in str(fields(kind))
            or shown <= SHOWN_FIELDS
        ), (kind, shown)


@pytest.mark.parametrize(("dropout", "n_clients"), [("retry", 3), ("recover", 6)])
def test_a_client_forgets_its_keys_with_the_result(
    dropout: str, n_clients: int
) -> None:
    """Else a node's memory later opens the vectors of kept messages."""
    federation = make_federation(grid_parts((20,) * n_clients))
    federation.start(algorithm="lloyd", max_iter=1, dropout=dropout)
    for context in federation.grid.contexts.values():
        memory = recall(context)
        assert memory is not None
        assert not [
            each.name
            for each in fields(memory.party)
            if not each.repr and vars(memory.party)[each.name]
        ]


def test_what_a_client_holds_is_not_in_its_reprs() -> None:
    federation = make_federation(grid_parts((20, 20, 20)))
    memory: Any = None

    def look(message: Any) -> bool:
        nonlocal memory
        if stage_of(message.content) is Stage.FINISH and memory is None:
            memory = recall(federation.grid.contexts[FIRST_NODE_ID])
        return True

    federation.faults.on_request = look
    federation.start(algorithm="lloyd", max_iter=2)
    assert memory is not None
    client = federation.clients[FIRST_NODE_ID]
    state = memory.party
    told = f"{memory!r} {memory} {state!r} {memory.clusters!r} {client!r}"
    secrets = [
        state.private_key,
        state.tag_key,
        *(key for _, key in state.pair_keys),
        *(k for _, k in state.group_keys),
    ]
    assert len(secrets) == 6
    for secret in secrets:
        assert repr(secret)[2:-1] not in told
        assert secret.hex() not in told
    assert memory.clusters is not None
    for value in [
        *client.points[0],
        *memory.clusters.centroids[0],
        *memory.clusters.counts,
    ]:
        assert repr(float(value)) not in told
    assert isinstance(client, KMeansClient)
    assert np.asarray(client.points).size == 40


def test_a_message_of_another_party_has_four_thousand_characters_at_most() -> None:
    assert printable("x" * 4000) == "x" * 4000
    assert printable("x" * 4001) == "x" * 4000 + "..."


def test_nodes_are_called_by_their_names_in_lines_and_sentences_but_not_in_paths() -> (
    None
):
    ward, clinic, twin, other = (
        15589134634089942964,
        9966128686792472424,
        9867056176171301252,
        9867056176171301253,
    )

    def lines() -> list[str]:
        assert named(f"node {ward}") == f"node {ward}"
        name_nodes(
            {
                ward: "ward-7", clinic: "evil\n name", twin: "same", other: "same",
                3: "three",
            }
        )  # fmt: skip
        record = logging.LogRecord(
            "flwr_dpkmeans.server", logging.WARNING, "", 0, "node %d left", (ward,),
            None,
        )  # fmt: skip
        sentence = ended_by(
            CohortError(f"look at the logs of nodes [{ward}, {clinic}], not round 3.")
        ).args[0]
        shown = [LineFormatter(kind).format(record) for kind in LogFormat]
        path = named(
            f"node {ward}: /results/run-{ward}/client-{ward}/{ward}/page.html, {twin}"
            f" and {other}"
        )
        return [shown[0], json.loads(shown[1])["message"], sentence, path]

    assert contextvars.copy_context().run(lines) == [
        "node ward-7 left", "node ward-7 left",
        f"CohortError: look at the logs of nodes [ward-7, {clinic}], not round 3.",
        f"node ward-7: /results/run-{ward}/client-{ward}/{ward}/page.html, {twin}"
        f" and {other}",
    ]  # fmt: skip
    assert named(f"node {ward}") == f"node {ward}"


def test_a_nodes_lines_call_others_by_the_names_that_its_policy_pins() -> None:
    """By the cohort that it recognised, and never by what somebody calls itself."""
    own, peer, stranger, later = (Identity.generate() for _ in range(4))
    numbers = dict(
        zip(
            (own, peer, stranger, later),
            range(17470624556868163865, 17470624556868163869),
            strict=True,
        )
    )
    pins = {
        "ward-7": own.public_key.hex(),
        "ward-8": peer.public_key.hex(),
        "ward-9": later.public_key.hex(),
    }
    settings = NodeSettings(
        ClientPolicy(pinned_peers=pins), MemoryLedger(), "rows", identity=own
    )
    guard = NodeGuard(settings, 1, numbers[own], 0, 0.0)
    cohort = (
        f"{numbers[peer]} identity {pins['ward-8'][:16]}",
        f"{numbers[stranger]} identity {stranger.public_key.hex()[:16]}",
        f"{numbers[later]} identity {pins['ward-9'][:16]}",
        "5 key abcd",
    )

    def line(n_recognised: int) -> str:
        memory = SimpleNamespace(cohort=cohort, n_recognised=n_recognised)
        guard.name_peers(cast(Any, memory))
        text = f"nodes {numbers[peer]}, {numbers[stranger]}, {numbers[later]}"
        with placed(Place(run=9774918726557204819, node=numbers[own])):
            return LineFormatter().format(
                logging.LogRecord("x", logging.WARNING, "", 0, text, (), None)
            )

    place = "run 9774918726557204819 node ward-7"
    assert contextvars.copy_context().run(line, 3) == (
        f"{place}: nodes ward-8, {numbers[stranger]}, ward-9"
    )
    # Whoever was not recognised has no name: a server can announce any public key.
    assert contextvars.copy_context().run(line, 0) == (
        f"{place}: nodes {numbers[peer]}, {numbers[stranger]}, {numbers[later]}"
    )


_OWN_APP = """
import logging, sys

import numpy as np

from flwr_dpkmeans import FastLloyd, client_app
from flwr_dpkmeans.flower.in_process_grid import InProcessGrid, Node


class Grid(InProcessGrid):
    is_complete = sys.argv[1] == "notebook"


if sys.argv[1] == "own logging":
    logging.basicConfig(level=logging.INFO, format="OWN %(message)s", stream=sys.stderr)
rows = np.random.default_rng(0).uniform(0, 1, (300, 2))
policy = {"policy": sys.argv[2], "data-id": "rows"}
policy["output"] = sys.argv[3]
own = [{**policy, "ledger": f"{sys.argv[3]}/{name}"} for name in "ab"]
grid = Grid([Node(client_app(lambda _: rows), config) for config in own])
table = {"n_features": 2, "n_examples": 600, "bounds": (0.0, 1.0)}
strategy = FastLloyd(n_clusters=2, epsilon=1.0, max_iter=2, **table)
with grid.running():
    strategy.start(grid=grid)
"""


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("program", "begins"),
    [("own app", "INFO"), ("own logging", "OWN"), ("notebook", None)],
)
def test_a_server_app_of_somebodys_own_is_not_mute(
    tmp_path: Path, program: str, begins: str | None
) -> None:
    """Its rounds are lines of Flower's, where its program shows nothing itself."""
    policy = tmp_path / "policy.toml"
    policy.write_text("allow-anything = true\n")
    words = [sys.executable, "-c", _OWN_APP, program, str(policy), str(tmp_path)]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(sys.path),
        "FLWR_HOME": str(tmp_path),
    }
    done = subprocess.run(
        words, env=environment, capture_output=True, text=True, check=False,
        timeout=300.0,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = [re.sub(r"\x1b\[[0-9]+m", "", line) for line in done.stderr.splitlines()]
    rounds = [line for line in lines if "round 1/2" in line]
    assert len(rounds) == (0 if begins is None else 1), done.stderr
    assert all(line.startswith(str(begins)) for line in rounds)
