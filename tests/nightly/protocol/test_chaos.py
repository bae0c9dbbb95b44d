"""Hundreds of runs under random kills, losses of memory, delays, repetitions and
reorderings: never a wrong sum.
"""

from __future__ import annotations

import itertools
import logging
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Message, RecordDict
from support.chaos import COHORTS, Outcome, run_in_a_storm
from support.messages import copied

from flwr_dpkmeans.flower.mod import SecureAggregation

TRUSTS = ("oblivious", "central", "distributed")
N_RUNS = 14
"""For each trust model and each way to deal with dropouts."""


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Thousands of refusals need no text."""
    caplog.set_level(logging.CRITICAL)


@pytest.mark.parametrize("trust", TRUSTS)
@pytest.mark.parametrize("dropout", COHORTS)
def test_no_sum_is_wrong_whatever_happens_to_messages(dropout: str, trust: str) -> None:
    require_telling([run_in_a_storm(seed, trust, dropout) for seed in range(N_RUNS)])


def require_telling(outcomes: list[Outcome]) -> None:
    """Faults happened in most runs.

    Enough of those ended well, and enough were stopped, for both to mean something.
    """
    disturbed = [outcome for outcome in outcomes if outcome.faults]
    assert len(disturbed) > 0.7 * len(outcomes)
    ended = sum(outcome.result is not None for outcome in disturbed)
    assert 0.2 * len(disturbed) < ended < 0.9 * len(disturbed)


class Slip(SecureAggregation):
    """A client that now and then takes a word of a vector for the next."""

    is_reading: bool
    """Whether in the release that it reads, and not in the sum that it sends."""
    _messages = itertools.count()

    def answer(self, message: Message, context: Context, wrap: Any) -> Message:
        slips = next(self._messages) % 3 == 0
        if slips and self.is_reading and message.has_content():
            message.content = with_next_word(message.content)
        reply = super().answer(message, context, wrap)
        if slips and not self.is_reading:
            reply.content = with_next_word(reply.content)
        return reply


class Sender(Slip):
    is_reading = False


class Reader(Slip):
    is_reading = True


def with_next_word(content: RecordDict) -> RecordDict:
    content = copied(content)
    for record in content.array_records.values():
        (array,) = record.values()
        words = np.frombuffer(array.data, dtype="<u8").copy()
        words[-1:] += np.uint64(1)
        array.data = words.tobytes()
    return content


@pytest.mark.parametrize(
    ("kind", "words"), [(Sender, "wrong"), (Reader, r"states|wrong")]
)
def test_the_checkers_of_sums_and_states_fire(kind: type[Slip], words: str) -> None:
    def run_many() -> None:
        for seed in range(N_RUNS):
            run_in_a_storm(
                seed, "oblivious", "retry", lambda _, settings: kind(settings)
            )

    with pytest.raises(AssertionError, match=words):
        run_many()
