"""What is private in Flower and this package cannot do without.

One function for each thing, which says what it is needed for and what Flower does; no
other file of the package imports what Flower's documentation does not offer to apps.
All was read in flwr `READ_IN`. A test fails when one of these changes
(``tests/unit/test_flower_private.py``), and nodes and servers do not start with a minor
version that is not among `TRIED`, unless their operator says so.

Functions of Flower are replaced at run time by those here whose names begin with
``replace``: each names the hole that nothing else closes.

Imports nothing of this project, and of Flower only what a caller asks for: the programs
that stand before Flower's load this file by its path.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import (
        EllipticCurvePrivateKey,
        EllipticCurvePublicKey,
    )
    from flwr.app import Context, UserConfig
    from flwr.clientapp import ClientApp
    from flwr.proto.fleet_pb2 import (
        ActivateNodeRequest,
        ActivateNodeResponse,
        DeactivateNodeRequest,
        DeactivateNodeResponse,
    )
    from flwr.proto.node_pb2 import NodeInfo as NodeInfo
    from flwr.supercore.control import ControlHttpClient as ControlHttpClient
    from flwr.supercore.run import Run as Run
    from flwr.supernode.fleet_http_client import FleetHttpClient

READ_IN = "1.42.0"
"""The version of flwr that was read; these functions are the same in 1.41.0."""
TRIED = ("1.41", "1.42")
"""Minor versions that a federation was tried with."""

CLIENT_APP, SERVER_APP = "flwr-clientapp", "flwr-serverapp"
"""Flower's programs that run an app."""
_PROGRAMS = {
    CLIENT_APP: ("flwr.supernode.cli", "flwr_clientapp"),
    SERVER_APP: ("flwr.superlink.cli", "flwr_serverapp"),
}
_RUNTIMES = {
    CLIENT_APP: ("flwr.supernode.runtime.run_clientapp", "run_clientapp"),
    SERVER_APP: ("flwr.superlink.runtime.run_serverapp", "run_serverapp"),
}
"""What pulls, unpacks, loads and answers, by the program that calls it."""
_INSTALL = ("install_from_fab", "get_project_dir", "install_app_dependencies")
_LOAD = "get_load_client_app_fn"
_PUSH, _OUTPUT = "push_message", "push_task_output"
_INFLATE = "pull_and_inflate_object_from_tree"
_NODE_LOOP = "flwr.supernode.start_client_internal"
_READ_CONFIG, _WAIT_FOR_REPLY = "get_fused_config_from_fab", "_push_messages"
_CALLERS = {
    _READ_CONFIG: "_pull_and_store_message",
    _WAIT_FOR_REPLY: "start_client_internal",
}
"""Which function of the SuperNode's loop calls what is replaced there."""
_PATIENCE = 75
"""Seconds: a SuperLink misses a node that was killed after a minute."""
_REFUSED = (
    "the SuperLink refuses this node: its clock is 5 s ahead or 305 s behind (set it,"
    " such as by NTP), or its operator has unregistered it, or it has a new database"
    " (start this node again)"
)

Load = Callable[[str, str, str], "ClientApp"]
"""``load(id, version, hash)`` loads an app, if these are its own."""
ONLINE_ALREADY = (
    "this key is online already: another node uses it (give each its own key), or this"
    " node was killed less than a minute ago (wait, or start with --wait)"
)

Install = Callable[[bytes], Path]
"""``install(content)`` unpacks a FAB into a folder, or raises."""
ReadConfig = Callable[[bytes, "Run"], "UserConfig"]
"""``read(content, run)`` is a run's configuration over the defaults of its app, a whole
FAB.
"""
WaitForReply = Callable[..., None]
"""Flower's function that waits for a message's reply and sends it."""


# -- versions --------------------------------------------------------------------------


def flower_version() -> str:
    """Version of flwr that is installed."""
    return version("flwr")


def is_tried(flower: str) -> bool:
    """Whether a federation was tried with a version of flwr, such as ``"1.42.0"``."""
    return ".".join(flower.split(".")[:2]) in TRIED


# -- programs --------------------------------------------------------------------------


def app_program(app: str) -> Callable[[], None]:
    """Entry point of ``flwr-clientapp`` or ``flwr-serverapp``, which a guard calls."""
    module, name = _PROGRAMS[app]
    return _function(module, name)


def superexec_program() -> Callable[[], None]:
    """Entry point of ``flower-superexec``, which starts a program for each message."""
    return _function("flwr.supercore.cli", "flower_superexec")


