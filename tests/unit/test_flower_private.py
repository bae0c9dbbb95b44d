"""What is private in Flower is as it was read: a change must be read again first."""

from __future__ import annotations

import ast
import hashlib
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from flwr.proto.node_pb2 import NodeInfo
from support.machine import install_flower

from flwr_dpkmeans.deploy.finding import NoteError
from flwr_dpkmeans.deploy.findings import require_tried_flower
from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.flower import _private

PUBLIC = {"flwr.app", "flwr.clientapp"}

SIGNATURES = {
    "flwr.cli.build:build_fab_from_disk": "app",
    "flwr.cli.flower_config:read_superlink_connection": "connection_name",
    "flwr.clientapp.utils:get_load_client_app_fn": (
        "default_app_ref, app_path, multi_app"
    ),
    "flwr.common.config:get_fused_config_from_dir": "project_dir, override_config",
    "flwr.common.config:get_project_config": "project_dir",
    "flwr.common.config:parse_config_args": "config, flatten",
    "flwr.supercore.cli:flower_superexec": "",
    "flwr.superlink.cli:flwr_serverapp": "",
    "flwr.supernode.cli:flower_supernode": "",
    "flwr.supernode.cli:flwr_clientapp": "",
    "flwr.supercore.control:ControlHttpClient": (
        "base_url, interceptors, verify, timeout, retry_invoker"
    ),
    "flwr.supercore.control:ControlHttpClient.ListNodes": "self, request",
    "flwr.supercore.control:ControlHttpClient.RegisterNode": "self, request",
    "flwr.supercore.control:ControlHttpClient.from_server_address": (
        "server_address, insecure, root_certificates, interceptors, retry_invoker"
    ),
    "flwr.supercore.error:FlowerError": "code, message, public_details",
    "flwr.supercore.error:FlowerError.from_json": "value",
    "flwr.supercore.interceptors.http.runtime_version:RuntimeVersionHttpInterceptor": (
        "component_name"
    ),
    "flwr.supercore.primitives.asymmetric:public_key_to_bytes": "public_key",
    "flwr.supercore.run:Run.create_empty": "run_id",
    "flwr.supercore.utils:get_flwr_home": "",
    "flwr.supernode.fleet_http_client:FleetHttpClient": (
        "base_url, interceptors, verify, timeout, retry_invoker"
    ),
    "flwr.supernode.fleet_http_client:FleetHttpClient.ActivateNode": "self, request",
    "flwr.supernode.fleet_http_client:FleetHttpClient.DeactivateNode": "self, request",
    "flwr.supernode.fleet_http_client:FleetHttpClient._unary_unary": (
        "self, path, rpc_method, request, response_type, timeout"
    ),
    "flwr.supernode.fleet_http_client:FleetHttpClient.from_server_address": (
        "server_address, insecure, root_certificates, interceptors, retry_invoker"
    ),
    "flwr.supernode.node_auth_http_interceptor:NodeAuthHttpInterceptor": (
        "private_key, public_key"
    ),
}
"""Parameters of what is called."""

SOURCES = {
    "flwr.cli.install:install_from_fab": "481bd04cde582322",
    "flwr.clientapp.utils:get_load_client_app_fn": "f7790dd641bafaff",
    "flwr.common.config:get_fused_config_from_fab": "59c2e88a52e5ef07",
    "flwr.common.config:get_project_dir": "155c70517e73e598",
    "flwr.supercore.exit:flwr_exit": "1445f36e9999abb4",
    "flwr.supercore.inflatable.inflatable_utils:pull_and_inflate_object_from_tree": (
        "139811483a15e4a6"
    ),
    "flwr.supercore.inflatable.inflatable_utils:pull_objects": "31bb2de46b450e6a",
    "flwr.superlink.runtime.run_serverapp:run_serverapp": "2cf00cc3bc7ef87c",
    "flwr.supernode.nodestate.in_memory_nodestate:InMemoryNodeState"
    "._store_error_replies": "3af03090bfae3ea7",
    "flwr.supernode.nodestate.in_memory_nodestate:InMemoryNodeState"
    "._on_task_tokens_expired": "a181b661f768cc12",
    "flwr.supernode.runtime.run_clientapp:pull_task_input": "5607a23e1673ee87",
    "flwr.supernode.runtime.run_clientapp:push_message": "07cb512c93e065a9",
    "flwr.supernode.runtime.run_clientapp:push_task_output": "9206407456e79e17",
    "flwr.supernode.runtime.run_clientapp:run_clientapp": "6ce09559f3a2f5dc",
    "flwr.supernode.servicer.runtime.runtime_handlers:pull_messages": (
        "49089949d9fd1246"
    ),
    "flwr.supernode.servicer.runtime.runtime_handlers:pull_task_input": (
        "035e6c69a7cffcad"
    ),
    "flwr.supernode.servicer.runtime.runtime_handlers:push_task_output": (
        "1d148b25ce523291"
    ),
    "flwr.supernode.start_client_internal:_pull_and_store_message": "eaf5d0e36dc34e4c",
    "flwr.supernode.start_client_internal:_push_messages": "00bb86faffdec114",
}
"""Digests of what is replaced, and of what it is replaced in or stands before.

One that has changed must be read again, with what stands before it; then its digest
goes here.
"""

