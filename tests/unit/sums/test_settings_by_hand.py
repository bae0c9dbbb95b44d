"""Settings that do not go together, at the edge of each, and how one option is read."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, fields, replace
from enum import Enum
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.sums.settings import (
    Dropout,
    Options,
    Settings,
    _as_float,
    as_numbers,
    choice,
    flag,
    option,
    real,
    require_bounds,
    require_integer,
    rule_of,
    whole,
)

ONE: Any = ((-1.0,), (1.0,))
TWO: Any = ((-1.0, 0.0), (1.0, 2.0))
SCHEMA = {"schema_digest": "0" * 64}
STANDARD = SCHEMA | {"private_bounds": True}
PROFILED = SCHEMA | {"profile_widths": (2, 1, 2), "profile_share": 0.25}


def settings_of(**values: Any) -> Settings:
    return Settings(**({"bounds": ONE} | values))


@pytest.mark.parametrize(
    ("n_clients", "masked", "recovers"), [(100, True, False), (101, True, True), (101, False, False)]
)
def test_large_cohorts_recover_sums_unless_told_otherwise(n_clients: int, masked: bool, recovers: bool) -> None:
    usual = Dropout.RECOVER if recovers else Dropout.RETRY
    assert Dropout.usual(n_clients, masked=masked) is settings_of(masking=masked).dropout_of(n_clients) is usual
    assert settings_of(dropout="recover").dropout_of(2) is Dropout.RECOVER
    assert settings_of(dropout="retry").dropout_of(n_clients) is Dropout.RETRY


# -- one option --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "found"),
    [(2, 2), (5, 5), (4.0, 4), (np.int8(3), 3), (1, None), (6, "at most 5"), (2.5, None), (True, None), ("3", None)],
)
def test_counts_from_two_to_five(value: object, found: int | str | None) -> None:
    if isinstance(found, int):
        taken = require_integer("n", value, 2, 3, 5)
        assert (taken, type(taken)) == (found, int)
    else:
        sentence = f"it must be {found}" if found else "it must be an integer of at least 2: give 3."
        with pytest.raises(ConfigurationError, match=re.escape(sentence)):
            require_integer("n", value, 2, 3, 5)


def test_real_numbers_become_floats_and_what_is_none_does_not() -> None:
    for value in (Fraction(1, 4), np.float32(0.25), 0.25):
        assert _as_float(value) == 0.25
    assert (_as_float(10**400), _as_float(-3)) == (math.inf, -3.0)
    assert [_as_float(value) for value in (True, np.True_, "1", None, 1j)] == [None] * 5


@pytest.mark.parametrize(
    ("value", "read"),
    [("1, 2.5", (1.0, 2.5)), ([1, np.float32(2)], (1.0, 2.0)), ("", ""), ("a,b", "a,b"), (3, 3), ([None], [None])],
)
def test_numbers_are_read_from_text_and_lists(value: Any, read: Any) -> None:
    assert as_numbers(value) == read
    assert type(as_numbers(value)) is type(read)


@pytest.mark.parametrize("bounds", [((0.0,), (1.0,)), ((0, 1), (1, 2.0)), ((np.float32(0.0),), (Fraction(1, 2),))])
def test_any_real_numbers_will_do_as_bounds(bounds: Any) -> None:
    require_bounds(bounds)
    for wrong in ((*bounds, bounds[1]), list(bounds), (bounds[0], list(bounds[1])), (bounds[0], (*bounds[1][1:], "1"))):
        with pytest.raises(ConfigurationError, match="they must be a pair"):
            require_bounds(wrong)


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Some(Options):
    n: int | None = whole(None, 2, 3, "a count", most=5)
    part: float = real(0.25, 0.0, 1.0, "0.5", "a part")
    size: float = real(2.0, 0.0, math.inf, "2.0", "a size")
    least: float = real(2.0, -5e-324, math.inf, "2.0", "zero, too")
    colour: Colour = choice(Colour, Colour.RED, "a colour")
    sure: bool = flag(False, "whether")
    numbers: Any = option((1.0,), lambda name, value: None, "numbers", as_numbers)  # noqa: RUF009 - frozen
    plain: str = "x"


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"part": 0.0}, "part is 0.0, but it must be a finite number strictly between 0 and 1: give 0.5."),
        ({"part": 1}, "part is 1.0, but it must be a finite number strictly between 0 and 1: give 0.5."),
        ({"part": math.nan}, "part is nan, but it must be a finite number strictly between 0 and 1: give 0.5."),
        ({"part": "1"}, "part is '1', but it must be a finite number strictly between 0 and 1: give 0.5."),
        ({"size": 0.0}, "size is 0.0, but it must be a finite number greater than 0: give 2.0."),
        ({"size": 10**400}, "size is inf, but it must be a finite number greater than 0: give 2.0."),
        ({"least": -1}, "least is -1.0, but it must be a finite number of at least 0: give 2.0."),
        ({"colour": "rad"}, "colour is 'rad', which is not known: did you mean 'red'?"),
        ({"colour": None}, "colour is None, which is not known: choose one of 'blue', 'red'."),
        ({"sure": 1}, "sure is 1, but it must be a boolean: give True or False."),
        ({"part": None}, "part is None, but it must be a finite number strictly between 0 and 1: give 0.5."),
    ],
)
def test_what_an_option_is_told(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Some(**values)
    assert str(caught.value) == sentence


def test_options_are_read_by_their_rules_and_stay_the_same_objects_where_they_fit() -> None:
    part = float("0.75")
    some = Some(n=4.0, part=part, size=3, least=0, colour="blue", sure=True, numbers="1,2")  # type: ignore[arg-type]
    assert some == Some(4, 0.75, 3.0, 0.0, Colour.BLUE, True, (1.0, 2.0))
    assert some.part is part
    assert [type(one) for one in (some.n, some.size, some.least)] == [int, float, float]
    rules = {one.name: rule_of(one) for one in fields(Some)}
    assert [name for name, rule in rules.items() if rule is None] == ["plain"]
    assert [name for name, rule in rules.items() if rule is not None and rule.optional] == ["n"]
    assert rules["colour"].about == "a colour (red, blue)"  # type: ignore[union-attr]
    assert Some.defaults() == Some().get_params() == vars(Some())
    assert "bounds" not in Settings.defaults()
    with pytest.raises(ConfigurationError, match="the default is 7, but it must be at most 5"):
        whole(7, 2, 3, "a count", most=5)


def test_other_values_make_another_object() -> None:
    some = Some()
    assert some.set_params(n=3, plain="y") == Some(n=3, plain="y")
    assert some == Some()
    with pytest.raises(ConfigurationError, match="Some has no option 'colours': did you mean 'colour'"):
        some.set_params(n=3, colours="red")


# -- what does not go together -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fitting", "change", "sentence"),
    [
        (STANDARD | {"standard_columns": ((1, 1.0),)}, {"schema_digest": ""}, "standard_columns follow from a schema"),
        (STANDARD | {"standard_columns": ((1, 1.0),)}, {"private_bounds": False}, "standard_columns follow from"),
        (STANDARD | {"standard_columns": ((1, 1.0),)}, {"standard_columns": ((2, 1.0),)}, "standard_columns follow"),
        (STANDARD | {"bounds": TWO, "standard_columns": ((2, 0.5),)}, {"standard_columns": ((1, 0.5),)}, "standard_co"),
        (STANDARD | {"bounds": TWO, "standard_columns": ((1, 0.5),) * 2}, {"bounds": ONE}, "standard_columns follow"),
        (PROFILED, {"schema_digest": ""}, "profile_widths follow from a schema"),
        (PROFILED | {"profile_widths": (0, 1)}, {"profile_widths": (0,)}, "profile_widths follow from a schema"),
        (PROFILED | {"profile_widths": (0, 1)}, {"profile_widths": (0, 0)}, "profile_widths follow from a schema"),
        (PROFILED | {"profile_widths": (1, 0)}, {"profile_widths": (1, -1)}, "profile_widths follow from a schema"),
        (PROFILED | {"profile_widths": (1, 0, 1)}, {"profile_widths": (1, 0, 0)}, "profile_widths follow from"),
        (PROFILED | {"profile_widths": (1, 0, 1)}, {"profile_widths": (1, 1, 0)}, "profile_widths follow from"),
        (PROFILED | {"profile_widths": (65_535, 1)}, {"profile_widths": (65_535, 2)}, "profile_widths follow from"),
        (PROFILED, {"profile_share": 0.5}, "profile_widths follow from a schema"),
        (PROFILED, {"profile_share": 0.0}, "profile_widths follow from a schema"),
        (PROFILED | {"profile_share": 0.05}, {"profile_share": -0.1}, "profile_widths follow from a schema"),
        ({"profile_share": 0.05}, {"profile_share": 0.06}, "profile_widths follow from a schema"),
        ({"n_examples": 100, "delta": math.nextafter(0.01, 0.0)}, {"delta": 0.01}, "it must be below 1/N = 0.01"),
        ({"n_examples": 100, "delta": 0.5, "unit": "client"}, {"unit": "record"}, "it must be below 1/N = 0.01"),
        ({"delta": 0.5}, {"n_examples": 2}, "it must be below 1/N = 0.5"),
        ({"masking": False, "dropout": "retry"}, {"dropout": "recover"}, "dropout is 'recover', which always masks"),
        ({"masking": False}, {"dropout": "recover"}, "dropout is 'recover', which always masks"),
        ({"dropout": "recover"}, {"masking": False}, "dropout is 'recover', which always masks"),
        ({"n_clients": 4, "min_clients": 4}, {"min_clients": 5}, "min_clients asks for at least 5"),
        ({"min_clients": 9}, {"n_clients": 8}, "n_clients is 8, but min_clients asks for at least 9"),
        ({"unit": "client", "client_sampling_rate": 1.0}, {"client_sampling_rate": 1.0000001}, "it is a probability"),
        ({"unit": "client", "client_sampling_rate": 0.5}, {"unit": "record"}, "amplifies client-level privacy only"),
        ({"evaluation": "exact", "unit": "client"}, {"client_sampling_rate": 0.5}, "so that clients sit out"),
        ({"evaluation": "private", "unit": "client", "client_sampling_rate": 0.5}, {"evaluation": "exact"}, "sit out"),
        ({"trust": "elsewhere"}, {"trust": 3}, "trust is 3, but it must be a name"),
    ],
)
def test_settings_that_do_not_go_together(fitting: dict[str, Any], change: dict[str, Any], sentence: str) -> None:
    settings = settings_of(**fitting)
    with pytest.raises(ConfigurationError, match=re.escape(sentence)):
        replace(settings, **change)


QUARTERS: dict[str, Any] = {"count_share": 0.25, "bounds_share": 0.25, "evaluation_share": 0.25} | PROFILED
FOUR: dict[str, Any] = QUARTERS | {"private_bounds": True, "evaluation": "private"}


@pytest.mark.parametrize(
    ("values", "before", "after"),
    [
        (QUARTERS, 0.25, 0.25),
        (QUARTERS | {"n_examples": 9}, 0.0, 0.25),
        (QUARTERS | {"evaluation": "exact"}, 0.25, 0.25),
        (QUARTERS | {"evaluation": "private"}, 0.25, 0.5),
        (QUARTERS | {"private_bounds": True}, 0.5, 0.25),
        (FOUR | {"profile_widths": (), "profile_share": 0.05}, 0.5, 0.25),
        (FOUR | {"n_examples": 9}, 0.25, 0.5),
    ],
)
def test_shares_of_the_budget_that_are_not_the_tasks_own(values: dict[str, Any], before: float, after: float) -> None:
    settings = settings_of(**values)
    assert (settings.preliminary_share(counts=True), settings.closing_share) == (before, after)
    assert settings.reserved_share(counts=True) == before + after
    without = before if settings.n_examples is not None else before - 0.25
    assert settings.reserved_share(counts=False) == without + after


def test_shares_leave_the_task_a_part_of_the_budget() -> None:
    settings_of(**FOUR | {"count_share": 0.25 - 2.0**-40})
    with pytest.raises(ConfigurationError, match="evaluation_share together are 1, but they must leave"):
        settings_of(**FOUR)


@pytest.mark.parametrize(
    ("values", "width", "sentence"),
    [
        ({}, 65_536, None),
        ({}, 65_537, "n_features is 65537, but it must be at most 65536"),
        ({}, 0, "n_features is 0, but it must be an integer of at least 1"),
        ({}, None, None),
        ({"bounds": TWO}, 2, None),
        ({"bounds": TWO}, 1, "there are bounds for 2 features, but the table has 1"),
        ({"bounds": TWO}, 3, "there are bounds for 2 features, but the table has 3"),
        ({"feature_names": ("a", "b")}, 2, None),
        ({"feature_names": ("a", "b")}, 1, "feature_names has 2 names, but bounds or n_features say 1"),
        ({"feature_names": ("a", "b")}, 3, "feature_names has 2 names, but bounds or n_features say 3"),
        ({"feature_names": ("a", "b"), "bounds": TWO}, None, None),
        ({"feature_names": ("a",)}, 1, None),
    ],
)
def test_a_tables_width_suits_bounds_and_names(values: dict[str, Any], width: int | None, sentence: str | None) -> None:
    settings = settings_of(**values)
    if sentence is None:
        settings.require_width(width)
        assert replace(settings, n_features=width).n_features == width
    else:
        with pytest.raises(ConfigurationError, match=sentence):
            settings.require_width(width)
        with pytest.raises(ConfigurationError, match=sentence):
            replace(settings, n_features=width)


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (("a", "b", "b", "b"), "feature_names has 'b' 3 times"),
        (("a",), "feature_names has 1 names, but bounds or n_features say 2"),
        (("a", "b", "c"), "feature_names has 3 names, but bounds or n_features say 2"),
    ],
)
def test_each_column_has_a_name_of_its_own(names: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        settings_of(bounds=TWO, feature_names=names)