def supernode_program() -> Callable[[], None]:
    """Entry point of ``flower-supernode``."""
    return _function("flwr.supernode.cli", "flower_supernode")


def task_programs() -> tuple[str, ...]:
    """Names of all programs that ``flower-superexec`` may start, to guard each."""
    from flwr.supercore.constant import TASK_TYPE_TO_COMMAND

    return tuple(TASK_TYPE_TO_COMMAND.values())


def _function(module: str, name: str) -> Callable[[], None]:
    function: Callable[[], None] = getattr(importlib.import_module(module), name)
    return function


# -- apps ------------------------------------------------------------------------------


def run_of_process() -> int | None:
    """Id of the run that this process has a message of; None before it is known.

    For the alert on a refused app.
    """
    from flwr.supercore.task_identity import TaskIdentity

    return TaskIdentity._run_id


def app_refusal(sentence: str) -> Exception:
    """What makes Flower answer a message with "the app cannot be loaded"."""
    from flwr.clientapp.client_app import LoadClientAppError

    return LoadClientAppError(sentence)


def client_app_loader(folder: Path) -> Load:
    """Flower's own function that loads a ClientApp by id, version and hash.

    From one folder.

    It holds id and version against the app's own.
    """
    from flwr.clientapp.utils import get_load_client_app_fn

    return get_load_client_app_fn(
        default_app_ref="", app_path=str(folder), multi_app=True
    )


def is_of_client_fn(app: ClientApp) -> bool:
    """Whether an app was made of a ``client_fn``, such as one of NumPyClients.

    The records that it answers are others than those of Flower's Message API.
    """
    return app._call is not None


def missing_app_seams(app: str) -> list[str]:
    """Functions that a guard replaces and this version of Flower does not call.

    Without them nothing may run.
    """
    runtime = _runtime(app)
    called = getattr(runtime, _RUNTIMES[app][1]).__code__.co_names
    if app == CLIENT_APP:
        wanted = [*_INSTALL, _LOAD, _PUSH]
        absent = [name for name in (_OUTPUT, _INFLATE) if not hasattr(runtime, name)]
    else:
        wanted, absent = [*_INSTALL], []
    return [
        name for name in wanted if name not in called or not hasattr(runtime, name)
    ] + absent


def replace_app_installation(
    app: str,
    install: Install,
    load: Callable[[Path], Load] = client_app_loader,
) -> None:
    """Let `install` unpack each app, and load what it has unpacked by `load`.

    Whatever else the server says.

    The hole: Flower unpacks any FAB that comes, into a folder that the FAB's own
    version names, uses what lies there already, and loads from the folder that the
    run's id, version and hash name, which are the server's words. Nothing of it asks
    first. A run's dependencies it may install with all rights of the node.
    """
    unpacked: list[Path] = []

    def install_from_fab(content: bytes, *_: object, **__: object) -> Path:
        unpacked.clear()
        unpacked.append(install(content))
        return unpacked[0]

    def get_project_dir(*_: object) -> Path:
        if not unpacked:
            raise app_refusal("no approved app was unpacked.")
        return unpacked[0]

    def install_app_dependencies(*_: object, **__: object) -> None:
        raise app_refusal("a guarded node installs nothing at run time.")

    def get_load_client_app_fn(*_: object, **__: object) -> Load:
        return load(get_project_dir())

    runtime = vars(_runtime(app))
    runtime["install_from_fab"] = install_from_fab
    runtime["get_project_dir"] = get_project_dir
    runtime["install_app_dependencies"] = install_app_dependencies
    if app == CLIENT_APP:
        runtime[_LOAD] = get_load_client_app_fn


def replace_reply(after: Callable[[], None]) -> None:
    """Save what a ClientApp remembers at once behind its reply, and call `after` then.

    The hole: Flower saves it last of all that a process does, has 5 s for that and
    tries once. On a busy machine the run's next message finds what the one before
    remembered, for ever if the 5 s were over: what the run has cost is lost then.
    """
    runtime = _runtime(CLIENT_APP)
    push, push_output = vars(runtime)[_PUSH], vars(runtime)[_OUTPUT]

    def push_message(client: object, message: object, context: Context) -> None:
        push(client, message, context)
        after()
        # Of an error Flower has the words, and saves nothing.
        if not message.has_error():  # type: ignore[attr-defined]
            push_output(
                client=client,
                context=context,
                sub_status=runtime.SubStatus.COMPLETED,
                details="",
            )
            vars(runtime)[_OUTPUT] = lambda **_: None

    vars(runtime)[_PUSH] = push_message


