"""The head file beside a ledger: what no crash explains stops every use, and what a
crash leaves heals.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.asked_plans import room_for
from support.ledger_entries import (
    charge,
    charged_epsilon,
    entry,
    head_of,
    put_head_back,
    verify_ledger,
)
from support.machine import replace_call, replace_rights, replace_room, replace_sync

from flwr_dpkmeans.__main__ import main
from flwr_dpkmeans.deploy.owner.ledger_report import inspect_ledger
from flwr_dpkmeans.errors import BudgetError, ConfigurationError, ProtocolError
from flwr_dpkmeans.node.ledger import MemoryLedger
from flwr_dpkmeans.node.ledger_file import FileLedger

DOCS = Path(__file__).resolve().parents[3] / "flwr_dpkmeans" / "docs"
PAGE = DOCS / "reference" / "policy.md"

Tamper = Callable[[Path], None]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.jsonl"


def fill(path: Path, run_id: str = "run-1", n_entries: int = 5) -> Path:
    ledger = FileLedger(path)
    for index in range(n_entries):
        ledger.charge(entry(f"{run_id}-{index}", index, 0.25))
    return path


@pytest.fixture
def filled(path: Path) -> Path:
    return fill(path)


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def files_of(path: Path) -> list[tuple[str, bytes]]:
    return sorted(
        (place.name, place.read_bytes())
        for place in path.parent.iterdir()
        if place.is_file()
    )


def require_stopped(path: Path, sentence: str) -> None:
    """Nothing can be read or charged any more, and nothing is written."""
    before = files_of(path)
    ledger = FileLedger(path)
    uses: tuple[Callable[[], object], ...] = (
        lambda: ledger.past("ward-7", "record"), lambda: ledger.attempts("run-1-0"),
        lambda: ledger.attempts("run-1-0"), ledger.entries, ledger.require_usable,
        lambda: ledger.charge(entry("run-9")),
    )  # fmt: skip
    for use in uses * 2:
        with pytest.raises(BudgetError, match=sentence) as caught:
            use()
        assert str(caught.value).endswith(".")
    # A charge opens the lines for writing, which makes an empty file of one that was
    # deleted.
    assert [place for place in files_of(path) if place[1]] == [
        place for place in before if place[1]
    ]


def test_the_tests_that_the_documentation_names_exist() -> None:
    tests = Path(__file__).parents[2]
    source = "".join(path.read_text() for path in tests.rglob("test_*.py"))
    names = set(
        re.findall(
            r"`(test_\w+)`",
            PAGE.read_text(),
        )
    )
    assert len(names) > 10
    assert {name for name in names if f"def {name}(" not in source} == set()


# -- tampering -------------------------------------------------------------------------


def cut(n_lines: int) -> Tamper:
    return lambda path: path.write_bytes(b"".join(lines_of(path)[:-n_lines])) and None


def put_other_ledger(n_entries: int) -> Tamper:
    def tamper(path: Path) -> None:
        other = path.parent / "elsewhere"
        other.mkdir()
        shutil.copy(fill(other / "ledger", "run-2", n_entries), path)
        shutil.rmtree(other)

    return tamper


def write_head(content: bytes) -> Tamper:
    return lambda path: head_of(path).write_bytes(content) and None


def change_head(**values: Any) -> Tamper:
    def tamper(path: Path) -> None:
        line = json.loads(lines_of(head_of(path))[-1]) | values
        head_of(path).write_bytes(json.dumps(line).encode() + b"\n")

    return tamper


WAS_CUT = (
    r"has {} entries, but had 5 \(they were cut off, or an older copy was put back\)"
)
DAMAGED = "has 5 entries, but .*head, which counts them, is damaged"
MISSING = "has 5 entries, but .*head, which counts them, is missing"
OTHER = "is not the one that .*head was written for, but another one"
CASES: dict[str, tuple[Tamper, str]] = {
    **{f"{n} lines cut off": (cut(n), WAS_CUT.format(5 - n)) for n in range(1, 6)},
    "line and a half cut off": (
        lambda p: p.write_bytes(p.read_bytes()[:-400]) and None,
        WAS_CUT.format(3),
    ),
    "ledger deleted": (Path.unlink, WAS_CUT.format(0)),
    "other ledger of as many entries": (put_other_ledger(5), OTHER),
    "other ledger of one more": (put_other_ledger(6), OTHER),
    "other ledger of fewer": (put_other_ledger(4), WAS_CUT.format(4)),
    "head deleted": (lambda p: head_of(p).unlink(), MISSING),
    "head emptied": (write_head(b""), MISSING),
    "head without a line end": (write_head(b'{"entries": 5'), MISSING),
    "head of zeros": (write_head(b"\0" * 200 + b"\n"), DAMAGED),
    "head not UTF-8": (write_head(b"\xff\n"), DAMAGED),
    "head a list": (write_head(b"[5]\n"), DAMAGED),
    "head of other keys": (write_head(b'{"lines": 5}\n'), DAMAGED),
    "head nested": (write_head(b"[" * 100_000 + b"\n"), DAMAGED),
    "head with a boolean": (change_head(entries=True), DAMAGED),
    "head with a short checksum": (change_head(checksum="ab"), DAMAGED),
    "head with a number for a checksum": (change_head(checksum=5), DAMAGED),
    "head below zero": (change_head(entries=-1), "counts -1"),
    "head two behind": (
        lambda p: put_head_back(p, 3),
        "has 5 entries, but .*head counts 3 .an older copy of it",
    ),
    "head at the start": (
        lambda p: put_head_back(p, 0),
        "has 5 entries, but .*head counts 0",
    ),
    "head ahead": (change_head(entries=6), "had 6"),
    "head of another checksum": (change_head(checksum="0" * 64), OTHER),
    "head one behind and another checksum": (
        change_head(entries=4, checksum="0" * 64),
        OTHER,
    ),
}


@pytest.mark.parametrize("kind", CASES)
def test_what_no_crash_explains_stops_every_use(
    filled: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tamper, sentence = CASES[kind]
    tamper(filled)
    report = inspect_ledger(filled)
    assert len(report.problems) == 1
    assert report.is_acceptable
    require_stopped(filled, sentence)
    for command in ("verify", "show"):
        assert main(["ledger", command, str(filled)]) == 1
        captured = capsys.readouterr()
        assert f"python -m flwr_dpkmeans ledger accept {filled}" in captured.err
        assert "is sound" not in captured.out
        # The owner sees what there is before deciding.
        assert ("data set" in captured.out) == (command == "show")


@pytest.mark.parametrize("kind", CASES)
def test_the_owner_may_accept_a_ledger_as_it_stands(
    filled: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    CASES[kind][0](filled)
    n_entries = len(inspect_ledger(filled).entries)
    assert main(["ledger", "accept", str(filled)]) == 0
    assert f"accepted with {n_entries} entries" in capsys.readouterr().out
    assert verify_ledger(filled) == []
    FileLedger(filled).charge(entry("run-9"))
    assert len(FileLedger(filled).entries()) == n_entries + 1
    assert verify_ledger(filled) == []


def test_damaged_lines_cannot_be_accepted(
    filled: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = lines_of(filled)
    filled.write_bytes(b"".join([*lines[:2], *lines[3:]]))
    before = files_of(filled)
    assert main(["ledger", "accept", str(filled)]) == 1
    assert "damaged at line 3" in capsys.readouterr().err
    with pytest.raises(BudgetError, match="damaged at line 3"):
        FileLedger(filled).accept()
    assert files_of(filled) == before
    assert main(["ledger", "accept", str(filled.with_name("none"))]) == 1
    assert "does not exist" in capsys.readouterr().err


def test_a_ledger_in_use_notices_as_well(filled: Path) -> None:
    ledger = FileLedger(filled)
    ledger.past("ward-7", "record")
    head = head_of(filled).read_bytes()
    head_of(filled).unlink()
    with pytest.raises(BudgetError, match="is missing"):
        ledger.charge(entry("run-9"))
    head_of(filled).write_bytes(head)
    ledger.charge(entry("run-9"))
    assert charged_epsilon(ledger) == 1.75


def test_an_older_copy_of_the_ledger_alone_is_found_out(filled: Path) -> None:
    backup = filled.read_bytes()
    FileLedger(filled).charge(entry("run-2"))
    filled.write_bytes(backup)
    require_stopped(filled, "has 5 entries, but had 6")


def test_an_older_copy_of_both_files_is_the_owners_doing(filled: Path) -> None:
    """The limit of a ledger without a key, as the page on the ledger says."""
    backup = files_of(filled)
    FileLedger(filled).charge(entry("run-2"))
    for name, content in backup:
        (filled.parent / name).write_bytes(content)
    assert charged_epsilon(FileLedger(filled)) == 1.25


# -- what a crash leaves ---------------------------------------------------------------


def test_a_ledger_one_ahead_of_its_head_counts_and_heals(filled: Path) -> None:
    put_head_back(filled, 4)
    assert verify_ledger(filled) == []
    ledger = FileLedger(filled)
    assert charged_epsilon(ledger) == 1.25
    with pytest.raises(ProtocolError, match="already has round 4"):
        ledger.charge(entry("run-1-4", 4, 0.25))
    ledger.charge(entry("run-2"))
    assert [json.loads(line)["entries"] for line in lines_of(head_of(filled))][-3:] == [
        4,
        5,
        6,
    ]
    assert verify_ledger(filled) == []


def test_every_torn_tail_of_the_head_heals(
    filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nobody cuts the power, for which a disk is waited for.
    replace_sync(monkeypatch, lambda descriptor: None)
    ledger, head = filled.read_bytes(), head_of(filled).read_bytes()
    start = head[:-1].rfind(b"\n") + 1
    for tail in [*(head[start:end] for end in range(start, len(head))), b"\0" * 5000]:
        filled.write_bytes(ledger)
        head_of(filled).write_bytes(head[:start] + tail)
        assert verify_ledger(filled) == []
        FileLedger(filled).charge(entry("run-2"))
        assert charged_epsilon(FileLedger(filled)) == 1.75
        assert verify_ledger(filled) == []


def test_an_empty_file_is_a_fresh_ledger(path: Path) -> None:
    path.touch()
    assert charged_epsilon(FileLedger(path)) == 0.0
    assert verify_ledger(path) == []
    fill(path)
    assert verify_ledger(path) == []


def test_a_first_charge_between_two_looks_is_no_deleted_ledger(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader finds no ledger."""
    look = os.open

    def charge_first(place: Any, *how: Any) -> int:
        try:
            return look(place, *how)
        except FileNotFoundError:
            monkeypatch.undo()
            fill(path, n_entries=2)
            raise

    replace_call(monkeypatch, "open", charge_first)
    assert charged_epsilon(FileLedger(path)) == 0.5
    assert os.open is look


