"""``flwr-dpkmeans run``.

`flwr run --stream`, after the checks that its ServerApp makes, and with a true exit
code.

Flower's own command takes a minute until a user reads what is wrong with a file, says
of a misspelt key that the configuration is invalid, and ends with 0 however a run ends.
All of its arguments are its own.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click
import httpx

from flwr_dpkmeans.data.bundled import BUNDLED
from flwr_dpkmeans.deploy.findings import (
    GUARDED,
    HOST,
    require_pairs,
    require_proposed,
    require_room,
    require_writable,
    search_path,
)
from flwr_dpkmeans.deploy.invitation import Invitation
from flwr_dpkmeans.deploy.node_command import settings_text
from flwr_dpkmeans.deploy.server_options import ServerOptions, SettingValue
from flwr_dpkmeans.errors import ConfigurationError, PeerError, listed
from flwr_dpkmeans.flower._private import (
    SERVER_APP,
    app_config,
    is_local_superlink,
    parsed_settings,
    registered_nodes,
    server_component,
)
from flwr_dpkmeans.flower.run_config import checked_strategy, require_known
from flwr_dpkmeans.log import printable
from flwr_dpkmeans.sums.plan import Plan

_FLWR = (sys.executable, "-m", "flwr.cli.app")
_OWN_APP = "flwr_dpkmeans.flower.server_app:app"
_STARTED = re.compile(r'(?:started run |"run-id": ")(\d+)')
_GONE = "unregistered"
_WORDLESS = (
    "Task failed with unknown error",
    "No heartbeat received from the task",
    "N/A",
)
_ENDED_OUTSIDE = (
    "its ServerApp was ended from outside, such as with the SuperLink or by 'flwr"
    " stop', or its machine stood still for a minute; what nodes have charged stays"
    " charged, and parties may have the result: ask them before a new run."
)
_STOPPED = 130
_TERMINATED = 143
_GOES_ON = (
    "only this command has ended: the run goes on and spends its budget, until 'flwr"
    " stop {}'"
)
_OPEN = "stopped before Flower named a run: 'flwr list' says whether one was started"


@dataclass(frozen=True)
class Patience:
    """How long a SuperLink that does not answer is waited for."""

    seconds: float = 120.0
    poll_seconds: float = 2.0


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """What the checks before a run need of Flower's arguments.

    Parameters
    ----------
    app : str
        The app's folder, or its name on Flower's Hub.
    superlink : str, optional
        Its name in Flower's configuration.
    run_config, federation_config : sequence of str
        As on the command line.
    server : Path, optional
        Folder of ``server init``.
    format : str, optional
        How Flower prints.
    words : sequence of str
        The whole command line.
    unknown : sequence of str
        What of it the checks do not know.
    """

    app: str = "."
    superlink: str | None = None
    run_config: Sequence[str] = ()
    server: Path | None = None
    federation_config: Sequence[str] = ()
    format: str | None = None
    words: Sequence[str] = ()
    unknown: Sequence[str] = ()


def run_app(request: RunRequest, patience: Patience | None = None) -> int:
    """Check, run and stream.

    The code is 0 only if the run completed, 130 if it was left to itself by Ctrl-C, 143
    by a termination.

    Raises the sentences of the ServerApp, before anything is started; whatever is wrong
    otherwise Flower says itself.
    """
    patience = Patience() if patience is None else patience
    if is_own(request.app):
        for text in request.run_config:
            require_pairs("--run-config", text)
        for text in request.federation_config:
            require_pairs("--federation-config", text)
    if request.server is None:
        check(request)
        environment = os.environ | {"PATH": search_path()}
        return _streamed(request.superlink, request.words, environment, patience)
    options = ServerOptions.load(request.server)
    require_proposed(Path(request.app), options.invitation)
    try:
        settings = parsed_settings(request.run_config)
    except click.ClickException as error:
        raise ConfigurationError(error.message) from error
    require_started(options)
    if is_own(request.app):
        settings, plan = planned(options, Path(request.app), settings)
        require_parties(options, plan.n_clients)
    options.write_connection()
    words = [request.app, *request.unknown]
    if settings:
        words += ["--run-config", settings_text(settings)]
    if request.format:
        words += ["--format", request.format]
    code = _streamed(None, words, options.environment, patience)
    if code == 0 and is_own(request.app):  # others write what they will
        print(
            f"{settings['output']} has the server's report, each party's own folder its"
            " result",
            file=sys.stderr,
        )
    return code


def check(request: RunRequest) -> None:
    """Make the checks of this package's own app, whose configuration they know.

    Other apps have checks of their own.
    """
    if not is_own(request.app):
        return
    try:
        stated = parsed_settings(request.run_config)
        federation = parsed_settings(request.federation_config)
        n_nodes = int(federation.get("num-supernodes", 0))
        simulated = is_local_superlink(request.superlink)
    except (click.ClickException, OSError, KeyError, ValueError):
        return  # Flower has sentences for files of its own
    require_known(stated)
    if simulated:  # of another SuperLink nobody knows here whether it simulates
        checked_strategy(
            app_config(Path(request.app).expanduser(), stated),
            n_nodes,
            simulated=True,
        )


def planned(
    options: ServerOptions,
    app: Path,
    stated: Mapping[str, SettingValue],
) -> tuple[dict[str, SettingValue], Plan]:
    """What a run is to be told, and the plan that its ServerApp will draft of that.

    Raised is what it would end with.

    The ServerApp has another working directory, so that a path that is right here would
    be wrong there.
    """
    require_known(stated)
    settings = options.run_settings(stated)
    try:
        app_settings = app_config(app, {})
    except (click.ClickException, ValueError) as error:
        raise ConfigurationError(
            f"the configuration of {app} cannot be read ({error}): correct it."
        ) from error
    if missing := sorted({*settings, "bounds"} - app_settings.keys()):
        raise ConfigurationError(
            f"{app} has no key {listed(missing)}, and Flower takes only keys that stand"
            " in the app's pyproject.toml: put there what python -m flwr_dpkmeans"
            " options --toml prints, and have the app approved."
        )
    fused = {**app_settings, **settings}
    for key in app_settings.keys() & {"bounds", "server-data", "output"}:
        value, path = fused[key], Path(str(fused[key])).expanduser()
        if (
            isinstance(value, str)
            and value not in BUNDLED
            and (key == "output" or (value and path.exists()))
        ):
            settings[key] = fused[key] = str(path.absolute())
    strategy, output = (
        checked_strategy(fused, 0, simulated=False),
        Path(str(fused["output"])),
    )
    require_writable(output)
    require_room(output)
    return settings, strategy.draft(strategy.config.n_clients or 0)


def require_started(options: ServerOptions) -> None:
    """Refuse an app that came into the invitation after the server was started.

    Its guard would refuse it.
    """
    guarded, app = (
        options.home / GUARDED / SERVER_APP,
        Invitation.from_toml(options.invitation).app,
    )
    if guarded.exists() and app not in guarded.read_text():
        raise ConfigurationError(
            f"the server runs another app than the invitation's {app}: end it and start"
            " it again, between two runs; nodes come back by themselves."
        )


def require_parties(options: ServerOptions, n_clients: int) -> None:
    """Refuse to wait for more parties than there are.

    Or for a SuperLink that does not run.
    """
    try:
        with options.client() as client:
            nodes = registered_nodes(client)
    except httpx.TransportError as error:
        raise PeerError(
            f"the SuperLink does not answer at {HOST}:{options.port} ({error}): start"
            " it by 'server start'."
        ) from error
    invited, n_registered = (
        [*Invitation.from_toml(options.invitation).parties],
        sum(node.status != _GONE for node in nodes),
    )
    if n_clients > (most := max(len(invited), n_registered)):
        raise ConfigurationError(
            f"num-clients is {n_clients}, but {len(invited)} parties are invited"
            f" ({', '.join(invited)}) and {n_registered} registered: give {most} at"
            " most."
        )


def is_own(app: str) -> bool:
    """Whether an app is this package's, whose configuration is known here."""
    try:
        component = server_component(Path(app).expanduser())
    except (click.ClickException, OSError, KeyError, ValueError):
        return False
    return not app.startswith("@") and component == _OWN_APP


