"""Lets a machine run approved apps only.

Stands where Flower starts ``flwr-clientapp``, or ``flwr-serverapp``.

Whoever may start runs chooses the app (FAB) that a SuperNode is sent. Flower unpacks it
into a folder that the app's own unchecked version names, uses what lies there already,
and imports it with all rights of the node. Here the bytes that came are hashed first.
If their SHA-256 is on the node's list, these same bytes are unpacked into a new private
folder and loaded from there; else nothing of them is parsed, written or run, and an
alert has the hash.

`write_programs` makes scripts that run this file as a program. It therefore imports
nothing of this project: the ``flwr_dpkmeans`` that an approved app brings must be the
one that runs. Nothing but the script itself decides what is allowed: Python's isolated
mode ignores its variables and the working directory, and PATH leads nowhere else.

An app's process takes a second of computing to import Flower, for each message. So what
starts apps (SuperExec) imports it once, leaves a twin of itself behind, and the twin
forks a process for each message. The app is none of what a fork begins with: every
process unpacks and imports it anew. Compiling it takes as long as importing it does, so
the first process sends the twin what it compiled from the bytes that it had hashed,
before any of them runs. The twin holds that in its memory, where no file can be put in
its place.

What a process was forked from waits for its end: of an app that is killed it says so at
once. Flower only misses its signs of life, for a minute, and has no words for the
reason. Where nothing can be said any more, `supernode` ends the node. The times of two
empty files, ``received`` and ``answered``, are those of the last message and of its
answer.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import gc
import hashlib
import importlib.util
import io
import itertools
import json
import marshal
import os
import pickle
import re
import select
import shlex
import shutil
import signal
import stat
import sys
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any

SUPEREXEC = "flower-superexec"
CLIENT_APP, SERVER_APP = "flwr-clientapp", "flwr-serverapp"
_RUNNING = {
    CLIENT_APP: ("flwr.supernode.cli", "flwr.supernode.runtime.run_clientapp"),
    SERVER_APP: ("flwr.superlink.cli", "flwr.superlink.runtime.run_serverapp"),
}
"""Where the program of such an app is, and what unpacks and loads one."""
_HASH = re.compile(r"[0-9a-f]{64}")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")
_REPORT_SECONDS = 60.0
_TURN_SECONDS = 10.0
"""Flower ends what has not asked for its message within 30 s."""
_CONTENT_SECONDS = 600.0
"""As long as a server waits for an answer, unless it says otherwise."""
_FIRST_WAIT, _LONGEST_WAIT = 0.25, 1.0
_OWN_FILE = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
_LARGEST_CONFIG = 1 << 20
_CONFIG_FILE = "pyproject.toml"
RECEIVED, ANSWERED = "received", "answered"
"""Files beside the alerts, of which the time alone tells something."""
_PRECONDITION = 412
"""What Flower answers who asks once more for a task that has begun."""
_MESSAGES = "messages"
"""A pipe, in which a line is what a message's process is started with."""
_EARLY = (
    *(
        "httpcore",
        "jinja2",
        "matplotlib.backends.backend_agg",
        "matplotlib.figure",
        "numpy.ma",
        "numpy.polynomial",
    ),
    *(
        "numpy.random",
        "pydantic.dataclasses",
        "cryptography.hazmat.primitives.ciphers.aead",
    ),
    *("cryptography.hazmat.primitives.asymmetric.x25519", "threadpoolctl"),
)
"""What apps import besides Flower; whichever is not installed is left out."""
_SEAMS = (
    "install_from_fab",
    "get_project_dir",
    "install_app_dependencies",
    "get_load_client_app_fn",
)
"""The last one is a ClientApp's; a ServerApp is loaded from the folder alone."""
_INFLATE = "pull_and_inflate_object_from_tree"
_WRAPPED = ("pull_task_input", "push_message", "push_task_output", _INFLATE)
"""What asks for a ClientApp's message and its content, and answers and remembers it."""
# A server can send refused apps for ever, and a full disk would stop the ledger.
_LONGEST_ALERTS = 1_000_000


class GuardError(Exception):
    """An app is not approved, or the guard cannot do its work.

    In both cases nothing runs.
    """


