"""Sums of any app's arrays: by hand, against their bounds, and the page's federation
against FedAvg without masks.
"""

from __future__ import annotations

import base64
import math
import re
import runpy
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.pages import ROOT

from flwr_dpkmeans import ProxyLloyd, SecureSum
from flwr_dpkmeans.errors import CohortError, ConfigurationError, LocalMisuseError
from flwr_dpkmeans.flower.client.wrapped_app import WrappedApp
from flwr_dpkmeans.flower.client_app import client_app
from flwr_dpkmeans.flower.in_process_grid import InProcessGrid, Node
from flwr_dpkmeans.flower.mod import SecureAggregation
from flwr_dpkmeans.node.ledger import MemoryLedger
from flwr_dpkmeans.node.node_settings import NodeSettings
from flwr_dpkmeans.node.policy import DEPLOYED, IN_SIMULATION, ClientPolicy
from flwr_dpkmeans.options import read_config
from flwr_dpkmeans.privacy.release import as_released
from flwr_dpkmeans.sums.build import build_algorithm, initial_state
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.round import State

PAGE = ROOT / "flwr_dpkmeans" / "docs" / "how-to" / "own_flower_app.md"
REACH = 2.0**8
Vector = NDArray[np.float64]
Answer = Callable[[dict[str, Vector]], dict[str, Any]]


def record(**arrays: Any) -> ArrayRecord:
    return ArrayRecord(
        {name: Array(np.array(value, dtype=float)) for name, value in arrays.items()}
    )


def plan_of(**options: Any) -> Plan:
    run = SecureSum(record(a=[1.0, 2.0], b=[[3.0]]), **options).config
    return draft_plan(run, run_id=1, n_clients=8, seed=1, n_features=1)


def statistic_of(
    plan: Plan, answer: dict[str, Vector], n_examples: int | None = None
) -> list[Vector]:
    task: Any = plan.task
    start = initial_state(plan)
    added = task.contribution(task.named(start, plan.n_clients), answer, n_examples)
    return list(build_algorithm(plan).rounds[0].statistic(added, start))


def test_a_strict_policy_lets_exact_sums_through_only_as_the_page_says() -> None:
    (sentence,) = re.findall(
        "^Between parties.*(?:\n.+)*?for exact sums.*$", PAGE.read_text(), re.MULTILINE
    )
    keys = dict.fromkeys(re.findall("`(allow-[a-z-]+) = true`", sentence), True) | {
        "allowed-units": ["client"]
    }
    keys |= {
        "max-epsilon-per-run": math.inf,
        "max-epsilon-total": math.inf,
        "max-delta": 1e-6,
        "min-cohort": 3,
    }
    ClientPolicy.from_mapping(
        keys, base=DEPLOYED
    ).require_complete()  # an infinite limit counts as none


# -- one client ------------------------------------------------------------------------


