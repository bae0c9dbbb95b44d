"""Settings that do not go together, at the edge of each, and how one option is read."""

from __future__ import annotations

import math
import re
from dataclasses import MISSING, dataclass, fields, replace
from enum import Enum
from typing import Any

import pytest

from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.sums.option_rules import (
    Options,
    as_numbers,
    choice,
    flag,
    option,
    real,
    rule_of,
    whole,
)
from flwr_dpkmeans.sums.settings import Settings

ONE: Any = ((-1.0,), (1.0,))
TWO: Any = ((-1.0, 0.0), (1.0, 2.0))
SCHEMA = {"schema_digest": "0" * 64}
STANDARD = SCHEMA | {"private_bounds": True}
PROFILED = SCHEMA | {"profile_widths": (2, 1, 2), "profile_share": 0.25}
GAPS = SCHEMA | {"gap_columns": (-1, -1), "profile_share": 0.02}
BOTH = PROFILED | {"gap_columns": (3, -1, 0, -1)}


def settings_of(**values: Any) -> Settings:
    return Settings(**({"bounds": ONE} | values))


# -- one option ------------------------------------------------------------------------


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
    numbers: Any = option((1.0,), lambda name, value: None, "numbers", as_numbers)  # noqa: RUF009
    plain: str = "x"


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"part": 0.0},
         "part is 0.0, but it must be a finite number strictly between 0 and 1:"
         " give 0.5."),
        ({"part": 1},
         "part is 1.0, but it must be a finite number strictly between 0 and 1:"
         " give 0.5."),
        ({"part": math.nan},
         "part is nan, but it must be a finite number strictly between 0 and 1:"
         " give 0.5."),
        ({"part": "1"},
         "part is '1', but it must be a finite number strictly between 0 and 1:"
         " give 0.5."),
        ({"size": 0.0},
         "size is 0.0, but it must be a finite number greater than 0: give 2.0."),
        ({"size": 10**400},
         "size is inf, but it must be a finite number greater than 0: give 2.0."),
        ({"least": -1},
         "least is -1.0, but it must be a finite number of at least 0: give 2.0."),
        ({"colour": "rad"}, "colour is 'rad', which is not known: did you mean 'red'?"),
        ({"colour": None},
         "colour is None, which is not known: choose one of 'blue', 'red'."),
        ({"sure": 1}, "sure is 1, but it must be a boolean: give True or False."),
        ({"part": None},
         "part is None, but it must be a finite number strictly between 0 and 1:"
         " give 0.5."),
    ],
)  # fmt: skip
def test_what_an_option_is_told(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Some(**values)
    assert str(caught.value) == sentence


def test_options_are_read_by_their_rules_and_stay_the_same_objects_where_they_fit() -> (
    None
):
    some = Some(
        n=4.0, part=0.75, size=3, least=0, colour="blue", sure=True, numbers="1,2"
    )  # type: ignore[arg-type]
    assert some == Some(4, 0.75, 3.0, 0.0, Colour.BLUE, True, numbers := (1.0, 2.0))
    assert Some(numbers=numbers).numbers is numbers
    assert [type(one) for one in (some.n, some.size, some.least)] == [int, float, float]
    rules = {one.name: rule_of(one) for one in fields(Some)}
    assert [name for name, rule in rules.items() if rule is None] == ["plain"]
    assert [
        name for name, rule in rules.items() if rule is not None and rule.optional
    ] == ["n"]
    assert rules["colour"].about == "a colour (red, blue)"  # type: ignore[union-attr]
    assert Some.defaults() == Some().get_params() == vars(Some())
    assert "bounds" not in Settings.defaults()
    for default, optional in ((None, True), (MISSING, False), (3, False)):
        declared = whole(default, 2, 3, "a count")
        assert (declared.default, declared.metadata["rule"].optional) == (
            default,
            optional,
        )
    with pytest.raises(ConfigurationError, match="the default is 7, but it must"):
        whole(7, 2, 3, "a count", most=5)


# -- what does not go together ---------------------------------------------------------


@pytest.mark.parametrize(
    ("fitting", "change", "sentence"),
    [
        (STANDARD | {"standard_columns": ((1, 1.0),)}, {"schema_digest": ""},
         "standard_columns follow from a schema"),
        (STANDARD | {"standard_columns": ((1, 1.0),)}, {"private_bounds": False},
         "standard_columns follow from"),
        (STANDARD | {"standard_columns": ((1, 1.0),)},
         {"standard_columns": ((2, 1.0),)}, "standard_columns follow"),
        (STANDARD | {"bounds": TWO, "standard_columns": ((2, 0.5),)},
         {"standard_columns": ((1, 0.5),)}, "standard_co"),
        (STANDARD | {"bounds": TWO, "standard_columns": ((1, 0.5),) * 2},
         {"bounds": ONE}, "standard_columns follow"),
        (PROFILED, {"schema_digest": ""}, "profile_widths follow from a schema"),
        (PROFILED | {"profile_widths": (0, 1)}, {"profile_widths": (1,)},
         "profile_widths follow from a schema"),
        (PROFILED, {"profile_widths": "2,1,2"}, "profile_widths follow from a schema"),
        (PROFILED, {"profile_widths": (2, 1, 2.0)}, "profile_widths follow from"),
        (PROFILED | {"profile_widths": (0, 1)}, {"profile_widths": (0, 0)},
         "profile_widths follow from a schema"),
        (PROFILED | {"profile_widths": (1, 0)}, {"profile_widths": (3, -1)},
         "profile_widths follow from a schema"),
        (PROFILED | {"profile_widths": (1, 0, 1)}, {"profile_widths": (1, 0, 0)},
         "profile_widths follow from"),
        (PROFILED | {"profile_widths": (1, 0, 1)}, {"profile_widths": (1, 1, 0)},
         "profile_widths follow from"),
        (PROFILED | {"profile_widths": (65_535, 1)}, {"profile_widths": (65_535, 2)},
         "profile_widths follow from"),
        (PROFILED, {"profile_share": 0.5}, "profile_widths follow from a schema"),
        (PROFILED, {"profile_share": 0.0}, "profile_widths follow from a schema"),
        (PROFILED | {"profile_share": 0.05}, {"profile_share": -0.1},
         "profile_widths follow from a schema"),
        ({"profile_share": 0.05}, {"profile_share": 0.06},
         "profile_widths follow from a schema"),
        (GAPS, {"schema_digest": ""}, "profile_widths follow from a schema"),
        (GAPS, {"profile_share": 0.5}, "profile_widths follow from a schema"),
        (GAPS, {"gap_columns": ()}, "profile_widths follow from a schema"),
        (GAPS, {"gap_columns": (0,)}, "gap_columns follow from a schema"),
        (GAPS | {"gap_columns": (-1,) * 65_536}, {"gap_columns": (-1,) * 65_537},
         "gap_columns follow from"),
        (BOTH, {"gap_columns": (4,)}, "gap_columns follow from a schema"),
        (BOTH, {"gap_columns": (-2,)}, "gap_columns follow from a schema"),
        (BOTH, {"gap_columns": (1, 1)}, "gap_columns follow from a schema"),
        (BOTH, {"gap_columns": (1.0,)}, "gap_columns follow from a schema"),
        ({"n_examples": 100, "delta": math.nextafter(0.01, 0.0)}, {"delta": 0.01},
         "it must be below 1/N = 0.01"),
        ({"n_examples": 100, "delta": 0.5, "unit": "client"}, {"unit": "record"},
         "it must be below 1/N = 0.01"),
        ({"delta": 0.5}, {"n_examples": 2}, "it must be below 1/N = 0.5"),
        ({"masking": False, "dropout": "retry"}, {"dropout": "recover"},
         "dropout is 'recover', which always masks"),
        ({"masking": False}, {"dropout": "recover"}, "'recover', which always masks"),
        ({"dropout": "recover"}, {"masking": False}, "'recover', which always masks"),
        ({"n_clients": 4, "min_clients": 4}, {"min_clients": 5},
         "min_clients asks for at least 5"),
        ({"min_clients": 9}, {"n_clients": 8}, "but min_clients asks for at least 9"),
        ({"unit": "client", "client_sampling_rate": 1.0},
         {"client_sampling_rate": 1.0000001}, "it is a probability"),
        ({"unit": "client", "client_sampling_rate": 0.5}, {"unit": "record"},
         "amplifies client-level privacy only"),
        ({"evaluation": "exact", "unit": "client"}, {"client_sampling_rate": 0.5},
         "so that clients sit out"),
        ({"evaluation": "private", "unit": "client", "client_sampling_rate": 0.5},
         {"evaluation": "exact"}, "sit out"),
        ({"trust": "elsewhere"}, {"trust": 3}, "trust is 3, but it must be a name"),
    ],
)  # fmt: skip
def test_settings_that_do_not_go_together(
    fitting: dict[str, Any], change: dict[str, Any], sentence: str
) -> None:
    settings = settings_of(**fitting)
    with pytest.raises(ConfigurationError, match=re.escape(sentence)):
        replace(settings, **change)


QUARTERS: dict[str, Any] = {
    "count_share": 0.25,
    "bounds_share": 0.25,
    "evaluation_share": 0.25,
} | PROFILED
FOUR: dict[str, Any] = QUARTERS | {"private_bounds": True, "evaluation": "private"}


def test_shares_leave_the_task_a_part_of_the_budget() -> None:
    settings_of(**FOUR | {"count_share": 0.25 - 2.0**-40})
    with pytest.raises(ConfigurationError, match="evaluation_share together are 1"):
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
        ({"feature_names": ("a", "b")}, 1,
         "feature_names has 2 names, but bounds or n_features say 1"),
        ({"feature_names": ("a", "b")}, 3,
         "feature_names has 2 names, but bounds or n_features say 3"),
        ({"feature_names": ("a", "b"), "bounds": TWO}, None, None),
        ({"feature_names": ("a",)}, 1, None),
    ],
)  # fmt: skip
def test_a_tables_width_suits_bounds_and_names(
    values: dict[str, Any], width: int | None, sentence: str | None
) -> None:
    settings = settings_of(**values)
    if sentence is None:
        settings.require_width(width)
        assert replace(settings, n_features=width).n_features == width
    else:
        with pytest.raises(ConfigurationError, match=sentence):
            settings.require_width(width)
        with pytest.raises(ConfigurationError, match=sentence):
            replace(settings, n_features=width)
