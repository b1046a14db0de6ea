"""Enrollment tokens (T1.1 to T1.5, R5, R34, R35); two processes and kill -9 are in tests/processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hermes_state.clock import FakeClock
from hermes_state.engine import Transaction
from hermes_state.errors import EnrollmentExpired, InstanceNotFound, InvalidAuthentication, InvalidInput, StateError
from hermes_state.instances import Instances, Issued, State, enrollment
from hermes_state.instances.registry import add
from hermes_state.store import Store, open_store


def tokens(store: Store) -> list[tuple[Any, ...]]:
    with store.core.reader() as reader:
        return reader.rows("SELECT instance_id, state FROM enrollment_tokens ORDER BY created_at, state")


def test_a_token_enrolls_once(registry: Instances, registry_store: Store) -> None:
    minted = registry.enroll("a", nickname="A", connector_url="ws://host/", actor="operator")
    assert (minted.added, minted.instance.state) == (True, State.CONFIGURED)
    assert registry.check_token(minted.token).instance_id == "a"
    issued = registry.redeem(minted.token, actor="plugin of host")
    assert (issued.instance.state, issued.instance.state_actor) == (State.ENROLLED, "plugin of host")
    assert registry.authenticate("a", issued.credential) == issued.instance
    for again in (registry.check_token, lambda token: registry.redeem(token, actor="plugin")):
        with pytest.raises(EnrollmentExpired) as caught:
            again(minted.token)
        assert str(caught.value) == (
            f"The enrollment token opens nothing in {registry_store.path}: it was used or replaced, its time is over,"
            " or it is none."
        )
        assert caught.value.code == "enrollment_expired"


def test_what_is_no_token_opens_nothing(registry: Instances) -> None:
    for token in ("", "x", "x" * 5000, "\ud800", None, 7, "\0"):  # before the store has a key, and after
        with pytest.raises(EnrollmentExpired):
            registry.redeem(token, actor="plugin")  # type: ignore[arg-type]
    registry.enroll("a", nickname="A", actor="test")
    for token in ("", "x", "x" * 5000, "\ud800", None, 7, "\0"):
        with pytest.raises(EnrollmentExpired):
            registry.redeem(token, actor="plugin")  # type: ignore[arg-type]


def test_the_newest_token_supersedes_the_others(registry: Instances, registry_store: Store) -> None:
    first = registry.enroll("a", nickname="A", actor="test")
    second = registry.enroll("a", actor="test")
    with pytest.raises(EnrollmentExpired):
        registry.redeem(first.token, actor="plugin")
    registry.redeem(second.token, actor="plugin")
    assert tokens(registry_store) == [("a", "consumed"), ("a", "superseded")]


def test_a_token_is_good_at_its_last_moment_and_dead_after_it(registry: Instances, fake_clock: FakeClock) -> None:
    first = registry.enroll("a", nickname="A", actor="test")
    second = registry.enroll("b", nickname="B", actor="test")
    fake_clock.step_wall(first.expires_at - fake_clock.now())
    registry.redeem(first.token, actor="plugin")
    fake_clock.step_wall(0.001)
    with pytest.raises(EnrollmentExpired):
        registry.redeem(second.token, actor="plugin")


def test_a_token_that_expires_while_its_redeeming_waits_is_dead(
    registry: Instances, registry_store: Store, fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time is read after the wait for the lock: what was good at the look need not be any more."""
    minted = registry.enroll("a", nickname="A", actor="test")
    registry.check_token(minted.token)
    plain = registry_store.core.write

    def after_a_wait(*given: Any, **options: Any) -> Any:
        fake_clock.step_wall(600.001)
        return plain(*given, **options)

    with monkeypatch.context() as patch, pytest.raises(EnrollmentExpired):
        patch.setattr(registry_store.core, "write", after_a_wait)
        registry.redeem(minted.token, actor="plugin")
    assert registry.get("a").state is State.CONFIGURED


def test_a_time_of_no_meaning_is_refused_and_adds_nothing(registry: Instances) -> None:
    for seconds in (0, -1, 86_401, float("nan"), float("inf"), True):
        with pytest.raises(InvalidInput, match="A token is good for more than 0 and at most 86400 seconds"):
            registry.enroll("a", nickname="A", actor="test", ttl_seconds=seconds)
    assert registry.page() == []


@pytest.mark.slow
def test_ten_thousand_tokens_are_swept_when_their_time_is_over(
    registry: Instances, registry_store: Store, fake_clock: FakeClock
) -> None:
    """T1.1, R34."""
    at = fake_clock.now()

    def mint(tx: Transaction) -> None:
        for number in range(10_000):
            name = f"id {number}"
            add_row(tx, name, at)
            enrollment.mint(tx, name, at=at)

    registry_store.core.write(mint)
    assert registry.sweep() == enrollment.Swept(expired=0, settled=0, more=False)
    fake_clock.step_wall(600.001)
    assert registry.sweep(steps=1) == enrollment.Swept(expired=500, settled=0, more=True)
    assert registry.sweep() == enrollment.Swept(expired=9_500, settled=0, more=False)
    assert tokens(registry_store) == []


