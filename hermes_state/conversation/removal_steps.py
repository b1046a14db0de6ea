"""The steps of a deletion, each a part of the caller's transaction.

Invariant: the transaction that takes an id out of the store writes the entry in the ledger of deletions, the tombstone
and the feed, detaches the children that stay and frees the title. What is left of a large session then has an id that
nobody knows, no text but its messages, and is found again through the index on `active_at`, where nothing else is that
old. Messages that a branch shares are never removed.

Not for: deciding whether a session may go (see `removal`, whose `delete` plans, asks who is at work and paces). Copying
shared messages into each branch was rejected: it would give them new ids, and with that another place in the order.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hermes_state import changes, deletions, tombstones
from hermes_state.conversation import bodies, shared_texts
from hermes_state.conversation.session_rows import BEING_DELETED, KEPT_FOR_BRANCHES, left_over, new_session_id

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction

DEFAULT_HORIZON_SECONDS = 90 * 86_400.0
GUARDING_LEASES = ("turn", "compaction", "write")  # kinds of leases `kind:session id` that keep a session


@dataclass(frozen=True, kw_only=True)
class Deleted:
    """What a deletion did."""

    # ids that are gone, in the order they went; delegates included
    sessions: tuple[str, ...]
    # those of them that were not asked for: delegates
    delegates: tuple[str, ...]
    # messages that are gone
    messages: int
    # messages that stay because branches share them
    kept_messages: int
    # sessions that stay and have no parent any more
    detached: tuple[str, ...]


@dataclass
class _Tally:
    """What was done so far."""

    sessions: list[str] = field(default_factory=list)
    delegates: list[str] = field(default_factory=list)
    messages: int = 0
    kept: int = 0
    detached: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class _Order:
    """What the ledger and the tombstones say."""

    actor: str
    reason: str
    horizon_seconds: float
    at: float


def take_out(
    tx: Transaction, numbers: Sequence[int], *, actor: str, reason: str, at: float, limit: int,
    horizon_seconds: float = DEFAULT_HORIZON_SECONDS, asked: Collection[int] | None = None,
) -> Deleted:
    """Take the sessions of these numbers out, children before parents, and up to `limit` of their messages with them.

    What is left has no id that anybody knows and goes with `remove_left_behind`. `at` is epoch seconds UTC. `asked`:
    which of them somebody named (by default all); the others are noted as delegates. One entry in the ledger for all
    of them.
    """
    order = _Order(actor=actor, reason=reason, horizon_seconds=horizon_seconds, at=at)
    tally, left, plan = _Tally(), limit, set(numbers)
    for no in numbers:
        left = _take_one_out(tx, no, plan, order, left, tally)
        # Detached by the step before, and gone now.
        tally.detached = [one for one in tally.detached if one != tally.sessions[-1]]
        if asked is not None and no not in asked:
            tally.delegates.append(tally.sessions[-1])
    if tally.sessions:
        deletions.record(
            tx, actor=actor, reason=reason, kind="session", keys=tally.sessions,
            rows=len(tally.sessions) + tally.messages, at=at,
            detail={
                "sessions": len(tally.sessions), "messages": tally.messages, "delegates": tally.delegates,
                "kept_messages": tally.kept, "detached": tally.detached,
            },
        )
    return Deleted(
        sessions=tuple(tally.sessions), delegates=tuple(tally.delegates), messages=tally.messages,
        kept_messages=tally.kept, detached=tuple(tally.detached),
    )


# Through the index on active_at.
_LEFT_BEHIND = "FROM sessions WHERE active_at = 0 AND hidden = 1 AND end_reason = ?"


def left_behind(reader: Reader) -> int:
    """Sessions that were taken out and whose rows are not all removed yet."""
    return int(reader.rows(f"SELECT count(*) {_LEFT_BEHIND}", (BEING_DELETED,))[0][0])


def remove_left_behind(tx: Transaction, limit: int) -> bool:
    """Remove up to about `limit` rows that deletions left, those of a killed process too; True when there are more.

    A branch that shares nothing of what goes is cut off it first.
    """
    left = limit
    while left > 0:
        row = tx.row(f"SELECT no, ended_at {_LEFT_BEHIND} LIMIT 1", (BEING_DELETED,))
        if row is None:
            return False
        no = int(row[0])
        left -= max(_remove_rows(tx, no, _kept_seq(tx, no), left, row[1]), 1)
    return True


def is_left_over(reader: Reader, no: int) -> bool:
    """True when a session was taken out before, or is not there at all."""
    row = reader.row(f"SELECT {left_over('s')} FROM sessions s WHERE no = ?", (no,))
    return row is None or bool(row[0])


def _take_one_out(tx: Transaction, no: int, plan: set[int], order: _Order, left: int, tally: _Tally) -> int:
    """Take one session out of sight with everything that says so; returns what of `left` its messages leave."""
    session_id, stored, *texts = tx.rows(
        "SELECT id, coalesce((SELECT max(seq) FROM messages WHERE session_no = s.no), 0) - deleted_messages,"
        " prompt_no, tools_no, model_config_no FROM sessions s WHERE no = ?", (no,)
    )[0]
    # A continuation that shares its parent's messages (see `rotate`) keeps them as a branch does, and is one now.
    tx.execute(
        "UPDATE sessions SET relation = 'branch' WHERE relation = 'continuation' AND branched_at_seq IS NOT NULL"
        " AND (no = ?1 OR parent_no = ?1)", (no,)
    )
    keep = _kept_seq(tx, no)
    kept = 0 if not keep else tx.rows(
        "SELECT count(*) FROM messages WHERE session_no = ? AND seq <= ?", (no, keep)
    )[0][0]
    for child, child_id, kind in tx.rows("SELECT no, id, relation FROM sessions WHERE parent_no = ?", (no,)):
        if kind == "branch" and keep is not None:
            continue
        _detach(tx, child)
        if child not in plan:
            changes.record(tx, "sessions", child_id, "update", order.at)
            tally.detached.append(child_id)
    tombstones.entomb(
        tx, "session", session_id, made_at=order.at, horizon_seconds=order.horizon_seconds, actor=order.actor,
        reason=order.reason,
    )
    changes.record(tx, "sessions", session_id, "delete", order.at)
    tally.sessions.append(session_id)
    tally.messages += stored - kept
    tally.kept += kept
    # From here on nobody finds it by its id, and it says nothing but its messages, and where they came from as long as
    # a branch shows them. "replaced" stops whoever remembers its number from appending.
    tx.execute(
        "UPDATE sessions SET id = ?, source = iif(?, source, 'deleted'), state = 'replaced', ended_at = ?,"
        " end_reason = ?, title = NULL, title_source = NULL, model = NULL, prompt_no = NULL, tools_no = NULL,"
        " model_config_no = NULL,"
        " user_id = NULL, session_key = NULL, chat_id = NULL, chat_type = NULL, thread_id = NULL, display_name = NULL,"
        " profile = NULL, cwd = NULL, git_branch = NULL, git_repo_root = NULL, archived_at = NULL, auto_archived = 0,"
        " pinned_at = NULL, extra = NULL, hidden = 1, started_at = 0, active_at = 0 WHERE no = ?",
        (new_session_id(order.at), keep is not None, order.at, BEING_DELETED, no),
    )
    _generations_of(tx, no)
    if keep is None or tx.rows("SELECT relation IS NOT 'branch' FROM sessions WHERE no = ?", (no,))[0][0]:
        _release_parent(tx, no, tally, order.at)
    for table in ("streams", "session_totals", "session_usage"):
        tx.execute(f"DELETE FROM {table} WHERE session_no = ?", (no,))
    shared_texts.release(tx, texts)
    return left - _remove_rows(tx, no, keep, left, order.at)


def _generations_of(tx: Transaction, no: int) -> None:
    """What compactions left of a session that was taken out goes, but for that through which a branch is seen."""
    tx.execute("DELETE FROM compaction_heads WHERE session_no = ?", (no,))
    if tx.row("SELECT 1 FROM compactions LIMIT 1") is not None:
        from hermes_state.compaction.generations.deleting import drop_unused

        drop_unused(tx, no)


def _kept_seq(tx: Transaction, no: int) -> int | None:
    """Up to which of its messages branches share a session; None when it can go altogether.

    0 when branches share nothing of its own, but through it what it shares itself.
    """
    seq, branches, is_branch, first = tx.rows(
        "SELECT max(coalesce(branched_at_seq, 0)), count(*),"
        " (SELECT relation = 'branch' FROM sessions WHERE no = ?1),"
        " (SELECT min(seq) FROM messages WHERE session_no = ?1)"
        " FROM sessions WHERE parent_no = ?1 AND relation = 'branch'", (no,)
    )[0]
    if not branches:
        return None
    if first is not None and first <= seq:
        return int(seq)
    return 0 if is_branch else None


def _detach(tx: Transaction, no: int) -> None:
    tx.execute(
        "UPDATE sessions SET parent_no = NULL, relation = NULL, branched_at_seq = NULL, branched_at_edit = NULL"
        " WHERE no = ?", (no,)
    )


def _detach_children(tx: Transaction, no: int, at: float) -> list[str]:
    """Cut off what is still below a session that goes: branches that share none of it. Returns their ids."""
    ids: list[str] = []
    children = f"SELECT no, id, {left_over('s')} FROM sessions s WHERE parent_no = ?"
    for child, child_id, nobody in tx.rows(children, (no,)):
        _detach(tx, child)
        if not nobody:
            changes.record(tx, "sessions", child_id, "update", at)
            ids.append(child_id)
    return ids


def _release_parent(tx: Transaction, no: int, tally: _Tally, at: float) -> None:
    """Cut a session off its parent. What was kept there for it alone goes as well, and counts as deleted now."""
    (parent,) = tx.rows("SELECT parent_no FROM sessions WHERE no = ?", (no,))[0]
    if parent is None:
        return
    before = _kept_seq(tx, parent)
    _detach(tx, no)
    if not tx.execute(
        f"UPDATE sessions AS s SET end_reason = ? WHERE no = ? AND {left_over('s')}", (BEING_DELETED, parent)
    ):
        return
    _generations_of(tx, parent)
    after = _kept_seq(tx, parent)
    tally.messages += tx.rows(
        "SELECT count(*) FROM messages WHERE session_no = ? AND seq > ? AND seq <= ?",
        (parent, after or 0, before or 0),
    )[0][0]
    if after is None:
        tally.detached += _detach_children(tx, parent, at)
        _release_parent(tx, parent, tally, at)


def _remove_rows(tx: Transaction, no: int, keep: int | None, left: int, at: float) -> int:
    """Remove up to `left` messages above `keep`, newest first, and the session with the last one; returns how many."""
    floor = keep or 0
    found = tx.rows(
        "SELECT id, seq, body_no FROM messages WHERE session_no = ? AND seq > ? ORDER BY seq DESC LIMIT ?",
        (no, floor, max(left, 0)),
    )
    if found:
        tx.execute("DELETE FROM messages WHERE session_no = ? AND seq >= ?", (no, found[-1][1]))
        highest = max(message_id for message_id, _seq, _body in found)
        tx.execute("UPDATE store SET message_floor = ?1 WHERE message_floor < ?1", (highest,))
        bodies.free(tx, [body for _id, _seq, body in found if body is not None])
    if tx.row("SELECT 1 FROM messages WHERE session_no = ? AND seq > ? LIMIT 1", (no, floor)) is None:
        if keep is None:
            _detach_children(tx, no, at)
            tx.execute("DELETE FROM sessions WHERE no = ?", (no,))
        else:
            tx.execute("UPDATE sessions SET end_reason = ? WHERE no = ?", (KEPT_FOR_BRANCHES, no))
    return len(found)