def replace_wait_for_content(seconds: float) -> None:
    """Let a ClientApp's process wait for the content of its message for some seconds.

    The hole: a SuperNode that is told that a run has ended drops the content of its
    message without a word to the process, which asks for it for more than an hour.
    """
    runtime = vars(_runtime(CLIENT_APP))
    runtime[_INFLATE] = functools.partial(runtime[_INFLATE], max_time=seconds)


def _runtime(app: str) -> ModuleType:
    return importlib.import_module(_RUNTIMES[app][0])


# -- a SuperNode -----------------------------------------------------------------------


def missing_node_seams() -> list[str]:
    """Functions of the SuperNode's loop that are replaced but never called.

    By this version of Flower.
    """
    loop = importlib.import_module(_NODE_LOOP)
    missing = []
    for name, caller in _CALLERS.items():
        function = getattr(loop, caller, None)
        called = () if function is None else function.__code__.co_names
        if name not in called or not hasattr(loop, name):
            missing.append(name)
    return missing


def replace_config_reader(around: Callable[[ReadConfig], ReadConfig]) -> None:
    """Put a reader around what reads an app's configuration in the SuperNode.

    The hole: it inflates and parses the ``pyproject.toml`` of any app that a run
    brings, in the SuperNode itself and before a process with a guard exists: 290 kB
    become 600 MB, and what it raises ends the node.

    The report for Flower, on 1.42.0: a SuperNode parses the configuration of any app
    before anything could refuse it. `start_client_internal._pull_and_store_message`
    calls `get_fused_config_from_fab` in the SuperNode's own process for a run's first
    message, and `get_fab_config` reads the whole ``pyproject.toml``. To repeat: a FAB
    of 290 kB, whose ``pyproject.toml`` has 300 MB of spaces in a comment, takes some
    600 MB of each SuperNode. A file that cannot be parsed ends the SuperNode. To mend:
    compare ``hashlib.sha256(fab.content)`` with the run's hash; read with a limit;
    answer with an error; parse in the app's process.
    """
    loop = vars(importlib.import_module(_NODE_LOOP))
    loop[_READ_CONFIG] = around(loop[_READ_CONFIG])


def replace_wait_for_reply(around: Callable[[WaitForReply], WaitForReply]) -> None:
    """Put a watch around what waits for a message's reply in the SuperNode.

    The hole: it waits for ever, also where nothing is left that could give a reply.
    Such a node is dead inside, and "online" for everybody else.

    The report for Flower, on 1.42.0: a SuperNode waits for ever for the reply of an app
    that died early. `_push_messages` loops until
    ``get_messages_legacy(is_reply=True)`` returns something. If a ClientApp's process
    is killed after `PullTaskInput` and before `PullMessages`, its task expires, but
    `_store_error_replies` answers retrieved messages only. The SuperNode takes in
    nothing more, while ``flwr supernode list`` says "online". To repeat: ``kill -9`` a
    ClientApp's process in its first 100 ms. To mend: answer every message of an expired
    task without a complete reply; bound both loops; watch the child process.
    """
    loop = vars(importlib.import_module(_NODE_LOOP))
    loop[_WAIT_FOR_REPLY] = around(loop[_WAIT_FOR_REPLY])


def run_is_over() -> BaseException:
    """What the SuperNode's loop catches, and leaves a message alone by."""
    from flwr.supercore.run import RunNotRunningException

    return RunNotRunningException()


def task_statuses() -> tuple[str, str]:
    """What a SuperNode calls a task that runs, and one that is over."""
    from flwr.common.constant import Status

    return Status.RUNNING, Status.FINISHED


def replace_fleet_client() -> None:
    """Let the SuperNode wait to be let in, and wait while its clock is wrong.

    The hole: for a minute the SuperLink takes a node that was killed for connected, and
    lets none of its key in; and at the first refusal, such as of a wrong clock,
    Flower's client ends its node without a word on why.
    """
    connection = importlib.import_module("flwr.supernode.fleet_http_connection")
    vars(connection)["FleetHttpClient"] = patient_client()


