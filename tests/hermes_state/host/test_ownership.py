"""Owning the host: the lock and the row together, dead owners, recycled pids, and the probe that is remembered.

R45 is T2.2 here, R48 is T2.6, R50 is T2.10; what needs processes of its own is in tests/processes.
"""

from __future__ import annotations

import signal
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from hermes_state.errors import Corrupt, HostLost, InvalidInput
from hermes_state.host import (
    Answer,
    Attach,
    Kind,
    MarkerKind,
    Reason,
    Refuse,
    Request,
    RunState,
    Seen,
    Start,
    Supervisor,
    Waits,
    exit_code,
    facts_for,
    open_host,
    start,
)
from hermes_state.host import Party as Named
from hermes_state.host.asking import Question, ask
from hermes_state.host.records import read_host
from tests.hermes_state.host.hosts import Party, folder_of, run

LAUNCHD = Supervisor.LAUNCHD


@pytest.fixture(name="folder")
def host_folder(tmp_path: Path) -> Path:
    return folder_of(tmp_path)


def test_the_first_start_owns_the_host_and_the_next_attaches_to_its_live_answer(folder: Path) -> None:
    first, second = Party(folder), Party(folder)
    entered = first.host.enter(run("/h/a"))
    assert isinstance(entered.verdict, Start)
    member = entered.member
    assert member is not None and member.owns_host and member.fence == 1
    member.settle(["/h/a", "/h/b"], multiplex=True)
    attached = second.host.enter(run("/h/b"))
    assert isinstance(attached.verdict, Attach) and attached.member is None
    assert attached.verdict.served == frozenset({"/h/a", "/h/b"})
    member.leave(reason="test over")
    third = second.host.enter(run("/h/b"))
    assert third.member is not None and third.member.fence == 2
    third.member.leave(reason="test over")


def test_t2_2_a_record_that_lists_us_is_not_attached_to_without_a_live_answer(folder: Path) -> None:
    first, second = Party(folder), Party(folder)
    entered = first.host.enter(run("/h/a"), answers=False)
    assert entered.member is not None
    entered.member.settle(["/h/a", "/h/b"], multiplex=True)
    refused = second.host.enter(run("/h/b", LAUNCHD))
    assert isinstance(refused.verdict, Refuse)
    assert (refused.verdict.reason, refused.verdict.permanent) == (Reason.OWNER_SILENT, False)


def test_r52_a_claim_publishes_no_homes_until_they_are_settled(folder: Path) -> None:
    first, second = Party(folder), Party(folder)
    entered = first.host.enter(run("/h/a"))
    assert entered.member is not None
    with first.host.core.reader() as reader:
        row = read_host(reader).gateway
    assert row is not None and (row.served, row.multiplex) == (None, None)
    refused = second.host.enter(run("/h/a"))
    assert refused.verdict.reason is Reason.NOT_SETTLED
    entered.member.leave(reason="test over")


def test_t2_3_an_attached_unit_starts_at_its_next_retry_once_the_owner_died(folder: Path) -> None:
    first, second = Party(folder), Party(folder)
    entered = first.host.enter(run("/h/a"))
    assert entered.member is not None
    entered.member.settle(["/h/a", "/h/b"], multiplex=True)
    assert isinstance(second.host.enter(run("/h/b", LAUNCHD)).verdict, Attach)
    kill(first, entered.member)
    again = second.host.enter(run("/h/b", LAUNCHD))
    assert again.member is not None and again.member.owns_host and again.member.fence == 2
    again.member.leave(reason="test over")


def kill(party: Party, member: object) -> None:
    """What kill -9 leaves: every descriptor of the process is closed, no row is written."""
    member._voice.close()  # type: ignore[attr-defined]
    if member._lock is not None:  # type: ignore[attr-defined]
        member._lock.release()  # type: ignore[attr-defined]
    party.die()


def test_t2_4_force_starts_without_a_single_question(folder: Path) -> None:
    asked: list[Named] = []

    def counting(party: Named, question: Question, seconds: float) -> Answer | None:
        asked.append(party)
        return ask(party, question, seconds)

    first, second = Party(folder), Party(folder, asker=counting)
    entered = first.host.enter(run("/h/a"))
    assert entered.member is not None
    forced = second.host.enter(run("/h/a"), force=True)
    assert forced.member is not None and not forced.member.owns_host
    assert (forced.verdict.reason, asked, second.host.probe.dialled) == (Reason.FORCED, [], 0)
    entered.member.leave(reason="test over")
    forced.member.leave(reason="test over")


