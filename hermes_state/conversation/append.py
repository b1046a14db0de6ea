"""Putting messages into a session.

Invariant: an append is one row and nothing else: its number in the session, its tool-call count and its id follow
from the rows that are there, inside the write lock, so no counter can drift. A key that came before gives the row of
then, or `IdempotencyConflict`; a session that is gone or was taken over fails by name and leaves nothing. Everything
that can be done before the lock is: checking, encoding, hashing, compressing.

Not for: text still arriving (see `streams`). A counter row per session was rejected: it is a third page to write.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from hermes_state.conversation import bodies
from hermes_state.conversation.fields import LATEST_TIME, Encoded, encode, refuse_reserved
from hermes_state.conversation.plain_rows import PLAIN_SIZE, Tail, plain_row
from hermes_state.conversation.repeats import earlier, known_keys
from hermes_state.conversation.row_check import check_of, stamp
from hermes_state.conversation.session_rows import replaced, session_no
from hermes_state.deletions import removed_here
from hermes_state.errors import InvalidInput

if TYPE_CHECKING:
    from hermes_state.engine.core import Core
    from hermes_state.engine.store import Durability
    from hermes_state.engine.transaction import Transaction

Compress = Literal["cold", "always", "never"]
TRANSCRIPT_SECONDS = 60.0  # how long a message waits for the write lock: longer than routine work, so that none is lost
ACTIVITY_SECONDS = 60.0  # how often `sessions.active_at` is written while messages arrive

# The columns in the order of `End.place`; a row that `plain_rows` made ends before content_type.
_NARROW = (
    "id, session_no, seq, calls, role, content, created_at, row_check, tool_name, tool_call_id, tool_calls,"
    " finish_reason, token_count, reasoning, content_type"
)
INSERT_PLAIN = f"INSERT INTO messages ({_NARROW}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'text')"
INSERT = (
    f"INSERT INTO messages ({_NARROW}, body_no, platform_message_id, client_key, extra)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
# Scalar look-ups, with the number bound in one place only: SQLite prepares a statement anew when a bound value may
# change the choice of a partial index, which made the same as a join cost 10 us instead of 2.
_END = (
    "SELECT s.id, (SELECT seq FROM messages WHERE session_no = s.no ORDER BY seq DESC LIMIT 1),"
    " (SELECT calls FROM messages WHERE session_no = s.no ORDER BY seq DESC LIMIT 1),"
    " iif((SELECT removed_at FROM routing_home) IS NULL, s.state, 'home removed'), s.active_at, s.auto_archived,"
    " s.seq_floor, (SELECT max(id) FROM messages), (SELECT message_floor FROM store) FROM sessions s WHERE s.no = ?"
)
_AT = 2  # where the time is in a `Tail`
_FIELDS = frozenset({
    "role", "content", "tool_calls", "tool_call_id", "tool_name", "finish_reason", "token_count", "reasoning",
    "platform_message_id", "client_key", "at", "extra",
})


class _SessionGone(Exception):
    """The remembered number is no longer this session's; the id is looked up again."""


class End:
    """Where the next row of a session goes, inside one transaction; it moves on with every row.

    Nothing is written before the first row is placed, so that a call that stores nothing changes nothing.
    """

    __slots__ = ("_active_at", "_archived", "_due", "_skipped", "_tx", "calls", "next_id", "seq", "session_no")

    def __init__(
        self, tx: Transaction, session_no: int, next_id: int, seq: int, calls: int, skipped: int, active_at: float,
        archived: int,
    ) -> None:
        """`skipped`: numbers before `seq` that no row has and that are not counted as deleted yet."""
        self.session_no, self.next_id, self.seq, self.calls = session_no, next_id, seq, calls
        self._tx, self._skipped, self._active_at, self._archived = tx, skipped, active_at, archived
        # From which time on a row has the session's own row written.
        self._due = -1.0 if skipped or archived else active_at + ACTIVITY_SECONDS

    def row(self, new: Encoded, content: Any, body_no: int | None) -> tuple[Any, ...]:
        """The parameters of the next row, for `INSERT`. `content` is the body, or its preview when `body_no` is set."""
        return self.place(new.calls, kept(tail_of(self.session_no, new, None), content, body_no))

    def place(self, calls: int, tail: Tail) -> tuple[Any, ...]:
        """The parameters of the next row, from what does not depend on its place."""
        if tail[_AT] >= self._due:
            self.note(tail[_AT])
        message_id = self.next_id
        self.next_id = message_id + 1
        self.seq += 1
        self.calls += calls
        return (message_id, self.session_no, self.seq, self.calls, *tail)

    def note(self, at: float) -> None:
        """Keep the session's own row up to date for rows that are placed, the newest of which is of time `at`."""
        if at < self._due:
            return
        tx, no = self._tx, self.session_no
        if at >= self._active_at + ACTIVITY_SECONDS:
            tx.execute("UPDATE sessions SET active_at = ? WHERE no = ?", (at, no))
            self._active_at = at
        if self._archived:
            from hermes_state.conversation.creation import bring_back

            bring_back(tx, no, at)
        if self._skipped:
            # The newest messages were deleted: their numbers stay used, so those are counted as deleted from now on.
            tx.execute("UPDATE sessions SET deleted_messages = deleted_messages + ? WHERE no = ?", (self._skipped, no))
        self._archived, self._skipped, self._due = 0, 0, self._active_at + ACTIVITY_SECONDS


