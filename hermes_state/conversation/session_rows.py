"""A session as callers see it, and finding one by its id.

Invariant: an id means one session for ever. One that was never here, one that was deleted and one that a continuation
took over are three different errors, each naming the id. What a caller gets is a frozen copy of the row.

Not for: changing rows (see `sessions`). Loading the system prompt with every session was rejected: it is a hundred
times larger than the row, and most callers never look at it.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from hermes_state import json_values
from hermes_state.errors import Corrupt, InvalidInput, SessionDeleted, SessionNotFound, SessionReplaced
from hermes_state.shell_words import shell_word

if TYPE_CHECKING:
    from hermes_state.clock import Clock

State = Literal["open", "ended", "replaced"]
Relation = Literal["continuation", "branch", "delegate", "reset", "other"]
TitleSource = Literal["derived", "llm", "user"]
# End reasons of what a deletion leaves under a new hidden id (see `removal`): rows that go as soon as the next deletion
# runs, to be shown nowhere; and rows that branches share, to be shown as part of these.
BEING_DELETED, KEPT_FOR_BRANCHES = "being_deleted", "kept_for_branches"
LONGEST_ID = 200  # characters; ids are shown, typed and used as keys elsewhere
LARGEST_NUMBER = 2**63 - 1  # that SQLite can hold


def left_over(table: str) -> str:
    """The condition that a row of `sessions`, named `table`, is what a deletion has left. Never NULL."""
    return (
        f"({table}.hidden = 1 AND {table}.active_at = 0"
        f" AND coalesce({table}.end_reason, '') IN ('{BEING_DELETED}', '{KEPT_FOR_BRANCHES}'))"
    )


class Reads(Protocol):
    """A reader or a transaction."""

    path: Path

    def rows(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]: ...
    def row(self, sql: str, params: Sequence[Any] = ()) -> tuple[Any, ...] | None: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Session:
    """One session. Times are epoch seconds UTC."""

    # number that other tables of the store use for it; never used twice
    no: int
    # public id; never used twice while its tombstone stands
    id: str
    # where it came from: cli, telegram, cron, ...
    source: str
    # open; ended (`end_reason` says why); replaced: a continuation took over and appends fail
    state: State
    # the session it came from, and what it is to it; both None when it came from none. Of a branch whose parent was
    # deleted only the first is: it keeps what it shares
    parent_id: str | None
    relation: Relation | None
    # of a branch: the parent's message number up to which both are the same (0: nothing of its own; below that, so
    # many messages fewer of what the parent itself shares)
    branched_at_seq: int | None
    started_at: float
    # when and why it ended; the first reason stays. None while open
    ended_at: float | None
    end_reason: str | None
    # exact time of the last activity: of the newest message, or of the start
    active_at: float
    # messages stored under this session itself, and the tool calls in them; a branch's shared part is not counted
    message_count: int
    tool_call_count: int
    # unique in the store, at most 100 characters; None: untitled
    title: str | None
    # who gave the title; each may replace only those before it
    title_source: TitleSource | None
    model: str | None
    # the peer of a gateway conversation
    user_id: str | None
    session_key: str | None
    chat_id: str | None
    chat_type: str | None
    thread_id: str | None
    display_name: str | None
    profile: str | None
    # where it works; the workspace is the repository's root, or the directory when there is none
    cwd: str | None
    git_branch: str | None
    git_repo_root: str | None
    # hidden from listings since then; True when a sweep did it, so that new messages bring it back
    archived_at: float | None
    auto_archived: bool
    # kept by every sweep since then
    pinned_at: float | None
    # never listed
    hidden: bool
    # fields of other programs that have no column here
    extra: dict[str, Any] | None


# The calls of rows that were deleted singly are in the newest row's number still.
_SELECT = f"""
SELECT s.no, s.id, s.source, s.state, iif({left_over('p')}, NULL, p.id), s.relation, s.branched_at_seq,
    s.started_at, s.ended_at, s.end_reason,
    max(s.active_at, coalesce(n.created_at, s.active_at)), coalesce(n.seq, 0) - s.deleted_messages,
    iif(s.deleted_messages = 0, coalesce(n.calls, 0), (SELECT
        coalesce(sum(iif(json_valid(m.tool_calls), json_array_length(m.tool_calls), 0)), 0)
        FROM messages m WHERE m.session_no = s.no AND m.tool_calls IS NOT NULL)),
    s.title, s.title_source, s.model, s.user_id, s.session_key, s.chat_id, s.chat_type,
    s.thread_id, s.display_name, s.profile, s.cwd, s.git_branch, s.git_repo_root, s.archived_at, s.auto_archived,
    s.pinned_at, s.hidden, s.extra
