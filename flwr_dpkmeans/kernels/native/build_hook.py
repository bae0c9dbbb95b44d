"""Builds the compiled kernels into wheels, and into environments that are editable.

Hatchling runs it. The library is a top-level module of its own, as an app's bundle
holds source only and its copy of the package comes before the installed one. Without a
C compiler the wheel is one for every platform and NumPy does the work, which
``flwr-dpkmeans doctor`` says. ``FLWR_DPKMEANS_KERNELS=compiled`` makes that an error,
and ``numpy`` leaves the kernels out.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

BuildData = dict[str, Any]
HERE = Path(__file__).resolve().parent
MODULE = "flwr_dpkmeans_kernels"
SOURCES = ("kernels.c", "choice.c")
FLAGS = (
    "-std=gnu11",
    "-O3",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-Wno-psabi",
)
VARIANTS = {
    "x86_64": (
        ("_baseline", 4, ()),
        ("_avx2", 8, ("-mavx2", "-mfma", "-mbmi2")),
        ("_avx512", 16, ("-march=x86-64-v4",)),
    ),
}
"""Suffix, floats in a vector and flags of what is compiled for a processor."""
EVERYWHERE = (("_baseline", 4, ()),)
ABOUT = '''"""The compiled kernels of flwr-dpkmeans, built with it for one platform."""

from pathlib import Path

LIBRARY = Path(__file__).with_name("kernels.so")
SOURCE = "{source}"
'''


def source_digest() -> str:
    """Hash what the library is compiled from, so that a stale one is noticed."""
    digest = hashlib.sha256()
    for name in SOURCES:
        digest.update((HERE / name).read_bytes())
    return digest.hexdigest()


def compiler() -> list[str] | None:
    """Find a C compiler: that of ``CC``, Python's own, or the system's."""
    names = [os.environ.get("CC", ""), sysconfig.get_config_var("CC") or ""]
    for name in [*names, "cc", "gcc", "clang"]:
        command = shlex.split(name)
        if command and shutil.which(command[0]):
            return command[:1]
    return None


def build_library(folder: Path, extra: tuple[str, ...] = ()) -> Path:
    """Compile the module into a folder, and return its own folder there.

    Raises
    ------
    RuntimeError
        Without a compiler, or where it fails.
    """
    command = compiler()
    if command is None:
        raise RuntimeError("there is no C compiler")
    module = folder / MODULE
    module.mkdir(parents=True, exist_ok=True)
    variants = VARIANTS.get(platform.machine().lower(), EVERYWHERE)
    with tempfile.TemporaryDirectory() as scratch:
        objects = []
        commands = []
        for suffix, lanes, flags in variants:
            target = str(Path(scratch) / f"kernels{suffix}.o")
            defines = [f"-DVARIANT={suffix}", f"-DLANES={lanes}"]
            source = str(HERE / "kernels.c")
            options = [*FLAGS, *flags, *extra, *defines]
            commands.append([*command, *options, "-c", source, "-o", target])
            objects.append(target)
        with ThreadPoolExecutor() as pool:
            list(pool.map(run, commands))
        choice = str(HERE / "choice.c")
        library = module / "kernels.so"
        stripped = ["-shared"] if extra else ["-shared", "-Wl,-s"]
        if sys.platform == "darwin":
            stripped = ["-shared"]
        run([*command, *FLAGS, *extra, *stripped, choice, *objects, "-o", str(library)])
        # As every file of a wheel; a library is not executed.
        library.chmod(0o644)
    about = ABOUT.format(source=source_digest())
    (module / "__init__.py").write_text(about, encoding="utf-8")
    return module


def run(command: list[str]) -> None:
    """Run the compiler."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} failed: {done.stderr.strip()}")


class KernelsHook(BuildHookInterface[BuilderConfig]):
    """Adds the compiled module to a wheel."""

    _folder: tempfile.TemporaryDirectory[str] | None = None

    def initialize(self, version: str, build_data: BuildData) -> None:
        """Compile, or say why not, and add a bill of materials, if it is wanted."""
        self._add_kernels(version, build_data)
        if os.environ.get("FLWR_DPKMEANS_SBOM") == "1":
            self._add_bill(build_data)

    def _add_kernels(self, version: str, build_data: BuildData) -> None:
        wanted = os.environ.get("FLWR_DPKMEANS_KERNELS", "")
        # An app's bundle has no C source.
        has_source = all((HERE / name).exists() for name in SOURCES)
        if wanted == "numpy" or not has_source:
            return
        try:
            module = build_library(self._scratch())
        except (RuntimeError, OSError) as error:
            if wanted == "compiled":
                raise
            self.app.display_warning(f"The kernels are NumPy's: {error}")
            return
        included = {str(path): f"{MODULE}/{path.name}" for path in module.iterdir()}
        name = "force_include_editable" if version == "editable" else "force_include"
        build_data[name].update(included)
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform_tag()}"

    def _add_bill(self, build_data: BuildData) -> None:
        path = Path(self.root) / ".ci" / "sbom.py"
        spec = importlib.util.spec_from_file_location("sbom", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        about = self.metadata
        bill = module.write_bill(about.name, about.version, self._scratch())
        build_data["sbom_files"].append(str(bill))

    def _scratch(self) -> Path:
        """Return a folder that lasts until the wheel is there."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory()
        return Path(self._folder.name)

    def finalize(self, version: str, build_data: BuildData, artifact_path: str) -> None:
        """Delete what the wheel now holds."""
        if self._folder is not None:
            self._folder.cleanup()


def platform_tag() -> str:
    """Name this platform as wheels do; cibuildwheel repairs it to manylinux."""
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")