def test_updates_and_weights_by_hand() -> None:
    """The answer moves the arrays by (3, 0, 4), of norm 5."""
    plan = plan_of(clip=10.0, most_examples=40, epsilon=2.0)
    answer = {"a": np.array([4.0, 2.0]), "b": np.array([[7.0]])}
    update, weight = statistic_of(plan, answer, 10)
    np.testing.assert_allclose(update, [0.3 * 64, 0.0, 0.4 * 64], atol=2.0**-16)
    assert weight.tolist() == [64.0]
    # Beyond the clip norm the direction stays; more examples than the most weigh no
    # more.
    update, weight = statistic_of(
        plan_of(clip=1.0, most_examples=40, epsilon=2.0), answer, 100
    )
    np.testing.assert_allclose(update, [0.6 * 256, 0.0, 0.8 * 256], atol=2.0**-15)
    assert weight.tolist() == [256.0]
    huge = {"a": np.array([1e308, 2.0]), "b": np.array([[3.0]])}
    (update,) = statistic_of(plan_of(clip=0.5, epsilon=2.0), huge)
    np.testing.assert_allclose(update, [256.0, 0.0, 0.0], atol=2.0**-15)
    half = {"a": np.array([1.5, 2.0]), "b": np.array([[3.0]])}
    (update,) = statistic_of(
        plan_of(epsilon=2.0), half
    )  # with noise the default clip is 1
    assert update.tolist() == [128.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("clip", "answer", "norm", "changed"),
    [
        (10.0, [4.0, 2.0, 7.0], 5.0, [0.0, 0.0, 0.0, 0.0]),
        (5.0, [4.0, 2.0, 7.0], 5.0, [0.0, 0.0, 0.0, 0.0]),
        (1.0, [4.0, 2.0, 7.0], 1.0, [1.0, 0.0, 0.0, 0.0]),
        (1.0, [1e308, 2.0, 3.0], 1.0, [1.0, 0.0, 0.0, 0.0]),
        (None, [4.0, 2.0, 7.0], 5.0, [0.0, 0.0, 0.0, 0.0]),
        (None, [2.0**28 + 1.0, 2.0, 3.0], 2.0**28, [0.0, 0.0, 0.0, 0.0]),
        (None, [2.0**28 + 2.0, 2.0, 3.0], 0.0, [0.0, 0.0, 1.0, 0.0]),
        (None, [np.nan, 2.0, 3.0], 0.0, [0.0, 0.0, 1.0, 0.0]),
    ],
)
def test_without_noise_a_part_is_exact_or_counted_as_changed(
    clip: float | None, answer: list[float], norm: float, changed: list[float]
) -> None:
    plan = plan_of(clip=clip)
    scale = plan.task.scale(plan.n_clients)  # type: ignore[attr-defined]
    update, counts = statistic_of(
        plan, {"a": np.array(answer[:2]), "b": np.array([answer[2:]])}
    )
    assert np.linalg.norm(update) * scale.unit / scale.reach == pytest.approx(
        norm, rel=1e-8
    )
    assert counts.tolist() == changed


@pytest.mark.parametrize(
    ("options", "weight", "divisor"),
    [
        ({}, 512.0, 2.0),
        ({}, 64.0, 0.25),
        ({"epsilon": 2.0}, 512.0, 2.0),
        ({"epsilon": 2.0}, 64.0, 1.0),
        ({"epsilon": 2.0}, -99.0, 1.0),
    ],
)
def test_a_mean_divides_by_the_weights(
    options: dict[str, Any], weight: float, divisor: float
) -> None:
    """Of 256 (or, without noise, of the largest in the ring) for each client."""
    step = build_algorithm(plan := plan_of(most_examples=40, **options)).rounds[0]
    blocks = plan.rounds[0].blocks
    unit = blocks[1].entry_bound / 256.0
    numbers = [
        16.0,
        0.0,
        -32.0,
        weight * unit,
        *np.zeros(sum(block.size for block in blocks[2:])),
    ]
    steps = np.ldexp(numbers, 16).astype(np.int64).view(np.uint64)
    moved = step.advance(initial_state(plan), as_released(steps, blocks, 16))["moved"]
    assert moved.tolist() == [16.0 / divisor, 0.0, -32.0 / divisor]


def test_a_mean_of_nothing_is_no_move() -> None:
    step = build_algorithm(plan := plan_of(most_examples=40)).rounds[0]
    nothing = as_released(np.zeros(8, dtype=np.uint64), plan.rounds[0].blocks, 16)
    assert step.advance(initial_state(plan), nothing)["moved"].tolist() == [
        0.0,
        0.0,
        0.0,
    ]


def test_arrays_without_first_values_begin_with_zeros() -> None:
    task: Any = replace(plan_of(clip=2.0, epsilon=1.0).task, start="")  # type: ignore[type-var]
    found = task.named(State({"moved": np.array([128.0, 0.0, -256.0])}), 8)
    assert {name: array.tolist() for name, array in found.items()} == {
        "a": [1.0, 0.0],
        "b": [[-2.0]],
    }


