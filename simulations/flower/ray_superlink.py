"""A SuperLink of our own that runs Flower's Ray simulations, one after the other, and
leaves nothing behind.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from flwr_dpkmeans.errors import ConfigurationError, DPKMeansError
from simulations.flower import ray_processes
from simulations.flower.ray_processes import end_marked, is_supported, used_bytes
from simulations.flower.ray_settings import (
    RayBackend,
    connection_file,
    environment,
    federation_config,
    program,
)

_START_TIMEOUT = 180.0
_END_TIMEOUT = 10.0
_STARTS = 3
_POLL = 0.2
_MEMORY_POLL = 2.0


class EngineError(DPKMeansError):
    """The simulation, not the run in it, failed.

    It hung, ended by itself or took too much memory.
    """


@dataclass(frozen=True)
class Finished:
    """What is known of one ``flwr run`` when it is over.

    Parameters
    ----------
    code : int
        Exit code, which is 0 also where the app failed.
    output : str
        All that it printed, the app's log included.
    seconds : float
        From the command to its end.
    peak_bytes : int
        Largest memory of all processes together, looked at every 2 s.
    """

    code: int
    output: str
    seconds: float
    peak_bytes: int


class RaySuperLink:
    """A SuperLink in simulation mode with a home, a port and processes of its own.

    It starts with the first run, serves later ones, and is started again if it had to
    be ended. Nothing is shared with other SuperLinks of this user, not even Flower's
    configuration file. If this process is killed, a guard ends the SuperLink.

    Parameters
    ----------
    backend : RayBackend
        For all its runs.

    Raises
    ------
    ConfigurationError
        On a system without /proc, where its processes could not be found again.

    Examples
    --------
    >>> with RaySuperLink(RayBackend()) as superlink:
    ...     superlink.port is None  # nothing runs yet
    True
    """

    def __init__(self, backend: RayBackend) -> None:
        if not is_supported():
            raise ConfigurationError(
                "the Ray engine finds its processes in /proc: use Linux, or"
                " engine=inprocess."
            )
        self.backend = backend
        self.port: int | None = None
        self._home: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> RaySuperLink:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def home(self) -> Path:
        """Folder of Flower's and Ray's own files; removed by `close`."""
        if self._home is None:
            # Ray's sockets lie below it, and a socket's path has about 100 characters.
            short = "/tmp" if Path("/tmp").is_dir() else None
            self._home = Path(tempfile.mkdtemp(prefix="dpkmeans-", dir=short)).resolve()
        return self._home

    def run_app(
        self,
        app: Path,
        *,
        n_nodes: int,
        log: Path,
        watch: Callable[[float], None] = lambda _: None,
    ) -> Finished:
        """Type ``flwr run APP --stream`` and wait for its end.

        Parameters
        ----------
        app : Path
            Folder with the app's ``pyproject.toml``.
        n_nodes : int
            Virtual nodes.
        log : Path
            File for all output.
        watch : callable
            Told the seconds so far, several times a second.

        Returns
        -------
        Finished

        Raises
        ------
        EngineError
            If the time or the memory is up, or the SuperLink ends; all its processes
            are ended then.
        """
        command = [program("flwr"), "run", str(app), "--stream"]
        command += ["--federation-config", federation_config(n_nodes, self.backend)]
        start = time.monotonic()
        self._ensure_started()
        try:
            with log.open("wb") as file:
                process = subprocess.Popen(
                    command,
                    cwd=app,
                    env=environment(self.home, self.backend),
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
                peak = self._wait(process, start, watch)
        except BaseException:
            self.stop()
            raise
        return Finished(process.returncode, _text(log), time.monotonic() - start, peak)

    def stop(self) -> None:
        """End the SuperLink and all that it started; the next run starts another."""
        process, self._process, self.port = self._process, None, None
        if process is not None:
            process.terminate()
            try:
                process.wait(_END_TIMEOUT / 2)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(_END_TIMEOUT)
        if self._home is not None:
            left = end_marked(self._home)
            if left:
                raise EngineError(
                    f"processes {left} of the simulation do not end: end them by hand."
                )

    def close(self) -> None:
        """End everything and remove the home."""
        try:
            self.stop()
        finally:
            if self._home is not None:
                shutil.rmtree(self._home, ignore_errors=True)
            self._home = None
            if self._guard is not None and self._guard.stdin is not None:
                self._guard.stdin.close()
                self._guard.wait(_END_TIMEOUT)
            self._guard = None

    def _ensure_started(self) -> None:
        """Start the SuperLink unless it is there."""
        if self._process is not None and self._process.poll() is None:
            return
        self.stop()
        if self._guard is None:
            own_file = ray_processes.__file__
            self._guard = subprocess.Popen(
                [sys.executable, "-I", own_file, str(self.home)],
                stdin=subprocess.PIPE,
                start_new_session=True,
            )
        for _ in range(_STARTS):
            if self._start():
                return
        raise EngineError(
            "the SuperLink did not start on a port below loopback: look at"
            f" {self._log_file} (kept until the engine is closed). Its last line:"
            f" {_last_line(_text(self._log_file))!r}"
        )

    def _start(self) -> bool:
        """Start once; False if it ended at once, as it does when another process took
        the port meanwhile.
        """
        port = _free_port()
        (self.home / "config.toml").write_text(connection_file(port))
        command = [
            program("flower-superlink"),
            "--insecure",
            "--simulation",
            "--isolation",
            "subprocess",
        ]
        command += ["--host", "127.0.0.1", "--port", str(port)]
        with self._log_file.open("wb") as log:
            process = subprocess.Popen(
                command,
                cwd=self.home,
                env=environment(self.home, self.backend),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._process = process
        deadline = time.monotonic() + _START_TIMEOUT
        while process.poll() is None and time.monotonic() < deadline:
            if _is_healthy(port):
                self.port = port
                return True
            time.sleep(_POLL)
        self.stop()
        return False

    @property
    def _log_file(self) -> Path:
        return self.home / "superlink.log"

    def _wait(
        self,
        process: subprocess.Popen[bytes],
        start: float,
        watch: Callable[[float], None],
    ) -> int:
        """Wait for one run within its bounds; the largest memory seen."""
        peak, looked = 0, -_MEMORY_POLL
        while process.poll() is None:
            seconds = time.monotonic() - start
            if seconds > self.backend.timeout:
                raise EngineError(
                    f"the simulation took longer than {self.backend.timeout:g} s and"
                    " was ended: raise the engine's timeout, or take fewer nodes or"
                    " rounds."
                )
            if self._process is None or self._process.poll() is not None:
                last = _last_line(_text(self._log_file))
                raise EngineError(
                    f"the SuperLink ended during the run, with {last!r} as its last"
                    " line: run again."
                )
            if seconds - looked >= _MEMORY_POLL:
                looked, now = seconds, used_bytes(self.home)
                peak = max(peak, now)
                self._require_memory(now)
            watch(seconds)
            time.sleep(_POLL)
        return peak

    def _require_memory(self, now: int) -> None:
        """End a run that takes more than it may."""
        limit = self.backend.max_bytes
        if limit is not None and now > limit:
            raise EngineError(
                f"the simulation took {now / 1e9:.1f} GB, more than"
                f" max_bytes={limit / 1e9:.1f} GB, and was ended: take fewer CPUs"
                " (init_args_num_cpus), as each is a worker with data of its own, or"
                " raise max_bytes."
            )


def _free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _is_healthy(port: int) -> bool:
    """Whether a SuperLink answers."""
    try:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{port}/health", timeout=1.0
        ) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _text(path: Path) -> str:
    """A log's text; empty if there is none."""
    return path.read_text(errors="replace") if path.is_file() else ""


def _last_line(text: str) -> str:
    """The last line that is not empty."""
    return next(
        (line.strip() for line in reversed(text.splitlines()) if line.strip()), ""
    )
