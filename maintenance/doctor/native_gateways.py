"""Gateways of a native store: rows that would let somebody in, keep somebody out or go on without end.

Invariant: only reads, and every look is bounded or goes by an index: of the newest rows as many as `MOST`. Whoever may
connect is told, and so is a server that ended with turns under way; that is no problem of the store. A credential that
should have ended, an id that could come back, a thread that says something else than its turns, and an epoch that would
be given again are.

Not for: settling anything (a server does when it starts, and a connect asks the gateway), and references (`rows`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from maintenance.dialects.native import serving
from maintenance.dialects.native.guards import judge, owner_of
from maintenance.doctor.findings import Finding, Severity, command, recover_command
from maintenance.output.text import plural

if TYPE_CHECKING:
    from hermes_state.clock import Clock
    from hermes_state.engine import Reader, ReadStore

# A question whose time ran out for so long is no longer ended by a server that is up: those look once a second.
OVERDUE_SECONDS = 3600.0
MOST = 1000  # rows that a check looks at, the newest first
NAMED = 100  # in facts
_ACTIVE = "state IN ('starting', 'running', 'stopping')"


def gateway_findings(store: ReadStore, clock: Clock) -> Iterator[Finding]:
    """Everything here, in order."""
    with store.snapshot():
        if not serving.has_instances(store.rows):
            said = "There are no gateways: the tables come with the next schema step."
            yield _told("gateways", Severity.OK, said, {})
            return
        problems = [*_admits(store), *_tombstones(store), *_threads(store), *_epoch(store)]
        yield from problems
        yield _counts(store, problems)
        yield from _notes(store, clock)


def _counts(store: Reader, problems: list[Finding]) -> Finding:
    states = {str(name): int(count) for name, count in store.rows(
        "SELECT state, count(*) FROM gateway_instances GROUP BY state ORDER BY state"
    )}
    (active,) = store.rows(f"SELECT count(*) FROM turns WHERE {_ACTIVE}")[0]
    (asked,) = store.rows("SELECT count(*) FROM interactions WHERE state = 'open'")[0]
    (stops,) = store.rows("SELECT count(*) FROM stops WHERE state = 'pending'")[0]
    facts = {"instances": states, "turns": active, "questions": asked, "stops": stops, "problems": len(problems)}
    if not states:
        return _told("gateways", Severity.OK, "There are no gateways.", facts)
    said = ", ".join(f"{count} {name}" for name, count in states.items())
    return _told(
        "gateways", Severity.OK,
        f"{plural(sum(states.values()), 'gateway instance')} ({said}); {plural(active, 'turn')} under way, "
        f"{plural(asked, 'open question')}, {plural(stops, 'stop')} owed.", facts,
    )


def _admits(store: Reader) -> Iterator[Finding]:
    left = _names(store, (
        "SELECT instance_id FROM gateway_credentials WHERE instance_id NOT IN"
        " (SELECT instance_id FROM gateway_instances WHERE state = 'enrolled')"
    ))
    if left:
        yield _told(
            "credential_left", Severity.WARNING,
            f"{plural(len(left), 'instance has', 'instances have')} a credential and may not connect ({_some(left)}): "
            "another program put it there.",
            {"instances": left[:NAMED]}, command("instances revoke", store.path, _word(left[0])),
        )
    keyless = _names(store, (
        "SELECT instance_id FROM gateway_credentials WHERE NOT EXISTS (SELECT 1 FROM gateway_digest_key)"
    ))
    if keyless:
        yield _told(
            "digest_key_missing", Severity.WARNING,
            f"The key of the store is gone, so no credential of {plural(len(keyless), 'instance')} opens anything "
            f"({_some(keyless)}).",
            {"instances": keyless[:NAMED]}, command("instances enroll", store.path, _word(keyless[0])),
        )


def _tombstones(store: Reader) -> Iterator[Finding]:
    free = _names(store, (
        "SELECT instance_id FROM gateway_instances AS i WHERE removed_at IS NOT NULL AND EXISTS (SELECT 1 FROM"
        " thread_bindings AS b WHERE b.instance_id = i.instance_id) AND NOT EXISTS (SELECT 1 FROM tombstone_references"
        " AS r WHERE r.kind = 'instance' AND r.key = i.instance_id)"
    ))
    if free:
        yield _told(
            "tombstone_missing", Severity.WARNING,
            f"Threads are bound to {plural(len(free), 'removed instance')} whose id nothing keeps from coming back "
            f"({_some(free)}): another program took the tombstone out.",
            {"instances": free[:NAMED]}, recover_command(store.path),
        )
    lost = _names(store, (
        "SELECT thread_id FROM thread_bindings AS b WHERE NOT EXISTS (SELECT 1 FROM gateway_instances AS i WHERE"
        " i.instance_id = b.instance_id)"
    ))
    if lost:
        yield _told(
            "binding_refers_to_nothing", Severity.WARNING,
            f"{plural(len(lost), 'thread is', 'threads are')} bound to instances that are not there ({_some(lost)}).",
            {"threads": lost[:NAMED]}, recover_command(store.path),
        )


def _threads(store: Reader) -> Iterator[Finding]:
    differ = _names(store, (
        f"SELECT thread_id FROM (SELECT thread_id, turn_id, state FROM turns WHERE {_ACTIVE} ORDER BY no DESC"
        f" LIMIT {MOST}) AS t WHERE state = 'running' AND EXISTS (SELECT 1 FROM thread_states AS s WHERE s.thread_id"
        " = t.thread_id AND s.turn_ids = 1 AND s.active_turn_id IS NOT t.turn_id"
        " AND s.status NOT IN ('stop_pending', 'stopped'))"
        " UNION SELECT thread_id FROM thread_states AS s WHERE s.active_turn_id IS NOT NULL AND NOT EXISTS (SELECT 1"
        f" FROM turns AS t WHERE t.turn_id = s.active_turn_id AND t.thread_id = s.thread_id AND t.{_ACTIVE})"
    ))
    if differ:
        yield _told(
            "thread_differs", Severity.WARNING,
            f"{plural(len(differ), 'thread says', 'threads say')} something else than the turns in "
            f"{'it' if len(differ) == 1 else 'them'} ({_some(differ)}): another program or damage changed one of both.",
            {"threads": differ[:NAMED]}, recover_command(store.path),
        )


def _epoch(store: Reader) -> Iterator[Finding]:
    named = max(int(value or 0) for (value,) in (
        *store.rows(
            "SELECT max(CAST(generation AS INTEGER)) FROM (SELECT generation FROM turns ORDER BY no DESC LIMIT ?)"
            " WHERE generation GLOB '[0-9]*.[0-9]*'", (MOST,),
        ),
        *store.rows(
            "SELECT max(epoch) FROM (SELECT epoch FROM gateway_operations WHERE settled_at IS NOT NULL"
            " ORDER BY settled_at DESC LIMIT ?)", (MOST,),
        ),
    ))
    there = store.row("SELECT fence FROM leases WHERE name = ?", (serving.SERVER_LEASE,))
    epoch = 0 if there is None else int(there[0])
    if named > epoch:
        yield _told(
            "gateway_epoch_low", Severity.WARNING,
            f"The next start of the gateway server gets epoch {epoch + 1}, and rows name {named}: frames of "
            "connections that ended could pass for new ones.",
            {"epoch": epoch, "named": named}, recover_command(store.path),
        )


def _notes(store: Reader, clock: Clock) -> Iterator[Finding]:
    """What a person may want to do something about."""
    out = _names(store, (
        "SELECT instance_id FROM gateway_instances AS i WHERE state = 'enrolled' AND NOT EXISTS (SELECT 1 FROM"
        " gateway_credentials AS c WHERE c.instance_id = i.instance_id) AND NOT EXISTS (SELECT 1 FROM enrollment_tokens"
        f" AS t WHERE t.instance_id = i.instance_id AND t.state = 'pending' AND t.expires_at >= {clock.now()!r})"
    ))
    if out:
        yield _told(
            "instances_out", Severity.INFO,
            f"{plural(len(out), 'enrolled instance has', 'enrolled instances have')} no credential, and no token that "
            f"is good ({_some(out)}): a new enrollment was begun and not finished.",
            {"instances": out[:NAMED]}, command("instances enroll", store.path, _word(out[0])),
        )
    late = store.rows(
        "SELECT id FROM interactions WHERE state = 'open' AND expires_at IS NOT NULL AND expires_at <= ?"
        " ORDER BY expires_at LIMIT ?", (clock.now() - OVERDUE_SECONDS, MOST),
    )
    if late:
        yield _told(
            "questions_overdue", Severity.INFO,
            f"The time of {plural(len(late), 'question')} ran out more than an hour ago, and no gateway server was up "
            "to end it; the next one does.",
            {"questions": [number for (number,) in late[:NAMED]]},
        )
    row = store.row("SELECT owner, fence FROM leases WHERE name = ?", (serving.SERVER_LEASE,))
    if row is not None and row[0] is not None and judge(store, owner_of(row[0]), clock).dead:
        (active,) = store.rows(f"SELECT count(*) FROM turns WHERE {_ACTIVE}")[0]
        yield _told(
            "gateway_server_gone", Severity.INFO,
            f"The process of the gateway server (epoch {row[1]}) is gone without having let go, with "
            f"{plural(active, 'turn')} under way: the next start settles what it can, and asks the gateways for the "
            "rest.",
            {"epoch": row[1], "turns": active}, command("instances list", store.path),
        )


def _names(store: Reader, sql: str) -> list[str]:
    return [str(name) for (name,) in store.rows(f"SELECT * FROM ({sql}) ORDER BY 1 LIMIT {MOST}")]


def _word(text: str) -> str:
    from hermes_state.shell_words import shell_word

    return shell_word(text)


def _some(ids: list[str]) -> str:
    return ", ".join(ids[:5]) + (", …" if len(ids) > 5 else "")


def _told(code: str, severity: Severity, sentence: str, facts: dict[str, Any], next_command: str = "") -> Finding:
    return Finding(
        code=code, severity=severity, object="gateways", sentence=sentence, facts=facts, next_command=next_command
    )