@pytest.mark.parametrize("epsilon", [None, 2.0])
@settings(max_examples=40)
@given(
    st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=3, max_size=3),
    st.one_of(st.none(), st.floats(0.001, 1000.0)),
    st.integers(-5, 10**9),
)
def test_no_answer_moves_a_sum_beyond_what_it_declares(
    epsilon: float | None, values: list[float], clip: float | None, n_examples: int
) -> None:
    answer = {"a": np.array(values[:2]), "b": np.array([values[2:]])}
    plan = plan_of(clip=clip, most_examples=7, epsilon=epsilon)
    arrays = statistic_of(plan, answer, n_examples)
    for array, block in zip(arrays, plan.rounds[0].blocks, strict=True):
        steps = [int(value) for value in np.ldexp(array, 16)]
        assert [float(step) for step in steps] == np.ldexp(array, 16).tolist(), (
            "off the grid"
        )
        # In whole numbers, as floats may round the norm down.
        assert sum(step**2 for step in steps) <= Fraction(
            block.sensitivity.bound * 2**16
        ) ** 2 * (1 + Fraction(1, 2**50))
        assert np.abs(array).max() <= block.entry_bound
        assert not block.sensitivity.nonnegative or min(steps) >= 0
    if not np.isfinite(values).all() or n_examples < 0:
        assert not arrays[0].any()
        assert not arrays[1].any()


def test_arrays_that_do_not_fit_are_refused() -> None:
    with pytest.raises(LocalMisuseError, match="must answer the arrays"):
        statistic_of(plan_of(), {"a": np.zeros(2)})
    with pytest.raises(LocalMisuseError, match="no 'num-examples'"):
        statistic_of(
            plan_of(most_examples=3), {"a": np.zeros(2), "b": np.zeros((1, 1))}
        )
    for arrays in ({}, {"a": []}):
        with pytest.raises(ConfigurationError, match="their names must differ"):
            SecureSum(record(**arrays))
    with pytest.raises(ConfigurationError, match="arrays a hold no real numbers"):
        SecureSum(ArrayRecord({"a": Array(np.array([1j]))}))
    for value in (np.nan, -np.inf):
        with pytest.raises(ConfigurationError, match="begin with NaN or infinity"):
            SecureSum(record(a=[1.0, value]))
    with pytest.raises(
        ConfigurationError, match=r"epsilon is 0\.0"
    ):  # not the default, and not without noise
        SecureSum(record(a=[1.0]), epsilon=0.0)
    short = base64.b64encode(np.zeros(2).tobytes()).decode()
    with pytest.raises(ConfigurationError, match="with 2 values"):
        plan_of().config.changed(start=short)


@pytest.mark.parametrize(("epsilon", "ratio"), [(None, None), (1.0, 8.0)])
def test_weights_have_an_eighth_of_the_share(
    epsilon: float | None, ratio: float | None
) -> None:
    (planned,) = plan_of(most_examples=40, epsilon=epsilon).rounds
    updates, weights = planned.blocks[:2]
    assert planned.name == "arrays-1"
    most = 256.0 if epsilon else 2.0**36
    for block, shape, nonnegative in ((updates, (3,), False), (weights, (1,), True)):
        assert (block.shape, block.entry_bound) == (shape, most)
        assert block.sensitivity.bound == (
            most if epsilon else most * np.sqrt(block.size)
        )
        assert (block.sensitivity.nonnegative, block.sensitivity.unit.value) == (
            nonnegative,
            "client",
        )
    if ratio is None:
        assert updates.noise_multiplier == weights.noise_multiplier == 0.0
    else:
        assert weights.noise_multiplier / updates.noise_multiplier == pytest.approx(
            ratio
        )


# -- federations -----------------------------------------------------------------------


class Losing(InProcessGrid):
    """The answers of some nodes are lost from the third request on."""

    lost: frozenset[int] = frozenset()
    n_sent = 0

    def deliver(self, message: Message) -> list[Message]:
        replies, node = super().deliver(message), message.metadata.dst_node_id
        self.n_sent += node == min(self._nodes)
        return [] if node in self.lost and self.n_sent > 2 else replies


def app_of(answer: Answer, kept: list[dict[str, Vector]] | None = None) -> ClientApp:
    own = NodeSettings(IN_SIMULATION, MemoryLedger(), "default", simulated=True)
    app = ClientApp(mods=[SecureAggregation(lambda _: own, wrapped=WrappedApp)])

    def arrays_in(message: Message) -> dict[str, Vector]:
        return {
            name: array.numpy() for name, array in message.content["arrays"].items()
        }

    @app.train()
    def train(message: Message, context: Context) -> Message:
        return Message(
            RecordDict({"arrays": record(**answer(arrays_in(message)))}),
            reply_to=message,
        )

    @app.evaluate()
    def keep(message: Message, context: Context) -> Message:
        if kept is not None:
            kept.append(arrays_in(message))
        return Message(RecordDict(), reply_to=message)

    return app


