"""``flwr-dpkmeans doctor``: what would fail is told before it does."""

from __future__ import annotations

import socket
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from flwr_dpkmeans import __version__
from flwr_dpkmeans.__main__ import main
from flwr_dpkmeans.cli import doctor_command
from flwr_dpkmeans.errors import ConfigurationError


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "flower"))
    monkeypatch.chdir(tmp_path)


def lines_of(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """What is printed of each item, with its verdict first."""
    lines = capsys.readouterr().out.splitlines()
    return {line.split()[1].rstrip(":"): line for line in lines}


def test_a_sound_machine_has_nothing_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    lines = lines_of(capsys)
    assert lines["package"].startswith(f"ok    package:    flwr-dpkmeans {__version__}")
    assert not any(line.startswith("wrong") for line in lines.values())
    assert lines.keys() == {
        *("package", "python", "flower", "ray", "libraries", "kernels"),
        *("results", "home", "temporary", "here"),
        *("server", "page", "superlink", "processors"),
    }


@pytest.mark.parametrize(
    ("name", "present", "code", "sentence"),
    [
        ("flwr", "1.99.0", 0, "note  flower:     Flower 1.99.0 was not tried"),
        ("flwr", "0.9.0", 1, "wrong libraries:  flwr 0.9.0 is here, but the package"),
        ("flwr", None, 1, "wrong flower:     flwr is not installed: pip install flwr"),
        ("numpy", "1.26.0", 1, "wrong libraries:  numpy 1.26.0 is here"),
        ("scipy", None, 1, "wrong libraries:  scipy is not installed"),
        ("ray", None, 0, "note  ray:        Ray is not here"),
    ],
)
def test_versions_that_would_fail_are_wrong_and_untried_ones_are_noted(
    name: str,
    present: str | None,
    code: int,
    sentence: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def installed(package: str) -> str:
        if package != name:
            return version(package)
        if present is None:
            raise PackageNotFoundError(name)
        return present

    assert doctor_command.print_findings(installed) == code
    assert sentence in capsys.readouterr().out


def test_a_folder_that_cannot_be_made_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "file" / "flower"))
    assert main(["doctor"]) == 1
    lines = lines_of(capsys)
    assert lines["home"].startswith("wrong home:       this user cannot write into")
    assert lines["results"].startswith("ok")


def test_a_taken_port_is_noted_and_none_for_a_server_is_wrong(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setenv("FLWR_LOCAL_SUPERLINK_HTTP_API_PORT", str(port))
        assert main(["doctor"]) == 0
        assert f"note  superlink:  port {port}, for simulations, is taken" in (
            capsys.readouterr().out
        )
        with pytest.raises(
            ConfigurationError, match=f"^no port from {port} to {port} is free"
        ):
            doctor_command.require_server_port(range(port, port + 1))
    monkeypatch.setenv("FLWR_LOCAL_SUPERLINK_HTTP_API_PORT", "many")
    assert main(["doctor"]) == 1


def test_limits_of_threads_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    main(["doctor"])
    assert "threads limited by OMP_NUM_THREADS=1" in capsys.readouterr().out
