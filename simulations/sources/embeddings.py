"""Embeddings of raw Stack Overflow questions by a model of your own, for
`simulations.sources.stack_overflow`.

``python -m simulations.sources.embeddings QUESTIONS --model MODEL --output
data/stack_overflow.parquet`` reads

* the public dump, ``Posts.xml`` (archive.org, "stackexchange"; questions are posts of
  type 1),
* TensorFlow Federated's set, which the FedDP-KMeans paper uses:
  ``stackoverflow_train.h5`` (needs h5py), or
* a .csv or .parquet with columns ``user_id``, ``title``, ``body`` (optional) and
  ``tags`` ("python|pdf");

MODEL is the folder of a sentence-transformers model on this machine (the paper's has
384 dimensions), or ``module:function``, which takes a list of texts and returns
numbers, (n, d). Nothing is downloaded, nothing is private.
"""

from __future__ import annotations

import argparse
import html
import itertools
import pkgutil
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

from flwr_dpkmeans.data.files.guarded import UNREADABLE
from flwr_dpkmeans.errors import (
    ConfigurationError,
    DataError,
    DPKMeansError,
    require_whole,
)

Model = Callable[[list[str]], Any]
"""``model(texts) -> (n, d)`` numbers."""
_MARKUP = re.compile(r"<[^>]*>")


class Question(NamedTuple):
    """One question: its author's id, its text, and its tags joined by ``|``."""

    user: str
    text: str
    tags: str


def read_questions(path: Path) -> Iterator[Question]:
    """Read questions one by one, whatever the form.

    Those without an author or tags are left out.

    Raises
    ------
    DataError
        If the file is not there, of another form, or needs a package that is not
        installed.
    """
    readers = {
        ".xml": _from_dump,
        ".h5": _from_federated,
        ".csv": _from_table,
        ".parquet": _from_table,
    }
    if not path.is_file():
        raise DataError(
            f"there is no file {str(path)!r}: give the raw questions, such as"
            " Posts.xml."
        )
    if path.suffix.lower() not in readers:
        raise DataError(
            f"{path.name!r} ends in {path.suffix!r}, but {', '.join(readers)} can be"
            " read: convert it."
        )
    try:
        for record in readers[path.suffix.lower()](path):
            if record.user and record.tags:
                yield record
    except (*UNREADABLE, SyntaxError) as error:
        # Not the error's own words, which may hold text of a post.
        raise DataError(
            f"{path.name!r} cannot be read to its end ({type(error).__name__}): get it"
            " again."
        ) from error


def _plain(markup: str) -> str:
    """Text without tags of HTML and with single spaces.

    >>> _plain("<p>How  do I &lt;b&gt;?</p>")
    'How do I <b>?'
    """
    return " ".join(html.unescape(_MARKUP.sub(" ", markup)).split())


def _from_dump(path: Path) -> Iterator[Question]:
    """``<row PostTypeId="1" OwnerUserId= Title= Body= Tags=>``, tags as ``<c><pdf>``
    or, newer, ``|c|pdf|``.
    """
    from xml.etree.ElementTree import iterparse

    parsed = iterparse(path, events=("start", "end"))
    _, root = next(parsed)
    for event, row in parsed:
        if event == "end" and row.tag == "row":
            if row.get("PostTypeId") == "1":
                tags = "|".join(filter(None, re.split(r"[<>|]", row.get("Tags", ""))))
                text = _plain(f"{row.get('Title', '')} {row.get('Body', '')}")
                yield Question(row.get("OwnerUserId", ""), text, tags)
            # A dump has a hundred gigabytes.
            root.clear()


def _from_federated(path: Path) -> Iterator[Question]:
    """``examples/USER/{type,title,tokens,tags,creation_date}``.

    a post's sentences follow each other.
    """
    try:
        import h5py  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:
        raise DataError(
            "a .h5 file needs the package h5py, which is not installed: pip install"
            " h5py."
        ) from error
    names = ("type", "title", "tokens", "tags", "creation_date")
    with h5py.File(path) as file:
        for user, group in file["examples"].items():
            rows = zip(
                *([value.decode() for value in group[name][()]] for name in names),
                strict=True,
            )
            for (kind, title, tags, _), post in itertools.groupby(
                rows, key=lambda row: (row[0], row[1], row[3], row[4])
            ):
                if kind == "question":
                    yield Question(
                        str(user),
                        _plain(" ".join([title, *[row[2] for row in post]])),
                        tags,
                    )


