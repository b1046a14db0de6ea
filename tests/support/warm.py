"""`python -m tests.support.warm`: one process that has everything imported and forks a run of the program on request.

Invariant: each run is a process of its own, with its own standard streams, environment, folder and exit status; the
one that forks never opens a store, starts no thread and runs no command, so a run inherits no connection and no lock.
A request is one JSON object on a socket, with the run's three streams and a socket for its pid and exit status.

Not for: what an interpreter's start is part of (`python -P -c ...`, options, `PYTHON*`, a locale, another user, a
wrapper), nor for whether a command imports all that it uses: `RunCli` starts an interpreter then. One for every run
was rejected: 40 to 250 ms of imports before 5 ms of work were a third of the suite.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import pkgutil
import select
import selectors
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

PACKAGES = ("lockowners", "hermes_state", "cron_store", "maintenance")
# What commands import inside of their functions. sqlite-utils is not here: it brings a second SQLite library.
LATER = (
    "asyncio", "croniter", "psutil", "rich.console", "rich.progress", "rich.table", "rich.text", "watchfiles",
    "zstandard",
)
# What an interpreter reads at its start, and what the audit hook was told then.
AT_START = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_", "HERMES_STATE_AUDIT_REPORT")
_STATUS = struct.Struct("ii")


def _at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(AT_START)}


class Warm:
    """The process that forks runs; started by the first of them, and ended by `close` or with this process."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._environment: dict[str, str] = {}
        self._owner = os.getpid()
        self._lock = threading.Lock()

    def fits(self, environment: Mapping[str, str]) -> bool:
        """Whether a run in this environment may be forked."""
        return hasattr(os, "pidfd_open") and self._owner == os.getpid() and (
            self._process is None or _at_start(environment) == self._environment
        )

    def run(
        self, program: str, arguments: Sequence[str], *, environment: Mapping[str, str], folder: Path, input: bytes,
        timeout: float,
    ) -> tuple[int, bytes, bytes]:
        """Exit status (negative: a signal), standard output and standard error. Raises `subprocess.TimeoutExpired`."""
        request = json.dumps({
            "program": program, "arguments": list(arguments), "environment": dict(environment), "folder": str(folder),
            "umask": _umask(),
        }).encode(errors="surrogateescape")
        streams = [os.pipe() for _ in range(3)]
        ours, theirs = socket.socketpair()
        passed = [streams[0][0], streams[1][1], streams[2][1], theirs.fileno()]
        try:
            with self._lock:
                _send(self._started(environment), request, passed)
        finally:
            for descriptor in passed[:3]:
                os.close(descriptor)
            theirs.close()
        with ours:
            try:
                pid, _ = _STATUS.unpack(_exactly(ours, _STATUS.size))
                out, err = _exchange(streams[0][1], streams[1][0], streams[2][0], input, pid, arguments, timeout)
                _, status = _STATUS.unpack(_exactly(ours, _STATUS.size))
            except EOFError as error:
                raise AssertionError(f"the process that forks runs has ended: {self.close()}") from error
        return status, out, err

    def close(self) -> str:
        """End the process; what it said on standard error."""
        if self._process is None or self._socket is None:
            return ""
        self._socket.close()
        said = self._process.communicate(timeout=60)[1]
        self._process = None
        return said.decode(errors="replace")

    def _started(self, environment: Mapping[str, str]) -> socket.socket:
        if self._process is None or self._socket is None:
            self._environment = _at_start(environment)
            self._socket, theirs = socket.socketpair()
            with theirs:
                # Pipes, as a run has: Python asks at its start whether they can seek.
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "tests.support.warm", str(theirs.fileno())], env=dict(environment),
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=[theirs.fileno()],
                )
        return self._socket


def _umask() -> int:
    current = os.umask(0o077)
    os.umask(current)
    return current


def _send(through: socket.socket, request: bytes, descriptors: Sequence[int]) -> None:
    head = struct.pack("I", len(request))
    socket.send_fds(through, [head], list(descriptors))
    through.sendall(request)


