"""What a run computes: a `Task`, and the registry that plans name it from.

A task is handed in by whoever knows an algorithm.

Nothing in this room looks an algorithm up to ask about it: the plan holds the task, and
the task answers.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from flwr_dpkmeans.errors import ConfigurationError, PlanError, ProtocolError
from flwr_dpkmeans.privacy.release import Block, NoiseShape, PrivacyUnit, ReleasedSum
from flwr_dpkmeans.sums.option_rules import Options
from flwr_dpkmeans.sums.outcome import CountedRows, Discoveries, Result
from flwr_dpkmeans.sums.public_facts import ServerData
from flwr_dpkmeans.sums.registry import Registry
from flwr_dpkmeans.sums.round import Algorithm, Array, PrivateSum, RowWeights, State
from flwr_dpkmeans.sums.settings import Box, EvaluationKind, Settings

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, TypeAdapter
    from pydantic_core import CoreSchema

    from flwr_dpkmeans.sums.config import RunConfig
    from flwr_dpkmeans.sums.plan import Plan, PlannedRound
    from flwr_dpkmeans.sums.public_facts import PublicFacts
    from flwr_dpkmeans.sums.trust import TrustModel

KindT = TypeVar("KindT")
_OF_CALLS = (
    "algorithm",
    "engine",
    "labels",
    "task",
    "parts",
    "server_data",
    "n_clients",
    "n_features",
)


@dataclass(frozen=True, kw_only=True)
class Task(Options, ABC):
    """What one run computes: an algorithm with its options.

    Frozen and hashable, since it travels in the plan.

    A subclass is a frozen dataclass with a name and at least `build`; `register` makes
    it known. Everything else has a default: override `result` for units of the data,
    `check` to refuse settings, `cautions` to warn before anything is sent, `doubts`
    after it, `admits` if the server may send a state. `algorithms.kmeans_task` has that
    of clusterings.

    Examples
    --------
    The smallest is `algorithms.statistics.histograms_task.HistogramsTask`;
    ``flwr_dpkmeans/docs/how-to/add_a_method.md`` goes through a whole package.

    >>> from flwr_dpkmeans.algorithms.statistics.histograms_task import (
    ...     HistogramsOptions,
    ...     HistogramsTask,
    ... )
    >>> HistogramsTask(options=HistogramsOptions(bins=5)).options.bins
    5
    """

    name: ClassVar[str]
    """Registered name."""
    noise: ClassVar[NoiseShape] = NoiseShape.GAUSSIAN
    """Its noise; NONE for a non-private baseline."""
    units: ClassVar[tuple[PrivacyUnit, ...]] = (PrivacyUnit.RECORD,)
    """Units of privacy that it supports."""
    trust: ClassVar[str] = "oblivious"
    """Trust model unless another one is chosen.

    With server points that the clients need not see, ``distributed``.
    """
    server_data: ClassVar[ServerData] = ServerData.NONE
    """Whether it uses the server's own points."""
    needs_n_examples: ClassVar[bool] = False
    """Whether its rounds depend on the number of rows, where one row is protected."""
    weighs_clients_alike: ClassVar[bool] = False
    """Whether at client level every client adds means over its rows, so that the number
    of clients is enough.
    """
    clips_clients: ClassVar[bool] = True
    """Whether bounds of what a client adds follow from its declared number of rows."""
    samples_clients: ClassVar[bool] = True
    """Whether noise is found for rounds of a sample of the clients, too."""
    door: ClassVar[str] = ""
    """The class that makes such runs, where no other door takes their name."""
    options: Options = Options()  # noqa: RUF009
    """A subclass names its own class, with a default."""

    @classmethod
    def option_class(cls) -> type[Options]:
        """The class of its options."""
        return type(cls.options)

    @property
    def label(self) -> str:
        """What sentences for people begin with."""
        return f"The algorithm {self.name!r}"

    @classmethod
    def parameter_names(cls) -> tuple[str, ...]:
        """Names of its parameters besides the options."""
        names = [field.name for field in fields(cls)]
        return tuple(name for name in names if name != "options")

    @classmethod
    def counts(cls, unit: PrivacyUnit) -> bool:
        """Whether a run must know the number of rows.

        Where clients are protected, their number is what counts.
        """
        if unit is PrivacyUnit.CLIENT and cls.weighs_clients_alike:
            return False
        return cls.needs_n_examples

    @classmethod
    def default_trust(cls, *, has_server_data: bool) -> str:
        """The trust model unless another one is chosen.

        With optional server points one that leaves them there.
        """
        if has_server_data and cls.server_data is ServerData.OPTIONAL:
            return "distributed"
        return cls.trust

    @classmethod
    def protects(cls, unit: PrivacyUnit) -> bool:
        """Whether it supports a unit; where one row is protected, one person may be."""
        return unit.bounded in cls.units

    # -- the computation ---------------------------------------------------------------

    @abstractmethod
    def build(self, public: PublicFacts) -> Algorithm:
        """Return the rounds, functions included, and the start.

        A pure function of public values.
        """

    @property
    def max_rounds(self) -> int | None:
        """Number of rounds of its own, where an option says it."""
        rounds: int | None = getattr(self.options, "max_iter", None)
        return rounds

    @property
    def tolerance(self) -> float | None:
        """The least movement that goes on, where an option says it.

        Its rounds end once one has moved the result no farther; what closes a run
        stays.
        """
        tolerance: float | None = getattr(self.options, "tolerance", None)
        return tolerance

    def longest(self) -> Task:
        """The same task with the most rounds that it may come to have."""
        return self

    @property
    def least_rows(self) -> int:
        """Rows that it needs at least."""
        return 1

    @property
    def why_rows(self) -> str:
        """Why so many, and what to do about fewer, as the tail of a sentence."""
        return f"{self.name!r} needs at least {self.least_rows}: add data."

    def n_classes(self, settings: Settings) -> int:
        """How many classes of labels its rounds look at, an evaluation included.

        0: none.
        """
        if settings.evaluation is EvaluationKind.NONE:
            return 0
        return settings.n_classes

    # -- what is released besides ------------------------------------------------------

    def preliminary(
        self, config: RunConfig, delta: float, n_features: int | None
    ) -> tuple[PlannedRound, ...]:
        """Plan the releases that come before round 1.

        Their noise is that of a total delta.
        """
        if config.settings.preliminary_share(counts=self.counts(config.settings.unit)):
            raise ConfigurationError(
                f"bounds are 'private', or rows are to be counted, but {self.name!r}"
                " does not find them: declare both."
            )
        return ()

    def preliminary_statistic(
        self,
        plan: Plan,
        index: int,
        points: Array,
        discoveries: Discoveries,
        weights: RowWeights | None = None,
    ) -> list[Array]:
        """One client's exact part of a preliminary release.

        With weights, (n_points,), rows are weighed as in `PrivateSum.arrays_of`.
        """
        raise NotImplementedError

    def take_preliminary(
        self, plan: Plan, index: int, released: ReleasedSum, discoveries: Discoveries
    ) -> Discoveries:
        """Add what a preliminary release tells to what was known before."""
        raise NotImplementedError

    def require_box(
        self, config: RunConfig, box: Box | None, n_features: int | None
    ) -> None:
        """Refuse a box that no preliminary release can have led to."""
        if box is not None:
            raise PlanError(
                "the plan has a box besides its declared bounds: stop the run and check"
                " the server."
            )

    def evaluation(self, config: RunConfig, multiplier: float) -> tuple[Block, ...]:
        """What an evaluation after the last round releases."""
        raise ConfigurationError(
            f"evaluation is {config.settings.evaluation.value!r}, but {self.name!r} has"
            " none: leave evaluation out."
        )

    def evaluation_round(self, public: PublicFacts) -> PrivateSum:
        """The round that measures the result."""
        raise NotImplementedError

    def profile(self, config: RunConfig, multiplier: float) -> tuple[Block, ...]:
        """What is released of each group's rows after the last round."""
        if config.settings.gap_columns and not config.settings.profile_widths:
            raise ConfigurationError(
                f"the schema has missing = 'centre', but {self.name!r} would count such"
                " a gap as the middle of the bounds in what it reports: choose 'drop'"
                " or 'fill', or accept that by gap_share = 0."
            )
        raise ConfigurationError(
            f"the schema asks for a profile, but {self.name!r} has none: leave it out"
            " there."
        )

    def profile_round(self, public: PublicFacts) -> PrivateSum:
        """The round that describes the groups."""
        raise NotImplementedError

    # -- what is refused ---------------------------------------------------------------

    def check(self, settings: Settings) -> None:
        """Refuse settings that do not go together with this task's own parameters.

        With a sentence.
        """
        n = settings.n_examples
        if n is not None and n < self.least_rows:
            raise ConfigurationError(f"n_examples is {n}, but {self.why_rows}")

    def require_supported(self, settings: Settings, trust: TrustModel) -> None:
        """Refuse what this task cannot do, or must not, under a trust model.

        Such as what would become public under it.
        """

    def counted_examples(self, released_count: float) -> int:
        """Turn the released private count into the N of the plan: rounded, at least 1.

        Too few are a `PlanError`.
        """
        n = max(1, round(released_count))
        if n < self.least_rows:
            raise PlanError(
                f"the private count found about {n} rows, but {self.why_rows}"
            )
        return n

    def require_bearable(self, plan: Plan) -> None:
        """Refuse a received plan that would keep a client busy for hours.

        By its work with the server's points.
        """

    def result_arrays(self, config: RunConfig) -> tuple[str, ...]:
        """Name the arrays that clients get as the result, where the server has it.

        Beside centroids and counts.
        """
        return ()

    def admits(self, plan: Plan, step: PrivateSum | None, state: State) -> bool:
        """Whether a state that the server sent fits a round, or (None) the result."""
        if step is None:
            return True
        if state.extras.keys() != set(step.reads):
            return False
        return step.admits is None or step.admits(state)

    # -- what comes of it --------------------------------------------------------------

    def result(self, plan: Plan, state: State) -> Result:
        """What the last state says, for people.

        By default its arrays as they are, in scaled units.
        """
        return Result(dict(state.arrays))

    # -- what is said ------------------------------------------------------------------

    def cautions(self, plan: Plan) -> tuple[str, ...]:
        """What a final plan says against the result before anything is sent."""
        return ()

    def doubts(self, plan: Plan, state: State, names: Sequence[str]) -> tuple[str, ...]:
        """What the last state, which may be known, says against the result.

        `names` are the columns', if known.
        """
        return ()

    def counted_rows(self, state: State) -> CountedRows | None:
        """How many rows the counts in the last state add up to.

        None where it has none of rows.
        """
        return None

    def server_points_words(self, plan: Plan) -> str:
        """Say who sees what of the server's points.

        After "their owners agreed to this use, and they".
        """
        return (
            "stay on the server, except for their mean and the bounds that follow from"
            " them"
        )

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: type[Task], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """A task of any kind travels with its name.

        Which class that is, the registry says.
        """
        from pydantic_core import core_schema

        if cls is not Task:
            return handler(source)
        written = core_schema.plain_serializer_function_ser_schema(_written)
        return core_schema.no_info_plain_validator_function(
            _read, serialization=written
        )


