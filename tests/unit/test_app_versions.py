"""A new version of the app: proposed, approved beside the old one, and taken back."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.apps import app_files, packed
from support.node_files import SOME_APP, write_node

from flwr_dpkmeans.__main__ import main
from flwr_dpkmeans.deploy.guard.approved_fab import digest_of
from flwr_dpkmeans.deploy.invitation import Invitation
from flwr_dpkmeans.deploy.node_options import NodeOptions
from flwr_dpkmeans.deploy.server_options import ServerOptions


@pytest.fixture
def new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The hash of new.fab, beside which old.fab lies."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old.fab").write_bytes(packed(app_files()))
    (tmp_path / "new.fab").write_bytes(packed(app_files("0.2.0")))
    return digest_of((tmp_path / "new.fab").read_bytes())


def test_an_office_proposes_a_version_and_goes_back(
    tmp_path: Path, new: str, capsys: pytest.CaptureFixture[str]
) -> None:
    init = ["server", "init", "office", "--parties", "a", "b", "--app", "old.fab"]
    assert main(init) == 0
    office = tmp_path / "office"
    before = (office / "server.toml").read_text()
    old = Invitation.from_toml(office / "invitation.toml")
    for app, digest in (("new.fab", new), ("old.fab", old.app)):
        capsys.readouterr()
        assert main(["server", "propose", app, "office"]) == 0
        assert capsys.readouterr().out.splitlines()[0] == digest
        assert Invitation.from_toml(office / "invitation.toml").app == digest
        assert ServerOptions.load(office).app == tmp_path / app
    assert (office / "server.toml").read_text() == before
    assert Invitation.from_toml(office / "invitation.toml") == old
    assert main(["server", "propose", "office", "office"]) == 1


def test_a_party_approves_what_it_has_and_takes_it_back(
    tmp_path: Path, new: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_node(tmp_path / "node")
    text = file.read_text()

    def approve(*words: str) -> int:
        return main(["node", "approve", *words])

    for refused, sentence in (
        ((new, str(file)), "give the reviewed copy by --app"),
        ((new, str(file), "--app", "old.fab"), "review that version"),
        ((SOME_APP, str(file), "--withdraw"), "the only app of allowed-apps"),
        ((new, str(file), "--withdraw"), "is no app of allowed-apps"),
    ):
        assert approve(*refused) == 1
        assert sentence in capsys.readouterr().err
        assert file.read_text() == text
    for _ in range(2):
        assert approve(new, str(file), "--app", "new.fab") == 0
        assert NodeOptions.from_toml(file).allowed_apps == (new, SOME_APP)
    assert file.stat().st_mode & 0o777 == 0o600
    assert approve(new, str(file), "--withdraw") == 0
    assert file.read_text() == text