class _Terminated(Exception):
    """What ends this process as a service manager or `kill` does."""


def _terminate(_number: int, _frame: FrameType | None) -> NoReturn:
    raise _Terminated


@contextmanager
def _terminations() -> Iterator[None]:
    """Raise `_Terminated` where a signal would end this process without a word."""
    if threading.current_thread() is not threading.main_thread():
        # Only the main thread may handle signals.
        yield
        return
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _streamed(
    superlink: str | None,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    patience: Patience,
) -> int:
    command = [
        *_FLWR,
        "run",
        *(argument for argument in arguments if argument != "--stream"),
        "--stream",
    ]
    run_id, environment = "", {**environment, "PYTHONUNBUFFERED": "1"}
    with (
        _terminations(),
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        ) as flower,
    ):
        assert flower.stdout is not None
        try:
            for line in flower.stdout:
                if not run_id and (match := _STARTED.search(line)):
                    # Later lines may be a party's words.
                    run_id = match.group(1)
                print(line, end="", flush=True)
        except (KeyboardInterrupt, _Terminated) as stop:
            # Ctrl-C ends Flower's own command, too, a termination of this process does
            # not; its SuperLink goes on in either case.
            flower.terminate()
            named = " ".join(filter(None, (run_id, superlink)))
            print(_GOES_ON.format(named) if run_id else _OPEN, file=sys.stderr)
            return _TERMINATED if isinstance(stop, _Terminated) else _STOPPED
    if not run_id:
        return flower.returncode or 1
    if flower.returncode:
        print(
            f"the stream broke off; waiting for the end of run {run_id}",
            file=sys.stderr,
        )
    ended = _end_of(
        patience,
        environment,
        *([superlink] if superlink else []),
        "--run-id",
        run_id,
    )
    if ended["status"] == "finished:completed":
        return 0
    print(
        printable(f"run {run_id} is {ended['status']}: {ended['status-details']}"),
        file=sys.stderr,
    )
    return 1


