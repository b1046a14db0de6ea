"""Runs from their claim to their end: every path lets go, and only the owner decides (T3.1 to T3.5, R60, R62, R64)."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from cron_store.cron import Cron
from cron_store.looking import in_flight_everywhere
from cron_store.records import Delivery, Failed, Interrupted, Succeeded
from cron_store.runs.foreign import release_anywhere, settle_anywhere
from cron_store.runs.handing import HandOff
from cron_store.schedule import Interval
from hermes_state.clock import FakeClock
from hermes_state.errors import (
    IdempotencyConflict,
    JobBusy,
    JobRemoved,
    Refused,
    StaleFence,
    WrongHome,
)
from hermes_state.owners import Presence
from hermes_state.store import Store, open_store
from tests.cron_store.conftest import NOW, Jobs

Another = Callable[[], tuple[Cron, Presence]]


def test_a_run_goes_from_claimed_to_running_to_its_verdict(jobs: Jobs, cron: Cron) -> None:
    jobs.every("job")
    [claim] = jobs.after(61)
    assert (claim.source, claim.attempt, claim.lateness_seconds) == ("schedule", 1, 1.0)
    assert claim.key == f"{cron.home.store_id}/job/{NOW + 60}"
    [run] = cron.in_flight("job")
    assert (run.state, run.is_open, run.started_at) == ("claimed", True, None)
    cron.start(claim)
    cron.start(claim)
    assert cron.run(claim.fence).state == "running"
    settled = cron.settle(claim, Succeeded(result={"lines": 3}))
    assert (settled.state, settled.incident, settled.alerted) == ("succeeded", None, False)
    run = cron.run(claim.fence)
    assert (run.state, run.result, run.is_open) == ("succeeded", {"lines": 3}, False)
    assert cron.in_flight() == []
    job = cron.job("job")
    assert (job.last_state, job.last_run_at, job.repeat_completed) == ("succeeded", NOW + 61, 1)


@pytest.mark.parametrize("fires", [5, pytest.param(100, marks=pytest.mark.campaign)])
def test_no_claim_leaks_when_it_is_released_in_a_foreign_context(
    tmp_path: Path, fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch, fires: int
) -> None:
    """T3.1, R60: 2 homes with the same job, every release from the context of the other home."""
    homes = [tmp_path / "profiles" / name for name in ("Alpha", "beta")]
    with open_store(homes[0], clock=fake_clock) as first, open_store(homes[1], clock=fake_clock) as second:
        crons = [Cron(first), Cron(second)]
        for cron in crons:
            cron.add("daily-brief", Interval(seconds=60, anchor=NOW))
        for _ in range(fires):
            fake_clock.advance(60)
            for number, cron in enumerate(crons):
                monkeypatch.setenv("HERMES_HOME", str(homes[1 - number]))
                [claim] = pickle.loads(pickle.dumps(cron.take(None, room=5).claims))
                cron.start(claim)
                settle_anywhere(claim, Succeeded(), clock=fake_clock)
                assert cron.in_flight() == []
        for cron in crons:
            records = cron.slots("daily-brief", limit=1000)
            assert [one.state for one in records] == ["succeeded"] * fires


def test_a_claim_is_refused_by_another_home(tmp_path: Path, fake_clock: FakeClock, jobs: Jobs, cron: Cron) -> None:
    jobs.every("job")
    [claim] = jobs.after(60)
    with open_store(tmp_path / "other", clock=fake_clock) as other:
        elsewhere = Cron(other)
        with pytest.raises(WrongHome) as refused:
            elsewhere.settle(claim, Succeeded())
        assert str(refused.value) == (
            f"A write for {cron.home} (store {cron.home.store_id}) reached {tmp_path}/other/state.db (store"
            f" {other.store_id})."
        )
        with pytest.raises(WrongHome):
            elsewhere.release(claim)
    assert release_anywhere(claim, clock=fake_clock)


def test_a_running_job_of_one_home_does_not_make_anothers_look_running(
    tmp_path: Path, fake_clock: FakeClock, jobs: Jobs, cron: Cron
) -> None:
    """T3.2, R62: liveness is asked of the home; the union is for drain. B's stale one-shot is retired on time."""
    jobs.every("same")
    [claim] = jobs.after(60)
    cron.start(claim)
    with open_store(tmp_path / "other", clock=fake_clock) as other:
        elsewhere = Cron(other)
        Jobs(elsewhere, fake_clock).once("same", 60)
        assert (cron.is_running("same"), elsewhere.is_running("same")) == (True, False)
        fake_clock.advance(60 + 121)
        elsewhere.take(None)
        assert elsewhere.slots("same")[0].state == "missed"
        union = in_flight_everywhere([cron, elsewhere])
        assert [(run.home, run.job_id) for run in union] == [(cron.home, "same")]


