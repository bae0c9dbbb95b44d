"""An operator reads who gave no reply and why, without an exception's text."""

from __future__ import annotations

import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.app.error import Error
from flwr.clientapp import ClientApp

from flwr_dpkmeans.flower.in_process_grid import InProcessGrid, Node
from flwr_dpkmeans.flower.messages.replies import error_text


def failed(code: int, source: int) -> Message:
    """What arrives in place of a reply."""
    with InProcessGrid([Node(ClientApp())]).running():
        asked = Message(RecordDict({"a": ConfigRecord({"b": 1})}), 2, "train")
        asked.metadata.__dict__["_message_id"] = "asked"
        reply = Message(Error(code=code, reason="row 7 is [1.0, 2.0]"), reply_to=asked)
    reply.metadata.__dict__["_src_node_id"] = source
    return reply


@pytest.mark.parametrize(
    ("code", "source", "text"),
    [
        (5, 1, "a node gave no reply: its SuperNode has given no sign of life for 60"
         " s, or has left"),
        (2, 77, "node 77 gave no reply: its app failed before it could answer"),
        (99, 77, "node 77 gave no reply: look at its log"),
    ],
)  # fmt: skip
def test_the_sentence_names_node_and_cause(code: int, source: int, text: str) -> None:
    assert error_text(failed(code, source)) == f"{text} (Flower's error code {code})"
