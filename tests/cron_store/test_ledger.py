"""The ledger: nothing is accounted for twice, pruned or not; what cannot be read runs nothing (T3.18, T3.19, T3.24,
R72, R73, R78; reports 141 to 144, 160, 247, 251, 254)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cron_store.cron import Cron
from cron_store.records import Failed, Succeeded
from cron_store.schedule import Interval
from hermes_state.clock import FakeClock
from hermes_state.errors import (
    HomeRemoved,
    JobBusy,
    LeaseHeld,
    LedgerUnreadable,
    Refused,
    SlotSettled,
    StaleFence,
    StatementFailed,
)
from hermes_state.owners import Presence
from hermes_state.store import Store
from tests.cron_store.conftest import NOW, Jobs

Another = Callable[[], tuple[Cron, Presence]]


def declarations(store: Store) -> list[tuple[object, ...]]:
    with store.core.reader() as reader:
        return reader.rows("SELECT * FROM cron_jobs") + reader.rows("SELECT * FROM cron_schedules")


@pytest.mark.parametrize("runs", [150, pytest.param(1500, marks=pytest.mark.campaign)])
def test_runs_write_no_declaration_and_the_first_window_is_refused_after_a_prune(
    jobs: Jobs, cron: Cron, store: Store, runs: int
) -> None:
    """T3.18: the proof that a slot was run outlives the history of runs, and its own row. R77 on the way."""
    jobs.every("job", keep_executions=runs * 2 // 3)
    before = declarations(store)
    for _ in range(runs):
        [claim] = jobs.after(60)
        jobs.fire(claim)
    assert declarations(store) == before
    assert cron.job("job").repeat_completed == runs
    pruned = cron.upkeep(keep_days=0.01)
    assert (pruned.runs, pruned.more) == (runs // 3, False)
    assert len(cron.history(job_id="job", limit=10_000)) == runs * 2 // 3
    assert cron.slot("job", NOW + 60) is None
    with pytest.raises(SlotSettled) as refused:
        cron.claim("job", NOW + 60)
    assert str(refused.value) == (
        f"Slot {NOW + 60} of cron job 'job' in {cron.home.path}/state.db was accounted for: its record was pruned."
    )
    with pytest.raises(StatementFailed, match="that slot was accounted for"):
        cron._core.write(lambda tx: tx.execute(
            "INSERT INTO cron_occurrences (job_id, slot, last_slot, count, state, version) VALUES ('job', ?, ?, 1,"
            " 'due', 1)", (NOW + 60, NOW + 60),
        ))


def test_one_slot_can_be_claimed_while_it_is_due_and_never_else(jobs: Jobs, cron: Cron) -> None:
    jobs.every("job")
    jobs.after(60, room=0)
    with pytest.raises(Refused) as early:
        cron.claim("job", NOW + 120)
    assert str(early.value) == f"Slot {NOW + 120} of cron job 'job' in {cron.home.path}/state.db has not come due."
    claim = cron.claim("job", NOW + 60)
    with pytest.raises(SlotSettled) as taken:
        cron.claim("job", NOW + 60)
    assert str(taken.value) == (
        f"Slot {NOW + 60} of cron job 'job' in {cron.home.path}/state.db was accounted for: it is claimed."
    )
    jobs.fire(claim)
    jobs.after(60, room=0)
    cron.take_manual("job", "hand")
    with pytest.raises(JobBusy):
        cron.claim("job", NOW + 120)


def test_a_job_row_that_cannot_be_read_is_not_run_and_others_are(jobs: Jobs, cron: Cron, store: Store) -> None:
    """T3.19: fails closed, and says why, once."""
    jobs.every("bad")
    jobs.every("good")
    store.core.write(lambda tx: tx.execute("UPDATE cron_jobs SET fields = '[]' WHERE job_id = 'bad'"))
    jobs.clock.advance(60)
    taken = cron.take(None, room=5)
    assert [claim.job_id for claim in taken.claims] == ["good"]
    message = f"Cron job 'bad' in {store.path} cannot be read, so it is not run: its fields are no JSON object."
    assert {job_id: str(error) for job_id, error in taken.unreadable.items()} == {"bad": message}
    cron.take(None, room=5)
    assert [(event.kind, event.job_id, event.detail) for event in cron.events()] == [
        ("ledger_unreadable", "bad", {"why": message}),
    ]
    with pytest.raises(LedgerUnreadable):
        cron.job("bad")
    with pytest.raises(LedgerUnreadable):
        cron.take_manual("bad", "run")


@pytest.mark.parametrize(
    ("damage", "because"),
    [
        ("DELETE FROM cron_runtime WHERE job_id = 'job'", None),
        ("DELETE FROM cron_schedules WHERE job_id = 'job'", "its schedule row is missing"),
        ("DELETE FROM cron_jobs WHERE job_id = 'job'", "its declaration is missing"),
    ],
)
def test_a_row_that_is_missing_runs_nothing(
    jobs: Jobs, cron: Cron, store: Store, damage: str, because: str | None
) -> None:
    jobs.every("job")
    store.core.write(lambda tx: tx.execute(damage))
    jobs.clock.advance(60)
    taken = cron.take(None, room=5)
    assert taken.claims == ()
    if because is not None:
        assert str(taken.unreadable["job"]) == (
            f"Cron job 'job' in {store.path} cannot be read, so it is not run: {because}."
        )
    assert cron.in_flight() == []


def test_slots_that_are_not_what_their_job_says_run_nothing(jobs: Jobs, cron: Cron, store: Store) -> None:
    """A mark that was set back would run slots again: the rows that are there refuse it."""
    jobs.every("job")
    jobs.every("other")
    for claim in jobs.after(60):
        jobs.fire(claim)
    store.core.write(lambda tx: tx.execute("DROP TRIGGER cron_runtime_only_rises"))
    store.core.write(lambda tx: tx.execute(
        "UPDATE cron_runtime SET settled_through = settled_through - 60, due_at = due_at - 60 WHERE job_id = 'job'"
    ))
    taken = cron.take(None, room=5)
    assert taken.claims == ()
    assert str(taken.unreadable["job"]) == (
        f"Cron job 'job' in {store.path} cannot be read, so it is not run: slot {NOW + 60} has a record, and the job"
        f" says that slots are accounted for up to {NOW}."
    )
    assert [claim.job_id for claim in jobs.after(60)] == ["other"]


def test_a_table_that_is_gone_runs_nothing_at_all(jobs: Jobs, cron: Cron, store: Store) -> None:
    jobs.every("job")
    store.core.write(lambda tx: tx.execute("DROP TABLE cron_occurrences"))
    jobs.clock.advance(60)
    with pytest.raises(LedgerUnreadable) as refused:
        cron.take(None, room=5)
    assert str(refused.value).startswith(f"What cron did in {store.path} cannot be read, so nothing is run: ")
    assert (refused.value.exit_code, refused.value.facts["job_id"]) == (65, None)
    with pytest.raises(LedgerUnreadable):
        cron.slots("job")


def test_two_tickers_get_a_slot_between_them(jobs: Jobs, cron: Cron, another: Another, fake_clock: FakeClock) -> None:
    """Reports 141 to 144, 247, 251, 254: claim and advance are one transaction, compared with what was read."""
    from cron_store.occurrences import taking, tick
    from cron_store.occurrences.planning import plan

    for number in range(20):
        jobs.every(f"job {number}")
    fake_clock.advance(60)
    other, _ = another()
    with cron._core.reader() as reader:
        looks = [taking.look(reader, job_id) for job_id in other.due(limit=100)]
    theirs = [plan(*look, at=fake_clock.now()) for look in looks if look is not None]
    mine = cron.take(None, room=7)
    done = tick._Pass(room=100, claims=[], accounted=0, missed={}, unreadable={}, more=False)
    tick._write(cron._core, other._owner(), None, theirs, [], tick.plain_notice, done)
    assert done.claims == [] and done.more
    rest = other.take(None, room=100)
    assert len(mine.claims) == 7 and len(rest.claims) == 13
    assert len({claim.job_id for claim in (*mine.claims, *rest.claims)}) == 20


def test_only_who_has_the_tick_lease_claims(jobs: Jobs, cron: Cron, another: Another, fake_clock: FakeClock) -> None:
    """The fence of the lease is checked in the transaction that claims, advances and records."""
    jobs.every("job")
    lease = cron.tick_lease(term_seconds=180.0)
    other, presence = another()
    with pytest.raises(LeaseHeld):
        other.tick_lease()
    fake_clock.advance(180)
    theirs = other.tick_lease()
    with pytest.raises(StaleFence) as stale:
        cron.take(lease, room=1)
    assert str(stale.value) == (
        f"Lease 'cron tick' in {cron.home.path}/state.db (fence 1) went on to {theirs.owner}, whose fence is 2."
    )
    assert cron.slots("job") == []
    assert len(other.take(theirs, room=1).claims) == 1
    presence.end()
    cron.tick_lease()
    with pytest.raises(StaleFence):
        cron.take_manual("job", "run", lease=lease)


def test_a_run_that_ended_never_changes(jobs: Jobs, cron: Cron, another: Another, store: Store) -> None:
    """R73: terminal rows are immutable, and finishing asks whose the run is."""
    jobs.every("job")
    [claim] = jobs.after(60)
    cron.start(claim)
    other, _ = another()
    import dataclasses

    with pytest.raises(StaleFence):
        other.settle(dataclasses.replace(claim, owner="somebody"), Failed(error="no"))
    cron.settle(claim, Succeeded())
    for statement, message in (
        ("UPDATE cron_executions SET error = 'x'", "a run that ended never changes"),
        ("UPDATE cron_executions SET state = 'running', finished_at = NULL", "a run that ended never changes"),
        ("UPDATE cron_occurrences SET state = 'due', settled_at = NULL", "a slot that is settled never changes"),
        ("UPDATE cron_runtime SET settled_through = settled_through - 1", "what is settled stays settled"),
        ("UPDATE cron_schedules SET active = 0", "a schedule version never changes"),
    ):
        with pytest.raises(StatementFailed, match=message):
            store.core.write(lambda tx, statement=statement: tx.execute(statement))


def test_pruning_leaves_what_is_open(jobs: Jobs, cron: Cron, store: Store) -> None:
    """Report 160: never prune what lives."""
    jobs.every("running", keep_executions=0)
    jobs.every("waiting")
    [claim] = jobs.after(60, room=1)
    cron.start(claim)
    jobs.clock.advance(400 * 86_400)
    pruned = cron.upkeep(keep_days=0.0)
    assert (pruned.slots, pruned.runs) == (0, 0)
    with pytest.raises(StatementFailed, match="a run in flight is never deleted"):
        store.core.write(lambda tx: tx.execute("DELETE FROM cron_executions"))
    cron.settle(claim, Succeeded())
    assert (cron.upkeep(keep_days=0.0).slots, cron.history()) == (1, [])


def test_nothing_is_claimed_for_a_home_that_was_removed(jobs: Jobs, cron: Cron, store: Store) -> None:
    jobs.every("job")
    store.core.write(lambda tx: tx.execute(
        "INSERT INTO routing_home (one, removed_at, removed_by, removed_because) VALUES (1, 1.0, 'me', 'gone')"
    ))
    jobs.clock.advance(60)
    for call in (lambda: cron.take(None), lambda: cron.take_manual("job", "run"), lambda: cron.claim("job", NOW + 60)):
        with pytest.raises(HomeRemoved):
            call()
    assert cron.slots("job") == []


def test_what_is_over_is_let_go_and_what_a_person_closed_is_kept(jobs: Jobs, cron: Cron, store: Store) -> None:
    jobs.every("job")
    ids = {}
    for error in ("resolved", "closed"):
        [claim] = jobs.after(60)
        cron.start(claim)
        incident = cron.settle(claim, Failed(error=error)).incident
        assert incident is not None
        ids[error] = incident.incident_id
    cron.close_incident(ids["closed"])
    [claim] = jobs.after(60)
    jobs.fire(claim)
    cron.edit("job", schedule=Interval(seconds=120, anchor=NOW))
    jobs.clock.advance(31 * 86_400)
    assert cron.upkeep().slots == 3
    assert [one.incident_id for one in cron.incidents()] == [ids["closed"]]
    with store.core.reader() as reader:
        assert reader.rows("SELECT version FROM cron_schedules") == [(2,)]


def test_each_source_keeps_its_own_history(jobs: Jobs, cron: Cron) -> None:
    jobs.every("job", keep_executions=2)
    for number in range(5):
        jobs.fire(cron.take_manual("job", f"run {number}"))
        [claim] = jobs.after(60)
        jobs.fire(claim)
    assert cron.upkeep().runs == 6
    assert [run.source for run in cron.history(job_id="job")] == ["schedule", "manual"] * 2
    assert [run.run_id for run in cron.history(job_id="job", source="manual")] == ["run 4", "run 3"]
    assert [run.fence for run in cron.history(job_id="job", before=9, limit=1)] == [8]
    assert [run.fence for run in cron.history(limit=2)] == [10, 9]


def test_a_failed_terminal_write_is_tried_again(jobs: Jobs, cron: Cron, store: Store) -> None:
    """Report 160: the job stays in flight until its end is written, and then is free."""
    jobs.every("job")
    [claim] = jobs.after(60)
    cron.start(claim)
    store.core.write(lambda tx: tx.execute(
        "CREATE TRIGGER full BEFORE UPDATE ON cron_executions BEGIN SELECT RAISE(ABORT, 'full'); END"
    ))
    with pytest.raises(StatementFailed, match="full"):
        cron.settle(claim, Succeeded())
    assert cron.is_running("job")
    store.core.write(lambda tx: tx.execute("DROP TRIGGER full"))
    assert cron.settle(claim, Succeeded()).state == "succeeded"
    assert not cron.is_running("job")


def test_what_was_missed_is_listed_newest_first(jobs: Jobs, cron: Cron) -> None:
    jobs.every("a", 3600, misfire="skip", grace_seconds=0.0)
    jobs.every("b", 7200, misfire="skip", grace_seconds=0.0)
    jobs.after(86_400 + 60)
    assert [(one.job_id, one.count) for one in cron.missed()] == [("a", 24), ("b", 12)]
    assert [one.job_id for one in cron.missed(since=NOW + 86_400 - 1)] == ["a", "b"]
    assert cron.missed(since=NOW + 86_400) == []


def test_events_are_kept_to_a_number(cron: Cron, store: Store) -> None:
    from cron_store import events

    def many(tx: object) -> None:
        for number in range(1010):
            events.record(tx, "note", at=float(number), number=number)  # type: ignore[arg-type]

    store.core.write(many)
    assert cron.upkeep().events == 10
    assert [event.detail["number"] for event in cron.events(limit=2)] == [1009, 1008]
    assert [event.id for event in cron.events(limit=1, before=500, kind="note")] == [499]


def test_a_step_of_the_wall_clock_is_noted(jobs: Jobs, cron: Cron, fake_clock: FakeClock) -> None:
    """More than 60 s against the clock of leases; a suspended machine is no step, and neither is another boot."""
    assert cron.heartbeat() is None
    fake_clock.advance(86_400)
    assert cron.heartbeat() is None
    fake_clock.step_wall(60)
    assert cron.heartbeat() is None
    fake_clock.step_wall(-3600)
    step = cron.heartbeat()
    assert step is not None and step.seconds == -3600.0
    fake_clock.reboot(boot_id="next", off_seconds=5000)
    assert cron.heartbeat() is None
    [event] = cron.events(kind="clock_step")
    assert event.detail["seconds"] == -3600.0


def test_a_wall_clock_that_goes_back_runs_nothing_twice(jobs: Jobs, cron: Cron, fake_clock: FakeClock) -> None:
    jobs.every("job", 60)
    [claim] = jobs.after(600)
    jobs.fire(claim)
    fake_clock.step_wall(-540)
    assert jobs.after(0) == []
    for _ in range(9):
        assert jobs.after(60) == []
    [claim] = jobs.after(60)
    assert claim.slot == NOW + 660


def test_heartbeat_success_and_error_are_three_times(cron: Cron, fake_clock: FakeClock) -> None:
    assert cron.ticker() is None
    cron.heartbeat(error="stale code")
    fake_clock.advance(60)
    cron.heartbeat()
    row = cron.ticker()
    assert row is not None
    assert (row.heartbeat_at, row.success_at, row.error_at, row.error) == (NOW + 60, None, NOW, "stale code")
    fake_clock.advance(60)
    cron.heartbeat(succeeded=True)
    row = cron.ticker()
    assert row is not None and row.owner is not None
    assert (row.heartbeat_at, row.success_at, row.error_at, row.error) == (NOW + 120, NOW + 120, None, None)


def test_an_index_is_what_a_tick_reads(cron: Cron, store: Store) -> None:
    """A tick's cost is flat in jobs that are not due."""
    def many(tx: object) -> None:
        from cron_store.jobs import declaring
        from cron_store.records import Policies

        for number in range(300):
            declaring.add(
                tx, f"job {number}", Interval(seconds=86_400, anchor=NOW), name="", fields={}, policies=Policies(),  # type: ignore[arg-type]
                paused=None, after=NOW, at=NOW,
            )

    store.core.write(many)
    with store.core.reader() as reader:
        plans = [
            row[3] for query in (
                "SELECT due_at, job_id FROM cron_runtime INDEXED BY cron_runtime_due WHERE due_at <= 1"
                " AND (due_at, job_id) > (0, '') ORDER BY due_at, job_id LIMIT 5",
                "SELECT due_at FROM cron_runtime INDEXED BY cron_runtime_due WHERE due_at IS NOT NULL ORDER BY due_at"
                " LIMIT 1",
            ) for row in reader.rows(f"EXPLAIN QUERY PLAN {query}")
        ]
    assert all("cron_runtime_due" in line for line in plans), plans
    assert not any("SCAN cron_runtime USING" in line and "due_at" not in line for line in plans[:1])
