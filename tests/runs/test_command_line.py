"""Misspelt commands and options are named together with the nearest that there is, by
every command alike.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import typer
from support.machine import type_command
from support.typed import typed_options

from flwr_dpkmeans import __version__
from flwr_dpkmeans.__main__ import main
from flwr_dpkmeans.cli.app import COMMANDS, app
from flwr_dpkmeans.cli.parsing import Group
from flwr_dpkmeans.cli.plan_options import PlanOptions
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
        out, err = capsys.readouterr()
        assert err == ""
        rows = {line.split()[1] for line in out.splitlines() if len(line.split()) > 1}
        assert set(COMMANDS) <= rows


def test_without_arguments_the_command_line_is_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    type_command(monkeypatch, ["flwr-dpkmeans", "paln"])
    assert main() == 2
    assert capsys.readouterr().err.startswith(
        "there is no command 'paln': did you mean 'plan'?\n"
    )


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
    capsys: pytest.CaptureFixture[str],
) -> None:
    commands = typer.Typer(cls=Group)

    @commands.callback()
    def program() -> None:
        """A program whose command fails."""

    @commands.command("schema")
    def schema() -> int:
        raise error

    if code is None:
        with pytest.raises(type(error)):
            main(["schema"], commands)
    else:
        assert main(["schema"], commands) == code
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
    "doctor": 0,
}
assert {line.split()[0] for line in SAID} == set(COMMANDS)
for line, code in SAID.items():
    assert main(line.split()) == code, line
FederatedKMeans(2, algorithm="optimal", bounds=(0, 1)).fit(parts)
assert "simulations" not in sys.modules
print("all there")
"""


def test_a_folder_may_have_a_package_of_the_name_simulations(tmp_path: Path) -> None:
    """Commands, forecasts and baselines import nothing of it."""
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
    """As in `flwr-dpkmeans options | head -1`."""
    command = [sys.executable, "-m", "flwr_dpkmeans", "options"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=PROJECT
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


@pytest.mark.parametrize("spelling", ["--output", "--outp", "-o"])
def test_an_option_may_be_shortened_as_long_as_one_is_meant(
    spelling: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", "none.json", "none.csv", spelling, "labels.csv"]) == 1
    assert "none.json" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["predict", "none.json", "none.csv", "-o", "labels.csv", "--d", "."])
    assert main(["predict", "none.json", "none.csv", "-o", "x.csv", "--dec", "."]) == 1


def test_a_shortened_option_that_may_be_two_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["plan", "--n", "9", "--max-", "3"])
    assert ended.value.code == 2
    assert capsys.readouterr().err == (
        "--max- may be --max-iter, --max-silent, --max-retries: write it out (see"
        " python -m flwr_dpkmeans plan --help)\n"
    )


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("plan --d 4", "one of --n-examples and --count-rows is required"),
        ("plan --n 9 --count-rows", "--n-examples is not allowed with --count-rows"),
        ("plan --n 9 --accuracy 1.1 --target-excess .1", "--accuracy is not allowed"),
        ("plan --n many", "Invalid value for '--n-examples' / '--n'"),
        ("node chekc node.toml", "there is no command 'chekc': did you mean 'check'?"),
        ("node check", "Missing argument 'FILE'"),
        ("schema check s.toml t.csv --header maybe", "Invalid value for '--header'"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_line(
    command: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(command.split())
    assert ended.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(sentence)
    program = " ".join(command.split()[: 2 if command.split()[0] != "plan" else 1])
    if "chekc" in program:
        program = "node"
    assert err.endswith(f"(see python -m flwr_dpkmeans {program} --help)\n")


def commands_of(group: click.Group) -> Iterator[click.Command]:
    for command in group.commands.values():
        if isinstance(command, click.Group):
            yield from commands_of(command)
        yield command


def test_every_command_and_every_option_has_a_sentence() -> None:
    """Arguments, too: click 8.5 drops what typer says of them."""
    root = typer.main.get_command(app)
    assert isinstance(root, click.Group)
    commands = list(commands_of(root))
    assert len(commands) > 25
    for command in commands:
        assert command.help, command.name
        with click.Context(command, info_name=command.name) as context:
            context.command.get_help(context)
            for param in command.params:
                about = getattr(param, "help", None)
                assert about, (command.name, param.name)
                assert about[-1] in ".,", about


def test_a_shell_is_told_what_may_come_next() -> None:
    code = (
        "import sys; sys.argv = ['x']; from flwr_dpkmeans.cli.app import main; main()"
    )
    for typed, position, expected in (
        (
            "flwr-dpkmeans node ",
            "2",
            "init pin check data-changed hash start status dashboard",
        ),
        ("flwr-dpkmeans plan --n-c", "2", "--n-clusters --n-clients"),
        ("flwr-dpkmeans led", "1", "ledger"),
    ):
        shell = {
            "_FLWR_DPKMEANS_COMPLETE": "complete_bash",
            "COMP_WORDS": typed,
            "COMP_CWORD": position,
        }
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            cwd=PROJECT,
            env=os.environ | shell,
            check=False,
        )
        assert done.stdout.split() == expected.split(), done.stderr


def test_a_value_after_several_is_the_option_s_until_another_one_begins() -> None:
    line = "--n 9 --algorithm lloyd --algorithm glloyd fastlloyd --k 3"
    options = typed_options(PlanOptions, line)
    assert (options.algorithm, options.n_clusters) == (["glloyd", "fastlloyd"], 3)


@pytest.mark.sample(2)
@pytest.mark.parametrize("command", ["", "plan", "node init"])
def test_help_waits_for_no_library(command: str) -> None:
    """At most .3 s of a processor beyond Python's own start."""

    def seconds(*arguments: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, *arguments], cwd=PROJECT, capture_output=True, check=True
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        user = after.ru_utime - before.ru_utime
        return user + after.ru_stime - before.ru_stime

    start = min(seconds("-c", "pass") for _ in range(3))
    words = ["-m", "flwr_dpkmeans", *command.split(), "--help"]
    assert min(seconds(*words) for _ in range(3)) - start <= 0.3
