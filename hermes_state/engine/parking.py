"""Connections that may not be closed now, and what a forked child does with those of its parent.

Invariant: a connection is never rolled back or closed while that would unlock bytes that another SQLite library in this
process believes to have, or write over what another process commits. It is parked instead: kept as it is, until the
reason is gone or the process ends. Python's own garbage collection cannot close it either.

Not for: deciding that something is wrong (see `guarded.py`). Closing anyway and reporting it was rejected: the harm is
done by then (measured: the other library's COMMIT says ok and its row is gone).
"""

from __future__ import annotations

import ctypes
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakSet

import apsw

from hermes_state.engine.descriptors import REGISTRY
from hermes_state.engine.translate import translated
from hermes_state.errors import SecondSQLite

if TYPE_CHECKING:
    from hermes_state.engine.guarded import Guarded

LIVE: WeakSet[Guarded] = WeakSet()
_PARKED: list[Guarded] = []


def park(link: Guarded) -> None:
    """Keep the connection of `link` open. The caller holds the registry's lock."""
    _keep_for_ever(link.raw_connection)
    _PARKED.append(link)


def close_parked() -> None:
    """Close parked connections whose reason is gone. The caller holds the registry's lock."""
    for link in list(_PARKED):
        if not REGISTRY.strangers(link.path, link.identities) and link.may_roll_back():
            _PARKED.remove(link)
            roll_back_and_close(link.raw_connection, link.path)
            REGISTRY.leave(link.token)


def roll_back_and_close(connection: apsw.Connection, path: Path) -> None:
    """End any transaction and close; SQLite makes no checkpoint, since that is configured off."""
    with suppress(apsw.Error):  # a failed rollback leaves nothing that closing would not undo
        if connection.in_transaction:
            connection.execute("ROLLBACK").fetchall()
    with translated(path, "closing"):
        connection.close(True)


def second_sqlite(path: Path, strangers: tuple[int, ...], what: str) -> SecondSQLite:
    """The error for a store that another SQLite library (or plain `open`) has open in this process."""
    listed = ", ".join(map(str, strangers))
    return SecondSQLite(
        f"{path} is also open in this process by other means than this library (descriptor {listed}); it was {what}. "
        "Two SQLite libraries on one file in one process cancel each other's locks and lose commits.",
        hint="Close the other connection first, or do this work in a process of its own.",
        path=path, descriptors=strangers,
    )


def _keep_for_ever(connection: apsw.Connection) -> None:
    """Keep Python from ever closing this connection, at the end of the interpreter too."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


def _leave_to_parent() -> None:
    """In a forked child: nothing that was inherited may be rolled back or closed, and no lock may stay taken."""
    for link in [*LIVE, *_PARKED]:
        _keep_for_ever(link.raw_connection)
        link.forget_locks(threading.RLock())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)
