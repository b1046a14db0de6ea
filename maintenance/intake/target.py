"""A session of the store that is imported into: finding it, making it, and finishing it when its messages are there.

Invariant: a session is the same when its id and its start are. An id that another session has gets a suffix that
follows from both, so that the next import finds it again. A session is marked as unfinished from its first transaction
to its last: its end, title, flags and usage come in the last one, once, and a killed import goes on where it was.
What somebody changed here since then stays.

Not for: messages (`merge`). Overwriting a session that is here was rejected: it may be newer than the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from hermes_state import changes
from hermes_state.conversation import creation, titles
from hermes_state.conversation.creation import Place, Setup
from hermes_state.conversation.fields import to_json
from hermes_state.conversation.lineage import is_ancestor
from hermes_state.conversation.session_rows import LONGEST_ID, scrub
from hermes_state.conversation.view import merged, without
from hermes_state.errors import TitleTaken
from maintenance.intake.model import IncomingSession, IncomingUsage

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction

MARK = "import"  # key in `extra`: where the session came from, and `unfinished` until its last transaction
_COUNTS = (
    "api_calls", "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens",
)
_MONEY = ("estimated_cost_usd", "actual_cost_usd")
_ROUTE = ("provider", "base_url", "billing_mode")
_USAGE = ("model", *_ROUTE, "task", *_COUNTS, *_MONEY, "first_at", "last_at")
_PLACE = tuple(Place.__dataclass_fields__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Hidden:
    """A run of a session's messages that something hides."""

    action: str  # rewind or compact
    first: int  # first hidden number; below 1 in what a branch shares with its parent
    last: int  # last hidden number
    at: float  # epoch seconds UTC
    number: int  # the source's number of the edit, 0 when it has none


@dataclass(kw_only=True)
class Target:
    """One session as it is in the store."""

    id: str  # its id here
    no: int | None  # its number; None when it is not here (a plan)
    created: bool  # made by this import
    unfinished: bool  # made by an import, and its last transaction has not come
    renamed: bool  # its id here is another one than its own
    title_changed: str | None = None  # the title it got instead of its own, which was taken


def find(reader: Reader, session: IncomingSession) -> Target:
    """Where a session is, or would be."""
    plain = safe_id(session.id)
    other = f"{plain[: LONGEST_ID - 9]}~{_identity(session)}"
    for candidate in (other, plain):
        row = reader.row("SELECT no, started_at, extra FROM sessions WHERE id = ?", (candidate,))
        if row is not None and row[1] == session.started_at:
            mark = _mark(row[2])
            return Target(
                id=candidate, no=row[0], created=False, unfinished=bool(mark.get("unfinished")),
                renamed=candidate != session.id,
            )
    taken = reader.row("SELECT 1 FROM sessions WHERE id = ?", (plain,)) is not None
    candidate = other if taken else plain
    return Target(id=candidate, no=None, created=False, unfinished=False, renamed=candidate != session.id)


