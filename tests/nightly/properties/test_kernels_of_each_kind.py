"""Each compiled variant, and the same under sanitizers, passes the kernels' tests."""

from __future__ import annotations

import importlib.util
import os
import platform
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flwr_dpkmeans.kernels import implementation

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc"),
]
ROOT = Path(__file__).parents[3]
TESTS = ROOT / "tests" / "unit" / "kernels" / "test_both_implementations.py"
NATIVE = Path(implementation.__file__).with_name("native")
EMULATOR = ROOT / ".github" / "arm" / "emulated_arm.py"
SANITIZED = (
    *("-O1", "-g", "-fno-omit-frame-pointer"),
    *("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
)


needs_cross_compiler = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ["ziglang", "unicorn", "elftools"])),
    reason="the dependency group 'arm' is not installed",
)
COMPUTED = "not environment and not wrong_choice and not library"
"""Tests of what kernels compute, not of which are chosen."""


def flags_here() -> set[str]:
    """What this processor can do, as Linux names it."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return {flag for line in lines if line.startswith("flags") for flag in line.split()}


def run_tests(
    folder: Path, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """The kernels' tests with the library of a folder."""
    paths = os.pathsep.join([str(ROOT), str(folder)])
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", *arguments, str(TESTS)],
        env=os.environ
        | {"PYTHONPATH": paths, "FLWR_DPKMEANS_KERNELS": "compiled"}
        | environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def build(folder: Path, *extra: str, native: Path = NATIVE) -> None:
    hook: Any = runpy.run_path(str(native / "build_hook.py"))
    hook["build_library"](folder, extra)


@pytest.mark.parametrize("variant", ["_baseline", "_avx2", "_avx512"])
def test_every_variant_makes_the_same_bits(variant: str, tmp_path: Path) -> None:
    needed = {"_avx2": {"avx2", "fma"}, "_avx512": {"avx512f", "avx512dq", "avx512vl"}}
    if variant != "_baseline":
        if platform.machine() != "x86_64":
            pytest.skip("this processor is of another kind")
        if not needed[variant] <= flags_here():
            pytest.skip("this processor is too old")
    build(tmp_path, f'-DCHOSEN_VARIANT="{variant}"')
    done = run_tests(tmp_path)
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout or "[100%]" in done.stdout


def preloaded() -> str:
    """The sanitizers' libraries, which must be loaded before Python's."""
    names = ("libasan.so", "libubsan.so")
    commands = [["gcc", f"-print-file-name={name}"] for name in names]
    paths = [
        subprocess.check_output(command, text=True).strip() for command in commands
    ]
    return ":".join(paths)


def run_sanitized(folder: Path) -> subprocess.CompletedProcess[str]:
    options = "detect_leaks=0:halt_on_error=1"
    # Where the program is ended, what was captured would be lost.
    return run_tests(folder, "-s", LD_PRELOAD=preloaded(), ASAN_OPTIONS=options)


def test_no_kernel_reads_or_writes_beyond_its_tables(tmp_path: Path) -> None:
    build(tmp_path, *SANITIZED)
    done = run_sanitized(tmp_path)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]


def test_the_sanitizers_see_a_read_beyond_a_table(tmp_path: Path) -> None:
    """A planted bug: the last row's last vector is read whole."""
    native = tmp_path / "native"
    shutil.copytree(NATIVE, native)
    source = (native / "kernels.c").read_text()
    condition = "if (at + PAIRS <= rows->values + rows->n * rows->d) {"
    assert source.count(condition) == 1
    planted = source.replace(condition, "if (1) {")
    (native / "kernels.c").write_text(planted)
    build(tmp_path, *SANITIZED, native=native)
    done = run_sanitized(tmp_path)
    assert done.returncode != 0
    assert "ERROR: AddressSanitizer" in done.stdout + done.stderr


def build_for(platform_name: str, folder: Path, *extra: str) -> Path:
    """Compile for another platform, as the build backend does for this one."""
    hook: Any = runpy.run_path(str(NATIVE / "build_hook.py"))
    ((suffix, lanes, flags),) = hook["EVERYWHERE"]
    library = folder / "kernels.so"
    command = [
        *(sys.executable, "-m", "ziglang", "cc", "-target", platform_name),
        *(*hook["FLAGS"], *flags, *extra),
        *(f"-DVARIANT={suffix}", f"-DLANES={lanes}", "-shared"),
        *(str(NATIVE / name) for name in hook["SOURCES"]),
        *("-o", str(library)),
    ]
    subprocess.run(command, check=True, capture_output=True)
    return library


@needs_cross_compiler
@pytest.mark.parametrize(
    "name", ["aarch64-macos", "x86_64-macos", "aarch64-linux-musl"]
)
def test_other_platforms_compile_without_a_warning(name: str, tmp_path: Path) -> None:
    assert build_for(name, tmp_path, "-Wall", "-Wextra", "-Werror").exists()


@needs_cross_compiler
def test_arm_makes_the_same_bits(tmp_path: Path) -> None:
    library = build_for("aarch64-linux-gnu.2.17", tmp_path)
    shutil.copy(EMULATOR, tmp_path)
    done = run_tests(
        tmp_path,
        *("-p", EMULATOR.stem, "-k", COMPUTED),
        FLWR_DPKMEANS_KERNELS="",
        EMULATED_ARM_LIBRARY=str(library),
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    assert " passed" in done.stdout or "[100%]" in done.stdout
