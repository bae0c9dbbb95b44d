"""What others see of a run, plans, messages, ledgers and refusals, stays."""

from __future__ import annotations

import json

import pytest
from support.golden_outputs import FILE, SENTENCES, entries, refusals

GOLDEN: dict[str, str] = json.loads(FILE.read_text())
ENTRIES = entries()


def test_the_file_speaks_of_every_output_and_of_no_other() -> None:
    assert set(GOLDEN) == set(ENTRIES)


@pytest.mark.parametrize("name", ENTRIES)
def test_an_output_stays(name: str) -> None:
    assert ENTRIES[name]() == GOLDEN[name]


def test_no_refusal_is_lost_or_reworded_by_accident() -> None:
    assert refusals() == SENTENCES.read_text().splitlines()
