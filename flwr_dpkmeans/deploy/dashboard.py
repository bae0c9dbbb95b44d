"""A live page, and metrics for Prometheus.

About a server's runs or a node's own budget.

It listens on this machine's loopback address only, answers GET, reads files, and
changes nothing. Requests for another host's name are refused, so that no web page of
elsewhere can read it through a browser (DNS rebinding). Loopback is open to all users
of the machine, so a request needs the token that the command prints, as with notebooks.
"""

from __future__ import annotations

import base64
import hashlib
import math
import os
import re
import secrets
import socket
from collections.abc import Awaitable, Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from flwr_dpkmeans import errors
from flwr_dpkmeans.deploy.findings import HOST, require_secret
from flwr_dpkmeans.deploy.last_message import LastMessage, answers_of
from flwr_dpkmeans.deploy.monitoring.gauges import (
    certificate_gauge,
    disk_gauge,
    last_success_gauge,
    summed,
)
from flwr_dpkmeans.deploy.node_options import NodeOptions
from flwr_dpkmeans.deploy.owner.owner_commands import owner_sees
from flwr_dpkmeans.deploy.run_folders import (
    MOST_RUNS,
    read_progress,
    runs_below,
)
from flwr_dpkmeans.errors import ConfigurationError, DPKMeansError
from flwr_dpkmeans.flower.round_trip import Notice
from flwr_dpkmeans.flower.run_progress import Outcome, RunProgress
from flwr_dpkmeans.log import placed_logger
from flwr_dpkmeans.node.identity import write_new
from flwr_dpkmeans.node.policy import DEPLOYED, ClientPolicy
from flwr_dpkmeans.privacy.provenance import utc_now
from flwr_dpkmeans.results.rendering import HTML, rendered
from flwr_dpkmeans.results.writer import PAGE_FILE

_logger = placed_logger(__name__)

_OWN_HOST = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?")
_TOKEN_BYTES = 32
_TOKEN = re.compile(r"[A-Za-z0-9_-]{20,}")
_NOTHING = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _NOTHING,
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    # The address has the token.
    "Referrer-Policy": "no-referrer",
}
"""Of every answer, refusals too."""
_SECONDS = 5
_LAST = "last_message_timestamp_seconds"
_STYLE = re.compile("<style>(.*?)</style>", re.DOTALL)
_EVENTS = ("retry", "left out", "no reply")
_APP = ("1", "7")
"""Flower's codes of a SuperNode that does not run the app."""
_KINDS = {name for name in vars(errors) if name.endswith("Error")} | {"InternalError"}
"""Of refusals; others are another party's words."""


def serve(
    page: Callable[[], str],
    metrics: Callable[[], Iterable[Metric]],
    port: int,
    token_file: Path | None = None,
) -> int:
    """Answer until the program is ended; port 0 is any that is free."""
    page()  # what is wrong with a file is said at once
    token = read_token(token_file)
    with socket.create_server((HOST, port)) as listening:
        address = f"http://{HOST}:{listening.getsockname()[1]}"
        print(
            f"{address}/?token={token} is the page, {address}/metrics?token={token} "
            "has numbers for Prometheus; Ctrl-C ends both",
            flush=True,
        )
        config = uvicorn.Config(
            site(page, metrics, token), log_level="warning", server_header=False
        )
        uvicorn.Server(config).run([listening])
    return 0


def read_token(path: Path | None) -> str:
    """Return the token of a page.

    A new one, or that of a file, which is made if it is not there.
    """
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    if path is None:
        return token
    if not path.exists():
        write_new(path, token.encode())
        return token
    require_secret(path)
    if path.stat().st_uid not in (os.geteuid(), 0):
        raise ConfigurationError(
            f"{path} is another user's, who knows the token in it: name a file of your"
            " own."
        )
    token = path.read_text().strip()
    if not _TOKEN.fullmatch(token):
        raise ConfigurationError(
            f"{path} holds {len(token)} characters, but a token has at least 20"
            " letters, digits, '-' and '_': remove the file, and it is made anew."
        )
    return token