def add_row(tx: Transaction, name: str, at: float) -> None:
    add(tx, name, nickname=name, connector_url=None, actor="test", at=at)


def test_minting_in_a_loop_leaves_one_live_row_and_one_settled(registry: Instances, registry_store: Store) -> None:
    """T1.1, R34."""
    def loop(tx: Transaction) -> None:
        add_row(tx, "a", 1.0)
        for _ in range(1000):
            enrollment.mint(tx, "a", at=1.0)

    registry_store.core.write(loop)
    assert sorted(tokens(registry_store)) == [("a", "pending"), ("a", "superseded")]


def test_a_fault_between_spending_and_the_credential_rolls_both_back(
    registry: Instances, registry_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T1.3: at every statement of it; afterwards the same token enrolls once."""
    minted = registry.enroll("a", nickname="A", actor="test")
    broken = 0
    while True:
        with monkeypatch.context() as patch:
            count = failing_at(patch, broken + 1)
            try:
                registry.redeem(minted.token, actor="plugin")
                break
            except Stopped:
                broken += 1
        assert registry.get("a").state is State.CONFIGURED
        assert registry.get("a").credential_issued_at is None
        assert tokens(registry_store) == [("a", "pending")]
    assert count() == broken > 8, "each of its statements was stopped once"
    with pytest.raises(EnrollmentExpired):
        registry.redeem(minted.token, actor="plugin")


class Stopped(Exception):
    """The fault of a test."""


def failing_at(patch: pytest.MonkeyPatch, number: int) -> Callable[[], int]:
    """Let the statement of that number fail; gives how many there were."""
    seen = 0

    def failing(name: str) -> None:
        plain = getattr(Transaction, name)

        def call(self: Transaction, *given: Any) -> Any:
            nonlocal seen
            seen += 1
            if seen == number:
                raise Stopped
            return plain(self, *given)

        patch.setattr(Transaction, name, call)

    for name in ("execute", "rows"):
        failing(name)
    return lambda: seen


def test_an_enrollment_that_fails_leaves_no_instance(
    registry: Instances, registry_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T1.4, R35: at every statement of it, the picker sees nothing."""
    broken = 0
    while True:
        with monkeypatch.context() as patch:
            failing_at(patch, broken + 1)
            try:
                registry.enroll("a", nickname="A", actor="test")
                break
            except Stopped:
                broken += 1
        assert registry.page(states=list(State)) == []
        assert tokens(registry_store) == []
    assert broken > 8
    assert [one.instance_id for one in registry.page()] == ["a"]


def test_a_token_without_a_name_adds_nothing(registry: Instances) -> None:
    with pytest.raises(InstanceNotFound, match="There is no instance 'a' in "):
        registry.enroll("a", actor="test")
    assert registry.page() == []


def test_a_restart_keeps_tokens_and_credentials(tmp_path: Path, fake_clock: FakeClock) -> None:
    """T1.5; with kill -9 in tests/processes/test_instances_killed.py."""
    with open_store(path=tmp_path / "state.db") as store:
        minted = store.instances.enroll("a", nickname="A", actor="test")
    with open_store(path=tmp_path / "state.db") as store:
        issued = store.instances.redeem(minted.token, actor="plugin")
    with open_store(path=tmp_path / "state.db") as store:
        assert store.instances.authenticate("a", issued.credential).instance_id == "a"


def test_enrolling_again_ends_the_old_credential_before_the_new_one_is_there(
    registry: Instances, enrolled: Callable[..., Issued]
) -> None:
    """T1.7: from the commit that mints."""
    old = enrolled("a")
    minted = registry.enroll("a", actor="test")
    with pytest.raises(InvalidAuthentication):
        registry.authenticate("a", old.credential)
    assert (registry.get("a").state, registry.get("a").credential_issued_at) == (State.ENROLLED, None)
    new = registry.redeem(minted.token, actor="plugin")
    with pytest.raises(InvalidAuthentication):
        registry.authenticate("a", old.credential)
    registry.authenticate("a", new.credential)


def test_what_takes_long_before_a_plugin_is_let_in_holds_nobody_up(
    registry: Instances, enrolled: Callable[..., Issued]
) -> None:
    """R22: between the look at a token and its redeeming there is no transaction, so others enroll meanwhile."""
    slow = registry.enroll("slow", nickname="Slow", actor="test")
    found = registry.check_token(slow.token)
    enrolled("quick")
    assert registry.redeem(slow.token, actor="plugin").instance.instance_id == found.instance_id


def test_a_mint_that_is_refused_for_the_name_keeps_the_credential(
    registry: Instances, enrolled: Callable[..., Issued]
) -> None:
    issued = enrolled("a")
    enrolled("b", "Taken")
    with pytest.raises(StateError):
        registry.enroll("a", nickname="taken", actor="test")
    registry.authenticate("a", issued.credential)
