"""Where randomness comes from: noise, keys, masks and coins from the operating system,
all else from public seeds.

Every draw from a seedable generator that the package makes in whole secure runs is seen
and must be of a listed place, where only public things are drawn; each list is also
read off the source.
"""

from __future__ import annotations

import ast
import functools
import inspect
import os
import random
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import house
import numpy as np
import pytest
from support.flat import flat_estimator
from support.machine import replace_call, replace_entropy, replace_process_id
from support.noise_bugs import RoundedNoise, plant_source
from support.protocol_federation import make_federation

from flwr_dpkmeans.errors import LocalMisuseError
from flwr_dpkmeans.node.identity import Identity
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.privacy import exact_gaussian
from flwr_dpkmeans.privacy.noise import (
    NoiseKind,
    NoiseSource,
    OpenDPNoise,
    SecureNoise,
    noise_source,
)
from flwr_dpkmeans.privacy.noise import fork_watch as _forks
from flwr_dpkmeans.privacy.noise import opendp_noise as samplers
from flwr_dpkmeans.secagg.ciphers import seal
from flwr_dpkmeans.secagg.keys import (
    generate_group_key,
    generate_private_key,
    public_key_of,
)
from flwr_dpkmeans.secagg.messages import ShareRequest
from flwr_dpkmeans.secagg.recover import Recover
from flwr_dpkmeans.secagg.roster import Roster
from flwr_dpkmeans.secagg.shamir import share
from flwr_dpkmeans.secagg.slots import Slots
from flwr_dpkmeans.sums.plan import Plan, PlannedRound, make_noise_source, takes_part

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "flwr_dpkmeans"
PLACES = (PACKAGE,)
"""What is read and watched; names of files leave the first folder out."""

