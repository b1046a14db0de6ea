"""The ledger of starts, and the three guards that count in it: restart loop, start storm, stuck session.

Invariant: windows are counted in boot time of one clock domain, so setting the clock neither trips a guard nor frees
one; what cannot be compared is not counted (the guards fail open). A start that did not start is one row with a count,
however often it is tried again.

Not for: stopping anybody: each guard gives a verdict, and the caller acts on it. Counting files' ages was rejected.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hermes_state.clock import ClockDomain
from hermes_state.host.exits import Outcome
from hermes_state.host.ownership import evidence_text

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction
    from hermes_state.engine.core import Core
    from hermes_state.host.decision import Verdict
    from hermes_state.host.ownership import Run
    from hermes_state.owners import OwnerIdentity

# Numbers of the released guards of hermes-agent.
LOOP_STARTS, LOOP_SECONDS = 3, 60.0
STORM_STARTS, STORM_SECONDS = 5, 120.0
STORM_FIRST_SECONDS, STORM_DOUBLINGS, STORM_MOST_SECONDS = 5.0, 6, 300.0
STUCK_RESTARTS = 3
LABELS_SECONDS = 600.0  # the longest window
KEEP_SECONDS = 30 * 86_400.0
_RAN = (Outcome.START, Outcome.REPLACE_HOST)


@dataclass(frozen=True, kw_only=True)
class Started:
    """One row of the ledger, as the guards count it."""

    id: int
    outcome: Outcome
    supervisor: str
    label: str
    interrupted: int  # sessions that were active when the run before ended
    boottime: float  # of the last time
    domain: ClockDomain  # of that time


@dataclass(frozen=True, kw_only=True)
class Guards:
    """What the guards say of a start."""

    resume: bool  # False: do not resume sessions by itself, this is a restart loop
    wait_seconds: float  # before this start goes on; 0 unless it is a storm
    loop_starts: int  # starts with interrupted sessions in the window
    storm_starts: int  # starts in the window
    labels: tuple[str, ...]  # supervisors that start this home, as "supervisor:label"; more than one is a conflict


def judge(starts: Sequence[Started], *, now: float, domain: ClockDomain) -> Guards:
    """Pure: the rows of one home, the newest start included."""
    ran = [one for one in starts if one.outcome in _RAN]
    loop = sum(one.interrupted > 0 for one in _within(ran, LOOP_SECONDS, now, domain))
    storm = len(_within(ran, STORM_SECONDS, now, domain))
    labels = sorted({
        f"{one.supervisor}:{one.label}" for one in _within(starts, LABELS_SECONDS, now, domain)
        if one.supervisor != "none"
    })
    return Guards(
        resume=loop < LOOP_STARTS, wait_seconds=storm_wait(storm), loop_starts=loop, storm_starts=storm,
        labels=tuple(labels),
    )


def storm_wait(starts: int) -> float:
    """Seconds to wait before a start that is the `starts`-th in the window."""
    excess = starts - STORM_STARTS
    if excess <= 0:
        return 0.0
    return min(STORM_FIRST_SECONDS * float(2 ** min(excess, STORM_DOUBLINGS)), STORM_MOST_SECONDS)


def note(
    core: Core, verdict: Verdict, run: Run, owner: OwnerIdentity, *, deadline_seconds: float | None = None
) -> int:
    """Write down what a start decided; the same refusal again is counted in its row. Gives the row's id."""
    clock = core.clock
    at, boottime, domain = clock.now(), clock.boottime(), clock.domain()
    outcome = verdict.outcome

    def work(tx: Transaction) -> int:
        last = tx.row(
            "SELECT id, verdict, reason, supervisor, label FROM starts WHERE home = ? ORDER BY id DESC LIMIT 1",
            (run.home,),
        )
        same = (outcome, verdict.reason, run.supervisor, run.label)
        if last is not None and outcome not in _RAN and last[1:] == same:
            tx.execute(
                "UPDATE starts SET repeats = repeats + 1, last_at = ?, boottime = ?, boot_id = ?, time_namespace = ?,"
                " owner = ?, evidence = ? WHERE id = ?",
                (
                    at, boottime, domain.boot_id, domain.time_namespace, owner.to_json(),
                    evidence_text(verdict.evidence), last[0],
                ),
            )
            return int(last[0])
        _forget(tx, at, boottime, domain)
        tx.execute(
            "INSERT INTO starts (home, supervisor, label, owner, verdict, reason, evidence, at, last_at, boot_id,"
            " time_namespace, boottime) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                run.home, run.supervisor, run.label, owner.to_json(), outcome, verdict.reason,
                evidence_text(verdict.evidence), at, at, domain.boot_id, domain.time_namespace, boottime,
            ),
        )
        return tx.last_insert_rowid()

    return core.write(work, deadline_seconds=deadline_seconds)


