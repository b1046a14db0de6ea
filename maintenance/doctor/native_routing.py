"""Routing of a native store: chats that go on nowhere, rows of another home, what nobody serves.

Invariant: only reads, and every look is bounded: of chats as many as `MOST`, all of them when `deep`. What the next
message settles by itself (a session that was deleted), and what a person decided or may see to (a removed home, a lock,
a profile that is not served) are told and are no problems of the store; an entry that cannot be read, one of another
home and a floor below a generation are.

Not for: whether a process serves a profile now (`host status`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from hermes_state.routing.sessions import THERE
from maintenance.dialects.native import routed
from maintenance.doctor.findings import Finding, Severity, command, recover_command
from maintenance.output.text import plural, rfc3339

if TYPE_CHECKING:
    from hermes_state.clock import Clock
    from hermes_state.engine import Reader, ReadStore

MOST = 1000  # chats that are read
NAMED = 100  # in facts


def routing_findings(store: ReadStore, clock: Clock, *, deep: bool) -> Iterator[Finding]:
    """Everything here, in order."""
    with store.snapshot():
        if not routed.has_routing(store.rows):
            said = "There is no routing: the tables come with the next schema step."
            yield _told("routing", Severity.OK, said, {})
            return
        problems = [*_readable(store, deep), *_homes(store)]
        yield from problems
        yield _counts(store, problems)
        yield from _notes(store, clock)


def _counts(store: Reader, problems: list[Finding]) -> Finding:
    states = {str(name): int(count) for name, count in store.rows(
        "SELECT state, count(*) FROM routing_entries GROUP BY state ORDER BY state"
    )}
    (paired,) = store.rows("SELECT count(*) FROM pairing_users")[0]
    (unserved,) = store.rows("SELECT count(*) FROM routing_unserved WHERE needs_attention")[0]
    facts = {"chats": states, "paired": paired, "unserved": unserved, "problems": len(problems)}
    if not states and not paired:
        return _told("routing", Severity.OK, "No chat is routed.", facts)
    said = ", ".join(f"{count} {name}" for name, count in states.items())
    return _told(
        "routing", Severity.OK,
        f"{plural(sum(states.values()), 'chat')}{f' ({said})' if said else ''}; "
        f"{plural(paired, 'person', 'people')} paired.", facts,
    )


def _readable(store: Reader, deep: bool) -> Iterator[Finding]:
    rows = routed.rows_of(
        store.rows, routed.ENTRIES, "true" if deep else f"rowid IN (SELECT rowid FROM routing_entries LIMIT {MOST})"
    )
    wrong = [(row["session_key"], problem) for row in rows if (problem := routed.problem_of(row))]
    if wrong:
        yield _told(
            "route_unreadable", Severity.WARNING,
            f"{plural(len(wrong), 'chat')} cannot be read ({wrong[0][0]}: {wrong[0][1]}): another program or damage "
            f"changed {'its entry' if len(wrong) == 1 else 'their entries'}.",
            {"chats": [key for key, _problem in wrong[:NAMED]]}, recover_command(store.path),
        )


def _homes(store: Reader) -> Iterator[Finding]:
    (mine,) = store.rows("SELECT store_id FROM store")[0]
    other = store.rows(
        "SELECT session_key, home FROM routing_entries WHERE home IS NOT ? ORDER BY session_key LIMIT ?", (mine, MOST)
    )
    if other:
        yield _told(
            "route_of_another_home", Severity.WARNING,
            f"{plural(len(other), 'chat is', 'chats are')} of another home than this store, which is {mine} "
            f"({_some([str(key) for key, _home in other])}): after a restart nobody is answered by "
            f"{'it' if len(other) == 1 else 'them'}. The store got a new identity, or the rows came from another one; "
            "forget them with store.routing.forget, and the chats are bound anew.",
            {"chats": [str(key) for key, _home in other[:NAMED]], "homes": sorted({str(home) for _key, home in other})},
            command("routing list", store.path),
        )


def _notes(store: Reader, clock: Clock) -> Iterator[Finding]:
    """What a person may want to do something about."""
    removed = store.row("SELECT removed_at, removed_by, removed_because FROM routing_home WHERE removed_at NOT NULL")
    if removed is not None:
        yield _told(
            "home_removed", Severity.INFO,
            f"This home was marked as removed on {rfc3339(removed[0])} by {removed[1]}: {removed[2]}. Nothing is"
            " written for it.",
            {"removed_at": rfc3339(removed[0]), "removed_by": removed[1]},
        )
    lost = [str(key) for (key,) in store.rows(
        "SELECT session_key FROM (SELECT * FROM routing_entries ORDER BY session_key LIMIT ?) AS e WHERE state IN"
        " ('active', 'resuming') AND NOT EXISTS (SELECT 1 FROM sessions WHERE"
        f" {THERE.replace('id = ?', 'id = e.session_id')})", (MOST,),
    )]
    if lost:
        yield _told(
            "route_without_session", Severity.INFO,
            f"The session that {plural(len(lost), 'chat goes', 'chats go')} on in is not there ({_some(lost)}): the"
            f" next message of {'it' if len(lost) == 1 else 'each'} begins a new one.",
            {"chats": lost[:NAMED]}, command("routing list", store.path),
        )
    unserved = store.rows(
        "SELECT platform, profile, reason, dropped FROM routing_unserved WHERE needs_attention"
        " ORDER BY platform, profile LIMIT ?", (MOST,),
    )
    if unserved:
        platform, profile, reason, _dropped = unserved[0]
        yield _told(
            "not_served", Severity.INFO,
            f"{plural(len(unserved), 'profile is', 'profiles are')} not served on a platform ({profile} on {platform}: "
            f"{reason}); what {'it is' if len(unserved) == 1 else 'they are'} sent is dropped: "
            f"{sum(int(row[3]) for row in unserved):,} so far.",
            {"unserved": [{"platform": row[0], "profile": row[1], "dropped": row[3]} for row in unserved[:NAMED]]},
            command("routing list", store.path),
        )
    # A clock that was set back leaves at most the whole hour to wait (see `routing.pairing`).
    locked = store.rows(
        "SELECT platform, locked_until FROM pairing_failures WHERE locked_until > ? ORDER BY platform", (clock.now(),)
    )
    if locked:
        yield _told(
            "pairing_locked", Severity.INFO,
            f"Nobody is paired on {', '.join(str(name) for name, _until in locked)} before "
            f"{rfc3339(max(until for _name, until in locked))}: too many wrong codes were tried.",
            {"platforms": [str(name) for name, _until in locked]},
        )


def _some(keys: list[str]) -> str:
    return ", ".join(keys[:5]) + (", …" if len(keys) > 5 else "")


def _told(code: str, severity: Severity, sentence: str, facts: dict[str, Any], next_command: str = "") -> Finding:
    return Finding(
        code=code, severity=severity, object="routing", sentence=sentence, facts=facts, next_command=next_command
    )
