"""Flower's SuperNode, which asks for messages every second: its own 3 s are most of a round trip."""

import time
from types import SimpleNamespace

from flwr.supernode import start_client_internal
from flwr.supernode.cli import flower_supernode

if __name__ == "__main__":
    # A version of Flower that waits elsewhere keeps its own pace.
    vars(start_client_internal)["time"] = SimpleNamespace(sleep=lambda seconds: time.sleep(min(seconds, 1.0)))
    flower_supernode()
