"""When an instance was last heard of: in memory at once, in the store some minutes coarse.

Invariant: a connect, a ping and a disconnect write nothing. A timer writes, each instance at most once in
`EVERY_SECONDS`, up to `MOST` of them in one transaction, the others with the next call; a time that goes back is not
written. After a crash the stored time is too old by at most that much. What was removed has no time, and gets none from
a server that heard of it before.

Not for: whether an instance is connected (see `connections`). Writing it with each connect was rejected: it is one
commit a socket blip, and wakes all who follow the changes of instances. Keeping a time that lies ahead was rejected: a
clock that was a year ahead for a minute would say "seen" for a year.
"""

from __future__ import annotations

import threading
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction
    from hermes_state.engine.core import Core

# The N of "at most once in N minutes": people ask for "today" or "since Monday", not for seconds.
EVERY_SECONDS = 600.0
MOST_AHEAD_SECONDS = 86_400.0
# In one transaction: 1,000 hold the write lock for some 10 ms, and 10,000 that come back at once take 10 s.
MOST = 1000


class LastSeen:
    """What was heard since the server started, and writing it. Safe for threads."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._lock = threading.Lock()
        self._heard: dict[str, float] = {}
        self._written: dict[str, float] = {}

    def note(self, instance_id: str) -> None:
        """It was heard of now: a frame or a pong came. In memory only."""
        at = self._core.clock.now()
        with self._lock:
            before = self._heard.get(instance_id, at)
            self._heard[instance_id] = at if _ahead(before, at) else max(at, before)

    def write(self) -> int:
        """Store what is due, in one transaction; gives how many instances that were. To be called by a timer."""
        at = self._core.clock.now()
        with self._lock:
            due = dict(islice(
                (
                    (name, heard) for name, heard in self._heard.items()
                    if heard - (written := self._written.get(name, float("-inf"))) >= EVERY_SECONDS
                    or _ahead(written, at)
                ),
                MOST,
            ))
        if not due:
            return 0
        with self._core.reader() as reader:
            for name in list(due):
                if not _is_there(reader, name):  # removed since it was heard of
                    self.forget(name)
                    del due[name]
                    continue
                stored = read(reader, name)  # by an earlier server, or by one that is still there
                if stored is not None and due[name] - stored < EVERY_SECONDS and not _ahead(stored, at):
                    self._remember({name: stored})
                    del due[name]
        if not due:
            return 0
        self._core.write(lambda tx: _write(tx, due, at=at))
        self._remember(due)
        return len(due)

    def _remember(self, written: dict[str, float]) -> None:
        with self._lock:
            self._written.update({name: at for name, at in written.items() if name in self._heard})

    def forget(self, instance_id: str) -> None:
        """Let go of an instance that was removed, in memory; `forget` of this module does it in the store."""
        with self._lock:
            self._heard.pop(instance_id, None)
            self._written.pop(instance_id, None)


def _write(tx: Transaction, due: dict[str, float], *, at: float) -> None:
    # The guard is inside the statement: two servers on one store write no more often than one.
    tx.executemany(
        "INSERT INTO gateway_last_seen (instance_id, seen_at) SELECT ?1, ?2 WHERE EXISTS (SELECT 1 FROM"
        " gateway_instances WHERE instance_id = ?1 AND removed_at IS NULL) ON CONFLICT (instance_id)"
        " DO UPDATE SET seen_at = excluded.seen_at WHERE excluded.seen_at - seen_at >= ?3 OR seen_at - ?4 > ?5",
        [(name, min(heard, at), EVERY_SECONDS, at, MOST_AHEAD_SECONDS) for name, heard in due.items()],
    )


def _ahead(told: float, at: float) -> bool:
    """Whether a time was told by a clock that was ahead; one that is a day off may have another time zone."""
    return told - at > MOST_AHEAD_SECONDS


def _is_there(reader: Reader, instance_id: str) -> bool:
    found = reader.row(
        "SELECT 1 FROM gateway_instances WHERE instance_id = ? AND removed_at IS NULL", (instance_id,)
    )
    return found is not None


def read(reader: Reader, instance_id: str) -> float | None:
    """Epoch seconds UTC, some minutes coarse; None when it was never heard of for long enough to be written."""
    row = reader.row("SELECT seen_at FROM gateway_last_seen WHERE instance_id = ?", (instance_id,))
    return None if row is None else float(row[0])


def forget(tx: Transaction, instance_id: str) -> None:
    """Part of removing an instance."""
    tx.execute("DELETE FROM gateway_last_seen WHERE instance_id = ?", (instance_id,))