def tail_of(session_no: int, new: Encoded, frame: bodies.Frame | None) -> Tail:
    """All of a row that does not depend on its place, the check included, for a body that stays in its row."""
    (role, content_type, raw, body, _calls, name, call_id, calls_text, finish, tokens, reasoning, platform_id, key, at,
     extra, named) = new
    hash_ = None if frame is None else frame.hash
    check = check_of(session_no, role, content_type, body, named, tokens, at, hash_)
    return (
        role, raw, at, check, name, call_id, calls_text, finish, tokens, reasoning,
        content_type, None, platform_id, key, extra,
    )


class Appends:
    """The writing half of `store.messages`."""

    def __init__(self, core: Core, *, compress: Compress = "cold") -> None:
        """`compress`: "cold" and "never" leave zstd frames to the optimize command, "always" makes them at once."""
        self._core = core
        self._compress = compress == "always"
        self._numbers: dict[str, int] = {}
        self._epoch = core.epoch

    def append(
        self, session_id: str, *, role: str, content: Any = None, tool_calls: list[Any] | str | None = None,
        tool_call_id: str | None = None, tool_name: str | None = None, finish_reason: str | None = None,
        token_count: int | None = None, reasoning: str | None = None, platform_message_id: str | int | None = None,
        client_key: str | None = None, at: float | None = None, extra: Mapping[str, Any] | None = None,
        durability: Durability | None = None,
    ) -> int:
        """Store one message at the end of a session; returns its id.

        `role`: user, assistant, tool, system or developer. `content`: text, a list or dict (kept as JSON), bytes, a
        number, None. `tool_calls`: a list or its JSON text. `at`: epoch seconds UTC, now by default; it never decides
        the order. `extra`: anything JSON can say, kept and exported. `durability`: "process" (default: survives
        kill -9) or "power", which makes everything appended before durable too.

        Idempotent: when the conversation has a message of this `client_key`, or of this `platform_message_id` and role,
        and it is the same message (its time aside), its id is returned and nothing is stored. Without a key two equal
        messages are two messages. What was taken back by a rewind is no repeat: under its platform id a new message is
        stored; its `client_key` stays used, and `IdempotencyConflict` says so (`taken_back`).

        Raises `InvalidInput`, `SessionNotFound`, `SessionDeleted`, `SessionReplaced` (with `tip_id`),
        `IdempotencyConflict`, and what every write raises; nothing is stored then.
        """
        core, given = self._core, (
            role, content, tool_calls, tool_call_id, tool_name, finish_reason, token_count, reasoning,
            platform_message_id, client_key, at, extra,
        )
        now, power = core.clock.now(), durability == "power"

        def work(tx: Transaction) -> int:
            row = _end_row(tx, session_id, no)
            # Before anything is refused: what is stored already was stored, also in a session that goes on elsewhere.
            if new is not None and (known := earlier(tx, session_id, no, new)) is not None:
                if power:
                    touch(tx)
                return known
            end = end_of(tx, session_id, no, row)
            message_id = end.next_id
            if frame is not None and (body_no := bodies.place(tx, frame)) is not None:
                tx.execute(INSERT, end.place(calls, kept(widened(tail), frame.preview, body_no)))
            else:
                tx.execute(INSERT_PLAIN if len(tail) == PLAIN_SIZE else INSERT, end.place(calls, tail))
            return message_id

        again = False
        while True:
            no = self._number(session_id, again=again)
            calls, tail, frame, new = self._prepared(no, now, given)
            try:
                return core.write(work, durability=durability or "process", deadline_seconds=TRANSCRIPT_SECONDS)
            except _SessionGone:
                again = True  # ends with the error of the look-up, unless a session of this id was made anew

    def append_many(
        self, session_id: str, rows: Sequence[Mapping[str, Any]], *, durability: Durability | None = None
    ) -> list[int]:
        """Store messages in one transaction, all or none; returns their ids in the order of `rows`.

        Each row has the arguments of `append` as keys, of which only `role` must be there. A row whose key came before
        gives the id of then; the others are stored. When all came before, also a session that goes on elsewhere gives
        their ids. Raises as `append`, and `InvalidInput` names the row.
        """
        if not rows:
            return []
        now = self._core.clock.now()
        power = durability == "power"

        def work(tx: Transaction) -> list[int]:
            ids = insert_many(tx, session_id, no, prepared)
            if power:
                touch(tx)  # all may have been there already
            return ids

        again = False
        while True:
            no = self._number(session_id, again=again)
            prepared = self._many(no, now, rows)
            try:
                return self._core.write(work, durability=durability or "process", deadline_seconds=TRANSCRIPT_SECONDS)
            except _SessionGone:
                again = True

    def settle(self, session_id: str) -> None:
        """Make everything that was committed to the store before this call survive a power cut.

        For the end of a turn whose messages were appended at "process". A commit at "power" syncs the whole WAL, but
        only when it has a page to write, so this one counts up the file's `user_version`, which nothing here reads:
        one page, 4 KiB, and one sync. `append(..., durability="power")` for the last message does the same for less.
        Raises `SessionNotFound`, `SessionDeleted`.
        """

        def work(tx: Transaction) -> None:
            session_no(tx, session_id)
            touch(tx)

        self._core.write(work, durability="power", deadline_seconds=TRANSCRIPT_SECONDS)

    # --- inside ----------------------------------------------------------------------------------------------

    def _prepared(self, no: int, now: float, given: tuple[Any, ...]) -> Prepared:
        """A message by the arguments of `encode` in their order, ready to be stored."""
        if not self._compress and 0.0 < now < LATEST_TIME:
            found = plain_row(no, now, stamp(no, now), *given)
            if found is not None:
                return found
        refuse_reserved(given[-1])
        return self._encoded(no, encode(now, *given))

    def _many(self, no: int, now: float, rows: Sequence[Mapping[str, Any]]) -> list[Prepared]:
        plain, stamped = not self._compress and 0.0 < now < LATEST_TIME, stamp(no, now)
        prepared: list[Prepared] = []
        for number, row in enumerate(rows):
            found = None
            if plain:
                # A look-up each: with names that come from JSON, arguments by name cost 0.3 us more.
                get = row.get
                if len(row) == 2:
                    found = plain_row(no, now, stamped, get("role"), get("content"))
                elif _FIELDS.issuperset(row):
                    found = plain_row(
                        no, now, stamped, get("role"), get("content"), get("tool_calls"), get("tool_call_id"),
                        get("tool_name"), get("finish_reason"), get("token_count"), get("reasoning"),
                        get("platform_message_id"), get("client_key"), get("at"), get("extra"),
                    )
            prepared.append(found or self._encoded(no, _encode_row(now, number, row)))
        return prepared

    def _encoded(self, no: int, new: Encoded) -> Prepared:
        frame = None
        if new.content_type != "number" and len(new.content) >= bodies.COMPRESS_BYTES:
            frame = bodies.prepare(new.content_type, new.raw, new.content, compress=self._compress)
        return prepare(no, new, frame)

    def _number(self, session_id: str, *, again: bool = False) -> int:
        """The session's number, remembered: numbers are never used twice, so a wrong one only finds nothing."""
        core = self._core
        if core.epoch != self._epoch:
            self._numbers, self._epoch = {}, core.epoch
        no = None if again or type(session_id) is not str else self._numbers.get(session_id)
        if no is None:
            with core.reader() as reader:
                no = session_no(reader, session_id)
            if len(self._numbers) >= 10_000:
                self._numbers = {}
            self._numbers[session_id] = no
        return no


