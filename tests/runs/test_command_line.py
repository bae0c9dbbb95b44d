"""Misspelt commands and options are named together with the nearest that there is, by
every command alike.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from flwr_dpkmeans import __version__
from flwr_dpkmeans.__main__ import COMMANDS, main
from flwr_dpkmeans.deploy import owner_commands as deployed
from flwr_dpkmeans.deploy.command_lines import CommandLine
from flwr_dpkmeans.errors import DataError

PROJECT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("command", "wrong", "right"),
    [
        ("plan --epsilonn 1", "--epsilonn", "--epsilon"),
        ("plan --n 9 --acuracy=1.05", "--acuracy", "--accuracy"),
        ("predict model.json rows.csv --ouput labels.csv", "--ouput", "--output"),
        ("node check --ap-ps NODE.toml", "--ap-ps", "--apps"),
        ("options --tml", "--tml", "--toml"),
        ("ledger show --hlp", "--hlp", "--help"),
        ("identity new --hlep", "--hlep", "--help"),
        ("schema draft --elp", "--elp", "--help"),
    ],
)
def test_a_misspelt_option_is_named(
    command: str, wrong: str, right: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(command.split())
    assert ended.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"there is no option {wrong}: did you mean '{right}'? (see ")
    assert err.count("\n") == 1


def test_a_misspelt_command_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["paln"]) == 2
    assert capsys.readouterr().err.startswith(
        "there is no command 'paln': did you mean 'plan'?\n"
    )
    assert main(["paln", "--help"]) == 2
    assert capsys.readouterr().err.startswith(
        "there is no command 'paln': did you mean 'plan'?\n"
    )
    usage = f"python -m flwr_dpkmeans {' | '.join(COMMANDS)} (each has --help)\n"
    assert main([]) == 2
    assert capsys.readouterr() == ("", usage)
    for asked in ("-h", "--help"):
        assert main([asked]) == 0
        assert capsys.readouterr() == (usage, "")


def test_without_arguments_the_command_line_is_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["flwr-dpkmeans", "paln"])
    assert main() == 2
    assert capsys.readouterr().err.startswith(
        "there is no command 'paln': did you mean 'plan'?\n"
    )


def failing(error: BaseException) -> Callable[[list[str]], int]:
    """A command that ends with an error."""

    def run(arguments: list[str]) -> int:
        raise error

    return run


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (DataError("it cannot be read"), 1, "it cannot be read\n"),
        (OSError("the port is taken"), 1, "the port is taken\n"),
        (OverflowError("port must be 0-65535."), 1, "port must be 0-65535.\n"),
        (ModuleNotFoundError("No module", name="scipy"), None, ""),
        (KeyError("x"), None, ""),
    ],
)
def test_a_command_s_errors_are_sentences_and_a_mistake_of_the_code_is_none(
    error: Exception,
    code: int | None,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(deployed, "schema", failing(error))
    if code is None:
        with pytest.raises(type(error)):
            main(["schema", "x"])
    else:
        assert main(["schema", "x"]) == code
    assert capsys.readouterr().err.startswith(told)


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"flwr-dpkmeans {__version__}\n"


IN_A_FOLDER_WITH_SIMULATIONS = """
import sys, warnings
from flwr_dpkmeans import FederatedKMeans
from flwr_dpkmeans.__main__ import COMMANDS, main

warnings.simplefilter("ignore")
open("table.csv", "w").write("a,b\\n" + "1,2\\n3,4\\n" * 20)
parts = [[[0.1, 0.2], [0.8, 0.9]] * 9, [[0.1, 0.3], [0.9, 0.9]] * 9]
model = FederatedKMeans(2, bounds=(0, 4), epsilon=5.0)
model.fit([[[1, 2], [3, 4]] * 20] * 2).save("model.json")
SAID = {
    "plan --n 200 --d 2 --k 2 --seeds 2 --algorithm fastlloyd": 0,
    "options": 0,
    "predict model.json table.csv -o labels.csv": 0,
    "schema draft table.csv": 0,
    "identity new identity.key": 0,
    "identity show identity.key": 0,
    "ledger verify ledger.jsonl": 1,
    "node check node.toml": 1,
    "server check .": 1,
    "results": 0,
    "run missing": 1,
}
assert {line.split()[0] for line in SAID} == set(COMMANDS)
for line, code in SAID.items():
    assert main(line.split()) == code, line
FederatedKMeans(2, algorithm="optimal", bounds=(0, 1)).fit(parts)
FederatedKMeans(2).plan(200, 2, 3, seeds=2, algorithms=["fastlloyd"])
assert "simulations" not in sys.modules
print("all there")
"""


def test_a_folder_may_have_a_package_of_the_name_simulations(tmp_path: Path) -> None:
    """Every command, a forecast and a baseline work in it, and nothing of it is
    imported.
    """
    (tmp_path / "simulations").mkdir()
    (tmp_path / "simulations" / "__init__.py").write_text("raise RuntimeError('mine')")
    done = subprocess.run(
        [sys.executable, "-c", IN_A_FOLDER_WITH_SIMULATIONS],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "all there"


def test_a_reader_that_has_enough_is_no_mistake() -> None:
    """As in `flwr-dpkmeans options | head -1`.

    Not a word on the error stream, neither of ours nor of Python's own.
    """
    command = [sys.executable, "-m", "flwr_dpkmeans", "options"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=PROJECT
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_what_is_right_passes() -> None:
    parser = CommandLine(prog="p")
    parser.add_argument("--long-name")
    parser.add_argument("rest", nargs="*")
    for words in (["--long-name", "1"], ["--long-name=1"], ["--long", "1"]):
        assert parser.parse_args(words).long_name == "1"
    # What follows "--" is no option, however it looks.
    assert parser.parse_args(["--", "--lng"]).rest == ["--lng"]
