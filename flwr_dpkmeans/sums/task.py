"""What a run computes: a `Task`, handed in by whoever knows an algorithm, and the
registry that plans name it from.

Nothing in this room looks an algorithm up to ask about it: the plan holds the task, and
the task answers.
"""

from __future__ import annotations

import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, KeysView, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from functools import cached_property, lru_cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from flwr_dpkmeans.errors import ConfigurationError, PlanError, ProtocolError, nearest
from flwr_dpkmeans.log import placed_logger
from flwr_dpkmeans.privacy.calibration import calibrate_gaussian
from flwr_dpkmeans.privacy.noise import Closeness, joint_closeness
from flwr_dpkmeans.privacy.release import (
    Block,
    Event,
    GaussianRelease,
    NoiseShape,
    PrivacyUnit,
    ReleasedSum,
)
from flwr_dpkmeans.sums.round import Algorithm, Array, PrivateSum, State
from flwr_dpkmeans.sums.settings import Box, Evaluation, Options, Settings

if TYPE_CHECKING:
    from flwr_dpkmeans.sums.plan import Plan, PlannedRound
    from flwr_dpkmeans.sums.trust import TrustModel

ItemT = TypeVar("ItemT")


class Registry(Mapping[str, ItemT]):
    """Things by name: those that were added, and those that installed packages offer by
    an entry point of a group.

    The entry points are loaded when somebody asks for a name that was not added, or for
    all.
    """

    def __init__(
        self,
        group: str,
        option: str = "the name",
        require: Callable[..., None] = lambda *_: None,
    ) -> None:
        self._group, self._option, self._require, self._complete = (
            group,
            option,
            require,
            False,
        )
        self._items, self._unusable = dict[str, ItemT](), dict[str, str]()

    def add(self, name: str, item: ItemT) -> None:
        """Make an item known.

        Another one of the same name is refused, since plans name it.
        """
        self._require(name, item)
        if self._items.setdefault(name, item) is not item:
            raise ConfigurationError(
                f"{name!r} is registered already: choose another name."
            )

    def find(self, name: str, *others: str) -> ItemT:
        """The item of a name.

        Another one is a `ConfigurationError` with the nearest that is known, or of
        `others`.
        """
        if name not in self._items and name not in self:
            if name in self._unusable:
                raise ConfigurationError(
                    f"{self._option} is {name!r}, but {self._unusable[name]}."
                )
            # What is made by a class of its own has a name for plans only.
            offered = [
                key for key, item in self.items() if not getattr(item, "door", "")
            ]
            known = nearest(name, (*offered, *others))
            raise ConfigurationError(
                f"{self._option} is {name!r}, which is not known: {known}"
            )
        return self._items[name]

    def __getitem__(self, name: str) -> ItemT:
        if name not in self._items:
            self._load()
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        self._load()
        return iter(tuple(self._items))

    def __len__(self) -> int:
        self._load()
        return len(self._items)

    def _load(self) -> None:
        if not self._complete:
            self._complete = True
            for point in entry_points(group=self._group):
                # One that cannot be used costs nobody the others.
                try:
                    self.add(point.name, point.load())
                except Exception as error:
                    is_sentence = isinstance(error, ConfigurationError)
                    told = (
                        str(error).rstrip(".")
                        if is_sentence
                        else f"{type(error).__name__}: {error}"
                    )
                    self._unusable[point.name] = (
                        f"what is installed as {point.value!r} cannot be used ({told})"
                    )
                    _logger.warning(
                        "%s %r: %s", self._group, point.name, self._unusable[point.name]
                    )


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
_logger = placed_logger("flwr_dpkmeans.plugins")

CLIP_BOUNDS = (
    *(
        "data_radius",
        "outer_product_bound",
        "weights_bound",
        "means_bound",
        "indicators_bound",
    ),
    *("sums_bound", "counts_bound"),
)
"""Names of the norms that statistics can be clipped to."""
MAX_SERVER_POINTS = 2**17
"""A client's work and memory grow with their number, and a plan may come from a hostile
server.
"""


class ServerData(Enum):
    """Whether a task uses the server's own points.

    Not, only bounds that follow from them, or the points too.
    """

    NONE = "none"
    BOUNDS = "bounds"
    OPTIONAL = "optional"
    NEEDED = "needed"


