"""`node init`, `pin`, `start` and `status`.

a party's folder from an invitation, and what its owner sees of it.
"""

from __future__ import annotations

import json
import math
import os
import re
import socket
import sqlite3
import stat
from pathlib import Path
from typing import Any

import pytest
from support.apps import app_files, packed
from support.asked_plans import gaussian_cost
from support.ledger_entries import entry
from support.machine import replace_call, replace_sleep
from support.superlink_stand_in import replace_answer

from flwr_dpkmeans.__main__ import main
from flwr_dpkmeans.deploy import node_command, node_setup
from flwr_dpkmeans.deploy.certificates import write_certificates, write_node_key
from flwr_dpkmeans.deploy.guard.approved_fab import digest_of
from flwr_dpkmeans.deploy.invitation import Invitation, Party
from flwr_dpkmeans.deploy.node_check import NodeCheck
from flwr_dpkmeans.deploy.node_options import Isolation, NodeOptions
from flwr_dpkmeans.deploy.superlink_answer import Answer, UnansweredError
from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.node.identity import Identity
from flwr_dpkmeans.node.ledger_file import FileLedger
from flwr_dpkmeans.node.policy import DEPLOYED, ClientPolicy
from flwr_dpkmeans.privacy.gaussian import gaussian_epsilon

PARTIES = ("ward-7", "ward-8", "ward-9")
DOCS = Path(__file__).resolve().parents[2] / "flwr_dpkmeans" / "docs"
PAGE = DOCS / "tutorials" / "three_machines.md"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("ca")
    write_certificates(folder, ["127.0.0.1"], 30)
    return (folder / "ca.crt").read_text()


