"""The state that rounds pass on: its digest, what a round sees of it, and how it
travels.
"""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.states import with_extras

from flwr_dpkmeans.algorithms.states.cluster_states import cluster_state
from flwr_dpkmeans.errors import PlanError, ProtocolError
from flwr_dpkmeans.sums.round import PrivateSum, State
from flwr_dpkmeans.sums.wire.packed_state import unpack_state


def example() -> State:
    extras = {"projection": np.eye(3, 2), "seed": np.array([5.0])}
    return cluster_state(
        np.arange(6.0).reshape(2, 3) / 8, np.array([3.0, 4.0]), (0.5, 0.25), extras
    )


def test_a_state_survives_the_wire() -> None:
    state, again = example(), unpack_state(example().packed)
    assert np.array_equal(again.centroids, state.centroids)
    assert np.array_equal(again.counts, state.counts)
    assert again.movements == state.movements
    assert list(again.extras) == ["projection", "seed"]
    assert np.array_equal(again.extras["projection"], np.eye(3, 2))
    assert again.digest == state.digest
    empty = cluster_state(np.zeros((1, 1)), np.zeros(1))
    assert unpack_state(empty.packed).digest == empty.digest


def test_what_came_over_the_wire_cannot_be_changed() -> None:
    again = unpack_state(example().packed)
    with pytest.raises(ValueError, match="read-only"):
        again.centroids[0, 0] = 1.0
    with pytest.raises(TypeError):
        again.arrays["other"] = np.zeros(1)  # type: ignore[index]


def test_every_value_name_and_shape_counts_in_the_digest() -> None:
    state = example()
    others = [
        state.changed(centroids=state.centroids + 2.0**-16),
        state.changed(counts=state.counts + 2.0**-16),
        state.changed(centroids=state.centroids.reshape(3, 2)),
        with_extras(state, {}),
        with_extras(state, {"projection": np.eye(3, 2)}),
        with_extras(
            state, {"projection": np.eye(3, 2).T.copy(), "seed": np.array([5.0])}
        ),
        with_extras(state, {"projected": np.eye(3, 2), "seed": np.array([5.0])}),
        with_extras(state, {"projection": np.eye(3, 2), "seed": np.array([6.0])}),
    ]
    assert len({other.digest for other in (state, *others)}) == len(others) + 1
    swapped = replace(state, arrays=dict(reversed(list(state.arrays.items()))))
    assert swapped.digest == state.digest


def test_a_state_needs_no_centroids() -> None:
    state = State({"histogram": np.array([1.0, 2.0])})
    again = unpack_state(state.packed)
    assert again["histogram"].tolist() == [1.0, 2.0]
    with pytest.raises(PlanError, match="the state has no main axis: run the step"):
        again["main_axis"]
    assert (
        again.digest
        == state.digest
        != State({"histogram": np.array([1.0, 3.0])}).digest
    )
    assert state.changed(histogram=np.zeros(2), means=np.zeros(1)).view(
        ("means",)
    ).arrays.keys() == {"means"}


def test_a_round_sees_what_it_reads() -> None:
    assert list(example().view(("seed",)).extras) == ["seed"]
    assert example().view(()).extras == {}
    assert np.array_equal(example().view(()).centroids, example().centroids)


def header(**changes: object) -> bytes:
    document = {
        "movements": 0,
        "arrays": {"centroids": [2, 3], "counts": [2]},
    } | changes
    return json.dumps(document).encode() + b"\n"


@pytest.mark.parametrize(
    "blob",
    [
        b"",
        b"\n",
        b"no json\n",
        b"[]\n",
        b"{}\n",
        header(),
        header() + bytes(8 * 7),
        header() + bytes(8 * 8 - 1),
        header(arrays={"centroids": [2], "counts": [2]}) + bytes(8 * 8),
        header(arrays={"centroids": [-2, 3], "counts": [2]}) + bytes(8 * 8),
        header(arrays={"centroids": [True, 3], "counts": [2]}) + bytes(8 * 4),
        header(arrays={"centroids": [2.0, 3], "counts": [2]}) + bytes(8 * 8),
        header(movements=2**40) + bytes(8 * 8),
        header(arrays={"p": [1, 1, 1]}) + bytes(8),
        header(arrays={"p": [2**31, 2**31]}) + bytes(8 * 9),
        header(arrays=[1]) + bytes(8 * 8),
        header() + np.full(8, np.nan).tobytes(),
        header() + np.full(8, np.inf).tobytes(),
        b"\n" + example().packed,
        example().packed[:-1],
        example().packed + b"\0",
    ],
)
def test_anything_else_is_a_protocol_error(blob: bytes) -> None:
    with pytest.raises(ProtocolError):
        unpack_state(blob)


@pytest.mark.parametrize(("most", "fits"), [(None, True), (2, True), (1, False)])
def test_a_state_has_no_more_movements_than_there_are_rounds(
    most: int | None, fits: bool
) -> None:
    if fits:
        assert unpack_state(example().packed, most).movements == (0.5, 0.25)
    else:
        with pytest.raises(ProtocolError, match="has 2 movements, but there are 1"):
            unpack_state(example().packed, most)


@pytest.mark.parametrize(("end", "fits"), [(9_999, True), (10_000, False)])
def test_a_states_header_ends_within_ten_thousand_bytes(end: int, fits: bool) -> None:
    blob = header(arrays={"p": [1]})[:-1].ljust(end) + b"\n" + bytes(8)
    assert blob.index(b"\n") == end
    if fits:
        assert unpack_state(blob)["p"].tolist() == [0.0]
    else:
        with pytest.raises(ProtocolError, match="header is missing or too long"):
            unpack_state(blob)
    with pytest.raises(ProtocolError, match="header is malformed"):
        unpack_state(b"\n")


@pytest.mark.parametrize("in_blocks", [True, False])
@pytest.mark.parametrize("profiles", [True, False])
@pytest.mark.parametrize("labels", [None, np.array([4, 5])])
@pytest.mark.parametrize("has_labelled", [True, False])
def test_a_round_is_given_what_it_asks_for(
    in_blocks: bool, profiles: bool, labels: np.ndarray | None, has_labelled: bool
) -> None:
    """The columns of a profile only where it has blocks and profiles."""
    points, beside = np.array([[1.0], [2.0]]), np.array([[7.0], [8.0]])
    step = PrivateSum(
        "step",
        (),
        lambda rows, _: [rows],
        lambda state, _: state,
        labelled=(lambda rows, _, found: [rows, found]) if has_labelled else None,
        in_blocks=in_blocks,
        profiles=profiles,
    )
    rows, *found = step.arrays_of(points, State({}), labels, beside)
    assert rows.tolist() == (
        [[1.0, 7.0], [2.0, 8.0]] if in_blocks and profiles else [[1.0], [2.0]]
    )
    assert [one.tolist() for one in found] == (
        [[4, 5]] if has_labelled and labels is not None else []
    )
    assert step.arrays_of(points, State({}), labels)[0].tolist() == [[1.0], [2.0]]
    if in_blocks:
        blocks: Any = SimpleNamespace(beside=lambda columns: columns * 2.0)
        assert (
            step.arrays_of(blocks, State({}), labels, beside)[0] is blocks or profiles
        )
        assert not profiles or step.arrays_of(blocks, State({}), labels, beside)[
            0
        ].tolist() == [[14.0], [16.0]]
