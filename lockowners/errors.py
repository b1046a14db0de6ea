"""Errors of the package, a small tree of its own because nothing here may import `hermes_state`.

Invariant: an error here means the question could not be asked at all. What was asked and only partly answered is not an
error: it is a `Scan` or a `LockReport` with `complete` false and the hidden part named.

Not for: saying that somebody holds the store. That is a result, and the caller decides what it forbids.
"""

from __future__ import annotations

from typing import Any


class LockOwnersError(Exception):
    """Base of the tree. `path` is the store that was asked about."""

    code = "lock_owners_error"

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.message, self.path))


def _rebuild(kind: type[LockOwnersError], message: str, path: str) -> LockOwnersError:
    return kind(message, path=path)


class NoSuchStore(LockOwnersError):
    """The caller's fault: neither the file nor a sidecar exists, and no process has a deleted one open."""

    code = "no_such_store"


class StoreUnreachable(LockOwnersError):
    """The file system refused to say which file the path means, so no holder can be matched to it."""

    code = "store_unreachable"


class LockTableUnreadable(LockOwnersError):
    """The kernel's lock table cannot be read here (not Linux, or masked by a sandbox)."""

    code = "lock_table_unreadable"


class ProbeUnsupported(LockOwnersError):
    """This platform has no lock probe whose layout is known to us."""

    code = "probe_unsupported"