def adapter(kind: type[KindT]) -> TypeAdapter[KindT]:
    """Parser and serialiser of a plan or a kind of task."""
    compiled: TypeAdapter[KindT] = _compiled_adapter(kind)  # type: ignore[arg-type]
    return compiled


@lru_cache(maxsize=64)
def _compiled_adapter(kind: type[object]) -> TypeAdapter[Any]:
    """Made once: Pydantic takes longer to compile it than a small run takes."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def _written(task: Task) -> dict[str, object]:
    """A task as it stands in a plan: its name, and its parameters."""
    parameters = adapter(type(task)).dump_python(task, mode="json")
    return {"name": task.name, **parameters}


def _read(value: object) -> Task:
    """Read a task of a plan.

    A name that nobody registered here, or options that its class refuses, are errors.
    """
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise ValueError("a task has a name")
    parameters = dict(value)
    name = parameters.pop("name")
    if name not in TASKS:
        # No `ValueError`: the parser would hide the name behind a place in the plan.
        raise ProtocolError(
            f"the plan computes {name[:60]!r}, which is not known here: install its"
            " package, or stop the run."
        )
    text = json.dumps(parameters)
    task: Task = adapter(TASKS[name]).validate_json(text, strict=True)
    return task


def require_free_names(name: str, task: type[Task]) -> None:
    """Refuse a task of another name, or whose options have names of a run's settings.

    These would overwrite them.
    """
    if task.name != name:
        raise ConfigurationError(
            f"the task {task.name!r} is offered as {name!r}: give both one name."
        )
    options = task.option_class()
    taken = {*Settings.__dataclass_fields__, *_OF_CALLS}
    names = {*options.__dataclass_fields__, *task.parameter_names()}
    shared = taken & names
    both = sorted(option for option in shared if not option.startswith("_"))
    if both:
        raise ConfigurationError(
            f"{name!r} has an option {both[0]!r}, which is a setting of every run:"
            " rename it."
        )


TASKS: Registry[type[Task]] = Registry(
    "flwr_dpkmeans.tasks", "algorithm", require_free_names
)
"""Every task that a plan may name."""


def register(task: type[Task]) -> type[Task]:
    """Make a task known by its name, also as a decorator.

    Another one of that name is a `ConfigurationError`.

    An installed package says it by an entry point instead, ``flwr_dpkmeans.tasks``, so
    that nobody must import it: nodes and `flwr run` need that.
    """
    TASKS.add(task.name, task)
    return task
