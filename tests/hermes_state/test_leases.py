"""Leases: taken from nobody who may be alive before the expiry, at once from the provably dead; the fence rises."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from hermes_state.engine import Transaction
from hermes_state.errors import (
    CannotOpen,
    InvalidInput,
    LeaseHeld,
    LeaseLost,
    LockTimeout,
    ReadOnlyStore,
    StaleFence,
    StateError,
)
from hermes_state.leases import Leases, fences_of, raise_fences
from hermes_state.leases.states import ACQUIRE, HOLD, Act, Outcome, Standing, Tenure
from hermes_state.store import Store, open_store
from hermes_state.testing import temporary_store
from tests.hermes_state.parties import (  # noqa: F401 - fixtures are found by being here
    Party,
    first_party,
    guarded,
    lease_store,
    new_party,
    second_party,
)


def writes(store: Store) -> int:
    with store.core.reader() as reader:
        return int(reader.rows("SELECT count(*) FROM changes")[0][0])


# --- the table ---------------------------------------------------------------------------------------------------


def test_every_view_and_act_has_its_outcome() -> None:
    assert ACQUIRE.keys() == set(Standing)
    assert HOLD.keys() == set(itertools.product(Tenure, Act))


def test_only_two_views_let_a_guarded_write_or_a_renewal_through() -> None:
    assert [tenure for (tenure, act), out in HOLD.items() if act is Act.GUARD and out is Outcome.PASS] == [Tenure.OURS]
    renewing = [tenure for (tenure, act), out in HOLD.items() if act is Act.RENEW and out is Outcome.EXTEND]
    assert renewing == [Tenure.OURS, Tenure.RUN_OUT]


# --- one clock ---------------------------------------------------------------------------------------------------


def test_first_owner_gets_fence_one_and_a_whole_term(store: Store, a: Party) -> None:
    lease = a.acquire(term_seconds=30)
    assert (lease.fence, lease.renewals, lease.owner) == (1, 0, a.presence.identity)
    assert lease.expires_in_seconds() == 30
    view = a.leases.look("tick")
    assert view is not None
    assert (view.is_free, view.owner, view.expires_in_seconds) == (False, a.presence.identity, 30)
    assert view.acquired_at == store.core.clock.now()
    assert a.leases.look("never had") is None


def test_living_holder_is_named_and_keeps_its_lease_to_the_last_moment(
    store: Store, a: Party, b: Party, fake_clock: FakeClock
) -> None:
    held = a.acquire(term_seconds=30)
    fake_clock.advance(29.9)
    with pytest.raises(LeaseHeld) as caught:
        b.acquire()
    assert caught.value.message == (
        f"Lease 'tick' in {store.path} is held by {held.owner}, not proven dead (it is this process);"
        " it runs out in 0.1 s unless it is renewed."
    )
    assert (caught.value.owner, caught.value.name, caught.value.retryable) == (held.owner, "tick", True)
    assert caught.value.expires_in_seconds == pytest.approx(0.1)
    guarded(store, held)


def test_expired_lease_goes_to_the_next_owner_with_a_higher_fence(
    store: Store, a: Party, b: Party, fake_clock: FakeClock
) -> None:
    old = a.acquire(term_seconds=30)
    fake_clock.advance(30)
    new = b.acquire()
    assert new.fence == old.fence + 1
    guarded(store, new)
    with pytest.raises(StaleFence) as caught:
        guarded(store, old)
    assert caught.value.message == (
        f"Lease 'tick' in {store.path} (fence 1) went on to {b.presence.identity}, whose fence is 2."
    )
    assert (caught.value.fence, caught.value.current) == (1, 2)
    assert writes(store) == 1
    with pytest.raises(LeaseLost):
        old.renew()
    assert old.release() is False
    guarded(store, new)


def test_lease_of_the_provably_dead_is_taken_at_once(store: Store, a: Party, b: Party) -> None:
    a.acquire(term_seconds=1e6)
    a.die()
    assert b.acquire().fence == 2


def test_owner_that_cannot_be_read_is_alive_until_its_lease_runs_out(
    store: Store, a: Party, b: Party, fake_clock: FakeClock
) -> None:
    a.acquire(term_seconds=30)
    a.die()
    store.core.write(lambda tx: tx.execute("UPDATE leases SET owner = 'pid 7'"))
    with pytest.raises(LeaseHeld) as caught:
        b.acquire()
    assert caught.value.message == (
        f"Lease 'tick' in {store.path} is held by an owner that this version cannot read, not proven dead (it was"
        " written by something that this version cannot read); it runs out in 30.0 s unless it is renewed."
    )
    assert caught.value.owner is None
    fake_clock.advance(31)
    assert b.acquire().fence == 2


def test_renewing_gives_a_term_from_now_and_counts(store: Store, a: Party, b: Party, fake_clock: FakeClock) -> None:
    lease = a.acquire(term_seconds=30)
    for _ in range(5):
        fake_clock.advance(20)
        lease.renew()
    assert (lease.renewals, lease.fence, lease.expires_in_seconds()) == (5, 1, 30)
    with store.core.reader() as reader:
        assert reader.row("SELECT renewals, fence FROM leases") == (5, 1)
    with pytest.raises(LeaseHeld):
        b.acquire()


def test_waking_holder_may_not_write_until_it_has_renewed(store: Store, a: Party, fake_clock: FakeClock) -> None:
    lease = a.acquire(term_seconds=30)
    fake_clock.advance(3600)
    with pytest.raises(LeaseLost) as caught:
        guarded(store, lease)
    assert caught.value.message == (
        f"Lease 'tick' in {store.path} (fence 1) ran out while its holder was away."
    )
    assert writes(store) == 0
    lease.renew()
    guarded(store, lease)
    assert writes(store) == 1


def test_released_lease_is_free_and_its_fence_goes_on(store: Store, a: Party, b: Party) -> None:
    with a.acquire() as lease:
        guarded(store, lease)
    view = a.leases.look("tick")
    assert view is not None
    assert (view.is_free, view.fence, view.expires_in_seconds) == (True, 1, None)
    with pytest.raises(LeaseLost) as caught:
        guarded(store, lease)
    assert caught.value.message == f"Lease 'tick' in {store.path} (fence 1) was released."
    assert lease.release() is False
    assert [b.acquire().fence, a.leases.look("tick").fence] == [2, 2]  # type: ignore[union-attr]


def test_holder_does_not_get_its_own_lease_twice(a: Party) -> None:
    a.acquire()
    with pytest.raises(LeaseHeld):
        a.acquire()


def test_old_lease_of_an_owner_that_acquired_again_is_stale(store: Store, a: Party) -> None:
    old = a.acquire()
    old.release()
    new = a.acquire()
    with pytest.raises(StaleFence):
        guarded(store, old)
    assert old.release() is False
    guarded(store, new)


def test_contender_whose_row_changed_since_it_was_judged_gets_nothing(a: Party, b: Party) -> None:
    judged = b.leases._read("tick")
    a.acquire()
    assert b.leases._take("tick", judged, b.presence, 30, None) is None
    view = a.leases.look("tick")
    assert view is not None and view.owner == a.presence.identity


def test_leases_of_different_names_know_nothing_of_each_other(a: Party, b: Party) -> None:
    assert [a.acquire("one").fence, b.acquire("two").fence] == [1, 1]


def test_waiting_ends_when_the_lease_runs_out(a: Party, b: Party, fake_clock: FakeClock) -> None:
    a.acquire(term_seconds=30)
    start = fake_clock.monotonic()
    assert b.acquire(wait_seconds=60).fence == 2
    assert 30 <= fake_clock.monotonic() - start < 31
    start = fake_clock.monotonic()
    with pytest.raises(LeaseHeld):
        a.acquire(wait_seconds=5)
    assert 5 <= fake_clock.monotonic() - start < 6


def test_wall_clock_changes_neither_give_nor_take_a_lease(
    store: Store, a: Party, b: Party, fake_clock: FakeClock
) -> None:
    lease = a.acquire(term_seconds=30)
    fake_clock.step_wall(1e6)
    with pytest.raises(LeaseHeld):
        b.acquire()
    fake_clock.step_wall(-2e6)
    guarded(store, lease)
    fake_clock.advance(30)
    assert b.acquire().fence == 2


@pytest.mark.parametrize("options", [{"term_seconds": 0}, {"term_seconds": float("inf")}, {"term_seconds": -1}])
def test_term_must_be_a_finite_time(store: Store, options: dict) -> None:
    with pytest.raises(InvalidInput) as caught:
        store.leases.acquire("tick", **options)
    value = options["term_seconds"]
    assert caught.value.message == f"term_seconds of lease 'tick' in {store.path} was {value}."


def test_store_that_is_open_for_reading_gives_no_lease_and_is_left_as_it_is(store: Store, a: Party) -> None:
    a.acquire()
    before = sorted(store.path.parent.rglob("*"))
    with open_store(path=store.path, read_only=True) as reading, pytest.raises(ReadOnlyStore) as caught:
        reading.leases.acquire("tick", term_seconds=30)
    assert caught.value.message == (
        f"{store.path} was opened for reading only, so lease 'tick' cannot be acquired here."
    )
    assert sorted(store.path.parent.rglob("*")) == before


def test_guard_of_another_store_is_refused(store: Store, a: Party, tmp_path: Path) -> None:
    lease = a.acquire()
    with temporary_store() as other, pytest.raises(InvalidInput) as caught:
        other.core.write(lease.guard)
    assert caught.value.message == (
        f"Lease 'tick' is of {store.path} and cannot guard a write to {caught.value.path}."
    )


# --- reports -----------------------------------------------------------------------------------------------------


def test_report_78_lease_of_a_dead_process_is_reclaimed_and_a_living_one_is_waited_for(
    store: Store, a: Party, b: Party, fake_clock: FakeClock
) -> None:
    """A row for each kind of owner; what others append waits for none of them, and the cause has its name."""
    names = ("dead", "alive", "unreadable", "expired")
    for name in names:
        a.acquire(name, term_seconds=300)
    alive = b.acquire("of the living", term_seconds=300)
    store.core.write(lambda tx: tx.execute("UPDATE leases SET owner = 'x' WHERE name = 'unreadable'"))
    store.core.write(lambda tx: tx.execute("UPDATE leases SET expires_boottime = 0 WHERE name = 'expired'"))
    a.die()
    session = store.sessions.create(source="cli")
    store.messages.append(session.id, role="user", content="appends need no lease")
    assert fake_clock.monotonic() < 1
    assert [b.acquire(name).fence for name in ("dead", "alive", "expired")] == [2, 2, 2]
    with pytest.raises(LeaseHeld, match="cannot read"):
        b.acquire("unreadable")
    with pytest.raises(LeaseHeld) as caught:
        Leases(store.core).acquire("of the living", term_seconds=1)
    assert str(alive.owner) in caught.value.message
    assert caught.value.sqlite_code is None


def test_report_79_holder_that_renews_for_ever_loses_its_lease_at_the_cap(
    store: Store, a: Party, b: Party, fake_clock: FakeClock
) -> None:
    lease = a.acquire(term_seconds=30, max_life_seconds=100)
    with pytest.raises(LeaseLost) as caught:
        for _ in range(100):
            fake_clock.advance(9)
            lease.renew()
    assert caught.value.message == (
        f"Lease 'tick' in {store.path} (fence 1) has reached the longest life that was asked for."
    )
    assert lease.renewals == 11
    with pytest.raises(LeaseLost, match="longest life"):
        guarded(store, lease)
    guarded(store, b.acquire())


def test_report_79_last_renewal_reaches_no_further_than_the_cap(a: Party, b: Party, fake_clock: FakeClock) -> None:
    lease = a.acquire(term_seconds=30, max_life_seconds=40)
    fake_clock.advance(20)
    lease.renew()
    assert lease.expires_in_seconds() == 20
    assert a.acquire("short", term_seconds=30, max_life_seconds=5).expires_in_seconds() == 5


def test_report_80_any_error_while_acquiring_means_not_acquired(
    store: Store, a: Party, b: Party, child
) -> None:
    writer = child(
        """
        import sys, apsw, gates
        connection = apsw.Connection(sys.argv[1])
        connection.execute("BEGIN IMMEDIATE")
        gates.reach("writing")
        gates.wait("end")
        """,
        store.path,
    )
    writer.wait_for("writing")
    with pytest.raises(LockTimeout):
        a.acquire()
    writer.kill()
    assert a.leases.look("tick") is None
    assert b.acquire().fence == 1


def test_report_80_owner_without_a_lock_file_gets_no_lease(store: Store) -> None:
    (store.path.parent / "owners").write_text("in the way")
    with pytest.raises(CannotOpen):
        store.leases.acquire("tick", term_seconds=30)
    assert store.leases.look("tick") is None


def test_report_80_failing_commit_means_not_acquired(store: Store, a: Party, b: Party) -> None:
    store.core.write(
        lambda tx: tx.execute(
            "CREATE TRIGGER full BEFORE INSERT ON leases BEGIN SELECT RAISE(ABORT, 'no room'); END"
        )
    )
    with pytest.raises(StateError, match="no room"):
        a.acquire()
    store.core.write(lambda tx: tx.execute("DROP TRIGGER full"))
    assert b.acquire().fence == 1


# --- other content -----------------------------------------------------------------------------------------------


def test_fences_go_on_rising_after_older_content_was_put_back(store: Store, a: Party) -> None:
    for _ in range(4):
        a.acquire().release()
    with store.core.reader() as reader:
        fences = fences_of(reader)
    assert fences == {"tick": 4}

    def put_back(tx: Transaction) -> None:
        tx.execute("UPDATE leases SET fence = 1")
        tx.execute("UPDATE store SET incarnation = 'restored'")
        raise_fences(tx, fences | {"made later": 9})

    store.core.write(put_back)
    assert [a.acquire("tick").fence, a.acquire("made later").fence] == [5, 10]


def test_lease_over_content_that_was_replaced_guards_nothing(store: Store, a: Party) -> None:
    lease = a.acquire()
    store.core.write(lambda tx: tx.execute("UPDATE store SET incarnation = 'restored'"))
    with pytest.raises(StaleFence) as caught:
        guarded(store, lease)
    assert caught.value.message == (
        f"Lease 'tick' in {store.path} (fence 1) is of content that was replaced since."
    )
    assert lease.release() is False


def test_lease_of_an_owner_that_let_go_is_no_ones_to_use(store: Store, a: Party) -> None:
    lease = a.acquire()
    a.die()
    with pytest.raises(LeaseLost) as caught:
        guarded(store, lease)
    assert caught.value.message == (
        f"Lease 'tick' in {store.path} (fence 1) belongs to the process that started this one."
    )
    assert lease.release() is False


def test_fence_alone_lets_nobody_write(store: Store, a: Party, b: Party) -> None:
    """A file put back by other means keeps its incarnation, and gives an old fence out again."""
    lease = a.acquire()
    store.core.write(lambda tx: tx.execute("UPDATE leases SET owner = ?", (b.presence.identity.to_json(),)))
    with pytest.raises(StaleFence):
        guarded(store, lease)
