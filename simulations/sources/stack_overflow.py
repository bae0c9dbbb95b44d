"""Embedded questions of Stack Overflow as clients.

One per user, each with the questions on two topics.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data.files.guarded import UNREADABLE
from flwr_dpkmeans.data.files.located import locate_file
from flwr_dpkmeans.data.validated import validate_points
from flwr_dpkmeans.errors import ConfigurationError, DataError, require_whole
from simulations.sources.federated import FederatedData
from simulations.sources.mixture import check_generator

_COLUMNS = ("embeddings", "user_ids", "tags")


def load_stack_overflow(
    path: str | Path,
    tags: Sequence[str] = ("github", "pdf"),
    *,
    rng: np.random.Generator,
    server_points_per_tag: int = 10,
    server_points_of_others: int = 1000,
) -> FederatedData:
    """Load the questions that have one of the chosen tags, one client per user.

    A client is a user with at least one question that has a chosen tag, and holds only
    such questions. The server has a few questions of each chosen tag, and questions
    without any of them [1]_. As the server's points are public, no client wrote one of
    them: the users who wrote the few questions with a chosen tag are no clients, which
    leaves at most 20 users out, and the other questions are those of users who never
    used a chosen tag.

    Parameters
    ----------
    path : str or Path
        A file that was prepared beforehand, with one row per question and

        * ``embeddings``: numbers of shape (n, d), in the paper from a sentence
          embedding with d = 384;
        * ``user_ids``: an integer or text of each question's author;
        * ``tags``: text with the tags joined by ``|``, as in ``"python|pdf"``.

        They are arrays of a .npz file (none with pickled objects), or columns of a
        .parquet file, where ``embeddings`` holds lists.
    tags : sequence of str
        The chosen tags. The paper has (machine-learning, math), (github, pdf),
        (facebook, hibernate) and (plotting, cookies).
    rng : numpy.random.Generator
        Draws the server's questions, without replacement.
    server_points_per_tag, server_points_of_others : int
        The number of the server's questions with each chosen tag, and with none of
        them.

    Returns
    -------
    FederatedData
        Clients in ascending order of the user's id, which is their name. The server's
        questions come tag by tag, and then the others.

    Raises
    ------
    DataError
        If the file cannot be used, a chosen tag or enough questions are not there, or
        an embedding of a chosen question is not finite. No message contains a value of
        a cell.
    ConfigurationError
        If the tags are not distinct words, or a number is out of its range.

    References
    ----------
    .. [1] J. Scott, C. H. Lampert, D. Saulpic, "Differentially private federated
    k-means clustering with server-side
       data", 2025, appendix G.1.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder) / "questions.npz"
    ...     tags = ["pdf|c", "c", "github", "c"]
    ...     np.savez(file, embeddings=np.eye(4), user_ids=[7, 7, 3, 5], tags=tags)
    ...     data = load_stack_overflow(
    ...         file,
    ...         rng=np.random.default_rng(0),
    ...         server_points_per_tag=0,
    ...         server_points_of_others=1,
    ...     )
    >>> data.client_names, [len(points) for points in data.clients]
    (('3', '7'), [1, 1])
    >>> data.server_points.tolist()
    [[0.0, 0.0, 0.0, 1.0]]
    """
    check_generator(rng)
    require_whole("server_points_per_tag", server_points_per_tag, 0)
    require_whole("server_points_of_others", server_points_of_others, 0)
    chosen_tags = _check_tags(tags)
    embeddings, users, joined = _read(locate_file(path, "file of questions", DataError))
    has_tag = _find_tags(joined, chosen_tags)

    is_chosen = has_tag.any(axis=1)
    of_tags = _choose_per_tag(has_tag, chosen_tags, server_points_per_tag, rng)
    others = np.flatnonzero(~np.isin(users, users[is_chosen]))
    of_others = _choose(
        others, server_points_of_others, "by users without a chosen tag", rng
    )

    rows = np.flatnonzero(is_chosen & ~np.isin(users, users[of_tags]))
    rows = rows[np.argsort(users[rows], kind="stable")]
    ids, starts = np.unique(users[rows], return_index=True)
    # One array for all clients, cut into views.
    points = validate_points(embeddings[rows])
    return FederatedData(
        tuple(np.split(points, starts[1:])) if len(ids) else (),
        validate_points(embeddings[np.concatenate([of_tags, of_others])]),
        tuple(str(user) for user in ids),
        tuple(f"embedding_{index}" for index in range(embeddings.shape[1])),
    )


def _check_tags(tags: Sequence[str]) -> tuple[str, ...]:
    """Refuse a single word in place of a sequence, and what cannot be a tag."""
    is_sequence = isinstance(tags, Sequence) and not isinstance(tags, str)
    if (
        not is_sequence
        or not tags
        or not all(isinstance(tag, str) and tag and "|" not in tag for tag in tags)
    ):
        raise ConfigurationError(
            f"tags is {tags!r}, but it must be a sequence of at least 1 word without"
            " '|': give for example ('github', 'pdf')."
        )
    if len(set(tags)) < len(tags):
        raise ConfigurationError(
            f"tags is {tuple(tags)!r}, but the tags must differ: remove the repeated"
            " ones."
        )
    return tuple(tags)


def _read(path: Path) -> tuple[NDArray[np.generic], NDArray[np.generic], list[str]]:
    """Read the three columns and check that they fit together."""
    if path.suffix.lower() not in (".npz", ".parquet"):
        raise DataError(
            f"the file of questions {str(path)!r} has the suffix {path.suffix!r}, but"
            " only .npz and .parquet can be read: convert the file to one of these."
        )
    try:
        embeddings, users, tags = (
            _read_npz(path) if path.suffix.lower() == ".npz" else _read_parquet(path)
        )
    except KeyError as error:
        problem = (
            f"has no {error.args[0]!r}, but it needs 'embeddings', 'user_ids' and"
            " 'tags': add what is missing"
        )
    except UNREADABLE as error:
        problem = (
            f"cannot be read ({type(error).__name__}), but it must be complete, with"
            " equally long embeddings and without pickled objects: save it again"
        )
    else:
        _check_columns(embeddings, users, tags, path)
        return embeddings, users, tags.tolist()
    raise DataError(f"the file of questions {str(path)!r} {problem}.")


def _read_npz(path: Path) -> tuple[NDArray[np.generic], ...]:
    """Read arrays; those of Python objects are refused by numpy."""
    with np.load(path, allow_pickle=False) as archive:
        for name in _COLUMNS:
            if name not in archive.files:
                raise KeyError(name)
        return tuple(archive[name] for name in _COLUMNS)


def _read_parquet(path: Path) -> tuple[NDArray[np.generic], ...]:
    """Read columns; the lists of embeddings become rows without a detour over Python
    objects.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            for name in _COLUMNS:
                if name not in file.schema_arrow.names:
                    raise KeyError(name)
            table = file.read(columns=list(_COLUMNS))
        vectors = table.column("embeddings").combine_chunks()
        lengths = pc.list_value_length(vectors).unique()
        flat = vectors.flatten().to_numpy(zero_copy_only=False)
    except pa.ArrowException as error:
        raise ValueError(str(error)) from error
    if vectors.null_count or len(lengths) != 1:
        raise ValueError("the embeddings are missing or differ in length")
    users, tags = (np.asarray(table.column(name).to_pylist()) for name in _COLUMNS[1:])
    return flat.reshape(len(vectors), -1), users, tags


