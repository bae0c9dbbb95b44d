"""Flower's SuperNode, which looks three times as often for messages and replies; with --wait it waits to be let in."""

import contextlib
import sys
import time
from types import SimpleNamespace

import httpx
from flwr.proto.fleet_pb2 import ActivateNodeRequest, ActivateNodeResponse
from flwr.supernode import fleet_http_connection, start_client_internal
from flwr.supernode.cli import flower_supernode
from flwr.supernode.fleet_http_client import FleetHttpClient


class PatientClient(FleetHttpClient):
    """Waits while the SuperLink takes a node that was killed for connected, as it does for a minute."""

    def ActivateNode(self, request: ActivateNodeRequest) -> ActivateNodeResponse:
        """Be let in; whom it refuses for longer it does not know."""
        for tried in range(75):
            with contextlib.suppress(httpx.HTTPStatusError):
                return super().ActivateNode(request)
            if not tried:
                print("waiting for the SuperLink to miss this node's last process, for a minute", file=sys.stderr)
            time.sleep(1.0)
        return super().ActivateNode(request)


if __name__ == "__main__":
    # Of 3 s and 0.5 s. A version of Flower that waits elsewhere keeps its own pace.
    vars(start_client_internal)["time"] = SimpleNamespace(sleep=lambda seconds: time.sleep(seconds / 3))
    if sys.argv[1:2] == ["--wait"]:
        vars(fleet_http_connection)["FleetHttpClient"] = PatientClient
        del sys.argv[1]
    flower_supernode()