FROM sessions s
LEFT JOIN sessions p ON p.no = s.parent_no
LEFT JOIN messages n ON n.session_no = s.no AND n.seq = (SELECT max(seq) FROM messages WHERE session_no = s.no)
"""


def load(reader: Reads, no: int) -> Session:
    """The session of number `no`, which must be there: get it from `session_no` in the same snapshot."""
    return load_many(reader, [no])[0]


def load_many(reader: Reads, numbers: Iterable[int]) -> list[Session]:
    """The sessions of these numbers in their order; those that are gone are left out."""
    wanted = list(numbers)
    if len(wanted) == 1:
        found = reader.rows(_SELECT + "WHERE s.no = ?", wanted)
    else:
        found = reader.rows(_SELECT + "WHERE s.no IN (SELECT value FROM json_each(?))", (json.dumps(wanted),))
    loaded = {row[0]: _session(reader, row) for row in found}
    return [loaded[no] for no in wanted if no in loaded]


def _session(reader: Reads, row: tuple[Any, ...]) -> Session:
    return Session(
        no=row[0], id=row[1], source=row[2], state=row[3], parent_id=row[4], relation=row[5], branched_at_seq=row[6],
        started_at=row[7], ended_at=row[8], end_reason=row[9], active_at=row[10], message_count=row[11],
        tool_call_count=row[12], title=row[13], title_source=row[14], model=row[15], user_id=row[16],
        session_key=row[17], chat_id=row[18], chat_type=row[19], thread_id=row[20], display_name=row[21],
        profile=row[22], cwd=row[23], git_branch=row[24], git_repo_root=row[25], archived_at=row[26],
        auto_archived=bool(row[27]), pinned_at=row[28], hidden=bool(row[29]), extra=_extra(reader, row[1], row[30]),
    )


def _extra(reader: Reads, session_id: str, text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        value = json_values.read(text)
    except ValueError as error:
        raise _bad_extra(reader, session_id) from error
    if not isinstance(value, dict):
        raise _bad_extra(reader, session_id)
    return value


def _bad_extra(reader: Reads, session_id: str) -> Corrupt:
    return Corrupt(
        f"The extra fields of session {session_id} in {reader.path} are not a JSON object.",
        hint=f"Run `hermes-state doctor --db {shell_word(reader.path)}`.", path=reader.path, session_id=session_id,
    )


# --- finding -----------------------------------------------------------------------------------------------------

# What a deletion has left has an id of its own that nobody is told.
_NUMBER = f"SELECT no, state FROM sessions s WHERE id = ? AND NOT {left_over('s')}"


def session_no(reader: Reads, session_id: str) -> int:
    """The number of a session, whatever its state.

    Raises `SessionNotFound`, or `SessionDeleted` once it was removed; `InvalidInput` for what is no id.
    """
    found = reader.row(_NUMBER, (known_id(session_id),))
    if found is None:
        raise missing(reader, session_id)
    return int(found[0])


def writable_no(reader: Reads, session_id: str) -> int:
    """The number of a session that may be written to.

    Raises as `session_no`, and `SessionReplaced` (with `tip_id`) when a continuation took it over.
    """
    found = reader.row(_NUMBER, (known_id(session_id),))
    if found is None:
        raise missing(reader, session_id)
    if found[1] == "replaced":
        raise replaced(reader, session_id, int(found[0]))
    return int(found[0])


def missing(reader: Reads, session_id: str) -> SessionNotFound | SessionDeleted:
    """The error for an id without a row."""
    buried = reader.row("SELECT made_at FROM tombstones WHERE kind = 'session' AND key = ?", (session_id,))
    if buried is None:
        return SessionNotFound(
            f"There is no session {session_id!r} in {reader.path}.",
            hint="Check the id and the store: `hermes-state sessions list` shows what is here.",
            path=reader.path, session_id=session_id,
        )
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(buried[0]))
    return SessionDeleted(
        f"Session {session_id!r} of {reader.path} was deleted at {when}.",
        hint="Start a new session; the ledger of deletions says who removed this one and why.",
        path=reader.path, session_id=session_id, deleted_at=buried[0],
    )


def replaced(reader: Reads, session_id: str, no: int) -> SessionReplaced | SessionDeleted | SessionNotFound:
    """The error for writing to number `no`, known as `session_id`, whose state is "replaced".

    That is what a continuation took over, and also what a deletion left of a session, which has another id by then.
    """
    from hermes_state.conversation.lineage import tip_no

    if reader.row("SELECT 1 FROM sessions WHERE no = ? AND id = ?", (no, session_id)) is None:
        return missing(reader, session_id)
    tip = tip_no(reader, no)
    if tip == no:
        return SessionReplaced(
            f"Session {session_id!r} of {reader.path} was compressed into a continuation that is no longer there.",
            hint="Reopen it to go on in it.", path=reader.path, session_id=session_id, tip_id=None,
        )
    tip_id = str(reader.rows("SELECT id FROM sessions WHERE no = ?", (tip,))[0][0])
    return SessionReplaced(
        f"Session {session_id!r} of {reader.path} was compressed and goes on as {tip_id!r}.",
        hint=f"Use session {tip_id!r}.", path=reader.path, session_id=session_id, tip_id=tip_id,
    )


def resolve_id(reader: Reads, prefix: str) -> str:
    """The id that `prefix` is, or alone begins with it. Raises `SessionNotFound`, `SessionDeleted`, `InvalidInput`."""
    found = [
        str(session_id)
        for (session_id,) in reader.rows(
            "SELECT id FROM sessions WHERE id >= ?1 AND substr(id, 1, length(?1)) = ?1 AND (hidden = 0 OR id = ?1)"
            " AND id < ?1 || char(0x10FFFF) ORDER BY id LIMIT 3",
            (known_id(prefix),),
        )
    ]
    if not found or not prefix:
        raise missing(reader, prefix)
    if found[0] == prefix or len(found) == 1:
        return found[0]
    raise InvalidInput(
        f"{prefix!r} begins the ids of several sessions in {reader.path}: {found[0]}, {found[1]}"
        f"{', ...' if len(found) > 2 else ''}.",
        hint="Give more characters of the id.", path=reader.path, prefix=prefix, candidates=tuple(found),
    )


# --- ids and values ----------------------------------------------------------------------------------------------

_LAST_MICROSECOND = 0
_ID_LOCK = threading.Lock()


def new_session_id(now: float) -> str:
    """A new id that sorts by time: date, time and microsecond in UTC and 8 random hex digits.

    Two of one process are never equal and sort in the order they were made in, also when the clock stands still or is
    set back by less than a second.
    """
    global _LAST_MICROSECOND
    with _ID_LOCK:
        microsecond = int(now * 1_000_000)
        if 0 <= _LAST_MICROSECOND - microsecond < 1_000_000:
            microsecond = _LAST_MICROSECOND + 1
        _LAST_MICROSECOND = microsecond
    seconds, rest = divmod(microsecond, 1_000_000)
    return f"{time.strftime('%Y%m%d_%H%M%S', time.gmtime(seconds))}_{rest:06d}_{secrets.token_hex(4)}"


def scrub(text: str) -> str:
    """`text` with each lone surrogate, which no UTF-8 text can hold, as U+FFFD."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def optional_text(name: str, value: object) -> str | None:
    """A text argument as it is stored, or None. Raises `InvalidInput` for anything else."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise InvalidInput(f"{name} is a text or None, not {type(value).__name__}.", argument=name)
    return scrub(value)


def required_text(name: str, value: object) -> str:
    """A text argument that may not be empty."""
    text = optional_text(name, value)
    if not text:
        raise InvalidInput(f"{name} may not be empty.", argument=name)
    return text


def valid_id(value: object) -> str:
    """A new session's id as given by a caller. Raises `InvalidInput`."""
    text = required_text("id", value)
    if text != value or len(text) > LONGEST_ID or any(ord(one) < 32 or ord(one) == 127 for one in text):
        raise InvalidInput(
            f"A session id has at most {LONGEST_ID} printable characters; {text[:LONGEST_ID]!r} cannot be one.",
            argument="id",
        )
    return text


