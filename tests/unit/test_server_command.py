"""`flwr-dpkmeans server` and `results`.

What a folder gets, what is looked at, who is let in and who is listed.
"""

from __future__ import annotations

import datetime
import json
import multiprocessing
import os
import re
import shutil
import socket
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from flwr.cli.build import build_fab_from_files
from flwr.proto.node_pb2 import NodeInfo
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from support.apps import app_files, packed, write_app
from support.flower_command import FlowerCommand
from support.machine import replace_call, replace_room, replace_start, replace_time
from support.node_files import write_node
from support.superlink_register import Register, operated
from support.superlink_stand_in import standing_in

from flwr_dpkmeans.__main__ import main
from flwr_dpkmeans.deploy import findings, run_command, server_command
from flwr_dpkmeans.deploy.certificates import write_certificates, write_node_key
from flwr_dpkmeans.deploy.finding import NoteError, Verdict
from flwr_dpkmeans.deploy.findings import app_hash, require_outside_apps
from flwr_dpkmeans.deploy.guard.approved_fab import digest_of
from flwr_dpkmeans.deploy.invitation import Invitation
from flwr_dpkmeans.deploy.server_options import ServerOptions
from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.flower._private import parsed_settings
from flwr_dpkmeans.flower.progress import recorded_progress
from flwr_dpkmeans.flower.round_trip import RoundTrip
from flwr_dpkmeans.flower.run_progress import PROGRESS_FILE
from flwr_dpkmeans.privacy.provenance import Provenance
from flwr_dpkmeans.privacy.report import PrivacyReport
from simulations.flower.ray_processes import is_supported, marked_processes

FAB = packed(app_files())
NAMES = ("ward-7", "ward-8", "ward-9")
ITEMS = [
    "file", "flower", "tls", "state", "app", "parties", "run", "port", "address",
    "clock", "user",
]  # fmt: skip


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def office(tmp_path: Path) -> Path:
    (tmp_path / "app.fab").write_bytes(FAB)
    words = [
        "init",
        str(tmp_path / "office"),
        "--parties",
        *NAMES,
        "--app",
        str(tmp_path / "app.fab"),
    ]
    assert main(["server", *words, "--port", str(free_port())]) == 0
    return tmp_path / "office"


def join(office: Path, name: str) -> bytes:
    """What `node init` does; returns the key as Flower has it."""
    key = write_node_key(
        office.parent / f"{name}-{len(list(office.parent.iterdir()))}"
    ).with_suffix(".pub")
    Invitation.add(
        office / "invitation.toml", name, key.read_text(), key.read_bytes().hex()[-64:]
    )
    public: Any = load_ssh_public_key(key.read_bytes())
    return public_key_to_bytes(public)


def found(office: Path, item: str, *, starting: bool = False) -> tuple[Verdict, str]:
    findings = server_command.check(
        office / "server.toml", ServerOptions.load(office), starting=starting
    )
    assert [one.item for one in findings] == ITEMS
    return next((one.verdict, one.says) for one in findings if one.item == item)


def test_a_new_folder_is_complete_and_its_owners_alone(
    office: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    before = {path: path.stat().st_mtime_ns for path in office.rglob("*")}
    assert main(["server", "check", str(office)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1].rstrip(":") for line in lines] == ITEMS
    noted = {
        line.split()[1]: line.split()[0]
        for line in lines[:-2]
        if line.split()[0] != "ok"
    }
    assert noted == {"parties:": "note"}  # clock and user are this machine's
    assert "0 of 3 have written their keys; not yet: ward-7, ward-8, ward-9" in lines[5]
    assert {path: path.stat().st_mtime_ns for path in office.rglob("*")} == before
    assert (
        office / ".gitignore"
    ).read_text() == "*\n"  # it may lie in a copy of the project
    secrets = [
        path
        for path in office.rglob("*")
        if path.is_file() and "PRIVATE" in path.read_text()
    ]
    assert secrets == [office / "certificates" / "server.key"]
    for path, mode in (
        (office, 0o700),
        (secrets[0], 0o600),
        (office / "superlink", 0o700),
    ):
        assert stat.S_IMODE(path.stat().st_mode) == mode
    invitation = Invitation.from_toml(office / "invitation.toml")
    assert (invitation.federation, invitation.missing, invitation.app) == (
        "office",
        NAMES,
        digest_of(FAB),
    )
    assert invitation.certificate == (office / "certificates" / "ca.crt").read_text()
    # Every key of the file is there with what it is for, and all of them are read back.
    text = (office / "server.toml").read_text().splitlines()
    keys = [line.removeprefix("# ").split(" = ")[0] for line in text if " = " in line]
    fields = [name.replace("_", "-") for name in ServerOptions.model_fields]
    assert keys == fields


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (["--parties", "a"], "at least 2"),
        (["--parties", "a", "b", "a"], "one is there twice"),
        (["--parties", "a", "../b"], r"parties has '../b': a name has letters, digits"),
        (["--address", "nowhere"], "superlink is 'nowhere'"),
        (["--port", "70000"], "port is 70000"),
        (["--federation", "two words"], "federation is 'two words'"),
        (["--app", "none.fab"], "none.fab"),
        (["--app", "no-app"], "no-app is no Flower app"),
    ],
)
def test_a_folder_is_made_whole_or_not_at_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    changes: list[str], sentence: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.fab").write_bytes(FAB)
    (tmp_path / "no-app").mkdir()
    assert (
        main(
            [
                "server", "init", "office", "--parties", "a", "b", "--app", "app.fab",
                *changes,
            ]
        )
        == 1
    )  # fmt: skip
    assert re.search(sentence, capsys.readouterr().err)
    assert not (tmp_path / "office").exists()


