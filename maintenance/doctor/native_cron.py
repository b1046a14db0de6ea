"""Cron of a native store: who ticks it, what waits, and rows that would keep a job from running or run it wrongly.

Invariant: only reads, and every look is bounded: of jobs as many as `MOST`, all of them when `deep`. What a person
decided or may see to, and what the next tick settles by itself (a lease or a run of a dead owner, zones with other
rules), is told and is no problem of the store; a job that cannot be read, one whose zone is not known here, and records
that contradict each other are.

Not for: whether jobs will fire (`cron status`), which asks the host too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from maintenance.dialects.native import scheduled
from maintenance.dialects.native.guards import judge, owner_of
from maintenance.doctor.findings import Finding, Severity, command, recover_command
from maintenance.output.text import plural, rfc3339, safe_text

if TYPE_CHECKING:
    from hermes_state.clock import Clock
    from hermes_state.engine import Reader, ReadStore

MOST = 1000  # jobs that are read
NAMED = 100  # in facts
# Three ticks and 20 s, as `cron status` says.
FRESH_SECONDS = 200.0
# What is due for so long is called overdue: the longest grace a job has by itself is two hours.
OVERDUE_SECONDS = 3600.0
# Clock steps are told for so long: as long as a week's slots are looked at.
STEP_SECONDS = 7 * 86_400.0
_HELD = ", ".join(f"'{reason}'" for reason in scheduled.HELD)


def cron_findings(store: ReadStore, clock: Clock, *, deep: bool) -> Iterator[Finding]:
    """Everything here, in order."""
    with store.snapshot():
        if not scheduled.has_cron(store.rows):
            said = "There is no cron here: the tables come with the next schema step."
            yield _told("cron", Severity.OK, said, {})
            return
        problems = [*_jobs(store, deep=deep), *_rows(store)]
        yield from problems
        yield _counts(store, problems)
        yield from _ticker(store, clock)
        yield from _waiting(store, clock)
        yield from _for_people(store, clock)


def _counts(store: Reader, problems: list[Finding]) -> Finding:
    states = {str(name): int(count) for name, count in store.rows(
        "SELECT state, count(*) FROM cron_runtime GROUP BY state ORDER BY state"
    )}
    (flying,) = store.rows("SELECT count(*) FROM cron_executions WHERE finished_at IS NULL")[0]
    facts = {"jobs": states, "in_flight": flying, "problems": len(problems)}
    if not states:
        return _told("cron", Severity.OK, "There is no cron job.", facts)
    said = ", ".join(f"{count} {name}" for name, count in states.items())
    return _told(
        "cron", Severity.OK, f"{plural(sum(states.values()), 'cron job')} ({said}), {flying} in flight.", facts
    )


# --- what is wrong -----------------------------------------------------------------------------------------------


def _jobs(store: Reader, *, deep: bool) -> Iterator[Finding]:
    from cron_store.schedule import from_json, zone_version
    from hermes_state.errors import InvalidInput

    where = "true" if deep else f"job_id IN (SELECT job_id FROM cron_jobs ORDER BY job_id LIMIT {MOST})"
    wrong: list[tuple[str, str]] = []
    no_zone: list[tuple[str, str]] = []
    other_rules: list[str] = []
    states = {str(row["job_id"]): row for row in scheduled.rows_of(store.rows, "cron_runtime", where)}
    for job in scheduled.rows_of(store.rows, "cron_jobs", where):
        job_id, state = str(job["job_id"]), states.get(str(job["job_id"]))
        schedule = scheduled.newest_schedule(store, job_id)
        if problem := scheduled.problem_of(job, schedule) or ("" if state else "how it stands is not there"):
            wrong.append((job_id, problem))
            continue
        assert schedule is not None and state is not None
        newest = store.row("SELECT max(last_slot) FROM cron_occurrences WHERE job_id = ?", (job_id,))
        if newest is not None and newest[0] is not None and newest[0] > state["settled_through"]:
            wrong.append((job_id, f"slot {newest[0]} has a record beyond what is accounted for"))
        zone = from_json(schedule["schedule"]).zone
        try:
            version = zone_version(zone)
        except InvalidInput:
            no_zone.append((job_id, zone))
            continue
        if state["due_at"] is not None and state["tz_version"] != version:
            other_rules.append(job_id)
    alone = [str(job_id) for (job_id,) in store.rows(
        "SELECT job_id FROM cron_runtime WHERE job_id NOT IN (SELECT job_id FROM cron_jobs) ORDER BY job_id LIMIT ?",
        (MOST,),
    )]
    wrong += [(job_id, "what it is is not there") for job_id in alone]
    if wrong:
        yield _told(
            "cron_job_unreadable", Severity.WARNING,
            f"{plural(len(wrong), 'cron job')} cannot be read, and {'is' if len(wrong) == 1 else 'are'} not run "
            f"({wrong[0][0]}: {wrong[0][1].removesuffix('.')}): another program or damage changed the rows.",
            {"jobs": dict(wrong[:NAMED])}, recover_command(store.path),
        )
    if no_zone:
        yield _told(
            "cron_zone_gone", Severity.WARNING,
            f"The zone of {plural(len(no_zone), 'cron job')} is not known on this machine, so "
            f"{'it does' if len(no_zone) == 1 else 'they do'} not fire ({no_zone[0][0]}: {no_zone[0][1]}). Install "
            "a tz database that has it.",
            {"jobs": dict(no_zone[:NAMED])}, command("cron list", store.path),
        )
    if other_rules:
        yield _told(
            "cron_zone_changed", Severity.INFO,
            f"The tz database changed since {plural(len(other_rules), 'cron job was', 'cron jobs were')} told when to "
            f"fire ({_some(other_rules)}): a ticker computes the times anew; slots that have a record keep it.",
            {"jobs": other_rules[:NAMED]}, command("cron status", store.path),
        )


def _rows(store: Reader) -> Iterator[Finding]:
    """Slots and runs that do not say the same of each other."""
    runs = [int(fence) for (fence,) in store.rows(
        "SELECT fence FROM cron_executions AS e WHERE finished_at IS NULL AND slot IS NOT NULL AND NOT EXISTS (SELECT 1"
        " FROM cron_occurrences AS o WHERE o.job_id = e.job_id AND o.slot = e.slot AND o.fence = e.fence AND o.state ="
        " e.state) ORDER BY fence LIMIT ?", (MOST,),
    )]
    slots = [(str(job_id), int(slot)) for job_id, slot in store.rows(
        "SELECT job_id, slot FROM cron_occurrences AS o WHERE settled_at IS NULL AND state <> 'due' AND NOT EXISTS"
        " (SELECT 1 FROM cron_executions AS e WHERE e.fence = o.fence AND e.finished_at IS NULL) ORDER BY job_id, slot"
        " LIMIT ?", (MOST,),
    )]
    if runs or slots:
        what = f"run {runs[0]}" if runs else f"slot {slots[0][1]} of {slots[0][0]}"
        count = plural(len(runs) + len(slots), "record")
        yield _told(
            "cron_rows_disagree", Severity.WARNING,
            f"What is in flight of cron contradicts what stands beside it, in {count} ({what}): the job is "
            "not run before that is settled.",
            {"runs": runs[:NAMED], "slots": [list(one) for one in slots[:NAMED]]}, recover_command(store.path),
        )


# --- what waits --------------------------------------------------------------------------------------------------


def _ticker(store: Reader, clock: Clock) -> Iterator[Finding]:
    scheduled_jobs = int(store.rows("SELECT count(*) FROM cron_runtime WHERE due_at IS NOT NULL")[0][0])
    row = store.row("SELECT heartbeat_at, error_at, error FROM cron_home")
    heard = None if row is None else row[0]
    if scheduled_jobs and (heard is None or not 0 <= clock.now() - heard <= FRESH_SECONDS):
        since = "Nobody ever ticked this home"
        if heard is not None:
            since = f"Nobody has ticked this home since {rfc3339(heard)}"
        yield _told(
            "cron_ticker_silent", Severity.INFO,
            f"{since}, so {plural(scheduled_jobs, 'cron job fires', 'cron jobs fire')} nothing.",
            {"heartbeat_at": heard, "jobs": scheduled_jobs}, command("cron status", store.path),
        )
    elif row is not None and row[1] is not None:
        yield _told(
            "cron_tick_failing", Severity.INFO,
            safe_text(f"The last tick of this home failed at {rfc3339(row[1])}: {row[2]}"),
            {"error_at": row[1], "error": row[2]}, command("cron status", store.path),
        )
    lease = store.row("SELECT owner FROM leases WHERE name = ? AND owner IS NOT NULL", (scheduled.TICK_LEASE,))
    if lease is not None:
        owner = owner_of(lease[0])
        seen = judge(store, owner, clock)
        if seen.dead:
            yield _told(
                "cron_tick_lease_left", Severity.INFO,
                f"The right to tick this home is with a process that is dead ({owner}: {seen.because}): whoever ticks "
                "next takes it; nothing has to be done.",
                {"owner": str(owner)}, command("cron status", store.path),
            )
    dead = []
    for fence, job_id, text in store.rows(
        "SELECT fence, job_id, owner FROM cron_executions WHERE finished_at IS NULL ORDER BY fence LIMIT ?", (MOST,)
    ):
        if judge(store, owner_of(text), clock).dead:
            dead.append((int(fence), str(job_id)))
    if dead:
        yield _told(
            "cron_runs_left", Severity.INFO,
            f"{plural(len(dead), 'cron run is', 'cron runs are')} in flight whose process is dead "
            f"({_some([job_id for _fence, job_id in dead])}): the next tick ends {'it' if len(dead) == 1 else 'them'}; "
            "what had not begun is due again.",
            {"runs": [fence for fence, _job in dead[:NAMED]]}, command("cron inflight", store.path),
        )


def _waiting(store: Reader, clock: Clock) -> Iterator[Finding]:
    late = store.rows(
        "SELECT job_id, due_at FROM cron_runtime WHERE due_at <= ? AND state <> 'error' ORDER BY due_at, job_id"
        " LIMIT ?", (clock.now() - OVERDUE_SECONDS, MOST),
    )
    if late:
        yield _told(
            "cron_overdue", Severity.INFO,
            f"{plural(len(late), 'cron job is', 'cron jobs are')} due for more than an hour "
            f"({_some([str(job_id) for job_id, _due in late])}): nobody looks at them.",
            {"jobs": [str(job_id) for job_id, _due in late[:NAMED]], "due_at": float(late[0][1])},
            command("cron status", store.path),
        )


def _for_people(store: Reader, clock: Clock) -> Iterator[Finding]:
    """What a person may want to do something about."""
    failing = store.rows(
        "SELECT job_id, state_reason FROM cron_runtime WHERE state = 'error' ORDER BY job_id LIMIT ?", (MOST,)
    )
    if failing:
        yield _told(
            "cron_jobs_in_error", Severity.INFO,
            safe_text(
                f"Of {plural(len(failing), 'cron job')} it cannot be told when the next slot is ({failing[0][0]}: "
                f"{failing[0][1]}); {'it is' if len(failing) == 1 else 'they are'} tried again every 5 minutes."
            ),
            {"jobs": [str(job_id) for job_id, _why in failing[:NAMED]]}, command("cron list", store.path),
        )
    held = [str(job_id) for (job_id,) in store.rows(
        f"SELECT job_id FROM cron_runtime WHERE state = 'paused' AND state_reason IN ({_HELD}) ORDER BY job_id LIMIT ?",
        (MOST,),
    )]
    if held:
        yield _told(
            "cron_jobs_held", Severity.INFO,
            f"{plural(len(held), 'cron job is', 'cron jobs are')} paused since the store was restored or recovered "
            f"({_some(held)}): resume those that are wanted.",
            {"jobs": held[:NAMED]}, command("cron resume JOB", store.path),
        )
    (incidents,) = store.rows("SELECT count(*) FROM cron_incidents WHERE state IN ('detected', 'alerted')")[0]
    if incidents:
        jobs = [str(job_id) for (job_id,) in store.rows(
            "SELECT DISTINCT job_id FROM cron_incidents WHERE state IN ('detected', 'alerted') ORDER BY job_id LIMIT ?",
            (MOST,),
        )]
        yield _told(
            "cron_incidents_open", Severity.INFO,
            f"{plural(int(incidents), 'incident')} of cron {'is' if incidents == 1 else 'are'} open ({_some(jobs)}).",
            {"incidents": int(incidents), "jobs": jobs[:NAMED]}, command("cron status", store.path),
        )
    lost = [str(job_id) for (job_id,) in store.rows(
        f"SELECT job_id FROM cron_runtime WHERE {scheduled.SESSION_GONE} ORDER BY job_id LIMIT ?", (MOST,)
    )]
    if lost:
        yield _told(
            "cron_session_gone", Severity.INFO,
            f"The session that {plural(len(lost), 'cron job goes', 'cron jobs go')} on in was deleted "
            f"({_some(lost)}): the application begins a new one.",
            {"jobs": lost[:NAMED]}, command("cron list", store.path),
        )
    step = store.row(
        "SELECT at, json_extract(detail, '$.seconds') FROM cron_events WHERE kind = 'clock_step' AND at > ?"
        " ORDER BY id DESC LIMIT 1", (clock.now() - STEP_SECONDS,),
    )
    if step is not None:
        yield _told(
            "cron_clock_step", Severity.INFO,
            f"The wall clock moved by {step[1]:+,.0f} s on {rfc3339(step[0])}; slots that have a record never run "
            "again because of it.",
            {"at": step[0], "seconds": step[1]},
        )


def _some(keys: list[str]) -> str:
    return safe_text(", ".join(keys[:5]) + (", …" if len(keys) > 5 else ""))


def _told(code: str, severity: Severity, sentence: str, facts: dict[str, Any], next_command: str = "") -> Finding:
    return Finding(
        code=code, severity=severity, object="cron", sentence=safe_text(sentence), facts=facts,
        next_command=next_command,
    )
