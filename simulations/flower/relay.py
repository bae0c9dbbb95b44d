"""A relay on loopback that counts the bytes of all connections through it."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass

HOST = "127.0.0.1"
_CHUNK = 65_536


@dataclass(frozen=True)
class Traffic:
    """Bytes that went through.

    Parameters
    ----------
    up, down : int
        From those who connect to the target, and back.
    """

    up: int = 0
    down: int = 0

    @property
    def total(self) -> int:
        """Both directions."""
        return self.up + self.down

    def __sub__(self, earlier: Traffic) -> Traffic:
        return Traffic(self.up - earlier.up, self.down - earlier.down)


class Relay:
    """What `relayed` hands out.

    Parameters
    ----------
    target : int
        Port that everything is passed on to.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server((HOST, 0))
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._up = self._down = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        """Where to connect to."""
        return int(self._listener.getsockname()[1])

    @property
    def traffic(self) -> Traffic:
        """What has gone through so far, requests and replies of any kind, but no
        headers of TCP.
        """
        with self._lock:
            return Traffic(self._up, self._down)

    def close(self) -> None:
        """End all connections."""
        with contextlib.suppress(OSError):
            # Closing alone leaves a thread in accept.
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            sockets = list(self._open)
        for socket_ in sockets:
            with contextlib.suppress(OSError):
                socket_.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        """Take connections until the listener is closed."""
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection((HOST, self._target), timeout=5.0)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            with self._lock:
                self._open |= {near, far}
            ends = _Ends(near, far)
            for upward in (True, False):
                threading.Thread(
                    target=self._pass_on, args=(ends, upward), daemon=True
                ).start()

    def _pass_on(self, ends: _Ends, upward: bool) -> None:
        """Copy one direction of a connection until it ends."""
        source, sink = (ends.near, ends.far) if upward else (ends.far, ends.near)
        with contextlib.suppress(OSError):
            while chunk := source.recv(_CHUNK):
                with self._lock:
                    self._up += len(chunk) if upward else 0
                    self._down += 0 if upward else len(chunk)
                sink.sendall(chunk)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)
        if ends.both_done():
            with self._lock:
                self._open -= {ends.near, ends.far}
            ends.near.close()
            ends.far.close()


class _Ends:
    """Both sockets of one connection, closed by whichever direction ends last."""

    def __init__(self, near: socket.socket, far: socket.socket) -> None:
        self.near, self.far = near, far
        self._first_done = threading.Lock()

    def both_done(self) -> bool:
        """Whether the other direction had ended before."""
        return not self._first_done.acquire(blocking=False)


@contextlib.contextmanager
def relayed(target: int) -> Iterator[Relay]:
    """Relay connections to a port of this machine for the duration.

    Parameters
    ----------
    target : int
        Port.

    Yields
    ------
    Relay
        With a port of its own.
    """
    relay = Relay(target)
    try:
        yield relay
    finally:
        relay.close()