@pytest.fixture
def here(tmp_path: Path, certificate: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A party's working folder, with the office's invitation."""
    monkeypatch.chdir(tmp_path)
    tmp_path.chmod(0o755)
    (tmp_path / "app.fab").write_bytes(packed(app_files()))
    (tmp_path / "rows.csv").write_text("name,age,height\nx,1,2\ny,3,>9\n")
    invitation = Invitation(
        federation="wards",
        superlink="127.0.0.1:8000",
        app=digest_of((tmp_path / "app.fab").read_bytes()),
        certificate=certificate,
        parties={name: Party() for name in PARTIES},
    )
    invitation.save(tmp_path / "invitation.toml")
    return tmp_path


def init(*more: str, name: str = "ward-7", data: str = "rows.csv") -> int:
    return main(
        [
            "node", "init", name, "--invitation", "invitation.toml", "--data", data,
            "--app", "app.fab", *more,
        ]
    )  # fmt: skip


def join(folder: Path, name: str) -> str:
    """Another party writes itself into the invitation; its identity."""
    (folder / name).mkdir()
    key = write_node_key(folder / name / "key").with_name("key.pub").read_text()
    identity = Identity.generate().public_key.hex()
    Invitation.add(folder / "invitation.toml", name, key, identity)
    return identity


def test_a_party_is_complete_strict_and_its_owners_alone(here: Path) -> None:
    assert init() == 0
    folder, options = (
        here / "ward-7",
        NodeOptions.from_toml(here / "ward-7" / "node.toml"),
    )
    modes = {
        path.name: stat.S_IMODE(path.stat().st_mode)
        for path in (folder, *folder.iterdir())
    }
    assert {modes[name] for name in ("ward-7", "home", "ledger", "results")} == {0o700}
    assert {
        modes[name]
        for name in ("key", "identity", "policy.toml", "node.toml", "ca.crt")
    } == {0o600}
    assert stat.S_IMODE((here / "rows.csv").stat().st_mode) & 0o007 == 0
    party = Invitation.from_toml(here / "invitation.toml").parties["ward-7"]
    assert party.identity == Identity.load(folder / "identity").public_key.hex()
    assert party.key == (folder / "key.pub").read_text().strip()
    # Columns are those that hold numbers, now and for ever.
    assert (options.columns, options.header, options.data_name) == (
        ("age", "height"),
        True,
        "ward-7",
    )
    assert (options.ledger, options.data_path) == (
        folder / "ledger/ledger.jsonl",
        f"{here}/rows.csv",
    )
    text = (folder / "node.toml").read_text()
    assert [
        line
        for line in text.splitlines()
        if line.startswith("# superlink") or "Address of the SuperLink" in line
    ]
    assert all(
        f"{field.alias} = " in text for field in NodeOptions.model_fields.values()
    )
    policy = ClientPolicy.from_toml(options.policy, base=DEPLOYED)
    policy.require_complete()
    assert (
        policy.max_epsilon_total,
        policy.max_epsilon_per_run,
        policy.min_cohort,
    ) == (20.0, 4.0, 3)
    assert (policy.allowed_trust, policy.allowed_units) == (
        ("oblivious", "distributed"),
        ("record",),
    )
    assert policy.require_secure_noise
    assert not policy.allow_anything


def test_its_policy_allows_the_pages_own_command(here: Path) -> None:
    init()
    file = here / "ward-7" / "node.toml"
    (command,) = re.findall(
        r'^flwr-dpkmeans run .*--run-config "(.*)"$', PAGE.read_text(), re.MULTILINE
    )
    file.write_text(f'run-config = "{command}"\n{file.read_text()}')
    assert (
        "as run-config says, would be allowed"
        in NodeCheck(file, NodeOptions.from_toml(file))._run()
    )


@pytest.mark.parametrize(
    ("plant", "more", "words"),
    [
        ("app", (), "but the invitation proposes"),
        ("", ("ward-10",), "names no party 'ward-10'"),
        ("taken", (), "in the invitation with another key or identity"),
        ("folder", (), "ward-7 exists and is left alone"),
        ("data", (), "rows.csv' does not exist"),
        ("", ("--columns", "age,weight"), "columns has 'weight'"),
        ("", ("--schema", "s.toml", "--columns", "age"), "--schema says which columns"),
        ("", ("--max-epsilon-total", "nan"), "max_epsilon_per_run is nan"),
        ("", ("--max-epsilon-total", "inf"), "does not limit max-epsilon-total"),
        ("read-only", (), "cannot be changed"),
        ("", ("--folder", "nowhere"), "--folder is nowhere, where no folder is"),
        ("", ("--max-epsilon-total", "-3"), "max_epsilon_per_run is -3.0"),
    ],
)  # fmt: skip
def test_what_cannot_be_made_leaves_nothing(
    here: Path, plant: str, more: tuple[str, ...], words: str,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    name = "ward-7"
    if plant == "app":
        (here / "app.fab").write_bytes(packed(app_files("0.2.0")))
    elif plant == "taken":
        join(here, "ward-7")
        (here / "ward-7").rename(here / "elsewhere")
    elif plant == "folder":
        (here / "ward-7").mkdir()
    elif plant == "data":
        (here / "rows.csv").unlink()
    elif plant == "read-only":
        make = os.open

        def refuse(path: Any, *how: Any, **more: Any) -> int:
            if str(path).endswith("/invitation.toml"):
                raise PermissionError(13, "no")
            return make(path, *how, **more)

        replace_call(monkeypatch, "open", refuse)
    elif more[0] == "ward-10":
        name, more = "ward-10", ()
    before = (
        {path: path.stat().st_mode for path in here.rglob("*")},
        (here / "invitation.toml").read_text(),
    )
    assert init(*more, name=name) == 1
    assert words in capsys.readouterr().err
    assert (
        {path: path.stat().st_mode for path in here.rglob("*")},
        (here / "invitation.toml").read_text(),
    ) == before


def test_a_database_a_schema_and_a_table_without_names(here: Path) -> None:
    pytest.importorskip("sqlalchemy")
    with sqlite3.connect(here / "rows.db") as database:
        database.execute("CREATE TABLE people (age REAL, name TEXT)")
        database.execute("INSERT INTO people VALUES (30.0, 'x')")
    assert init("--query", "SELECT * FROM people", data="sqlite:///rows.db") == 0
    options = NodeOptions.from_toml(here / "ward-7" / "node.toml")
    # Wherever the node is started; and the file is a secret as any other.
    assert (options.data_path, (here / "rows.db").stat().st_mode & 0o007) == (
        f"sqlite:///{here}/rows.db",
        0,
    )
    assert (options.columns, options.query, options.data_name) == (
        ("age",),
        "SELECT * FROM people",
        "ward-7",
    )
    (here / "s.toml").write_text(
        '[columns]\nage = { kind = "number", bounds = [0, 9] }\n'
    )
    assert init("--schema", "s.toml", name="ward-8") == 0
    options = NodeOptions.from_toml(here / "ward-8" / "node.toml")
    assert (options.columns, options.table_schema, len(options.schema_digest)) == (
        (),
        here / "s.toml",
        64,
    )
    (here / "bare.csv").write_text("1,2\n3,4\n")
    assert init(name="ward-9", data="bare.csv") == 0
    options = NodeOptions.from_toml(here / "ward-9" / "node.toml")
    assert (options.columns, options.header) == (("x0", "x1"), False)
    assert len(NodeCheck(here, options).table.points) == 2


def test_a_port_that_is_taken_is_left_to_whom_it_belongs(here: Path) -> None:
    """Parties and federations of one machine choose different ones."""
    invitation = Invitation.from_toml(here / "invitation.toml")
    federations = [
        invitation.model_copy(update={"certificate": text})
        for text in ("one", "another")
    ]
    ports = {
        node_setup.port_of(one, name) for one in federations for name in one.parties
    }
    assert len(ports) == 6
    assert max(ports) < 32768  # from there on systems take what is free
    free = node_setup.port_of(invitation, "ward-7")
    with socket.create_server(("127.0.0.1", free)):
        init()
        port = NodeOptions.from_toml(here / "ward-7" / "node.toml").port
        assert port > free
        assert (port - free) % 3 == 0


def test_parties_are_pinned_once_and_another_invitation_is_refused(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    init()
    others = [join(here, "ward-8")]
    assert main(["node", "pin", "ward-7"]) == 1
    assert "is still without ward-9" in capsys.readouterr().err
    others.append(join(here, "ward-9"))
    for _ in range(2):  # a second time changes nothing
        assert main(["node", "pin", "ward-7/node.toml"]) == 0
        said = capsys.readouterr().out
        assert [line.split() for line in said.splitlines()[1:3]] == [
            ["ward-8", others[0]],
            ["ward-9", others[1]],
        ]
        assert Invitation.from_toml(here / "invitation.toml").fingerprint in said
    policy = here / "ward-7" / "policy.toml"
    pinned = dict(ClientPolicy.from_toml(policy, base=DEPLOYED).pinned_peers or ())
    assert pinned == dict(Invitation.from_toml(here / "invitation.toml").pins)
    text = (here / "invitation.toml").read_text()
    other = Identity.generate().public_key.hex()
    (here / "invitation.toml").write_text(text.replace(others[0], other))
    before = policy.read_text()
    assert main(["node", "pin", "ward-7"]) == 1
    assert (
        f"ward-8 has the identity {other} by the invitation, but {others[0]} by"
        in capsys.readouterr().err
    )
    assert policy.read_text() == before


@pytest.mark.parametrize("what", ["superlink", "certificate", "ward-7"])
def test_nobody_is_pinned_by_an_invitation_that_was_another_one_at_first(
    what: str, here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All read the same fingerprint, but this one has another SuperLink."""
    init()
    join(here, "ward-8"), join(here, "ward-9")
    (made := tmp_path / "other").mkdir()
    invitation = Invitation.from_toml(here / "invitation.toml")
    write_certificates(made, ["127.0.0.1"], 30)
    own = invitation.parties["ward-7"].model_copy(
        update={"identity": Identity.generate().public_key.hex()}
    )
    changed = {
        "superlink": {"superlink": "127.0.0.1:8001"},
        "certificate": {"certificate": (made / "ca.crt").read_text()},
        "ward-7": {"parties": {**invitation.parties, "ward-7": own}},
    }
    invitation.model_copy(update=changed[what]).save(here / "invitation.toml")
    before = (here / "ward-7" / "policy.toml").read_text()
    assert main(["node", "pin", "ward-7"]) == 1
    assert re.search(
        "not those of .*two versions|ward-7 has the identity", capsys.readouterr().err
    )
    assert (here / "ward-7" / "policy.toml").read_text() == before


def test_rows_of_somebody_else_are_left_as_they_are(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chmod = os.chmod

    def refuse(path: Any, *how: Any, **more: Any) -> None:
        if Path(path).name == "rows.csv":
            raise PermissionError(1, "Operation not permitted")
        chmod(path, *how, **more)

    replace_call(monkeypatch, "chmod", refuse)
    assert init() == 0


def test_an_invitation_behind_a_link_is_written_where_it_is(here: Path) -> None:
    (here / "share").mkdir()
    (here / "invitation.toml").rename(here / "share" / "invitation.toml")
    (here / "invitation.toml").symlink_to("share/invitation.toml")
    init()
    assert (here / "invitation.toml").is_symlink()
    assert (
        Invitation.from_toml(here / "share" / "invitation.toml").parties["ward-7"].key
    )


@pytest.mark.parametrize(
    "url", ["postgresql://me:secret@host/wards", "mssql://host/wards?PWD=secret"]
)
def test_a_password_is_on_no_command_line(
    here: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert init("--query", "SELECT 1", "--columns", "age", data=url) == 1
    said = capsys.readouterr().err
    assert "data-path holds a password, which `ps` shows to all users" in said
    assert "secret" not in said
    assert not (here / "ward-7").exists()


def test_start_waits_for_the_others_and_the_superlink_and_says_for_what(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the order in which they come; then it becomes Flower's program."""
    happens = [
        lambda: None,
        lambda: join(here, "ward-8"),
        lambda: join(here, "ward-9"),
        lambda: answers.append(Answer(False, 0.0, ())),
        lambda: answers.append(Answer(True, 0.0, ())),
    ]
    answers: list[Answer] = []

    def ask(options: NodeOptions) -> Answer:
        if not answers:
            raise UnansweredError(
                "superlink 127.0.0.1:8000 does not answer: have it started."
            )
        return answers[-1]

    def become(program: str, command: list[str], environment: dict[str, str]) -> None:
        raise KeyboardInterrupt

    replace_sleep(monkeypatch, lambda seconds: happens.pop(0)())
    replace_answer(monkeypatch, ask)
    monkeypatch.setattr(node_command, "check", lambda path, options, **_: [])
    replace_call(monkeypatch, "execve", become)
    with pytest.raises(KeyboardInterrupt):
        init("--start")
    lines = [
        line
        for line in capsys.readouterr().err.splitlines()
        if "waiting" in line or "compare" in line
    ]
    assert [line.partition(" in /")[0].partition(": ")[0] for line in lines] == [
        "waiting for ward-8, ward-9", "waiting for ward-9",
        "compare by telephone, on each party's machine the same",
        "waiting for superlink 127.0.0.1:8000 does not answer",
        "waiting for superlink 127.0.0.1:8000 to register the key"
        f" {here}/ward-7/key.pub",
    ]  # fmt: skip
    assert happens == []


@pytest.mark.parametrize(
    ("isolation", "apps", "missing"),
    [
        ("subprocess", False, "ward-8, ward-9"),
        ("process", True, "ward-8, ward-9"),
        ("process", False, "the SuperLink"),
    ],
)
def test_the_part_that_runs_apps_waits_for_the_other_parties(
    isolation: str, apps: bool, missing: str, here: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def ask(options: NodeOptions) -> Answer:
        raise UnansweredError("the SuperLink in /")

    init()
    replace_answer(monkeypatch, ask)
    made = NodeOptions.from_toml(here / "ward-7" / "node.toml").model_copy(
        update={"isolation": Isolation(isolation)}
    )
    assert (
        node_command.missing_for_start(made, apps=apps).partition(" in /")[0] == missing
    )
    # Without an invitation nobody can be pinned; the part that runs apps then starts,
    # as nothing else concerns it.
    alone = made.model_copy(update={"invitation": None})
    assert node_command.missing_for_start(alone, apps=apps).partition(" in /")[0] == (
        "" if apps else "the SuperLink"
    )
    with pytest.raises(ConfigurationError, match="names no invitation that is there"):
        node_setup.pin(alone)


def test_its_owner_sees_what_was_asked_given_and_refused(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    init()
    join(here, "ward-8"), join(here, "ward-9")
    main(["node", "pin", "ward-7"])
    folder = here / "ward-7"
    for run, epsilon in (("11", 1.25), ("12", 2.0)):
        charged = entry(f"{run}/5", 1, epsilon)
        FileLedger(folder / "ledger" / "ledger.jsonl").charge(charged)
    refused = "refused: the plan's epsilon is 9, but this client's is 4: lower it."
    said = {
        "time": "t2", "level": "WARNING", "logger": "x", "run": "13",
        "message": refused,
    }  # fmt: skip
    lines = [
        (
            "t1 INFO run 13 node ward-7: asked for: fastlloyd under trust central, 1"
            " rounds"
        ),
        json.dumps(said),
    ]
    lines += [
        "t3 INFO run 13 node ward-7 round 1 attempt 0: asked for: lloyd-1 (round 1"
        " of 1)",
        "t3 WARNING run 13 node ward-7: the server has stopped this run, and it has"
        " cost nothing here; it says: why", "no line of ours",
        '{"time": "t4", "run": "13", "mess', '{"time": "t5", "run": "13"}',
    ]  # fmt: skip
    (folder / "results" / "log").write_text("\n".join(lines) + "\n")
    (folder / "home" / "alerts.log").write_text(
        "t ALERT app refused: SHA-256 ab, run 14\n"
    )
    capsys.readouterr()
    assert main(["node", "status", "ward-7", "--json"]) == 0
    seen = json.loads(capsys.readouterr().out)
    # Two Gaussian runs are one whose squared parameters are added.
    both = math.hypot(gaussian_cost(1.25).mu, gaussian_cost(2.0).mu)
    (amount,) = seen["epsilon"]
    assert (amount["data set"], amount["unit"]) == ("ward-7", "record")
    assert amount["spent"] == pytest.approx(gaussian_epsilon(both, amount["delta"]))
    whole = gaussian_cost(20.0, 0.99 * amount["delta"]).mu
    rest = gaussian_epsilon(math.sqrt(whole**2 - both**2), 0.99 * amount["delta"])
    assert amount["left"] == pytest.approx(rest)
    assert [(run["run"], run["epsilon"]) for run in seen["given"]] == [
        ("11/5", 1.25),
        ("12/5", 2.0),
    ]
    asked = [(one["run"], one["message"][:8]) for one in seen["asked"]]
    assert asked == [("13", "asked fo"), ("13", "refused:"), ("13", "the serv")]
    assert sorted(seen["pinned"]) == list(PARTIES)
    assert main(["node", "status", "ward-7/node.toml"]) == 0
    text = capsys.readouterr().out
    for words in (
        f"{amount['spent']:.4g} at delta {amount['delta']:.3g} spent by all runs",
        f"{amount['left']:.4g} left for one more",
        "  11  epsilon 1.25",
        refused,
        "ALERT app refused",
        "ward-8",
    ):
        assert words in text
    by_client = entry("13/5", 1, 1.0, unit="client")
    FileLedger(folder / "ledger" / "ledger.jsonl").charge(by_client)
    assert main(["node", "status", "ward-7"]) == 0
    # Also if the policy allows records only by now.
    assert "per client: epsilon 0." in capsys.readouterr().out
    (folder / "policy.toml").write_text("allow-anything = true\n")
    assert main(["node", "status", "ward-7"]) == 0
    assert re.search(
        "per record: epsilon .* spent by all runs, inf left", capsys.readouterr().out
    )
    assert main(["node", "status", "ward-7", "--json"]) == 0
    told = json.loads(
        capsys.readouterr().out, parse_constant=pytest.fail
    )  # JSON knows no Infinity
    assert [one["left"] for one in told["epsilon"]] == ["inf"] * 3
    without = entry(
        "14/5", 1, math.inf, delta=0.0, unit="client", mu=math.inf, own_delta=0.0
    )
    FileLedger(folder / "ledger" / "ledger.jsonl").charge(without)
    assert main(["ledger", "show", "ward-7/ledger/ledger.jsonl", "--json"]) == 0
    assert (
        json.loads(capsys.readouterr().out, parse_constant=pytest.fail)[-1]["epsilon"]
        == "inf"
    )
    assert main(["node", "status", "ward-7"]) == 0
    assert re.search(
        "per client: epsilon inf .*spent by all runs, inf left",
        capsys.readouterr().out,
    )
    (folder / "ledger" / "ledger.jsonl").write_text("damaged\n")
    assert main(["node", "status", "ward-7"]) == 1
    assert "is damaged at line 1" in capsys.readouterr().out
    assert os.path.exists(folder)


@pytest.mark.parametrize(
    ("gone", "says"),
    [
        ("ledger.jsonl", "has 0 entries, but had 1 "),
        ("", "does not exist: correct its path."),
    ],
)
def test_its_owner_sees_that_a_ledger_is_gone(
    here: Path, capsys: pytest.CaptureFixture[str], gone: str, says: str
) -> None:
    init()
    capsys.readouterr()
    place = here / "ward-7" / "ledger"
    assert main(["node", "status", "ward-7"]) == 0
    FileLedger(place / "ledger.jsonl").charge(entry("11/5", 1, 1.0))
    (place / gone).rename(here / "away")
    capsys.readouterr()
    assert main(["node", "status", "ward-7"]) == 1
    told = capsys.readouterr().out
    assert says in told.splitlines()[0]
    assert "by the lines that are there, and nobody knows what is left." in told
    assert main(["node", "status", "ward-7", "--json"]) == 1
    assert {one["left"] for one in json.loads(capsys.readouterr().out)["epsilon"]} == {
        None
    }


def test_a_schema_is_tried_on_the_own_table_before_any_run(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = ['age = { kind = "number", bounds = [0, 100] }']
    columns += ['"height [cm]" = { kind = "number", bounds = [100, 220] }']
    columns += ['ward = { kind = "category", values = ["North", "South"] }']
    columns += ['none = { kind = "date", bounds = ["2020-01-01", "2021-01-01"] }']
    (here / "s.toml").write_text("\n".join(["[columns]", *columns, ""]))
    rows = [
        "ward,age,height [cm],none", "North,30,1.70,", "Nroth,40,180,x",
        "South,>89,166,", ",50,190,", "West,,150,",
    ]  # fmt: skip
    (here / "t.csv").write_text("\n".join(rows) + "\n")
    assert main(["schema", "check", "s.toml", "t.csv"]) == 1
    said = capsys.readouterr()
    cells = [
        [cell.strip() for cell in line.split("│")[1:-1]]
        for line in said.out.splitlines()
        if "│" in line
    ]
    assert cells == [
        ["age", "number", "3", "1 (20.0%)", "1 (20.0%)", "0", "0 to 100", "30", "40",
         "50"],
        ["height [cm]", "number", "5", "0", "0", "1 (20.0%)", "100 to 220", "1.7",
         "166", "190"],
        ["ward", "category", "2", "1 (20.0%)", "2 (40.0%)", "0", "", "", "", ""],
        ["none", "date", "0", "4 (80.0%)", "1 (20.0%)", "0", "2020-01-01 to 2021-01-01",
         "", "", ""],
    ]  # fmt: skip
    for words in (
        "'age' may not hold '>89'",
        "'Nroth' (did you mean 'North'?)",
        "'West' (",
        "not one cell of 'none'",
    ):
        assert words in said.out
    assert "another unit" not in said.out
    (here / "t.csv").write_text(
        "\n".join([rows[0], "North,30,1.7,2020-02-02", "South,40,180,2020-03-03"])
        + "\n"
    )
    assert main(["schema", "check", "s.toml", "t.csv"]) == 1
    assert (
        "over 25% of 'height [cm]' lie outside (100.0, 220.0): another unit?"
        in capsys.readouterr().out
    )
    (here / "t.csv").write_text(
        "age;height [cm];ward;none\n30,5;170;North;2020-02-02\n"
    )
    assert main(["schema", "check", "s.toml", "t.csv"]) == 1
    assert (
        "not one cell of 'age' can be read: state decimal = ','"
        in capsys.readouterr().out
    )
    assert main(["schema", "draft", "t.csv"]) == 0
    assert '"age" = { kind = "number", bounds = [] }' in (here / "t.toml").read_text()
    (here / "t.csv").write_text("\n".join([rows[0], "North,30,170,2020-02-02"]) + "\n")
    assert main(["schema", "check", "s.toml", "t.csv"]) == 0


def test_a_table_without_numbers_is_no_node(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "commas.csv").write_text("a;b\n1,5;2,5\n3,5;4,5\n")
    assert init(data="commas.csv") == 1
    told = capsys.readouterr()
    assert "no column of the table" in told.err
    assert "holds numbers, as where they are written 3,5 and not 3.5" in told.err
    assert "clustered are" not in told.out
    assert not (here / "ward-7").exists()