# Seedable generators, by file and function. What is drawn there is public, or data of a
# simulation.
PUBLIC = {
    (
        "data/columns/seen.py",
        "Spread.of",
    ): "which values a median is of, for the owner alone",
    (
        "algorithms/lloyd_family/packed.py",
        "Packed.packed_state.initial_state",
    ): "FastLloyd's start, from the plan's seed",
    (
        "algorithms/proxy/setting.py",
        "Setting.generator",
    ): "samples, proxies and restarts after earlier releases",
    (
        "algorithms/feddp/public_start.py",
        "ServerKMeansPlusPlusTask.start",
    ): "k-means++ on the server's points",
    (
        "algorithms/feddp/packed_start.py",
        "SpherePackingTask.start",
    ): "a start by sphere packing",
    (
        "algorithms/feddp/appendix/simplification.py",
        "simplify_rounds.halving.advance",
    ): "which of the server's points stay",
    ("baselines/pooled.py", "run_kmeans"): "restarts of k-means in central baselines",
    ("baselines/pooled.py", "k_fed"): "hands a seed to `run_kmeans`",
    (
        "baselines/max_cover.py",
        "_proxy_centres",
    ): "restarts of k-means on a noisy cover",
    ("baselines/pooled.py", "optimal"): "hands a seed to `run_kmeans`",
    ("baselines/pooled.py", "_from_leading_directions"): "hands a seed to `run_kmeans`",
    ("baselines/central.py", "_optimal"): "hands a seed to `run_kmeans`",
    ("baselines/central.py", "_k_fed"): "hands a seed to `run_kmeans`",
    (
        "sums/wire/plan_text.py",
        "terms_digest",
    ): "leaves the seed out of what is compared",
    ("baselines/central.py", "_noisy"): "a random projection, which protects nothing",
    ("data/simulated/mixture.py", "MixtureClients.means"): "data of a simulation",
    (
        "data/simulated/mixture.py",
        "MixtureClients.server_points",
    ): "data of a simulation",
    (
        "data/simulated/mixture.py",
        "MixtureClients.client_points",
    ): "data of a simulation",
    ("data/simulated/partition.py", "partition_indices"): "rows of simulated clients",
    (
        "kmeans/eigenvectors.py",
        "_leading_range",
    ): "the start of a range finder on a noisy matrix",
    (
        "kmeans/public_points/weighted_lloyd.py",
        "weighted_kmeans",
    ): "restarts of k-means on the server's points",
    ("sums/config.py", "RunConfig.unseeded"): "removes the seed",
    (
        "estimators/budgets/fit_cost.py",
        "_candidates",
    ): "options that a search will draw",
    (
        "algorithms/server/simulated_clients.py",
        "client_bounds_of",
    ): "simulated clients of the server's own points",
    (
        "estimators/statistics/of_columns.py",
        "StatisticOfColumns.fit",
    ): "hands an experiment's seed to its run",
    ("planner/synthetic_data.py", "draw_mixture"): "synthetic data of a forecast",
    (
        "sums/checks/neighbours.py",
        "check_sensitivity",
    ): "tables of a check that no run makes",
}
NOT_PRIVATE = {
    (
        "privacy/noise/seeded_noise.py",
        "SeededNoise._draw",
    ): "seeded noise, which says that it is not private",
    ("sums/plan.py", "takes_part"): "coins of a seeded run",
}
ENTROPY = {
    ("baselines/central.py", "_noisy"): {"secrets.randbits"},
    ("deploy/dashboard.py", "_refusal"): {"secrets.compare_digest"},
    ("deploy/dashboard.py", "read_token"): {"secrets.token_urlsafe"},
    ("deploy/server_options.py", "ServerOptions.write_connection"): {
        "secrets.token_hex",
        "secrets.token_hex().encode",
    },
    ("data/loading/person_ids.py", "person_key"): {"secrets.token_bytes"},
    ("estimators/budgets/fit_budget.py", "Budget.charge"): {"secrets.token_hex"},
    ("estimators/run_engines.py", "fit_in_one_place"): {"secrets.randbits"},
    ("estimators/run_engines.py", "play_directly"): {"secrets.randbits"},
    ("flower/engines.py", "play_inprocess"): {"secrets.randbits"},
    ("algorithms/first_plan.py", "first_plan"): {"secrets.randbits"},
    ("node/belonging.py", "_File"): {"secrets.token_hex"},
    ("node/belonging.py", "owner_statement"): {"secrets.token_hex"},
    ("privacy/exact_gaussian.py", "raw_proposals"): {"os.urandom"},
    ("privacy/exact_gaussian.py", "_coins_in_a_row"): {"os.urandom"},
    ("privacy/exact_gaussian.py", "is_below"): {"os.urandom"},
    ("results/whole_files.py", "write_folder"): {"secrets.token_hex"},
    ("results/whole_files.py", "write_whole"): {"secrets.token_hex"},
    ("secagg/keys.py", "generate_group_key"): {"os.urandom"},
    ("secagg/keys.py", "generate_private_key"): {"os.urandom"},
    ("secagg/ciphers.py", "seal"): {"os.urandom"},
    ("secagg/recover.py", "Recover.share"): {"os.urandom"},
    ("secagg/recover.py", "Recover._locked_shares"): {"os.urandom"},
    ("secagg/shamir.py", "share"): {"os.urandom"},
    ("secagg/credentials.py", "Signer.generate"): {"os.urandom"},
    ("sums/plan.py", "takes_part"): {"secrets.randbelow"},
}
"""Calls of the system's entropy; OpenDP's own are noise too.

`byte_source` of max cover hands one on.
"""
Place = tuple[str, str]


# -- read off the source ---------------------------------------------------------------


def name_of(path: Path) -> str:
    return "/".join(path.relative_to(ROOT).parts[1:])


def calls(path: Path) -> list[tuple[Place, str]]:
    """Every call in a module with its function, and every ``random_state``."""
    found = []

    def note_within(node: ast.AST, name: str) -> None:
        for child in ast.iter_child_nodes(node):
            inner = (
                f"{name}.{child.name}".lstrip(".")
                if isinstance(child, ast.FunctionDef | ast.ClassDef)
                else name
            )
            if isinstance(child, ast.Call):
                found.append(((name_of(path), name), house.dotted(child.func)))
            elif isinstance(child, ast.keyword) and child.arg == "random_state":
                found.append(((name_of(path), name), "random_state"))
            note_within(child, inner)

    note_within(house.syntax_tree(path), "")
    return found


@functools.cache
def all_calls() -> list[tuple[Place, str]]:
    """Of all modules; read when a test asks."""
    return [
        call
        for place in PLACES
        for path in sorted(place.rglob("*.py"))
        for call in calls(path)
    ]


def test_generators_with_a_seed_are_used_in_the_listed_places_only() -> None:
    found = {
        place
        for place, call in all_calls()
        if "np.random." in call or call == "random_state"
    }
    # Other calls go on drawing from a generator that was made in one of them.
    assert found == set(PUBLIC) | set(NOT_PRIVATE)


