"""What stands in the files of conversations and refusals, and how a client is led
through them.

A message is ``{"fields": {...}, "vector": ...}``. Bytes are ``{"hex": "..."}``, or
``{"utf8": "..."}`` where they are text; texts and numbers are themselves, but what JSON
has no number for is ``{"number": "nan"}``. A vector is its words, or the parts of a
malformed array.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from support.machine import replace_entropy

from flwr_dpkmeans.flower.in_process_grid import InProcessGrid, Node

FOLDER = Path(__file__).parent
RECORD, VECTOR = "dpkmeans", "dpkmeans.vector"
LAYOUT = {"name": "vector", "dtype": "uint64", "stype": "flwr-dpkmeans.little-endian"}
CONVERSATIONS = ("oblivious", "distributed")
"""That the page on the client's side tells of."""
OTHERS = ("counted", "server_points", "recovered")
"""Of plans that a client need not know: it may refuse them at once."""
KINDS = (
    *("keys", "first_sum", "next_sum", "retry", "after_retry", "finish", "stop"),
    *("readable_next_sum", "readable_retry", "readable_finish"),
)
OTHER_KINDS = (
    *("count", "final_plan", "server_state", "server_state_again", "server_result"),
    *("share", "shared_sum", "unmask", "unmasked_sum", "unmasked_finish"),
)
Json = dict[str, Any]
App = Callable[[Message, Context], Message]


def read_json(name: str) -> Json:
    """One of the files."""
    return dict(json.loads((FOLDER / f"{name}.json").read_text()))


def write_json(name: str, content: Json) -> None:
    """Write one of the files."""
    text = json.dumps(content, indent=1) + "\n"
    (FOLDER / f"{name}.json").write_text(text)


# -- messages --------------------------------------------------------------------------


def value_of(stored: Any) -> Any:
    """A field as it travels."""
    if not isinstance(stored, dict):
        return stored
    if "utf8" in stored:
        return str(stored["utf8"]).encode()
    if "number" in stored:
        return float(stored["number"])
    return bytes.fromhex(stored["hex"])


def stored_value(name: str, value: Any) -> Any:
    """Undo `value_of`; a plan is text."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"number": str(value)}
    if not isinstance(value, bytes):
        return value
    if name == "plan":
        return {"utf8": value.decode()}
    return {"hex": value.hex()}


def content_of(stored: Json) -> RecordDict:
    """A message's records."""
    fields = {name: value_of(value) for name, value in stored["fields"].items()}
    content = RecordDict({stored.get("record", RECORD): ConfigRecord(fields)})
    vector = stored["vector"]
    if isinstance(vector, list):
        words = np.array(vector, dtype="<u8")
        vector = {"shape": [len(words)], "hex": words.tobytes().hex()}
    if vector is not None:
        parts = LAYOUT | vector
        data = bytes.fromhex(parts["hex"])
        shape = tuple(parts["shape"])
        array = Array(
            dtype=parts["dtype"], shape=shape, stype=parts["stype"], data=data
        )
        content[VECTOR] = ArrayRecord({parts["name"]: array})
    return content


def stored_content(content: RecordDict) -> Json:
    """Undo `content_of`, of a well-formed message."""
    record = content.config_records[RECORD]
    fields = {name: stored_value(name, value) for name, value in record.items()}
    words = None
    if VECTOR in content:
        data = content.array_records[VECTOR]["vector"].data
        words = np.frombuffer(data, dtype="<u8").tolist()
    return {"fields": fields, "vector": words}


def header_of(message: Json) -> Json:
    """Entries of a stored message's header."""
    return dict(json.loads(message["fields"]["header"]))


def without_release(message: Json) -> Json:
    """A stored message that does not say which release of a package sent it."""
    header = header_of(message)
    header.pop("package", None)
    fields = message["fields"] | {"header": json.dumps(header)}
    return message | {"fields": fields}


def mutated(message: Json, changes: Json) -> Json:
    """A message with other fields; None takes one away."""
    fields = message["fields"] | changes.get("fields", {})
    present = {name: value for name, value in fields.items() if value is not None}
    vector = changes.get("vector", message["vector"])
    record = changes.get("record", RECORD)
    return {"record": record, "fields": present, "vector": vector}