def guards(core: Core, home: str) -> Guards:
    """What the guards say of a home now."""
    with core.reader() as reader:
        found = _read(reader, home)
    return judge(found, now=core.clock.boottime(), domain=core.clock.domain())


def note_interrupted(core: Core, home: str, start: int, sessions: Iterable[str]) -> list[str]:
    """Say at a start which sessions were active when the run before ended; gives those that are suspended now.

    A session that was active at three restarts in a row is stuck. One start counts once, however often this is called.
    """
    names = sorted(set(sessions))
    at = core.clock.now()

    def work(tx: Transaction) -> list[str]:
        tx.execute("UPDATE starts SET interrupted = ? WHERE id = ? AND home = ?", (len(names), start, home))
        # Whoever was not active this time was not stuck.
        tx.execute(
            "DELETE FROM stuck_sessions WHERE home = ? AND suspended_at IS NULL AND last_start <> ?"
            " AND session_id NOT IN (SELECT value FROM json_each(?))",
            (home, start, json.dumps(names)),
        )
        tx.executemany(
            "INSERT INTO stuck_sessions (home, session_id, restarts, last_start) VALUES (?, ?, 1, ?)"
            " ON CONFLICT (home, session_id) DO UPDATE SET restarts = restarts + 1, last_start = excluded.last_start"
            " WHERE last_start <> excluded.last_start",
            [(home, name, start) for name in names],
        )
        tx.execute(
            "UPDATE stuck_sessions SET suspended_at = ? WHERE home = ? AND restarts >= ? AND suspended_at IS NULL",
            (at, home, STUCK_RESTARTS),
        )
        rows = tx.rows(
            "SELECT session_id FROM stuck_sessions WHERE home = ? AND suspended_at IS NOT NULL ORDER BY session_id",
            (home,),
        )
        return [str(name) for (name,) in rows]

    return core.write(work)


def note_progress(core: Core, home: str, session: str) -> bool:
    """A turn of that session ended: it is not stuck. False when nothing was counted against it."""
    with core.reader() as reader:
        if reader.row("SELECT 1 FROM stuck_sessions WHERE home = ? AND session_id = ?", (home, session)) is None:
            return False
    return core.write(
        lambda tx: tx.execute("DELETE FROM stuck_sessions WHERE home = ? AND session_id = ?", (home, session)) > 0
    )


def _within(starts: Sequence[Started], seconds: float, now: float, domain: ClockDomain) -> list[Started]:
    # Equal is enough for our own rows, also where the platform does not say which boot this is.
    return [one for one in starts if one.domain == domain and 0 <= now - one.boottime < seconds]


def _read(reader: Reader, home: str) -> list[Started]:
    rows = reader.rows(
        "SELECT id, verdict, supervisor, label, interrupted, boottime, boot_id, time_namespace FROM starts"
        " WHERE home = ? ORDER BY id DESC LIMIT 100", (home,),
    )
    return [
        Started(
            id=number, outcome=Outcome(verdict), supervisor=supervisor, label=label, interrupted=interrupted,
            boottime=boottime, domain=ClockDomain(boot_id=boot_id, time_namespace=time_namespace),
        )
        for number, verdict, supervisor, label, interrupted, boottime, boot_id, time_namespace in rows
    ]


def _forget(tx: Transaction, at: float, boottime: float, domain: ClockDomain) -> None:
    """Remove what retention allows: starts, runs and markers that ended more than 30 days ago. Counted in a row.

    By the wall clock, which may be set; so no start goes that a window of this boot may still count.
    """
    horizon = at - KEEP_SECONDS
    counts = (
        " AND NOT (boot_id = ? AND time_namespace = ? AND boottime > ?)",
        (domain.boot_id, domain.time_namespace, boottime - LABELS_SECONDS),
    )
    for table, column, (also, values) in (
        ("starts", "last_at", counts), ("gateways", "ended_at", ("", ())), ("markers", "ended_at", ("", ())),
    ):
        removed = tx.execute(f"DELETE FROM {table} WHERE {column} < ?{also}", (horizon, *values))
        if removed:
            tx.execute(
                "INSERT INTO forgotten (table_name, rows, newest_at, last_at) VALUES (?, ?, ?, ?)"
                " ON CONFLICT (table_name) DO UPDATE SET rows = rows + excluded.rows, newest_at = excluded.newest_at,"
                " last_at = excluded.last_at",
                (table, removed, horizon, at),
            )