def test_entropy_of_the_system_is_asked_in_the_listed_places() -> None:
    found: dict[Place, set[str]] = {}
    for place, call in all_calls():
        if call.startswith(("os.urandom", "secrets.")):
            found.setdefault(place, set()).add(call)
    assert found == ENTROPY


def test_nobody_imports_a_generator_past_these_lists() -> None:
    """Neither Python's `random`, nor NumPy's names, nor other libraries' keys."""
    for path in [path for place in PLACES for path in place.rglob("*.py")]:
        for node in house.statements_of(house.syntax_tree(path)):
            if isinstance(node, ast.Import):
                assert not {alias.name for alias in node.names} & {
                    "random",
                    "numpy.random",
                    "uuid",
                }, path
            elif isinstance(node, ast.ImportFrom):
                names = {alias.name for alias in node.names}
                assert node.module not in (
                    "random", "numpy.random", "secrets", "uuid",
                ), path  # fmt: skip
                assert not (node.module == "numpy" and "random" in names), path
                assert not (node.module == "os" and "urandom" in names), path
    assert not [
        call
        for _, call in all_calls()
        if call.endswith((".generate_key", "PrivateKey.generate", "SystemRandom"))
    ]


def numeric_names(*parts: Any) -> set[str]:
    """What is used of NumPy and `math` in the source of these."""
    trees = [ast.parse(inspect.getsource(part)) for part in parts]
    used = {
        ast.unparse(node)
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
    }
    return {name for name in used if re.fullmatch(r"(np|math)\.\w+", name)}


def test_the_secure_sources_draw_by_opendp_or_by_what_is_proved_to_be_exact() -> None:
    """No floats between integers and the ring but what IEEE 754 defines."""
    integers = {"np.int64", "np.zeros", "np.array"}
    assert numeric_names(NoiseSource, OpenDPNoise, SecureNoise) == integers
    exact = {
        "np.uint32", "np.frombuffer", "np.searchsorted", "np.flatnonzero", "np.where",
        "np.min_scalar_type",
    }  # fmt: skip
    doubles = {"np.square", "np.minimum", "np.ones_like", "math.ceil"}
    assert (
        numeric_names(
            exact_gaussian.discrete_gaussians,
            exact_gaussian.accepted_proposals,
            exact_gaussian.raw_proposals,
            exact_gaussian.exp_minus,
            exact_gaussian.is_below,
        )
        == {"np.int64", "np.zeros"} | exact | doubles
    )
    built = ast.parse(inspect.getsource(samplers.build_measurement))
    assert {
        ast.unparse(n.func) for n in ast.walk(built) if isinstance(n, ast.Call)
    } >= {"dp.m.make_gaussian"}
    assert "seed" not in inspect.getsource(samplers.build_measurement)


def test_no_seed_has_a_way_into_the_secure_source() -> None:
    """Nothing takes one, `noise_source` refuses one, the plan's is not read."""
    assert list(inspect.signature(SecureNoise).parameters) == []
    for name in ("discrete_gaussian", "discrete_laplace"):
        assert list(inspect.signature(getattr(SecureNoise, name)).parameters)[2:] == [
            "size"
        ]
    for seed in (0, 1, np.random.default_rng(0), b"seed"):
        for kind in (NoiseKind.SECURE, NoiseKind.OPENDP):
            with pytest.raises(LocalMisuseError, match="secure noise cannot have one"):
                noise_source(kind, seed)  # type: ignore[arg-type]
    first, again = (
        make_noise_source(plan_of(), "client", 2, 1, 0).discrete_gaussian(1e12, 4)
        for _ in range(2)
    )
    assert (first != again).any()


def plan_of(rate: float = 0.5) -> Plan:
    config = parse_config(
        n_clusters=2, bounds=((-1.0,), (1.0,)), unit="client", random_state=5,
        client_sampling_rate=rate,
    )  # fmt: skip
    rounds = tuple(PlannedRound("lloyd", "oblivious", ()) for _ in range(128))
    return Plan(1, config, 3, 0, 5, 1e-6, 100, 1, (), rounds)


# -- seen in whole runs ----------------------------------------------------------------