def test_t2_4_replace_reaches_the_owners_pid_once_and_starts_when_it_is_gone(folder: Path) -> None:
    first, second = Party(folder), Party(folder)
    entered = first.host.enter(run("/h/a"))
    member = entered.member
    assert member is not None
    member.settle(["/h/a"], multiplex=True)
    sent: list[tuple[int, int]] = []

    def leaves(pid: int, number: int) -> None:
        sent.append((pid, number))
        assert first.host.markers.take(MarkerKind.TAKEOVER) is not None  # it knows that this is no accident
        kill(first, member)

    replaced = second.host.enter(run("/h/a"), replace=True, signal=leaves)
    assert sent == [(first.presence.identity.pid, signal.SIGTERM)]
    assert replaced.member is not None and replaced.member.fence == 2
    replaced.member.leave(reason="test over")


def test_an_owner_that_does_not_leave_is_signalled_once_and_nothing_is_left_of_the_attempt(folder: Path) -> None:
    first, second = Party(folder), Party(folder)
    entered = first.host.enter(run("/h/a"))
    assert entered.member is not None
    entered.member.settle(["/h/a"], multiplex=True)
    sent: list[int] = []
    refused = second.host.enter(run("/h/a"), replace=True, signal=lambda pid, number: sent.append(pid))
    assert (refused.verdict.reason, len(sent)) == (Reason.OWNER_LEAVING, 1)
    assert second.host.markers.list_open() == []
    entered.member.leave(reason="test over")


def test_of_two_that_replace_the_same_owner_one_sends_a_signal(folder: Path) -> None:
    first, second, third = Party(folder), Party(folder), Party(folder)
    entered = first.host.enter(run("/h/a"))
    assert entered.member is not None
    entered.member.settle(["/h/a"], multiplex=True)
    sent: list[int] = []

    def meanwhile(pid: int, number: int) -> None:
        sent.append(pid)
        late = third.host.enter(run("/h/a"), replace=True, signal=lambda pid, number: sent.append(pid))
        assert late.verdict.reason is Reason.BEING_REPLACED

    second.host.enter(run("/h/a"), replace=True, signal=meanwhile)
    assert len(sent) == 1
    entered.member.leave(reason="test over")


def test_t2_5_replace_aimed_at_a_standalone_owner_of_another_home_starts_beside_it_and_signals_nobody(
    folder: Path
) -> None:
    owner, other = Party(folder), Party(folder)
    member = owner.host.enter(run("/h/a")).member
    assert member is not None
    member.settle(["/h/a"], multiplex=False)
    entered = other.host.enter(
        run("/h/b"), replace=True, signal=lambda pid, number: pytest.fail(f"PID {pid} got signal {number}")
    )
    assert isinstance(entered.verdict, Start) and entered.verdict.beside and entered.member is not None
    assert (member.owns_host, other.host.markers.list_open()) == (True, [])
    for one in (entered.member, member):
        one.leave(reason="test over")


def test_t2_6_after_a_confirmed_stop_the_record_is_gone_and_the_next_start_owns_the_host(folder: Path) -> None:
    first, second = Party(folder), Party(folder)
    entered = first.host.enter(run("/h/a"))
    assert entered.member is not None
    entered.member.settle(["/h/a"], multiplex=True)
    assert second.host.retract_dead() is None  # it lives: nothing is taken away
    kill(first, entered.member)
    assert second.host.retract_dead() == "nobody holds its lock file"
    view = second.host.host_gateway()
    assert (view.seen, view.record and view.record.gateway) == (Seen.NOBODY, None)
    assert view.record is not None and view.record.left_because == "nobody holds its lock file"
    again = second.host.enter(run("/h/a"), replace=True, signal=lambda pid, number: pytest.fail("a corpse"))
    assert again.member is not None and again.member.fence == 2
    again.member.leave(reason="test over")


