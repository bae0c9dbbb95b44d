"""The sentences that a person reads about a bad parameter, and what is accepted as a
number.
"""

from __future__ import annotations

import math
import re
from dataclasses import fields
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest

from flwr_dpkmeans.algorithms.lloyd_family.fastlloyd import Schedule
from flwr_dpkmeans.errors import (
    ConfigurationError,
    LocalMisuseError,
    column_names,
    distinct_texts,
    listed,
    nearest,
    require_delta,
    require_positive,
    require_real,
    require_whole,
)
from flwr_dpkmeans.kmeans.folding import PostProcessing
from flwr_dpkmeans.kmeans.public_points.packing import PackingMethod
from flwr_dpkmeans.options import GROUPS, Group, parse_config
from flwr_dpkmeans.privacy.noise import NoiseKind
from flwr_dpkmeans.privacy.release import PrivacyUnit
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.option_rules import rule_of
from flwr_dpkmeans.sums.settings import Settings

BOX = ((-1.0,), (1.0,))


def config(**values: Any) -> RunConfig:
    return parse_config(**({"n_clusters": 3, "bounds": BOX} | values))


def sentence(**values: Any) -> str:
    """The one sentence that a bad value gives."""
    with pytest.raises(ConfigurationError) as caught:
        config(**values)
    text = str(caught.value)
    assert text.endswith((".", "?"))
    assert "\n" not in text
    return text


# (parameter, bad value, bound, mend): the sentence must hold all three.
INTEGERS = [
    ("n_clusters", 0, "at least 1", "give 10"),
    ("n_clusters", -3, "at least 1", "give 10"),
    ("n_clusters", 2.5, "integer", "give 10"),
    ("n_clusters", "3", "integer", "give 10"),
    ("n_clusters", None, "at least 1", "give 10"),
    ("n_clusters", math.nan, "integer", "give 10"),
    ("n_clusters", math.inf, "integer", "give 10"),
    ("n_examples", 0, "at least 1", "give 1000"),
    ("n_features", 0, "at least 1", "give 2"),
    ("max_iter", -2, "at least 0", "give 5"),
    ("random_state", -1, "at least 0", "give 7"),
    ("n_clients", 1, "at least 2", "give 10"),
    ("min_clients", 1, "at least 2", "give 2"),
    ("min_clients", None, "at least 2", "give 2"),
    ("max_silent", -1, "at least 0", "give 1"),
    ("max_retries", -1, "at least 0", "give 1"),
    ("max_retries", None, "at least 0", "give 1"),
]
REALS = [
    ("epsilon", 0.0, "greater than 0", "give 1.0"),
    ("epsilon", -1.0, "greater than 0", "give 1.0"),
    ("epsilon", math.nan, "finite number", "give 1.0"),
    ("epsilon", math.inf, "finite number", "give 1.0"),
    ("epsilon", "1.0", "finite number", "give 1.0"),
    ("epsilon", None, "greater than 0", "give 1.0"),
    ("delta", 1.0, "of at least 0 and below 1", "give 1e-6"),
    ("delta", -1e-9, "of at least 0 and below 1", "give 1e-6"),
    ("alpha", 0.0, "between 1e-06 and 1e+06", "give 0.8"),
    ("alpha", math.inf, "finite number", "give 0.8"),
    ("max_epsilon", 0.0, "greater than 0", "give 2.0"),
    ("count_share", 0.0, "between 0 and 0.5", "give 0.02"),
    ("count_share", 0.5, "between 0 and 0.5", "give 0.02"),
]


@pytest.mark.parametrize(("name", "value", "bound", "mend"), INTEGERS + REALS)
def test_names_value_bound_and_mend(
    name: str, value: object, bound: str, mend: str
) -> None:
    text = sentence(**{name: value})
    assert text.startswith(f"{name} is {value!r}, but it must be ")
    assert bound in text
    assert text.endswith(f"{mend}.")