class Watch:
    """Who makes or uses a generator with a seed."""

    def __init__(self) -> None:
        self.seen: set[Place] = set()

    def note(self) -> None:
        frame = sys._getframe(2)
        while frame is not None:
            path = frame.f_code.co_filename
            if path.startswith(tuple(f"{place}/" for place in PLACES)):
                name = frame.f_code.co_qualname.replace("<locals>.", "")
                self.seen.add((name_of(Path(path)), name))
                return
            frame = frame.f_back  # type: ignore[assignment]

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*args: Any, **kwargs: Any) -> Any:
            self.note()
            return function(*args, **kwargs)

        return watched


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    """Watch everything of `numpy.random` and `random` that makes or is a generator."""
    watch = Watch()

    class Watched(np.random.RandomState):  # scikit-learn asks for instances
        def __init__(self, *args: Any) -> None:
            watch.note()
            super().__init__(*args)

    watched: list[tuple[Any, str, Any]] = [(np.random, "RandomState", Watched)]
    for module in (np.random, random):
        for name, function in vars(module).items():
            if name.islower() and not name.startswith("_") and callable(function):
                watched.append((module, name, watch.wrap(function)))
    for module, name, replacement in watched:
        monkeypatch.setattr(module, name, replacement)
    return watch


SERVER = np.random.default_rng(0).uniform(-0.9, 0.9, (40, 2))
PARTS = [np.random.default_rng(seed).uniform(-0.9, 0.9, (30, 2)) for seed in range(6)]
COMMON: dict[str, Any] = {
    "n_clusters": 3,
    "epsilon": 4.0,
    "bounds": (-1.0, 1.0),
    "random_state": 3,
    "max_iter": 1,
}
CLIENTS: dict[str, Any] = {
    "algorithm": "feddp_kmeans", "n_init": 1, "server_data": SERVER, "unit": "client",
    "delta": 0.01,
}  # fmt: skip
RUNS: dict[str, dict[str, Any]] = {
    "oblivious, start by packing": {"algorithm": "fastlloyd", "trust": "oblivious"},
    "Laplace": {"algorithm": "sulloyd", "trust": "central"},
    "by OpenDP": {"algorithm": "fastlloyd", "trust": "distributed", "noise": "opendp"},
    "proxies": {"algorithm": "proxy_lloyd", "trust": "distributed", "max_iter": None},
    "server's points": {
        "algorithm": "feddp_kmeans",
        "trust": "distributed",
        "n_init": 1,
        "server_data": SERVER,
    },
    "private bounds": {
        "algorithm": "fastlloyd",
        "trust": "central",
        "bounds": "private",
        "n_examples": "private",
    }
    | {"bounds_domain": (-2.0, 2.0)},
    "clients, sampled": CLIENTS | {"trust": "distributed", "client_sampling_rate": 0.5},
    "clients, oblivious": CLIENTS | {"trust": "oblivious"},
}


def run(name: str, engine: str, **more: Any) -> None:
    model = flat_estimator(**(COMMON | RUNS[name] | {"engine": engine} | more)).fit(
        PARTS
    )
    assert model.privacy_.is_private is (model.noise != "seeded")


@pytest.mark.sample(5)
@pytest.mark.parametrize("engine", ["direct", "inprocess"])
@pytest.mark.parametrize("name", RUNS)
def test_a_secure_run_uses_seeded_generators_for_public_things_only(
    watch: Watch, name: str, engine: str
) -> None:
    run(name, engine)
    assert watch.seen <= set(PUBLIC)


def test_recovered_sums_use_no_seeded_generator(watch: Watch) -> None:
    make_federation([np.round(part * 2.0**16) / 2.0**16 for part in PARTS]).start(
        dropout="recover"
    )
    assert watch.seen <= set(PUBLIC)