def site(
    page: Callable[[], str],
    metrics: Callable[[], Iterable[Metric]],
    token: str,
) -> Starlette:
    """The page, allowed nothing but its own style, and the metrics.

    Other methods, hosts and paths are refused.
    """

    def answer_page(_: Request) -> Response:
        content = page()
        (style,) = _STYLE.findall(content)
        digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
        headers = {
            "Content-Security-Policy": f"{_NOTHING}; style-src 'sha256-{digest}'"
        }
        return HTMLResponse(content, headers=headers)

    def answer_metrics(_: Request) -> Response:
        return Response(
            generate_latest(SimpleNamespace(collect=metrics)),
            media_type=CONTENT_TYPE_LATEST,
        )

    async def guard(
        request: Request, answer: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        refusal = _refusal(request, token)
        try:
            response = await answer(request) if refusal is None else refusal
        except Exception:
            # Starlette's own answer to it would have none of the headers.
            _logger.exception("the page cannot be shown")
            response = PlainTextResponse("Internal Server Error", 500)
        for name, value in _HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    return Starlette(
        routes=[Route("/", answer_page), Route("/metrics", answer_metrics)],
        middleware=[Middleware(BaseHTTPMiddleware, dispatch=guard)],
        exception_handlers={
            DPKMeansError: lambda _, error: PlainTextResponse(str(error), 500)
        },
    )


def _refusal(request: Request, token: str) -> Response | None:
    """What a request is answered that comes by another name.

    Or from who was not shown the token.
    """
    # Of the whole header: what stands behind a colon may be no port, but another host's
    # name.
    if not _OWN_HOST.fullmatch(request.headers.get("host", "")):
        return PlainTextResponse("Invalid host header", 400)
    scheme, _, shown = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        shown = request.query_params.get("token", "")
    # Compared in constant time: how long an answer takes must not tell how much of it
    # is right.
    if not secrets.compare_digest(shown.encode(), token.encode()):
        return PlainTextResponse(
            "open the address that the command has printed, with its token", 403
        )
    return None


# -- a server's runs -------------------------------------------------------------------


def _runs(folder: Path, most: int | None = None) -> list[RunProgress]:
    """What is known of the newest runs, or of all."""
    return [read_progress(place) for place in runs_below(folder)[:most]]


def server_page(folder: Path, most: int = MOST_RUNS) -> str:
    """All runs, and more of those under way and of the newest."""
    if not folder.is_dir():
        raise ConfigurationError(
            f"{folder} is no folder: give a server's, or that of its runs."
        )
    runs = _runs(folder, most)
    shown = [
        run
        for place, run in enumerate(runs)
        if run.outcome is Outcome.RUNNING or place == 0
    ]
    return rendered(
        "live.j2",
        HTML,
        place=folder,
        now=utc_now(),
        seconds=_SECONDS,
        runs=runs,
        shown=shown,
    )


def server_metrics(folder: Path) -> Iterator[Metric]:
    """Numbers over all runs; none of them is taken from rows or from what was released.

    Without the oldest runs, counters would fall with each new one, which Prometheus
    takes for a restart.
    """
    runs, counter, gauge = _runs(folder), CounterMetricFamily, GaugeMetricFamily
    trips = [trip for run in runs for trip in run.trips]
    silent = [
        pair
        for run in runs
        for pair in (("late", len(run.late)), ("left out", len(run.missing)))
    ]
    sizes = [
        pair
        for trip in trips
        for pair in (("sent", trip.sent), ("received", trip.received))
    ]
    refused = [(kind, 1) for run in runs for kind in map(_kind, run.notices) if kind]
    yield summed(
        gauge,
        "runs",
        "Runs",
        "outcome",
        ((run.outcome, 1) for run in runs),
    )
    yield summed(
        counter,
        "round_trips",
        "Round trips",
        "stage",
        ((trip.stage, 1) for trip in trips),
    )
    took = ((trip.stage, trip.seconds) for trip in trips)
    yield summed(
        counter,
        "round_trip_seconds",
        "Seconds that they took",
        "stage",
        took,
    )
    yield summed(
        counter,
        "bytes",
        "Bytes of values in messages",
        "direction",
        sizes,
    )
    yield summed(
        gauge,
        "silent_nodes",
        "Nodes that are not heard yet, or were left out",
        "state",
        silent,
    )
    events = (
        (notice.event, 1)
        for run in runs
        for notice in run.notices
        if notice.event in _EVENTS
    )
    yield summed(
        counter,
        "events",
        "Repeated sums, and nodes or answers that were missed",
        "event",
        events,
    )
    nodes = sorted({node for run in runs for node in (*run.nodes, *run.answered_at)})
    answers = {node: answers_of(runs, [node]) for node in nodes}
    times = {node: answer.last for node, answer in answers.items() if answer.last}
    seconds = (
        (node, datetime.fromisoformat(time).timestamp()) for node, time in times.items()
    )
    yield summed(
        gauge,
        _LAST,
        "When a node answered last",
        "node",
        seconds,
    )
    unanswered = ((node, answer.n_silent) for node, answer in answers.items())
    yield summed(
        gauge,
        "silent_runs",
        "Newest runs in which a node was asked and silent",
        "node",
        unanswered,
    )
    yield last_success_gauge(runs)
    yield disk_gauge({"results": folder})
    yield summed(
        counter,
        "refusals",
        "Refusals by the error's name; app: a SuperNode ran none",
        "kind",
        refused,
    )


def _kind(notice: Notice) -> str:
    """What a refusal is; nothing for another notice."""
    if notice.event == "no reply":
        return "app" if notice.reason in _APP else ""
    return (
        ""
        if notice.event != "refused"
        else notice.reason
        if notice.reason in _KINDS
        else "other"
    )


# -- a node's own budget ---------------------------------------------------------------


def node_page(place: Path) -> str:
    """What was asked, allowed and given, and what is left."""
    options = NodeOptions.from_toml(place)
    pages = sorted(
        options.output.glob(f"run-*/*/{PAGE_FILE}"),
        key=lambda path: path.stat().st_mtime,
        reverse=True,
    )
    details = {
        "policy": ClientPolicy.from_toml(options.policy, base=DEPLOYED),
        "options": options,
        "pages": pages,
    }
    now = {"place": place, "now": utc_now(), "seconds": _SECONDS, "inf": math.inf}
    return rendered(
        "own.j2",
        HTML,
        **owner_sees(options),
        **details,
        **now,
    )


def node_metrics(place: Path) -> Iterator[Metric]:
    """Budget spent and left, and apps that were refused."""
    options, gauge = NodeOptions.from_toml(place), GaugeMetricFamily
    seen = owner_sees(options)
    labels = ["data_set", "unit", "state"]
    family = gauge(
        "dpkmeans_budget_epsilon",
        "Epsilon, by data set and unit of privacy",
        labels=labels,
    )
    for amount in seen["epsilon"]:
        for state in ("spent", "left"):
            if (
                amount[state] is not None
            ):  # what is left by a damaged ledger nobody knows
                family.add_metric(
                    [amount["data set"], amount["unit"], state], amount[state]
                )
    yield family
    message = LastMessage.of(options.home)
    times = (("received", message.received), ("answered", message.answered))
    family = gauge(
        f"dpkmeans_{_LAST}",
        "When a message came last, and was answered",
        labels=["state"],
    )
    for state, seconds in times:
        if seconds is not None:
            family.add_metric([state], seconds)
    yield family
    yield gauge(
        "dpkmeans_unanswered_messages",
        "Messages that have waited too long",
        bool(message.problem),
    )
    yield gauge(
        "dpkmeans_ledger_problems", "Flaws of the ledger", len(seen["problems"])
    )
    uses = {"ledger": options.ledger.parent, "results": options.output}
    yield disk_gauge(uses)
    if options.root_certificates is not None:
        yield certificate_gauge([options.root_certificates])
    yield gauge("dpkmeans_ledger_runs", "Runs that were charged", len(seen["given"]))
    yield summed(
        CounterMetricFamily,
        "refusals",
        "Refused apps",
        "kind",
        [("app", len(seen["alerts"]))],
    )