@dataclass(frozen=True)
class ServerFacts:
    """Public numbers that follow from the server's points.

    All in the scaled box [-1, 1]^d.
    """

    n_points: int
    centre: tuple[float, ...]
    """The points' mean, (n_features,), on the grid; rows are taken relative to it."""
    data_radius: float
    """Rows are clipped to this distance from the centre."""
    outer_product_bound: float
    """Frobenius norm that one unit adds to the outer product."""
    weights_bound: float = 1.0
    """Client level: norm of a client's histogram.

    Below, of its group means, of its indicators, its sums and counts.
    """
    means_bound: float = 1.0
    indicators_bound: float = 1.0
    sums_bound: float = 1.0
    counts_bound: float = 1.0

    def __post_init__(self) -> None:
        for name in CLIP_BOUNDS:
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0.0):
                raise ConfigurationError(
                    f"{name} is {value!r}, but it must be positive and finite: give"
                    " another one."
                )
        if self.n_points > MAX_SERVER_POINTS:
            raise ConfigurationError(
                f"the server has {self.n_points} points, but at most"
                f" {MAX_SERVER_POINTS} can be weighted: give fewer."
            )
        # Off the grid, a client's sums could not be encoded for some data, and that it
        # fails would tell of them.
        if self.n_points < 0 or not all(
            abs(value) <= 1.0 and (value * 2.0**16).is_integer()
            for value in self.centre
        ):
            raise ConfigurationError(
                "the server data's centre is not on the grid inside the bounds: check"
                " the server."
            )


@dataclass(frozen=True)
class Known:
    """Everything public that a task's rounds are computed from.

    `Task.build` gets it, and hands it to `allocate`.

    Most tasks need `n_features`, `options` and, where N matters, `known_n_examples`
    (with `Task.needs_n_examples`).
    """

    config: Run
    n_examples: int | None
    """Declared or privately estimated number of rows, N.

    None for tasks that do not need it.
    """
    n_features: int
    delta: float
    released_multiplier: float | None
    """Noise multiplier of all Gaussian releases that are not the task's own (private
    count, histograms, profile, evaluation) together; None if there are none.
    """
    released_closeness: Closeness
    fraction_bits: int
    """Grid of the ring."""
    server: ServerFacts | None = None
    """What follows from the server's own points, if it has any."""
    noise_factor: float = 1.0
    """Standard deviation of what is released over that of the plan.

    Shares of all clients add more than is counted.
    """
    n_clients: int = 0
    evaluation: tuple[Block, ...] = ()
    """What an evaluation after the last round releases; empty if there is none."""
    profile: tuple[Block, ...] = ()
    """What a profile before that releases; empty if there is none."""
    sampled: tuple[GaussianRelease, ...] = ()
    """Profile and evaluation over sampled clients, which have no place in
    `released_multiplier`.
    """

    @property
    def settings(self) -> Settings:
        """What every run has."""
        return self.config.settings

    @property
    def options(self) -> Any:
        """The task's own options; their class is the task's business."""
        return self.config.task.options

    @property
    def known_n_examples(self) -> int:
        """N, which the caller needs."""
        if self.n_examples is None:
            raise PlanError(
                f"{self.config.task.name!r} needs the number of rows: declare"
                " n_examples."
            )
        return self.n_examples

    def released_std(self, block: Block) -> float:
        """Standard deviation of all noise in one entry of a release."""
        return block.standard_deviation * self.noise_factor

    @property
    def counted(self) -> bool:
        """Whether N was released, so that all plans that may follow from it must be
        priced together.
        """
        return self.n_examples is not None and self.settings.n_examples is None

    @property
    def n_units(self) -> float:
        """What sums are taken over: N rows or, at client level, as many clients as take
        part on average.
        """
        if self.settings.unit is PrivacyUnit.CLIENT:
            return self.n_clients * self.settings.client_sampling_rate
        return float(self.known_n_examples)

    def released_events(self) -> tuple[Event, ...]:
        """What is not the task's own, for the accountant.

        Gaussian releases compose to one.
        """
        if self.released_multiplier is None:
            return self.sampled
        return (
            GaussianRelease(
                "other releases", self.released_multiplier, self.released_closeness
            ),
            *self.sampled,
        )

    def calibrate(self, closeness_at: Callable[[float], Closeness]) -> float:
        """Noise multiplier of the task's own rounds.

        What the preliminary ones leave of (epsilon, delta).

        Under joint Gaussian accounting the squared reciprocals of the multipliers add
        up.
        """
        total = calibrate_gaussian(
            self.settings.epsilon,
            self.delta,
            lambda multiplier: joint_closeness(
                [closeness_at(multiplier), self.released_closeness]
            ),
        )
        if self.released_multiplier is None:
            return total
        left = total**-2 - self.released_multiplier**-2
        if left <= 0.0:
            raise PlanError(
                "the other releases take the whole budget: lower their shares, such as"
                " count_share and bounds_share."
            )
        return 1.0 / math.sqrt(left)


@dataclass(frozen=True)
class Found:
    """What preliminary releases have told so far."""

    n_examples: int | None = None
    box: Box | None = None
    """Coarse ranges after the first histogram; the plan's box after the second."""
    unclear: tuple[int, ...] = ()
    """Columns in which nothing, or zeros alone, stood out of the noise."""

    def digest(self) -> bytes:
        """SHA-256 of the numbers, equal on all machines that found the same."""
        return hashlib.sha256(repr((self.n_examples, self.box)).encode()).digest()