def test_the_watch_sees_public_draws_seeded_runs_and_planted_noise(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("server's points", "direct")
    assert {file for file, _ in watch.seen} & {
        "kmeans/public_points/weighted_lloyd.py",
        "algorithms/feddp/public_start.py",
    }
    watch.seen.clear()
    run("oblivious, start by packing", "direct", noise="seeded")
    assert set(NOT_PRIVATE) & watch.seen == {
        ("privacy/noise/seeded_noise.py", "SeededNoise._draw")
    }
    watch.seen.clear()
    noise = RoundedNoise()
    watched = ("privacy/release/released_sum.py", "draw_noise")
    plant_source(monkeypatch, lambda: noise)
    run("oblivious, start by packing", "direct")
    assert watched in watch.seen
    watch.seen.clear()
    replace_entropy(monkeypatch, random.randbytes)
    generate_private_key()
    assert watch.seen == {("secagg/keys.py", "generate_private_key")}


# -- which entropy ---------------------------------------------------------------------


def test_keys_masks_shares_and_coins_have_no_other_source_than_the_operating_system(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the system's bytes all zero everything repeats but OpenDP's noise."""
    state = Recover(1, 2, bytes(32), 2, 0, False, b"", slots=Slots(1, 3, 2))
    roster = Roster.of(
        0,
        {2: state.public_key}
        | {node: public_key_of(bytes([node] * 32)) for node in range(3, 9)},
    )
    drawers: dict[str, Callable[[], object]] = {
        "private key": generate_private_key,
        "group key": generate_group_key,
        "nonce": lambda: seal(bytes(32), b"", b""),
        "coefficients": lambda: share(bytes(16), 3, 2)[0],
        "masters": lambda: state.share(ShareRequest(roster))[0].masters,
        "identity": lambda: Identity.generate().private_key,
        "coins": lambda: [
            takes_part(plan_of(), 2, index, 0) for index in range(1, 129)
        ],
        "noise": lambda: SecureNoise().discrete_gaussian(1e12, 4).tolist(),
        "noise of OpenDP": lambda: SecureNoise().discrete_laplace(1e12, 4).tolist(),
    }
    assert all(draw() != draw() for draw in drawers.values())
    asked: list[int] = []

    def zeros(size: int) -> bytes:
        asked.append(size)
        return bytes(size)

    replace_entropy(monkeypatch, zeros)
    for name, draw in drawers.items():
        asked.clear()
        assert (draw() == draw()) is (name != "noise of OpenDP"), name
        assert bool(asked) is (name != "noise of OpenDP"), name


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_fork_under_the_number_of_a_process_before_it_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """OpenSSL would not seed itself again, and draw its parent's noise."""

    def require_refused(number: int) -> None:
        # What is drawn from fresh bytes, or not at all, no fork repeats.
        assert SecureNoise().discrete_gaussian(4.0, 1).shape == (1,)
        assert SecureNoise().discrete_laplace(4.0, 0).size == 0
        assert OpenDPNoise().discrete_gaussian(4.0, 0).size == 0
        words = rf"under the number of one before it \({number}\)"
        for draw in (OpenDPNoise().discrete_gaussian, SecureNoise().discrete_laplace):
            with pytest.raises(LocalMisuseError, match=words):
                draw(4.0, 1)

    def is_refused(number: int) -> bool:
        pid = os.fork()
        if pid == 0:
            try:
                require_refused(number)
            except BaseException:
                os._exit(1)
            os._exit(7)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7

    assert not is_refused(0)
    replace_process_id(monkeypatch, lambda: 1)
    assert is_refused(1)
    assert not _forks.FORKS.repeats


def test_a_number_that_came_back_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process forks another one and ends."""
    watch = _forks.ForkWatch()
    numbers = iter((100, 101, 101, 100))
    replace_process_id(monkeypatch, lambda: next(numbers))
    watch._before()
    watch._in_child()
    assert not watch.repeats
    watch._before()
    watch._in_child()
    assert watch.repeats


def test_forks_are_watched_where_there_are_any(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []
    replace_call(monkeypatch, "register_at_fork", lambda **calls: asked.append(calls))
    watch = _forks.ForkWatch()
    monkeypatch.delattr(_forks.os, "register_at_fork")
    assert not _forks.ForkWatch().repeats
    assert asked == [{"before": watch._before, "after_in_child": watch._in_child}]


# -- what is said ----------------------------------------------------------------------


def test_it_is_said_that_constant_time_is_not_claimed() -> None:
    """On the page of limits, beside the sources of noise, and beside keys and masks."""
    limits = (PACKAGE / "docs" / "explanation" / "sharp_edges.md").read_text()
    sources = f"{SecureNoise.__doc__}", f"{OpenDPNoise.__doc__}"
    for text in (
        limits,
        *sources,
        (PACKAGE / "docs" / "reference" / "protocol.md").read_text(),
    ):
        assert "Constant time is not claimed" in " ".join(text.split())
    assert "how long a draw of noise takes" in " ".join(limits.split())


def test_the_oldest_opendp_that_installs_is_not_a_biased_one() -> None:
    """Up to 0.14.1 small scales are off by some percent (its issue 2638)."""
    project = (ROOT / "pyproject.toml").read_text()
    assert f'"opendp>={".".join(map(str, samplers._OLDEST_OPENDP))}"' in project
    assert samplers._OLDEST_OPENDP >= (0, 14, 2)
