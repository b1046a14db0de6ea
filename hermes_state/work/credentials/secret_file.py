"""A file of one credential's secrets, for callers that have no secret store of their own.

Invariant: the file is ours alone (0600, no link), and is at every moment the whole old or the whole new content: what
is new is written beside it, flushed, renamed over it, and the folder flushed, before `store` returns. A file that
others can read is refused and not repaired, because whoever could read it may have.

Not for: a store's own files, nor files that other programs write too. A key from the operating system's key chain was
rejected as the default: gateways run where there is none.
"""

from __future__ import annotations

import contextlib
import os
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

_MOST_BYTES = 4 * 2**20
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
        """Keep this, for good: when it returns, a power cut does not take it back. Called by the lease's owner."""


class SecretFile:
    """`load` and `store` on one JSON file. Safe for threads and processes; the lease lets one write at a time."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.abspath(os.fspath(path)))

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

    def store(self, secrets: Secrets) -> None:
        """Write, flush, rename, flush the folder, which is made (0700) where there is none. Raises `OSError`."""
        content: dict[str, Any] = {"format": _FORMAT, **{name: getattr(secrets, name) for name in (*_TOKENS, *_TIMES)}}
        content |= {"others": dict(secrets.others), "extra": None if secrets.extra is None else dict(secrets.extra)}
        raw = json_values.dump(content).encode()
        folder = self.path.parent
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in folder.glob(f".{self.path.name}.*.new"):  # of a writer that was killed; there is one at a time
            with contextlib.suppress(FileNotFoundError):
                left.unlink()
        beside = folder / f".{self.path.name}.{random.token_hex(8)}.new"
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_LINK | CLOSE_ON_EXEC | BINARY, 0o600)
        try:
            with open(descriptor, "wb") as out:
                out.write(raw)
                out.flush()
                os.fsync(descriptor)
            os.replace(beside, self.path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                beside.unlink()
            raise
        sync_folder(folder)

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
    named = {name: found.pop(name, None) for name in (*_TOKENS, *_TIMES)}
    # What a newer release has put there stays with the secrets.
    return Secrets(others={**others, **found}, extra=extra, **named)