@pytest.mark.parametrize("where", ["submit", "pool shutdown", "run", "save output", "deliver", "mark"])
def test_no_path_leaves_a_job_in_flight(jobs: Jobs, cron: Cron, where: str) -> None:
    """T3.3, T3.5: whatever raises between claim and verdict, nothing is in flight after the `finally`."""
    jobs.every("job")
    [claim] = jobs.after(60)

    class Broken(Exception):
        pass

    def mirror(tx: object) -> None:
        if where == "mark":
            raise Broken

    def run() -> None:
        for step in ("submit", "pool shutdown"):
            if where == step:
                raise Broken
        cron.start(claim)
        for step in ("run", "save output", "deliver"):
            if where == step:
                raise Broken
        cron.settle(claim, Succeeded(), mirror=mirror)

    with pytest.raises(Broken):
        try:
            run()
        finally:
            assert cron.release(claim)
    assert cron.in_flight() == []
    assert in_flight_everywhere([cron]) == []
    began = where not in ("submit", "pool shutdown")
    assert cron.slots("job")[0].state == ("interrupted" if began else "due")
    assert not cron.release(claim)


@pytest.mark.skipif(Path("/tmp/A").resolve() == Path("/tmp/a").resolve(), reason="the file system folds case")
def test_an_interrupted_run_is_written_into_the_store_of_its_real_path(
    tmp_path: Path, fake_clock: FakeClock
) -> None:
    """T3.4, R64: a home with upper-case letters in its path."""
    with open_store(tmp_path / "Profiles" / "Work", clock=fake_clock) as store:
        cron = Cron(store)
        cron.add("job", Interval(seconds=60, anchor=NOW))
        fake_clock.advance(60)
        [claim] = cron.take(None).claims
        cron.start(claim)
        settle_anywhere(claim, Interrupted(why="restart"), clock=fake_clock)
        assert [one.state for one in cron.slots("job")] == ["interrupted"]
        assert claim.home.path == tmp_path / "Profiles" / "Work"
    assert [one.name for one in tmp_path.iterdir() if one.is_dir()] == ["Profiles"]


def test_a_settlement_said_again_changes_nothing(jobs: Jobs, cron: Cron) -> None:
    """Report 160: a terminal write whose answer was lost is simply tried again."""
    jobs.every("job")
    [claim] = jobs.after(60)
    cron.start(claim)
    cron.settle(claim, Succeeded(result={"n": 1}))
    assert cron.settle(claim, Succeeded(result={"n": 2})).state == "succeeded"
    assert cron.run(claim.fence).result == {"n": 1}
    assert cron.job("job").repeat_completed == 1
    with pytest.raises(StaleFence) as refused:
        cron.settle(claim, Failed(error="no"))
    assert str(refused.value) == (
        f"The run of slot {NOW + 60} of cron job 'job' in {cron.home.path}/state.db (fence {claim.fence}) ended as"
        " succeeded."
    )
    assert refused.value.hint == "Stop it: what it does is no longer recorded."


def test_a_claim_that_was_not_started_can_fail_and_cannot_succeed(jobs: Jobs, cron: Cron) -> None:
    jobs.every("job")
    [claim] = jobs.after(60)
    with pytest.raises(Refused) as refused:
        cron.settle(claim, Succeeded())
    assert str(refused.value) == (
        f"The run of cron job 'job' in {cron.home.path}/state.db (fence {claim.fence}) was not started, so it did not"
        " succeed and was not interrupted."
    )
    assert cron.settle(claim, Failed(error="no model", failure_type="config")).state == "failed"


