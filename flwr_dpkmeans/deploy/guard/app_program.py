"""Runs one message's app, if it is approved, or starts apps: what guarded scripts run.

The times of two empty files beside the alerts, ``received`` and ``answered``, are those
of the last message and of its answer.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import json
import os
import shutil
import sys
import time
from collections.abc import Sequence
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

if __name__ == "__main__":
    # As a file, this has no package: its folder becomes one of a name that no app has.
    __package__ = "_guard_of_this_machine"
    _SPEC = spec_from_file_location(
        __package__, Path(__file__).with_name("__init__.py")
    )
    assert _SPEC is not None
    sys.modules[__package__] = module_from_spec(_SPEC)

from .app_guard import Guard
from .flower_seams import private
from .guarded_programs import SUPEREXEC
from .refusal import GuardError

OUTPUT = "app-output.log"
"""File beside the alerts that has what an app behind the gate printed."""
RECEIVED, ANSWERED = "received", "answered"
"""Files beside the alerts, of which the time alone tells something."""
_TURN_FILE = "turn.lock"
_TURN_SECONDS, _LOOK_SECONDS = 10.0, 0.05
"""Flower ends what has not asked for its message within 30 s."""
_CONTENT_SECONDS = 600.0
"""As long as a server waits for an answer, unless it says otherwise."""
_PRIVATE_FILE = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW


def put_before_flower(guard: Guard, app: str = private.CLIENT_APP) -> None:
    """Put the guard in the place of what Flower installs and loads apps with.

    In this process.

    What was unpacked here is loaded, whatever id, version and hash of a run say, which
    are the server's words; Flower then still holds id and version against the app's
    own. A version of Flower that works in another way is a GuardError.
    """
    missing = private.missing_app_seams(app)
    if missing:
        raise GuardError(
            f"this version of Flower does not call {missing[0]}, which the guard stands"
            " before: update it"
        )
    private.replace_app_installation(
        app, partial(_installed, guard), partial(_loader, guard)
    )
    if app == private.CLIENT_APP:
        answered = guard.alerts.with_name(ANSWERED)
        private.replace_reply(partial(note, answered))
        private.replace_wait_for_content(_CONTENT_SECONDS)


def _installed(guard: Guard, content: bytes) -> Path:
    """Unpack an app for as long as this process lives."""
    try:
        target = guard.unpack(content)
    except GuardError as error:
        raise private.app_refusal(str(error)) from error
    # At the very end: before it Flower saves what the app remembers, and has 5 s
    # for all that it does at its end.
    atexit.register(shutil.rmtree, target, ignore_errors=True)
    return target


def _loader(guard: Guard, folder: Path) -> private.Load:
    """What loads the app that was unpacked into a folder.

    Of the one behind the gate nothing is imported in this process.
    """
    if guard.gate is None or gated_app(guard.gate) != folder.name.split("-")[1]:
        return private.client_app_loader(folder)
    _import_own_package()
    from flwr_dpkmeans.deploy.gate.gate_app import gate_around

    return gate_around(guard.gate, folder, guard.alerts.with_name(OUTPUT))


def gated_app(gate: Path) -> str:
    """The hash of the app behind a gate."""
    return str(json.loads(gate.read_text())["app"])


def _import_own_package() -> None:
    """Import the package that this file is of, where none is imported yet.

    The app behind the gate may bring another one, for its own process.
    """
    package = Path(__file__).parents[2]
    if package.name in sys.modules:
        return
    spec = spec_from_file_location(
        package.name,
        package / "__init__.py",
        submodule_search_locations=[str(package)],
    )
    if spec is None or spec.loader is None:
        raise GuardError(f"{package} cannot be imported: install it again")
    sys.modules[package.name] = module_from_spec(spec)
    spec.loader.exec_module(sys.modules[package.name])


def note(file: Path) -> None:
    """Give an empty file the time of now.

    Where that cannot be, nothing of a message depends on it.
    """
    with contextlib.suppress(OSError):
        descriptor = os.open(file, _PRIVATE_FILE, 0o600)
        try:
            os.utime(descriptor)
        finally:
            os.close(descriptor)


def wait_for_turn(lock: Path, seconds: float = _TURN_SECONDS) -> None:
    """Wait until the process of the message before has ended.

    It has then saved what it remembers; some seconds at most.

    Flower starts the next message's process before, which would find what the message
    before the last one remembered. The lock is held until this process ends.
    """
    start = time.monotonic()
    try:
        # None that an app starts inherits it, and nobody closes it.
        descriptor = os.open(lock, _PRIVATE_FILE, 0o600)
        while not _is_locked(descriptor) and time.monotonic() - start < seconds:
            time.sleep(_LOOK_SECONDS)
    except OSError as error:
        # For a message that is not asked for Flower would wait for ever; the ledger
        # refuses what comes twice.
        sys.stderr.write(
            f"{lock} cannot be locked ({error.strerror}): remove it, so that"
            " messages take turns.\n"
        )


def _is_locked(descriptor: int) -> bool:
    """Take a file's lock, unless another process has it."""
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def main(arguments: Sequence[str]) -> None:
    """Run one message's app, if it is approved, or start apps.

    The arguments are the script's and then Flower's own.
    """
    name, app, allowed, folder, alerts, gate, *words = arguments
    sys.argv = [name, *words]
    if name == SUPEREXEC:
        private.superexec_program()()
        return
    run = private.app_program(app)
    # That of the machine leads to the guarded programs alone.
    os.environ["PATH"] = os.defpath
    hashes = frozenset(filter(None, allowed.split(",")))
    guard = Guard(
        hashes,
        Path(folder),
        Path(alerts),
        Path(gate) if gate else None,
    )
    put_before_flower(guard, app)
    if name == private.CLIENT_APP:
        note(guard.alerts.with_name(RECEIVED))
        wait_for_turn(guard.alerts.with_name(_TURN_FILE))
    # A task that an agent was asked for is answered with the refusal, too: without an
    # answer the SuperNode waits. An app tells by this name that it has a guard.
    sys.argv[0] = f"guarded {name}"
    run()


if __name__ == "__main__":
    main(sys.argv[1:])
