"""Runtime status: a writer for each row, attention until it is connected, freshness on the lease clock (R59)."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from hermes_state.errors import HostLost
from hermes_state.host import PlatformState
from hermes_state.host.status import PlatformStatus, current_platforms
from tests.hermes_state.host.hosts import Party, folder_of, run

HOME = "/h/a"


def only(party: Party) -> PlatformStatus:
    found = current_platforms(party.host.statuses())
    assert list(found) == [(HOME, "telegram")]
    return found[HOME, "telegram"]


def test_attention_stays_until_the_platform_is_connected(tmp_path: Path, fake_clock: FakeClock) -> None:
    party = Party(folder_of(tmp_path))
    member = party.host.enter(run(HOME)).member
    assert member is not None
    say = party.host.report
    say(
        member, home=HOME, platform="telegram", state=PlatformState.FAILED, error_code="auth", error_message="401",
        needs_attention="the token was revoked",
    )
    began = fake_clock.now()
    for _ in range(2):
        say(member, home=HOME, platform="telegram", state=PlatformState.RETRYING, error_message="timeout")
        fake_clock.advance(5.0)
    now = only(party)
    assert (now.state, now.error_message, now.needs_attention) == ("retrying", "timeout", "the token was revoked")
    assert now.retrying_since == began  # since the first of them
    say(member, home=HOME, platform="telegram", state=PlatformState.CONNECTED)
    now = only(party)
    assert (now.state, now.error_message, now.needs_attention, now.retrying_since) == ("connected", None, None, None)
    member.leave(reason="test over")
    assert party.host.statuses() == []


def test_of_an_old_and_a_new_run_the_new_ones_word_counts_and_the_old_ones_is_kept(tmp_path: Path) -> None:
    old, new = Party(folder_of(tmp_path)), Party(folder_of(tmp_path))
    first = old.host.enter(run(HOME)).member
    second = new.host.enter(run(HOME), force=True).member
    assert first is not None and second is not None
    new.host.report(second, home=HOME, platform="telegram", state=PlatformState.CONNECTED)
    old.host.report(first, home=HOME, platform="telegram", state=PlatformState.DISCONNECTED)
    assert only(new).gateway_no == second.gateway_no
    assert [len(status.platforms) for status in new.host.statuses()] == [1, 1]
    second.leave(reason="test over")
    assert only(old).state is PlatformState.DISCONNECTED
    with pytest.raises(HostLost):
        new.host.report(second, home=HOME, platform="telegram", state=PlatformState.CONNECTED)
    first.leave(reason="test over")


def test_freshness_is_told_on_the_lease_clock(tmp_path: Path, fake_clock: FakeClock) -> None:
    party = Party(folder_of(tmp_path))
    member = party.host.enter(run(HOME)).member
    assert member is not None
    fake_clock.step_wall(86_400.0)
    fake_clock.advance(119.0)
    assert party.host.statuses()[0].is_fresh is True
    fake_clock.advance(2.0)
    status = party.host.statuses()[0]
    assert (status.is_fresh, status.quiet_seconds) == (False, 121.0)
    assert status.judged.may_live  # silent is not dead
    member.beat(active_agents=-3)
    status = party.host.statuses()[0]
    assert (status.is_fresh, status.judged.gateway.active_agents) == (True, 0)
    fake_clock.reboot(boot_id="another boot")
    assert party.host.statuses()[0].is_fresh is None


def test_a_killed_run_is_written_down_as_dead_by_the_next_start(tmp_path: Path) -> None:
    old, new = Party(folder_of(tmp_path)), Party(folder_of(tmp_path))
    first = old.host.enter(run(HOME), answers=False).member
    assert first is not None
    first._lock.release()  # type: ignore[union-attr]
    old.die()
    member = new.host.enter(run(HOME)).member
    assert member is not None
    with new.host.core.reader() as reader:
        row = reader.row("SELECT state, exit_reason FROM gateways WHERE no = ?", (first.gateway_no,))
    assert row == ("stopped", "died: nobody holds its lock file")
    member.leave(reason="test over")


def test_a_run_of_another_boot_is_left_alone_for_a_week(tmp_path: Path, fake_clock: FakeClock) -> None:
    old = Party(folder_of(tmp_path))
    first = old.host.enter(run("/h/other"), answers=False).member
    assert first is not None
    first._lock.release()  # type: ignore[union-attr]
    old.die()
    fake_clock.reboot(boot_id="another boot")
    for days, ended in ((1.0, False), (7.0, True)):
        fake_clock.advance(days * 86_400.0)
        new = Party(folder_of(tmp_path))
        entered = new.host.enter(run(HOME))
        assert entered.member is not None and entered.member.owns_host  # it keeps nobody away
        with new.host.core.reader() as reader:
            row = reader.row("SELECT ended_at IS NOT NULL FROM gateways WHERE no = ?", (first.gateway_no,))
        assert row == (int(ended),)
        entered.member.leave(reason="test over")