def test_a_flagged_run_ends_as_interrupted_and_delivers_nothing(jobs: Jobs, cron: Cron, store: Store) -> None:
    """A killed tool's plausible answer is not recorded as ok, and not delivered as success (facts 3.4)."""
    jobs.every("job")
    [claim] = jobs.after(60)
    cron.start(claim)
    assert cron.interrupt("job", reason="shutdown") == [claim.fence]
    answer = Delivery(kind="answer", transport="telegram", target="1", payload="fine", policy="at_most_once")
    settled = cron.settle(claim, Succeeded(), deliveries=[answer])
    assert settled.state == "interrupted"
    assert store.outbox.page() == []
    assert cron.job("job").last_error == "shutdown"
    assert cron.settle(claim, Succeeded(), deliveries=[answer]).state == "interrupted"


def test_an_interrupted_claim_does_not_start_and_is_due_again(jobs: Jobs, cron: Cron) -> None:
    jobs.every("job")
    [claim] = jobs.after(60)
    cron.interrupt(reason="shutdown")
    with pytest.raises(Refused) as refused:
        cron.start(claim)
    assert str(refused.value) == (
        f"The run of cron job 'job' in {cron.home.path}/state.db (fence {claim.fence}) was interrupted before it began:"
        " shutdown."
    )
    assert cron.release(claim)
    [again] = jobs.after(0)
    assert (again.slot, again.attempt) == (claim.slot, 2)


def test_what_is_owed_is_recorded_with_the_verdict_or_not_at_all(jobs: Jobs, cron: Cron, store: Store) -> None:
    """Report 155: a restart between the end of a run and its delivery drops nothing."""
    jobs.every("job")
    [claim] = jobs.after(60)
    cron.start(claim)
    answer = Delivery(kind="answer", transport="telegram", target="1", payload="fine", policy="at_least_once")

    def broken(tx: object) -> None:
        raise OSError("lane")

    with pytest.raises(OSError, match="lane"):
        cron.settle(claim, Succeeded(), deliveries=[answer], mirror=broken)
    assert store.outbox.page() == []
    assert cron.is_running("job")
    cron.settle(claim, Succeeded(), deliveries=[answer, answer])
    assert [one.dedupe_id for one in store.outbox.page()] == [
        f"cron/{claim.key}/{claim.fence}/delivery/{number}" for number in (1, 0)
    ]
    cron.settle(claim, Succeeded(), deliveries=[answer, answer])
    assert len(store.outbox.page()) == 2


def test_one_session_for_all_runs_of_a_job(jobs: Jobs, cron: Cron) -> None:
    jobs.every("job", session_reuse=True)
    jobs.every("plain")
    claims = {claim.job_id: claim for claim in jobs.after(60)}
    assert claims["job"].session_id is None
    for claim in claims.values():
        cron.start(claim)
        cron.settle(claim, Succeeded(), session_id=f"session of {claim.job_id}")
    assert {claim.job_id: claim.session_id for claim in jobs.after(60)} == {
        "job": "session of job", "plain": None,
    }
    assert cron.history(job_id="plain")[-1].session_id == "session of plain"


def test_a_worker_adopts_what_was_handed_off_once(jobs: Jobs, cron: Cron, another: Another) -> None:
    jobs.every("job")
    [claim] = jobs.after(60)
    given = HandOff.from_json(cron.hand_off(claim, detached=True).to_json())
    (worker, _), (second, _) = another(), another()
    adopted = worker.adopt(given)
    assert (adopted.slot, adopted.fence, adopted.key) == (claim.slot, claim.fence, claim.key)
    with pytest.raises(StaleFence) as refused:
        second.adopt(given)
    assert re.sub(r"slot \S+|by hand \S+", "X", str(refused.value)) == (
        f"The run X of cron job 'job' in {cron.home.path}/state.db (fence {claim.fence}) went on to another process."
    )
    with pytest.raises(StaleFence):
        cron.settle(claim, Succeeded())
    run = cron.run(claim.fence)
    assert (run.state, run.detached, run.handed_off) == ("running", True, False)
    assert run.waiter is not None and run.owner is not None and run.waiter.nonce != run.owner.nonce
    worker.settle(adopted, Succeeded())
    assert cron.slots("job")[0].state == "succeeded"


