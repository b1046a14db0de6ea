"""Asking a gateway who it is, and answering: one line each way over a socket in the host's folder.

Invariant: an answer counts only when it comes from a process of our own uid and names the nonce that the record names.
Both ends are bounded: 64 KiB in, 512 KiB out, and a time. A socket gets its name when it is listened on, so one under
that name that refuses is of a dead process; it is closed in a forked child.

Not for: judging answers (see `decision`). A network port was rejected: anybody could answer on it, and a port that is
used again answers for somebody else.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from hermes_state.errors import CannotOpen
from hermes_state.host.facts import Answer, Party
from hermes_state.host.folder import our_uid
from hermes_state.host.forked import guarded
from hermes_state.host.states import RunState

Item = TypeVar("Item")
Found = TypeVar("Found")
FOLDER = "answers"
MOST_IN_BYTES = 64 * 1024
MOST_OUT_BYTES = 512 * 1024
PATIENCE_SECONDS = 2.0
_REST_SECONDS = 0.1  # after a call that could not be taken
_LONGEST_NAME = 96  # bytes of a socket's path that every system takes, without the ending while it is made
_NONCE_LETTERS, _SUFFIX, _MAKING = 16, ".sock", ".new"
_AT_ONCE = 16  # questions
_NO_ANSWER = (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError)


class Question(StrEnum):
    """What can be asked."""

    IDENTIFY = "identify"
    RESCAN = "rescan"  # look for homes that are not served yet, then say the same


def socket_path(folder: Path, nonce: str) -> Path:
    """Where the process with this nonce answers."""
    return folder / FOLDER / f"{nonce[:_NONCE_LETTERS]}{_SUFFIX}"


def ask(party: Party, question: Question, seconds: float = PATIENCE_SECONDS) -> Answer | None:
    """Ask a gateway; None when nobody answers, not in time, nothing that can be read, or as somebody else."""
    if not party.socket or party.identity is None or not hasattr(socket, "AF_UNIX"):
        return None
    try:
        answer = _asked(Path(party.socket), question, seconds)
    except _NO_ANSWER:
        return None  # no answer is what the caller is told; why makes no difference to a verdict
    return answer if answer.nonce == party.identity.nonce else None


def unlisted(
    folder: Path, listed: Collection[str], seconds: float = PATIENCE_SECONDS
) -> list[tuple[str, Answer | None]]:
    """Ask whoever answers in the folder of sockets and has none of the `listed` nonces; sockets and answers.

    What refuses is dead and left out. None for one that is there and says nothing, or nothing as the one that its
    socket is named for.
    """
    known = {nonce[:_NONCE_LETTERS] for nonce in listed}
    paths = [path for path in _sockets(folder) if path.stem not in known]

    def one(path: Path) -> tuple[str, Answer | None] | None:
        try:
            said = _asked(path, Question.IDENTIFY, seconds)
        except (ConnectionRefusedError, FileNotFoundError, PermissionError):
            return None
        except _NO_ANSWER:
            return str(path), None
        return str(path), said if said.nonce.startswith(path.stem) else None

    return [found for found in at_once(one, paths) if found is not None]


def sweep(folder: Path) -> int:
    """Remove the sockets of dead processes; gives how many went. What another user's process owns stays."""
    removed = 0
    for path in _sockets(folder):
        try:
            with _short(path) as name, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
                line.settimeout(0.0)
                line.connect(name)
        except ConnectionRefusedError:
            with suppress(OSError):
                os.unlink(path)
                removed += 1
        except OSError:
            continue  # it lives and is busy, or went meanwhile
    return removed


def at_once(ask_one: Callable[[Item], Found], items: Sequence[Item]) -> list[Found]:
    """Ask several at the same time, so that those who are silent cost the time of one."""
    if len(items) < 2:
        return [ask_one(item) for item in items]
    with ThreadPoolExecutor(min(len(items), _AT_ONCE), thread_name_prefix="hermes-host-asks") as pool:
        return list(pool.map(ask_one, items))


def _sockets(folder: Path) -> list[Path]:
    try:
        names = sorted(os.listdir(folder / FOLDER)) if hasattr(socket, "AF_UNIX") else []
    except OSError:
        return []  # nobody answers there
    return [folder / FOLDER / name for name in names if name.endswith(_SUFFIX)]


def _asked(path: Path, question: Question, seconds: float) -> Answer:
    """One question over one socket. Raises one of `_NO_ANSWER`."""
    with _short(path) as name, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        deadline = time.monotonic() + seconds
        line.settimeout(seconds)
        line.connect(name)
        if not _is_our_user(line):
            raise PermissionError(f"{path} is another user's")
        line.sendall(json.dumps({"question": question}).encode() + b"\n")
        said = _line(line, MOST_OUT_BYTES, deadline)
    return answer_from(json.loads(said))