def known_id(value: object) -> str:
    """An id that a caller looks for. Raises `InvalidInput` for what no session's id can be."""
    if not isinstance(value, str):
        raise InvalidInput(f"A session id is a text, not {type(value).__name__}.", argument="session_id")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidInput(f"{value!r} is no text and cannot be a session id.", argument="session_id") from None
    return value


def valid_number(name: str, value: object) -> int:
    """A row's number as a caller gives it: a whole number that SQLite can hold. Raises `InvalidInput`."""
    if isinstance(value, bool) or not isinstance(value, int) or not -LARGEST_NUMBER <= value <= LARGEST_NUMBER:
        shown = "one of more than 64 bits" if isinstance(value, int) and not isinstance(value, bool) else repr(value)
        raise InvalidInput(f"{name} is a whole number, not {shown}.", argument=name)
    return value


def valid_seconds(name: str, value: object) -> float:
    """A span of time in seconds: finite, from 0, at most 10,000 years. Raises `InvalidInput`."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 315_576_000_000:
        raise InvalidInput(f"{name} is a number of seconds from 0, not {value!r}.", argument=name)
    return float(value)


def wall_time(clock: Clock) -> float:
    """The time to store for what happens now, in epoch seconds. Raises `InvalidInput` when the clock is far off."""
    return valid_time("the clock's time", clock.now())


def valid_time(name: str, value: object) -> float:
    """A time in epoch seconds: finite and within the years 1970 to 9999. Raises `InvalidInput`."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 253_402_300_800:
        raise InvalidInput(f"{name} is a time in epoch seconds, not {value!r}.", argument=name)
    return float(value)