def _end_of(
    patience: Patience,
    environment: Mapping[str, str],
    *which: str,
) -> Mapping[str, str]:
    """What is said of a run that has ended.

    However often the SuperLink is killed meanwhile.
    """
    last_answer = time.monotonic()
    while time.monotonic() - last_answer < patience.seconds:
        with suppress(PeerError):
            (run,) = listed_runs(environment, *which)
            if run["status"].startswith("finished"):
                return run
            last_answer = time.monotonic()
        time.sleep(patience.poll_seconds)
    return {
        "status": "of unknown status",
        "status-details": f"no answer for {patience.seconds:g} s: see flwr list.",
    }


def listed_runs(environment: Mapping[str, str], *which: str) -> list[dict[str, str]]:
    """What ``flwr list`` says of runs.

    One that was ended from outside has no words of its own.

    A PeerError if nobody answers, or the only run that is asked for is not known.
    """
    command = [*_FLWR, "list", *which, "--format", "json"]
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=False,
        env=environment,
    )
    try:
        runs = list(json.loads(done.stdout)["runs"])
    except (ValueError, KeyError, TypeError) as error:
        raise PeerError(
            "the SuperLink lists no runs now: see whether it is being started again,"
            " then ask again."
        ) from error
    for run in runs:
        if (
            run["status"] in ("finished:failed", "finished:stopped")
            and run["status-details"].rstrip(".") in _WORDLESS
        ):
            run["status-details"] = (
                f"{run['status-details'].rstrip('.')}: {_ENDED_OUTSIDE}".removeprefix(
                    "N/A: "
                )
            )
    return runs