@dataclass(frozen=True)
class Bytecode:
    """What a fork knows of apps that were compiled before it, and where it tells of one
    that was not.
    """

    known: Mapping[str, Mapping[str, bytes]] = field(repr=False)
    """Files by their path in the app, by its hash."""
    pipe: int
    """To what has the fork's beginning.

    It is closed before the app runs, which could write there otherwise.
    """

    def write(
        self,
        digest: str,
        target: Path,
        archive: zipfile.ZipFile,
    ) -> None:
        """Add what the bytes that were hashed compile to.

        Python holds it against no file, which may have changed.
        """
        with os.fdopen(self.pipe, "wb") as pipe:
            files = self.known.get(digest)
            if files is None:
                names = [name for name in archive.namelist() if name.endswith(".py")]
                files = {
                    importlib.util.cache_from_source(name): _compiled(
                        archive.read(name), name
                    )
                    for name in names
                }
                with contextlib.suppress(BrokenPipeError):
                    pipe.write(marshal.dumps({digest: files}))
                    pipe.flush()
        for name, content in files.items():
            (target / name).parent.mkdir(exist_ok=True)
            (target / name).write_bytes(content)


def _compiled(source: bytes, name: str) -> bytes:
    """What Python reads in the place of a file without a look at it.

    Nothing where that is no Python.
    """
    with contextlib.suppress(SyntaxError, ValueError):
        code = marshal.dumps(
            compile(
                source,
                name,
                "exec",
                dont_inherit=True,
            )
        )
        return (
            importlib.util.MAGIC_NUMBER
            + b"\1\0\0\0"
            + importlib.util.source_hash(source)
            + code
        )
    return b""


@dataclass(frozen=True)
class Guard:
    """What a node allows, and where apps and alerts go."""

    allowed: frozenset[str]
    """SHA-256 of whole FABs, 64 lower-case hexadecimal digits each."""
    folder: Path
    """Private folder in which every message's app is unpacked anew."""
    alerts: Path
    """File that gets a line for each refused app."""
    bytecode: Bytecode | None = None
    """Without it, Python compiles what it imports."""

    def unpack(self, content: bytes) -> Path:
        """Write an approved app (a whole FAB) into a new folder, or refuse it with a
        GuardError.

        The folder did not exist before, so that nobody can have put anything in it.
        Refused is an app whose hash is not on the list, or that could lead elsewhere,
        and a node whose own folder could.
        """
        content = bytes(
            content
        )  # what is hashed is what is unpacked, whatever the caller still holds
        digest = hashlib.sha256(content).hexdigest()
        if digest not in self.allowed:
            raise self._refusal(
                digest, "only approved apps run here, and this is none of them"
            )
        try:
            require_plain(content)
            require_private(self.folder)
        except GuardError as error:
            raise self._refusal(digest, str(error)) from error
        for (
            left
        ) in self.folder.iterdir():  # a process that was killed could not tidy up
            if not _is_alive(left.name.partition("-")[0]):
                shutil.rmtree(left, ignore_errors=True)
        target = Path(
            tempfile.mkdtemp(prefix=f"{os.getpid()}-{digest}-", dir=self.folder)
        )
        try:
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                archive.extractall(target)
                if self.bytecode:
                    self.bytecode.write(digest, target, archive)
        except OSError as error:
            shutil.rmtree(target, ignore_errors=True)
            raise GuardError(
                f"{target} cannot be written ({error.strerror}): make room on its disk."
            ) from error
        return target

    def _refusal(
        self,
        digest: str,
        reason: str,
    ) -> GuardError:
        """Tell the node's operator, in a file (Flower drops what some programs print)
        and on the error stream.
        """
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        line = (
            f"{when} ALERT app refused: SHA-256 {digest}, {_run()}; {reason}; nothing"
            " of it was unpacked or run.\n"
        )
        sys.stderr.write(line)
        sys.stderr.flush()
        try:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
            with os.fdopen(os.open(self.alerts, flags, 0o600), "a") as file:
                if file.tell() < _LONGEST_ALERTS:
                    file.write(line)
        except OSError as error:
            sys.stderr.write(
                f"the alert could not be written into {self.alerts}"
                f" ({error.strerror}).\n"
            )
        return GuardError(
            f"{reason} (SHA-256 {digest}): ask who operates this machine to review it."
        )


def _is_alive(process: str) -> bool:
    try:
        os.kill(int(process), 0)
    except (ProcessLookupError, ValueError, OverflowError):
        return False
    except PermissionError:  # it has become another user's
        return True
    return True


