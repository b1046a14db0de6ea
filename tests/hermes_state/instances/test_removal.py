"""Revoking, removing, tombstones and bindings (T1.15 to T1.18, R10, R11, R20)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_state import deletions
from hermes_state.clock import FakeClock
from hermes_state.engine import Transaction
from hermes_state.errors import (
    InstanceNotEnrolled,
    InstanceNotFound,
    InstanceNotRevoked,
    InstanceRemoved,
    InstanceRevoked,
    InvalidInput,
    StatementFailed,
    ThreadBound,
)
from hermes_state.instances import Instances, Issued, State, enrollment, removal
from hermes_state.instances.registry import add
from hermes_state.store import Store, open_store

DAY = 86_400.0


def test_only_what_is_revoked_is_removed(
    registry: Instances, registry_store: Store, enrolled: Callable[..., Issued]
) -> None:
    enrolled("a")
    with pytest.raises(InstanceNotRevoked) as caught:
        registry.remove("a", actor="test", reason="old")
    path = registry_store.path
    assert (str(caught.value), caught.value.hint) == (
        f"Instance 'a' of {path} is enrolled since 2027-01-15T08:00:00Z by plugin: only a revoked one can be removed.",
        f"Run `hermes-state instances revoke a --reason WHY --db {path}` first.",
    )
    assert registry.revoke("a", actor="operator", reason="old").changed
    assert not registry.revoke("a", actor="somebody else", reason="old").changed
    assert registry.get("a").state_actor == "operator"
    removed = registry.remove("a", actor="operator", reason="old")
    assert removed.changed
    assert removed.tombstone is not None
    assert (removed.tombstone.actor, removed.tombstone.reason) == ("operator", "old")
    assert not registry.remove("a", actor="somebody else", reason="old").changed
    assert registry.page() == []
    with registry_store.core.reader() as reader:
        (entry,) = deletions.page(reader)
    assert (entry.kind, entry.keys, entry.actor, entry.reason) == ("instance", ("a",), "operator", "old")


def test_what_was_never_enrolled_goes_without_a_tombstone(registry: Instances) -> None:
    minted = registry.enroll("a", nickname="A", actor="test")
    assert registry.remove("a", actor="test", reason="typo").tombstone is None
    with pytest.raises(InstanceNotFound):
        registry.get("a")
    assert registry.enroll("a", nickname="A", actor="test").token != minted.token


def test_a_revocation_ends_tokens_too_and_another_enrollment_ends_the_revocation(
    registry: Instances, enrolled: Callable[..., Issued]
) -> None:
    enrolled("a")
    before = registry.enroll("a", actor="test")
    registry.revoke("a", actor="test", reason="lost")
    with pytest.raises(Exception, match="opens nothing"):
        registry.redeem(before.token, actor="plugin")
    again = registry.enroll("a", actor="test")
    assert again.instance.state is State.REVOKED
    assert registry.redeem(again.token, actor="plugin").instance.state is State.ENROLLED


def test_a_revoked_instance_stays_out_after_a_restart(tmp_path: Path, fake_clock: FakeClock) -> None:
    with open_store(path=tmp_path / "state.db") as store:
        minted = store.instances.enroll("a", nickname="A", actor="test")
        issued = store.instances.redeem(minted.token, actor="plugin")
        store.instances.revoke("a", actor="test", reason="lost")
    with open_store(path=tmp_path / "state.db") as store, pytest.raises(InstanceRevoked):
        store.instances.authenticate("a", issued.credential)


def test_whoever_takes_part_in_an_end_shares_its_transaction(registry_store: Store) -> None:
    """Questions and stops of an instance end with it, or nothing does."""
    told: list[str] = []

    def ended(tx: Transaction, instance_id: str, at: float) -> None:
        told.append(instance_id)
        if len(told) == 1:
            raise KeyError(instance_id)

    instances = Instances(registry_store.core, ended=ended)
    minted = instances.enroll("a", nickname="A", actor="test")
    issued = instances.redeem(minted.token, actor="plugin")
    with pytest.raises(KeyError):
        instances.revoke("a", actor="test", reason="lost")
    instances.authenticate("a", issued.credential)
    instances.revoke("a", actor="test", reason="lost")
    instances.remove("a", actor="test", reason="lost")
    assert told == ["a", "a", "a"]


def test_a_removed_id_comes_back_only_without_bindings_and_past_its_horizon(
    tmp_path: Path, fake_clock: FakeClock
) -> None:
    """T1.15, R10: across restarts, in both orders of the two conditions."""
    path = tmp_path / "state.db"

    def refused(many: str) -> None:
        with open_store(path=path) as store:
            assert store.instances.gc().instance_ids == ()
            for attempt in (store.instances.enroll, store.instances.add):
                with pytest.raises(InstanceRemoved) as caught:
                    attempt("x", nickname="X", actor="test")
                assert str(caught.value) == (
                    f"instance 'x' was deleted from {path} at 2027-01-15T08:00:00Z by test (old); it may not come back"
                    f" before 2027-04-15T08:00:00Z{many}."
                )
                assert caught.value.code == "instance_removed"
            assert store.instances.page() == []
            assert store.instances.by_nickname("X") is None

    with open_store(path=path) as store:
        minted = store.instances.enroll("x", nickname="X", actor="test")
        store.instances.redeem(minted.token, actor="plugin")
        for thread in ("1", "2", "3"):
            store.instances.bind(thread, "x", "session")
        store.instances.revoke("x", actor="test", reason="old")
        store.instances.remove("x", actor="test", reason="old")
    refused(" and while 3 rows refer to it")
    with open_store(path=path) as store:
        assert store.instances.unbind("1")
        assert not store.instances.unbind("1")
        store.core.write(lambda tx: tx.execute("DELETE FROM thread_bindings WHERE thread_id = '2'"))
    refused(" and while 1 row refers to it")
    fake_clock.advance(91 * DAY)
    refused(" and while 1 row refers to it")
    with open_store(path=path) as store:
        store.instances.unbind("3")
    fake_clock.step_wall(-91 * DAY)
    refused("")
    fake_clock.step_wall(90 * DAY)
    with open_store(path=path) as store:
        assert store.instances.gc().instance_ids == ("x",)
        assert store.instances.tombstones() == []
        assert store.instances.page(states=list(State)) == []
        minted = store.instances.enroll("x", nickname="X", actor="test")
        assert store.instances.redeem(minted.token, actor="plugin").instance.state is State.ENROLLED


def test_whoever_collects_tombstones_leaves_no_row_that_blocks(
    registry: Instances, registry_store: Store, enrolled: Callable[..., Issued], fake_clock: FakeClock
) -> None:
    """The upkeep of the whole store collects them as well."""
    from hermes_state import tombstones

    for name in ("a", "b"):
        enrolled(name)
        registry.revoke(name, actor="test", reason="old")
        registry.remove(name, actor="test", reason="old")
    fake_clock.advance(91 * DAY)
    registry_store.core.write(lambda tx: tombstones.collect(tx, fake_clock.now()))
    with pytest.raises(InstanceNotFound):
        registry.revoke("a", actor="test", reason="old")
    assert registry.enroll("a", nickname="A", actor="test").added
    assert registry.gc().instance_ids == ("b",)
    assert [one.instance_id for one in registry.page(states=list(State))] == ["a"]


def test_only_tombstones_of_instances_are_collected(
    registry: Instances, registry_store: Store, fake_clock: FakeClock
) -> None:
    from hermes_state import tombstones

    registry_store.core.write(
        lambda tx: tombstones.entomb(
            tx, "session", "s", made_at=1.0, horizon_seconds=1.0, actor="test", reason="old"
        )
    )
    assert registry.gc().instance_ids == ()
    with registry_store.core.reader() as reader:
        assert tombstones.find(reader, "session", "s") is not None


def cycles(store: Store, first: int, many: int) -> None:
    """Enroll, revoke and remove instances, some hundred in a transaction so that a test can do many."""
    clock = store.core.clock

    def work(tx: Transaction) -> None:
        for number in range(first, first + many):
            at, name = clock.now(), f"id {number}"
            add(tx, name, nickname="The one name", connector_url=None, actor="test", at=at)
            token, _until = enrollment.mint(tx, name, at=at)
            enrollment.consume(tx, token, at=at, actor="plugin")
            removal.revoke(tx, name, actor="test", reason="old", at=at)
            removal.remove(tx, name, actor="test", reason="old", at=at, horizon_seconds=DAY)

    store.core.write(work)


def many_cycles(store: Store, clock: FakeClock, many: int) -> None:
    """T1.16, R20: rows stay within what one horizon removed; the file is what the ledger of deletions needs."""
    step = many // 20
    for number in range(20):
        cycles(store, number * step, step)
        store.instances.gc()
        store.instances.sweep()
        with store.core.reader() as reader:
            for table in ("tombstones", "gateway_instances", "enrollment_tokens"):
                (count,) = reader.rows(f"SELECT count(*) FROM {table}")[0]
                assert count <= 2 * step, (table, number)
        clock.advance(DAY / 2 + 1)
    clock.advance(DAY)
    store.instances.gc()
    store.instances.sweep()
    with store.core.reader() as reader:
        for table in ("tombstones", "tombstone_references", "gateway_instances", "enrollment_tokens"):
            assert reader.row(f"SELECT count(*) FROM {table}") == (0,)


@pytest.mark.slow
def test_cycles_of_enroll_and_remove_leave_rows_of_one_horizon(
    registry_store: Store, fake_clock: FakeClock
) -> None:
    """T1.16, R20; 10,000 cycles as a campaign."""
    many_cycles(registry_store, fake_clock, 400)


@pytest.mark.campaign
def test_ten_thousand_cycles_leave_a_small_file(tmp_path: Path, fake_clock: FakeClock) -> None:
    """T1.16, R20: after a vacuum the file has grown by the ledger of deletions and the feed alone."""
    path = tmp_path / "state.db"
    with open_store(path=path) as store:
        many_cycles(store, fake_clock, 10_000)

        def forget_feed(tx: Transaction) -> None:
            from hermes_state.changes.records import trim

            trim(tx, 0)

        store.core.write(forget_feed)
        with store.core.reader() as reader:
            ledger = reader.rows("SELECT sum(length(keys) + length(detail) + length(actor) + 60) FROM deletions")[0][0]
    from hermes_state.engine import open_exclusive

    with open_exclusive(path) as store:
        store.vacuum()
    size = path.stat().st_size
    print(f"\n10,000 cycles: {size:,} bytes, of which about {ledger:,} are the ledger of deletions")
    assert size < 600_000 + 2 * ledger


def test_a_legacy_default_beside_a_tombstone_makes_no_instance(
    tmp_path: Path, registry: Instances, enrolled: Callable[..., Issued]
) -> None:
    """T1.18, R11: after a start with only the older blob, the picker shows nothing."""
    enrolled("hermes")
    registry.revoke("hermes", actor="test", reason="old")
    registry.remove("hermes", actor="test", reason="old")
    folder = tmp_path / "secrets"
    folder.mkdir()
    (folder / "hermes-gateway-metadata-aGVybWVz.bin").write_text('{"nickname": "Hermes", "connectorUrl": "http://h/"}')
    assert registry.bring_in(folder, actor="test").present == ("hermes",)
    assert registry.page() == []
    assert registry.by_nickname("Hermes") is None


def test_a_thread_is_bound_to_an_enrolled_instance_until_it_is_unbound(
    registry: Instances, registry_store: Store, enrolled: Callable[..., Issued]
) -> None:
    enrolled("a")
    bound = registry.bind("thread", "a", "session")
    assert registry.bind("thread", "a", "session") == bound
    assert (registry.binding("thread"), registry.bound("a"), registry.bound_count("a")) == (bound, [bound], 1)
    enrolled("b")
    for instance_id, session in (("b", "session"), ("a", "other")):
        with pytest.raises(ThreadBound) as caught:
            registry.bind("thread", instance_id, session)
        assert str(caught.value) == (
            f"Thread 'thread' of {registry_store.path} is bound to session 'session' of instance 'a' since"
            " 2027-01-15T08:00:00Z."
        )
    with pytest.raises(StatementFailed, match="a thread keeps its instance"):
        registry_store.core.write(lambda tx: tx.execute("UPDATE thread_bindings SET instance_id = 'b'"))
    assert registry.unbind("thread")
    assert registry.binding("thread") is None


def test_what_is_not_enrolled_gets_no_thread(registry: Instances, enrolled: Callable[..., Issued]) -> None:
    registry.add("a", nickname="A", actor="test")
    with pytest.raises(InstanceNotEnrolled, match="was never enrolled, which is needed to bind a thread"):
        registry.bind("thread", "a", "session")
    enrolled("b")
    registry.revoke("b", actor="test", reason="old")
    with pytest.raises(InstanceRevoked):
        registry.bind("thread", "b", "session")
    registry.remove("b", actor="test", reason="old")
    with pytest.raises(InstanceRemoved):
        registry.bind("thread", "b", "session")
    with pytest.raises(InstanceNotFound):
        registry.bind("thread", "c", "session")
    with pytest.raises(InvalidInput):
        registry.bind("", "a", "session")


def test_the_file_itself_keeps_an_instance_that_something_refers_to(
    registry_store: Store, enrolled: Callable[..., Issued], registry: Instances
) -> None:
    """R10: a foreign key for the bindings, a trigger for the state and the tombstone."""
    enrolled("a")
    registry.bind("thread", "a", "session")

    def delete() -> None:
        registry_store.core.write(lambda tx: tx.execute("DELETE FROM gateway_instances"))

    with pytest.raises(StatementFailed, match="keeps its row"):
        delete()
    registry.revoke("a", actor="test", reason="old")
    registry.remove("a", actor="test", reason="old")
    with pytest.raises(StatementFailed, match="keeps its row"):
        delete()
    registry_store.core.write(lambda tx: tx.execute("DELETE FROM tombstone_references"))
    registry_store.core.write(lambda tx: tx.execute("DELETE FROM tombstones"))
    with pytest.raises(StatementFailed, match="FOREIGN KEY constraint failed"):
        delete()
