"""The parts of a native store that are not messages: identity, schema, owners, what waits to be tidied.

Invariant: only reads; every check is one finding or more, so silence never means "ok". Not for: rows of sessions and
messages (`native_rows`), the search index (`native_search`), changing an identity (`native_identity`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from hermes_state.clock import Clock
from hermes_state.engine.migrate import applied, pending
from hermes_state.engine.schema import schema_sql
from hermes_state.errors import MigrationFailed, SchemaTooNew
from maintenance.dialects.native.guards import judge, owner_of
from maintenance.dialects.native.shape import Identity
from maintenance.doctor.findings import Finding, Severity, command, recover_command, repair_command
from maintenance.output.text import plural, rfc3339

if TYPE_CHECKING:
    from hermes_state.engine import Reader, ReadStore

_CREATED = re.compile(r"^CREATE (?:UNIQUE )?(TABLE|INDEX|TRIGGER) (\w+)", re.MULTILINE)
INCREMENTAL = 2  # value of PRAGMA auto_vacuum


def store_findings(store: ReadStore, identity: Identity, clock: Clock) -> Iterator[Finding]:
    """Everything here, in order."""
    yield identity_finding(store, identity)
    yield from schema_findings(store)
    yield mode_finding(store)
    yield from lease_findings(store, clock)
    yield from stream_findings(store, clock)
    yield from waiting_findings(store, clock)


def identity_finding(store: Reader, identity: Identity) -> Finding:
    """Who the store says it is."""
    return Finding(
        code="native_identity",
        severity=Severity.OK,
        object=str(store.path),
        sentence=f"Native store {identity.store_id}, made {rfc3339(identity.created_at)}.",
        facts={
            "store_id": identity.store_id,
            "incarnation": identity.incarnation,
            "created_at": rfc3339(identity.created_at),
        },
    )


def schema_findings(store: Reader) -> list[Finding]:
    """The ledger of schema steps, and the objects that they made."""
    try:
        missing = pending(store.path, applied(store))
    except (SchemaTooNew, MigrationFailed) as problem:
        return [
            Finding(
                code="schema_of_another_release",
                severity=Severity.WARNING,
                object=str(store.path),
                sentence=f"{problem.message} {problem.hint}",
                facts={"code": problem.code},
            )
        ]
    if missing:
        heavy = any(step.phase == "post" for step in missing)
        names = ", ".join(step.name for step in missing)
        how = "`sessions optimize` applies them" if heavy else "the next open for writing applies them"
        return [
            Finding(
                code="schema_steps_missing",
                severity=Severity.INFO,
                object=str(store.path),
                sentence=f"{plural(len(missing), 'schema step')} of this release "
                f"{'is' if len(missing) == 1 else 'are'} "
                f"not applied yet ({names}); {how}.",
                facts={"steps": [step.name for step in missing]},
                next_command=command("sessions optimize", store.path) if heavy else "",
            )
        ]
    lost = missing_objects(store)
    if lost:
        return [
            Finding(
                code="schema_object_missing",
                severity=Severity.DAMAGE,
                object=name,
                sentence=f"The {kind} {name} of the schema is not in the file: another program took it out.",
                facts={"kind": kind},
                next_command=(recover_command if kind == "table" else repair_command)(store.path),
                derived=kind != "table",
            )
            for kind, name in lost
        ]
    number = max(applied(store), default=0)
    sentence = f"Schema at step {number}, every step as this release has it."
    return [
        Finding(code="schema", severity=Severity.OK, object=str(store.path), sentence=sentence, facts={"step": number})
    ]


def missing_objects(store: Reader) -> list[tuple[str, str]]:
    """(kind, name) of what the schema has and the file has not."""
    here = {(str(kind), str(name)) for kind, name in store.rows("SELECT type, name FROM sqlite_schema")}
    wanted = [(kind.lower(), name) for kind, name in _CREATED.findall(schema_sql())]
    return [entry for entry in wanted if entry not in here]


def mode_finding(store: ReadStore) -> Finding:
    """Journal mode, vacuum mode and what a commit survives."""
    row = store.row("PRAGMA auto_vacuum")
    vacuum = int(row[0]) if row else 0
    facts = {"journal_mode": store.journal_mode, "auto_vacuum": vacuum, "process": "NORMAL", "power": "FULL"}
    if store.journal_mode != "wal":
        return Finding(
            code="mode",
            severity=Severity.WARNING,
            object=str(store.path),
            sentence=f"The store is in {store.journal_mode} mode and not in WAL: another program switched it, and "
            "appends wait for readers.",
            facts=facts,
        )
    if vacuum != INCREMENTAL:
        return Finding(
            code="mode",
            severity=Severity.WARNING,
            object=str(store.path),
            sentence="The store was rebuilt without incremental vacuum by another program: it cannot shrink while it "
            "is in use.",
            facts=facts,
            next_command=command("sessions optimize", store.path, "--offline"),
        )
    return Finding(
        code="mode",
        severity=Severity.OK,
        object=str(store.path),
        sentence="WAL with incremental vacuum. Messages of a turn survive the end of any process (synchronous NORMAL); "
        "what settles a turn survives a power cut (FULL).",
        facts=facts,
    )


def lease_findings(store: Reader, clock: Clock) -> list[Finding]:
    """Leases whose owner is gone: whoever wants one next takes it at once."""
    from hermes_state.leases import rows
    from hermes_state.leases.states import Standing, standing

    late, held = [], 0
    for (name,) in store.rows("SELECT name FROM leases WHERE owner IS NOT NULL"):
        row = rows.read(store, name)
        owner = None if row is None else row.identity
        seen = standing(
            row, now=clock.boottime(), domain=clock.domain(), sighting=None,
            judge=lambda owner=owner: judge(store, owner, clock),  # type: ignore[misc]
        )
        if seen in (Standing.RUN_OUT, Standing.DEAD):
            late.append(str(name))
        elif seen in (Standing.HELD, Standing.WATCHED):
            held += 1
    if not late:
        sentence = f"{plural(held, 'lease is', 'leases are')} held." if held else "No lease is held."
        return [Finding(code="leases", severity=Severity.OK, object="leases", sentence=sentence, facts={"held": held})]
    shown = ", ".join(late[:5]) + (", …" if len(late) > 5 else "")
    sentence = (
        f"{plural(len(late), 'lease')} of processes that are gone or late: {shown}. Whoever needs one next takes it; "
        "nothing has to be done."
    )
    return [
        Finding(
            code="leases_left", severity=Severity.INFO, object="leases", sentence=sentence,
            facts={"names": late[:100], "held": held},
        )
    ]


def stream_findings(store: Reader, clock: Clock) -> list[Finding]:
    """Messages that were being received when their process died: the text so far is kept."""
    streams = store.rows(
        "SELECT t.id, s.id, t.owner, t.started_at FROM streams AS t JOIN sessions AS s ON s.no = t.session_no"
        " ORDER BY t.id"
    )
    orphans = [(number, session_id) for number, session_id, owner, _at in streams
               if judge(store, owner_of(owner), clock).dead]
    if not orphans:
        count = len(streams)
        sentence = f"{plural(count, 'message is', 'messages are')} being received." if count else "No message is open."
        facts = {"open": count}
        return [Finding(code="streams", severity=Severity.OK, object="streams", sentence=sentence, facts=facts)]
    which = ", ".join(str(session_id) for _number, session_id in orphans[:5])
    sentence = (
        f"{plural(len(orphans), 'message')} in sessions {which} {'was' if len(orphans) == 1 else 'were'} cut off "
        "when the "
        "process that received it died; the text so far is kept and is settled when the session goes on."
    )
    return [
        Finding(
            code="streams_cut_off", severity=Severity.INFO, object="streams", sentence=sentence,
            facts={"streams": [number for number, _session in orphans[:100]]},
        )
    ]


def waiting_findings(store: Reader, clock: Clock) -> list[Finding]:
    """What the next optimize tidies: interrupted deletions, tombstones past their time, a long feed."""
    from hermes_state.conversation.removal_steps import left_behind

    found = []
    behind = left_behind(store)
    if behind:
        found.append(
            Finding(
                code="deletion_unfinished",
                severity=Severity.INFO,
                object="sessions",
                sentence=f"The deletion of {plural(behind, 'session')} was interrupted: nobody can see them, their "
                "rows are "
                "still to be removed.",
                facts={"sessions": behind},
                next_command=command("sessions optimize", store.path),
            )
        )
    total, due, held = store.rows(
        "SELECT count(*), coalesce(sum(horizon_at <= ?1), 0), (SELECT count(*) FROM tombstone_references)"
        " FROM tombstones",
        (clock.now(),),
    )[0]
    sentence = (
        f"{plural(int(total), 'deleted id is', 'deleted ids are')} kept from coming back, {due} past their time"
        f" ({plural(int(held), 'reference')} to them)."
    )
    found.append(
        Finding(
            code="tombstones", severity=Severity.OK, object="tombstones", sentence=sentence,
            facts={"tombstones": total, "due": due, "references": held},
        )
    )
    return found