def safe_id(session_id: str) -> str:
    """An id that a store can have: itself, or a hash of it where it is too long or not printable."""
    text = scrub(session_id)
    if text == session_id and len(text) <= LONGEST_ID and text.isprintable():
        return text
    return "imported-" + blake2b(session_id.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def create(
    tx: Transaction, session: IncomingSession, target: Target, *, origin: str, parent_no: int | None,
    source: str | None, now: float,
) -> None:
    """Make the session, open and marked as unfinished. Raises `Entombed`, `SessionExists`."""
    mark: dict[str, Any] = {"from": origin, "unfinished": True}
    if target.renamed:
        mark["id"] = scrub(session.id)
    if session.parent_id is not None and parent_no is None:
        mark["parent"] = scrub(session.parent_id)
    no, _ = creation.insert(
        tx, id=target.id, source=source or session.source or "unknown", at=now, setup=Setup(), place={},
        started_at=session.started_at, extra=to_json("extra", {MARK: mark}),
        columns={
            "parent_no": parent_no,
            "relation": None if parent_no is None else session.relation or "other",
            "branched_at_seq": 0 if session.relation == "branch" and parent_no is not None else None,
        },
    )
    target.no, target.created, target.unfinished = no, True, True


def adopt_parent(tx: Transaction, session: IncomingSession, target: Target, parent_no: int) -> None:
    """Link a session that is here to a parent that came later. A link that would close a circle is left out."""
    row = tx.row("SELECT parent_no FROM sessions WHERE no = ?", (target.no,))
    if target.no is None or row is None or row[0] is not None or is_ancestor(tx, target.no, parent_no):
        return
    tx.execute(
        "UPDATE sessions SET parent_no = ?, relation = ? WHERE no = ?",
        (parent_no, session.relation or "other", target.no),
    )


def finish(
    tx: Transaction, session: IncomingSession, target: Target, *, hidden: Sequence[Hidden],
    shared_seq: int | None, shared_edit: int | None, in_step: bool, now: float,
) -> None:
    """The last transaction: what hides messages, usage, and for a new session its end, title and flags.

    `in_step`: the newest message of the session here is one of the file.
    """
    no = target.no
    if no is None:
        return
    changed = _hide(tx, no, hidden, target.id)
    _spend(tx, no, session)
    if target.unfinished:
        _settle(tx, session, target, no, shared_seq, shared_edit, now)
        changed = True
    elif in_step and session.ended_at is not None:
        # It was open when it was imported before, and nobody went on in it here.
        state = "replaced" if session.columns.get("replaced") else "ended"
        changed |= tx.execute(
            "UPDATE sessions SET state = ?, ended_at = ?, end_reason = ? WHERE no = ? AND state = 'open'",
            (state, session.ended_at, session.end_reason, no),
        ) > 0
    if changed:
        changes.record(tx, "sessions", target.id, "update", now)


def _settle(
    tx: Transaction, session: IncomingSession, target: Target, no: int, shared_seq: int | None,
    shared_edit: int | None, now: float,
) -> None:
    columns = session.columns
    setup = Setup(
        model=columns.get("model"), system_prompt=columns.get("system_prompt"), tools=columns.get("tools"),
        model_config=columns.get("model_config"),
    ).checked()
    place = Place(**{name: value for name, value in columns.items() if name in _PLACE})
    values: dict[str, Any] = {"hidden": columns.get("hidden", 0), **place.known(), **setup.columns(tx)}
    if session.ended_at is not None:
        values |= {
            "state": "replaced" if columns.get("replaced") else "ended", "ended_at": session.ended_at,
            "end_reason": session.end_reason,
        }
    if session.archived:
        values |= {"archived_at": session.ended_at or now, "auto_archived": columns.get("auto_archived", 0)}
    if session.pinned:
        values["pinned_at"] = now
    if shared_seq is not None:
        values |= {"branched_at_seq": shared_seq, "branched_at_edit": shared_edit}
    (text,) = tx.rows("SELECT extra FROM sessions WHERE no = ?", (no,))[0]
    mark = {name: value for name, value in _mark(text).items() if name != "unfinished"}
    if MARK in session.extra:
        mark["before"] = session.extra[MARK]
    extra = dict(session.extra) | {MARK: mark}
    title = columns.get("title")
    if title is not None:
        _title(tx, no, target, extra, str(title), columns.get("title_source"))
    values["extra"] = to_json("extra", extra)
    names = ", ".join(f"{name} = ?" for name in values)
    tx.execute(f"UPDATE sessions SET {names} WHERE no = ?", (*values.values(), no))
    target.unfinished = False


def _title(tx: Transaction, no: int, target: Target, extra: dict[str, Any], title: str, source: Any) -> None:
    """Give the title, or the next free one of its lineage; what it was is kept when it could not stay."""
    (there,) = tx.rows("SELECT title FROM sessions WHERE no = ?", (no,))[0]
    if there is not None:
        return
    wanted = titles.sanitize(" ".join(title.split())[: titles.LONGEST])
    number = 1
    given = wanted
    while given is not None:
        try:
            titles.give(tx, no, given, source)
            break
        except TitleTaken:
            number += 1
            suffix = f" #{number}"
            given = f"{(wanted or '')[: titles.LONGEST - len(suffix)].rstrip()}{suffix}"
    if given != title:
        extra[MARK]["title"] = scrub(title)
        target.title_changed = given


def _hide(tx: Transaction, no: int, hidden: Sequence[Hidden], session_id: str) -> bool:
    """Add what hides messages. What was hidden here once, and perhaps taken back by a person, is left as it is."""
    added = False
    for hide in hidden:
        rows = tx.rows("SELECT from_seq, to_seq FROM view_edits WHERE session_no = ? AND action = ?", (no, hide.action))
        for low, high in without(hide.first, hide.last, merged([(int(row[0]), int(row[1])) for row in rows])):
            tx.execute(
                "INSERT INTO view_edits (session_no, action, from_seq, to_seq, made_at, reason)"
                " VALUES (?, ?, ?, ?, ?, 'imported')",
                (no, hide.action, low, high, hide.at),
            )
            changes.record(tx, "view_edits", session_id, "insert", hide.at)
            added = True
    return added


def edit_bound(tx: Transaction, parent: Target, later: Sequence[Hidden]) -> int | None:
    """The edit before the first of `later` in the parent, which a branch does not know; None when it knows them all."""
    ids = [
        int(row[0]) for hide in later
        for row in tx.rows(
            "SELECT min(id) FROM view_edits WHERE session_no = ? AND action = ? AND from_seq >= ? AND to_seq <= ?",
            (parent.no, hide.action, hide.first, hide.last),
        ) if row[0] is not None
    ]
    return min(ids) - 1 if ids else None


def _spend(tx: Transaction, no: int, session: IncomingSession) -> None:
    """Raise what is accounted for the session to what the file says. The usage by day is of this store alone."""
    raised = ", ".join(f"{name} = max({name}, excluded.{name})" for name in _COUNTS)
    money = ", ".join(
        f"{name} = iif(excluded.{name} IS NULL, {name}, max(coalesce({name}, 0), excluded.{name}))" for name in _MONEY
    )
    totals = session.columns.get("totals") or _totals(session.usage)
    # An amount of nothing is an amount; a counter of nothing is what a session has anyway.
    if any(totals.get(name) for name in _COUNTS) or any(totals.get(name) is not None for name in (*_MONEY, *_ROUTE)):
        names = (*_COUNTS, *_MONEY, *_ROUTE)
        routes = ", ".join(f"{name} = coalesce({name}, excluded.{name})" for name in _ROUTE)
        values = [totals.get(name) or 0 if name in _COUNTS else totals.get(name) for name in names]
        tx.execute(
            f"INSERT INTO session_totals (session_no, {', '.join(names)}) VALUES (?{', ?' * len(names)})"
            f" ON CONFLICT (session_no) DO UPDATE SET {raised}, {money}, {routes}",
            (no, *values),
        )
    for usage in session.usage:
        amounts = {name: getattr(usage, name) or 0.0 for name in _MONEY}
        tx.execute(
            f"INSERT INTO session_usage (session_no, {', '.join(_USAGE)}) VALUES (?{', ?' * len(_USAGE)})"
            f" ON CONFLICT DO UPDATE SET {raised}, {money},"
            " first_at = min(first_at, excluded.first_at), last_at = max(last_at, excluded.last_at)",
            (no, *(amounts.get(name, getattr(usage, name)) for name in _USAGE)),
        )


def _totals(usage: tuple[IncomingUsage, ...]) -> Mapping[str, Any]:
    if not usage:
        return {}
    own = [row for row in usage if row.task == ""]
    sums: dict[str, Any] = {name: sum(getattr(row, name) for row in own) for name in _COUNTS}
    return sums | ({"provider": own[0].provider or None} if own else {})


def _identity(session: IncomingSession) -> str:
    text = f"{session.id}\0{session.started_at!r}"
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()


def _mark(extra: str | None) -> dict[str, Any]:
    found = json.loads(extra) if extra else {}
    mark = found.get(MARK) if isinstance(found, dict) else None
    return mark if isinstance(mark, dict) else {}
