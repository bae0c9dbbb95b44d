"""How far a run is: ``progress.json`` in its folder, renewed at each step.

With what the server may know and no more.

While a run is under way, its program holds a lock on the log beside it, which the
system frees however the program ends: a file that says "running" beside a log that
nobody holds is of a run that died.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

from flwr.app import Message

from flwr_dpkmeans.errors import ConfigurationError, DPKMeansError
from flwr_dpkmeans.flower.messages.exchange import Listener
from flwr_dpkmeans.flower.messages.message_sizes import bytes_of
from flwr_dpkmeans.flower.round_trip import Notice, RoundTrip
from flwr_dpkmeans.flower.run_progress import (
    LOG_FILE,
    PROGRESS_FILE,
    Outcome,
    RunProgress,
)
from flwr_dpkmeans.log import (
    LogFormat,
    Place,
    event,
    file_handler,
    named,
    placed,
    placed_logger,
    printable,
)
from flwr_dpkmeans.node.durable_files import lock
from flwr_dpkmeans.privacy.provenance import utc_now
from flwr_dpkmeans.sums.draft import worst_case
from flwr_dpkmeans.sums.server import Server

logger = placed_logger("flwr_dpkmeans.server")

_MOST_NOTICES = 200

_ENDED = (
    "it was ended from outside, as by 'flwr stop': what its clients were charged stays"
    " charged."
)


class Progress(logging.Handler):
    """What one run's program knows of it.

    As a handler of its log it takes warnings for notices.

    Without a folder nothing is written. A file that cannot be written is warned of
    once, and stops nothing.
    """

    def __init__(
        self,
        run_id: int = 0,
        folder: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(logging.WARNING)
        self._clock = clock
        self._folder, self._joined = folder, set[int]()
        self.known = RunProgress(run=str(run_id), started=utc_now(), updated=utc_now())
        self.begin()

    def begin(self) -> None:
        """Count round trips, and seconds, from now on."""
        self._start, self.n_done = self._clock(), 0

    @property
    def seconds(self) -> float:
        """Since the start."""
        return self._clock() - self._start

    def tell(self, **news: object) -> None:
        """Take news in, sets of nodes by their names, and renew the file."""
        if self._folder is None:
            return
        sets = {
            what: sorted(nodes)
            for what, nodes in news.items()
            if isinstance(nodes, set)
        }
        texts = {
            what: tuple([named(str(node)) for node in nodes])
            for what, nodes in sets.items()
        }
        self.known = self.known.model_copy(update=news | texts | {"updated": utc_now()})
        file, new = self._folder / PROGRESS_FILE, self._folder / f".{PROGRESS_FILE}"
        try:
            # Not synced onto the disk: a busy one would slow the run.
            with open(
                new, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)
            ) as out:
                out.write(self.known.model_dump_json(indent=1).encode())
            new.replace(file)
        except OSError as error:
            self._folder = None
            logger.warning(
                "the run's progress is not kept (%s): free space, or choose another"
                " output folder",
                error,
            )

    def planned(
        self,
        server: Server,
        epsilon: float,
        n_left: int | None,
    ) -> None:
        """Tell the plan that is in force, what was spent.

        And how many round trips are left.
        """
        if self._folder is None:
            return
        plan, settings = server.plan, server.plan.settings
        names = {
            "algorithm": plan.task.name,
            "trust": settings.trust,
            "unit": settings.unit.value,
        }
        planned, n_rounds = (
            (plan.epsilon, plan.last_round)
            if plan.is_final
            else (settings.epsilon, None)
        )
        costs = {
            "delta": plan.delta,
            "epsilon": epsilon,
            "epsilon_planned": planned,
            "epsilon_worst": worst_case(plan),
        }
        self.tell(
            **names,
            **costs,
            plan=server.digest.hex(),
            n_rounds=n_rounds,
            n_left=n_left,
        )

    def joined(self, nodes: Collection[int]) -> None:
        """Tell who is there."""
        self._joined = set(nodes)
        self.tell(nodes=self._joined)

    def _note(self, nodes: set[int]) -> None:
        """Note that nodes have answered now."""
        times = {named(str(node)): utc_now() for node in nodes}
        self.known = self.known.model_copy(
            update={"answered_at": self.known.answered_at | times}
        )

    @contextlib.contextmanager
    def trip(
        self,
        server: Server,
        messages: Sequence[Message],
    ) -> Iterator[Listener[Message]]:
        """Measure one round trip; what is yielded is told all replies so far."""
        start, nodes, replies = time.monotonic(), set(server.nodes), list[Message]()
        answered_before = set[int]()
        index, attempt = server.attempts[-1] if server.attempts else (None, None)
        place = {
            "stage": server.due.value if server.due else "",
            "round": index,
            "attempt": attempt,
        }
        self.tell(
            **place,
            answered=(),
            late=nodes,
            missing=self._joined - nodes,
        )

        def take_replies(come: Sequence[Message]) -> None:
            replies[:] = come
            answered = {reply.metadata.src_node_id for reply in come} & nodes
            self._note(answered - answered_before)
            answered_before.update(answered)
            self.tell(answered=answered, late=nodes - answered)

        yield take_replies
        self.n_done += 1
        if self._folder is not None:
            sizes = {
                "n_asked": len(nodes),
                "n_answered": len(replies),
                "sent": bytes_of(messages),
            }
            seconds, received = time.monotonic() - start, bytes_of(replies)
            trip = RoundTrip.model_validate(
                place | sizes | {"seconds": seconds, "received": received}
            )
            self.tell(trips=(*self.known.trips, trip))

    def emit(self, record: logging.LogRecord) -> None:
        """Note a warning of this run; what stops it is told as its sentence."""
        details, name = getattr(record, "details", {}), getattr(record, "event", "")
        if name != "stopped":
            reason = str(details.get("kind", details.get("code", "")))
            notice = Notice(
                time=utc_now(),
                event=name,
                reason=reason,
                sentence=named(printable(record.getMessage())),
            )
            self.tell(notices=(*self.known.notices, notice)[-_MOST_NOTICES:])

    def describe(self, n_left: int | None) -> str:
        """Say how far the run is.

        `n_left` is None while the rounds are not planned yet.
        """
        so_far = self.seconds
        if n_left is None:
            return f"{self.n_done} round trips done, {so_far:.0f} s so far"
        left = so_far / max(1, self.n_done) * n_left
        return (
            f"round trip {self.n_done} of {self.n_done + n_left}, {so_far:.0f} s so"
            f" far, about {left:.0f} s to go"
        )


@contextlib.contextmanager
def recorded_progress(run_id: int, folder: Path) -> Iterator[Progress]:
    """Keep a run's progress in its folder, with the server's lines as JSON.

    And at the end how the block ended.
    """
    progress, handlers = Progress(run_id, folder), list[logging.Handler]()
    with placed(Place(run=run_id)), contextlib.ExitStack() as stack:
        # Where there is no folder, there will be no file either, of which `tell` warns.
        with contextlib.suppress(OSError, ConfigurationError):
            folder.mkdir(parents=True, exist_ok=True)
            handlers.append(
                stack.enter_context(
                    contextlib.closing(file_handler(folder / LOG_FILE, LogFormat.JSON))
                )
            )
            lock(
                stack.enter_context((folder / LOG_FILE).open("rb")).fileno(),
                exclusive=False,
            )
        for handler in (progress, *handlers):
            handler.addFilter(lambda record: getattr(record, "run", None) == run_id)
            logger.addHandler(handler)
            stack.callback(logger.removeHandler, handler)
        try:
            progress.tell()
            yield progress
            progress.tell(outcome=Outcome.COMPLETED, n_left=0)
        except DPKMeansError as error:
            name = type(error).__name__
            logger.error(
                "%s: %s",
                name,
                error,
                extra=event("stopped", kind=name),
            )
            progress.tell(
                outcome=Outcome.STOPPED, sentence=named(printable(f"{name}: {error}"))
            )
            raise
        except (SystemExit, KeyboardInterrupt):
            progress.tell(outcome=Outcome.STOPPED, sentence=_ENDED)
            raise
        except BaseException as error:
            # Its text may hold anything.
            progress.tell(
                outcome=Outcome.FAILED,
                sentence=f"{type(error).__name__}: look at its log.",
            )
            raise
