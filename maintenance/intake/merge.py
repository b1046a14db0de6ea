"""Merging what a source gives into a native store, beside gateways that use it.

Invariant: messages of a session keep the order of the source and come after those that are here; each is appended once,
however often the import runs, is killed or runs beside itself: its key is looked up again inside the transaction that
appends it. A transaction holds the lock for at most `BATCH_ROWS` rows or `BATCH_BYTES`.

Not for: asking (`flow`). `messages.append_many` was rejected here: a platform id that comes again within a session is
an error of a gateway, but in a history it is a message that was taken back and sent anew.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hermes_state import tombstones
from hermes_state.conversation import bodies
from hermes_state.conversation.append import INSERT, open_end, touch
from hermes_state.errors import Entombed, InvalidInput, SessionDeleted, SessionExists, SessionNotFound, SessionReplaced
from maintenance.intake import target as targets
from maintenance.intake.known import Known, Match, encoded, fingerprint_of
from maintenance.intake.model import Hide, IncomingMessage, IncomingSession, Looked, Passes, Source
from maintenance.intake.passes import restore
from maintenance.intake.target import Target
from maintenance.intake.underway import Merged, Planned, Row, Underway, hidden_by, share_of

if TYPE_CHECKING:
    from hermes_state.engine import Transaction
    from hermes_state.engine.core import Core
    from maintenance.intake.absent import AbsentStore

BATCH_ROWS = 200
BATCH_BYTES = 1_000_000
# Session rows made in one transaction.
SESSIONS_AT_ONCE = 50


class Merger:
    """One source into one store. `write=False` only counts."""

    def __init__(
        self, core: Core | AbsentStore, source: Source, looked: Looked, *, write: bool, source_name: str | None = None,
        advance: Callable[[int], None] = lambda messages: None, planned: Planned | None = None,
    ) -> None:
        """`planned`: without `write`, what the sources before would bring; what this one would is added to it."""
        self._core = core
        self._planned: Planned = {} if planned is None or write else planned
        self._source = source
        self._looked = looked
        self._write = write
        self._source_name = source_name
        self._advance = advance
        self._sessions: dict[str, Underway] = {}
        self._current: Underway | None = None
        # Up to which message branches share their parent, by its number there: its key, and its number here.
        self._shared: dict[str, dict[int, tuple[str, int | None]]] = {}
        for session in looked.sessions:
            if session.relation == "branch" and session.parent_id is not None and share_of(session):
                self._shared.setdefault(session.parent_id, {})[share_of(session)] = ("", None)
        self.merged = Merged()

    def run(self) -> Merged:
        """Everything, in this order: session rows, messages, the last transaction of each session."""
        self._begin()
        with closing(self._source.events()) as events:
            for event in events:
                session = self._sessions.get(event.id if isinstance(event, IncomingSession) else event.session_id)
                if session is None:
                    continue  # it came to the source after the first look
                if self._looked.one_by_one and session is not self._current:
                    self._leave(self._current)
                    self._current = session
                if isinstance(event, Hide):
                    session.hides.append(event)
                elif isinstance(event, Passes):
                    session.coming.add(event)
                elif isinstance(event, IncomingSession):
                    session.tell(event)
                else:
                    self._message(session, event)
        for session in self._sessions.values():
            self._flush(session)
            self._note_shared(session)
        for session in self._sessions.values():
            self._finish(session)
        if self._write:
            # One sync for all commits before it: until here a power cut only means to import once more.
            self._core.write(touch, durability="power")
        return self.merged

    def _leave(self, session: Underway | None) -> None:
        """Finish a session whose messages are all there, and forget them. A branch waits for its parent."""
        if session is None or session.seen < session.incoming.messages:
            return
        self._flush(session)
        self._note_shared(session)
        if session.incoming.relation != "branch":
            self._finish(session)
            session.known, session.hides = None, []
            if session.incoming.id not in self._shared:
                session.applied = []

    def _note_shared(self, session: Underway) -> None:
        shared = self._shared.get(session.incoming.id, {})
        for position, (key, seq) in shared.items():
            shared[position] = key, self._known(session).seq_of(key) if seq is None else seq

    def _known(self, session: Underway) -> Known:
        """The messages of a session that are here, read when they are first asked for."""
        if session.known is None:
            session.known = Known(self._looked.namespace)
            if session.target.no is not None and not session.target.created:
                with self._core.reader() as reader, reader.snapshot():
                    session.known = Known.read(reader, session.target.no, self._looked.namespace)
            session.known.expect(self._planned.get(_identity(session.incoming), ()))
        return session.known

    # --- sessions ----------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        sessions = self._looked.sessions
        for start in range(0, len(sessions), SESSIONS_AT_ONCE):
            part = sessions[start : start + SESSIONS_AT_ONCE]
            if self._write:
                for session, target, why in self._core.write(functools.partial(self._made, part)):
                    self._add(session, target, why)
            else:
                for session in part:
                    with self._core.reader() as reader, reader.snapshot():
                        target, why = targets.find(reader, session), ""
                        try:
                            tombstones.refuse(reader, "session", target.id)
                        except Entombed as error:
                            why = error.message
                    self._add(session, target, why)

    def _made(
        self, part: tuple[IncomingSession, ...], tx: Transaction
    ) -> list[tuple[IncomingSession, Target, str]]:
        """Find or make sessions, parents before their children."""
        found = []
        made: dict[str, int] = {}
        for session in part:
            target, why = targets.find(tx, session), ""
            parent_no = None if session.parent_id is None else self._parent(tx, session.parent_id, made)
            if target.no is not None:
                if parent_no is not None:
                    targets.adopt_parent(tx, session, target, parent_no)
            else:
                try:
                    targets.create(
                        tx, session, target, origin=self._source.name, parent_no=parent_no, source=self._source_name,
                        now=self._core.clock.now(),
                    )
                except (Entombed, SessionExists, InvalidInput) as error:
                    why = error.message
            if target.no is not None:
                made[session.id] = target.no
            found.append((session, target, why))
        return found

    def _parent(self, tx: Transaction, parent_id: str, made: dict[str, int]) -> int | None:
        if parent_id in made:
            return made[parent_id]
        if parent_id in self._sessions:
            return self._sessions[parent_id].target.no
        row = tx.row("SELECT no FROM sessions WHERE id = ?", (targets.safe_id(parent_id),))
        return None if row is None else int(row[0])

    def _add(self, session: IncomingSession, target: Target, why: str) -> None:
        merged = self.merged
        if why:
            merged.sessions_refused += 1
            merged.refuse(0, f"session {session.id}: {why}")
        elif (target.no is None or target.created) and _identity(session) not in self._planned:
            merged.sessions_new += 1
            if not self._write:
                self._planned[_identity(session)] = []
        else:
            merged.sessions_known += 1
        if target.renamed and not why:
            merged.renamed[session.id] = target.id
        self._sessions[session.id] = Underway(incoming=session, target=target, refused=bool(why))

    def _finish(self, session: Underway) -> None:
        target = session.target
        if not self._write or target.no is None or session.refused or session.finished:
            return
        session.finished, known = True, self._known(session)
        hidden = [hide for one in session.hides if (hide := hidden_by(one, known)) is not None]
        columns, parent = session.incoming.columns, self._sessions.get(session.incoming.parent_id or "")
        _, shared = self._shared.get(session.incoming.parent_id or "", {}).get(share_of(session.incoming), ("", None))
        if parent is not None and share_of(session.incoming) < 0:
            shared = share_of(session.incoming)  # so much less of what the parent itself shares: the same number here
        bound = columns.get("branched_at_edit") if parent is not None else None

        def work(tx: Transaction) -> None:
            newest = tx.row("SELECT max(seq) FROM messages WHERE session_no = ?", (target.no,))
            targets.finish(
                tx, session.incoming, target, hidden=hidden, shared_seq=shared, now=self._core.clock.now(),
                in_step=newest is not None and newest[0] is not None and known.has_taken(newest[0]),
                shared_edit=None if bound is None or parent is None else targets.edit_bound(
                    tx, parent.target, [hide for hide in parent.applied if hide.number > bound]
                ),
            )
            if session.coming.told:
                restore(
                    tx, target, session.coming, known, hidden=hidden, at=self._core.clock.now(),
                    as_shared=shared is None or shared == share_of(session.incoming),
                    parents={key: one.target.no for key, one in self._sessions.items() if one.target.no is not None},
                )

        session.applied = hidden
        self._core.write(work)
        if target.title_changed is not None:
            self.merged.titles_changed[target.id] = target.title_changed

    # --- messages ----------------------------------------------------------------------------------------------

    def _message(self, session: Underway, message: IncomingMessage) -> None:
        merged = self.merged
        self._advance(1)
        session.seen += 1
        if session.refused:
            merged.messages_refused += 1
            return
        try:
            new = encoded(message, self._core.clock.now())
        except InvalidInput as error:
            merged.messages_refused += 1
            merged.refuse(message.line, f"cannot be stored: {error.message}")
            return
        print_ = fingerprint_of(new)
        known = self._known(session)
        found: Match = known.match(new, print_)
        for position in self._shared.get(message.session_id, ()):
            if message.position <= position:
                self._shared[message.session_id][position] = message.key, None
        if found.seq is not None:
            merged.messages_known += 1
            return
        merged.messages_diverged += found.diverged
        if not self._write:
            merged.messages_new += 1
            known.add(found.key, print_, -1)
            self._planned.setdefault(_identity(session.incoming), []).append((found.key, print_))
            return
        if found.diverged:
            new = encoded(replace(message, key=found.key), message.at)
        frame = None
        if new.content_type != "number" and len(new.content) >= bodies.COMPRESS_BYTES:
            frame = bodies.prepare(new.content_type, new.raw, new.content, compress=False)
        # Noted before it is stored: the same key may come again before its transaction does.
        known.add(found.key, print_, -1)
        session.rows.append(Row(message=new, frame=frame, fingerprint=print_, line=message.line))
        session.waiting_bytes += len(new.content) + len(new.extra or "")
        if len(session.rows) >= BATCH_ROWS or session.waiting_bytes >= BATCH_BYTES:
            self._flush(session)

    def _flush(self, session: Underway) -> None:
        rows, session.rows, session.waiting_bytes = session.rows, [], 0
        if not rows or session.target.no is None:
            return
        try:
            added = self._core.write(lambda tx: self._append(tx, session.target.id, rows))
        except (SessionReplaced, SessionDeleted, SessionNotFound) as error:
            session.refused = True
            self.merged.messages_refused += len(rows)
            self.merged.refuse(rows[0].line, error.message)
            return
        for row, (seq, new) in zip(rows, added, strict=True):
            self.merged.messages_new += new
            self.merged.messages_known += not new
            self._known(session).add(str(row.message.client_key), row.fingerprint, seq)

    @staticmethod
    def _append(tx: Transaction, session_id: str, rows: list[Row]) -> list[tuple[int, bool]]:
        """Append what is not there yet; gives the number of each row, and False where another import was first."""
        end = open_end(tx, session_id)
        marks = ", ".join("?" * len(rows))
        keys: list[Any] = [row.message.client_key for row in rows]
        there = {
            key: int(seq) for key, seq in tx.rows(
                f"SELECT client_key, seq FROM messages WHERE session_no = ? AND client_key IN ({marks})",
                (end.session_no, *keys),
            )
        }
        added: list[tuple[int, bool]] = []
        for row in rows:
            if row.message.client_key in there:
                added.append((there[row.message.client_key], False))
                continue
            body_no = None if row.frame is None else bodies.place(tx, row.frame)
            content = row.message.raw if row.frame is None or body_no is None else row.frame.preview
            tx.execute(INSERT, end.row(row.message, content, body_no))
            added.append((end.seq, True))
        return added


def _identity(session: IncomingSession) -> tuple[str, float]:
    """What makes a session the same in two files."""
    return session.id, session.started_at
