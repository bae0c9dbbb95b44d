"""Planted bugs in what travels, is logged and is told, and in who takes part.

See the table in `test_planted_bugs`.
"""

from __future__ import annotations

from typing import Any

import pytest
from support import leak_bugs
from support.crypto import no_blinding
from support.planting import Bug, require_caught, require_missed
from support.price_detectors import participations, require_own_coins
from support.protocol_federation import grid_parts
from support.recovery_federation import RecoveryFederation
from support.wire_detectors import (
    Lines,
    Watched,
    different_parts,
    federation_run,
    require_equal_lines,
    require_equal_metrics,
    require_equal_replies,
    require_keyed_tags,
    require_one_opening,
    require_single_use,
    require_unreadable,
)

from flwr_dpkmeans.secagg.messages import UnmaskRequest
from flwr_dpkmeans.secagg.recover import Recover

RUN: dict[str, Any] = {"algorithm": "fastlloyd", "max_iter": 3, "random_state": 3}


def on_different_data(trust: str, **programs: Any) -> list[Watched]:
    return [
        federation_run(parts, trust=trust, **RUN, **programs)
        for parts in different_parts()
    ]


@pytest.mark.parametrize(
    "mod_of", [leak_bugs.NumberOfRows, leak_bugs.Inertia, leak_bugs.Movement]
)
def test_a_reply_that_tells_something_of_the_data_is_caught(
    mod_of: type[leak_bugs.TalkativeMod],
) -> None:
    require_equal_replies(*on_different_data("oblivious"))
    talkative = on_different_data("oblivious", nodes={"mod_of": mod_of})
    with pytest.raises(AssertionError, match="replies tell data apart"):
        require_equal_replies(*talkative)


def test_exact_sizes_in_the_servers_metrics_are_caught() -> None:
    def detect() -> None:
        kind = leak_bugs.SizesInMetrics
        require_equal_metrics(*on_different_data("central", strategy_class=kind))

    require_caught(leak_bugs.note_sums, detect, "metrics tell data apart")


def test_exact_sizes_in_the_servers_log_are_caught() -> None:
    def detect() -> None:
        found = []
        for parts in different_parts():
            with Lines() as log:
                federation_run(parts, trust="central", **RUN)
            found.append(log.lines)
        require_equal_lines(*found)

    require_caught(leak_bugs.sums_in_the_servers_log, detect, "log tells data apart")


def run_of(trust: str, n_clients: int = 4, **values: Any) -> Watched:
    return federation_run(
        grid_parts([60] * n_clients, 3), trust=trust, **(RUN | values)
    )


@pytest.mark.parametrize(
    ("bug", "trust"),
    [
        (leak_bugs.one_mask_for_all_rounds, "oblivious"),
        (leak_bugs.one_mask_for_all_rounds, "distributed"),
        (leak_bugs.one_blinding_for_all_rounds, "oblivious"),
        (no_blinding, "oblivious"),
    ],
)
def test_words_that_the_server_can_read_are_caught(bug: Bug, trust: str) -> None:
    require_caught(bug, lambda: require_unreadable(run_of(trust)), "is readable")


def with_a_late_reply() -> Watched:
    """Of three clients two are key authors; the third's first reply is late."""
    return run_of("oblivious", n_clients=3, late_in_round=1, max_silent=0)


def test_a_late_reply_that_completes_a_readable_difference_is_caught() -> None:
    bug = leak_bugs.one_blinding_for_all_attempts
    require_caught(bug, lambda: require_unreadable(with_a_late_reply()), "is readable")


@pytest.mark.parametrize(
    "bug",
    [leak_bugs.one_mask_for_all_attempts, leak_bugs.one_blinding_for_all_attempts],
)
def test_a_stream_that_is_used_for_two_attempts_is_caught(bug: Bug) -> None:
    require_caught(
        bug,
        lambda: require_single_use(with_a_late_reply()),
        "one stream, several vectors",
    )


def test_pairwise_masks_of_two_attempts_alone_open_nothing() -> None:
    """The mask with the client that left hides the rest."""
    require_missed(
        leak_bugs.one_mask_for_all_attempts,
        lambda: require_unreadable(with_a_late_reply()),
    )


def test_a_tag_that_lets_a_server_test_guesses_is_caught() -> None:
    def detect() -> None:
        require_keyed_tags(
            *(
                run_of("oblivious", algorithm="lloyd", max_iter=2, run_id=77)
                for _ in range(2)
            )
        )

    require_caught(leak_bugs.tag_without_a_key, detect, "equal states have equal tags")


def test_a_sum_that_is_opened_twice_is_caught() -> None:
    federation = RecoveryFederation.make(8, max_silent=1)
    federation.share()
    federation.session.open_round(1, 3)
    federation.send()
    everybody = tuple(federation.states)
    party = federation.states[10]

    def detect(states: list[Recover]) -> None:
        def ask(survivors: tuple[int, ...]) -> None:
            states[0], _ = states[0].unmask(UnmaskRequest(1, 0, survivors))

        require_one_opening(
            ask, [everybody, tuple(node for node in everybody if node != 12)]
        )

    detect([party])
    with pytest.raises(AssertionError, match="opened for 2 sets"):
        detect([leak_bugs.ForgetfulParty(**vars(party))])


@pytest.mark.parametrize(
    ("bug", "match"),
    [
        (leak_bugs.one_coin_for_all, "are equal in"),
        (
            leak_bugs.coins_from_the_plans_seed,
            "take part instead|are equal in|runs of one plan",
        ),
        (leak_bugs.always_in, "take part instead"),
    ],
)
def test_coins_that_are_not_thrown_by_each_client_are_caught(
    bug: Bug, match: str
) -> None:
    require_caught(
        bug,
        lambda: require_own_coins(participations(45, 0.5), 0.5),
        match,
        in_plans=False,
    )