def _receive(through: socket.socket) -> tuple[bytes, list[int]] | None:
    head, descriptors, _flags, _address = socket.recv_fds(through, 4, 4)
    if not head:
        return None
    return _exactly(through, struct.unpack("I", head)[0]), descriptors


def _exactly(through: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        part = through.recv(count - len(found))
        if not part:
            raise EOFError
        found += part
    return found


def _exchange(
    stdin: int, stdout: int, stderr: int, input: bytes, pid: int, arguments: Sequence[str], timeout: float
) -> tuple[bytes, bytes]:
    """Write all of the input and read both outputs to their ends."""
    found: dict[int, list[bytes]] = {stdout: [], stderr: []}
    deadline = time.monotonic() + timeout
    os.set_blocking(stdin, False)
    with selectors.DefaultSelector() as waiting:
        for descriptor in found:
            waiting.register(descriptor, selectors.EVENT_READ)
        if input:
            waiting.register(stdin, selectors.EVENT_WRITE)
        else:
            os.close(stdin)
        while waiting.get_map():
            ready = waiting.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(list(arguments), timeout)
            for key, _events in ready:
                if key.fd == stdin:
                    with contextlib.suppress(BrokenPipeError):
                        input = input[os.write(stdin, input[: select.PIPE_BUF]) :]
                        if input:
                            continue
                elif part := os.read(key.fd, 65_536):
                    found[key.fd].append(part)
                    continue
                waiting.unregister(key.fd)
                os.close(key.fd)
    return b"".join(found[stdout]), b"".join(found[stderr])


def import_all() -> None:
    """Import the program, before the first fork, and keep the collector from touching it in every forked process."""
    for name in PACKAGES:
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            if not module.name.endswith("__main__") and ".testing" not in module.name:
                importlib.import_module(module.name)
    for name in LATER:
        importlib.import_module(name)
    if "sqlite3" in sys.modules or threading.active_count() > 1:
        raise AssertionError("an import brought a second SQLite library, or a thread, into every run")
    gc.collect()
    gc.freeze()


def serve(through: socket.socket) -> None:
    """Fork runs until the other end is closed."""
    import_all()
    running: dict[int, tuple[int, socket.socket]] = {}  # by pidfd
    with selectors.EpollSelector() as waiting:
        waiting.register(through, selectors.EVENT_READ)
        while True:
            for key, _events in waiting.select():
                if key.fd != through.fileno():
                    pid, told = running.pop(key.fd)
                    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                    waiting.unregister(key.fd)
                    os.close(key.fd)
                    with told, contextlib.suppress(BrokenPipeError):
                        told.send(_STATUS.pack(pid, status))
                    continue
                received = _receive(through)
                if received is None:
                    return
                request, descriptors = received
                pid = os.fork()
                if pid == 0:
                    inherited = [through.fileno(), *running, *(told.fileno() for _, told in running.values())]
                    _run(json.loads(request), descriptors, [*inherited, waiting.fileno()])
                for descriptor in descriptors[:3]:
                    os.close(descriptor)
                told = socket.socket(fileno=descriptors[3])
                told.send(_STATUS.pack(pid, 0))
                followed = os.pidfd_open(pid)
                running[followed] = pid, told
                waiting.register(followed, selectors.EVENT_READ)


def _run(request: dict[str, Any], descriptors: Sequence[int], inherited: Sequence[int]) -> NoReturn:
    """In the forked process: become the program."""
    status = 1
    try:
        for number, descriptor in enumerate(descriptors[:3]):
            os.dup2(descriptor, number)
        for descriptor in (*descriptors, *inherited):
            os.close(descriptor)
        os.environ.clear()
        os.environ.update(request["environment"])
        time.tzset()
        tempfile.tempdir = None
        os.chdir(request["folder"])
        os.umask(request["umask"])
        sys.argv = [request["program"], *request["arguments"]]
        import maintenance.entry

        maintenance.entry.hermes_state()
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


WARM = Warm()

if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as ours:
        serve(ours)
