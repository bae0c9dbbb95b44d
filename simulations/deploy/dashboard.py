"""A live page, and metrics for Prometheus, about a server's runs or a node's own budget.

It listens on this machine's loopback address only, answers GET, reads files, and changes nothing. Requests for another
host's name are refused, so that no web page of elsewhere can read it through a browser (DNS rebinding).
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from flwr_dpkmeans import errors
from flwr_dpkmeans.errors import ConfigurationError, DPKMeansError
from flwr_dpkmeans.flower.progress import Notice, Outcome, RunProgress
from flwr_dpkmeans.node.policy import DEPLOYED, ClientPolicy
from flwr_dpkmeans.privacy.report import utc_now
from flwr_dpkmeans.results.page import HTML, rendered
from flwr_dpkmeans.results.writer import PAGE_FILE
from simulations.deploy.node_options import NodeOptions
from simulations.deploy.owner_commands import owner_sees
from simulations.deploy.run_folders import read_progress, runs_below

_HOST = "127.0.0.1"
_SECONDS = 5
_MOST_RUNS = 100
_STYLE = re.compile("<style>(.*?)</style>", re.DOTALL)
_EVENTS = ("retry", "left out", "no reply")
_APP = ("1", "7")
"""Flower's codes of a SuperNode that does not run the app."""
_KINDS = {name for name in vars(errors) if name.endswith("Error")} | {"InternalError"}
"""Of refusals; others are another party's words."""


def serve(page: Callable[[], str], metrics: Callable[[], Iterable[Metric]], port: int) -> int:
    """Answer until the program is ended; port 0 is any that is free."""
    page()  # what is wrong with a file is said at once
    with socket.create_server((_HOST, port)) as listening:
        address = f"http://{_HOST}:{listening.getsockname()[1]}/"
        print(f"{address} is the page, {address}metrics has numbers for Prometheus; Ctrl-C ends both", flush=True)
        uvicorn.Server(uvicorn.Config(site(page, metrics), log_level="warning", server_header=False)).run([listening])
    return 0


def site(page: Callable[[], str], metrics: Callable[[], Iterable[Metric]]) -> Starlette:
    """The page, allowed nothing but its own style, and the metrics; other methods, hosts and paths are refused."""

    def answer_page(_: Request) -> Response:
        content = page()
        (style,) = _STYLE.findall(content)
        digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
        policy = f"default-src 'none'; style-src 'sha256-{digest}'; form-action 'none'; frame-ancestors 'none'"
        headers = {"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
        return HTMLResponse(content, headers=headers)

    def answer_metrics(_: Request) -> Response:
        return Response(generate_latest(SimpleNamespace(collect=metrics)), media_type=CONTENT_TYPE_LATEST)

    return Starlette(
        routes=[Route("/", answer_page), Route("/metrics", answer_metrics)],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=[_HOST, "localhost"], www_redirect=False)],
        exception_handlers={DPKMeansError: lambda _, error: PlainTextResponse(str(error), 500)},
    )


def _summed(kind: Any, name: str, about: str, label: str, amounts: Iterable[tuple[str, float]]) -> Any:
    """A metric with one label, by whose values amounts are added up."""
    totals = Counter[str]()
    for value, amount in amounts:
        totals[value] += amount  # type: ignore[assignment]
    family = kind(f"dpkmeans_{name}", about, labels=[label])
    for value in sorted(totals):
        family.add_metric([value], totals[value])
    return family


# -- a server's runs --------------------------------------------------------------------------------------------------


def _runs(folder: Path, most: int | None = None) -> list[RunProgress]:
    """What is known of the newest runs, or of all."""
    return [read_progress(place) for place in runs_below(folder)[:most]]


def server_page(folder: Path) -> str:
    """All runs, and more of those under way and of the newest."""
    if not folder.is_dir():
        raise ConfigurationError(f"{folder} is no folder: give a server's, or that of its runs.")
    runs = _runs(folder, _MOST_RUNS)
    shown = [run for place, run in enumerate(runs) if run.outcome is Outcome.RUNNING or place == 0]
    return rendered("live.j2", HTML, place=folder, now=utc_now(), seconds=_SECONDS, runs=runs, shown=shown)


def server_metrics(folder: Path) -> Iterator[Metric]:
    """Numbers over all runs; none of them is taken from rows or from what was released.

    Without the oldest runs, counters would fall with each new one, which Prometheus takes for a restart.
    """
    runs, counter, gauge = _runs(folder), CounterMetricFamily, GaugeMetricFamily
    trips = [trip for run in runs for trip in run.trips]
    silent = [pair for run in runs for pair in (("late", len(run.late)), ("left out", len(run.missing)))]
    sizes = [pair for trip in trips for pair in (("sent", trip.sent), ("received", trip.received))]
    refused = [(kind, 1) for run in runs for kind in map(_kind, run.notices) if kind]
    yield _summed(gauge, "runs", "Runs", "outcome", ((run.outcome, 1) for run in runs))
    yield _summed(counter, "round_trips", "Round trips", "stage", ((trip.stage, 1) for trip in trips))
    took = ((trip.stage, trip.seconds) for trip in trips)
    yield _summed(counter, "round_trip_seconds", "Seconds that they took", "stage", took)
    yield _summed(counter, "bytes", "Bytes of values in messages", "direction", sizes)
    yield _summed(gauge, "silent_nodes", "Nodes that are not heard yet, or were left out", "state", silent)
    events = ((one.event, 1) for run in runs for one in run.notices if one.event in _EVENTS)
    yield _summed(counter, "events", "Repeated sums, and nodes or answers that were missed", "event", events)
    yield _summed(counter, "refusals", "Refusals by the error's name; app: a SuperNode ran none", "kind", refused)


def _kind(notice: Notice) -> str:
    """What a refusal is; nothing for another notice."""
    if notice.event == "no reply":
        return "app" if notice.reason in _APP else ""
    return "" if notice.event != "refused" else notice.reason if notice.reason in _KINDS else "other"


# -- a node's own budget ----------------------------------------------------------------------------------------------


def node_page(place: Path) -> str:
    """What was asked, allowed and given, and what is left."""
    options = NodeOptions.from_toml(place)
    pages = sorted(options.output.glob(f"run-*/*/{PAGE_FILE}"), key=lambda path: path.stat().st_mtime, reverse=True)
    known = {"policy": ClientPolicy.from_toml(options.policy, base=DEPLOYED), "options": options, "pages": pages}
    now = {"place": place, "now": utc_now(), "seconds": _SECONDS, "inf": math.inf}
    return rendered("own.j2", HTML, **owner_sees(options), **known, **now)


def node_metrics(place: Path) -> Iterator[Metric]:
    """Budget spent and left, and apps that were refused."""
    seen, gauge = owner_sees(NodeOptions.from_toml(place)), GaugeMetricFamily
    labels = ["data_set", "unit", "state"]
    family = gauge("dpkmeans_budget_epsilon", "Epsilon, by data set and unit of privacy", labels=labels)
    for one in seen["epsilon"]:
        for state in ("spent", "left"):
            if one[state] is not None:  # what is left by a damaged ledger nobody knows
                family.add_metric([one["data set"], one["unit"], state], one[state])
    yield family
    yield gauge("dpkmeans_ledger_problems", "Flaws of the ledger", len(seen["problems"]))
    yield gauge("dpkmeans_ledger_runs", "Runs that were charged", len(seen["given"]))
    yield _summed(CounterMetricFamily, "refusals", "Refused apps", "kind", [("app", len(seen["alerts"]))])
