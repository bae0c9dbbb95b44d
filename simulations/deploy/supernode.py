"""Flower's SuperNode, which looks three times as often for messages and replies; with --wait it waits to be let in."""

import contextlib
import sys
import time
from types import SimpleNamespace
from typing import Any

import httpx
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    ActivateNodeResponse,
    DeactivateNodeRequest,
    DeactivateNodeResponse,
)
from flwr.supernode import fleet_http_connection, start_client_internal
from flwr.supernode.cli import flower_supernode
from flwr.supernode.fleet_http_client import FleetHttpClient

_PATIENCE = 75
_REFUSED = (
    "the SuperLink refuses this node: its clock is 5 s ahead or 305 s behind (set it, such as by NTP), or its operator "
    "has unregistered it, or it has a new database (start this node again)"
)


class PatientClient(FleetHttpClient):
    """Waits while the SuperLink takes a node that was killed for connected, or finds this one's clock wrong.

    For the first it takes a minute; at the second Flower's own client ends its node, without a word on why.
    """

    _is_in = False

    def ActivateNode(self, request: ActivateNodeRequest) -> ActivateNodeResponse:
        """Be let in; whom it refuses for longer it does not know."""
        for tried in range(_PATIENCE):
            with contextlib.suppress(httpx.HTTPStatusError):
                answer = super().ActivateNode(request)
                self._is_in = True
                return answer
            if not tried:
                print("waiting for the SuperLink to miss this node's last process, for a minute", file=sys.stderr)
            time.sleep(1.0)
        return super().ActivateNode(request)

    def DeactivateNode(self, request: DeactivateNodeRequest) -> DeactivateNodeResponse:
        """Leave, and wait for nothing any more."""
        self._is_in = False
        return super().DeactivateNode(request)

    def _unary_unary(self, *given: Any, **named: Any) -> Any:
        """Ask, and sign anew while the SuperLink refuses a node that is in; then it is Flower's turn."""
        for tried in range(_PATIENCE * self._is_in):
            try:
                return super()._unary_unary(*given, **named)
            except httpx.HTTPStatusError as error:
                if error.response.status_code != httpx.codes.UNAUTHORIZED:
                    raise
            if not tried:
                print(f"{_REFUSED}; waiting for {_PATIENCE} s, then this node ends", file=sys.stderr, flush=True)
            time.sleep(1.0)
        return super()._unary_unary(*given, **named)


if __name__ == "__main__":
    # Of 3 s and 0.5 s. A version of Flower that waits elsewhere keeps its own pace.
    vars(start_client_internal)["time"] = SimpleNamespace(sleep=lambda seconds: time.sleep(seconds / 3))
    if sys.argv[1:2] == ["--wait"]:
        vars(fleet_http_connection)["FleetHttpClient"] = PatientClient
        del sys.argv[1]
    flower_supernode()
