"""Runs somebody else's app for one message, in a process of its own.

Whatever it does, what comes out is so many numbers, or nothing: what its arrays are
more than those that it got, and its number of examples. Who started this program clips
them, adds noise and masks. Run as a file, in Python's isolated mode.
"""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import signal
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if __name__ == "__main__":
    # As a file, this has no package: its folder becomes one of a name that no app has.
    from importlib.util import module_from_spec, spec_from_file_location

    __package__ = "_guard_of_this_machine"
    _SPEC = spec_from_file_location(
        __package__, Path(__file__).with_name("__init__.py")
    )
    assert _SPEC is not None
    sys.modules[__package__] = module_from_spec(_SPEC)

from .confinement import leave_others, write_only_below
from .flower_seams import private

if TYPE_CHECKING:
    import numpy as np
    from flwr.app import Context, Message, RecordDict
    from flwr.clientapp import ClientApp
    from numpy.typing import NDArray

    Arrays = Mapping[str, NDArray[np.generic]]

Layout = dict[str, tuple[tuple[int, ...], str]]
"""Shape and type of arrays by name."""
EXAMPLES = "num-examples"
"""Metric by which Flower's strategies weigh an answer."""
_LOOK_SECONDS = 0.02


class MisfitError(Exception):
    """An app's answer is not as the gate states, as its owner reads."""


def numbers_of(
    app: ClientApp,
    message: Message,
    context: Context,
    metrics: Sequence[str],
) -> bytes:
    """Return what an app adds to the arrays of a message, as doubles.

    All arrays one after another, in their order in the message, then the number of
    examples and the metrics that are asked for, NaN where there is no such number.

    Raises
    ------
    MisfitError
        If names, shapes or types are others than those of the message.
    """
    import numpy as np

    before = only_arrays(message.content)
    if private.is_of_client_fn(app):
        content = numpy_client_answer(app, message, context)
    else:
        content = _answer_of(app, message, context)
    after = only_arrays(content)
    answered = layout_of(after)
    allowed = layout_of(before)
    if answered != allowed:
        raise MisfitError(
            f"the app answers {answered}, but the gate lets {allowed} through"
        )
    moves = []
    for name in before:
        move = after[name].astype(np.float64) - before[name].astype(np.float64)
        moves.append(np.ravel(move))
    dropped = sorted(names_besides(content, metrics))
    if dropped:
        sys.stdout.write(f"dropped of the app's answer: {dropped}\n")
    measured = [_metric(content, name) for name in (EXAMPLES, *metrics)]
    numbers = np.concatenate([*moves, measured])
    return numbers.tobytes()


def _answer_of(app: ClientApp, message: Message, context: Context) -> RecordDict:
    reply = app(message, context)
    if reply.has_error() or not reply.has_content():
        raise MisfitError("the app answers with an error")
    return reply.content


def numpy_client_answer(
    app: ClientApp,
    message: Message,
    context: Context,
) -> RecordDict:
    """What an app of NumPyClients answers to a message of a strategy like FedAvg.

    They are asked by other records, of the same arrays in their order.
    """
    from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict

    record = next(iter(message.content.array_records.values()))
    numbered = {str(index): array for index, array in enumerate(record.values())}
    configs = list(message.content.config_records.values())
    message.content = RecordDict(
        {
            "fitins.parameters": ArrayRecord(numbered),
            "fitins.config": configs[0] if configs else ConfigRecord(),
        }
    )
    content = _answer_of(app, message, context)
    arrays = content.array_records["fitres.parameters"]
    if len(arrays) != len(record):
        raise MisfitError(f"the app answers {len(arrays)} arrays of {len(record)}")
    counted = content.metric_records["fitres.num_examples"]
    metrics = MetricRecord({EXAMPLES: counted["num_examples"]})
    for name, value in content.config_records["fitres.metrics"].items():
        if isinstance(value, int | float):
            metrics[name] = float(value)
    return RecordDict(
        {
            "arrays": ArrayRecord(dict(zip(record, arrays.values(), strict=True))),
            "metrics": metrics,
        }
    )


def only_arrays(content: RecordDict) -> Arrays:
    """The arrays of the one ArrayRecord that a message has, by name."""
    records = list(content.array_records.values())
    if len(records) != 1:
        raise MisfitError(f"{len(records)} ArrayRecords are there, but one is needed")
    record = records[0]
    return {name: array.numpy() for name, array in record.items()}


def layout_of(arrays: Arrays) -> Layout:
    """Names, shapes and types of arrays."""
    return {name: (array.shape, str(array.dtype)) for name, array in arrays.items()}


def names_besides(content: RecordDict, metrics: Sequence[str]) -> set[str]:
    """Names of records, and of metrics, that are there and that nobody asked for."""
    names = set(content.config_records)
    for record in content.metric_records.values():
        names |= set(record)
    return names - {EXAMPLES, *metrics}


def _metric(content: RecordDict, name: str) -> float:
    """A metric, from the one MetricRecord that has it."""
    stated = []
    for record in content.metric_records.values():
        if name in record:
            stated.append(record[name])
    if len(stated) != 1:
        return math.nan
    value = stated[0]
    if not isinstance(value, int | float):
        return math.nan
    return float(value)


def _answer(
    request: int,
    answer: int,
    state: int,
    *,
    confined: bool,
) -> None:
    """Load the app and let it answer, in the child."""
    if confined:
        write_only_below(Path.cwd(), Path(os.devnull))
    # Written by who started this program, before there was an app.
    with os.fdopen(request, "rb") as file:
        question = pickle.load(file)  # noqa: S301
    message, context = question["message"], question["context"]
    if question["state"]:
        context.state = pickle.loads(question["state"])  # noqa: S301
    load = private.client_app_loader(question["folder"])
    with private.process_of_run(context.run_id):
        app = load(*question["app"])
        numbers = numbers_of(
            app,
            message,
            context,
            question["metrics"],
        )
    os.pwrite(answer, numbers, 0)
    # Read by the app of the next message alone, in this place.
    os.pwrite(state, pickle.dumps(context.state), 0)


def _wait(child: int, end: float) -> int:
    """Wait for the child until its time is over, and end it then."""
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(_LOOK_SECONDS)
    sys.stderr.write("the app did not answer in time\n")
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    return 1


def main(arguments: Sequence[str]) -> int:
    """Run the app in a child, which ends with all of its own; 0 if it answered."""
    request, answer, state = map(int, arguments[:3])
    # By the clock of whoever started this, which all processes share.
    end, confined = float(arguments[3]), arguments[4] == "confined"
    if confined:
        leave_others()
    child = os.fork()
    if child:
        return _wait(child, end)
    code = 1
    try:
        _answer(
            request,
            answer,
            state,
            confined=confined,
        )
        code = 0
    except BaseException:
        # For the owner, into a file that nobody else reads.
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # No thread of the app is waited for.
        os._exit(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
