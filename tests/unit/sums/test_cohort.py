"""Virtual clients that answer together: the bits of one client after another."""

from __future__ import annotations

import hashlib
import itertools
from typing import Any

import numpy as np
import pytest

from flwr_dpkmeans import FederatedKMeans
from flwr_dpkmeans.options import Cohort
from flwr_dpkmeans.secagg import keys
from flwr_dpkmeans.sums import cohort
from flwr_dpkmeans.sums.client import transitions
from flwr_dpkmeans.sums.local import LocalRun
from flwr_dpkmeans.sums.wire import Answer

SIZES = (7, 0, 1, 40, 12, 0, 3, 25, 9, 5, 30)
"""Rows of each of eleven clients, and so on."""
DIMENSIONS = 4


def table_of(client: int) -> Any:
    generator = np.random.default_rng(client)
    n_rows = SIZES[client % len(SIZES)]
    middles = np.array([[-0.6], [0.1], [0.7]])
    labels = generator.integers(3, size=n_rows)
    noise = generator.normal(0.0, 0.2, (n_rows, DIMENSIONS))
    return np.clip(middles[labels] + noise, -1.0, 1.0)


def run_id(_: int) -> int:
    return 9


SERVER = np.concatenate([table_of(3 + 11 * i) for i in range(9)])


class Noted(LocalRun):
    """Notes what every client sends and remembers, and who answers together."""

    runs: list[Noted] = []

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.sent: list[Any] = []
        self.runs.append(self)

    def _remembered(self, answered: cohort.Answered) -> Answer:
        memory, reply = answered.memory, answered.reply
        words: Any = getattr(reply, "masked", None)
        party = memory.protocol
        self.sent.append(
            (
                answered.node_id,
                party.phase,
                party.attempt_id,
                party.node_id,
                party.public_key,
                memory.attempts,
                memory.digest(),
                memory.columns,
                memory.cohort,
                getattr(reply, "tag", b""),
                words is not None and words.values.tolist(),
                answered.unmasked_vector.tolist(),
            )
        )
        return super()._remembered(answered)


def fitted(
    patch: pytest.MonkeyPatch,
    *,
    together: bool,
    n_clients: int,
    is_made: bool,
    options: dict[str, Any],
) -> tuple[Noted, Any, int]:
    """Fit a model, with keys that are the same each time.

    The run, the model, and how many groups answered together.
    """
    n_together = []
    numbers = itertools.count()

    def key() -> bytes:
        return hashlib.sha256(str(next(numbers)).encode()).digest()

    answers = cohort.answers_together

    def answers_together(group: Any, memories: Any) -> bool:
        may = together and answers(group, memories)
        n_together.append(may and len(group))
        return may

    with patch.context() as during:
        during.setattr(cohort, "_MOST_CLIENTS", 5)
        during.setattr(cohort, "answers_together", answers_together)
        during.setattr("flwr_dpkmeans.sums.local.LocalRun", Noted)
        during.setattr(transitions, "generate_private_key", key)
        during.setattr(cohort, "generate_private_key", key)
        during.setattr(keys, "generate_group_key", key)
        during.setattr("flwr_dpkmeans.estimators.run_engines.secrets.randbits", run_id)
        model = FederatedKMeans(
            options.pop("n_clusters", 3),
            bounds=(-1.0, 1.0),
            noise="seeded",
            random_state=5,
            engine="direct",
            server_data=SERVER,
            **options,
        )
        if is_made:
            model.fit(clients=table_of, n_clients=n_clients)
        else:
            model.fit([table_of(client) for client in range(n_clients)])
    return Noted.runs.pop(), model, sum(n_together)


def outcome_of(model: Any) -> Any:
    report = model.privacy_.to_dict()
    # When it was made.
    report.pop("provenance")
    return model.cluster_centers_.tolist(), report


FEDDP: dict[str, dict[str, Any]] = {
    "client": {"algorithm": "feddp_kmeans", "unit": "client", "max_iter": 2},
    "record": {"algorithm": "feddp_kmeans", "unit": "record", "max_iter": 2},
    "laplace": {
        "algorithm": "feddp_kmeans",
        "unit": "client",
        "noise_kind": "laplace",
        "max_iter": 1,
    },
    "margin": {"algorithm": "feddp_kmeans", "unit": "client", "margin": 0.5},
    "public start": {"algorithm": "server_kmeans++", "unit": "client", "max_iter": 2},
    "choose k": {"algorithm": "feddp_choose_k", "unit": "record", "n_clusters": "auto"},
}
TRUST: dict[str, dict[str, Any]] = {
    "no masks": {"trust": "distributed", "cohort": Cohort(masking=False)},
    "masks": {"trust": "distributed"},
    "central": {"trust": "central"},
    "oblivious": {"trust": "oblivious"},
}


@pytest.mark.filterwarnings("ignore::flwr_dpkmeans.errors.PrivacyWarning")
@pytest.mark.parametrize("trust", TRUST)
@pytest.mark.parametrize("name", FEDDP)
def test_together_they_send_what_one_after_another_sends(
    monkeypatch: pytest.MonkeyPatch, name: str, trust: str
) -> None:
    """Vectors, masked and not, tags, memories, released sums, centres and reports.

    Of tables of uneven lengths, some without rows.
    """
    options = {"epsilon": 3.0, "delta": 1e-5, **FEDDP[name], **TRUST[trust]}
    if name == "laplace" and options["trust"] == "distributed":
        options["trust"] = "central"
    n_clients = 23 if name != "client" else 41
    outcomes = []
    for together in (False, True):
        run, model, n_together = fitted(
            monkeypatch,
            together=together,
            n_clients=n_clients,
            is_made=name == "client",
            options=dict(options),
        )
        assert (n_together > 0) == together
        outcomes.append((run, outcome_of(model)))
        if together:
            # Keys, each round and the end: all but the first plan.
            n_stages = run.plan.last_round + 2
            assert n_together >= (n_stages - 1) * (n_clients - 4)
    (alone, alone_outcome), (run, outcome) = outcomes
    assert len(run.sent) == len(alone.sent)
    for sent, sent_alone in zip(run.sent, alone.sent, strict=True):
        assert sent == sent_alone
    assert outcome == alone_outcome
    assert run.steps == alone.steps
    assert run.state.digest == alone.state.digest