def _check_columns(
    embeddings: NDArray[np.generic],
    users: NDArray[np.generic],
    tags: NDArray[np.generic],
    path: Path,
) -> None:
    """Refuse columns of the wrong shape or type."""
    who = f"the file of questions {str(path)!r}"
    if embeddings.ndim != 2 or embeddings.dtype.kind not in "iuf":
        raise DataError(
            f"{who} has embeddings of shape {embeddings.shape} and dtype"
            f" {embeddings.dtype}, but they must be numbers of shape (n, d): save one"
            " vector per question."
        )
    for name, column, kinds in (("user_ids", users, "iuU"), ("tags", tags, "U")):
        if column.shape != (len(embeddings),) or column.dtype.kind not in kinds:
            raise DataError(
                f"{who} has {name} of shape {column.shape} and dtype {column.dtype},"
                f" but there must be {'text' if kinds == 'U' else 'an integer or text'}"
                f" for each of the {len(embeddings)} questions: fill in or convert what"
                " does not fit."
            )


def _find_tags(joined: list[str], tags: tuple[str, ...]) -> NDArray[np.bool_]:
    """Tell for each question which of the chosen tags it has.

    Whole tags count, not parts of words.
    """
    rows = []
    for text in joined:
        of_question = set(text.split("|"))
        rows.append([tag in of_question for tag in tags])
    return np.array(rows, dtype=bool).reshape(len(joined), len(tags))


def _choose_per_tag(
    has_tag: NDArray[np.bool_],
    tags: tuple[str, ...],
    count: int,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Draw different questions for each tag.

    One with two chosen tags counts for the first that draws it.
    """
    chosen = np.empty(0, dtype=np.int64)
    for index, tag in enumerate(tags):
        of_tag = np.flatnonzero(has_tag[:, index])
        if not len(of_tag):
            raise DataError(
                f"no question of the file has the tag {tag!r}, but each chosen tag"
                " needs some: correct it."
            )
        candidates = np.setdiff1d(of_tag, chosen)
        chosen = np.concatenate(
            [chosen, _choose(candidates, count, f"with the tag {tag!r}", rng)]
        )
    return chosen


def _choose(
    candidates: NDArray[np.int64], count: int, what: str, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Draw questions for the server without replacement."""
    if len(candidates) < count:
        raise DataError(
            f"the server is to have {count} questions {what}, but there are"
            f" {len(candidates)}: ask for fewer, or give a larger file."
        )
    return rng.choice(candidates, size=count, replace=False)
