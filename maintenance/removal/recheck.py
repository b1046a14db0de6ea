"""What was true of the chosen sessions when the plan was made, asked again inside each deleting transaction.

Invariant: a session that changed since the plan stays, with its whole unit: used again, reopened, pinned, archived,
guarded, or with a child that nobody has seen yet. What is already gone is not a change: an earlier run took it.

Not for: choosing sessions. Trusting the plan was rejected: minutes may pass between a question and its answer.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from maintenance.dialects.base import SessionFacts
from maintenance.marks import Marks, marks_path, read_marks
from maintenance.selection.select import marked

if TYPE_CHECKING:
    from hermes_state.engine import Reader
    from maintenance.dialects.base import Dialect


class FreshMarks:
    """The marks, read again only when their file changed: a pin set during a run counts."""

    def __init__(self, db: Path) -> None:
        self._db = db
        self._path = marks_path(db)
        self._seen: tuple[int, int, int] | None = None
        self._marks = Marks(path=self._path)

    def now(self) -> Marks:
        """The marks at this moment."""
        try:
            state = os.stat(self._path)
        except FileNotFoundError:
            self._seen, self._marks = None, Marks(path=self._path)
            return self._marks
        version = (state.st_ino, state.st_mtime_ns, state.st_size)
        if version != self._seen:
            self._seen, self._marks = version, read_marks(self._db)
        return self._marks


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The chosen sessions as the plan saw them."""

    # Facts by id; an id that did not exist is absent.
    facts: Mapping[str, SessionFacts]
    # The newest message of the whole store.
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

    def __init__(self, db: Path, dialect: Dialect, snapshot: Snapshot) -> None:
        self._marks = FreshMarks(db)
        self._dialect = dialect
        self._newest = snapshot.newest_message
        self._written: set[str] = set()

    def marks(self) -> Marks:
        """The marks now."""
        return self._marks.now()

    def written(self, reader: Reader) -> set[str]:
        """Sessions that got a message since the snapshot."""
        found = self._dialect.messages_after(reader, self._newest)
        if found:
            self._newest = found[-1][0]
            self._written.update(session_id for _id, session_id in found)
        return self._written


def what_changed(
    reader: Reader, dialect: Dialect, snapshot: Snapshot, ids: Sequence[str], *, watch: Watch, now: float
) -> dict[str, str]:
    """The reason to keep each of `ids` that must now stay; ids that are gone are not in it."""
    reasons: dict[str, str] = {}
    present = dialect.sessions(reader, ids)
    marks = watch.marks()
    children = dialect.children(reader, ids)
    written = watch.written(reader)
    for key, row in present.items():
        then, now_is = snapshot.facts.get(key), marked(row.facts, marks)
        reason = _difference(then, now_is)
        if reason is None and key in written:
            reason = "it was used meanwhile"
        if reason is None and not snapshot.pinned_too and now_is.pinned:
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
    if now.archived and not then.archived:
        return "it was archived meanwhile"
    return None