def test_t2_9_a_recycled_pid_is_stale_and_never_dialled(folder: Path) -> None:
    """The lock is held by somebody, and the record names a process of the same pid that started at another time."""
    first, second = Party(folder), Party(folder)
    entered = first.host.enter(run("/h/a"))
    assert entered.member is not None
    gone = replace(first.presence.identity, start_ticks=1, nonce="f" * 32)
    first.host.core.write(lambda tx: tx.execute("UPDATE gateways SET owner = ?", (gone.to_json(),)))
    refused = second.host.enter(run("/h/a", LAUNCHD))
    assert isinstance(refused.verdict, Refuse) and not refused.verdict.permanent
    assert second.host.probe.dialled == 0
    assert any("belongs to a process that started at another time" in said for said in refused.verdict.evidence)


def test_t2_10_one_question_for_fifty_profiles_and_a_write_is_seen_at_once(folder: Path, fake_clock: object) -> None:
    first, second = Party(folder), Party(folder)
    entered = first.host.enter(run("/h/a"))
    member = entered.member
    assert member is not None
    member.settle([f"/h/{number}" for number in range(50)], multiplex=True)
    for number in range(50):
        said = second.host.host_gateway().answer
        assert said is not None and said.serves(f"/h/{number}")
    assert second.host.probe.dialled == 1
    member.settle(["/h/0"], multiplex=True)
    said = second.host.host_gateway().answer
    assert said is not None and said.served == frozenset({"/h/0"})
    assert second.host.probe.dialled == 2
    fake_clock.advance(2.1)  # type: ignore[attr-defined]
    second.host.host_gateway()
    assert second.host.probe.dialled == 3
    member.leave(reason="test over")


def test_an_owner_whose_lock_file_was_deleted_keeps_the_host_while_it_lives(folder: Path) -> None:
    first, second = Party(folder), Party(folder)
    entered = first.host.enter(run("/h/a"))
    assert entered.member is not None
    entered.member.settle(["/h/a"], multiplex=True)
    (folder / "gateway.lock").unlink()
    assert not entered.member.owns_host
    view = second.host.host_gateway()
    assert view.seen is Seen.LIVE
    assert view.because[-1] == "its lock file was removed or replaced, and it lives"
    assert isinstance(second.host.enter(run("/h/a")).verdict, Attach)
    entered.member.leave(reason="test over")


def test_a_second_gateway_of_the_same_home_waits_for_the_first_also_beside_an_owner(folder: Path) -> None:
    owner, one, two = Party(folder), Party(folder), Party(folder)
    entered = owner.host.enter(run("/h/a"))
    assert entered.member is not None
    entered.member.settle(["/h/a"], multiplex=False)
    beside = one.host.enter(run("/h/b"))
    assert isinstance(beside.verdict, Start) and beside.verdict.beside
    assert beside.member is not None and beside.member.fence is None
    refused = two.host.enter(run("/h/b"))
    assert isinstance(refused.verdict, Refuse)
    beside.member.settle(["/h/b"], multiplex=False)
    attached = two.host.enter(run("/h/b"))
    assert isinstance(attached.verdict, Attach) and attached.verdict.reason is Reason.SERVED_BY_OTHER
    for member in (beside.member, entered.member):
        member.leave(reason="test over")


def test_an_owner_that_looks_again_serves_the_home_it_did_not_know(folder: Path) -> None:
    first, second = Party(folder), Party(folder)
    entered = first.host.enter(run("/h/a"), rescan=lambda: ["/h/a", "/h/new"])
    assert entered.member is not None
    entered.member.settle(["/h/a"], multiplex=True)
    attached = second.host.enter(run("/h/new"))
    assert isinstance(attached.verdict, Attach)
    refused = second.host.enter(run("/h/other"))
    assert isinstance(refused.verdict, Refuse) and refused.verdict.permanent
    entered.member.leave(reason="test over")


def test_a_draining_owner_is_not_attached_to(folder: Path) -> None:
    first, second = Party(folder), Party(folder)
    entered = first.host.enter(run("/h/a"))
    member = entered.member
    assert member is not None
    member.settle(["/h/a"], multiplex=True)
    member.move(RunState.RUNNING)
    member.move(RunState.DRAINING)
    assert second.host.enter(run("/h/a")).verdict.reason is Reason.OWNER_LEAVING
    member.leave(reason="drained")