def answer_from(said: dict[str, Any]) -> Answer:
    """An answer as it came over the line. When it is none, raises `KeyError`, `TypeError`, `ValueError` or
    `OverflowError` (a pid without an end).
    """
    served, multiplex, home = said["served"], said["multiplex"], said.get("home")
    if not (multiplex is None or isinstance(multiplex, bool)) or not (home is None or isinstance(home, str)):
        raise TypeError("multiplex or home")
    if served is not None and not (isinstance(served, list) and all(isinstance(one, str) for one in served)):
        raise TypeError("served")
    return Answer(
        nonce=str(said["nonce"]), pid=int(said["pid"]), home=home, state=RunState(said["state"]), multiplex=multiplex,
        served=None if served is None else frozenset(served), code_sha=said.get("code_sha"),
    )


def answer_to(answer: Answer) -> dict[str, Any]:
    """The form that goes over the line."""
    return {
        "nonce": answer.nonce, "pid": answer.pid, "home": answer.home, "state": str(answer.state),
        "multiplex": answer.multiplex, "served": None if answer.served is None else sorted(answer.served),
        "code_sha": answer.code_sha,
    }


class Answering:
    """A thread that answers for this process until `close`."""

    def __init__(self, path: Path, answer: Callable[[Question], Answer | None]) -> None:
        """Raises `CannotOpen` when the socket cannot be made. `answer` is called in that thread; None: say nothing."""
        self.path = path
        self._answer = answer
        self._closed = False
        self._ending = threading.Event()
        # The last question that got no answer, and why; None while all did.
        self.failure: Exception | None = None
        self._listening: socket.socket | None = None
        try:
            if not hasattr(socket, "AF_UNIX"):
                raise OSError(0, "this system has no such sockets")
            path.parent.mkdir(mode=0o700, exist_ok=True)
            with _short(path) as name, guarded() as kept:
                self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                kept.add(self)
                # The name has a nonce in it: what lies there was left by this process.
                staged = Path(f"{path}{_MAKING}")
                with suppress(FileNotFoundError):
                    os.unlink(staged)
                self._listening.bind(f"{name}{_MAKING}")
                os.chmod(staged, 0o600)
                self._listening.listen(64)
                os.rename(staged, path)
        except OSError as error:
            self._drop()
            raise CannotOpen(
                f"{path} cannot be made, so this process cannot say who it is ({error}).",
                hint="Check who owns that folder, and that its path has less than 100 characters.",
                path=path, errno=error.errno or 0,
            ) from error
        self._thread = threading.Thread(target=self._serve, name="hermes-host-answers", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop answering. Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        self._ending.set()
        if self._listening is not None:
            with suppress(OSError):  # not connected any more: there is nothing to wake
                self._listening.shutdown(socket.SHUT_RDWR)
        self._drop()
        with suppress(FileNotFoundError):
            os.unlink(self.path)
        if threading.current_thread() is not self._thread:
            self._thread.join(PATIENCE_SECONDS)

    def forget(self) -> None:
        """For `forked`."""
        self._closed = True
        if self._listening is not None:
            self._listening.close()

    def _drop(self) -> None:
        with guarded() as kept:
            kept.discard(self)
            if self._listening is not None:
                self._listening.close()

    def _serve(self) -> None:
        while not self._closed and self._listening is not None:
            try:
                line, _from = self._listening.accept()
            except OSError as error:
                if not self._closed:
                    self.failure = error
                # No descriptor is free, say: that passes, and until then it is not tried all the time.
                self._ending.wait(_REST_SECONDS)
                continue
            with line:
                # One that asks and then says nothing costs its own time only: the next waits in the queue until then.
                try:
                    line.settimeout(PATIENCE_SECONDS)
                    self._answer_one(line)
                except Exception as error:  # whatever the owner's own function raises: it goes on answering others
                    self.failure = error

    def _answer_one(self, line: socket.socket) -> None:
        if not _is_our_user(line):
            return
        question = Question(json.loads(_line(line, MOST_IN_BYTES, time.monotonic() + PATIENCE_SECONDS))["question"])
        answer = self._answer(question)
        if answer is None:
            return  # the line ends without a word, so whoever asked need not wait
        said = json.dumps(answer_to(answer)).encode() + b"\n"
        line.settimeout(PATIENCE_SECONDS)  # what is left of it was for the question
        line.sendall(said)


def _line(line: socket.socket, most: int, deadline: float) -> bytes:
    """What comes before the end of the line. The time is for all of it: parts that come one by one gain none."""
    found = bytearray()
    while b"\n" not in found:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("it took too long")
        line.settimeout(left)
        part = line.recv(65536)
        if not part:
            break
        found += part
        if len(found) > most:
            raise ValueError("too long")
    return bytes(found.partition(b"\n")[0])


def _is_our_user(line: socket.socket) -> bool:
    if not hasattr(socket, "SO_PEERCRED"):
        return True  # the folder is 0700: nobody else gets there
    said = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return bool(struct.unpack("3i", said)[1] == our_uid())


@contextmanager
def _short(path: Path) -> Iterator[str]:
    """A name for a socket that is short enough for the kernel, however deep its folder lies."""
    if len(os.fsencode(path)) <= _LONGEST_NAME or not sys.platform.startswith("linux"):
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
