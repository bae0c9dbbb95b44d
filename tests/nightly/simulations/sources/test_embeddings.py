"""Raw questions to embeddings by a model of the user's own, and on to the experiment's
data.
"""

from __future__ import annotations

import doctest
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("hydra")

from flwr_dpkmeans.errors import DataError
from simulations.sources import embeddings
from simulations.sources.embeddings import (
    Question,
    embed,
    main,
    read_questions,
)
from simulations.sources.stack_overflow import load_stack_overflow

DUMP = """<?xml version="1.0" encoding="utf-8"?>
<posts>
  <row Id="1" PostTypeId="1" OwnerUserId="7" Title="A pdf?"
    Body="&lt;p&gt;How &amp;amp; why&lt;/p&gt;"
    Tags="&lt;pdf&gt;&lt;c#&gt;" />
  <row Id="2" PostTypeId="2" OwnerUserId="8" ParentId="1"
    Body="&lt;p&gt;An answer&lt;/p&gt;" />
  <row Id="3" PostTypeId="1" OwnerUserId="9" Title="Push" Body="x"
    Tags="|github|git|" />
  <row Id="4" PostTypeId="1" Title="Nobody's" Body="x" Tags="|github|" />
</posts>
"""


def tiny(texts: list[str]) -> np.ndarray:
    """Lengths and vowels, so that nothing has to be installed."""
    return np.array(
        [[len(text), sum(letter in "aeiou" for letter in text), 1.0] for text in texts]
    )


def test_examples() -> None:
    assert doctest.testmod(embeddings).failed == 0


def test_the_public_dump_is_read(tmp_path: Path) -> None:
    (tmp_path / "Posts.xml").write_text(DUMP)
    assert list(read_questions(tmp_path / "Posts.xml")) == [
        Question("7", "A pdf? How & why", "pdf|c#"),
        Question("9", "Push x", "github|git"),
    ]


def test_tables_are_read(tmp_path: Path) -> None:
    (tmp_path / "q.csv").write_text(
        "user_id,title,body,tags\n7,One,<b>two</b>,pdf|c\n8,Three,,git\n9,No tags,,\n"
    )
    assert list(read_questions(tmp_path / "q.csv")) == [
        Question("7", "One two", "pdf|c"),
        Question("8", "Three", "git"),
    ]


def test_from_raw_questions_to_clients(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ["user_id,title,tags"]
    lines += [
        f"{user},question"
        f" {user},{'github' if user < 20 else 'pdf' if user < 40 else 'c'}"
        for user in range(60)
    ]
    (tmp_path / "q.csv").write_text("\n".join(lines) + "\n")
    output = tmp_path / "data" / "stack_overflow.parquet"
    given = [
        str(tmp_path / "q.csv"),
        "--model",
        f"{__name__}:tiny",
        "--output",
        str(output),
        "--batch",
        "7",
    ]
    sys.modules.setdefault(__name__, sys.modules[__name__])
    assert main(given) == 0
    assert "60 questions" in capsys.readouterr().out
    data = load_stack_overflow(
        output, rng=np.random.default_rng(0), server_points_of_others=10
    )
    assert len(data.clients) == 20
    assert data.server_points is not None
    assert data.server_points.shape == (30, 3)


@pytest.mark.parametrize(
    ("answer", "word"),
    [
        (np.zeros(3), "shape \\(3,\\)"),
        (np.full((3, 2), np.nan), "not finite"),
        ([[1.0]], "shape"),
    ],
)
def test_a_model_that_answers_something_else_leaves_no_file(
    answer: object, word: str, tmp_path: Path
) -> None:
    questions = [Question("1", "a", "b")] * 3
    with pytest.raises(DataError, match=word):
        embed(questions, lambda _: answer, tmp_path / "o.parquet")
    assert list(tmp_path.iterdir()) == []
