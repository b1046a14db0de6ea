"""One row of a home: when its ticker was heard, and what the clocks said when both were believed.

Invariant: cron goes by the wall clock only while that agrees with the boot clock. Once the two moved apart by more than
60 s, time is the last pair that was believed and what the boot clock counted since, until the step has stood long
enough at two looks, or a person says that it is right; so a clock that jumps ahead and comes back settles no slot.
Suspend is in the boot clock; across a boot or a namespace nothing is concluded, and the wall clock is believed.

Heartbeat, success and error are three times: a ticker that lives and does nothing is told from one that works.

Not for: who ticks which homes (that is the host's). Ticking nothing while a step is in doubt was rejected: every clock
that is set would cost a minute of slots. Believing every step at once was rejected: a minute of a clock that is a year
ahead settled the slots of a year, and what is settled stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cron_store import events
from cron_store.records import ClockStep, TickerRow
from cron_store.runs.rows import owner_of
from hermes_state.clock import ClockDomain

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction

MOST_STEP_SECONDS = 60.0
# For how long of boot time a step has to stand. Forwards by more than a day it costs the slots of days when it is
# wrong, and only a machine that was paused from outside, or set by hand, is right about it.
STANDS_SECONDS, FAR_STANDS_SECONDS = 60.0, 3600.0
FAR_SECONDS = 86_400.0


@dataclass(frozen=True, kw_only=True)
class Now:
    """What the clocks said at one look."""

    at: float  # epoch seconds UTC
    boottime: float
    domain: ClockDomain


@dataclass(frozen=True, kw_only=True)
class Told:
    """What time it is taken to be."""

    at: float  # epoch seconds UTC: the wall clock's where it is believed
    step: float | None = None  # by what the wall clock moved, where it is not what was believed before
    is_new: bool = False  # that step was not seen before
    is_right: bool = True  # the wall clock is believed
    went_back: bool = False  # what was told by the clock before may lie ahead
    notes: bool = False  # something of this has to be written
    stood: float | None = None  # seconds of boot time since a step in doubt was noted


def must_stand(step: float) -> float:
    """For how many seconds of boot time a step of so many seconds has to stand until it is believed."""
    return FAR_STANDS_SECONDS if step > FAR_SECONDS else STANDS_SECONDS


def judge(reader: Reader, now: Now) -> Told:
    """What time it is, by both clocks. Without a heartbeat before there is nothing to compare with."""
    row = reader.row(
        "SELECT wall_at, boottime, boot_id, time_namespace, doubt_seconds, doubt_boottime FROM cron_home"
    )
    if row is None:
        return Told(at=now.at)
    wall_at, boottime, boot_id, time_namespace, doubted, since = row
    if not ClockDomain(boot_id=boot_id, time_namespace=time_namespace).comparable(now.domain):
        went_back = now.at < wall_at - MOST_STEP_SECONDS
        return Told(at=now.at, went_back=went_back, notes=went_back or doubted is not None)
    expected = wall_at + (now.boottime - boottime)
    moved = now.at - expected
    if abs(moved) <= MOST_STEP_SECONDS:
        return Told(at=now.at, notes=doubted is not None)
    if doubted is None or abs(moved - doubted) > MOST_STEP_SECONDS:
        return Told(at=expected, step=moved, is_new=True, is_right=False, notes=True)
    if now.boottime - since < must_stand(moved):
        return Told(at=expected, step=moved, is_right=False, stood=now.boottime - since)
    return Told(at=now.at, step=moved, went_back=moved < 0, notes=True)


def note(tx: Transaction, now: Now, *, accept: bool = False) -> ClockStep | None:
    """Write what the clocks said, where it matters later; gives a step that was not seen before. `accept`: the wall
    clock is right. Nothing is written of a home that was never heard."""
    told = judge(tx, now)
    if told.is_new:
        events.record(
            tx, "clock_step", at=now.at, seconds=told.step, wall_before=told.at, wall_after=now.at
        )
        tx.execute("UPDATE cron_home SET doubt_seconds = ?, doubt_boottime = ?", (told.step, now.boottime))
    if told.is_right or accept:
        if told.step is not None:
            events.record(tx, "clock_believed", at=now.at, seconds=told.step, by="a person" if accept else "time")
        if told.went_back or (told.step or 0) < 0:
            # What waits is due, whatever the clock says now; it would be looked at only once that has caught up.
            tx.execute(
                "UPDATE cron_runtime SET due_at = ?1 WHERE due_at > ?1 AND (state = 'error' OR EXISTS (SELECT 1 FROM"
                " cron_occurrences AS o WHERE o.job_id = cron_runtime.job_id AND o.settled_at IS NULL"
                " AND o.state = 'due'))", (now.at,),
            )
        tx.execute(
            "UPDATE cron_home SET wall_at = ?, boottime = ?, boot_id = ?, time_namespace = ?, doubt_seconds = NULL,"
            " doubt_boottime = NULL", (now.at, now.boottime, now.domain.boot_id, now.domain.time_namespace),
        )
    return None if told.step is None or not (told.is_new or accept) else ClockStep(seconds=told.step, at=now.at)


def beat(tx: Transaction, now: Now, *, owner: str, succeeded: bool, error: str | None) -> ClockStep | None:
    """Note that the ticker lives; gives a step of the wall clock that was not seen before."""
    step = note(tx, now)
    tx.execute(
        "INSERT INTO cron_home (one, wall_at, boottime, boot_id, time_namespace, heartbeat_at, success_at, error_at,"
        " error, ticker) VALUES (1, ?1, ?2, ?3, ?4, ?1, CASE WHEN ?5 THEN ?1 END, CASE WHEN ?6 IS NOT NULL THEN ?1 END,"
        " ?6, ?7) ON CONFLICT (one) DO UPDATE SET heartbeat_at = ?1,"
        " success_at = CASE WHEN ?5 THEN ?1 ELSE success_at END,"
        " error_at = CASE WHEN ?5 THEN NULL WHEN ?6 IS NOT NULL THEN ?1 ELSE error_at END,"
        " error = CASE WHEN ?5 THEN NULL WHEN ?6 IS NOT NULL THEN ?6 ELSE error END, ticker = ?7",
        (now.at, now.boottime, now.domain.boot_id, now.domain.time_namespace, int(succeeded), error, owner),
    )
    return step


def ticker(reader: Reader) -> TickerRow | None:
    """The ticker as it was last heard; None: never."""
    row = reader.row("SELECT heartbeat_at, success_at, error_at, error, ticker FROM cron_home")
    if row is None:
        return None
    return TickerRow(
        heartbeat_at=row[0], success_at=row[1], error_at=row[2], error=row[3], owner=owner_of(row[4])
    )


def ahead(reader: Reader, *, at: float, limit: int) -> dict[str, int]:
    """Up to `limit` jobs whose slots are accounted for beyond `at`, the farthest first, each with until when."""
    return {
        job_id: through for job_id, through in reader.rows(
            "SELECT job_id, settled_through FROM cron_runtime WHERE settled_through > ? AND state <> 'completed'"
            " ORDER BY settled_through DESC, job_id LIMIT ?", (at + MOST_STEP_SECONDS, limit),
        )
    }