def packed_boxes(boxes: Mapping[int, bytes]) -> bytes:
    """Boxes end to end, in the order in which they are given."""
    heads = [(struct.pack("<QI", node, len(box)), box) for node, box in boxes.items()]
    return b"".join([head + box for head, box in heads])


# -- entropy ---------------------------------------------------------------------------


class Entropy:
    """Bytes that everybody may know, in place of the operating system's.

    Draw number i, from 0 on, of n bytes of one node is SHAKE-256 of ``"<label>, node
    <node>, <n> bytes, number <i>"``, n bytes long.
    """

    def __init__(self, label: str, node: int) -> None:
        self.label = f"{label}, node {node}"
        self.n_drawn: Counter[int] = Counter()

    def __call__(self, n_bytes: int) -> bytes:
        text = f"{self.label}, {n_bytes} bytes, number {self.n_drawn[n_bytes]}"
        self.n_drawn[n_bytes] += 1
        return hashlib.shake_256(text.encode()).digest(n_bytes)


@contextmanager
def drawn_from(entropy: Callable[[], Entropy | None]) -> Iterator[None]:
    """Have the package draw keys, nonces and polynomials from what is named."""
    draw = os.urandom

    def urandom(n_bytes: int) -> bytes:
        source = entropy()
        # Names of messages (UUIDs) are of 16 bytes.
        if source is None or n_bytes == 16:
            return draw(n_bytes)
        return source(n_bytes)

    with pytest.MonkeyPatch.context() as patch:
        replace_entropy(patch, urandom)
        yield


# -- one client, and everything that is sent to it -------------------------------------


class Interview:
    """A client of one conversation, which is asked what a file says."""

    def __init__(self, app: App, conversation: Json, entropy: Entropy) -> None:
        self.conversation = conversation
        self.node = int(conversation["node_id"])
        self.entropy = entropy
        # Nodes of a grid count from 2.
        nobody = [Node(app)] * (self.node - 1)
        self.grid = InProcessGrid(nobody, run_id=int(conversation["run_id"]))

    @property
    def steps(self) -> list[Json]:
        """Requests with their replies."""
        return list(self.conversation["steps"])

    @property
    def state(self) -> Any:
        """What Flower remembers for the client."""
        records = self.grid.contexts[self.node].state.config_records
        return {name: dict(record) for name, record in records.items()}

    def ask(self, message: Json, age: float = 0.0) -> Json:
        """The reply to one message, which was made so many seconds ago."""
        is_last = header_stage(message) == "finish"
        kind = "evaluate" if is_last else "train"
        with self.grid.running(), drawn_from(lambda: self.entropy):
            request = Message(content_of(message), self.node, kind)
            request.metadata.__dict__["_created_at"] -= age
            (reply,) = self.grid.send_and_receive([request])
        assert not reply.has_error()
        return stored_content(reply.content)

    def lead(self, n_steps: int) -> None:
        """Go through the first steps, each answered as the file says."""
        for step in self.steps[:n_steps]:
            self.require_accepted(step)

    def require_accepted(self, step: Json) -> None:
        """A request that nobody changed is answered, to the last bit."""
        reply = without_release(self.ask(step["request"]))
        assert reply == step["reply"]

    def require_refused(self, message: Json, age: float = 0.0) -> Json:
        """A refusal, and nothing but it; the client draws nothing that counts."""
        n_drawn = Counter(self.entropy.n_drawn)
        reply = self.ask(message, age)
        assert set(reply["fields"]) == {"header"}, reply
        assert reply["vector"] is None
        header = header_of(reply)
        assert set(header) == {"status", "code", "sentence"}
        assert header["status"] == "refused", header
        self.entropy.n_drawn = n_drawn
        return header


def header_stage(message: Json) -> object:
    """What a message says it is, if it says anything."""
    try:
        return header_of(message)["stage"]
    except (KeyError, TypeError, ValueError, RecursionError):
        return None