@functools.cache
def patient_client() -> type[FleetHttpClient]:
    """Flower's client of a SuperNode, but that it waits and says so."""
    import httpx
    from flwr.supernode.fleet_http_client import FleetHttpClient

    class PatientClient(FleetHttpClient):
        """Waits where the SuperLink refuses, for 75 s; then it is Flower's turn."""

        _is_in = False

        def ActivateNode(self, request: ActivateNodeRequest) -> ActivateNodeResponse:
            for attempt in range(_PATIENCE):
                with contextlib.suppress(httpx.HTTPStatusError):
                    answer = super().ActivateNode(request)
                    self._is_in = True
                    return answer
                if attempt == 0:
                    _say(
                        "waiting for the SuperLink to miss this node's last process,"
                        " for a minute"
                    )
                time.sleep(1.0)
            _say(ONLINE_ALREADY)
            return super().ActivateNode(request)

        def DeactivateNode(
            self, request: DeactivateNodeRequest
        ) -> DeactivateNodeResponse:
            self._is_in = False
            return super().DeactivateNode(request)

        def _unary_unary(self, *values, **options):  # type: ignore[no-untyped-def]
            n_attempts = _PATIENCE if self._is_in else 0
            for attempt in range(n_attempts):
                try:
                    return super()._unary_unary(*values, **options)
                except httpx.HTTPStatusError as error:
                    if error.response.status_code != httpx.codes.UNAUTHORIZED:
                        raise
                if attempt == 0:
                    _say(f"{_REFUSED}; waiting for {_PATIENCE} s, then this node ends")
                # Signed anew each time.
                time.sleep(1.0)
            return super()._unary_unary(*values, **options)

    return PatientClient


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


@contextlib.contextmanager
def fleet_client(
    address: str,
    authority: str | None,
    key: EllipticCurvePrivateKey,
    *,
    insecure: bool,
) -> Iterator[FleetHttpClient]:
    """Connect to a SuperLink as a SuperNode with a key does, for ``node check``."""
    from flwr.supernode.fleet_http_client import FleetHttpClient
    from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

    signature = NodeAuthHttpInterceptor(key, key.public_key())
    with FleetHttpClient.from_server_address(
        address, insecure, authority, [signature]
    ) as client:
        yield client


def impossible_activation(key: EllipticCurvePublicKey) -> ActivateNodeRequest:
    """What a SuperLink refuses even to nodes that it knows.

    So that nothing changes there: a heartbeat each 0 s.
    """
    from flwr.proto.fleet_pb2 import ActivateNodeRequest

    return ActivateNodeRequest(public_key=key_bytes(key), heartbeat_interval=0.0)


def refusal_in(text: str) -> tuple[bool, bool]:
    """Whether an answer's text is one of Flower's refusals.

    And whether that one is of the heartbeat: then the SuperLink knows the key.
    """
    from flwr.supercore.error import ApiErrorCode, FlowerError

    refusal = FlowerError.from_json(text)
    if refusal is None:
        return False, False
    return True, refusal.code == ApiErrorCode.FLEET_INVALID_HEARTBEAT_INTERVAL


def is_online(client: FleetHttpClient, key: EllipticCurvePublicKey) -> bool:
    """Whether a node is connected to a SuperLink by a key that it knows.

    Flower has no question for that, but lets no second node in. A node that is let in
    goes out again at once; a run that begins in between names it as missing, before
    anything is charged.
    """
    import httpx
    from flwr.common.constant import HEARTBEAT_MIN_INTERVAL
    from flwr.proto.fleet_pb2 import ActivateNodeRequest, DeactivateNodeRequest
    from flwr.supercore.error import ApiErrorCode, FlowerError

    request = ActivateNodeRequest(
        public_key=key_bytes(key), heartbeat_interval=HEARTBEAT_MIN_INTERVAL
    )
    try:
        answer = client.ActivateNode(request)
    except httpx.HTTPStatusError as error:
        refusal = FlowerError.from_json(error.response.text)
        code = ApiErrorCode.FLEET_NODE_ACTIVATION_FAILED
        return refusal is not None and refusal.code == code
    client.DeactivateNode(DeactivateNodeRequest(node_id=answer.node_id))
    return False


def key_bytes(key: EllipticCurvePublicKey) -> bytes:
    """A node's public key as the SuperLink keeps it."""
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes

    return public_key_to_bytes(key)


# -- a SuperLink -----------------------------------------------------------------------


def superlink_client(
    address: str, authority: bytes
) -> contextlib.closing[ControlHttpClient]:
    """Connect to a SuperLink as its operator.

    For ``server status`` and to let parties in.
    """
    from flwr.supercore.control import ControlHttpClient
    from flwr.supercore.interceptors.http.runtime_version import (
        RuntimeVersionHttpInterceptor,
    )

    interceptor = RuntimeVersionHttpInterceptor(component_name="flwr CLI")
    client = ControlHttpClient.from_server_address(
        address, False, authority, [interceptor]
    )
    return contextlib.closing(client)


