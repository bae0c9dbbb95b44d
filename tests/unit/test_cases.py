"""What the tests of some combinations promise to try."""

from __future__ import annotations

import itertools

from support.cases import pairs


def test_every_two_values_of_different_parameters_meet() -> None:
    values = ([1, 2, 8, 9, 30], ["a", "b", "c"], [True, False], [0.1, 3.0])
    cases = pairs(*values)
    assert len(cases) == len(set(cases)) < 20
    for one, other in itertools.combinations(range(4), 2):
        assert {(case[one], case[other]) for case in cases} == set(
            itertools.product(values[one], values[other])
        )


def test_two_parameters_are_tried_in_full() -> None:
    assert pairs([1, 2, 3], "ab") == list(itertools.product([1, 2, 3], "ab"))
