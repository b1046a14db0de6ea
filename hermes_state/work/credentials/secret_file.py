"""A file of one credential's secrets, for callers that have no secret store of their own.

Invariant: the file is ours alone (0600, no link), and is at every moment the whole old or the whole new content: what
is new is written beside it, flushed, renamed over it, and the folder flushed, before `store` returns. A file that
others can read is refused and not repaired, because whoever could read it may have.

Not for: a store's own files, nor files that other programs write too. A key from the operating system's key chain was
rejected as the default: gateways run where there is none.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import secrets as random
import stat
from pathlib import Path
from typing import Any, Protocol

from hermes_state import json_values
from hermes_state.errors import InvalidInput, SecretFileRefused
from hermes_state.file_lock import BINARY, CLOSE_ON_EXEC, NO_LINK
from hermes_state.flushing import sync_folder
from hermes_state.shell_words import shell_word
from hermes_state.work.credentials.secrets import Secrets

_MOST_BYTES = 8 * 2**20  # three tokens and the other secrets at their largest, each character escaped
# Room that is set aside at least: two usual contents.
_LEAST_ROOM = 65_536
_TOKENS = ("access_token", "refresh_token", "agent_key")
_TIMES = ("expires_at", "agent_key_expires_at", "written_at")
_FORMAT = 1
# A pipe in the file's place is refused, not waited for.
_NO_WAIT: int = getattr(os, "O_NONBLOCK", 0)


class SecretStore(Protocol):
    """Where the caller keeps the secrets of one credential."""

    def load(self) -> Secrets | None:
        """What is there now; None when nothing is. Called often, also by processes without the lease."""

    def store(self, secrets: Secrets) -> None:
        """Keep this, for good: when it returns, a power cut does not take it back. Called by the lease's owner.

        Also `belongs_to` and `written_at` of it: without them an old copy and a second owner are not known.
        """


class Reserving(SecretStore, Protocol):
    """One that can set room aside before a token is sent, as `SecretFile` does."""

    def reserve(self) -> None:
        """Let the next `store` not fail for want of room, or raise `OSError` now."""

    def release(self) -> None:
        """Give back what was set aside and not used."""


class SecretFile:
    """`load` and `store` on one JSON file. Safe for threads and processes; the lease lets one write at a time."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.abspath(os.fspath(path)))
        self._reserved: list[Path] = []

    def __repr__(self) -> str:
        return f"<SecretFile {self.path}>"

    def load(self) -> Secrets | None:
        """What the file has; None without one. Raises `SecretFileRefused` when it is not ours alone, or damaged."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | NO_LINK | _NO_WAIT | CLOSE_ON_EXEC | BINARY)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._refused(f"it cannot be opened ({os.strerror(error.errno or 0)})") from error
        try:
            self._check(os.fstat(descriptor))
        except BaseException:
            os.close(descriptor)
            raise
        with open(descriptor, "rb") as source:
            raw = source.read(_MOST_BYTES + 1)
        try:
            if len(raw) > _MOST_BYTES:
                raise ValueError
            found = json_values.load(raw.decode())
            if not isinstance(found, dict) or found.pop("format", None) != _FORMAT:
                raise ValueError
            return _secrets(found)
        except (ValueError, TypeError, InvalidInput):
            # Without the cause, which has the text of the file in it.
            raise self._refused("it is not what was written here") from None

    def reserve(self) -> None:
        """Set room aside for the next `store`, which then cannot fail for want of it. Raises `OSError`.

        For the one who is about to ask for a new token: a full disk is told before it is sent.
        """
        if self._reserved:
            return
        beside, descriptor = self._create()
        try:
            size = self.path.stat().st_size if self.path.exists() else 0
            _fill(descriptor, max(_LEAST_ROOM, 2 * size))
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                beside.unlink()
            raise
        finally:
            os.close(descriptor)
        self._reserved.append(beside)

    def release(self) -> None:
        """Give back what `reserve` has set aside, if `store` has not used it."""
        while self._reserved:
            with contextlib.suppress(FileNotFoundError):
                self._reserved.pop().unlink()

    def store(self, secrets: Secrets) -> None:
        """Write, flush, rename, flush the folder, which is made (0700) where there is none.

        Raises `OSError`, and `InvalidInput` for more than is loaded again.
        """
        content: dict[str, Any] = {"format": _FORMAT, **{name: getattr(secrets, name) for name in (*_TOKENS, *_TIMES)}}
        content |= {"others": dict(secrets.others), "extra": None if secrets.extra is None else dict(secrets.extra)}
        if secrets.belongs_to is not None:
            content["belongs_to"] = secrets.belongs_to
        # In ASCII: what a provider says may be a text that UTF-8 cannot write, and an error would have it all in it.
        raw = json.dumps(content, separators=(",", ":"), allow_nan=False).encode()
        if len(raw) > _MOST_BYTES:
            raise InvalidInput(
                f"The secrets for {self.path} are {len(raw):,} bytes, more than {_MOST_BYTES:,}.", argument="secrets"
            )
        beside = self._take()
        try:
            self._write(beside, raw)
            os.replace(beside, self.path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                beside.unlink()
            raise
        sync_folder(self.path.parent)

    def _take(self) -> Path:
        """The file beside that is written next: the one that was reserved, or a new one."""
        try:
            beside = self._reserved.pop()
        except IndexError:
            pass
        else:
            if beside.exists():
                return beside
        beside, descriptor = self._create()
        os.close(descriptor)
        return beside

    def _write(self, beside: Path, raw: bytes) -> None:
        descriptor = os.open(beside, os.O_WRONLY | NO_LINK | CLOSE_ON_EXEC | BINARY)
        with open(descriptor, "wb") as out:
            out.write(raw)
            out.truncate()
            out.flush()
            os.fsync(descriptor)

    def _create(self) -> tuple[Path, int]:
        folder = self.path.parent
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        named = re.compile(rf"\.{re.escape(self.path.name)}\.[0-9a-f]{{16}}\.new")
        for left in folder.iterdir():  # of a writer that was killed; there is one at a time
            if named.fullmatch(left.name):
                with contextlib.suppress(FileNotFoundError):
                    left.unlink()
        beside = folder / f".{self.path.name}.{random.token_hex(8)}.new"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_LINK | CLOSE_ON_EXEC | BINARY
        return beside, os.open(beside, flags, 0o600)

    def _check(self, found: os.stat_result) -> None:
        if not stat.S_ISREG(found.st_mode):
            raise self._refused("it is no regular file")
        if not hasattr(os, "getuid"):
            return  # Windows: the folder's rights say who reads it
        if found.st_uid != os.getuid():
            raise self._refused(f"it belongs to user {found.st_uid}, and this process runs as {os.getuid()}")
        if found.st_mode & 0o077:
            raise self._refused(
                f"others can reach it (mode {stat.S_IMODE(found.st_mode):04o})",
                f"Log in anew if somebody may have read it; then `chmod 600 {shell_word(self.path)}`.",
            )

    def _refused(self, why: str, hint: str = "") -> SecretFileRefused:
        return SecretFileRefused(
            f"The secret file {self.path} is not used: {why}.",
            hint=hint or f"Look at it with `ls -l {shell_word(self.path)}`; a new login writes it anew.",
            path=self.path, why=why,
        )


def _secrets(found: dict[str, Any]) -> Secrets:
    others, extra = found.pop("others", None) or {}, found.pop("extra", None)
    belongs_to = found.pop("belongs_to", None)
    named = {name: found.pop(name, None) for name in (*_TOKENS, *_TIMES)}
    # What a newer release has put there stays with the secrets.
    return Secrets(others={**others, **found}, extra=extra, belongs_to=belongs_to, **named)


def _fill(descriptor: int, size: int) -> None:
    """Let the system set so many bytes aside for a file; written where it has no other way."""
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(descriptor, 0, size)
            return
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                raise
    os.write(descriptor, bytes(size))
