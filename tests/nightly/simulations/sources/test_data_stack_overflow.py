"""Stack Overflow's users as clients: tags, the server's share, formats and errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flwr_dpkmeans.errors import DataError
from simulations.sources.federated import FederatedData
from simulations.sources.stack_overflow import load_stack_overflow

# The first coordinate of an embedding is the number of its question, so that rows can
# be told apart.
USERS = [30, 4, 4, 30, 200, 5, 6, 6, 7]
TAGS = [
    "pdf|c",
    "github",
    "python",
    "git",
    "pdf|github",
    "github-api",
    "c|pdf",
    "pdf",
    "python|c",
]
CHOSEN = {0, 1, 4, 6, 7}


def embeddings(n_rows: int = len(USERS), n_features: int = 384) -> np.ndarray:
    values = (
        np.random.default_rng(0)
        .standard_normal((n_rows, n_features))
        .astype(np.float32)
    )
    values[:, 0] = np.arange(n_rows)
    return values


def write(
    path: Path, vectors: Any = None, users: Any = USERS, tags: Any = TAGS
) -> Path:
    vectors = embeddings() if vectors is None else vectors
    if path.suffix == ".npz":
        np.savez(path, embeddings=vectors, user_ids=users, tags=tags)
    else:
        pq.write_table(
            pa.table({"tags": tags, "embeddings": list(vectors), "user_ids": users}),
            path,
        )
    return path


def load(
    path: Path, tags: Any = ("github", "pdf"), *, seed: int = 0, **options: Any
) -> FederatedData:
    options = {"server_points_per_tag": 0, "server_points_of_others": 0, **options}
    return load_stack_overflow(path, tags, rng=np.random.default_rng(seed), **options)


def failure(path: Path, error: type[Exception] = DataError, **options: Any) -> str:
    with pytest.raises(error) as caught:
        load(path, **options)
    return str(caught.value)


def questions(points: np.ndarray) -> list[int]:
    return [int(number) for number in points[:, 0]]


@pytest.fixture(params=["npz", "parquet"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return write(tmp_path / f"questions.{request.param}")


def test_clients_are_users_with_only_the_chosen_questions(file: Path) -> None:
    data = load(file)
    assert data.client_names == ("4", "6", "30", "200")
    assert [questions(points) for points in data.clients] == [[1], [6, 7], [0], [4]]
    assert data.n_features == len(data.feature_names) == 384
    assert data.clients[1].dtype == np.float64
    np.testing.assert_array_equal(data.clients[1], embeddings()[[6, 7]])
    assert data.server_points.shape == (0, 384)


def test_whole_tags_count(file: Path) -> None:
    # "github-api" and "git" are other tags.
    assert {
        number
        for points in load(file, ["github"]).clients
        for number in questions(points)
    } == {1, 4}


@pytest.mark.parametrize("seed", range(8))
def test_server_and_clients_have_no_user_in_common(file: Path, seed: int) -> None:
    data = load(file, seed=seed, server_points_per_tag=1, server_points_of_others=2)
    at_server = questions(data.server_points)
    assert "github" in TAGS[at_server[0]].split("|")
    assert "pdf" in TAGS[at_server[1]].split("|")
    assert at_server[0] != at_server[1]
    # Users 5 and 7 never used a chosen tag; question 2 and 3 are of users who did.
    assert set(at_server[2:]) == {5, 8}
    writers = {str(USERS[number]) for number in at_server}
    assert writers.isdisjoint(data.client_names)
    kept = {number for points in data.clients for number in questions(points)}
    assert kept == {number for number in CHOSEN if str(USERS[number]) not in writers}


def test_server_follows_the_generator(tmp_path: Path) -> None:
    n_rows = 600
    tags = ["pdf"] * 200 + ["github"] * 200 + ["c"] * 200
    path = write(tmp_path / "q.npz", embeddings(n_rows, 4), np.arange(n_rows), tags)
    options = {"server_points_per_tag": 10, "server_points_of_others": 50}
    first, again, other = (load(path, seed=seed, **options) for seed in (0, 0, 1))
    assert first.server_points.shape == (70, 4)
    assert (
        questions(first.server_points)
        == questions(again.server_points)
        != questions(other.server_points)
    )
    assert len(set(questions(first.server_points))) == 70
    assert all(200 <= number < 400 for number in questions(first.server_points)[:10])
    assert all(number < 200 for number in questions(first.server_points)[10:20])
    assert all(number >= 400 for number in questions(first.server_points)[20:])
    assert first.n_clients == 380


def test_defaults_are_those_of_the_paper(tmp_path: Path) -> None:
    tags = ["pdf"] * 15 + ["github"] * 15 + ["c"] * 1100
    path = write(tmp_path / "q.npz", embeddings(1130, 3), np.arange(1130), tags)
    data = load_stack_overflow(path, rng=np.random.default_rng(0))
    assert data.server_points.shape == (1020, 3)
    assert data.n_clients == 10


def test_parquet_with_lists_of_fixed_length(tmp_path: Path) -> None:
    vectors = embeddings(n_features=3)
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 3)
    path = tmp_path / "q.parquet"
    pq.write_table(
        pa.table({"embeddings": column, "user_ids": USERS, "tags": TAGS}), path
    )
    assert [questions(points) for points in load(path).clients] == [
        [1],
        [6, 7],
        [0],
        [4],
    ]


def test_too_few_questions(file: Path) -> None:
    assert (
        failure(file, server_points_per_tag=3)
        == "the server is to have 3 questions with the tag 'github', but there are 2:"
        " ask for fewer, or give a larger file."
    )
    # The question with both tags is among the four that are drawn for pdf, and cannot
    # be drawn again.
    assert "4 questions with the tag 'github', but there are 1" in failure(
        file, tags=["pdf", "github"], server_points_per_tag=4
    )
    assert "3 questions by users without a chosen tag, but there are 2" in failure(
        file, server_points_of_others=3
    )
