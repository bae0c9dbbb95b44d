"""The page on deployment, typed from its first command to its last one, on one machine
with three parties.

What stands for other hosts is replaced: folders below ``/etc`` and ``/var``, the
service's user, ports, the host's name (its certificate names 127.0.0.1 too), and the
installed program by the one under test. Nothing else is.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from simulations.flower.deployment import PROJECT
from simulations.flower.flower_processes import (
    environment,
    flower_home,
    free_ports,
    guarded,
    log_of,
    running,
    wait_until,
)
from simulations.flower.ray_processes import end_marked, is_supported, marked_processes

pytestmark = [
    pytest.mark.ray,
    pytest.mark.skipif(not is_supported(), reason="processes are found in /proc"),
]

DOCS = PROJECT / "flwr_dpkmeans" / "docs"
PAGES = (DOCS / "tutorials" / "three_machines.md", DOCS / "how-to" / "deploy.md")
TEXT = "\n".join(page.read_text() for page in PAGES)
BIN = Path(sys.executable).parent
WARDS = ("ward-7", "ward-8", "ward-9")
NEW_USER = re.compile(
    r"^(useradd|python3 -m venv|/opt/flower/bin/pip) .*$", re.MULTILINE
)
"""What a machine with other people's work on it should not have typed."""


def block(heading: str, number: int = 0, language: str = "bash") -> str:
    """A block of the pages, by its heading and its place below that."""
    section = re.split(
        r"^#{2,3} ", TEXT[TEXT.index(f" {heading}") :], maxsplit=1, flags=re.MULTILINE
    )[0]
    return re.findall(rf"^```{language}\n(.*?)^```", section, re.MULTILINE | re.DOTALL)[
        number
    ]


@dataclass(frozen=True)
class Machine:
    """One host of the page: its root is a folder."""

    root: Path
    ports: dict[str, int] = field(default_factory=dict)

    def here(self, text: str) -> str:
        """What the page says, for this machine."""
        user = getpass.getuser()
        text = NEW_USER.sub("true", text)
        for written, own in (
            ("/opt/flower/bin", str(BIN)),
            ("/etc/flower", f"{self.root}/etc/flower"),
            ("/var/lib/flower", f"{self.root}/var/lib/flower"),
            ("superlink.example.org:443", f"127.0.0.1:{self.ports.get('443', 0)}"),
            ("127.0.0.1:8000", f"127.0.0.1:{self.ports.get('8000', 0)}"),
            ("--port 8000", f"--port {self.ports.get('8000', 0)}"),
            ("# port = 9094", f"port = {self.ports.get('9094', 0)}"),
            ("-o flower", f"-o {user}"),
            ("-g flower", f"-g $(id -gn {user})"),
            ("chown flower", f"chown {user}"),
            ("chgrp flower", f"chgrp $(id -gn {user})"),
        ):
            text = text.replace(written, own)
        return text

    def type(self, text: str, folder: Path) -> str:
        """Type commands; what they print.

        One that fails ends the test with what it said.
        """
        command = ["bash", "-e", "-c", self.here(text)]
        done = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            env=environment(self.root),
            timeout=300,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        return done.stdout


def rows(party: int) -> str:
    """A party's part of 5,000 rows, with its columns in an order of its own and one
    that nobody asked for.
    """
    rng = np.random.default_rng(party)
    centers = np.array([[1.0, 1, 1, 1], [7, 1, 7, 1], [4, 7, 4, 7]])
    points = np.clip(
        centers[rng.integers(3, size=[1600, 1700, 1700][party])]
        + rng.normal(size=(1, 4)) / 5,
        0,
        8,
    )
    points = np.clip(points + rng.normal(size=points.shape) / 4, 0, 8)
    names = ["age", "height", "weight", "pulse"]
    order = rng.permutation(4)
    lines = [",".join(["name", *(names[place] for place in order)])]
    lines += [
        ",".join(["x", *(repr(float(row[place])) for place in order)]) for row in points
    ]
    return "\n".join(lines) + "\n"


def copied_project(folder: Path) -> Path:
    """What a stranger has."""
    leave = shutil.ignore_patterns(
        ".git", ".venv", "outputs", "__pycache__", ".*_cache", "*.fab", "dist", "build"
    )
    return Path(shutil.copytree(PROJECT, folder / "project", ignore=leave))


