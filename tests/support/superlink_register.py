"""What a SuperLink answers to its operator, over the operator's own certificates."""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from flwr.proto.control_pb2 import (
    ListNodesResponse,
    RegisterNodeRequest,
    RegisterNodeResponse,
)
from flwr.proto.node_pb2 import NodeInfo

from flwr_dpkmeans.deploy.server_options import ServerOptions


class Register(ThreadingHTTPServer):
    """A SuperLink's register, which its operator asks and writes to.

    Attributes
    ----------
    nodes_info : list of NodeInfo
        Who is registered.
    is_healthy : bool
        Whether it says so when it is asked.
    is_up : bool
        Whether it answers its operator.
    """

    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", port), _Answers)
        self.nodes_info: list[NodeInfo] = []
        self.is_healthy = True
        self.is_up = True

    def register(self, request: RegisterNodeRequest) -> None:
        """Write a node down."""
        self.nodes_info.append(
            NodeInfo(
                node_id=10**18 + len(self.nodes_info),
                public_key=request.public_key,
                name=request.name,
                status="registered",
                registered_at="2026-11-23T08:00:00.123+00:00",
            )
        )

    def answer(
        self, path: str, content: bytes
    ) -> ListNodesResponse | RegisterNodeResponse:
        """Reply to a request of the operator."""
        if path.endswith("/list-nodes"):
            return ListNodesResponse(nodes_info=self.nodes_info)
        assert path.endswith("/register-node"), path
        self.register(RegisterNodeRequest.FromString(content))
        return RegisterNodeResponse()


class _Answers(BaseHTTPRequestHandler):
    server: Register

    def do_GET(self) -> None:
        assert self.path == "/health"
        self._send(200 if self.server.is_healthy else 503, b"")

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["content-length"]))
        if self.server.is_up:
            self._send(200, self.server.answer(self.path, content).SerializeToString())

    def _send(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Not on the test's own output."""


@contextlib.contextmanager
def operated(options: ServerOptions) -> Iterator[Register]:
    """Serve a register, empty at first, where the operator looks for the SuperLink."""
    with Register(options.port) as register:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        folder = options.certificates
        context.load_cert_chain(folder / "server.pem", folder / "server.key")
        register.socket = context.wrap_socket(register.socket, server_side=True)
        thread = threading.Thread(
            target=register.serve_forever, kwargs={"poll_interval": 0.02}
        )
        thread.start()
        try:
            yield register
        finally:
            register.shutdown()
            thread.join()
