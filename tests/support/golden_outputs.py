"""What a run plans, sends, charges and says, as digests that restructuring keeps.

Renew: ``PYTHONPATH=.:tests:tests/runs python -P tests/support/golden_outputs.py``.
A digest may change only where a change of what others see is meant; the commit that
renews the file says why.
"""

from __future__ import annotations

import ast
import hashlib
import itertools
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from flwr.app import Message

from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.wire import dump_plan
from support.golden_runs import rounded
from support.protocol_federation import grid_parts, make_federation, small_config

FILE = Path(__file__).with_name("golden_outputs.json")
SENTENCES = Path(__file__).with_name("golden_sentences.txt")
PACKAGE = Path(__file__).resolve().parents[2] / "flwr_dpkmeans"


def digest(content: bytes) -> str:
    """Short, since a line of the file is read by a person."""
    return hashlib.sha256(content).hexdigest()[:16]


def plan_configurations() -> Iterator[tuple[str, dict[str, Any], int]]:
    """Configurations of runs with their names and numbers of clients."""
    shared = {"n_clusters": 3, "bounds": ((-1.0,), (1.0,)), "random_state": 5}
    variants: dict[str, tuple[dict[str, Any], int]] = {
        "plain": ({"n_examples": 1000}, 4),
        "counted": ({}, 4),
        "private bounds": (
            {"bounds": ((-9.0,), (9.0,)), "private_bounds": True, "epsilon": 8.0},
            5,
        ),
        "evaluated": (
            {"n_examples": 900, "evaluation": "private", "n_classes": 3},
            3,
        ),
        "recovering": ({"n_examples": 90_000, "dropout": "recover"}, 150),
    }
    algorithms = ("proxy_lloyd", "fastlloyd", "glloyd", "sulloyd")
    trusts = ("oblivious", "central", "distributed")
    for algorithm, trust, (variant, (values, n_clients)) in itertools.product(
        algorithms, trusts, variants.items()
    ):
        if algorithm == "sulloyd" and trust == "distributed":
            continue
        name = f"plan {algorithm} {trust} {variant}"
        chosen = shared | {"algorithm": algorithm, "trust": trust} | values
        yield name, chosen, n_clients


def plan_line(values: dict[str, Any], n_clients: int) -> str:
    """Digest of the bytes that every node is sent, or the sentence that refuses."""
    try:
        plan = draft_plan(
            parse_config(**values), run_id=3, n_clients=n_clients, seed=7, n_features=2
        )
    except ValueError as error:
        return f"refused: {error}"
    return digest(dump_plan(plan))


def described(message: Message) -> list[Any]:
    """Names, types and sizes of all that a message has; keys and masks are random."""
    content = message.content
    arrays = [
        [record, name, array.dtype, list(array.shape)]
        for record, values in content.array_records.items()
        for name, array in values.items()
    ]
    others = [
        [record, name, type(value).__name__]
        for records in (content.config_records, content.metric_records)
        for record, values in records.items()
        for name, value in values.items()
    ]
    return [message.metadata.message_type, sorted(arrays), sorted(others)]


def traffic(trust: str) -> str:
    """Digest of every message of one run, in the order of directions and nodes."""
    federation = make_federation(grid_parts([60, 70, 80]), run_id=77)
    messages: list[Any] = []

    def note(batch: list[Message]) -> list[Message]:
        messages.append(sorted((described(message) for message in batch), key=str))
        return batch

    federation.faults.on_send = note
    federation.faults.on_receive = note
    federation.start(small_config(trust=trust, max_iter=3, n_examples=210))
    return digest(json.dumps(messages).encode())


def ledger_lines() -> str:
    """Digest of what a run of three rounds leaves in a node's ledger."""
    federation = make_federation(grid_parts([60, 70, 80]), run_id=78)
    federation.start(small_config(max_iter=3, n_examples=210))
    (entries,) = {
        json.dumps(
            [
                [e.round_index, e.attempt, e.is_release, rounded(e.epsilon)]
                for e in ledger.entries()
            ]
        )
        for ledger in federation.ledgers.values()
    }
    return digest(entries.encode())


def sentence_of(node: ast.expr) -> str:
    """A text as it is written, with ``{}`` for what is put into it."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(
            part.value
            if isinstance(part, ast.Constant) and isinstance(part.value, str)
            else "{}"
            for part in node.values
        )
    if isinstance(node, ast.BinOp):
        return sentence_of(node.left) + sentence_of(node.right)
    return ""


def refusals() -> list[str]:
    """Every sentence with which the package's code refuses something."""
    sentences = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                texts = [sentence_of(value) for value in node.exc.args]
                sentences |= {" ".join(text.split()) for text in texts if text}
    return sorted(sentences)


def entries() -> dict[str, Callable[[], str]]:
    """Names of what is compared, with what computes it."""
    lines: dict[str, Callable[[], str]] = {
        name: partial(plan_line, values, n_clients)
        for name, values, n_clients in plan_configurations()
    }
    for trust in ("oblivious", "central", "distributed"):
        lines[f"messages {trust}"] = partial(traffic, trust)
    lines["ledger"] = ledger_lines
    return lines


if __name__ == "__main__":
    FILE.write_text(
        json.dumps({name: line() for name, line in entries().items()}, indent=0) + "\n"
    )
    SENTENCES.write_text("\n".join(refusals()) + "\n")