def registered_nodes(client: ControlHttpClient) -> Sequence[NodeInfo]:
    """All SuperNodes that a SuperLink has ever known, with keys and names."""
    from flwr.proto.control_pb2 import ListNodesRequest

    nodes: Sequence[NodeInfo] = client.ListNodes(ListNodesRequest()).nodes_info
    return nodes


def register_node(client: ControlHttpClient, key: bytes, name: str) -> None:
    """Let a SuperNode in by its public key, under a name."""
    from flwr.proto.control_pb2 import RegisterNodeRequest

    client.RegisterNode(RegisterNodeRequest(public_key=key, name=name))


def is_local_superlink(name: str | None) -> bool:
    """Whether a connection of Flower's configuration file is this machine's simulation.

    None: the one that the file takes by default.
    """
    from flwr.cli.constant import (
        LOCAL_SUPERLINK_ADDRESS_MAGIC_VALUE,
        LOCAL_SUPERLINK_ADDRESS_MAGIC_VALUE_IN_MEMORY,
    )
    from flwr.cli.flower_config import read_superlink_connection

    return read_superlink_connection(name).address in (
        LOCAL_SUPERLINK_ADDRESS_MAGIC_VALUE,
        LOCAL_SUPERLINK_ADDRESS_MAGIC_VALUE_IN_MEMORY,
    )


# -- an app's files and settings -------------------------------------------------------


def packed_app(folder: Path) -> bytes:
    """The FAB that ``flwr run`` makes of a project, of which a node allows the hash."""
    from flwr.cli.build import build_fab_from_disk

    return build_fab_from_disk(folder)


def server_component(folder: Path) -> str:
    """What a project's ``pyproject.toml`` names as its ServerApp.

    A click.ClickException, OSError, KeyError or ValueError if it names none.
    """
    from flwr.common.config import get_project_config

    components = get_project_config(folder)["tool"]["flwr"]["app"]["components"]
    return str(components["serverapp"])


def app_config(
    folder: Path, overrides: Mapping[str, bool | float | int | str]
) -> UserConfig:
    """A project's run configuration as its ServerApp gets it, by flat keys."""
    from flwr.common.config import get_fused_config_from_dir

    return get_fused_config_from_dir(folder, dict(overrides))


def parsed_settings(texts: Sequence[str]) -> UserConfig:
    """Settings as Flower reads them from its command line, such as ``"k=3 eta=.1"``."""
    from flwr.common.config import parse_config_args

    return parse_config_args(list(texts))


def flower_home() -> Path:
    """Folder of Flower's own files, which all ServerApps of one SuperLink share."""
    from flwr.supercore.utils import get_flwr_home

    return get_flwr_home()


# -- runs in one process ---------------------------------------------------------------


def empty_run(run_id: int) -> Run:
    """What a Grid in this process says of its run."""
    from flwr.supercore.run import Run

    return Run.create_empty(run_id)


@contextlib.contextmanager
def process_of_run(run_id: int) -> Iterator[None]:
    """Let this process be a run's ServerApp for the length of a block.

    A `flwr.app.Message` takes sender and run from Flower's identity of the process.
    """
    from flwr.supercore.task_identity import TaskIdentity

    saved = TaskIdentity._task_id, TaskIdentity._run_id, TaskIdentity._node_id
    TaskIdentity.task_id = 1
    TaskIdentity.run_id = run_id
    TaskIdentity.node_id = 1
    try:
        yield
    finally:
        TaskIdentity._task_id, TaskIdentity._run_id, TaskIdentity._node_id = saved


def no_such_node() -> int:
    """Flower's error code of a message to a node that is not there."""
    from flwr.common.constant import ErrorCode

    return ErrorCode.NODE_UNAVAILABLE


def app_has_failed() -> int:
    """Flower's error code of a ClientApp that raised an exception."""
    from flwr.common.constant import ErrorCode

    return ErrorCode.CLIENT_APP_RAISED_EXCEPTION


# -- a ServerApp -----------------------------------------------------------------------


@functools.cache
def ended_run_error() -> type[Exception]:
    """Class of errors whose sentence Flower shows with the run (``flwr list``)."""
    from flwr.app.exception import AppExitException
    from flwr.supercore.exit import ExitCode

    class EndedError(AppExitException):
        exit_code = ExitCode.SERVERAPP_STRATEGY_AGGREGATION_ERROR
        # None: Flower logs what an app raises, and lines of code below a sentence look
        # like a mistake in the program.
        __traceback__ = property(lambda _: None, lambda *_: None)

    return EndedError