def _run() -> str:
    """Which run the app came with, if Flower has said so by now."""
    from flwr.supercore.task_identity import TaskIdentity

    try:
        return f"run {TaskIdentity.run_id}"
    except RuntimeError:
        return "no run"


def digest_of(content: bytes) -> str:
    """Return the hash (64 hexadecimal digits) that approves an app (a whole FAB), if it
    may be approved at all.
    """
    require_plain(content)
    return hashlib.sha256(content).hexdigest()


def require_plain(content: bytes) -> None:
    """Refuse an app whose name, version or members say more than a plain name.

    a reviewer may overlook it.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
            config = tomllib.loads(_config_text(archive))
        names = (
            config["tool"]["flwr"]["app"]["publisher"],
            config["project"]["name"],
            config["project"]["version"],
        )
    except GuardError:
        raise
    except Exception as error:
        # Of archives that are encrypted, or damaged, or nested for Python's reader to
        # give up, each module raises errors of its own.
        raise GuardError(f"the app is no FAB ({type(error).__name__})") from error
    for name in names:
        if not (isinstance(name, str) and _PLAIN_NAME.fullmatch(name)):
            raise GuardError(
                f"the app's publisher, name or version is {str(name)[:100]!r}, which is"
                " no plain name"
            )
    if len({member.filename for member in members}) < len(members):
        raise GuardError("the app has two members of one name")
    for member in members:
        parts = PurePosixPath(member.filename).parts
        kind = stat.S_IFMT(member.external_attr >> 16)
        if parts[-1:] and parts[-1].endswith((".pyc", ".pyo")):
            raise GuardError(
                f"the app's member {member.filename[:100]!r} is compiled, so nobody can"
                " review it"
            )
        if (
            "/" in parts[:1]
            or ".." in parts
            or set("\\:\0") & set(member.orig_filename)
            or kind == stat.S_IFLNK
        ):
            raise GuardError(
                f"the app's member {member.filename[:100]!r} is a link or leads out of"
                " its folder"
            )


def _config_text(archive: zipfile.ZipFile) -> str:
    """Read an app's configuration, but no more than anybody writes.

    What it inflates to may fill the memory.
    """
    member = archive.getinfo(_CONFIG_FILE)
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        # Python's module inflates whole blocks of the others before it counts.
        raise GuardError(
            f"the app's {_CONFIG_FILE} is compressed by method {member.compress_type},"
            " not by 0 or 8"
        )
    with archive.open(member) as file:
        content = file.read(_LARGEST_CONFIG + 1)
    if len(content) > _LARGEST_CONFIG:
        raise GuardError(
            f"the app's {_CONFIG_FILE} has more than {_LARGEST_CONFIG} bytes, which is"
            " the most"
        )
    return content.decode()


def require_private(folder: Path) -> None:
    """Refuse a folder that another user, or a link, could put something else in the
    place of.
    """
    facts = os.lstat(folder) if os.path.lexists(folder) else None
    if facts is None or not stat.S_ISDIR(facts.st_mode):
        raise GuardError(
            f"{folder} is no folder, or a link: make it anew with mode 700"
        )
    if facts.st_uid != os.geteuid() or facts.st_mode & 0o077:
        raise GuardError(
            f"{folder} has mode {stat.S_IMODE(facts.st_mode):o} and belongs to user"
            f" {facts.st_uid}, but it must be of this user ({os.geteuid()}) with mode"
            " 700: chown and chmod it"
        )
    for parent in folder.absolute().parents:
        mode = os.stat(parent).st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise GuardError(
                f"everybody may write to {parent}, which leads to {folder}: chmod"
                " o-w it"
            )


def write_programs(
    guard: Guard,
    folder: Path,
    app: str = CLIENT_APP,
) -> dict[str, str]:
    """Write every program that Flower starts for apps as a guarded script, and return
    the environment to use.

    The guard goes into the scripts, so a change needs a new start; the folder is
    replaced if it is there. Apps of the one kind are run, if they are approved, and of
    no other. The variables are for what starts ``flower-superexec``. PATH has this
    folder alone: if a script could not be run, Flower would take the next program of
    that name, which guards nothing. A list with something else than hashes, or a system
    that does not run programs in this folder, is a GuardError.
    """
    from flwr.supercore.constant import TASK_TYPE_TO_COMMAND

    if not guard.allowed or not all(
        _HASH.fullmatch(digest) for digest in guard.allowed
    ):
        raise GuardError(
            "the allowed apps must be SHA-256 hashes of 64 lower-case hexadecimal"
            " digits, at least one"
        )
    for parent in (guard.folder, folder):
        if parent.is_symlink():
            raise GuardError(f"{parent} is a link: remove it")
        shutil.rmtree(parent, ignore_errors=True)
        parent.mkdir(mode=0o700, parents=True)
        require_private(parent)
    for name in (*TASK_TYPE_TO_COMMAND.values(), SUPEREXEC):
        # Agents, and servers on a node, have no business there: no app at all is
        # allowed to them.
        allowed = ",".join(sorted(guard.allowed)) if name in (app, SUPEREXEC) else ""
        words = [
            sys.executable,
            "-I",
            "-B",
            "-Wignore::DeprecationWarning:__main__",
            str(Path(__file__).absolute()),
        ]
        _write_script(
            folder / name,
            [
                *words,
                app,
                allowed,
                str(guard.folder),
                str(guard.alerts),
                str(folder / name),
            ],
        )
    os.mkfifo(folder / _MESSAGES, 0o600)
    for name in (*TASK_TYPE_TO_COMMAND.values(), SUPEREXEC):
        if shutil.which(name, path=str(folder)) != str(folder / name):
            raise GuardError(
                f"{folder / name} cannot be run (a disk mounted with noexec?): choose"
                " another home"
            )
    return {
        "PATH": str(folder),
        "PYTHONSAFEPATH": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    }


def _write_script(path: Path, words: list[str]) -> None:
    """A shell script, because the first line of a script has no room for long names and
    spaces.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700)
    with os.fdopen(descriptor, "w") as file:
        file.write(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')


def missing_seams(app: str = CLIENT_APP) -> list[str]:
    """Return the functions that this version of Flower should call, but does not.

    Without them nothing may run.
    """
    module = importlib.import_module(_RUNNING[app][1])
    called = getattr(module, module.__name__.rpartition(".")[2]).__code__.co_names
    wanted, wrapped = (_SEAMS, _WRAPPED) if app == CLIENT_APP else (_SEAMS[:-1], ())
    absent = [name for name in wrapped if not hasattr(module, name)]
    return [
        name for name in wanted if name not in called or not hasattr(module, name)
    ] + absent


def put_before_flower(
    guard: Guard,
    app: str = CLIENT_APP,
    reporter: Reporter | None = None,
) -> None:
    """Put the guard in the place of what Flower installs and loads apps with, in this
    process.

    The server also names the folder that Flower would load from (id, version and hash
    of a run are its own words), so what was unpacked here is loaded, whatever they say;
    Flower then still holds id and version against the app's own. A version of Flower
    that works in another way is a GuardError. `reporter` is told, before a ClientApp is
    unpacked, what to answer if it is killed.
    """
    from flwr.clientapp.client_app import LoadClientAppError
    from flwr.clientapp.utils import get_load_client_app_fn

    running: Any = importlib.import_module(_RUNNING[app][1])
    if missing := missing_seams(app):
        raise GuardError(
            f"this version of Flower does not call {missing[0]}, which the guard stands"
            " before: update it"
        )
    unpacked: list[Path] = []

    def install(content: bytes, *_: object, **__: object) -> Path:
        unpacked.clear()
        try:
            target = guard.unpack(content)
        except GuardError as error:
            raise LoadClientAppError(str(error)) from error
        # At the very end: before it Flower saves what the app remembers, and has 5 s
        # for all that it does at its end.
        atexit.register(shutil.rmtree, target, ignore_errors=True)
        unpacked.append(target)
        return target

    def folder(*_: object) -> Path:
        if not unpacked:
            raise LoadClientAppError("no approved app was unpacked.")
        return unpacked[0]

    def load(*_: object, **__: object) -> Callable[..., Any]:
        return get_load_client_app_fn(
            default_app_ref="", app_path=str(folder()), multi_app=True
        )

    def install_dependencies(*_: object, **__: object) -> None:
        raise LoadClientAppError("a guarded node installs nothing at run time.")

    for name, own in zip(
        _SEAMS, (install, folder, install_dependencies, load), strict=True
    ):
        setattr(running, name, own)
    if app == CLIENT_APP:
        running.push_message = _saving(
            running, guard.alerts.with_name(ANSWERED), reporter
        )
        turn = guard.alerts.with_name("turn.lock")
        running.pull_task_input = _in_turn(running.pull_task_input, turn)
        setattr(running, _INFLATE, _unless_late(getattr(running, _INFLATE), turn))
        if reporter is not None:
            running.pull_task_input = _telling(running.pull_task_input, reporter.answer)


@dataclass(frozen=True)
class Reporter:
    """Pipes to what a process was forked from, which reports its end if it is killed."""

    answer: int
    """Takes what to answer then.

    It is closed before the app runs, which could write there otherwise.
    """
    begun: int
    """Takes a byte before the app's own answer is sent.

    a second answer would stand in for the next message's.
    """


def note(file: Path) -> None:
    """Give an empty file the time of now.

    Where that cannot be, nothing of a message depends on it.
    """
    with contextlib.suppress(OSError):
        descriptor = os.open(file, _OWN_FILE, 0o600)
        try:
            os.utime(descriptor)
        finally:
            os.close(descriptor)


def _saving(
    running: Any,
    answered: Path,
    reporter: Reporter | None,
) -> Callable[..., None]:
    """What sends a reply, and then at once what the app remembers, which Flower does
    last of all that a process does.

    On a busy machine the next message would find what the one before remembered, or,
    where Flower's patience of 5 s with its own end is over, find that for ever: what a
    run has cost is lost then.
    """
    push = running.push_message

    def pushed(
        client: Any,
        message: Any,
        context: Any,
    ) -> None:
        if reporter is not None:
            os.write(reporter.begun, b"1")
        push(client, message, context)
        note(answered)
        if not message.has_error():  # of an error Flower has the words
            status, remembered = (
                running.SubStatus.COMPLETED,
                running.context_to_proto(context),
            )
            client.PushTaskOutput(
                running.PushTaskOutputRequest(
                    context=remembered, sub_status=status, details=""
                )
            )
            running.push_task_output = lambda **_: None

    return pushed


def _in_turn(pull: Callable[..., Any], lock: Path) -> Callable[..., Any]:
    """What asks for a message when the process of the one before has ended, and with it
    saved what it remembers.

    The lock's first byte is held by whose turn it is, until it ends; the second one by
    who waits for it.
    """

    def pulled(client: Any) -> Any:
        since = time.monotonic()
        try:
            # None that an app starts inherits it.
            turn = os.open(lock, _OWN_FILE, 0o600)
            while not _locked(turn, 0) and time.monotonic() - since < _TURN_SECONDS:
                _locked(turn, 1)
                time.sleep(_TURN_SECONDS / 200)
            fcntl.lockf(
                turn,
                fcntl.LOCK_UN,
                1,
                1,
            )
        except (
            OSError
        ) as error:  # a message that is not asked for, Flower would wait for, for ever
            sys.stderr.write(
                f"{lock} cannot be locked ({error.strerror}): remove it, so that"
                " messages take turns.\n"
            )
        return pull(client)

    return pulled


def _unless_late(inflate: Callable[..., Any], lock: Path) -> Callable[..., Any]:
    """What waits for a message's content, and no longer when the process of a later
    message waits for its turn.

    A SuperNode that is told in between that the run has ended drops the content without
    a word to this process, which would ask for it for more than an hour. It takes no
    further message before it has all of one or has dropped it.
    """

    def inflated(
        tree: Any, pull: Callable[[str], bytes], *others: Any, **more: Any
    ) -> Any:
        from flwr.supercore.inflatable.inflatable_utils import (
            ObjectPullError,
            ObjectUnavailableError,
        )

        try:
            turn = os.open(lock, _OWN_FILE, 0o600)
        except OSError:  # which was said when the message was asked for
            return inflate(
                tree,
                pull,
                *others,
                **more,
            )

        def pulled(name: str) -> bytes:
            try:
                return pull(name)
            except ObjectUnavailableError:
                if not _locked(turn, 1):
                    raise ObjectPullError(
                        name, "a later message is here, so this one's run has ended."
                    ) from None
                fcntl.lockf(
                    turn,
                    fcntl.LOCK_UN,
                    1,
                    1,
                )
                raise

        waits = {"initial_backoff": _FIRST_WAIT, "backoff_cap": _LONGEST_WAIT}
        limits = {"max_time": _CONTENT_SECONDS, "max_tries_per_object": None}
        return inflate(
            tree,
            pulled,
            *others,
            **(waits | limits | more),
        )

    return inflated


def _locked(file: int, place: int) -> bool:
    """Take one byte's lock, unless another process has it."""
    try:
        fcntl.lockf(
            file,
            fcntl.LOCK_EX | fcntl.LOCK_NB,
            1,
            place,
        )
    except (BlockingIOError, PermissionError):
        return False
    return True


def _telling(pull: Callable[..., Any], tell: int) -> Callable[..., Any]:
    """What asks for a message, and tells what to answer if its app is killed."""

    def pulled(client: Any) -> Any:
        found = pull(client)
        with os.fdopen(tell, "wb") as pipe:
            pipe.write(pickle.dumps(_crashed(*found)))
        return found

    return pulled


def _crashed(message: Any, context: Any, *_: object) -> tuple[int, Any]:
    flower: Any = importlib.import_module(_RUNNING[CLIENT_APP][1])
    error = flower.Error(flower.ErrorCode.CLIENT_APP_CRASHED, "ClientApp was killed.")
    return context.node_id, flower.Message(error, reply_to=message)


def _stood_by(
    app: str,
    words: list[str],
    answered: Path,
    others: int,
) -> Reporter:
    """Go on in a fork, and return the pipes to what it was forked from, which waits
    until it has ended.
    """
    prepared, answer = os.pipe()
    started, begun = os.pipe()
    if not (process := os.fork()):
        for other in (prepared, started):
            os.close(other)
        return Reporter(answer, begun)
    try:
        for other in (answer, begun, others):
            os.close(other)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        with os.fdopen(prepared, "rb") as pipe:
            content = pipe.read()
        status = os.waitpid(process, 0)[1]
        if os.WIFSIGNALED(status) and not _has_byte(started):
            _report(
                app,
                words,
                content,
                signal.Signals(os.WTERMSIG(status)).name,
            )
            note(answered)
    except Exception as error:
        sys.stderr.write(
            f"the end of an app that was killed could not be reported ({error!r}): if"
            " Flower does not notice it within a minute, the SuperNode ends, and its"
            " unit starts it again.\n"
        )
    finally:
        os._exit(0)


def _has_byte(pipe: int) -> bool:
    """Whether something was written into a pipe, also if another process still holds
    its end.
    """
    os.set_blocking(pipe, False)
    try:
        return bool(os.read(pipe, 1))
    except BlockingIOError:
        return False


def _report(
    app: str,
    words: list[str],
    prepared: bytes,
    why: str,
) -> None:
    """Say in the place of an app that it was killed, with what Flower itself says with
    how one ends.
    """
    flower: Any = importlib.import_module(_RUNNING[CLIENT_APP][1])
    options, retries = (
        dict(itertools.pairwise(words)),
        flower.make_simple_http_retry_invoker(),
    )
    retries.max_time = (
        _REPORT_SECONDS  # what it would be said to may have been killed, too
    )
    client = flower.RuntimeHttpClient.from_server_address(
        *(
            options["--runtime-api-address"],
            "--insecure" in words,
            options.get("--root-certificates"),
        ),
        [
            flower.RuntimeVersionHttpInterceptor(app),
            flower.RuntimeTokenHttpInterceptor(options["--token"]),
        ],
        retry_invoker=retries,
    )
    if app == CLIENT_APP:
        # A task that ends without an answer would be waited for for ever, so that it is
        # pulled if that was not done.
        node, message = pickle.loads(prepared) if prepared else _answer_for(client)
        flower.push_message(
            client,
            message,
            SimpleNamespace(node_id=node, run_id=message.metadata.run_id),
        )
    details = (
        f"its app was killed ({why}); what nodes have charged stays charged: look at"
        " ledgers, start a new run."
    )
    client.PushTaskOutput(
        flower.PushTaskOutputRequest(
            sub_status=flower.SubStatus.FAILED, details=details
        )
    )


def _answer_for(client: Any) -> tuple[int, Any]:
    """Pull the message of an app that was killed before it had it, and return what to
    answer.

    One that was killed between its first two questions has begun its task, but has not
    taken its message: nobody can begin the task once more, and of a message that was
    not taken Flower never notices that nobody answers. Where the message was taken,
    Flower answers by itself when it misses the signs of life, which ending the task
    would prevent.
    """
    import httpx

    flower: Any = importlib.import_module(_RUNNING[CLIENT_APP][1])
    try:
        return _crashed(*flower.pull_task_input(client))
    except httpx.HTTPStatusError as error:
        if error.response.status_code != _PRECONDITION:
            raise
    taken = client.PullMessages(flower.PullAppMessagesRequest())
    if not taken.messages_list:
        raise GuardError("its message was taken, and Flower answers it within a minute")
    from flwr.common.serde import message_from_proto

    message = message_from_proto(taken.messages_list[0])
    return _crashed(message, SimpleNamespace(node_id=message.metadata.dst_node_id))


def _forked(messages: Path) -> tuple[list[str], Bytecode] | None:
    """Leave a twin behind, which ends with this process (None), and return in each of
    its forks what one was sent.
    """
    ended, alive = os.pipe()
    waiting = os.open(
        messages, os.O_RDWR
    )  # with a writer of its own it has no end; what comes before the twin is kept
    if os.fork():
        os.close(waiting)
        return None  # holds `alive` as long as it lives
    os.close(alive)
    for name in _EARLY:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    # A fork that looks for garbage writes to all objects that it shares, and each page
    # is copied: half of its time.
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    known, told = dict[str, Mapping[str, bytes]](), dict[int, bytearray]()
    while ended not in (ready := select.select([ended, waiting, *told], [], [])[0]):
        for fork in told.keys() & ready:
            chunk = os.read(fork, 2**20)
            told[fork] += chunk
            if not chunk:
                os.close(fork)
                with contextlib.suppress(
                    EOFError
                ):  # it had nothing to tell, or was killed while it told
                    known |= marshal.loads(told.pop(fork))
        for line in os.read(waiting, 2**16).splitlines() if waiting in ready else ():
            heard, tell = os.pipe()
            if not os.fork():
                signal.signal(signal.SIGINT, signal.default_int_handler)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for own in (ended, waiting, heard, *told):
                    os.close(own)
                words: list[str] = json.loads(line)
                return words, Bytecode(known, tell)
            os.close(tell)
            told[heard] = bytearray()
    os._exit(0)


def _handed_over(messages: Path, words: list[str]) -> bool:
    """Whether there is a twin to fork the process of a message.

    So short a line arrives as a whole.
    """
    try:
        descriptor = os.open(messages, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return False
    with os.fdopen(descriptor, "wb", buffering=0) as pipe:
        pipe.write(json.dumps(words).encode() + b"\n")
    return True


def main(arguments: Collection[str]) -> None:
    """Run one message's app, if it is approved, or start apps.

    The arguments are the script's and then Flower's own.
    """
    app, allowed, folder, alerts, script, *own = arguments
    name, bytecode, reporter = Path(script).name, None, None
    messages = Path(script).with_name(_MESSAGES)
    if name == CLIENT_APP == app:
        note(Path(alerts).with_name(RECEIVED))
    if name == app and _handed_over(messages, own):
        return
    run = getattr(importlib.import_module(_RUNNING[app][0]), app.replace("-", "_"))
    if name == SUPEREXEC:
        forked = _forked(messages)
        if forked is None:
            from flwr.supercore.cli import flower_superexec

            sys.argv = [SUPEREXEC, *own]
            flower_superexec()
            return
        own, bytecode = forked
        reporter = _stood_by(
            app,
            own,
            Path(alerts).with_name(ANSWERED),
            bytecode.pipe,
        )
    os.environ["PATH"] = (
        os.defpath
    )  # that of the machine leads to the guarded programs alone
    guard = Guard(
        frozenset(filter(None, allowed.split(","))),
        Path(folder),
        Path(alerts),
        bytecode,
    )
    put_before_flower(guard, app, reporter)
    # A task that an agent was asked for is answered with the refusal, too: without an
    # answer the SuperNode waits. An app tells by this name that its process answers one
    # message and has a guard.
    sys.argv = [f"guarded {app if name == SUPEREXEC else name}", *own]
    run()


if __name__ == "__main__":
    main(sys.argv[1:])
