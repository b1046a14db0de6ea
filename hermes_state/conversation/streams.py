"""A message whose text is still arriving.

Invariant: what a reader sees while it arrives, what a replay of the durable frames gives and what is stored at the end
are the same text by the same rule (see `merge`). The message becomes a row once, in the transaction that takes its
frames away; a killed writer leaves the frames, and the text up to its last flush with them. An interrupt at any place
(Ctrl-C raises between any two steps, also right after a commit) doubles nothing: the stream has a key of its own, and
frames have numbers, so what came of a write that did not return is looked up in the transaction of the next.

Frames are written in batches: at 4 KiB of new text (from 64 KiB on, a sixteenth of what is there), or at half a second
since the last batch when the next piece arrives. A `replace` that goes on from the present text is kept as what it
adds. One that really rewrites a long text (64 KiB) must be written whole, so the wait before each such batch is twice
the one before. Together a message costs a small multiple of its size in writes, however often it was updated: 1,000
updates of a megabyte were measured at 5 MB when it grew, and 2 MB when it was rewritten.

Not for: showing text to other processes live (they see what is durable). A row that is updated in place was rejected:
1,000 updates of a megabyte are a gigabyte of WAL.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from hermes_state.conversation import bodies
from hermes_state.conversation.append import TRANSCRIPT_SECONDS, Appends, insert_many, prepare
from hermes_state.conversation.fields import ROLES, encode, refuse_reserved
from hermes_state.conversation.merge import Merged, TextFrame
from hermes_state.conversation.records import Unsettled
from hermes_state.conversation.session_rows import Reads, session_no, valid_number, wall_time, writable_no
from hermes_state.errors import InvalidInput, NotFound, StateError
from hermes_state.owners import OwnerIdentity, provably_dead, this_process

if TYPE_CHECKING:
    from hermes_state.engine.core import Core
    from hermes_state.engine.store import Durability
    from hermes_state.engine.transaction import Transaction

Field = Literal["content", "reasoning"]
FLUSH_CHARACTERS = 4096
FLUSH_SHARE = 16  # of a long text: flush at this part of what is durable
FLUSH_SECONDS = 0.5
LONG_CHARACTERS = 65_536  # from here on a rewrite is not written at every turn


def begin(messages: Appends, core: Core, session_id: str, role: str) -> Stream:
    """A new stream, after a look whether the session can be written to. See `Messages.stream`."""
    if type(role) is not str or role not in ROLES:
        raise InvalidInput(f"role is one of {', '.join(sorted(ROLES))}, not {role!r}.", argument="role")
    with core.reader() as reader:
        writable_no(reader, session_id)
    return Stream(core, session_id, role)


class Stream:
    """One message while it arrives: `append` and `replace` its text, then `settle` it, or `abandon` it.

    As a context manager it settles at the end of the block; when the block raises, what arrived is made durable and
    stays for `settle_interrupted`. Safe for threads. Each method may raise what every write raises; the text is kept
    then, and `flush`, `settle` or `abandon` can be called again.
    """

    def __init__(self, core: Core, session_id: str, role: str) -> None:
        self.session_id = session_id
        self.role = role
        self._core = core
        self._lock = threading.RLock()
        self._started_at = wall_time(core.clock)
        self._flushed_at = core.clock.monotonic()
        self._texts: dict[Field, Merged] = {}
        self._key = secrets.token_hex(16)
        self._id: int | None = None
        self._tried = False  # whether a row of it may be there
        self._settling: list[tuple[int, float]] = []  # ids and times under which it may have been settled
        self._number = 0  # of the first frame that may not be written yet: that of `_sent[0]`
        self._sent: list[tuple[Field, TextFrame]] = []  # frames that a write which did not return was to write
        self._waiting: list[tuple[Field, TextFrame]] = []
        self._new = 0  # characters in both
        self._durable = 0  # characters written so far
        self._rewrite_seconds = FLUSH_SECONDS
        self._over: str | None = None

    # --- what it is now --------------------------------------------------------------------------------------

    @property
    def id(self) -> int | None:
        """The number of the stream in the store, for `settle_interrupted`; None while nothing of it is durable."""
        return self._id

    @property
    def text(self) -> str:
        """The content so far."""
        return self._text("content")

    @property
    def reasoning(self) -> str:
        """The reasoning so far."""
        return self._text("reasoning")

    def _text(self, field: Field) -> str:
        with self._lock:
            merged = self._texts.get(field)
            return "" if merged is None else merged.text

    # --- receiving -------------------------------------------------------------------------------------------

    def append(self, text: str, *, index: int = 0, field: Field = "content") -> None:
        """Add text to the end of a part. Raises `InvalidInput`, and `StateError` once it was settled or abandoned."""
        self.apply(TextFrame(text=text, operation="append", index=index), field=field)

    def replace(self, text: str, *, index: int = 0, field: Field = "content") -> None:
        """Make `text` the whole of a part, for models that revise what they said. Raises as `append`."""
        self.apply(TextFrame(text=text, operation="replace", index=index), field=field)

    def apply(self, frame: TextFrame, *, field: Field = "content") -> None:
        """Take one frame, and write a batch when one is due. Raises as `append`."""
        if field not in ("content", "reasoning"):
            raise InvalidInput(f"field is content or reasoning, not {field!r}.", argument="field")
        with self._lock:
            self._check_open()
            merged = self._texts.setdefault(field, Merged())
            kept = merged.take(frame)
            if kept is None:
                return
            self._keep(field, kept)
            if self._is_due():
                self._flush()

    def flush(self) -> None:
        """Make what has arrived survive a kill of this process."""
        with self._lock:
            self._check_open()
            self._flush()

    def _keep(self, field: Field, frame: TextFrame) -> None:
        """Note a frame for the next batch; what it makes void is forgotten, and appends in a row are one."""
        if frame.operation == "replace":
            self._waiting = [
                (other, old) for other, old in self._waiting if other != field or old.index != frame.index
            ]
            # These keep their numbers.
            self._sent = [
                (other, old if other != field or old.index != frame.index else TextFrame(text="", index=old.index))
                for other, old in self._sent
            ]
            self._new = sum(len(old.text) for _field, old in (*self._sent, *self._waiting))
        self._waiting.append((field, frame))
        self._new += len(frame.text)

    def _is_due(self) -> bool:
        since = self._core.clock.monotonic() - self._flushed_at
        if any(frame.operation == "replace" and len(frame.text) >= LONG_CHARACTERS for _field, frame in self._waiting):
            return since >= self._rewrite_seconds
        due_at = self._durable // FLUSH_SHARE if self._durable >= LONG_CHARACTERS else FLUSH_CHARACTERS
        return since >= FLUSH_SECONDS or self._new >= due_at

    def _flush(self) -> None:
        self._flushed_at = self._core.clock.monotonic()
        self._sent, self._waiting = [*self._sent, *_joined(self._waiting)], []
        frames = self._sent
        if not frames:
            return
        owner = this_process(self._core.path.parent, clock=self._core.clock).to_json()
        self._tried = True
        self._id = self._core.write(lambda tx: self._write(tx, frames, owner))
        # Nothing below can be cut in two: an interrupt leaves `_sent` and `_number` both as they were, or both new.
        self._number, self._sent = self._number + len(frames), []
        self._durable += self._new
        self._new = 0
        if any(frame.operation == "replace" and len(frame.text) >= LONG_CHARACTERS for _field, frame in frames):
            self._rewrite_seconds *= 2

    def _write(self, tx: Transaction, frames: list[tuple[Field, TextFrame]], owner: str) -> int:
        row = tx.row("SELECT id FROM streams WHERE key = ?", (self._key,))
        if row is None:
            if self._id is not None:
                raise _gone(tx, self._id)
            no = writable_no(tx, self.session_id)
            tx.execute(
                "INSERT INTO streams (key, session_no, role, started_at, owner) VALUES (?, ?, ?, ?, ?)",
                (self._key, no, self.role, self._started_at, owner),
            )
            stream_id = tx.last_insert_rowid()
        else:
            stream_id = int(row[0])
        number = _frame_count(tx, stream_id) + 1
        for field, frame in frames[max(number - self._number, 0) :]:
            if frame.operation == "replace":
                tx.execute(
                    "DELETE FROM stream_frames WHERE stream_id = ? AND field = ? AND part = ?",
                    (stream_id, field, frame.index),
                )
            tx.execute(
                "INSERT INTO stream_frames (stream_id, number, operation, field, part, text) VALUES (?, ?, ?, ?, ?, ?)",
                (stream_id, number, frame.operation, field, frame.index, frame.text),
            )
            number += 1
        return stream_id

    # --- the end ---------------------------------------------------------------------------------------------

    def settle(self, *, into: str | None = None, durability: Durability = "process", **fields: Any) -> int:
        """Store the message, in the transaction that removes its frames; returns its id.

        `fields`: those of `Messages.append`, such as `tool_calls`, `finish_reason`, `token_count`, `client_key`; not
        `role` and `content`, nor `reasoning` when that was streamed. A message without any text has no content. `into`:
        another session, for when `SessionReplaced` says that a continuation took over this one.
        Raises `NotFound` when another process settled or abandoned it meanwhile, and as `append` of `Messages`.
        """
        with self._lock:
            self._check_open()
            texts = {name: merged.text for name, merged in self._texts.items()}
            settled = _settling(self._core, into or self.session_id, self.role, texts, fields)

            def work(tx: Transaction) -> int:
                self._remove(tx)
                message_id, at = settled(tx)
                self._settling.append((message_id, at))
                return message_id

            message_id = self._core.write(work, durability=durability, deadline_seconds=TRANSCRIPT_SECONDS)
            self._over = "settled"
            return message_id

    def abandon(self) -> None:
        """Forget the text and its frames. Nothing is stored."""
        with self._lock:
            self._check_open()
            if self._tried:
                self._core.write(lambda tx: tx.execute("DELETE FROM streams WHERE key = ?", (self._key,)))
            self._over = "abandoned"

    def _remove(self, tx: Transaction) -> None:
        """Take the frames away in the transaction that stores the message."""
        if self._tried and not tx.execute("DELETE FROM streams WHERE key = ?", (self._key,)) and self._id is not None:
            raise _gone(tx, self._id)

    def _was_settled(self) -> bool:
        """Whether a settle that did not return was committed."""
        if not self._settling:
            return False
        with self._core.reader() as reader:
            return any(
                reader.rows("SELECT 1 FROM messages WHERE id = ? AND created_at = ?", one) for one in self._settling
            )

    def _check_open(self) -> None:
        if self._over is not None:
            raise StateError(
                f"The stream into session {self.session_id!r} of {self._core.path} was {self._over}.",
                hint="Begin a new stream.", path=self._core.path, session_id=self.session_id,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._over is not None:
            return
        if error is None:
            self.settle()
            return
        try:
            if self._was_settled():
                self._over = "settled"
            else:
                self.flush()
        except StateError as lost:
            # What the block raised is what the caller must see.
            error.add_note(f"What arrived of the message since the last flush was not made durable: {lost}")


def unsettled(core: Core, reader: Reads, no: int | None) -> list[Unsettled]:
    """The streams that have durable frames, of one session or all, oldest first. Call it inside a snapshot."""
    found = []
    for stream_id, session_id, role, started_at, owner in reader.rows(
        "SELECT st.id, s.id, st.role, st.started_at, st.owner FROM streams st JOIN sessions s ON s.no = st.session_no"
        " WHERE ?1 IS NULL OR st.session_no = ?1 ORDER BY st.id", (no,)
    ):
        texts = replay(reader, stream_id)
        found.append(Unsettled(
            stream_id=stream_id, session_id=session_id, role=role, started_at=started_at, owner=owner,
            dead=_is_dead(core, owner),
            content=texts.get("content", ""), reasoning=texts.get("reasoning", ""),
        ))
    return found


def _is_dead(core: Core, owner: str) -> bool:
    try:
        identity = OwnerIdentity.from_json(owner)
    except InvalidInput:
        return False  # of somebody whom this version cannot read nothing is proven
    return provably_dead(identity, core.path.parent, clock=core.clock).dead


def replay(reader: Reads, stream_id: int) -> dict[Field, str]:
    """The texts that the durable frames of a stream make."""
    merged: dict[Field, Merged] = {}
    for operation, field, part, text in reader.rows(
        "SELECT operation, field, part, text FROM stream_frames WHERE stream_id = ? ORDER BY number", (stream_id,)
    ):
        merged.setdefault(field, Merged()).apply(TextFrame(text=text, operation=operation, index=part))
    return {field: one.text for field, one in merged.items()}


def settle_interrupted(core: Core, stream_id: int, *, into: str | None, durability: Durability) -> int:
    """See `Messages.settle_interrupted`."""
    valid_number("stream_id", stream_id)
    with core.reader() as reader, reader.snapshot():
        row = reader.row(
            "SELECT s.id, st.role FROM streams st JOIN sessions s ON s.no = st.session_no WHERE st.id = ?", (stream_id,)
        )
        if row is None:
            raise _gone(reader, stream_id)
        texts = replay(reader, stream_id)
        frames = _frame_count(reader, stream_id)
    settled = _settling(core, into or row[0], row[1], texts, {"finish_reason": "interrupted"})

    def work(tx: Transaction) -> int:
        if _frame_count(tx, stream_id) != frames or not tx.execute("DELETE FROM streams WHERE id = ?", (stream_id,)):
            raise _gone(tx, stream_id)
        return settled(tx)[0]

    return core.write(work, durability=durability, deadline_seconds=TRANSCRIPT_SECONDS)


def _settling(
    core: Core, session_id: str, role: str, texts: Mapping[Field, str], fields: Mapping[str, Any]
) -> Callable[[Transaction], tuple[int, float]]:
    """The work that stores a stream's message; it gives its id and time. What can be done before the lock is."""
    given: dict[str, Any] = dict(fields)
    for name in ("role", "content", *(("reasoning",) if texts.get("reasoning") else ())):
        if name in given:
            raise InvalidInput(f"{name} of a stream is what was streamed; it cannot be given again.", argument=name)
    if texts.get("reasoning"):
        given["reasoning"] = texts["reasoning"]
    refuse_reserved(given.get("extra"))
    new = encode(core.clock.now(), role, texts.get("content") or None, **given)
    frame = bodies.prepare(new.content_type, new.raw, new.content, compress=False)

    def work(tx: Transaction) -> tuple[int, float]:
        no = session_no(tx, session_id)
        return insert_many(tx, session_id, no, [prepare(no, new, frame)])[0], new.at

    return work


def _frame_count(reader: Reads, stream_id: int) -> int:
    """The number of the newest frame, -1 when there is none."""
    row = reader.rows("SELECT coalesce(max(number), -1) FROM stream_frames WHERE stream_id = ?", (stream_id,))[0]
    return int(row[0])


def _joined(waiting: list[tuple[Field, TextFrame]]) -> list[tuple[Field, TextFrame]]:
    """The same frames with those that go on from one another as one: fewer rows for the same text."""
    pieces: list[tuple[Field, TextFrame, list[str]]] = []
    for field, frame in waiting:
        if pieces and frame.operation == "append" and pieces[-1][0] == field and pieces[-1][1].index == frame.index:
            pieces[-1][2].append(frame.text)
        else:
            pieces.append((field, frame, [frame.text]))
    return [
        (field, TextFrame(text="".join(texts), operation=frame.operation, index=frame.index))
        for field, frame, texts in pieces
    ]


def _gone(reader: Reads, stream_id: int) -> NotFound:
    return NotFound(
        f"Stream {stream_id} of {reader.path} was settled, continued or abandoned meanwhile.",
        hint="Look at unsettled() again.", path=reader.path, stream_id=stream_id,
    )
