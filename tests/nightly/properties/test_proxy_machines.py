"""Clients go from release to release by themselves and must agree to the last bit,
whatever processor they have.

OpenBLAS and NumPy choose their kernels by the processor; both can be told to take those
of another one.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SCRIPT = """
import numpy as np
from threadpoolctl import threadpool_info
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.sums.draft import build_algorithm, draft_plan
from flwr_dpkmeans.privacy.release import as_released

matrix = np.random.default_rng(0).normal(size=(30, 30))
kernels = sorted({str(info.get("architecture")) for info in threadpool_info()})
print("kernels", kernels, repr((matrix @ matrix).sum()))
# The last one has more than noise in it, and clusters get radii of their own.
cases = [(30, 5, 50, 0.1, 0, 1), (9, 4, 20_000, 2.0, 1, 1)]
cases += [(2, 7, 30_000, 8.0, 2, 40)]
for d, k, n, epsilon, seed, times in cases:
    config = parse_config(
        n_clusters=k, bounds=((-1.0,), (1.0,)), algorithm="proxy_lloyd",
        trust="central", n_examples=n, epsilon=epsilon, delta=1e-6, n_init=2,
    )
    plan = draft_plan(config, run_id=1, n_clients=5, seed=seed, n_features=d)
    generator = np.random.default_rng(seed)
    state = build_algorithm(plan).initial_state(seed)
    for step in build_algorithm(plan).rounds:
        scales = [np.full(block.size, block.noise_scale) for block in step.blocks]
        scale = np.concatenate(scales)
        # Whole grid steps that do not depend on the last digits of the scale.
        units = np.rint(scale * 2**10).astype(np.int64)
        steps = times * generator.integers(-1100, 1200, scale.shape) * units // 2**4
        state = step.advance(state, as_released(steps.view(np.uint64), step.blocks, 16))
        n_radii = len(set(state.extras.get("radius", [0])))
        print(d, step.name, state.digest.hex(), n_radii)
"""
MACHINES = {
    "own": {"OPENBLAS_NUM_THREADS": "2"},
    "old": {
        "OPENBLAS_CORETYPE": "Prescott",
        "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL",
    },
    "new": {"OPENBLAS_CORETYPE": "Haswell"},
}


def started_on(machine: dict[str, str]) -> subprocess.Popen[str]:
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", **machine}
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def test_all_machines_go_through_the_same_states() -> None:
    started = {name: started_on(machine) for name, machine in MACHINES.items()}
    found = {
        name: process.communicate()[0].splitlines() for name, process in started.items()
    }
    assert {process.returncode for process in started.values()} == {0}
    if found["old"][0] == found["new"][0]:
        pytest.skip("this processor's libraries have one kind of kernels only")
    expected = found["own"][1:]
    assert len(expected) >= 15
    assert max(int(line.split()[-1]) for line in expected) > 2
    for name, lines in found.items():
        assert lines[1:] == expected, name
