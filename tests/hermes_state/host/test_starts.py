"""The ledger of starts and its three guards (R58): counted in boot time, per home, failing open."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from hermes_state.host import Entered, Kind, Supervisor
from hermes_state.host.starts import storm_wait
from tests.hermes_state.host.hosts import Party, folder_of, run

HOME = "/h/a"


def boot(folder: Path, *sessions: str, supervisor: Supervisor = Supervisor.NONE, label: str = "") -> Entered:
    """One start that runs, with these sessions active when the run before ended, and its kill."""
    party = Party(folder)
    entered = party.host.enter(run(HOME, supervisor, label), answers=False)
    assert entered.member is not None
    party.host.note_interrupted(entered, HOME, sessions)
    entered.member._lock.release()  # type: ignore[union-attr]
    party.die()
    return entered


def guards(folder: Path):  # type: ignore[no-untyped-def]
    return Party(folder).host.guards(HOME)


@pytest.mark.parametrize(("boots", "resumes"), [(2, True), (3, False)])
def test_three_boots_with_interrupted_sessions_in_a_minute_are_a_loop_and_two_are_not(
    tmp_path: Path, fake_clock: FakeClock, boots: int, resumes: bool
) -> None:
    for _ in range(boots):
        boot(folder_of(tmp_path), "s1")
        fake_clock.advance(10.0)
    assert guards(folder_of(tmp_path)).resume is resumes


def test_a_clock_that_is_set_back_neither_trips_the_guard_nor_frees_it(tmp_path: Path, fake_clock: FakeClock) -> None:
    folder = folder_of(tmp_path)
    for _ in range(3):
        boot(folder, "s1")
        fake_clock.advance(25.0)
        fake_clock.step_wall(-3600.0)
    assert guards(folder).resume  # three in 75 s
    fake_clock.step_wall(7200.0)
    boot(folder, "s1")
    fake_clock.step_wall(7200.0)
    assert not guards(folder).resume  # three in the last minute, whatever the wall says


def test_boots_without_interrupted_sessions_and_boots_before_a_machine_start_are_no_loop(
    tmp_path: Path, fake_clock: FakeClock
) -> None:
    folder = folder_of(tmp_path)
    for _ in range(3):
        boot(folder)
    assert guards(folder).resume
    for _ in range(3):
        boot(folder, "s1")
    fake_clock.reboot(boot_id="another boot")
    assert guards(folder).resume


def test_six_starts_in_two_minutes_are_a_storm_that_waits_longer_each_time(
    tmp_path: Path, fake_clock: FakeClock
) -> None:
    folder = folder_of(tmp_path)
    waits = []
    for _ in range(7):
        boot(folder)
        waits.append(guards(folder).wait_seconds)
    assert waits == [0, 0, 0, 0, 0, 10.0, 20.0]
    fake_clock.advance(121.0)
    assert guards(folder).wait_seconds == 0
    assert [storm_wait(number) for number in (5, 6, 11, 12, 100)] == [0.0, 10.0, 300.0, 300.0, 300.0]


def test_a_session_that_was_active_at_three_restarts_in_a_row_is_suspended(
    tmp_path: Path, fake_clock: FakeClock
) -> None:
    folder = folder_of(tmp_path)
    boot(folder, "stuck", "once")
    boot(folder, "stuck")
    party = Party(folder)
    entered = party.host.enter(run(HOME), answers=False)
    assert party.host.note_interrupted(entered, HOME, ["stuck", "once"]) == ["stuck"]
    assert party.host.note_interrupted(entered, HOME, ["stuck", "once"]) == ["stuck"]  # one start counts once
    assert party.host.note_progress(HOME, "stuck")
    assert not party.host.note_progress(HOME, "stuck")
    assert party.host.note_interrupted(entered, HOME, ["once"]) == []


def test_a_turn_that_ends_in_between_starts_the_count_anew(tmp_path: Path, fake_clock: FakeClock) -> None:
    folder = folder_of(tmp_path)
    boot(folder, "s1")
    boot(folder, "s1")
    Party(folder).host.note_progress(HOME, "s1")
    party = Party(folder)
    entered = party.host.enter(run(HOME), answers=False)
    assert party.host.note_interrupted(entered, HOME, ["s1"]) == []


def test_a_unit_that_is_refused_again_and_again_is_one_row_with_a_count(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    owner, unit = Party(folder), Party(folder)
    entered = owner.host.enter(run(HOME))
    assert entered.member is not None
    entered.member.settle([HOME, "/h/b"], multiplex=True)
    for _ in range(24):
        unit.host.enter(run("/h/b", Supervisor.SYSTEMD, "hermes-b"))
    with unit.host.core.reader() as reader:
        rows = reader.rows("SELECT verdict, reason, supervisor, label, repeats FROM starts WHERE home = '/h/b'")
    assert rows == [("attach", "served", "systemd", "hermes-b", 23)]
    assert unit.host.guards("/h/b").wait_seconds == 0  # to be served is no storm
    entered.member.leave(reason="test over")


def test_old_rows_go_and_are_counted(tmp_path: Path, fake_clock: FakeClock) -> None:
    folder = folder_of(tmp_path)
    boot(folder)
    boot(folder)
    fake_clock.advance(31 * 86_400.0)
    boot(folder)
    with Party(folder).host.core.reader() as reader:
        assert reader.rows("SELECT table_name, rows FROM forgotten ORDER BY 1") == [("gateways", 1), ("starts", 2)]


def test_a_clock_that_is_set_forward_by_a_year_frees_no_guard(tmp_path: Path, fake_clock: FakeClock) -> None:
    folder = folder_of(tmp_path)
    for _ in range(3):
        boot(folder, "s1")
        fake_clock.step_wall(366 * 86_400.0)
    found = guards(folder)
    assert (found.resume, found.loop_starts, found.storm_starts) == (False, 3, 3)


def test_a_control_plane_that_comes_and_goes_with_its_app_is_no_start_of_the_gateway(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    for _ in range(7):
        party = Party(folder)
        member = party.host.enter(replace(run(HOME), kind=Kind.SERVE), answers=False).member
        assert member is not None
        member.leave(reason="the app was closed")
    assert (guards(folder).storm_starts, guards(folder).wait_seconds) == (0, 0.0)