def _end_row(tx: Transaction, session_id: str, no: int) -> tuple[Any, ...]:
    """What `end_of` needs, after a look whether the number still is this session's."""
    row = tx.row(_END, (no,))
    # A session that is being deleted keeps its row for a while, under another id.
    if row is None or row[0] != session_id:
        raise _SessionGone
    return row


def open_end(tx: Transaction, session_id: str) -> End:
    """Where the next row of a session goes; for functions that take part in a transaction. Raises as `append`."""
    no = session_no(tx, session_id)
    return end_of(tx, session_id, no, tx.rows(_END, (no,))[0])


def end_of(tx: Transaction, session_id: str, no: int, row: tuple[Any, ...]) -> End:
    """Where the next row goes, from a row of `_END`. Writes nothing."""
    _id, seq, calls, state, active_at, auto_archived, seq_floor, top, floor = row
    if state in ("replaced", "home removed"):
        raise replaced(tx, session_id, no) if state == "replaced" else removed_here(tx)
    seq, top = seq or 0, top or 0
    return End(
        tx, no, (top if top > floor else floor) + 1, seq if seq > seq_floor else seq_floor, calls or 0,
        seq_floor - seq if seq_floor > seq else 0, active_at, auto_archived,
    )


# Tool calls, all that does not depend on the place, a body to be shared or kept apart, and the message if it has a key.
Prepared = tuple[int, Tail, "bodies.Frame | None", Encoded | None]