def test_six_commands_lead_from_nothing_to_a_result(tmp_path: Path) -> None:
    project, office = copied_project(tmp_path), Machine(tmp_path / "office")
    office.root.mkdir()
    for number, ward in enumerate(WARDS):
        (project / f"{ward.replace('-', '')}.csv").write_text(rows(number))
    init, start, *nodes, run = block("Six commands").strip().splitlines()
    assert max(map(len, (init, start, *nodes, run))) <= 120
    homes = [
        project / "office" / "superlink" / "home",
        *(project / ward / "home" for ward in WARDS),
    ]
    with contextlib.ExitStack() as stack:
        office.type(f"{init} --port {free_ports(1)[0]}", project)
        for home in homes:
            stack.callback(end_marked, home)
        office.type(start, project)
        for ward, command in zip(WARDS, nodes, strict=True):
            log = stack.enter_context((tmp_path / ward).open("wb"))
            words = [
                "env",
                "-u",
                "FLWR_HOME",
                f"{BIN}/{shlex.split(command)[0]}",
                *shlex.split(command)[1:],
            ]
            stack.enter_context(
                running(words, tmp_path / "office", stdout=log, cwd=project)
            )
        assert "max-iter=3" in run
        said = office.type(
            run.replace("max-iter=3", "algorithm='fastlloyd' max-iter=1"), project
        )
        check, status, results, *_ = (
            line.partition("#")[0]
            for line in block("Six commands", 1).strip().splitlines()
        )
        looked = office.type(check, project)
        told = json.loads(office.type(f"{status} --json", project))
        (page,) = office.type(results, project).splitlines()
        (own,) = office.type(results.replace("office", WARDS[0]), project).splitlines()
        process = int((project / "office" / "superlink" / "pid").read_text())
        os.kill(process, signal.SIGTERM)
        deadline = time.monotonic() + 180.0
        while marked_processes(homes[0]):
            assert time.monotonic() < deadline, "the SuperLink outlives its command"
            time.sleep(0.1)
    assert re.search(
        r"starts with 3 clients: nodes (ward-\d, ){2}ward-\d$", said, re.MULTILINE
    )
    assert not re.search(r"nodes? \[?\d{10}", said)
    assert "wrong" not in looked
    (fingerprint,) = set(re.findall(r"(?:[0-9a-f]{4} ){9}[0-9a-f]{4}", looked))
    assert all(fingerprint in (tmp_path / ward).read_text() for ward in WARDS)
    assert [(one["name"], one["status"]) for one in told["parties"]] == [
        (ward, "online") for ward in WARDS
    ]
    assert [(one["status"], one["why"]) for one in told["runs"]] == [
        ("finished:completed", "")
    ]
    for line in (page, own):
        assert line.startswith(told["runs"][0]["run"])
        assert Path(line.split()[-1]).is_file()
    models = [
        json.loads(path.read_text())["centroids"]
        for path in project.glob("ward-?/results/run-*/*/model.json")
    ]
    assert len(models) == 3
    assert models[0] == models[1] == models[2]
    assert not list((project / "office").rglob("model.json"))