# -- a disk that fails -----------------------------------------------------------------


def failing(
    name: str, code: int, on: Callable[..., bool]
) -> tuple[str, Callable[..., Any]]:
    """A function of `os` that fails on some calls."""
    real = getattr(os, name)

    def call(*arguments: Any, **options: Any) -> Any:
        if on(*arguments):
            raise OSError(code, os.strerror(code))
        return real(*arguments, **options)

    return name, call


def is_head(descriptor: int) -> bool:
    return os.readlink(f"/proc/self/fd/{descriptor}").endswith(".head")


def for_writing(path: Any, flags: int, *_: Any) -> bool:
    return bool(flags & (os.O_WRONLY | os.O_RDWR))


@pytest.mark.skipif(
    not Path("/proc/self/fd").exists(), reason="needs /proc to name a descriptor"
)
def test_a_disk_that_is_full_for_the_head_costs_one_release_at_most(
    filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = FileLedger(filled)
    with monkeypatch.context() as patch:
        replace_call(
            patch,
            *failing("write", errno.ENOSPC, lambda descriptor, _: is_head(descriptor)),
        )
        for run in ("run-2", "run-3", "run-4"):
            with pytest.raises(BudgetError, match="No space left on device"):
                ledger.charge(entry(run))
            assert len(inspect_ledger(filled).entries) == 6
            assert verify_ledger(filled) == []
    ledger.charge(entry("run-3"))
    assert verify_ledger(filled) == []
    assert charged_epsilon(ledger) == 2.25


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.EPERM])
def test_a_read_only_ledger_is_read_and_refused_before_a_run(
    filled: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """By fault injection, since the tests may run as root, whom no permission stops."""
    before = files_of(filled)
    with monkeypatch.context() as patch:
        replace_call(patch, *failing("open", code, for_writing))
        assert charged_epsilon(FileLedger(filled)) == 1.25
        for use in (
            FileLedger(filled).require_usable,
            lambda: FileLedger(filled).charge(entry("run-2")),
        ):
            with pytest.raises(BudgetError, match=r"cannot be used .*: make the file"):
                use()
    assert files_of(filled) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write read-only files")
def test_a_file_without_permission_is_refused(filled: Path) -> None:
    filled.chmod(0o400)
    with pytest.raises(BudgetError, match="Permission denied"):
        FileLedger(filled).require_usable()


def test_a_file_system_without_locks_is_refused(
    filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As NFS without a lock service: two nodes could spend the same budget."""

    def refused(*_: Any) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    replace_call(monkeypatch, "flock", refused, of=fcntl)
    require_stopped(filled, "No locks available")


def test_a_folder_that_disappears_is_no_empty_ledger(tmp_path: Path) -> None:
    folder = tmp_path / "mount"
    folder.mkdir()
    ledger = FileLedger(folder / "ledger")
    assert charged_epsilon(ledger) == 0.0
    folder.rmdir()
    for use in (ledger.require_usable, ledger.entries, lambda: ledger.charge(entry())):
        with pytest.raises(BudgetError, match="No such file"):
            use()
    with pytest.raises(ConfigurationError, match="does not exist: make or mount it"):
        FileLedger(folder / "ledger")


def test_a_link_to_a_disk_that_is_gone_is_no_empty_ledger(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "mount" / "ledger")
    with pytest.raises(ConfigurationError, match="mount does not exist: make or mount"):
        FileLedger(tmp_path / "link")


def test_links_to_one_file_share_its_head(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    for name in ("first", "second"):
        (tmp_path / name).symlink_to(real / "ledger")
    FileLedger(tmp_path / "first").charge(entry("run-1"))
    FileLedger(tmp_path / "second").charge(entry("run-2"))
    FileLedger(real / "ledger").charge(entry("run-3"))
    assert charged_epsilon(FileLedger(tmp_path / "first")) == 1.5
    assert verify_ledger(tmp_path / "second") == []
    assert sorted(place.name for place in real.iterdir()) == ["ledger", "ledger.head"]


def test_only_the_owner_can_read_the_head(filled: Path) -> None:
    assert head_of(filled).stat().st_mode & 0o077 == 0


# -- before a run ----------------------------------------------------------------------


def test_require_usable_writes_nothing(path: Path) -> None:
    FileLedger(path).require_usable()
    assert files_of(path) == []
    fill(path)
    put_head_back(path, 4)
    before = files_of(path)
    FileLedger(path).require_usable()
    assert files_of(path) == before
    MemoryLedger().require_usable()


def test_a_full_disk_is_refused_before_a_run(
    filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(filled.parent)._replace(free=1000)
    replace_room(monkeypatch, lambda _: usage)
    with pytest.raises(BudgetError, match="No space left on device"):
        FileLedger(filled).require_usable()


def test_a_folder_without_permission_is_refused_before_a_run(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_rights(monkeypatch, lambda *_: False)
    with pytest.raises(BudgetError, match="Permission denied"):
        FileLedger(path).require_usable()


def test_an_empty_ledger_that_was_deleted_lost_nothing(filled: Path) -> None:
    put_head_back(filled, 0)
    filled.unlink()
    FileLedger(filled).charge(entry())
    assert verify_ledger(filled) == []


# -- delta -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["file", "memory"])
def test_deltas_of_runs_add_up_to_a_total(path: Path, kind: str) -> None:
    ledger = FileLedger(path) if kind == "file" else MemoryLedger()
    for run, index in (("run-1", 0), ("run-1", 1), ("run-2", 0)):
        charge(ledger, entry(run, index, 0.5, delta=1e-6), total_delta=2.5e-6)
    assert ledger.past("ward-7", "record").delta == pytest.approx(2e-6)
    assert ledger.past(
        "ward-7", "record", excluding_run="run-1"
    ).delta == pytest.approx(1e-6)
    assert ledger.past("ward-8", "record").delta == 0.0
    with pytest.raises(BudgetError, match="delta is 1e-06, but it does not fit into"):
        charge(ledger, entry("run-3", 0, 0.5, delta=1e-6), total_delta=2.5e-6)
    charge(ledger, entry("run-3", 0, 0.5, delta=0.5e-6), total_delta=2.5e-6)
    charge(ledger, entry("run-1", 2, 0.5, delta=1e-6), total_delta=2.5e-6)


# -- clocks ----------------------------------------------------------------------------


def test_a_clock_that_jumps_changes_nothing_but_the_time(path: Path) -> None:
    """Order, replays and totals come from the lines, whatever the clock says."""
    years = ["2025", "1970", "3065", "3065", "3065"]
    total = room_for(5.5, 0.25)
    for index, year in enumerate(years):
        item = entry(f"run-{index}", index, 0.25, time=f"{year}-01-31T12:00:00+00:00")
        charge(FileLedger(path), item, total, 1e-6)
        with pytest.raises(ProtocolError, match="already has round"):
            FileLedger(path).charge(item)
    assert [item.time[:4] for item in FileLedger(path).entries()] == years
    late = entry("run-9", 0, 0.25, time="1970-01-01T00:00:00+00:00")
    with pytest.raises(BudgetError):
        charge(FileLedger(path), late, total, 1e-6)
    assert charged_epsilon(FileLedger(path)) == 1.25
    assert verify_ledger(path) == []