@pytest.mark.parametrize("name", sorted({row[0] for row in INTEGERS + REALS}))
@pytest.mark.parametrize("value", [True, False, np.True_])
def test_truth_values_are_no_numbers(name: str, value: object) -> None:
    assert sentence(**{name: value}).startswith(f"{name} is {value!r}, but it must be ")


@pytest.mark.parametrize(
    "value", [3, np.int32(3), np.uint8(3), np.int64(3), 3.0, np.float64(3.0)]
)
@pytest.mark.parametrize(
    "name", ["n_clusters", "n_features", "max_iter", "max_retries"]
)
def test_whole_numbers_of_any_type_are_integers(name: str, value: object) -> None:
    got = getattr(config(**{name: value}), name)
    assert got == 3
    assert type(got) is int


@pytest.mark.parametrize(
    "value", [2, np.int64(2), np.float32(2.0), np.float64(2.0), Fraction(2), 2.0]
)
@pytest.mark.parametrize("name", ["epsilon", "alpha", "max_epsilon"])
def test_real_numbers_of_any_type_are_floats(name: str, value: object) -> None:
    got = getattr(config(algorithm="fastlloyd", **{name: value}), name)
    assert got == 2.0
    assert type(got) is float


def test_an_integer_beyond_the_range_of_floats_is_refused() -> None:
    assert "greater than 0" in sentence(epsilon=10**400)
    assert "finite" in sentence(epsilon=-(10**400))


@pytest.mark.parametrize("name", ["n_clusters", "bounds"])
def test_what_every_run_needs_is_asked_for(name: str) -> None:
    values = {"n_clusters": 3, "bounds": BOX}
    del values[name]
    with pytest.raises(
        ConfigurationError, match=f"'{name}' is missing, but every run needs it: give"
    ):
        parse_config(**values)


@pytest.mark.parametrize(
    ("key", "closest"),
    [
        ("n_cluster", "n_clusters"),
        ("epsilonn", "epsilon"),
        ("algoritm", "algorithm"),
        ("schedul", "schedule"),
        ("min_client", "min_clients"),
        ("postprocessing", "post_processing"),
    ],
)
def test_unknown_parameter_gets_the_nearest_name(key: str, closest: str) -> None:
    assert (
        sentence(**{key: 1})
        == f"there is no parameter {key!r}: did you mean {closest!r}?"
    )


INTERNAL = {
    "private_bounds", "bounds_share", "count_share", "evaluation_share",
    "client_sampling_rate",
}  # fmt: skip
INTERNAL |= {"evaluation_radius"}
"""What a run's options are called where objects, such as `PrivateBounds`, hold them."""


def test_parameter_like_no_other_gets_the_whole_list() -> None:
    text = sentence(zzzz=1)
    own = {
        field.name for field in fields(Settings) if rule_of(field) is not None
    } - INTERNAL
    assert all(repr(name) in text for name in own)
    assert not any(
        repr(name) in text
        for name in (*INTERNAL, "__pydantic_config__", "arrays", "schema_digest")
    )
    assert all(
        repr(name) in text for name in ("algorithm", "n_clusters", "alpha", "margin")
    )


@pytest.mark.parametrize(
    ("name", "value", "closest"),
    [
        ("unit", "records", "record"),
        ("unit", "clients", "client"),
        ("noise", "seed", "seeded"),
        ("noise", "sekure", "secure"),
        ("schedule", "steps", "step"),
        ("post_processing", "folded", "fold"),
        ("packing", "bisection", "bisect"),
    ],
)
def test_unknown_choice_gets_the_nearest_name(
    name: str, value: str, closest: str
) -> None:
    assert (
        sentence(**{name: value})
        == f"{name} is {value!r}, which is not known: did you mean {closest!r}?"
    )


def test_choice_like_no_other_gets_the_whole_list() -> None:
    assert (
        sentence(noise=7)
        == "noise is 7, which is not known: choose one of 'opendp', 'secure', 'seeded'."
    )
    assert "'step'" in sentence(schedule="xx")
    assert "'constant'" in sentence(schedule="xx")