def test_the_page_leads_from_nothing_to_a_result(tmp_path: Path) -> None:
    ports = dict(zip(("443", "8000"), free_ports(2), strict=True))
    ports["443"] = ports["8000"]  # the proxy's own file is another test's
    office, server = (
        Machine(tmp_path / "office", ports),
        Machine(tmp_path / "superlink", ports),
    )
    parties = [
        Machine(tmp_path / ward, {**ports, "9094": port})
        for ward, port in zip(WARDS, free_ports(3), strict=True)
    ]
    for machine in (office, server, *parties):
        machine.root.mkdir()

    # 1. The office: authority, certificate, app. (That the wheel can be installed,
    # tests/nightly/e2e/test_packaging.py says.)
    office.type(block("1. Office"), office.root)
    project = copied_project(tmp_path)
    assert "\nflwr build\n" in block("1. Office", 1)
    digest = office.type(block("1. Office", 2), project).split()[-1]

    # 2 and 3. Programs, and the SuperLink.
    for machine in (server, *parties):
        (machine.root / "var" / "lib" / "flower").mkdir(parents=True)
        machine.type(block("2. Every host"), office.root)
    server.type(block("3. SuperLink's host"), office.root)
    variables, *starts = (
        server.here(block("3. SuperLink's host", 1)).strip().splitlines()
    )
    assert variables.startswith("export ")

    # 4. Keys, then files.
    pinned = {}
    for ward, party in zip(WARDS, parties, strict=True):
        said = party.type(
            block("4. Each party's host").replace("ward-7", ward), office.root
        )
        pinned[ward] = re.findall(r"\b[0-9a-f]{64}\b", said)[-1]
    for number, party in enumerate(parties):
        policy = block("4. Each party's host", 0, "toml")
        for ward, line in pinned.items():
            policy = policy.replace(
                f'{ward} = "64 hexadecimal digits"', f'{ward} = "{line}"'
            )
        visit = tmp_path / f"visit-{number}"
        visit.mkdir()
        (visit / "policy.toml").write_text(policy)
        example = party.here(
            (PROJECT / "flwr_dpkmeans" / "deploy" / "node.example.toml").read_text()
        )
        (visit / "node.toml").write_text(example.replace("0" * 64, digest))
        (visit / "ward7.csv").write_text(rows(number))
        party.type(block("4. Each party's host", 1), visit)

    # 5. Registering, starting, a run.
    with contextlib.ExitStack() as stack:
        stack.enter_context(guarded(server.root))
        log = stack.enter_context((server.root / "log").open("wb"))
        home = flower_home(server.root)
        (home / "config.toml").write_text(
            server.here(block("5. Registering", 0, "toml"))
        )
        # The operator's account is another one than the service's, but both are below
        # one guard here.
        superlink, _apps = (
            stack.enter_context(
                running(
                    shlex.split(f"{BIN}/{start}"),
                    server.root,
                    stdout=log,
                    cwd=server.root,
                )
            )
            for start in starts
        )
        register = block("5. Registering").splitlines()
        deadline = time.monotonic() + 180.0
        while subprocess.run(
            ["bash", "-c", register[1]],
            env=environment(server.root),
            capture_output=True,
            check=False,
        ).returncode:
            assert superlink.poll() is None, log_of(server.root)
            assert time.monotonic() < deadline, log_of(server.root)
        for ward, party in zip(WARDS, parties, strict=True):
            (server.root / f"{ward}.pub").write_bytes(
                (party.root / "etc" / "flower" / "key.pub").read_bytes()
            )
            server.type(register[0].replace("ward-7", ward), server.root)
        _, check, command = block("5. Registering", 1).strip().splitlines()
        looked = parties[0].type(f"unset FLWR_HOME\n{check}", parties[0].root)
        assert "wrong" not in looked
        assert len(looked.splitlines()) >= 10
        for party in parties:
            stack.enter_context(guarded(party.root))
            own = stack.enter_context((party.root / "log").open("wb"))
            words = ["env", "-u", "FLWR_HOME", *shlex.split(party.here(command))]
            node = stack.enter_context(
                running(words, party.root, stdout=own, cwd=party.root)
            )
            wait_until(
                node,
                party.root,
                lambda party=party: "SuperNode ID:" in log_of(party.root),
            )
        run = block("5. Registering", 2)
        assert "max-iter=3" in run
        said = server.type(run.replace("max-iter=3", "max-iter=1"), project)
        listed = json.loads(
            server.type("flwr supernode list --format json", server.root)
        )
    assert [one["status"] for one in listed["nodes"]] == ["online"] * 3
    assert said.count("; 3 clients; epsilon so far") == 1
    models, reports = set(), []
    for party in parties:
        (folder,) = (party.root / "var/lib/flower/results").glob("run-*/client-*")
        models.add(
            json.dumps(json.loads((folder / "model.json").read_text())["centroids"])
        )
        reports.append(json.loads((folder / "privacy_report.json").read_text()))
        assert reports[-1]["is_private"]
        assert any(
            "Identities are pinned: all 2 peers" in line
            for line in reports[-1]["assumptions"]
        )
    # The ledger's own words, and its copy.
    party, report = parties[0], reports[0]
    show = re.findall(r"`(python -m flwr_dpkmeans ledger show [^`]*)`", TEXT)[0]
    (charged,) = json.loads(party.type(f"{show} --json", party.root))
    assert charged["run"].partition("/")[0] == report["provenance"]["run_id"]
    assert charged["epsilon"] == report["epsilon_worst_case"]
    assert charged["releases"] == 1
    backup = re.findall(
        r"`(flock -s ward7[^`]*)`, then "
        r"`(python -m flwr_dpkmeans ledger verify [^`]*)`",
        TEXT,
    )[0]
    (party.root / "COPY").mkdir()
    party.type(
        "cd /var/lib/flower/ledger;"
        f" {backup[0].replace('COPY', str(party.root / 'COPY'))}",
        party.root,
    )
    party.type(backup[1], party.root)
    assert len(models) == 1
    # The SuperLink's host has no centroids.
    assert not list(server.root.rglob("model.json"))