def prepare(session_no: int, new: Encoded, frame: bodies.Frame | None) -> Prepared:
    """A row for `insert_many`, with all that can be computed before the lock."""
    keyed = new.client_key is not None or new.platform_message_id is not None
    return new.calls, tail_of(session_no, new, frame), frame, new if keyed else None


def widened(tail: Tail) -> Tail:
    """A plain row with the columns that plain rows leave out."""
    return (*tail, "text", None, None, None, None) if len(tail) == PLAIN_SIZE else tail


def kept(tail: Tail, content: Any, body_no: int | None) -> Tail:
    """A row, not a plain one, with its content as it is kept."""
    return (tail[0], content, *tail[2:11], body_no, *tail[12:])


def insert_many(tx: Transaction, session_id: str, no: int, prepared: Sequence[Prepared]) -> list[int]:
    """Store rows at the end of session `no`; returns their ids, those of keys that came before included.

    The session is refused, by name, for rows that are new only.
    """
    row = _end_row(tx, session_id, no)
    hashes = [frame.hash for _calls, _tail, frame, _new in prepared if frame is not None and not frame.own]
    keyed = [new for _calls, _tail, _frame, new in prepared if new is not None]
    shared = bodies.there(tx, hashes) if hashes else set[int]()
    repeated = known_keys(tx, no, keyed) if keyed else set[str]()
    ids: list[int] = []
    waiting: list[tuple[Any, ...]] = []
    end: End | None = None
    # What `End.place` does, without a call for every row.
    next_id = seq = total = 0
    newest = -1.0
    for calls, tail, frame, new in prepared:
        if new is not None and (new.client_key in repeated or new.platform_message_id in repeated):
            _insert(tx, waiting)  # the look-up must see the rows of this very call
            waiting = []
            known = earlier(tx, session_id, no, new)
            if known is not None:
                ids.append(known)
                continue
        if frame is not None and (frame.own or frame.hash in shared):
            body_no = bodies.place(tx, frame)
            if body_no is not None:
                tail = kept(widened(tail), frame.preview, body_no)
        if end is None:
            end = end_of(tx, session_id, no, row)
            next_id, seq, total = end.next_id, end.seq, end.calls
        if tail[_AT] > newest:
            newest = tail[_AT]
        ids.append(next_id)
        seq += 1
        total += calls
        waiting.append((next_id, no, seq, total, *tail))
        next_id += 1
    _insert(tx, waiting)
    if end is not None:
        end.note(newest)
    return ids


def _insert(tx: Transaction, rows: list[tuple[Any, ...]]) -> None:
    if {*map(len, rows)} <= {4 + PLAIN_SIZE}:
        tx.executemany(INSERT_PLAIN, rows)
    else:
        tx.executemany(INSERT, [row[:4] + widened(row[4:]) for row in rows])


def touch(tx: Transaction) -> None:
    """Make this transaction write a page, so that its commit at "power" syncs the WAL."""
    (version,) = tx.rows("PRAGMA user_version")[0]
    tx.rows(f"PRAGMA user_version = {(version + 1) & 0x7FFFFFFF}")


def _encode_row(now: float, number: int, row: Mapping[str, Any]) -> Encoded:
    try:
        refuse_reserved(row.get("extra"))
        return encode(now, **row)
    except InvalidInput as error:
        raise InvalidInput(f"Row {number}: {error.message}", hint=error.hint, row=number, **error.facts) from error
    except TypeError:
        # Looked at only now: asking every row first would cost a tenth of its encoding.
        if _FIELDS.issuperset(row) and "role" in row:
            raise
        unknown = sorted(str(key) for key in set(row) - _FIELDS)
        raise InvalidInput(
            f"Row {number} of the messages has {f'no field {unknown[0]!r}' if unknown else 'no role'}.",
            hint="What has no field of its own goes into extra.", row=number,
        ) from None