def _from_table(path: Path) -> Iterator[Question]:
    import pandas as pd

    table = (
        pd.read_csv(path, dtype=str)
        if path.suffix.lower() == ".csv"
        else pd.read_parquet(path).astype(str)
    )
    missing = [
        name for name in ("user_id", "title", "tags") if name not in table.columns
    ]
    if missing:
        raise DataError(
            f"{path.name!r} has no column {missing[0]!r}, but needs user_id, title and"
            " tags: add it."
        )
    bodies = table["body"] if "body" in table.columns else itertools.repeat("")
    for user, title, body, tags in zip(
        table["user_id"], table["title"], bodies, table["tags"], strict=False
    ):
        questions = [
            field_text if isinstance(field_text, str) else ""
            for field_text in (user, title, body, tags)
        ]
        yield Question(
            questions[0], _plain(f"{questions[1]} {questions[2]}"), questions[3]
        )


def load_model(name: str) -> Model:
    """A model by the folder of a sentence-transformers one, or ``module:function``.

    Both are the user's own code.

    Raises
    ------
    ConfigurationError
        If there is none, or the package is not installed.
    """
    folder = Path(name)
    if folder.is_dir():
        try:
            from sentence_transformers import SentenceTransformer  # type: ignore[import-not-found, unused-ignore]
        except ImportError as error:
            raise ConfigurationError(
                f"the model {name!r} is a folder, which needs the package"
                " sentence-transformers: pip install sentence-transformers, or give a"
                " function of your own as module:function."
            ) from error
        encode = SentenceTransformer(str(folder), local_files_only=True).encode
        return lambda texts: encode(texts, show_progress_bar=False)
    if ":" not in name:
        raise ConfigurationError(
            f"there is no folder {name!r}: give a model's folder, or a function as"
            " module:function."
        )
    try:
        model: Model = pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(
            f"there is no {name!r} ({error}): give module:function that Python can"
            " import."
        ) from error
    if not callable(model):
        raise ConfigurationError(
            f"{name!r} is no function: give one that takes a list of texts."
        )
    return model


def embed(
    questions: Iterable[Question], model: Model, output: Path, *, batch: int = 256
) -> int:
    """Embed questions batch by batch, and write what `load_stack_overflow` reads.

    Returns how many.

    Raises
    ------
    DataError
        If the model's numbers have another shape, or are not finite; the unfinished
        file is removed.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    require_whole("batch", batch, 1)
    output.parent.mkdir(parents=True, exist_ok=True)
    unfinished = output.with_name(output.name + ".unfinished")
    written, width, rows = 0, None, iter(questions)
    writer: Any = None
    try:
        while some := list(itertools.islice(rows, batch)):
            vectors = _checked(
                model([question.text for question in some]), len(some), width
            )
            width = vectors.shape[1]
            lists = pa.FixedSizeListArray.from_arrays(
                pa.array(vectors.ravel()), width
            ).cast(pa.list_(pa.float32()))
            columns = {
                "user_ids": [question.user for question in some],
                "tags": [question.tags for question in some],
            }
            table = pa.table({"embeddings": lists, **columns})
            writer = writer or pq.ParquetWriter(unfinished, table.schema)
            writer.write_table(table)
            written += len(some)
        if writer is None:
            raise DataError(
                "the file has no question with an author and tags: give another one."
            )
        writer.close()
        unfinished.replace(output)
    finally:
        unfinished.unlink(missing_ok=True)
    return written


def _checked(answer: Any, n_texts: int, width: int | None) -> NDArray[np.float32]:
    vectors = np.asarray(answer, dtype=np.float32)
    if (
        vectors.ndim != 2
        or len(vectors) != n_texts
        or width not in (None, vectors.shape[1])
    ):
        raise DataError(
            f"the model made shape {vectors.shape} of {n_texts} texts, but one vector"
            " for each is needed, always of one length: correct it."
        )
    if not bool(np.isfinite(vectors).all()):
        raise DataError("the model made numbers that are not finite: correct it.")
    return vectors


def main(arguments: Sequence[str] | None = None) -> int:
    """Embed what the command line names.

    a mistake is one sentence on stderr and exit code 2.
    """
    parser = argparse.ArgumentParser(
        prog="python -m simulations.sources.embeddings",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "questions",
        type=Path,
        help="Posts.xml, stackoverflow_train.h5, or a .csv or .parquet",
    )
    parser.add_argument(
        "--model",
        required=True,
        help="folder of a sentence-transformers model, or module:function",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("data/stack_overflow.parquet"),
        help="file to write",
    )
    parser.add_argument(
        "--batch", type=int, default=256, help="texts that the model gets at once"
    )
    parser.add_argument(
        "--most", type=int, default=None, help="questions to read (default: all)"
    )
    options = parser.parse_args(arguments)
    sys.path.insert(0, "")  # a function in this folder
    try:
        model = load_model(options.model)
        questions = itertools.islice(read_questions(options.questions), options.most)
        shown = track(
            questions,
            "embedding questions",
            total=options.most,
            console=Console(stderr=True),
        )
        written = embed(shown, model, options.output, batch=options.batch)
    except DPKMeansError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2
    folder = options.output.parent
    command = f"python -m simulations.run +experiment=stack_overflow data_dir={folder}"
    print(f"{written} questions in {options.output}; next: {command}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