def test_states_follow_their_table_and_a_run_that_was_ended_is_told(folder: Path) -> None:
    first = Party(folder)
    entered = first.host.enter(run("/h/a"))
    member = entered.member
    assert member is not None
    member.move(RunState.STOPPING)
    with pytest.raises(InvalidInput) as wrong:
        member.move(RunState.RUNNING)
    assert wrong.value.message == (
        f"A run that is stopping cannot be running next (gateway 1 in {folder / 'host.db'})."
    )
    first.host.core.write(lambda tx: tx.execute("UPDATE gateways SET state = 'stopped', ended_at = 1.0"))
    with pytest.raises(HostLost) as lost:
        member.beat()
    assert lost.value.message == (
        f"Gateway 1 in {folder / 'host.db'} is not this process any more: its run was ended."
    )


def test_the_owners_guard_refuses_one_that_was_replaced(folder: Path) -> None:
    first, second = Party(folder), Party(folder)
    entered = first.host.enter(run("/h/a"))
    member = entered.member
    assert member is not None
    first.host.core.write(member.guard)
    kill(first, member)
    again = second.host.enter(run("/h/b"))
    assert again.member is not None
    second.host.core.write(again.member.guard)
    with pytest.raises(HostLost):
        first.host.core.write(member.guard)
    again.member.leave(reason="test over")


def test_a_gateway_runs_where_the_hosts_files_cannot_be_used(tmp_path: Path) -> None:
    blocked = tmp_path / "state"
    blocked.write_text("a file where the folder would be")
    host, entered = start(run("/h/a"), folder=blocked / "hermes", waits=Waits(settle=0.0))
    assert host is None and entered.member is None
    assert (type(entered.verdict), entered.verdict.reason) == (Start, Reason.UNKNOWN_OWNER)


def test_the_file_is_not_a_homes_store_and_a_homes_store_is_not_the_host(folder: Path) -> None:
    from hermes_state.errors import ForeignStore
    from hermes_state.store import open_store

    open_host(folder).close()
    with pytest.raises(ForeignStore):
        open_store(path=folder / "host.db")
    home = folder.parent / "home"
    open_store(home).close()
    (home / "state.db").rename(folder / "other.db")
    (folder / "host.db").rename(folder / "kept.db")
    for name in ("host.db-wal", "host.db-shm"):
        (folder / name).unlink(missing_ok=True)
    (folder / "other.db").rename(folder / "host.db")
    with pytest.raises(ForeignStore):
        open_host(folder)


def test_t2_7_starting_everything_ends_nobody_and_tells_all_that_is_served(folder: Path) -> None:
    """start --all beside a live multiplexer; to replace one that serves others is refused for good."""
    owner, starter = Party(folder), Party(folder)

    def no_signal(pid: int, number: int) -> None:
        pytest.fail(f"PID {pid} got signal {number}")

    homes = [f"/h/{number}" for number in range(5)]
    member = owner.host.enter(run(homes[0]), rescan=lambda: homes).member
    assert member is not None
    member.settle(homes, multiplex=True)
    for home in homes:
        verdict = starter.host.enter(run(home), signal=no_signal).verdict
        assert isinstance(verdict, Attach) and verdict.served == frozenset(homes)
    excluded = starter.host.enter(run("/h/other"), replace=True, signal=no_signal).verdict
    assert exit_code(excluded.outcome, Supervisor.NONE) == 78
    member.leave(reason="test over")


def test_a_damaged_file_keeps_no_gateway_from_running(folder: Path) -> None:
    open_host(folder).close()
    (folder / "host.db").write_bytes(b"no database at all, but long enough to look at\n" * 100)
    host, entered = start(run("/h/a"), folder=folder, waits=Waits(settle=0.0))
    assert (host, entered.member, entered.verdict.reason) == (None, None, Reason.UNKNOWN_OWNER)