FIELDS = {
    "flwr.proto.control_pb2:ListNodesRequest": (),
    "flwr.proto.control_pb2:RegisterNodeRequest": ("public_key", "location", "name"),
    "flwr.proto.fleet_pb2:ActivateNodeRequest": ("public_key", "heartbeat_interval"),
    "flwr.proto.fleet_pb2:DeactivateNodeRequest": ("node_id",),
}

VALUES: dict[str, object] = {
    "flwr.cli.constant:LOCAL_SUPERLINK_ADDRESS_MAGIC_VALUE": ":local:",
    "flwr.cli.constant:LOCAL_SUPERLINK_ADDRESS_MAGIC_VALUE_IN_MEMORY": (
        ":local-in-memory:"
    ),
    "flwr.common.constant:ErrorCode.CLIENT_APP_RAISED_EXCEPTION": 2,
    "flwr.common.constant:ErrorCode.NODE_UNAVAILABLE": 5,
    "flwr.common.constant:Status.FINISHED": "finished",
    "flwr.common.constant:Status.RUNNING": "running",
    "flwr.common.constant:HEARTBEAT_MIN_INTERVAL": 10,
    "flwr.supercore.error:ApiErrorCode.FLEET_NODE_ACTIVATION_FAILED": 2004,
    "flwr.supercore.error:ApiErrorCode.FLEET_INVALID_HEARTBEAT_INTERVAL": 2003,
    "flwr.supercore.exit:ExitCode.SERVERAPP_STRATEGY_AGGREGATION_ERROR": 202,
    "flwr.supercore.task_identity:TaskIdentity._node_id": None,
    "flwr.supercore.task_identity:TaskIdentity._run_id": None,
    "flwr.supercore.task_identity:TaskIdentity._task_id": None,
}

CLASSES = {
    "flwr.app.exception:AppExitException": Exception,
    "flwr.clientapp.client_app:LoadClientAppError": Exception,
    "flwr.supercore.run:RunNotRunningException": BaseException,
}


def thing(place: str) -> Any:
    """What ``module:name`` names."""
    module, names = place.split(":")
    value = importlib.import_module(module)
    for name in names.split("."):
        value = getattr(value, name)
    return value


@pytest.mark.parametrize("place", SIGNATURES)
def test_what_is_called_takes_what_it_took(place: str) -> None:
    assert ", ".join(inspect.signature(thing(place)).parameters) == SIGNATURES[place]


@pytest.mark.parametrize("place", SOURCES)
def test_what_is_replaced_is_as_it_was_read(place: str) -> None:
    source = inspect.getsource(thing(place))
    assert hashlib.sha256(source.encode()).hexdigest()[:16] == SOURCES[place]


@pytest.mark.parametrize("place", FIELDS)
def test_a_message_has_the_fields_that_it_had(place: str) -> None:
    assert (
        tuple(field.name for field in thing(place).DESCRIPTOR.fields) == FIELDS[place]
    )


@pytest.mark.parametrize("place", VALUES)
def test_a_constant_has_the_value_that_it_had(place: str) -> None:
    assert thing(place) == VALUES[place]


@pytest.mark.parametrize("place", CLASSES)
def test_an_error_is_of_the_kind_that_it_was(place: str) -> None:
    assert issubclass(thing(place), CLASSES[place])


def test_a_node_is_listed_with_what_is_shown_of_it() -> None:
    names = {field.name for field in NodeInfo.DESCRIPTOR.fields}
    assert names >= {"node_id", "name", "public_key", "status", "registered_at"}
    assert names >= {"last_activated_at", "last_deactivated_at"}


def test_every_program_that_flower_starts_is_known() -> None:
    assert set(_private.task_programs()) == {
        "flwr-agentapp", "flwr-clientapp", "flwr-connector", "flwr-model",
        "flwr-serverapp", "flwr-simulation",
    }  # fmt: skip


def test_everything_private_that_is_used_is_looked_at_here() -> None:
    looked_at = [*SIGNATURES, *FIELDS, *VALUES, *CLASSES]
    names = {re.sub(r"(:\w+).*", r"\1", place) for place in looked_at}
    names |= {"flwr.supercore.constant:TASK_TYPE_TO_COMMAND", "flwr.supercore.run:Run"}
    tree = ast.parse(Path(_private.__file__).read_text())
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    used = {
        f"{node.module}:{alias.name}"
        for function in functions
        for node in ast.walk(function)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("flwr.")
        for alias in node.names
        if node.module not in PUBLIC
    }
    assert len(used) > 20
    assert used - names == set()


def test_a_flower_that_was_not_tried_is_refused_unless_its_operator_takes_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for version in ("1.41.0", "1.42.0", "1.42.7"):
        install_flower(monkeypatch, tmp_path, version)
        assert require_tried_flower(allow_untested=False) == f"Flower {version}"
    for version in ("1.40.2", "1.43.0", "2.0"):
        install_flower(monkeypatch, tmp_path, version)
        with pytest.raises(ConfigurationError, match=r"was not tried: 1\.41 and"):
            require_tried_flower(allow_untested=False)
        with pytest.raises(NoteError, match="allow-untested-flower takes it"):
            require_tried_flower(allow_untested=True)