def test_no_folder_is_made_inside_an_app_that_packs_all_of_its_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A ledger, a policy and pages went to all nodes with the app."""
    project = tmp_path / "pyproject.toml"
    project.write_text('[tool.flwr.app]\npublisher = "me"\n')
    place = tmp_path / "deep" / "office"
    with pytest.raises(
        ConfigurationError,
        match=rf"{place} lies in the Flower app {tmp_path}, which packs all",
    ):
        require_outside_apps(place)
    excluded = '[tool.flwr.app]\nfab-exclude = ["deep/**"]\n'
    for text in (
        '[tool.flwr.app]\nfab-include = ["a.py"]\n',
        excluded,
        "[project]\n",
        "",
        "[{",
        "[tool]\nflwr = 1\n",
    ):
        project.write_text(text)
        require_outside_apps(place)
    project.write_text('[tool.flwr.app]\npublisher = "me"\n')
    assert main(["server", "init", str(place), "--parties", "a", "b"]) == 1
    assert (
        "which packs all of its files, keys and ledgers too: make it elsewhere"
        in capsys.readouterr().err
    )
    assert not place.parent.exists()


def test_a_second_federation_gets_a_port_of_its_own() -> None:
    """Also one that is made before the first one listens."""
    folders = [Path("/srv") / name for name in ("one", "two", "three")]
    assert len({server_command.free_port(folder) for folder in folders}) == 3
    with socket.create_server(("127.0.0.1", 0)) as first:
        taken = int(first.getsockname()[1])
        ports = range(taken, taken + 3)
        chosen = {server_command.free_port(folder, ports) for folder in folders}
        assert chosen <= {*ports[1:]}


def test_of_two_who_make_a_folder_at_once_one_has_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody takes it over, removes it, or has it open to others for a moment."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.fab").write_bytes(FAB)

    make = os.mkdir

    def meanwhile(path: Any, *how: Any, **more: Any) -> None:
        monkeypatch.undo()
        (tmp_path / "office" / "certificates").mkdir(parents=True)
        make(path, *how, **more)

    replace_call(monkeypatch, "mkdir", meanwhile)
    assert (
        main(["server", "init", "office", "--parties", "a", "b", "--app", "app.fab"])
        == 1
    )
    assert "is there already and left alone" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "office").rglob("*")] == ["certificates"]


def test_a_path_that_cannot_stand_in_flowers_files_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.fab").write_bytes(FAB)
    for name in ("o'brien", "two\nlines", "not\udcffUTF-8"):
        words = [
            name, "--federation", "office", "--parties", "a", "b", "--app", "app.fab",
        ]  # fmt: skip
        assert main(["server", "init", *words]) == 1
        assert (
            "has a ' or what cannot be printed: choose another folder"
            in capsys.readouterr().err
        )
        assert [path.name for path in tmp_path.iterdir()] == ["app.fab"]


class Sleeping(ServerOptions):
    """Programs that do nothing stand for Flower's."""

    @property
    def command(self) -> list[str]:
        return [str(shutil.which("sleep")), "600"]

    @property
    def apps_command(self) -> list[str]:
        return [str(shutil.which("sleep")), "601"]


class Hindered(Sleeping):
    """Nobody can be let in, each time for another reason."""

    def client(self) -> closing[Any]:
        reasons = [
            BrokenPipeError(),
            OSError(28, "No space left on device"),
            RuntimeError("a mistake"),
        ]
        with (self.state / "looks").open("a+") as looks:
            looks.seek(0)
            n_looks = len(looks.readlines())
            print(*marked_processes(self.home), file=looks, flush=True)
        raise reasons[n_looks]


class Appless(Sleeping):
    """What starts apps is not there."""

    @property
    def apps_command(self) -> list[str]:
        return ["/no/such/program"]


def serving(options: ServerOptions) -> tuple[BaseProcess, Path]:
    """Start a command in a process of its own, with its programs at home."""
    command = multiprocessing.get_context("fork").Process(
        target=server_command.serve_superlink, args=(options,)
    )
    command.start()
    return command, options.home


@pytest.mark.skipif(not is_supported(), reason="Linux lists processes by their marks")
def test_no_superlink_outlives_its_command(office: Path) -> None:
    """A full disk, or a pipe that nobody reads, takes no line and ends nothing."""
    command, home = serving(Hindered.load(office))
    command.join(180.0)
    assert command.exitcode == 1
    looks = (office / "superlink" / "looks").read_text().splitlines()
    assert [len(look.split()) for look in looks] == [2, 2, 2]
    assert len({*looks}) == 1
    assert not marked_processes(home)


