"""What a SuperLink answers to a node that only asks, over TLS or without, with a clock
of its own.
"""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from flwr.proto.fleet_pb2 import ActivateNodeRequest

from flwr_dpkmeans.deploy import node_check, node_command
from flwr_dpkmeans.deploy.node_options import NodeOptions
from flwr_dpkmeans.deploy.superlink_answer import Answer

KNOWN, UNKNOWN = 2003, 2004


class StandIn(ThreadingHTTPServer):
    """Refuses every request with Flower's code."""

    code, status = KNOWN, 412
    is_online = False
    """Whether a node with the key is connected."""
    ahead = 0.0
    """Seconds that its clock is before this machine's."""
    next_statuses: tuple[int, ...] = ()
    """What it answers to the next requests."""

    def take_status(self) -> int:
        """The status of one answer."""
        if not self.next_statuses:
            return self.status
        status, *rest = self.next_statuses
        self.next_statuses = tuple(rest)
        return status

    @property
    def address(self) -> str:
        """As node.toml has it."""
        return f"127.0.0.1:{self.server_port}"


class _Refuses(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        assert isinstance(self.server, StandIn)
        body = self.rfile.read(int(self.headers["content-length"]))
        asked = ActivateNodeRequest.FromString(body)
        is_refused = self.server.is_online and asked.heartbeat_interval > 0
        code = UNKNOWN if is_refused else self.server.code
        status = self.server.take_status()
        self.send_response(status)
        content = (
            json.dumps({"code": code, "detail": "no"}).encode()
            if status == 412
            else b""
        )
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def date_time_string(self, timestamp: float | None = None) -> str:
        assert isinstance(self.server, StandIn)
        return super().date_time_string(time.time() + self.server.ahead)

    def log_message(self, *_: object) -> None:
        """Not on the test's own output."""


@contextlib.contextmanager
def standing_in(
    certificate: Path | None = None, key: Path | None = None
) -> Iterator[StandIn]:
    """Serve on loopback until the block ends."""
    with StandIn(("127.0.0.1", 0), _Refuses) as server:
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, key)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.02}
        )
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def replace_answer(
    patch: pytest.MonkeyPatch, ask: Callable[[NodeOptions], Answer]
) -> None:
    """Let ``ask(options)`` say what a node hears when it asks for its SuperLink."""
    for module in (node_check, node_command):
        patch.setattr(module, "ask", ask)