@dataclass(frozen=True)
class Result:
    """What a run found, as people want it: arrays by name, ``result["mean"]``, in the
    units that the task says.

    >>> import numpy as np
    >>> Result({"mean": np.array([3.0])})["mean"]
    array([3.])
    """

    arrays: Mapping[str, Array] = field(repr=False)
    """In the units of the data where `Task.result` brings them there
    (`algorithms.server_points.plan_bounds`).
    """
    errors: Mapping[str, Array] = field(default_factory=dict, repr=False)
    """Of some arrays, how far noise may have moved each entry.

    Half of a 95% interval, in the entry's unit.
    """
    axes: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    """Of some arrays, what each axis counts.

    "column", "number" (a column of numbers), "cluster", "class", "category" or "bin".
    """

    def __getitem__(self, name: str) -> Array:
        return self.arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.arrays)

    def keys(self) -> KeysView[str]:
        """Names of the arrays."""
        return self.arrays.keys()


@dataclass(frozen=True)
class CountedRows:
    """How many rows a run's last counts add up to."""

    array: str
    """Name of the released array that they were taken from."""
    total: float
    n_added: float
    """How many times the variance of the noise in one of its entries the total has."""
    least_part: float = 1.0
    """Of all rows, the least part that takes part in the counts of a sound run."""
    others: str = ""
    """What else leaves rows out, as the end of a sentence after "unless"."""


