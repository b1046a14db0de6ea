"""Runtime status: a writer for each row, attention until it is connected, freshness on the lease clock (R59)."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from hermes_state.errors import HostLost, InvalidInput
from hermes_state.host import PlatformState, SessionStore
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


def test_what_a_run_says_of_a_store_stays_while_it_serves_the_home(tmp_path: Path) -> None:
    party = Party(folder_of(tmp_path))
    member = party.host.enter(run(HOME)).member
    assert member is not None
    with pytest.raises(InvalidInput) as refused:
        party.host.report_store(member, home=HOME, state=SessionStore.OK)
    assert refused.value.message == (
        f"Gateway 1 in {party.host.path} does not serve {HOME}, so it says nothing of its store."
    )
    member.settle([HOME, "/h/b"], multiplex=True)
    party.host.report_store(member, home=HOME, state=SessionStore.UNAVAILABLE)
    member.settle([HOME, "/h/c"], multiplex=True)
    assert party.host.statuses()[0].stores == {HOME: SessionStore.UNAVAILABLE, "/h/c": SessionStore.UNKNOWN}
    member.settle(["/h/c"], multiplex=True)
    member.settle([HOME, "/h/c"], multiplex=True)
    assert party.host.statuses()[0].stores[HOME] is SessionStore.UNKNOWN
    member.leave(reason="test over")
    with pytest.raises(HostLost):
        party.host.report_store(member, home=HOME, state=SessionStore.OK)


def test_a_restart_that_is_requested_is_seen_and_belongs_to_that_run_alone(tmp_path: Path) -> None:
    party = Party(folder_of(tmp_path))
    member = party.host.enter(run(HOME)).member
    assert member is not None
    member.beat(active_agents=2, active_work=3)
    assert party.host.statuses()[0].judged.gateway.restart_requested is False
    member.request_restart()
    member.beat()
    said = party.host.statuses()[0].judged.gateway
    assert (said.restart_requested, said.active_agents, said.active_work) == (True, 2, 3)
    member.leave(reason="restart")
    again = party.host.enter(run(HOME)).member
    assert again is not None
    said = party.host.statuses()[0].judged.gateway
    assert (said.restart_requested, said.active_work) == (False, 0)
    again.leave(reason="test over")


def test_where_a_platform_is_reached_is_kept_without_what_may_be_secret(tmp_path: Path) -> None:
    party = Party(folder_of(tmp_path))
    member = party.host.enter(run(HOME)).member
    assert member is not None
    party.host.report(
        member, home=HOME, platform="telegram", state=PlatformState.CONNECTED,
        ingress_url="https://user:s3cret@example.org:8443/hook?token=s3cret#s3cret", listener_base="http://[::1]:9000",
    )
    party.host.report(member, home=HOME, platform="telegram", state=PlatformState.RETRYING)
    now = only(party)
    assert (now.ingress_url, now.listener_base) == ("https://example.org:8443/hook", "http://[::1]:9000")
    party.host.report(member, home=HOME, platform="telegram", state=PlatformState.DISCONNECTED)
    assert (only(party).ingress_url, only(party).listener_base) == (None, None)
    for url in ("no url", "https://", "http://h:port/"):
        with pytest.raises(InvalidInput) as refused:
            party.host.report(
                member, home=HOME, platform="telegram", state=PlatformState.CONNECTED, ingress_url=url
            )
        assert refused.value.message == "A platform was reported with an address that is no URL."
    member.leave(reason="test over")


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


def test_a_sign_of_life_from_a_later_boot_time_than_now_is_not_fresh_but_unknown(
    tmp_path: Path, fake_clock: FakeClock
) -> None:
    """Where the platform does not say which boot this is, its clock begins anew under the same name."""
    party = Party(folder_of(tmp_path))
    fake_clock.advance(3600.0)
    member = party.host.enter(run(HOME)).member
    assert member is not None
    fake_clock._write(monotonic=5.0)
    assert (party.host.statuses()[0].is_fresh, party.host.statuses()[0].quiet_seconds) == (None, None)
    member.leave(reason="test over")
