"""Runs that lost their owner: T3.6, T3.7, T3.8, T3.21, T3.23, R65; reports 156, 159, 160, 162, 171, 246, 252."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cron_store.cron import Cron
from cron_store.records import Interrupted, Succeeded
from cron_store.runs.losing import HAND_OFF_SECONDS
from hermes_state.clock import FakeClock
from hermes_state.errors import StaleFence
from hermes_state.owners import Presence
from hermes_state.store import Store
from tests.cron_store.conftest import NOW, Jobs

Another = Callable[[], tuple[Cron, Presence]]


def test_a_claim_of_a_dead_owner_is_due_again_at_once(jobs: Jobs, cron: Cron, another: Another) -> None:
    """T3.8, reports 159, 246: a claim is a lease."""
    jobs.every("job")
    jobs.clock.advance(60)
    other, presence = another()
    [claim] = other.take(None).claims
    assert cron.reap() == []
    presence.end()
    [reaped] = cron.reap()
    assert (reaped.fence, reaped.slot, reaped.to, reaped.again, reaped.forced) == (
        claim.fence, NOW + 60, "released", True, False,
    )
    assert reaped.because == "its owner is dead: nobody holds its lock file"
    [again] = jobs.after(0)
    assert (again.slot, again.attempt) == (NOW + 60, 2)
    with pytest.raises(StaleFence):
        other.start(claim)


def test_a_run_of_a_dead_owner_is_interrupted_and_not_run_again(jobs: Jobs, cron: Cron, another: Another) -> None:
    """T3.21, reports 162, 171: no double effect; the next slot runs."""
    jobs.every("job", repeat_times=5)
    jobs.clock.advance(60)
    other, presence = another()
    [claim] = other.take(None).claims
    other.start(claim)
    presence.end()
    [reaped] = cron.reap()
    assert (reaped.to, reaped.again) == ("interrupted", False)
    assert jobs.after(0) == []
    assert cron.job("job").repeat_completed == 0
    [following] = jobs.after(60)
    assert following.slot == NOW + 120
    with pytest.raises(StaleFence):
        other.settle(claim, Succeeded())
    assert [event.kind for event in cron.events()] == ["owner_lost"]


def test_a_one_shot_that_was_interrupted_is_over(jobs: Jobs, cron: Cron, another: Another) -> None:
    jobs.once("once")
    jobs.clock.advance(60)
    other, presence = another()
    other.start(other.take(None).claims[0])
    presence.end()
    cron.reap()
    job = cron.job("once")
    assert (job.state, job.due_at, job.last_state) == ("completed", None, "interrupted")


def test_an_idempotent_run_of_a_dead_owner_is_run_again_under_its_key(
    jobs: Jobs, cron: Cron, another: Another
) -> None:
    jobs.every("job", effect="idempotent")
    jobs.clock.advance(60)
    other, presence = another()
    [claim] = other.take(None).claims
    other.start(claim)
    presence.end()
    [reaped] = cron.reap()
    assert (reaped.to, reaped.again) == ("interrupted", True)
    [again] = jobs.after(0)
    assert (again.key, again.attempt) == (claim.key, 2)
    jobs.fire(again)
    assert jobs.records("job") == [(60, 60, "succeeded", "")]


@pytest.mark.parametrize("ends", ["coalesced", "paused", "removed", "released and removed"])
def test_what_had_begun_and_is_not_repeated_is_interrupted_not_missed(
    jobs: Jobs, cron: Cron, another: Another, ends: str
) -> None:
    """`missed` and `skipped` say that there was no effect."""
    jobs.every("job", effect="idempotent")
    jobs.clock.advance(60)
    other, presence = another()
    other.start(other.take(None).claims[0])
    presence.end()
    cron.reap()
    if ends == "coalesced":
        jobs.after(60)
    elif ends == "paused":
        cron.pause("job", reason="stop")
    else:
        [claim] = jobs.after(0) if ends == "released and removed" else [None]
        cron.remove("job", actor="me", reason="done")
        assert claim is None or cron.release(claim)
    [record] = cron.slots("job", until=NOW + 60)
    assert (record.state, record.reason) == ("interrupted", ends.removeprefix("released and "))


def test_a_run_that_was_stopped_on_purpose_is_not_run_again_though_idempotent(jobs: Jobs, cron: Cron) -> None:
    jobs.every("job", effect="idempotent")
    [claim] = jobs.after(60)
    cron.start(claim)
    cron.settle(claim, Interrupted(why="a person"))
    assert jobs.after(0) == []


def test_a_run_by_hand_of_a_dead_owner_frees_its_job(jobs: Jobs, cron: Cron, another: Another) -> None:
    """Report 159: the run dies with its caller, and the next one by hand is not refused."""
    jobs.every("job", 3600)
    other, presence = another()
    other.start(other.take_manual("job", "one"))
    presence.end()
    claim = cron.take_manual("job", "two")
    assert cron.history(job_id="job", source="manual")[1].state == "interrupted"
    jobs.fire(claim)


def test_a_living_owner_is_left_alone_however_old_its_run_is(jobs: Jobs, cron: Cron, another: Another) -> None:
    """Report 252: a job of many terms, never renewed, whose process lives, is not run again beside itself."""
    jobs.every("job", 3600, overlap="skip")
    jobs.clock.advance(3600)
    other, _ = another()
    [claim] = other.take(None).claims
    other.start(claim)
    jobs.clock.advance(10 * 3600)
    assert cron.reap() == []
    assert jobs.after(0) == []
    other.settle(claim, Succeeded())
    assert cron.slots("job")[0].state == "succeeded"


def test_a_previous_runs_end_does_not_free_a_fresh_claim(jobs: Jobs, cron: Cron) -> None:
    """T3.6, R65: the row is the claim, so only its own end frees it."""
    jobs.every("job")
    [old] = jobs.after(60)
    jobs.fire(old)
    [fresh] = jobs.after(60)
    assert cron.force_release(living=()) == []
    assert cron.reap() == []
    assert not cron.release(old)
    assert [run.fence for run in cron.in_flight("job")] == [fresh.fence]


@pytest.mark.parametrize("began", [False, True])
def test_a_forced_release_uses_up_no_repeat(jobs: Jobs, cron: Cron, began: bool) -> None:
    """T3.7, R65: older than its allowance and without a thread; a claim is due again, a run is interrupted."""
    jobs.every("job", 600, repeat_times=3, allowance_seconds=1800.0, overlap="queue")
    [claim] = jobs.after(600)
    if began:
        cron.start(claim)
    jobs.clock.advance(1800)
    assert cron.force_release(living=()) == []
    jobs.clock.advance(1)
    assert cron.force_release(living={claim.fence}) == []
    [forced] = cron.force_release(living=())
    assert (forced.forced, forced.to) == (True, "interrupted" if began else "released")
    assert forced.because == "it has no thread and is 1801 s old"
    assert cron.job("job").repeat_completed == 0
    assert cron.run(claim.fence).forced
    assert cron.events(kind="forced_release")[0].detail["fence"] == claim.fence
    with pytest.raises(StaleFence) as stale:
        cron.settle(claim, Succeeded())
    assert str(stale.value).endswith("let go by the rule for lost runs.")


def test_force_release_is_for_our_own_runs_only(jobs: Jobs, cron: Cron, another: Another) -> None:
    jobs.every("job", allowance_seconds=60.0)
    jobs.clock.advance(60)
    other, _ = another()
    other.take(None)
    jobs.clock.advance(10_000)
    assert cron.force_release(living=()) == []


def test_a_claim_that_is_dated_in_the_future_blocks_nobody(
    jobs: Jobs, cron: Cron, another: Another, fake_clock: FakeClock
) -> None:
    """T3.23: the wall clock was two days ahead when it was claimed."""
    jobs.every("job", 3600)
    fake_clock.step_wall(2 * 86_400.0)
    other, presence = another()
    [theirs] = other.take(None).claims
    [mine] = [cron.take_manual("hand", "run")] if cron.add("hand", cron.job("job").schedule) else []
    fake_clock.step_wall(-2 * 86_400.0)
    [forced] = cron.force_release(living=())
    assert (forced.fence, forced.because) == (mine.fence, "it has no thread and is dated in the future")
    presence.end()
    assert [one.fence for one in cron.reap()] == [theirs.fence]
    [again] = [claim for claim in jobs.after(0) if claim.job_id == "job"]
    assert again.slot == theirs.slot


def test_owners_of_another_boot_are_waited_for(
    jobs: Jobs, cron: Cron, another: Another, fake_clock: FakeClock
) -> None:
    """Another boot proves nothing: only silence for the term and a margin does, seen by ourselves."""
    jobs.every("job", 3600)
    jobs.clock.advance(3600)
    other, _presence = another()
    [claim] = other.take(None).claims
    fake_clock.reboot(boot_id="next")
    assert cron.reap() == []
    fake_clock.advance(claim.term_seconds)
    assert cron.reap() == []
    fake_clock.advance(31)
    [reaped] = cron.reap()
    assert reaped.because == "its owner, by another clock, was silent for its term and a margin"


def test_renewing_tells_which_are_ours(jobs: Jobs, cron: Cron, another: Another, store: Store) -> None:
    jobs.every("a")
    jobs.every("b")
    first, second = jobs.after(60)
    assert cron.renew([first, second]) == []
    cron.release(first)
    assert cron.renew([first, second]) == [first]
    assert cron.renew([]) == []


def test_a_hand_off_outlives_its_maker_for_a_while(jobs: Jobs, cron: Cron, another: Another) -> None:
    """Facts 3.3: 30 s of grace. The worker that comes in time runs it; one that comes later does not."""
    jobs.every("job", 3600)
    jobs.clock.advance(3600)
    other, presence = another()
    [claim] = other.take(None).claims
    given = other.hand_off(claim)
    presence.end()
    jobs.clock.advance(HAND_OFF_SECONDS - 1)
    assert cron.reap() == []
    worker, worker_presence = another()
    adopted = worker.adopt(given)
    jobs.clock.advance(3600)
    assert cron.reap() == []
    worker_presence.end()
    assert [one.to for one in cron.reap()] == ["interrupted"]
    assert not worker.release(adopted)
    [claim] = jobs.after(3600)
    late = cron.hand_off(claim)
    assert cron.release(claim)
    with pytest.raises(StaleFence):
        another()[0].adopt(late)


def test_a_hand_off_that_nobody_took_is_let_go_by_the_rule(jobs: Jobs, cron: Cron) -> None:
    jobs.every("job", 3600, allowance_seconds=60.0)
    [claim] = jobs.after(3600)
    jobs.clock.advance(61)
    cron.hand_off(claim)
    assert cron.force_release(living=()) == []
    jobs.clock.advance(HAND_OFF_SECONDS)
    assert [one.again for one in cron.force_release(living=())] == [True]


def test_what_was_judged_is_what_is_taken(jobs: Jobs, cron: Cron, another: Another) -> None:
    """A run that moves on between the look and the transaction is left."""
    from cron_store.runs import losing

    jobs.every("job")
    jobs.clock.advance(60)
    other, presence = another()
    [claim] = other.take(None).claims
    with cron._core.reader() as reader:
        presence.end()
        lost = cron._watch.lost(reader, own="")
    assert len(lost) == 1
    other.renew([claim])
    assert cron._core.write(lambda tx: losing.take(tx, lost, at=0.0)) == []
    assert cron.is_running("job")
