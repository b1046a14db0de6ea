"""What was true of the chosen sessions when the plan was made, asked again inside each deleting transaction.

Invariant: a session that changed since the plan stays, with its whole unit: used again, reopened, pinned, guarded, or
with a child that nobody has seen yet. What is already gone is not a change: an earlier run took it.

Not for: choosing sessions. Trusting the plan was rejected: minutes may pass between a question and its answer.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from maintenance.dialects.base import SessionFacts
from maintenance.dialects.cells import chunks, decode_key, key_bytes, key_list
from maintenance.marks import marks_path, read_marks

if TYPE_CHECKING:
    from hermes_state.engine import Reader
    from maintenance.dialects.base import Dialect


class MarkedPins:
    """Pins that are marks, read again only when the marks file changed: a pin set during a run counts."""

    def __init__(self, db: Path) -> None:
        self._db = db
        self._path = marks_path(db)
        self._seen: tuple[int, int, int] | None = None
        self._pinned: frozenset[str] = frozenset()

    def now(self) -> frozenset[str]:
        """Every session that a mark pins at this moment."""
        try:
            state = os.stat(self._path)
        except FileNotFoundError:
            self._seen, self._pinned = None, frozenset()
            return self._pinned
        version = (state.st_ino, state.st_mtime_ns, state.st_size)
        if version != self._seen:
            self._seen, self._pinned = version, read_marks(self._db).pinned
        return self._pinned


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The chosen sessions as the plan saw them."""

    # Facts by id; an id that did not exist is absent.
    facts: Mapping[str, SessionFacts]
    # The newest message of the whole store; ids are never used twice.
    newest_message: int
    # Every child that the plan saw, by parent.
    children: Mapping[str, frozenset[str]]
    # False keeps pinned sessions; True when the caller was asked for them by name.
    pinned_too: bool


class Watch:
    """What happened in a store since a snapshot, asked again and again at the cost of what is new only.

    Messages are watched by id and not by time: a message may carry any time, and one that is written to an ended
    session does not change the session's row in every release.
    """

    def __init__(self, db: Path, snapshot: Snapshot) -> None:
        self._pins = MarkedPins(db)
        self._newest = snapshot.newest_message
        self._written: set[str] = set()

    def pinned(self) -> frozenset[str]:
        """Sessions that a mark pins now."""
        return self._pins.now()

    def written(self, reader: Reader) -> set[str]:
        """Sessions that got a message since the snapshot."""
        found = reader.rows(
            "SELECT id, CAST(session_id AS BLOB) FROM messages WHERE id > ? ORDER BY id", (self._newest,)
        )
        if found:
            self._newest = int(found[-1][0])
            self._written.update(decode_key(session) for _id, session in found)
        return self._written


def newest_message(reader: Reader) -> int:
    """The highest message id of the store, 0 when it has none."""
    found = reader.row("SELECT max(id) FROM messages")
    return int(found[0] or 0) if found else 0


def children_of(reader: Reader, ids: Sequence[str]) -> dict[str, frozenset[str]]:
    """Sessions whose parent link names one of `ids`, by parent."""
    found: dict[str, set[str]] = {}
    for some in chunks(ids):
        rows = reader.rows(
            "SELECT CAST(parent_session_id AS BLOB), CAST(id AS BLOB) FROM sessions"
            f" WHERE parent_session_id IN {key_list(len(some))}",
            [key_bytes(one) for one in some],
        )
        for parent, child in rows:
            found.setdefault(decode_key(parent), set()).add(decode_key(child))
    return {parent: frozenset(children) for parent, children in found.items()}


def what_changed(
    reader: Reader, dialect: Dialect, snapshot: Snapshot, ids: Sequence[str], *, watch: Watch, now: float
) -> dict[str, str]:
    """The reason to keep each of `ids` that must now stay; ids that are gone are not in it."""
    reasons: dict[str, str] = {}
    present = dialect.sessions(reader, ids)
    pinned = frozenset() if snapshot.pinned_too else watch.pinned()
    children = children_of(reader, ids)
    written = watch.written(reader)
    for key, row in present.items():
        reason = _difference(snapshot.facts.get(key), row.facts)
        if reason is None and key in written:
            reason = "it was used meanwhile"
        if reason is None and not snapshot.pinned_too and (row.facts.pinned or key in pinned):
            reason = "it was pinned meanwhile"
        if reason is None and children.get(key, frozenset()) - snapshot.children.get(key, frozenset()):
            reason = "another session was started from it meanwhile"
        if reason is not None:
            reasons[key] = reason
    for key, reason in dialect.guards(reader, list(present), now).items():
        reasons.setdefault(key, reason)
    return reasons


def _difference(then: SessionFacts | None, now: SessionFacts) -> str | None:
    if then is None:
        return "it was not there when the plan was made"
    if then.ended and not now.ended:
        return "it was reopened meanwhile"
    if now.last_activity_at is not None and now.last_activity_at > (then.last_activity_at or float("-inf")):
        return "it was used meanwhile"
    return None