def adding(amount: float, kept: list[dict[str, Vector]] | None = None) -> Node:
    return Node(
        app_of(
            lambda arrays: {name: array + amount for name, array in arrays.items()},
            kept,
        )
    )


def run(grid: InProcessGrid, strategy: SecureSum) -> Any:
    with grid.running():
        return strategy.start(grid)


def test_rounds_add_up(caplog: pytest.LogCaptureFixture) -> None:
    """Each of 3 clients adds 1, 2 and 4 in each of 2 rounds."""
    caplog.set_level(
        "INFO"
    )  # and the log, whose lines speak of clusters elsewhere, is no error
    result = run(
        InProcessGrid(map(adding, (1.0, 2.0, 4.0))),
        SecureSum(record(a=[0.0, 10.0]), clip=10.0, max_iter=2),
    )
    np.testing.assert_allclose(result.arrays["a"].numpy(), [14.0, 24.0], atol=2e-5)
    assert not result.privacy.is_private


def answering(**arrays: Any) -> Node:
    """A client whose app answers arrays as they are."""
    return Node(app_of(lambda _: arrays))


def sum_of(*parts: Any, like: Any = None, **options: Any) -> Any:
    """The run in which each client answers one array, of the first one's type."""
    zeros = np.zeros_like(parts[0]) if like is None else like
    grid = InProcessGrid([answering(a=np.asarray(part)) for part in parts])
    return run(grid, SecureSum(ArrayRecord({"a": Array(zeros)}), **options))


def total(result: Any) -> Vector:
    values: Vector = result.arrays["a"].numpy()
    return values


@pytest.mark.parametrize("factor", [1e-3, 1.0, 1e6])
def test_without_epsilon_nothing_is_clipped(factor: float) -> None:
    parts = [np.array([0.5, 1.0, 2.0, 4.0]) * factor] * 3
    result = sum_of(*parts)
    np.testing.assert_allclose(total(result), np.sum(parts, axis=0), rtol=1e-4)
    assert not any("parts" in sentence for sentence in result.privacy.warnings)
    # What is stated as the largest is also what the steps follow from.
    np.testing.assert_allclose(
        total(sum_of(*parts, largest=4.0 * factor)), np.sum(parts, axis=0), rtol=1e-12
    )


ROUNDED = "3 of 3 parts that clients added lost more than a thousandth of their length"