@pytest.mark.skipif(not is_supported(), reason="Linux lists processes by their marks")
def test_no_superlink_runs_without_what_starts_apps(
    office: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Which the guard writes before anything is started."""
    options = ServerOptions.load(office)
    command, home = serving(Appless.load(office))
    command.join(60.0)
    assert command.exitcode == 1
    assert (
        "FileNotFoundError: [Errno 2] No such file or directory: '/no/such/program'"
        in (capfd.readouterr().err)
    )
    assert not marked_processes(home)
    programs = home / "guarded-programs"
    assert Path(options.apps_command[0]) == programs / "flower-superexec"
    for name, allowed in (
        ("flwr-serverapp", True),
        ("flwr-simulation", False),
    ):
        assert (digest_of(FAB) in (programs / name).read_text()) is allowed
    rewrite(office / "invitation.toml", digest_of(FAB), "ab" * 32)
    with pytest.raises(
        ConfigurationError,
        match=f"another app than the invitation's {'ab' * 32}: end it and start it",
    ):
        run_command.require_started(options)


@pytest.mark.skipif(
    not is_supported(), reason="Linux tells a process of its parent's end"
)
def test_no_superlink_outlives_a_command_that_is_killed(office: Path) -> None:
    """By Linux, since nothing else can do it."""
    parent, home = serving(Sleeping.load(office))
    wait_for(lambda: len(marked_processes(home)) == 2)
    (apps,) = (
        process
        for process in marked_processes(home)
        if b"601" in Path(f"/proc/{process}/cmdline").read_bytes()
    )
    variables = Path(f"/proc/{apps}/environ").read_bytes().split(b"\0")
    assert b"PATH=%s" % bytes(home / "guarded-programs") in variables
    for process in marked_processes(home):
        assert re.search(
            r"^Max core file size +0 +0 ",
            Path(f"/proc/{process}/limits").read_text(),
            re.MULTILINE,
        )
    parent.kill()
    wait_for(lambda: not marked_processes(home))


def wait_for(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 180.0
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_flowers_connection_file_is_always_whole(
    office: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two runs that are asked for at once write it both, and read it."""
    options, before = (
        ServerOptions.load(office),
        (office / "superlink" / "home" / "config.toml").read_text(),
    )
    (options.home / "config.toml").write_text("old")
    swap = os.replace

    def swapped(new: Path, path: Path) -> None:
        assert (new.read_text(), path.read_text()) == (before, "old")
        swap(new, path)

    replace_call(monkeypatch, "replace", swapped)
    options.write_connection()
    assert (options.home / "config.toml").read_text() == before
    assert [path.name for path in options.home.iterdir()] == ["config.toml"]


def test_nothing_is_overwritten(
    office: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.read_bytes() for path in office.rglob("*") if path.is_file()}
    app = str(office.parent / "app.fab")
    assert (
        main(["server", "init", str(office), "--parties", "a", "b", "--app", app]) == 1
    )
    assert "is there already and left alone" in capsys.readouterr().err
    assert {
        path: path.read_bytes() for path in office.rglob("*") if path.is_file()
    } == before


def test_the_certificate_holds_for_the_address_by_name_too(tmp_path: Path) -> None:
    (tmp_path / "app.fab").write_bytes(FAB)
    words = [
        "--app",
        str(tmp_path / "app.fab"),
        "--address",
        "superlink.example.org:443",
        "--port",
        str(free_port()),
    ]
    assert (
        main(
            ["server", "init", str(tmp_path / "office"), "--parties", "a", "b", *words]
        )
        == 0
    )
    verdict, says = found(tmp_path / "office", "tls")
    assert (verdict, "127.0.0.1 and superlink.example.org" in says) == (
        Verdict.OK,
        True,
    )
    # Without a resolver the name is not found; with one, it has no SuperLink.
    assert found(tmp_path / "office", "address")[0] is not Verdict.OK


def rewrite(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def no_program(*_: object, **__: object) -> None:
    pytest.fail("a program was started")


@pytest.mark.parametrize(
    ("item", "sentence"),
    [
        ("file", "chmod go-w"),
        ("tls", r"nodes would refuse .*server.pem for '10.1.2.3'"),
        ("tls another authority", "nodes would refuse .*server.pem"),
        ("tls another key",
         "correct the path, its rights or its content|KEY_VALUES_MISMATCH"),
        ("tls open key", "chmod o-rw"),
        ("tls expired", "certificate has expired"),
        ("state", "mode 700"),
        ("state database", "state.db cannot be used"),
        ("state disk", "has 10 MiB left"),
        ("app", "but the invitation proposes"),
        ("parties", "the key 'partys' is not known"),
        ("port", "cannot be had"),
        ("address", "nodes cannot find 'no.such.host.invalid'"),
        ("address of another server", "is not this server .*CERTIFICATE_VERIFY_FAILED"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_found_and_nothing_is_started(
    office: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    item: str, sentence: str,
) -> None:  # fmt: skip
    replace_start(monkeypatch, no_program)
    options, certificates, invitation = (
        ServerOptions.load(office),
        office / "certificates",
        office / "invitation.toml",
    )
    with socket.socket() as other, ExitStack() as stack:
        if item == "file":
            (office / "server.toml").chmod(0o620)
        elif item == "tls":
            rewrite(invitation, "127.0.0.1:", "10.1.2.3:")
        elif item == "tls open key":
            (certificates / "server.key").chmod(0o644)
            certificates.chmod(0o755)
        elif item.startswith("tls"):
            new = office / "new"
            new.mkdir()
            write_certificates(new, ["127.0.0.1"], 0 if item == "tls expired" else 9)
            moved = {
                "tls another key": ["server.key"],
                "tls another authority": ["server.key", "server.pem"],
            }
            for name in moved.get(item, ["server.key", "server.pem", "ca.crt"]):
                (new / name).replace(certificates / name)
            if item == "tls expired":
                Invitation.from_toml(invitation).model_copy(
                    update={"certificate": options.authority.read_text()}
                ).save(invitation)
        elif item == "state":
            options.state.chmod(0o755)
        elif item == "state database":
            (options.state / "state.db").write_text("no database" * 100)
        elif item == "state disk":
            replace_room(monkeypatch, lambda _: SimpleNamespace(free=10 << 20))
        elif item == "app":
            (office.parent / "app.fab").write_bytes(packed(app_files(mark="changed")))
        elif item == "parties":
            rewrite(invitation, "[parties.ward-7]", "[partys.ward-7]")
        elif item == "port":
            other.bind(("127.0.0.1", options.port))
        elif item == "address":
            rewrite(invitation, "127.0.0.1:", "no.such.host.invalid:")
        elif item == "address of another server":
            (new := office / "new").mkdir()
            write_certificates(new, ["127.0.0.1"], 9)
            there = stack.enter_context(
                standing_in(new / "server.pem", new / "server.key")
            )
            rewrite(invitation, f":{options.port}", f":{there.server_port}")
        verdict, says = found(office, item.split()[0])
        assert (verdict, bool(re.search(sentence, says))) == (Verdict.WRONG, True), says
        assert main(["server", "start", str(office)]) == 1
        assert f"wrong {item.split()[0]}" in capsys.readouterr().err


def test_a_certificate_that_ends_soon_is_a_note(
    office: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = time.time() + 340 * 86400
    replace_time(monkeypatch, lambda: later)
    verdict, says = found(office, "tls")
    assert (verdict, "so 24 days more: get a new one before" in says) == (
        Verdict.NOTE,
        True,
    )


@pytest.mark.parametrize(("life", "first_noted"), [(60, 20), (90, 30), (900, 30)])
def test_a_certificate_ends_soon_in_the_last_third_of_its_life_and_in_30_days(
    life: int, first_noted: int
) -> None:
    day, now = datetime.timedelta(days=1), datetime.datetime.now(datetime.UTC)
    findings.require_days(
        "it", now + (first_noted - life) * day, now + (first_noted + 0.5) * day
    )
    with pytest.raises(NoteError, match=f"so {first_noted - 1} days more"):
        findings.require_days(
            "it", now + (first_noted - life) * day, now + (first_noted - 0.5) * day
        )


def test_a_dry_run_prints_flowers_own_command_line(
    office: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["server", "start", str(office), "--dry-run"]) == 0
    words = capsys.readouterr().out.split()
    assert words[0].endswith("flower-superlink")
    assert words[words.index("--host") + 1] == "127.0.0.1"
    assert "--enable-supernode-auth" in words
    assert words[words.index("--ssl-keyfile") + 1] == str(
        office / "certificates" / "server.key"
    )


def test_a_key_in_server_toml_that_is_not_known_is_told(office: Path) -> None:
    rewrite(office / "server.toml", "port =", "prot =")
    with pytest.raises(ConfigurationError, match="the key 'prot' is not known"):
        ServerOptions.load(office)
    with pytest.raises(ConfigurationError, match=r"none/server.toml cannot be read"):
        ServerOptions.load(office / "none")
    with pytest.raises(
        FileNotFoundError, match=r"none.crt"
    ):  # and not only that some file is not there
        server_command.is_healthy(1, office / "none.crt")


@pytest.fixture
def register(office: Path) -> Iterator[Register]:
    """The office's SuperLink, as its operator sees it."""
    with operated(ServerOptions.load(office)) as register:
        yield register


@pytest.fixture
def flower(office: Path, monkeypatch: pytest.MonkeyPatch) -> FlowerCommand:
    """Flower's command, where the operator types."""
    monkeypatch.chdir(office.parent)
    return FlowerCommand(office.parent)


def test_parties_are_let_in_once_each_under_their_names(
    office: Path, register: Register, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    options = ServerOptions.load(office)
    register.is_up = False
    assert server_command.let_in_if_changed(options, 0) == 0
    register.is_up = True
    seen = server_command.let_in_if_changed(options, 0)
    key = join(office, "ward-8")
    again = server_command.let_in_if_changed(options, seen)
    assert again != seen
    assert server_command.let_in_if_changed(options, again) == again
    assert [(node.name, node.public_key) for node in register.nodes_info] == [
        ("ward-8", key)
    ]
    # Whom the operator has taken off does not come back by the invitation.
    register.nodes_info[0].status = "unregistered"
    join(office, "ward-7")
    server_command.let_in_if_changed(options, again)
    assert [node.name for node in register.nodes_info] == ["ward-8", "ward-7"]
    assert capsys.readouterr().out.splitlines() == [
        "ward-8 is registered",
        "ward-7 is registered",
    ]
    # Nor by another key, nor does anybody else by this name.
    text = (office / "invitation.toml").read_text()
    other = write_node_key(office / "other").with_name("other.pub").read_text().strip()
    (office / "invitation.toml").write_text(
        re.sub(r"(?s)(\[parties.ward-8\]\nkey = ).*?\n", rf'\1"{other}"\n', text)
    )
    server_command.let_in_if_changed(options, again)
    assert [node.name for node in register.nodes_info] == ["ward-8", "ward-7"]
    assert (
        "ward-8 has another key than it was registered with" in capsys.readouterr().err
    )
    (office / "invitation.toml").write_text("nonsense")
    broken = server_command.let_in_if_changed(options, again)
    (office / "invitation.toml").unlink()
    assert (
        server_command.let_in_if_changed(
            options, server_command.let_in_if_changed(options, broken)
        )
        == -1
    )
    told = capsys.readouterr().err.splitlines()
    assert ["is not valid TOML" in told[0], "cannot be read" in told[1], len(told)] == [
        True,
        True,
        2,
    ]


def test_a_superlink_that_is_killed_while_it_is_asked_does_not_answer(
    office: Path, register: Register, capsys: pytest.CaptureFixture[str]
) -> None:
    register.is_up = False  # Yet it has just said that it is healthy.
    assert main(["server", "status", str(office)]) == 1
    assert "does not answer" in capsys.readouterr().out


def test_status_calls_parties_by_their_names_and_tells_why_runs_failed(
    office: Path,
    register: Register,
    capsys: pytest.CaptureFixture[str],
    flower: FlowerCommand,
) -> None:
    failed = {
        "run-id": "12",
        "status": "finished:failed",
        "pending-at": "2026-11-23 08:00:02Z",
        "running-at": "N/A",
    }
    failed |= {
        "finished-at": "2026-11-23 08:01:00Z",
        "status-details": "ServerApp failed with exception: CohortError: few",
    }
    running = {
        "run-id": "11",
        "status": "running",
        "pending-at": "2026-11-23 08:00:01Z",
        "status-details": "N/A",
    }
    running |= {"finished-at": "N/A", "running-at": "2026-11-23 08:00:03Z"}
    flower.list([failed, running])
    join(office, "ward-7")
    join(office, "ward-8")
    server_command.let_in(ServerOptions.load(office))
    register.nodes_info[0].status = "online"
    register.nodes_info[0].last_activated_at = "2026-11-23T08:00:09.5+00:00"
    register.nodes_info.append(
        NodeInfo(node_id=77, public_key=b"stranger", status="online")
    )
    register.nodes_info.append(
        NodeInfo(name="x\x1b[2J", node_id=78, public_key=b"another", status="online")
    )
    capsys.readouterr()
    assert main(["server", "status", str(office)]) == 1
    assert [line.split() for line in capsys.readouterr().out.splitlines()[1:]] == [
        ["ward-7", "online", "since", "2026-11-23T08:00:09"],
        ["ward-8", "registered", "since", "2026-11-23T08:00:00"],
        ["ward-9", "has", "not", "written", "its", "keys"],
        ["77", "(key", "not", "invited)", "online"],
        ["x?[2J", "(key", "not", "invited)", "online"],
        ["11", "2026-11-23", "08:00:03Z", "running"],
        ["12", "2026-11-23", "08:01:00Z", "finished:failed", "CohortError:", "few"],
    ]
    assert main(["server", "status", str(office), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["parties"][0] == {
        "name": "ward-7",
        "node": str(10**18),
        "status": "online",
        "since": "2026-11-23T08:00:09.5+00:00",
        "answered": "",
        "silent": 0,
    }
    assert told["runs"][1]["why"] == "CohortError: few"
    register.is_healthy = False
    assert main(["server", "status", str(office)]) == 1
    assert capsys.readouterr().out.splitlines()[1].split() == ["ward-7", "not", "known"]


def test_metrics_say_who_is_online_and_start_no_program(
    office: Path, register: Register
) -> None:
    """Flower's list of runs is a program, and Prometheus asks every few seconds."""
    join(office, "ward-7")
    join(office, "ward-8")
    options = ServerOptions.load(office)
    server_command.let_in(options)
    register.nodes_info[0].status = "online"

    def told() -> dict[tuple[str, ...], float]:
        return {
            (family.name, *sample.labels.values()): sample.value
            for family in server_command.machine_metrics(options)
            for sample in family.samples
        }

    seen = told()
    assert seen["dpkmeans_superlink_up",] == 1.0
    online = {key[1]: value for key, value in seen.items() if "online" in key[0]}
    assert online == {"ward-7": 1.0, "ward-8": 0.0, "ward-9": 0.0}
    assert seen["dpkmeans_certificate_days", "server.pem"] > 300.0
    register.is_up = False
    assert told()["dpkmeans_superlink_up",] == 0.0


def test_status_says_who_is_online_and_silent(
    office: Path,
    register: Register,
    capsys: pytest.CaptureFixture[str],
    flower: FlowerCommand,
) -> None:
    """A node that is dead inside keeps its connection, and every run fails with it."""
    flower.list([])
    join(office, "ward-7")
    join(office, "ward-8")
    server_command.let_in(ServerOptions.load(office))
    numbers = [str(node.node_id) for node in register.nodes_info]
    trip = RoundTrip(
        stage="keys", round=None, attempt=None, seconds=1.0, n_asked=2, n_answered=1,
        sent=1, received=1,
    )  # fmt: skip
    results = ServerOptions.load(office).results
    for number, times in enumerate(
        ({"ward-7": "2026-11-23T09:00:00", numbers[1]: "2026-11-23T09:00:01"}, {}, {})
    ):
        # In the last one nobody has been asked yet.
        asked = () if number == 2 else (trip,)
        at = times or {"ward-7": f"2026-11-23T1{number}:00:00"}
        with recorded_progress(number, results / f"run-{number}") as progress:
            progress.tell(nodes=("ward-7", numbers[1]), trips=asked, answered_at=at)
        os.utime(results / f"run-{number}" / PROGRESS_FILE, (number, number))
    capsys.readouterr()
    assert main(["server", "status", str(office)]) == 1
    first, second, _ = capsys.readouterr().out.splitlines()[1:]
    assert "answered last at 2026-11-23T12:00:00" in first
    assert "ALERT" not in first
    assert (
        "answered last at 2026-11-23T09:00:01; ALERT: silent in its last 1 run(s)"
        in second
    )


@pytest.fixture
def folder(office: Path) -> Path:
    """An app with this package's server and configuration, which the office runs."""
    folder = office.parent / "project"
    folder.mkdir()
    for name, text in app_files().items():
        (folder / name).write_text(text.replace("counted:server", run_command._OWN_APP))
    config = (
        run_command.Path(run_command.__file__).parents[2] / "pyproject.toml"
    ).read_text()
    with (folder / "pyproject.toml").open("a") as file:
        file.write(
            "\n"
            + config[config.index("[tool.flwr.app.config]") :].partition(
                "\n[tool.ruff"
            )[0]
        )
    rewrite(office / "invitation.toml", digest_of(FAB), app_hash(folder))
    rewrite(office / "server.toml", str(office.parent / "app.fab"), str(folder))
    return folder


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ("cohort.dropout='recover'", "but dropout='recover' needs at least 6: choose"),
        ("cohort.max-silent=2", "with 3 clients at most 1 may be silent or collude"),
        ("num-clients=4 algorithm='fastlloyd'", "ward-8, ward-9. and 0 registered"),
        ("algorithm='feddp_kmeans'", "starts from the server's own points"),
        ("log-format='xml'", "which is not known: choose one of 'json', 'text'"),
        ("output='{folder}/counted.py/results'", "cannot write into .*counted.py"),
        ("server-data='none.csv' algorithm='feddp_kmeans'", "none.csv' does not exist"),
        ("evaluation='exact'", "exists in simulation only"),
    ],
)  # fmt: skip
def test_what_a_run_would_end_with_is_said_before_it_is_asked_for(
    office: Path, folder: Path, register: Register, flower: FlowerCommand,
    capsys: pytest.CaptureFixture[str], changed: str, sentence: str,
) -> None:  # fmt: skip
    config = f"n-clusters=3 bounds='0,1' {changed.format(folder=folder)}"
    assert main(["run", str(folder), "--server", str(office), "-c", config]) == 1
    assert re.search(sentence, capsys.readouterr().err)
    assert flower.started == []


def test_paths_of_a_run_are_those_of_who_types_them(
    office: Path, folder: Path, register: Register, flower: FlowerCommand
) -> None:
    """The ServerApp has another working directory."""
    Path("box.csv").write_text("feature,lower,upper\nage,0,100\nweight,0,100\n")
    Path("points.csv").write_text("age,weight\n" + "1,2\n3,4\n" * 20)
    given = ["run", str(folder), "--server", str(office), "-c"]
    config = (
        "bounds='box.csv' server-data='points.csv' algorithm='server_lloyd'"
        " n-clusters=2 output='here'"
    )
    assert (
        main([*given, config])
        == main([*given, "bounds='0,10' server-data='iris' algorithm='server_lloyd'"])
        == 0
    )
    (_, first), (_, second) = flower.started
    for name in ("box.csv", "points.csv", "here"):
        assert f"='{office.parent}/{name}'" in first[2]
    assert "bounds='0,10' server-data='iris'" in second[2]


def test_a_run_without_one_of_the_parties_waits_for_the_others(
    office: Path, folder: Path, register: Register, flower: FlowerCommand
) -> None:
    """By an option of the command, which the app hears as its key."""
    config = "bounds='0,1' cohort.min-clients=2"
    words = ["run", str(folder), "--server", str(office), "-c", config]
    assert main([*words, "--without", NAMES[1]]) == 0
    ((_, words_of_flower),) = flower.started
    settings = parsed_settings([words_of_flower[2]])
    assert (settings["without"], settings["num-clients"]) == (NAMES[1], 2)
    assert "--without" not in words_of_flower
    assert main([*words[:-1], f"{config} parties='{NAMES[0]}, {NAMES[2]}'"]) == 0
    _, words_of_flower = flower.started[-1]
    assert parsed_settings([words_of_flower[2]])["num-clients"] == 2


def test_a_misspelt_party_is_named_before_anything_starts(
    office: Path,
    folder: Path,
    register: Register,
    flower: FlowerCommand,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["run", str(folder), "--server", str(office), "-c", "bounds='0,1'"]
    assert main([*words, "--without", f"{NAMES[1]}x"]) == 1
    error = capsys.readouterr().err
    assert f"no party '{NAMES[1]}x' is invited: did you mean '{NAMES[1]}'?" in error
    assert flower.started == []


def test_the_check_plans_the_apps_own_configuration(office: Path, folder: Path) -> None:
    assert found(office, "run") == (
        Verdict.OK,
        "as the app is, 3 parties can run it at epsilon 2",
    )
    rewrite(folder / "pyproject.toml", "epsilon = 2.0", "epsilon = -1.0")
    verdict, says = found(office, "run")
    assert verdict is Verdict.NOTE
    assert says.startswith(
        "without a --run-config it would end at once: epsilon is -1.0, but it must be"
    )
    rewrite(folder / "pyproject.toml", "num-clients = ", "members = ")
    rewrite(folder / "pyproject.toml", "\nbounds = ", "\nlimits = ")
    assert (
        f"{folder} has no key bounds, num-clients, and Flower takes only keys that"
        in found(office, "run")[1]
    )


def test_a_superlink_that_does_not_run_gets_no_run(
    office: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(
            [
                "run",
                str(folder),
                "--server",
                str(office),
                "-c",
                "n-clusters=3 bounds='0,1'",
            ]
        )
        == 1
    )
    assert re.search(
        "^the SuperLink does not answer at 127.0.0.1:.*: start it by 'server",
        capsys.readouterr().err,
    )


def test_a_run_is_handed_what_the_server_knows_and_no_other_app(
    office: Path, folder: Path, register: Register, flower: FlowerCommand,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    join(office, "ward-7")
    join(office, "ward-9")
    app, given = str(folder), ["--server", str(office)]
    settings = office.parent / "more.toml"
    stated = (
        "algorithm = 'fastlloyd'\nbounds = '0,1'\nn-clusters = 4\nn-features ="
        " 2\nnum-clients = 2\n"
    )
    settings.write_text(stated + "[fastlloyd]\nalpha = 0.5\n")
    assert (
        main(["run", app, *given, "--stream", "-c", "n-clusters=3 bounds='0,1'"]) == 0
    )
    assert (
        main(["run", app, *given, "--run-config", str(settings), "--format", "json"])
        == 0
    )
    output = f"output='{office / 'results'}'"
    home = str(office / "superlink" / "home")
    settings_of_first = (
        f"cohort.min-clients=3 num-clients=3 {output} n-clusters=3 bounds='0,1'"
    )
    first, second = flower.started
    assert first == (home, [app, "--run-config", settings_of_first, "--stream"])
    more = (
        f"cohort.min-clients=2 num-clients=2 {output} algorithm='fastlloyd'"
        " bounds='0,1' n-clusters=4"
    )
    more += " n-features=2 fastlloyd.alpha=0.5"
    words = [app, "--run-config", more, "--format", "json", "--stream"]
    assert second == (home, words)
    assert (
        capsys.readouterr().err.count(f"{office / 'results'} has the server's report")
        == 2
    )
    elsewhere = str(office.parent / "elsewhere")
    assert (
        main(
            [
                "run", app, *given, "-c",
                f"n-clusters=3 bounds='0,1' output='{elsewhere}'",
            ]
        )
        == 0
    )  # fmt: skip
    assert f"{elsewhere} has the server's report" in capsys.readouterr().err
    n_started = len(flower.started)
    assert main(["run", app, *given, "-c", "n-clusters=="]) == 1
    assert "configuration string is in an invalid format" in capsys.readouterr().err
    assert main(["run", app, *given, "-c", "n-clusterz=3"]) == 1
    assert (
        main(["run", app, *given, "-c", "n-clusters=3 bounds='0,1' epsilon=-1.0"]) == 1
    )
    assert "epsilon is -1.0" in capsys.readouterr().err
    (folder / "counted.py").write_text("changed")
    assert main(["run", app, *given]) == 1
    assert "but the invitation proposes" in capsys.readouterr().err
    assert len(flower.started) == n_started


def test_a_run_of_another_app_is_handed_on_without_a_word_of_reports(
    office: Path, register: Register, flower: FlowerCommand,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Nobody here knows what it writes."""
    other = write_app(office.parent / "other", app_files())
    rewrite(office / "invitation.toml", digest_of(FAB), app_hash(other))
    capsys.readouterr()
    assert main(["run", str(other), "--server", str(office)]) == 0
    assert "report" not in capsys.readouterr().err
    assert [words for _, words in flower.started] == [[str(other), "--stream"]]


def test_folders_of_a_federation_in_the_project_do_not_change_the_app() -> None:
    project = run_command.Path(run_command.__file__).parents[2]
    own = {
        name: (project / name).read_bytes()
        for name in ("pyproject.toml", "README.md", "LICENSE")
    }
    package = project / "flwr_dpkmeans"
    rooms = [package, *(path.parent for path in package.glob("*/__init__.py"))]
    code = {f"{room.relative_to(project)}/__init__.py": b"" for room in rooms}
    code["flwr_dpkmeans/data/bundled.toml"] = b""
    own |= code | {
        f"flwr_dpkmeans/{name}.toml": b""
        for name in ("results/templates", "flower/run_keys", "privacy/report")
    }
    beside = {
        f"office/superlink/home/apps/x/{name}": content + b"x"
        for name, content in own.items()
    }
    assert build_fab_from_files(own)[0] == build_fab_from_files(own | beside)[0]


def test_results_are_listed_for_a_server_a_node_and_a_folder(
    office: Path,
    register: Register,
    capsys: pytest.CaptureFixture[str],
    flower: FlowerCommand,
) -> None:
    costs = {
        "epsilon": 1.0, "delta": 1e-6, "epsilon_requested": 1.0,
        "epsilon_worst_case": 1.0, "slack": 0.0,
    }  # fmt: skip
    words = dict.fromkeys(("neighbours", "guarantee", "n_examples_source"), "")
    words |= {
        "unit": "record",
        "trust": "oblivious",
        "algorithm": "fastlloyd",
        "noise": "secure",
    }
    lists: dict[str, Any] = dict.fromkeys(("assumptions", "warnings", "releases"), ())
    origin = Provenance("5", "server", "", finished="2026-11-23T08:00:00+00:00")
    numbers: dict[str, Any] = {
        "n_clients": 3, "n_attempts": 2, "n_examples": None, "is_private": True,
    }  # fmt: skip
    report = PrivacyReport(**numbers, **costs, **words, **lists, provenance=origin)
    node = write_node(office.parent / "node")
    for folder in (
        office / "results" / "run-5" / "server",
        office.parent / "node" / "results" / "run-5" / "client-7",
    ):
        folder.mkdir(parents=True)
        (folder / "privacy_report.json").write_text(report.to_json())
    failed = {
        "run-id": "4",
        "status": "finished:failed",
        "pending-at": "2020-01-01 08:00:02Z",
        "status-details": "why",
    }
    failed["finished-at"] = "2020-01-01 08:01:00Z"
    flower.list([failed])
    capsys.readouterr()
    assert main(["results", str(office / "misspelt")]) == 1
    assert (
        capsys.readouterr().err
        == f"{office / 'misspelt'} does not exist: correct its path.\n"
    )
    (empty := office.parent / "empty").mkdir()
    assert main(["results", str(empty)]) == 0
    assert capsys.readouterr().out == f"no run has left anything in {empty}\n"
    assert main(["results", str(office.parent)]) == 0  # all below it
    below = capsys.readouterr().out.splitlines()
    assert ["/server/" in line or "/client-7/" in line for line in below] == [True] * 2
    for place in (office, node, node.parent, node.parent / "results"):
        assert main(["results", str(place)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "4 2020-01-01 08:01:00Z finished:failed why"
    flower.answer("nothing that is a list")
    assert main(["results", str(office)]) == 0
    told_yet = capsys.readouterr()
    assert (told_yet.out.splitlines(), told_yet.err) == (
        lines[1:2],
        "runs that failed are not told: the SuperLink lists no runs now: see whether it"
        " is being started again, then ask again.\n",
    )
    told = (
        "5 2026-11-23 08:00:00Z PRIVATE: epsilon 1 at delta 1e-06 per record;"
        " fastlloyd, 3 clients, trust 'oblivious', "
    )
    assert lines[1] == f"{told}secure noise {office}/results/run-5/server/report.html"
    assert lines[2] == lines[3] == lines[4]
    assert lines[2].endswith("node/results/run-5/client-7/report.html")
    for text in ("{", "[]", "{}"):  # one that is damaged hides no other
        (
            damaged := office / "results" / "run-4" / "server" / "privacy_report.json"
        ).parent.mkdir(exist_ok=True, parents=True)
        damaged.write_text(text)
        assert main(["results", str(office)]) == 0
        said = capsys.readouterr().out
        assert f"{damaged} is no report" in said
        assert "5 2026-11-23 08:00:00Z PRIVATE" in said