def test_what_was_not_handed_off_is_not_adopted_and_what_began_is_not_handed_off(
    jobs: Jobs, cron: Cron, another: Another
) -> None:
    jobs.every("job")
    [claim] = jobs.after(60)
    given = HandOff(
        job_id="job", fence=claim.fence, home=claim.home, owner=claim.owner, incarnation=claim.incarnation
    )
    with pytest.raises(StaleFence):
        another()[0].adopt(given)
    cron.start(claim)
    with pytest.raises(Refused) as refused:
        cron.hand_off(claim)
    assert str(refused.value) == (
        f"The run of cron job 'job' in {cron.home.path}/state.db (fence {claim.fence}) has begun here: it cannot be"
        " handed to another process."
    )


def test_a_run_by_hand_has_an_id_and_one_run_at_a_time(jobs: Jobs, cron: Cron, another: Another) -> None:
    """Reports 158, 159: the id is the receipt; who is refused is told who has the job."""
    jobs.every("job")
    claim = cron.take_manual("job", "run-1")
    assert cron.take_manual("job", "run-1").fence == claim.fence
    with pytest.raises(JobBusy) as refused:
        cron.take_manual("job", "run-2")
    owner = cron.in_flight()[0].owner
    assert str(refused.value) == (
        f"Cron job 'job' in {cron.home.path}/state.db is in flight: {owner} has it (fence {claim.fence}, claimed)."
    )
    with pytest.raises(IdempotencyConflict):
        another()[0].take_manual("job", "run-1")
    jobs.fire(claim)
    with pytest.raises(IdempotencyConflict) as used:
        cron.take_manual("job", "run-1")
    assert str(used.value) == (
        f"Run 'run-1' in {cron.home.path}/state.db was asked for before, of cron job 'job'; it is succeeded."
    )
    assert cron.slots("job") == []


def test_a_job_that_was_removed_does_not_start(jobs: Jobs, cron: Cron) -> None:
    jobs.every("job")
    [claim] = jobs.after(60)
    cron.remove("job", actor="me", reason="done")
    with pytest.raises(JobRemoved) as refused:
        cron.start(claim)
    assert str(refused.value) == (
        f"Cron job 'job' was removed from {cron.home.path}/state.db after its run was claimed (fence {claim.fence})."
    )
    assert cron.release(claim)
    assert jobs.records("job") == [(60, 60, "skipped", "removed")]


def test_a_run_that_was_in_flight_settles_after_its_job_was_removed(jobs: Jobs, cron: Cron) -> None:
    jobs.every("job")
    [claim] = jobs.after(60)
    cron.start(claim)
    cron.remove("job", actor="me", reason="done")
    cron.settle(claim, Failed(error="no"))
    assert jobs.records("job") == [(60, 60, "failed", "")]


def test_repeats_are_counted_by_runs_of_slots_that_ended(jobs: Jobs, cron: Cron) -> None:
    jobs.every("job", repeat_times=2)
    [claim] = jobs.after(60)
    cron.start(claim)
    cron.settle(claim, Interrupted(why="stopped"))
    jobs.fire(cron.take_manual("job", "by hand"))
    assert cron.job("job").repeat_completed == 0
    for _ in range(2):
        [claim] = jobs.after(60)
        jobs.fire(claim)
    job = cron.job("job")
    assert (job.repeat_completed, job.state, job.due_at) == (2, "completed", None)
    assert jobs.after(600) == []
    cron.edit("job", name="still over")
    assert cron.job("job").state == "completed"
    cron.edit("job", policies={"repeat_times": 3})
    assert cron.job("job").state == "scheduled"
    assert len(jobs.after(60)) == 1
    assert jobs.records("job")[-2:] == [(240, 780, "skipped", "repeat"), (840, 840, "claimed", "")]


def test_a_slot_that_is_asked_for_uses_no_more_repeats_than_there_are(jobs: Jobs, cron: Cron) -> None:
    jobs.every("job", 60, repeat_times=2, overlap="allow", misfire="run_all", spacing_seconds=0.0)
    first, *_ = jobs.after(180, room=1)
    second = cron.claim("job", NOW + 120)
    with pytest.raises(Refused) as refused:
        cron.claim("job", NOW + 180)
    assert str(refused.value) == (
        f"Cron job 'job' in {cron.home.path}/state.db is to run 2 times in all: 0 runs are over and the others are in"
        " flight."
    )
    for claim in (first, second):
        jobs.fire(claim)
    assert cron.job("job").repeat_completed == 2
    assert jobs.records("job")[-1] == (180, 180, "skipped", "repeat")