@pytest.mark.parametrize("name", ["unit", "noise", "schedule", "packing"])
def test_only_post_processing_may_be_left_to_the_algorithm(name: str) -> None:
    assert config(algorithm="fastlloyd", post_processing=None).post_processing is None
    assert sentence(**{name: None}).startswith(f"{name} is None, which is not known: ")


def test_choices_are_taken_as_text_or_as_members() -> None:
    given = {"schedule": "constant", "post_processing": "none", "packing": "halve"}
    got = config(algorithm="fastlloyd", unit="record", noise="seeded", **given)
    assert (got.unit, got.noise, got.schedule) == (
        PrivacyUnit.RECORD,
        NoiseKind.SEEDED,
        Schedule.CONSTANT,
    )
    assert (got.post_processing, got.packing) == (
        PostProcessing.NONE,
        PackingMethod.HALVE,
    )
    assert config(noise=NoiseKind.SEEDED) == config(noise="seeded")


def test_options_read_plain_values_themselves() -> None:
    settings = Settings(BOX, unit="record", epsilon=2, n_clients=3.0)  # type: ignore[arg-type]
    assert settings == Settings(BOX, unit=PrivacyUnit.RECORD, epsilon=2.0, n_clients=3)
    assert (type(settings.epsilon), type(settings.n_clients)) == (float, int)
    with pytest.raises(ConfigurationError, match="which is not known: did you mean"):
        Settings(BOX, unit="recrod")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["algorithm", "trust"])
@pytest.mark.parametrize("value", [None, 3, ["fastlloyd"]])
def test_names_must_be_strings(name: str, value: object) -> None:
    assert (
        sentence(**{name: value})
        == f"{name} is {value!r}, but it must be a name: give a string."
    )


@pytest.mark.parametrize("value", ["no", 1, None])
def test_radius_clipping_is_on_or_off(value: object) -> None:
    assert (
        sentence(radius_clipping=value)
        == f"radius_clipping is {value!r}, but it must be a boolean: give True or"
        " False."
    )
    assert config(algorithm="fastlloyd", radius_clipping=False).radius_clipping is False


@pytest.mark.parametrize(
    ("bounds", "feature", "low", "high"),
    [
        (((1.0,), (-1.0,)), 0, 1.0, -1.0),
        (((2.0,), (2.0,)), 0, 2.0, 2.0),
        (((0.0, 5.0), (1.0, 4.0)), 1, 5.0, 4.0),
        (((0.0, math.nan), (1.0, 4.0)), 1, math.nan, 4.0),
        (((-math.inf,), (1.0,)), 0, -math.inf, 1.0),
        (((0.0,), (math.inf,)), 0, 0.0, math.inf),
    ],
)
def test_reversed_equal_or_infinite_bounds_name_the_feature(
    bounds: tuple[tuple[float, ...], ...], feature: int, low: float, high: float
) -> None:
    text = sentence(bounds=bounds)
    who = f"feature {feature}" if len(bounds[0]) > 1 else "every feature"
    assert text.startswith(
        f"{who} has lower bound {low!r} and upper bound {high!r}, but "
    )
    assert "must be finite" in text or "the lower one must be smaller" in text


@pytest.mark.parametrize(
    "bounds",
    [
        None, 1.0, (-1.0, 1.0), [(-1.0,), (1.0,)], ((1.0,),), "0,1", (("a",), (1.0,)),
        ((0.0,), (True,)),
    ],
)  # fmt: skip
def test_bounds_must_be_a_pair_of_tuples(bounds: object) -> None:
    assert (
        sentence(bounds=bounds)
        == f"bounds are {bounds!r}, but they must be a pair (lower, upper): give (-1.0,"
        " 1.0)."
    )


