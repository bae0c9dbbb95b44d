"""Which data a ledger is for: what a node knows again, and how its owner goes on."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from support.ledger_entries import entry
from support.node_files import write_node
from support.superlink_stand_in import replace_answer

from flwr_dpkmeans.__main__ import main
from flwr_dpkmeans.data.loading.row_facts import RowFacts
from flwr_dpkmeans.data.rows import Rows
from flwr_dpkmeans.deploy.superlink_answer import Answer
from flwr_dpkmeans.errors import BudgetError
from flwr_dpkmeans.node.belonging import Belonging, belonging_path
from flwr_dpkmeans.node.identity import Identity
from flwr_dpkmeans.node.ledger_file import FileLedger

ROWS = np.random.default_rng(0).normal(size=(300, 2))
NAMES = ("age", "height")
SELF = "ab" * 32


def facts(rows: np.ndarray = ROWS, names: tuple[str, ...] = NAMES) -> RowFacts:
    return RowFacts.of(rows, names)


def charged(folder: Path, data_id: str = "ward-7") -> FileLedger:
    """A ledger of a run on `ROWS`."""
    ledger = FileLedger(folder / "ledger.jsonl")
    Belonging(ledger, data_id, SELF).note(facts())
    ledger.charge(entry(data_id=data_id))
    return ledger


@pytest.mark.parametrize(
    ("now", "words", "of_growing"),
    [
        (facts(), "", ""),
        (facts(ROWS[::-1]), "", ""),
        (facts(ROWS * [1, 2]), "", ""),
        (facts(ROWS[:11]), "fewer rows", "fewer rows"),
        (facts(ROWS[:299]), "fewer rows", "fewer rows"),
        (facts(np.vstack([ROWS, ROWS[:1]])), "more rows", ""),
        (facts(ROWS[:, ::-1]), "each other.s values .age, height", "each other's"),
        (facts(ROWS + 1), "other values in each column", ""),
        (facts(names=("age", "pulse")), "other columns", "other columns"),
        (facts(names=()), "other columns", "other columns"),
        (None, "", ""),
    ],
)
def test_other_data_under_the_same_name_are_told(
    tmp_path: Path, now: RowFacts | None, words: str, of_growing: str
) -> None:
    ledger = charged(tmp_path)
    for grows, expected in ((False, words), (True, of_growing)):
        problem = Belonging(ledger, "ward-7", SELF, grows=grows).problem(now)
        assert bool(problem) == bool(expected)
        assert re.search(expected, problem)


def test_other_names_keys_and_ledgers_are_told_with_fingerprints(
    tmp_path: Path,
) -> None:
    ledger = charged(tmp_path)
    problem = Belonging(ledger, "ward-8", SELF).problem()
    assert "knows nothing of 'ward-8', but of 'ward-7'" in problem
    problem = Belonging(ledger, "ward-7", "cd" * 32).problem()
    assert f"of the identity {SELF[:16]}, but this node's is {'cd' * 8}" in problem
    Belonging(ledger, "ward-7", SELF).note(facts())
    for file in tmp_path.glob("ledger.jsonl*"):
        if file != belonging_path(ledger.path):
            file.unlink()
    ledger = FileLedger(ledger.path)
    assert Belonging(ledger, "ward-7", SELF).problem(facts(ROWS[:1])) == ""
    ledger.charge(entry(data_id="ward-7", release="another's"))
    assert "is of a ledger that begins with" in Belonging(
        ledger, "ward-7", SELF
    ).problem(facts())


def test_what_has_grown_may_not_shrink_again_and_what_cost_nothing_binds_nobody(
    tmp_path: Path,
) -> None:
    ledger = charged(tmp_path)
    growing = Belonging(ledger, "ward-7", SELF, grows=True)
    more = facts(np.vstack([ROWS, ROWS]))
    growing.note(more)
    assert growing.problem(more) == ""
    assert "fewer rows" in growing.problem(facts())
    (tmp_path / "new").mkdir()
    uncharged = Belonging(FileLedger(tmp_path / "new" / "ledger"), "ward-7", SELF)
    uncharged.note(facts())
    uncharged.note(facts(ROWS[:11]))
    assert uncharged.problem(facts()) == ""


def test_rows_beyond_memory_are_known_by_their_number_alone(tmp_path: Path) -> None:
    ledger = charged(tmp_path)
    many = Rows((300, 2), lambda rows: ROWS[rows] + 1)
    assert Belonging(ledger, "ward-7", SELF).problem(RowFacts.of(many, NAMES)) == ""


def test_nothing_of_the_rows_stands_in_the_file(tmp_path: Path) -> None:
    ledger = charged(tmp_path)
    path = belonging_path(ledger.path)
    text = path.read_text()
    assert "300" not in re.sub("[0-9a-f]{16,}", "", text)
    assert not any(name in text for name in (*NAMES, "ward-7"))
    assert path.stat().st_mode & 0o077 == 0
    (tmp_path / "other").mkdir()
    other = belonging_path(charged(tmp_path / "other").path)
    assert json.loads(text)["tables"] != json.loads(other.read_text())["tables"]
    path.write_text("{}")
    with pytest.raises(BudgetError, match="cannot be read: put a copy of it back"):
        Belonging(ledger, "ward-7", SELF).problem()


def test_an_owner_says_that_other_data_are_meant_and_loses_no_charge(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_answer(monkeypatch, lambda options: Answer(True, 0.5, ()))
    node = str(write_node(tmp_path, data_id="ward-7"))
    identity = Identity.load(tmp_path / "identity").public_key.hex()
    ledger = FileLedger(tmp_path / "ledger.jsonl")
    ledger.charge(entry(data_id="ward-7"))
    Belonging(ledger, "ward-7", identity).note(facts(ROWS[:3], ()))
    spent = ledger.past("ward-7", "record")
    for command in ("check", "status", "start"):
        assert main(["node", command, node]) == 1
    told = capsys.readouterr()
    assert "wrong belonging:" in told.out
    assert "charged for other data of the name 'ward-7'" in told.out
    assert "wrong belonging:" in told.err
    before = ledger.path.read_bytes()
    for recorded in (True, False):
        assert main(["node", "data-changed", node]) == 0
        assert ("nothing is recorded" not in capsys.readouterr().out) == recorded
    assert ledger.path.read_bytes().startswith(before)
    assert ledger.path.read_bytes().count(b"the owner says") == 1
    assert main(["node", "check", node]) == 0
    assert main(["ledger", "verify", str(ledger.path)]) == 0
    assert ledger.past("ward-7", "record") == spent
    # A node that is told of the first rows again knows them, too.
    assert Belonging(ledger, "ward-7", identity).problem(facts(ROWS[:3], ())) == ""