@dataclass(frozen=True, kw_only=True)
class Task(Options, ABC):
    """What one run computes: an algorithm with its options, frozen and hashable, since
    it travels in the plan.

    A subclass is a frozen dataclass with a name and at least `build`; `register` makes
    it known. Everything else has a default: override `result` for units of the data,
    `check` to refuse settings, `cautions` to warn before anything is sent, `doubts`
    after it, `admits` if the server may send a state. `algorithms.kmeans_task` has that
    of clusterings.

    Examples
    -------- The smallest is `algorithms.moments.Histograms`;
    ``flwr_dpkmeans/sums/A_METHOD.md`` goes through a whole package.

    >>> from flwr_dpkmeans.algorithms.moments import Histograms, HistogramsOptions
    >>> Histograms(options=HistogramsOptions(bins=5)).options.bins
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
    def own_fields(cls) -> tuple[str, ...]:
        """Names of its parameters besides the options."""
        return tuple([one.name for one in fields(cls) if one.name != "options"])

    @classmethod
    def counts(cls, unit: PrivacyUnit) -> bool:
        """Whether a run must know the number of rows.

        Where clients are protected, their number is what counts.
        """
        return cls.needs_n_examples and not (
            unit is PrivacyUnit.CLIENT and cls.weighs_clients_alike
        )

    @classmethod
    def default_trust(cls, *, has_server_data: bool) -> str:
        """The trust model unless another one is chosen.

        With optional server points one that leaves them there.
        """
        return (
            "distributed"
            if has_server_data and cls.server_data is ServerData.OPTIONAL
            else cls.trust
        )

    # -- the computation ---------------------------------------------------------------

    @abstractmethod
    def build(self, known: Known) -> Algorithm:
        """Return the rounds, functions included, and the start.

        a pure function of public values.
        """

    @property
    def max_rounds(self) -> int | None:
        """Number of rounds of its own, where an option says it."""
        rounds: int | None = getattr(self.options, "max_iter", None)
        return rounds

    @property
    def tolerance(self) -> float | None:
        """Where an option says it: its rounds end once one has moved the result no
        farther; what closes a run stays.
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
        return 0 if settings.evaluation is Evaluation.NONE else settings.n_classes

    # -- what is released besides ------------------------------------------------------

    def preliminary(
        self, config: Run, delta: float, n_features: int | None
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
        self, plan: Plan, index: int, points: Array, found: Found
    ) -> list[Array]:
        """One client's exact part of a preliminary release."""
        raise NotImplementedError

    def take_preliminary(
        self, plan: Plan, index: int, released: ReleasedSum, found: Found
    ) -> Found:
        """Add what a preliminary release tells to what was known before."""
        raise NotImplementedError

    def require_box(self, config: Run, box: Box | None, n_features: int | None) -> None:
        """Refuse a box that no preliminary release can have led to."""
        if box is not None:
            raise PlanError(
                "the plan has a box besides its declared bounds: stop the run and check"
                " the server."
            )

    def evaluation(self, config: Run, multiplier: float) -> tuple[Block, ...]:
        """What an evaluation after the last round releases."""
        raise ConfigurationError(
            f"evaluation is {config.settings.evaluation.value!r}, but {self.name!r} has"
            " none: leave evaluation out."
        )

    def evaluation_round(self, known: Known) -> PrivateSum:
        """The round that measures the result."""
        raise NotImplementedError

    def profile(self, config: Run, multiplier: float) -> tuple[Block, ...]:
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

    def profile_round(self, known: Known) -> PrivateSum:
        """The round that describes the groups."""
        raise NotImplementedError

    # -- what is refused ---------------------------------------------------------------

    def check(self, settings: Settings) -> None:
        """Refuse settings that do not go together with this task's own parameters, with
        a sentence.
        """
        n = settings.n_examples
        if n is not None and n < self.least_rows:
            raise ConfigurationError(f"n_examples is {n}, but {self.why_rows}")

    def require_supported(self, settings: Settings, trust: TrustModel) -> None:
        """Refuse what this task cannot do under a trust model, or what would become
        public under it.
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
        """Refuse a received plan whose work with the server's points would keep a
        client busy for hours.
        """

    def result_arrays(self, config: Run) -> tuple[str, ...]:
        """Names of the arrays that clients get as the result, beside centroids and
        counts, where the server has it.
        """
        return ()

    def admits(self, plan: Plan, step: PrivateSum | None, state: State) -> bool:
        """Whether a state that the server sent fits a round, or (None) the result."""
        return step is None or (
            set(state.extras) == set(step.reads)
            and (step.admits is None or step.admits(state))
        )

    # -- what comes of it --------------------------------------------------------------

    def result(self, plan: Plan, state: State) -> Result:
        """What the last state says, for people.

        By default its arrays as they are, in scaled units.
        """
        return Result(dict(state.arrays))

    # -- what is told ------------------------------------------------------------------

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
        """Who sees what of the server's points, after "their owners agreed to this use,
        and they".
        """
        return (
            "stay on the server, except for their mean and the bounds that follow from"
            " them"
        )

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
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


@lru_cache(maxsize=64)
def adapter(kind: type[Any]) -> Any:
    """Parser and serialiser of a plan or a kind of task.

    Pydantic takes longer to compile it than a small run takes.
    """
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def _written(task: Task) -> dict[str, Any]:
    return {"name": task.name, **adapter(type(task)).dump_python(task, mode="json")}


def _read(value: Any) -> Task:
    """A task of a plan.

    a name that nobody registered here, or options that its class refuses, are errors.
    """
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise ValueError("a task has a name")
    name = value["name"]
    if name not in TASKS:
        # No `ValueError`: the parser would hide the name behind a place in the plan.
        raise ProtocolError(
            f"the plan computes {name[:60]!r}, which is not known here: install its"
            " package, or stop the run."
        )
    kind = TASKS[name]
    own = json.dumps({name: one for name, one in value.items() if name != "name"})
    task: Task = adapter(kind).validate_json(own, strict=True)
    return task


@dataclass(frozen=True)
class Run:
    """What is asked for: the settings that every run has, and the task.

    Options may be read by their flat names (`run.epsilon`, `run.alpha`,
    `run.n_clusters`).
    """

    settings: Settings
    task: Task

    def __post_init__(self) -> None:
        self.task.check(self.settings)

    @property
    def algorithm(self) -> str:
        """Name of the task."""
        return self.task.name

    @cached_property
    def unseeded(self) -> Run:
        """The same without the public seed, on which no round depends.

        Runs that differ in it alone share rounds.
        """
        return replace(self, settings=replace(self.settings, random_state=None))

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_"):
            for holder in (self.settings, self.task, self.task.options):
                if name in holder.__dataclass_fields__:
                    return getattr(holder, name)
        raise AttributeError(f"this run has no option {name!r}")

    def changed(self, **values: Any) -> Run:
        """The same with other values of some options, by their flat names."""
        settings = {
            name: values.pop(name)
            for name in self.settings.__dataclass_fields__
            if name in values
        }
        own = {
            name: values.pop(name) for name in self.task.own_fields() if name in values
        }
        task = replace(self.task, **own, options=replace(self.task.options, **values))
        return Run(replace(self.settings, **settings), task)


def _require_own_names(name: str, task: type[Task]) -> None:
    """Refuse a task of another name, or whose options have names of a run's settings.

    These would overwrite them.
    """
    if task.name != name:
        raise ConfigurationError(
            f"the task {task.name!r} is offered as {name!r}: give both one name."
        )
    taken = {*Settings.__dataclass_fields__, *_OF_CALLS}
    own = {*task.option_class().__dataclass_fields__, *task.own_fields()}
    both = sorted(one for one in taken & own if not one.startswith("_"))
    if both:
        raise ConfigurationError(
            f"{name!r} has an option {both[0]!r}, which is a setting of every run:"
            " rename it."
        )


TASKS: Registry[type[Task]] = Registry(
    "flwr_dpkmeans.tasks", "algorithm", _require_own_names
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