def test_a_start_that_cannot_be_written_down_leaves_no_owner_behind(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hermes_state.host import starts
    from hermes_state.host.gateway_lock import Outcome, look

    first, second = Party(folder), Party(folder)
    plain = starts.note

    def fails(*given: object, **named: object) -> int:
        raise RuntimeError("no room for the ledger")

    monkeypatch.setattr(starts, "note", fails)
    with pytest.raises(RuntimeError, match="no room for the ledger"):
        first.host.enter(run("/h/a"))
    assert look(folder).outcome is Outcome.FREE
    monkeypatch.setattr(starts, "note", plain)
    entered = second.host.enter(run("/h/a"))
    assert entered.member is not None and entered.member.owns_host
    entered.member.leave(reason="test over")


def test_one_process_runs_one_gateway_at_a_time(folder: Path) -> None:
    party = Party(folder)
    member = party.host.enter(run("/h/a")).member
    assert member is not None
    with pytest.raises(InvalidInput) as refused:
        party.host.enter(run("/h/b"))
    assert refused.value.message == f"This process runs gateway 1 of /h/a already ({folder / 'host.db'})."
    member.leave(reason="first run over")
    again = party.host.enter(run("/h/b")).member
    assert again is not None and again.owns_host
    again.leave(reason="test over")


def test_a_server_is_found_by_others_and_never_owns_the_host(folder: Path) -> None:
    serve, gateway = Party(folder), Party(folder)
    entered = serve.host.enter(replace(run("/h/a"), kind=Kind.SERVE))
    assert entered.member is not None and not entered.member.owns_host
    started = gateway.host.enter(run("/h/a"))
    assert started.member is not None and started.member.owns_host
    assert sorted(one.gateway.kind for one in gateway.host.gateways()) == [Kind.GATEWAY, Kind.SERVE]
    # And one that comes after: the gateway serves its home, and it is no gateway.
    started.member.settle(["/h/a"], multiplex=True)
    late = Party(folder).host.enter(
        replace(run("/h/a"), kind=Kind.SERVE), replace=True,
        signal=lambda pid, number: pytest.fail(f"PID {pid} got signal {number}"),
    )
    assert late.member is not None and not late.member.owns_host and started.member.owns_host
    for member in (late.member, entered.member, started.member):
        member.leave(reason="test over")


def test_a_question_between_a_write_and_its_end_is_answered_as_it_was_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T2.10: whoever sees the new row and asks must not remember the old answer for two seconds."""
    owner, other = Party(folder), Party(folder)
    member = owner.host.enter(run("/h/a")).member
    assert member is not None
    member.settle(["/h/a"], multiplex=True)
    plain, said, asking = member._core.write, [], []

    def writes(*given, **named):  # type: ignore[no-untyped-def]
        done = plain(*given, **named)
        if not asking:
            asking.append(threading.Thread(target=lambda: said.append(other.host.host_gateway().answer)))
            asking[0].start()
            asking[0].join(0.2)  # the row is there; the one who wrote it is not back yet
        return done

    monkeypatch.setattr(member._core, "write", writes)
    member.settle(["/h/a", "/h/b"], multiplex=True)
    asking[0].join()
    assert said[0] is not None and said[0].serves("/h/b")
    member.leave(reason="test over")


def test_a_lock_that_cannot_be_looked_at_is_no_proof_that_the_owner_is_gone(folder: Path) -> None:
    owner, other = Party(folder), Party(folder, waits=Waits(settle=0.0, poll=0.01, leave=0.05))
    member = owner.host.enter(run("/h/a")).member
    assert member is not None
    member.settle(["/h/a"], multiplex=True)

    def leaves(pid: int, number: int) -> None:
        owner.host.core.write(
            lambda tx: tx.execute("UPDATE gateways SET state = 'stopped', ended_at = 1.0 WHERE ended_at IS NULL")
        )
        (folder / "gateway.lock").rename(folder / "moved")
        (folder / "gateway.lock").mkdir()

    refused = other.host.enter(run("/h/a"), replace=True, signal=leaves)
    assert refused.verdict.reason is Reason.OWNER_LEAVING
    assert other.host.markers.list_open() == []
    member._lock.release()  # type: ignore[union-attr]


def test_what_a_start_would_do_on_a_host_that_breaks_while_it_is_read_is_unknown(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hermes_state.host import probe

    open_host(folder).close()

    def breaks(reader: object) -> None:
        raise Corrupt("A page of host.db is damaged.")

    monkeypatch.setattr(probe, "read_host", breaks)
    facts = facts_for(Request(home="/h/a"), folder=folder)
    assert (facts.seen, facts.because[-1]) == (
        Seen.UNKNOWN,
        f"A page of host.db is damaged. Stop all gateways of this user, remove {folder / 'host.db'}, host.db-wal and"
        " host.db-shm, and start them again: nothing in it is needed after that.",
    )