@pytest.mark.parametrize(
    ("part", "options"),
    [
        (np.array([1e-9, 2e-9]), {}),
        (np.array([5e-324, 0.0]), {}),
        (np.array([1.0, 2.0]), {"largest": 2.0**80}),
        (np.array([1.0, 2.0]), {"clip": 2.0**80}),
    ],
)
def test_what_rounding_takes_is_said_by_the_result_and_to_its_owner(
    part: Vector, options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    result = sum_of(part, part, part, **options)
    assert not total(result).any()
    assert sum(one.startswith(ROUNDED) for one in result.privacy.warnings) == 1
    assert caplog.text.count("that took 1 of its length") == 3
    if part.max() > 2.0**-99:
        # Parts of the size that is stated lose nothing, and nothing is said.
        fine = sum_of(part, part, part, largest=float(part.max()))
        np.testing.assert_allclose(total(fine), 3 * part, rtol=1e-12)
        assert not any("lost" in one for one in fine.privacy.warnings)


def test_a_mean_whose_weights_are_tiny_says_so() -> None:
    grid = InProcessGrid([weighing(1e-3, 100), weighing(3e-3, 100)])
    result = run(grid, SecureSum(record(a=[0.0]), most_examples=10**9))
    assert total(result)[0] == 0.0
    (sentence,) = [one for one in result.privacy.warnings if "lost" in one]
    assert sentence.startswith("2 of 2 parts that clients added lost more than")
    assert "lower most_examples towards what clients have" in sentence


def test_fractions_that_a_sum_of_whole_numbers_cannot_have_are_said() -> None:
    parts = [np.array([0.4, 2.0])] * 3
    result = sum_of(*parts, like=np.zeros(2, dtype=np.int64))
    assert total(result).tolist() == [1, 6]
    (sentence,) = [one for one in result.privacy.warnings if "lost" in one]
    assert sentence.startswith(ROUNDED)
    assert sentence.endswith("or begin with floats.")


@pytest.mark.parametrize("bound", ["clip", "largest"])
def test_a_bound_with_which_whole_numbers_lose_their_last_digit_is_refused(
    bound: str,
) -> None:
    start = np.zeros(1, dtype=np.int64)
    parts = [np.array([2**51 - 1]), np.array([2**50 + 1])]
    fits = sum_of(*[part.astype(float) for part in parts], like=start, largest=2.0**51)
    assert total(fits).tolist() == [2**51 + 2**50]
    with pytest.raises(ConfigurationError, match=f"^{bound} is .* to the last digit"):
        sum_of(*parts, like=start, **{bound: 2.0**51 + 1.0})


def test_an_answer_of_another_kind_than_real_numbers_is_refused() -> None:
    answer: Any = {"a": np.array([1j, 2.0]), "b": np.array([[3.0]])}
    with pytest.raises(LocalMisuseError, match="answers complex128 for array 'a'"):
        statistic_of(plan_of(), answer)


def test_a_stated_clip_is_said_by_the_result_and_to_its_owner(
    caplog: pytest.LogCaptureFixture,
) -> None:
    parts = [np.array([3.0, 4.0]), np.array([0.3, 0.4]), np.array([6.0, 8.0])]
    result = sum_of(*parts, clip=1.0)
    np.testing.assert_allclose(total(result), [1.5, 2.0], rtol=1e-8)
    (sentence,) = [one for one in result.privacy.warnings if "parts" in one]
    assert sentence.startswith(
        "2 of 3 parts that clients added were longer than clip=1 and were scaled down"
        " to it"
    )
    own = [
        one.getMessage() for one in caplog.records if one.name == "flwr_dpkmeans.mod"
    ]
    assert [one for one in own if "norm" in one] == [
        "round 1: this client's part has L2 norm 5, but the plan clips at 1: it was"
        " scaled down to 0.2 of itself.",
        "round 1: this client's part has L2 norm 10, but the plan clips at 1: it"
        " was scaled down to 0.1 of itself.",
    ]  # fmt: skip
    server = [
        one.getMessage() for one in caplog.records if one.name == "flwr_dpkmeans.server"
    ]
    assert any("2 of 3 parts" in one for one in server)
    assert not any("norm 5" in one for one in server)


def test_with_epsilon_the_result_says_that_parts_may_be_clipped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for options, words in (
        ({}, "norm 1 (clip, the default, as no clip was stated)"),
        ({"clip": 2.0}, "norm 2 (clip)"),
    ):
        caplog.clear()
        result = sum_of(*[np.array([3.0, 4.0])] * 3, epsilon=2.0, **options)
        assert any(words in sentence for sentence in result.privacy.warnings)
        assert any(
            sentence.startswith("A part that is not finite adds nothing")
            for sentence in result.privacy.warnings
        )
        assert (
            caplog.text.count("this client's part has L2 norm 5, but the plan clips at")
            == 3
        )
        assert result.privacy.epsilon <= 2.0


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ([np.nan, 1.0], "1 of its 2 values are NaN or infinite"),
        ([np.inf, -np.inf], "2 of its 2 values are NaN or infinite"),
        (
            [1e12, 1.0],
            r"its largest value is 1e+12, but the plan has room up to 2.68435e+08",
        ),
    ],
)
def test_a_part_that_cannot_be_added_is_counted(
    bad: list[float], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    result = sum_of(np.array([1.0, 2.0]), np.array(bad), np.array([3.0, 4.0]))
    assert total(result).tolist() == [4.0, 6.0]
    assert any(
        one.startswith("1 of 3 parts that clients added were left out")
        for one in result.privacy.warnings
    )
    assert (
        f"this client's part is left out of the sum, as {reason}: see to the app."
        in caplog.text
    )


def weighing(value: float, n_examples: Any) -> Node:
    """A client that answers one number, and how many examples it follows from."""
    own = NodeSettings(IN_SIMULATION, MemoryLedger(), "default", simulated=True)
    app = ClientApp(mods=[SecureAggregation(lambda _: own, wrapped=WrappedApp)])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        metrics = MetricRecord({"num-examples": n_examples})
        return Message(
            RecordDict({"arrays": record(a=[value]), "metrics": metrics}),
            reply_to=message,
        )

    @app.evaluate()
    def keep(message: Message, context: Context) -> Message:
        return Message(RecordDict(), reply_to=message)

    return Node(app)


@pytest.mark.parametrize(
    ("n_examples", "mean", "words", "owner"),
    [
        (2000, 0.5, "1 of 2 parts came from more than most_examples=1000",
         "this client has 2000 examples"),
        (-1, 0.0, "1 of 2 parts that clients added were left out",
         "num-examples is -1, which is no finite number"),
        (math.nan, 0.0, "1 of 2 parts that clients added were left out",
         "num-examples is nan, which is no finite"),
        (3000 / 7, 0.3, "", ""),
    ],
)  # fmt: skip
def test_a_weight_that_counts_as_another_is_said(
    n_examples: float, mean: float, words: str, owner: str,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    grid = InProcessGrid([weighing(0.0, 1000), weighing(1.0, n_examples)])
    result = run(grid, SecureSum(record(a=[0.0]), most_examples=1000))
    assert total(result)[0] == pytest.approx(mean, abs=1e-6)
    warnings = [one for one in result.privacy.warnings if "parts" in one]
    assert len(warnings) == bool(words)
    assert "".join(warnings).startswith(words)
    assert owner in caplog.text


@pytest.mark.parametrize(
    ("start", "options", "dtype"),
    [
        (np.zeros((), dtype=np.float64), {}, "float64"),
        (np.zeros((1, 2), dtype=np.float32), {}, "float32"),
        (np.zeros(2, dtype=np.float32), {"most_examples": 10}, "float32"),
        (np.zeros(2, dtype=np.float16), {}, "float32"),
        (np.zeros(2, dtype=np.int64), {}, "int64"),
        (np.zeros(2, dtype=np.uint8), {}, "int64"),  # whose sum may be larger
        (np.zeros(2, dtype=np.int64), {"epsilon": 1.0}, "float64"),
        (np.zeros(2, dtype=np.int64), {"most_examples": 10}, "float64"),
        (np.zeros(2, dtype=bool), {}, "int64"),
    ],
)
def test_arrays_come_back_with_the_shape_and_type_that_they_had(
    start: NDArray[Any], options: dict[str, Any], dtype: str
) -> None:
    seen: list[NDArray[Any]] = []

    def node(value: float) -> Node:
        own = NodeSettings(IN_SIMULATION, MemoryLedger(), "default", simulated=True)
        app = ClientApp(mods=[SecureAggregation(lambda _: own, wrapped=WrappedApp)])

        @app.train()
        def train(message: Message, context: Context) -> Message:
            before = message.content.array_records["arrays"]["a"].numpy()
            seen.append(before)
            answer = ArrayRecord({"a": Array(np.full_like(before, value))})
            metrics = MetricRecord({"num-examples": 10})
            return Message(
                RecordDict({"arrays": answer, "metrics": metrics}), reply_to=message
            )

        @app.evaluate()
        def keep(message: Message, context: Context) -> Message:
            seen.append(message.content.array_records["arrays"]["a"].numpy())
            return Message(RecordDict(), reply_to=message)

        return Node(app)

    result = run(
        InProcessGrid([node(200.0), node(100.0)]),
        SecureSum(ArrayRecord({"a": Array(start)}), **options),
    )
    for array in (*seen, total(result)):
        assert (array.shape, array.dtype) == (start.shape, np.dtype(dtype))
    if not options:
        assert (total(result) == 300).all()


def test_who_evaluates_each_round_sees_the_arrays_as_they_are_named() -> None:
    seen: list[list[float]] = []

    def evaluate(_: int, arrays: ArrayRecord) -> None:
        assert list(arrays) == ["a"]
        seen.append(arrays["a"].numpy().tolist())

    grid = InProcessGrid(map(adding, (1.0, 2.0)))
    with grid.running():
        SecureSum(record(a=[5.0]), max_iter=2, trust="distributed").start(
            grid, evaluate_fn=evaluate
        )
    assert seen == [[8.0], [11.0]]


def test_whole_numbers_are_summed_exactly_or_refused() -> None:
    parts = [np.array([2**27 + 1, -(2**27) - 3]), np.array([2**26 + 1, 5])]
    assert total(sum_of(*parts)).tolist() == np.sum(parts, axis=0).tolist()
    with pytest.raises(ConfigurationError, match="begins with 4503599627370497"):
        SecureSum(ArrayRecord({"a": Array(np.array([2**52 + 1]))}))


def test_arrays_without_entries_stand_beside_others() -> None:
    def answer(arrays: dict[str, Vector]) -> dict[str, Vector]:
        return {name: array + 1.0 for name, array in arrays.items()}

    start = record(a=[1.0], b=np.zeros((0, 3)), c=[[2.0]])
    result = run(
        InProcessGrid([Node(app_of(answer)), Node(app_of(answer))]), SecureSum(start)
    )
    assert {name: array.numpy().tolist() for name, array in result.arrays.items()} == {
        "a": [3.0],
        "b": [],
        "c": [[4.0]],
    }
    assert result.arrays["b"].numpy().shape == (0, 3)


def test_bounds_that_do_not_go_together_and_options_of_others_are_refused() -> None:
    start = record(a=[1.0])
    with pytest.raises(ConfigurationError, match="largest is 3, but with epsilon"):
        SecureSum(start, epsilon=1.0, largest=3.0)
    with pytest.raises(ConfigurationError, match="largest is 3 and clip is 2"):
        SecureSum(start, clip=2.0, largest=3.0)
    with pytest.raises(ConfigurationError, match="SecureSum has no option") as caught:
        SecureSum(start, alpha=1.0)
    assert "array_sum" not in str(caught.value)
    with pytest.raises(ConfigurationError, match="did you mean 'most_examples'"):
        SecureSum(start, most_example=10)


def test_a_sum_is_recovered_without_the_clients_that_left() -> None:
    grid = Losing(map(adding, (1.0,) * 7 + (100.0,)))
    grid.lost = frozenset({9})
    result = run(
        grid, SecureSum(record(a=[0.0]), clip=1000.0, dropout="recover", max_silent=2)
    )
    np.testing.assert_allclose(result.arrays["a"].numpy(), [7.0], atol=1e-3)


def test_under_oblivious_clients_alone_get_the_arrays() -> None:
    kept: list[dict[str, Vector]] = []
    strategy = SecureSum(record(a=[5.0]), clip=8.0, trust="oblivious")
    result = run(InProcessGrid([adding(1.0, kept), adding(2.0, kept)]), strategy)
    assert len(result.arrays) == 0
    assert [arrays["a"].tolist() for arrays in kept] == [[8.0], [8.0]]


def test_noise_is_that_of_the_plan() -> None:
    """Nobody moves 1,000 zeros: their deviation is the plan's, all shares counted."""
    grid = InProcessGrid([adding(0.0)] * 3)
    strategy = SecureSum(
        record(a=np.zeros(1000)), clip=3.0, epsilon=2.0, noise="seeded", random_state=1
    )
    found = run(grid, strategy).arrays["a"].numpy()
    plan = strategy.run.plan
    planned = plan.released_std(plan.rounds[0], plan.rounds[0].blocks[0]) * 3.0 / REACH
    assert found.std() == pytest.approx(planned, rel=5 / np.sqrt(2 * 1000))
    assert plan.epsilon <= 2.0


def test_an_app_that_answers_sums_answers_no_other_plan(
    caplog: pytest.LogCaptureFixture,
) -> None:
    strategy = ProxyLloyd(2, bounds=(-1, 1), n_examples=900, n_features=1, max_iter=1)
    grid = InProcessGrid([adding(1.0), adding(2.0)])
    with grid.running(), pytest.raises(CohortError, match="did not answer round 1"):
        strategy.start(grid)
    assert (
        "'proxy_lloyd', but this node's app answers sums of arrays only" in caplog.text
    )


def test_no_server_sums_what_evaluate_answers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Confused(SecureSum):
        """Asks for evaluations."""

        def configure_train(self, *given: Any) -> list[Message]:
            return [
                Message(message.content, message.metadata.dst_node_id, "evaluate")
                for message in super().configure_train(*given)
            ]

    kept: list[dict[str, Vector]] = []
    with pytest.raises(CohortError, match="did not answer round 1"):
        run(InProcessGrid([adding(1.0, kept)] * 2), Confused(record(a=[0.0])))
    assert "a sum was asked of another function than the app's 'train'" in caplog.text
    assert kept == []


@pytest.mark.parametrize("size", [6, 7])
def test_no_plan_asks_a_table_how_many_rows_it_has(
    size: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Taken for what an app adds, 8 rows would fit 7 numbers and a weight."""
    own = NodeSettings(IN_SIMULATION, MemoryLedger(), "default", simulated=True)
    node = Node(
        client_app(lambda _: np.zeros((8, 1)), mod=SecureAggregation(lambda _: own))
    )
    grid = InProcessGrid([node, node])
    with grid.running(), pytest.raises(CohortError, match="did not answer round 1"):
        SecureSum(record(a=np.zeros(size)), clip=3.0).start(grid)
    assert "the plan sums an app's arrays, but this client has a table" in caplog.text
    assert "exact_array_sum" not in caplog.text
    assert own.ledger.entries() == ()


# -- the page --------------------------------------------------------------------------


@cache
def page(kind: str) -> str:
    after = PAGE.read_text().partition("\n## Sums of any arrays\n")[2]
    section = after.partition("\n## ")[0]
    (block,) = re.findall(rf"^```{kind}\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    return block


def test_the_pages_app_is_fedavg(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Against the same training with the weighted mean in float64."""
    (tmp_path / "fedavg.py").write_text(page("python"))
    app = runpy.run_path(str(tmp_path / "fedavg.py"))
    X, y, rows = app["X"], app["y"], np.flatnonzero(~app["test"])
    model = np.zeros((64, 10))
    for _ in range(2):
        found, weights = [], []
        for part in range(5):
            own, mine = model.copy(), rows[part::5]
            for _ in range(20):
                odds = np.exp(X[mine] @ own)
                own = own + 2.0 * X[mine].T @ (
                    np.eye(10)[y[mine]] - odds / odds.sum(1, keepdims=True)
                ) / len(mine)
            found.append(own)
            weights.append(len(mine))
        model = np.average(found, axis=0, weights=weights)
    own = NodeSettings(IN_SIMULATION, MemoryLedger(), "default", simulated=True)
    client = ClientApp(mods=[SecureAggregation(lambda _: own, wrapped=WrappedApp)])
    client.train()(app["train"])
    client.evaluate()(app["keep"])
    grid = InProcessGrid(
        [Node(client, {"partition-id": part, "num-partitions": 5}) for part in range(5)]
    )
    result = run(
        grid,
        SecureSum(
            record(model=np.zeros((64, 10))), most_examples=1000, clip=10.0, max_iter=2
        ),
    )
    np.testing.assert_allclose(result.arrays["model"].numpy(), model, atol=1e-4)


def test_arrays_that_begin_nowhere_in_particular_need_no_start() -> None:
    def check(shape: tuple[int, ...], **start: str) -> None:
        box: Any = ((-1.0,), (1.0,))
        run = read_config(
            algorithm="array_sum", bounds=box, n_features=1, unit="client",
            arrays=(("a", shape),), **start,
        )  # fmt: skip
        run.task.check(run.settings)

    check((2,))
    with pytest.raises(ConfigurationError, match="with 1 values, but they have 2"):
        check((2,), start=base64.b64encode(bytes(8)).decode())
    with pytest.raises(ConfigurationError, match="one of them must have a value"):
        check((0,))
