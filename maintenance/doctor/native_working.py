"""What goes on beside conversations, and what adoption kept and nobody converted.

Invariant: only reads, and every look is bounded. Work whose watcher is gone, a reply that was interrupted, a sign-in
that was granted and not written, a chat that waits for a turn and a token that may be lost are told: a gateway settles
them when it starts, or a person does; none is a problem of the store. Rows that contradict each other are.

Not for: notices and finals that are owed (`native_outbox`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from maintenance.dialects.native.guards import judge, owner_of
from maintenance.doctor.findings import Finding, Severity, command
from maintenance.interop.convert.convert import look
from maintenance.output.text import plural

if TYPE_CHECKING:
    from hermes_state.clock import Clock
    from hermes_state.engine import Reader, ReadStore

# What waits in a lane, or is streamed, for so long was forgotten by its gateway: no turn takes a day.
LONG_SECONDS = 86_400.0
# No provider takes so long to answer: whoever sent the token is gone.
ANSWER_SECONDS = 3600.0
MOST = 1000  # rows that a check looks at
NAMED = 100  # in facts
_TABLES = frozenset({"background_work", "reply_seals", "lane_items", "login_attempts", "credentials"})


def working_findings(store: ReadStore, clock: Clock) -> Iterator[Finding]:
    """Everything here, in order."""
    with store.snapshot():
        if {str(name) for (name,) in store.rows("SELECT name FROM sqlite_schema WHERE type = 'table'")} >= _TABLES:
            yield _counts(store)
            yield from _orphans(store, clock)
            yield from _waiting(store, clock)
            yield from _logins(store, clock)
            yield from _tokens(store, clock)
        yield from _kept(store)


def _counts(store: Reader) -> Finding:
    (running, left), = store.rows(
        "SELECT coalesce(sum(ended_at IS NULL), 0), coalesce(sum(ended_at IS NOT NULL AND coalesce((SELECT state FROM"
        " outbox WHERE dedupe_id = background_work.key), delivery) IN ('pending', 'claimed')), 0) FROM background_work"
    )
    (lanes,) = store.rows("SELECT count(*) FROM lane_items WHERE state = 'waiting'")[0]
    facts = {"running": running, "untold": left, "waiting": lanes}
    if not any(facts.values()):
        return _told("background_work", Severity.OK, "Nothing goes on beside conversations.", facts)
    return _told(
        "background_work", Severity.OK,
        f"{plural(running, 'piece')} of background work under way, {left} ended and not told of yet, "
        f"{plural(lanes, 'message')} waiting in lanes.", facts, command("work list", store.path),
    )


def _orphans(store: Reader, clock: Clock) -> Iterator[Finding]:
    left = [
        str(key) for key, owner in store.rows(
            "SELECT key, owner FROM background_work WHERE ended_at IS NULL ORDER BY no LIMIT ?", (MOST,)
        ) if judge(store, owner_of(owner), clock).dead
    ]
    if left:
        yield _told(
            "background_work_orphaned", Severity.INFO,
            f"Of {plural(len(left), 'piece')} of background work the process that watched over it is gone "
            f"({_some(left)}): the next gateway finds out how it ended, and tells it.",
            {"keys": left[:NAMED]}, command("work list", store.path),
        )


def _waiting(store: Reader, clock: Clock) -> Iterator[Finding]:
    long_ago = clock.now() - LONG_SECONDS
    turns = _names(store, (
        "SELECT turn_id FROM reply_seals WHERE state = 'streaming' AND changed_at < ? ORDER BY changed_at LIMIT ?"
    ), long_ago, MOST)
    if turns:
        yield _told(
            "replies_interrupted", Severity.INFO,
            f"{plural(len(turns), 'reply', 'replies')} began more than a day ago and have no final ({_some(turns)}): "
            "their gateway finishes or abandons them when it starts.", {"turns": turns[:NAMED]},
            command("work list", store.path),
        )
    lanes = _names(store, (
        "SELECT DISTINCT lane FROM lane_items WHERE state = 'waiting' AND kind = 'follow_up' AND came_at < ?"
        " ORDER BY lane LIMIT ?"
    ), long_ago, MOST)
    if lanes:
        yield _told(
            "lanes_waiting", Severity.INFO,
            f"In {plural(len(lanes), 'chat')} a message waits for a turn since more than a day ({_some(lanes)}): no "
            "gateway takes it.", {"lanes": lanes[:NAMED]}, command("work list", store.path),
        )


def _logins(store: Reader, clock: Clock) -> Iterator[Finding]:
    left = [
        str(name) for name, owner in store.rows(
            "SELECT attempt_id, owner FROM login_attempts WHERE state = 'transferred' ORDER BY started_at LIMIT ?",
            (MOST,),
        ) if judge(store, owner_of(owner), clock).dead
    ]
    if left:
        yield _told(
            "logins_unfinished", Severity.INFO,
            f"{plural(len(left), 'sign-in was', 'sign-ins were')} granted and not written before the process ended "
            f"({_some(left)}): the next gateway completes {'it' if len(left) == 1 else 'them'}.",
            {"attempts": left[:NAMED]}, command("work list", store.path),
        )


def _tokens(store: Reader, clock: Clock) -> Iterator[Finding]:
    lost = _names(store, (
        "SELECT provider || ' ' || id FROM credentials WHERE rotation = 'grant_may_be_lost'"
        " OR (rotation = 'rotating' AND rotation_at < ?) ORDER BY 1 LIMIT ?"
    ), clock.now() - ANSWER_SECONDS, MOST)
    if lost:
        yield _told(
            "grants_may_be_lost", Severity.INFO,
            f"Of {plural(len(lost), 'credential')} a token that works once was sent and its answer was lost "
            f"({_some(lost)}): it is not sent again; log in again.", {"credentials": lost[:NAMED]},
        )


def _kept(store: ReadStore) -> Iterator[Finding]:
    found = look(store)
    if found.pending:
        rows = ", ".join(f"{count} of {table}" for table, count in found.rows.items())
        yield _told(
            "kept_rows", Severity.INFO,
            f"What adoption kept of hermes-agent's gateway is not converted: {rows}. Chats begin anew and nothing of "
            "it is sent until it is.", {"rows": dict(found.rows)}, command("sessions optimize", store.path),
        )


def _names(store: Reader, sql: str, *params: Any) -> list[str]:
    return [str(name) for (name,) in store.rows(sql, params)]


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")


def _told(
    code: str, severity: Severity, sentence: str, facts: dict[str, Any], next_command: str = ""
) -> Finding:
    return Finding(
        code=code, severity=severity, object="background work", sentence=sentence, facts=facts,
        next_command=next_command,
    )