def test_bounds_must_fit_each_other_and_the_table() -> None:
    assert "1 lower and 2 upper values" in sentence(bounds=((0.0,), (1.0, 2.0)))
    assert "0 ranges" in sentence(bounds=((), ()))
    text = sentence(bounds=((0.0, 0.0), (1.0, 1.0)), n_features=3)
    assert "bounds for 2 features" in text
    assert "the table has 3" in text
    assert config(bounds=((0.0,) * 3, (1.0,) * 3), n_features=3).n_features == 3
    assert config(bounds=((0.0,), (1.0,)), n_features=3).n_features == 3


def test_delta_must_be_below_one_over_n() -> None:
    for delta in (0.01, 0.010000001, 0.5):
        text = sentence(n_examples=100, delta=delta)
        assert text.startswith(f"delta is {delta:g}, but it must be below 1/N = 0.01 ")
        assert "leave delta unset" in text
    assert config(n_examples=100, delta=0.0099999).delta == 0.0099999


def test_there_must_be_a_row_for_each_cluster() -> None:
    assert (
        sentence(n_clusters=5, n_examples=4)
        == "n_examples is 4, but 5 clusters need at least as many rows: choose fewer"
        " clusters or add data."
    )
    assert config(n_clusters=5, n_examples=5).n_examples == 5


def test_the_cohort_must_reach_the_minimum() -> None:
    assert (
        sentence(n_clients=3, min_clients=4)
        == "n_clients is 3, but min_clients asks for at least 4: start more clients or"
        " lower min_clients."
    )
    assert config(n_clients=4, min_clients=4).min_clients == 4


def test_configuration_errors_are_local_misuse_and_value_errors() -> None:
    assert issubclass(ConfigurationError, LocalMisuseError)
    with pytest.raises(ValueError):
        config(epsilon=-1)


def test_nothing_can_be_changed_afterwards() -> None:
    with pytest.raises(AttributeError):
        config().epsilon = 3.0  # type: ignore[misc]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_clusters", 100_001),
        ("n_features", 65_537),
        ("max_iter", 1_001),
        ("max_retries", 1_001),
    ],
)
def test_what_a_hostile_plan_could_make_a_client_build_is_bounded(
    name: str, value: int
) -> None:
    with pytest.raises(
        ConfigurationError,
        match=rf"^{name} is {value}, but it must be at most {value - 1}: give a",
    ):
        parse_config(**({"n_clusters": 3, "bounds": ((-1.0,), (1.0,))} | {name: value}))


def test_names_of_columns_are_one_for_each_and_different() -> None:
    with pytest.raises(ConfigurationError, match="feature_names has 'a' 2 times"):
        parse_config(n_clusters=2, bounds=((0,), (1,)), feature_names=("b", "a", "a"))
    for values in ({"n_features": 3}, {"bounds": ((0, 0, 0), (1, 1, 1))}):
        with pytest.raises(ConfigurationError, match="but bounds or n_features say 3"):
            parse_config(
                **(
                    {
                        "n_clusters": 2,
                        "bounds": ((0,), (1,)),
                        "feature_names": ("a", "b"),
                    }
                    | values
                )
            )


def test_many_names_are_looked_at_once() -> None:
    """A plan comes from a server that may be hostile."""
    names = (*(str(index) for index in range(65_000)), "1")
    with pytest.raises(ConfigurationError, match="'1' 2 times"):
        parse_config(n_clusters=2, bounds=((0,), (1,)), feature_names=names)


@pytest.mark.parametrize(
    ("value", "bound", "texts"),
    [
        (4.0000001, 4.0, ("4.0000001", "4")),
        (123451.0, 123460.0, ("123451", "123460")),
        (123456.7, 123456.2, ("123457", "123456")),
        (1.0, 1.0 + 2.0**-52, ("1", "1.0000000000000002")),
        (0.1, 0.1, ("0.10000000000000001", "0.10000000000000001")),
    ],
)
def test_numbers_have_six_digits_or_as_many_as_tell_them_apart(
    value: float, bound: float, texts: Any
) -> None:
    assert distinct_texts(value, bound) == texts


