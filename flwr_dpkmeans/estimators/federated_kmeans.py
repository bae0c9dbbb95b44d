"""`FederatedKMeans`: the whole federation in one process.

By scikit-learn's conventions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import ArrayLike

from flwr_dpkmeans import options as run_options
from flwr_dpkmeans.algorithms.kmeans_task import DEFAULT_MAX_CLUSTERS
from flwr_dpkmeans.algorithms.measure.evaluated_state import COST_CURVE
from flwr_dpkmeans.algorithms.server.box_widths import squared_unit
from flwr_dpkmeans.data.schema_source import schema_of
from flwr_dpkmeans.errors import ConfigurationError, InputWarning, warn
from flwr_dpkmeans.estimators.budgets.fit_budget import Budget, charge_fit
from flwr_dpkmeans.estimators.clustering import PrivateClustering
from flwr_dpkmeans.estimators.fitted_persons import stated_persons, taken_apart
from flwr_dpkmeans.estimators.inputs import Answer, Answers, PartyLabels, PartyTables
from flwr_dpkmeans.estimators.party_tables import Tables
from flwr_dpkmeans.estimators.refusals import require_no_others
from flwr_dpkmeans.estimators.run_engines import played
from flwr_dpkmeans.estimators.table_lists import n_rows_of
from flwr_dpkmeans.options import ClientLevel, Cohort, FlatOptions, PersonLevel
from flwr_dpkmeans.results.run_result import ClusterChoice
from flwr_dpkmeans.sums.settings import Settings

if TYPE_CHECKING:
    from flwr_dpkmeans.planner import Forecast

_OF_EVALUATIONS = ("evaluation", "evaluation_share", "n_classes", "evaluation_radius")


@dataclass(eq=False, repr=False, kw_only=True)
class FederatedKMeans(PrivateClustering):
    """Differentially private k-means over several parties' data.

    Simulated in this process.

    Strategy, ClientApp, secure-aggregation mod, masks and noise are those of a
    deployment. An option that differs from its default and has no effect on the run,
    such as another algorithm's, is refused.

    Parameters
    ----------
    n_clusters : int, "auto" or Auto
        k; "auto" (``proxy_lloyd``, ``feddp_kmeans``; trust ``distributed``) chooses it
        within the same budget, up to 20, or as ``Auto(12)`` says.
    algorithm : str or one of the ``*Options``
        ``"proxy_lloyd"`` (the default, with or without `server_data`); the papers'
        ``"fastlloyd"``, ``"glloyd"``, ``"sulloyd"``, ``"lloyd"`` (not private),
        ``"feddp_kmeans"``, or one of its baselines ``"server_kmeans++"``,
        ``"server_lloyd"``, ``"sphere_packing"``; for comparison only, on all rows
        together, by `flwr_dpkmeans.baselines`: ``"max_cover"``, ``"balcan"``,
        ``"k_fed"`` and ``"optimal"`` (the latter two not private). With options of its
        own: ``FastLloydOptions(alpha=0.6)``.
    epsilon : float
        Total over the run.
    delta : float, optional
        None: 1/(N ln N), lowered where a private count finds so many rows that it would
        not be below 1/N. 0 with ``"sulloyd"`` alone, whose noise is Laplace.
    unit : str, PersonLevel or ClientLevel
        ``"record"``: neighbouring data sets differ in one row; ``"person"``: in all
        rows of one person at one party, with ``PersonLevel(rows_per_person=None)``,
        where `fit` is given `persons`; ``"client"``: in one
        client's whole table, with ``ClientLevel(examples_per_client=50,
        sampling_rate=1.0)``.
    trust : str, optional
        ``"oblivious"``, ``"central"`` or ``"distributed"``; None: the algorithm's own,
        which is ``"distributed"`` for ``feddp_kmeans`` and its baselines and
        ``"oblivious"`` otherwise.
    bounds : pair, mapping, data frame, path, Schema, "private" or PrivateBounds
        Public bounds, never computed from clients' data: numbers, sequences in the
        order of the columns, or a pair for each column's name as a mapping, data frame
        or file. A `Schema`, or the path of one, also says what becomes of text, dates
        and missing cells. None: a cube around the server's points, which must then be
        given. ``"private"``, or ``PrivateBounds(share=0.1, domain=None)``: found by two
        private histograms, for which nobody needs to know anything of the columns.
    noise : str
        ``"secure"``, ``"opendp"`` (OpenDP's samplers alone), or ``"seeded"`` for
        repeatable experiments: no protection.
    random_state : int, RandomState or Generator, optional
        Seed of the public start (and of seeded noise). It does not fix secure noise,
        which is drawn anew: two fits with one seed differ then, and only
        ``noise="seeded"``, which protects nobody, repeats a fit.
    max_iter : int, optional
        Overrides the algorithm's number of iterations.
    server_data : array-like, optional
        The server's own points (a data frame's columns are matched by name), or the
        path of a file with them, for algorithms that start from them.
    engine : str
        ``"inprocess"``: Flower's messages in this process; ``"direct"``: the same
        rounds, noise and masks without messages, for thousands of clients.
    n_examples : int, "private" or PrivateCount, optional
        Public number of rows, or of persons; None: the total of the parts, listed in
        the report as declared public. With private bounds, and where a schema drops
        rows, it is public only if given: None then stands for ``"private"``, a private
        count, as ``PrivateCount(share=0.02)``.
    evaluation : "private", "exact", Evaluation or ExactEvaluation, optional
        ``"private"``: one more round measures the result, with a share of the same
        budget, as ``Evaluation(share=0.05, n_classes=0, radius=None)``; ``"exact"``:
        the same without noise, after which the run is not private. With ``n_classes``,
        the `y` of `fit` is compared with the clusters.
    max_weight : float, optional
        Public maximum of a row's ``sample_weight``, where `fit` is given some: never
        computed from them. Without it they are refused; without them it has no effect.
    cohort : Cohort, optional
        What happens when clients fall silent, and whether masks are on.

    Notes
    -----
    A string is always the short form of an object, whose options are nested
    parameters: ``algorithm__alpha`` in `set_params` and in scikit-learn's searches.
    Objects are frozen, so estimators may share them.

    Columns reach `fit` as they are: what a ``StandardScaler`` before it learns is
    exact, of all parties' rows, and covered by no noise. A schema's
    ``scale="standard"`` finds spreads privately, within the same budget.

    Attributes
    ----------
    cluster_centers_ : ndarray, (n_clusters, n_features)
        In the caller's units, where rows belong to the nearest: a gap that a schema
        leaves in counts as the middle.
    cell_means_ : ndarray, (n_clusters, n_features)
        The same as means of the cells that are there, for people; NaN where it is not
        clear that there are any.
    missing_shares_ : pandas.DataFrame or None
        With noise, which share of each cluster's cells is missing, where a schema
        leaves gaps in; None elsewhere.
    cluster_centers_error_ : ndarray, (n_clusters, n_features)
        Half-widths of 95% intervals around them, for the exact mean of that column over
        the rows that `predict` labels with that cluster: what noise, cut rows and moved
        labels leave unsure. Infinity where nothing is known, as at client level; never
        NaN.
    cluster_counts_ : ndarray, (n_clusters,)
        Noisy counts of the last release, in units of weight where rows have weights; at
        client level what each client adds, which
        the page and ``model_`` name: 1 where it has rows in the cluster (FedDP-KMeans),
        its rows (with Lloyd steps), or their share (ProxyLloyd).
    cost_curve_ : ndarray, (max_clusters,), or None
        With ``n_clusters="auto"``: cost over k, in squared scaled units.
    privacy_ : PrivacyReport
        Cost, guarantee, every release; its `warnings` are Python's too, of
        `flwr_dpkmeans.errors.PrivacyWarning`.
    bounds_ : pair of tuples of float
        The box that data were scaled by, and that `predict` and `transform` measure in:
        as declared, from server data, or as private histograms found it.
    model_ : Model
        The clustering as a value that labels and describes rows; without what this
        program's rows say.
    schema_ : Schema or None
        What tables are encoded by, and what ``schema_.decode(cell_means_)`` reads; None
        without one.
    profile_ : pandas.DataFrame or None
        With noise, what a schema's ``profile`` asks for
        (`flwr_dpkmeans.algorithms.profile.profile_reading.Figure`).
    n_iter_ : int
        Number of iterations.
    history_ : list of dict
        One entry for each aggregation: round, epsilon so far, noise, radius, largest
        movement (scaled units).
    n_features_in_ : int
        d.
    feature_names_in_ : ndarray of str, (n_features,)
        Column names in the order of the first data frame, which ``cluster_centers_``
        has; only after a fit to frames.
    evaluation_ : EvaluationResult or None
        Cost, counts and, with labels, accuracy and purity, each with the noise in it;
        None without an evaluation.

    Examples
    --------
    >>> import numpy as np
    >>> generator = np.random.default_rng(0)
    >>> parts = [generator.uniform(-1, 1, (500, 2)) for _ in range(3)]
    >>> km = FederatedKMeans(3, epsilon=1.0, bounds=(-1.0, 1.0), random_state=0)
    >>> km = km.fit(parts)
    >>> km.cluster_centers_.shape, km.privacy_.is_private, km.privacy_.epsilon <= 1.0
    ((3, 2), True, True)
    """

    unit: str | PersonLevel | ClientLevel = "record"
    trust: str | None = None
    engine: str = "inprocess"
    cohort: Cohort | None = None

    def fit(
        self,
        X: PartyTables | None = None,
        y: PartyLabels | None = None,
        sample_weight: object = None,
        *,
        groups: ArrayLike | None = None,
        clients: Callable[[int], ArrayLike] | None = None,
        n_clients: int | None = None,
        persons: object = None,
        budget: Budget | None = None,
        **unknown: object,
    ) -> Self:
        """Cluster the parties' data together.

        Parameters
        ----------
        X : sequence or mapping of array-like, or array-like
            One array or data frame for each client, (n_i, n_features); at least two
            clients, some may be empty. In a mapping they have names, which are in
            sentences about them. Data frames have the same columns, in any order: they
            are put in the first one's, and bounds that differ by column are then given
            by name. With `groups` one table of all rows, (n, n_features), as a pipeline
            has it.
        y : sequence or mapping of array-like of int, or array-like of int, optional
            Labels as `X` has rows, from 0 to ``n_classes - 1``; used by an evaluation
            only. Beside a data frame, pandas objects are put into the order of its
            index, and refused where they have other labels.
        sample_weight : sequence or mapping of array-like, or array-like, optional
            What each row weighs, as `X` has rows, from 0 on: ``max_weight`` bounds it,
            and what weighs more counts as that. What all weigh together, in units of
            ``max_weight``, is N, which a private count finds.
        groups : array-like, (n,), optional
            The party of each row, matched as `y` is.
        clients, n_clients : callable and int, optional
            Instead of `X`: ``clients(i)`` makes client i's table, 0 <= i < n_clients,
            the same one each time. With ``engine="direct"`` no more than one is in
            memory.
        persons : str, or sequence or mapping of array-like, or array-like, optional
            Whose row each is: the name of a column, which is not clustered, or ids as
            `X` has rows, which are compared as text. Persons are protected then, each
            with all rows at one party, as with ``unit="person"``; a missing id is a
            person of its own. None: the schema's ``person_column``.
        budget : Budget, optional
            What the fit is charged to, besides budgets that are contexts.

        Raises
        ------
        ConfigurationError, DataError, PlanError, BudgetError
            One sentence, before anything is computed.

        Warns
        -----
        InputWarning
            Of columns that look like identifiers, or one party's that look like another
            unit, and of bounds that may be read in two ways: for the caller alone, from
            exact rows, and in no result.
        PrivacyWarning
            Each sentence of ``privacy_.warnings``.

        Notes
        -----
        In a search each fit costs epsilon of its own, which a `Budget` adds up, and its
        scores are exact.
        scikit-learn splits rows: with ``pipe.fit(X, federatedkmeans__groups=g)``, or
        metadata routing, each party's rows are split, or by ``GroupKFold`` whole
        parties are left out; a list of tables is split by tables.
        """
        require_no_others(unknown)
        schema = schema_of(self.bounds)
        if clients is None and n_clients is None:
            persons = stated_persons(persons, schema, self._unit)
            X, ids = taken_apart(
                X,
                persons,
                schema=schema,
                is_one_table=groups is not None,
            )
            tables = Tables.of(X, groups=groups, schema=schema).with_persons(ids)
            tables = tables.with_weights(sample_weight, self.max_weight)
        else:
            tables = Tables.made(
                clients,
                n_clients,
                X,
                y,
                groups,
                schema,
                persons,
                sample_weight,
            )
        warn(self._doubts(tables), InputWarning)
        self._fit(tables, y, budget)
        warn(self.privacy_.warnings)
        return self

    def choose_k(
        self,
        X: Sequence[ArrayLike],
        max_clusters: int | None = None,
        *,
        sample_weight: object = None,
        persons: object = None,
    ) -> ClusterChoice:
        """Choose the number of clusters from noisy weights of the server's points.

        The first two rounds of FedDP-KMeans run with `max_clusters` (None: the
        constructor's) on `X`, which is as in `fit`, as are `sample_weight` and
        `persons`, and on the whole of epsilon. The cost curve and its elbow are
        post-processing and cost nothing more (FedDP-KMeans, appendix H.3). With
        ``n_clusters="auto"``, `fit` chooses k and clusters within one budget instead.
        Raises a `ConfigurationError` if the algorithm is not ``feddp_kmeans``, or the
        trust model not ``distributed``: the choice is public.
        """
        options = self._choice_options(max_clusters)
        schema = schema_of(self.bounds)
        if schema is not None:
            # Without the columns that only describe clusters, of which there are none.
            schema = schema.clustered
            options["bounds"] = schema
        persons = stated_persons(persons, schema, self._unit)
        X, ids = taken_apart(X, persons, schema=schema)
        tables = Tables.of(X, schema=schema).with_persons(ids)
        tables = tables.with_weights(sample_weight, self.max_weight)
        warn(self._doubts(tables), InputWarning)
        with run_options.objects_options():
            config, server_points = self._config(options, tables)
            charge_fit(
                None,
                config,
                tables.parts,
                server_points,
                self.engine,
            )
            run = played(self.engine, config, tables, server_points)
        warn(run.privacy.warnings)
        curve = run.state.extras.get(COST_CURVE, np.zeros(0))
        # In scaled units where the features have bounds of different widths.
        costs = curve * (squared_unit(config.settings.bounds) or 1.0)
        return ClusterChoice(len(run.state.centroids), costs, run.privacy)

    @property
    def _unit(self) -> object:
        """The unit's short form."""
        return self._run_options()["unit"]

    def _choice_options(self, max_clusters: int | None) -> FlatOptions:
        """Options of the run that chooses k, by flat names."""
        options = self._run_options()
        if options["algorithm"] != "feddp_kmeans":
            raise ConfigurationError(
                f"choose_k was called for {options['algorithm']!r}, but it needs"
                " weights of server points: use algorithm='feddp_kmeans', or"
                " n_clusters='auto', which chooses k and clusters within one budget."
            )
        constructor_most = options.pop("max_clusters", DEFAULT_MAX_CLUSTERS)
        # A fit's own steps and its evaluation are not run, so options of theirs say
        # nothing here.
        options |= {name: Settings.defaults()[name] for name in _OF_EVALUATIONS}
        options = run_options.own_options(
            options, "feddp_choose_k", compared=("feddp_kmeans",)
        )
        most = constructor_most if max_clusters is None else max_clusters
        return options | {
            "algorithm": "feddp_choose_k",
            "n_clusters": "auto",
            "max_clusters": most,
        }

    def plan(
        self,
        n_examples: int,
        n_features: int | None,
        n_clients: int,
        *,
        target_excess: float = 0.1,
        spread: float = 0.15,
        seeds: int = 20,
        private_count: bool | None = None,
        algorithms: str | Sequence[str] = (),
    ) -> Forecast:
        """Forecast noise, accuracy, messages and minutes of a run of this shape.

        Before any data are touched.

        All private algorithms that fit the unit and need no server data are compared
        under this estimator's options, on public synthetic data; its own algorithm
        decides nothing. Without bounds, noise is given as a fraction of half the range
        that they will have.

        Parameters
        ----------
        n_examples, n_features, n_clients : int
            Public shape; a guess is enough. Of features None: those of a schema, or of
            bounds by column. With ``max_weight`` the rows are what all weigh, over it.
        target_excess : float
            Fraction by which the cost may exceed the optimum, for the epsilon that this
            takes.
        spread : float
            Assumed standard deviation of a cluster's rows in each coordinate, over half
            the range of the bounds.
        seeds : int
            Synthetic data sets for each point of a curve, at least 2.
        private_count : bool, optional
            Whether the run would count its rows privately; else their number is
            declared. None: as `fit` would.
        algorithms : str or sequence of str
            Candidates; empty: all that fit.

        Raises
        ------
        ConfigurationError, PlanError
            One sentence, before anything is computed.

        Examples
        --------
        >>> km = FederatedKMeans(n_clusters=3)
        >>> forecast = km.plan(2_000, 2, 3, seeds=2, algorithms=["fastlloyd"])
        >>> forecast.recommended, forecast.algorithms[0].deployment.n_round_trips
        ('fastlloyd', 9)
        """
        from flwr_dpkmeans.planner import PlanningRequest, make_forecast

        request = PlanningRequest.of_run(
            self._run_options(),
            self.server_data,
            (n_examples, n_features or 0, n_clients),
            (target_excess, spread, seeds),
            private_count,
            algorithms,
        )
        return make_forecast(request)

    def _by_table(
        self,
        X: PartyTables,
        method: Callable[[ArrayLike], Answer],
        fit_options: Mapping[str, object],
    ) -> Answers:
        """Apply a method to each party's table, or to the one that groups divide."""
        is_one_table = fit_options.get("groups") is not None
        persons = fit_options.get("persons")
        X, _ = taken_apart(
            X,
            persons,
            schema=self.schema_,
            is_one_table=is_one_table,
        )
        if is_one_table:
            return method(X)
        tables = list(X.values()) if isinstance(X, Mapping) else list(X)
        answers_of_tables = {}
        for index, table in enumerate(tables):
            if n_rows_of(table):
                answers_of_tables[index] = method(table)
        # A party may have no rows, to which no method is applied; others have some, or
        # there had been no fit.
        first = next(iter(answers_of_tables.values()))
        empty = first[:0]
        answers = [answers_of_tables.get(index, empty) for index in range(len(tables))]
        if isinstance(X, Mapping):
            return dict(zip(X, answers, strict=True))
        return answers


# What editors show: the fields, not what `__new__` takes.
_ARGUMENTS = signature(FederatedKMeans().__init__)  # type: ignore[misc]
FederatedKMeans.__signature__ = _ARGUMENTS