def test_columns_are_named_or_counted_and_ten_words_are_shown() -> None:
    assert column_names([0, 2], ["age", "pay", "rent"]) == "columns 'age', 'rent'"
    assert column_names([1], ["age", "pay", "rent"]) == "column 'pay'"
    assert column_names([0, 2], []) == "columns 0, 2 (counted from 0)"
    assert column_names([1], []) == "column 1 (counted from 0)"
    assert listed(map(str, range(10))) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9"
    assert (
        listed(map(str, range(11))) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ... (11 in all)"
    )


@pytest.mark.parametrize(
    ("value", "valid", "tail"),
    [
        ("ALPHA", ["beta", "Alpha"], "did you mean 'Alpha'?"),
        ("ab", ["axyb", "abcdefg"], "did you mean 'axyb'?"),
        ("abcd", ["abxxxxxx", "b"], "choose one of 'abxxxxxx', 'b'."),
        ("cafe\u0301", ["caf\xe9"],
         "copy 'caf\xe9', which looks the same but has other characters"
         " ('caf\\xe9')."),
        (3, [], "add it; no name is left that could be meant."),
    ],
)  # fmt: skip
def test_the_nearest_name_has_half_of_the_letters_whatever_their_case(
    value: Any, valid: list[str], tail: str
) -> None:
    assert nearest(value, valid) == tail


@pytest.mark.parametrize(
    ("read", "kind", "taken", "refused"),
    [
        (partial(require_real, "x", mend="give 1"), float, [0, -1.5, Fraction(1, 2)],
         [math.nan, math.inf, True, "1"]),
        (partial(require_positive, "x"), float,
         [5e-324, 1.7e308, 0.5, 3, Fraction(1, 2), np.float32(2.0)],
         [0.0, -5e-324, 0, -1, math.inf, math.nan, True, "1", None]),
        (require_delta, float, [5e-324, math.nextafter(1, 0), Fraction(1, 2)],
         [0.0, 1.0, 0, 1, math.nan, True]),
        (partial(require_whole, "x", least=2, most=4), int, [2, 3, 4, np.int8(3)],
         [1, 5, 2.0, True, None]),
        (partial(require_whole, "x", least=0), int, [0, 10**30], [-1, False]),
    ],
)  # fmt: skip
def test_numbers_are_taken_up_to_their_bounds(
    read: Any, kind: type, taken: list[Any], refused: list[Any]
) -> None:
    for value in taken:
        assert read(value=value) == value
        assert type(read(value=value)) is kind
    for value in refused:
        with pytest.raises(
            ConfigurationError, match=rf"is {re.escape(repr(value))}, but it must be "
        ):
            read(value=value)


def test_a_whole_number_that_will_not_do_is_answered_as_the_caller_says() -> None:
    for more, told in (
        ({}, "of at least 2: give for example 2"),
        ({"most": 4, "mend": "give 3"}, "from 2 to 4: give 3"),
    ):
        with pytest.raises(
            ConfigurationError, match=rf"^x is 1, but it must be an integer {told}\.$"
        ):
            require_whole("x", 1, 2, **more)


@pytest.mark.parametrize("group", GROUPS)
def test_help_tells_every_option_of_an_object(group: type[Group]) -> None:
    for one in fields(group):
        assert f"\n{one.name} : " in str(group.__doc__)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (10**400, "inf"),
        pytest.param(10**5000, "inf", id="digits"),
        (math.nan, "nan"),
        (True, "True"),
        ("1", "'1'"),
    ],
)
def test_what_is_no_finite_number_is_refused_in_one_sentence(
    value: object, said: str
) -> None:
    """Also an integer beyond all floats, which Python may refuse to write."""
    with pytest.raises(
        ConfigurationError,
        match=f"^limit is {said}, but it must be a finite number: give 1.0.$",
    ):
        require_real("limit", value, "give 1.0")
    assert require_real("limit", 10**300, "give 1.0") == 1e300
