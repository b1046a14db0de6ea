"""Markers: addressed, once, for sixty seconds, of this start of the machine (T2.14, R57)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from hermes_state.errors import StatementFailed
from hermes_state.host import MarkerKind, Membership, RunState
from hermes_state.host.markers import Marker, is_marked
from hermes_state.host.states import MarkerEnd
from tests.hermes_state.host.hosts import Party, folder_of, run

HOME = "/h/a"
TAKEOVER, DRAIN, RESUME = MarkerKind.TAKEOVER, MarkerKind.DRAIN, MarkerKind.RESUME


@pytest.fixture(name="parties")
def two_parties(tmp_path: Path, fake_clock: FakeClock) -> tuple[Party, Party]:
    return Party(folder_of(tmp_path)), Party(folder_of(tmp_path))


def place(writer: Party, target: Party, kind: MarkerKind = TAKEOVER) -> Marker | None:
    return writer.host.markers.place(kind, home=HOME, target=target.presence.identity, reason="a test")


@pytest.mark.parametrize("kind", list(MarkerKind))
def test_its_target_takes_it_once_and_nobody_else_does(parties: tuple[Party, Party], kind: MarkerKind) -> None:
    writer, target = parties
    placed = place(writer, target, kind)
    assert placed is not None and placed.writer == writer.presence.identity
    assert writer.host.markers.take(kind) is None
    taken = target.host.markers.take(kind)
    assert taken is not None and (taken.id, taken.ended) == (placed.id, MarkerEnd.CONSUMED)
    assert target.host.markers.take(kind) is None


def test_it_is_for_one_process_not_for_its_pid(parties: tuple[Party, Party]) -> None:
    writer, target = parties
    other = replace(target.presence.identity, start_ticks=1, nonce="e" * 32)
    writer.host.markers.place(TAKEOVER, home=HOME, target=other, reason="a test")
    assert target.host.markers.take(TAKEOVER) is None


def test_it_does_not_survive_a_start_of_the_machine(parties: tuple[Party, Party], fake_clock: FakeClock) -> None:
    writer, target = parties
    assert place(writer, target) is not None
    fake_clock.reboot(boot_id="another boot")
    assert target.host.markers.take(TAKEOVER) is None


def test_a_second_one_for_the_same_target_is_not_placed_until_the_first_ended(
    parties: tuple[Party, Party], fake_clock: FakeClock
) -> None:
    writer, target = parties
    first = place(writer, target)
    assert first is not None
    assert place(writer, target) is None
    assert writer.host.markers.withdraw(first)
    assert not writer.host.markers.withdraw(first)
    assert place(writer, target) is not None
    fake_clock.advance(61.0)
    assert place(writer, target) is not None


def drain(writer: Party, target: Party, epoch: str | None = None) -> None:
    marker = writer.host.markers.place(
        DRAIN, home=HOME, target=target.presence.identity, reason="an update", quiet=True
    )
    assert marker is not None and marker.quiet
    if epoch is not None:
        writer.host.core.write(lambda tx: tx.execute("UPDATE markers SET epoch = ? WHERE ended IS NULL", (epoch,)))


def test_t2_14_the_same_epoch_drains_and_its_target_alone_and_once(parties: tuple[Party, Party]) -> None:
    writer, runner = parties
    drain(writer, runner)
    assert writer.host.markers.take(DRAIN) is None
    taken = runner.host.markers.take(DRAIN)
    assert taken is not None and (taken.quiet, taken.ended) == (True, MarkerEnd.CONSUMED)
    assert runner.host.markers.take(DRAIN) is None


@pytest.mark.parametrize("kind", list(MarkerKind))
def test_t2_14_another_epoch_counts_for_no_kind(parties: tuple[Party, Party], kind: MarkerKind) -> None:
    writer, runner = parties
    assert place(writer, runner, kind) is not None
    writer.host.core.write(lambda tx: tx.execute("UPDATE markers SET epoch = 'another boot+pid:1'"))
    assert writer.host.markers.list_open() == []
    with writer.host.core.reader() as reader:
        assert not is_marked(reader, runner.presence.identity, writer.host.core.clock)
    assert runner.host.markers.take(kind) is None
    assert place(writer, runner, kind) is not None  # and keeps no new one away
    assert runner.host.markers.take(kind) is not None


@pytest.mark.parametrize("epoch", ["", "cut of"])
def test_t2_14_no_epoch_or_a_damaged_one_drains(parties: tuple[Party, Party], epoch: str) -> None:
    writer, runner = parties
    drain(writer, runner, epoch)
    assert runner.host.markers.take(DRAIN) is not None


@pytest.mark.parametrize("kind", list(MarkerKind))
@pytest.mark.parametrize(("seconds", "counts"), [(59.9, True), (60.1, False)])
@pytest.mark.parametrize("step", [-7200.0, 7200.0])
def test_every_kind_counts_for_sixty_seconds_whatever_the_wall_clock_does(
    parties: tuple[Party, Party], fake_clock: FakeClock, kind: MarkerKind, seconds: float, counts: bool, step: float
) -> None:
    writer, target = parties
    assert place(writer, target, kind) is not None
    fake_clock.step_wall(step)
    fake_clock.advance(seconds)
    assert len(writer.host.markers.list_open()) == int(counts)
    assert (target.host.markers.take(kind) is not None) is counts
    fake_clock.step_wall(-2 * step)  # back beyond the moment at which it was written
    assert target.host.markers.take(kind) is None
    assert writer.host.markers.list_open() == []


@pytest.mark.parametrize("kind", list(MarkerKind))
def test_a_boot_clock_before_the_moment_of_writing_keeps_none_alive(
    parties: tuple[Party, Party], fake_clock: FakeClock, kind: MarkerKind
) -> None:
    """A counter that begins anew, where the platform tells no boot apart: in 3,600 s it would be good for 60 s more."""
    writer, target = parties
    fake_clock.advance(3600.0)
    assert place(writer, target, kind) is not None
    fake_clock._write(monotonic=10.0)
    assert writer.host.markers.list_open() == []
    assert target.host.markers.take(kind) is None


@pytest.mark.parametrize("kind", list(MarkerKind))
def test_a_marker_without_a_target_is_refused_by_the_code_and_by_the_file(
    parties: tuple[Party, Party], kind: MarkerKind
) -> None:
    writer, target = parties
    assert place(writer, target, kind) is not None
    with pytest.raises(StatementFailed):
        writer.host.core.write(lambda tx: tx.execute("UPDATE markers SET target = NULL"))


@pytest.fixture(name="running")
def a_running_gateway(parties: tuple[Party, Party]) -> Membership:
    member = parties[1].host.enter(run(HOME), answers=False).member
    assert member is not None
    member.settle([HOME], multiplex=False)
    return member


def test_a_run_that_follows_drains_once_and_resumes_when_it_is_told(
    parties: tuple[Party, Party], running: Membership
) -> None:
    """T2.14, R57: what it was told and what it does are one transaction."""
    writer, runner = parties
    follow = runner.host.follow
    drain(writer, runner)
    assert follow(running) is None and running.answer.state is RunState.STARTING  # nothing to drain yet
    running.move(RunState.RUNNING)
    told = follow(running)
    assert told is not None and (told.kind, told.quiet) == (DRAIN, True)
    assert running.answer.state is RunState.DRAINING
    assert follow(running) is None
    drain(writer, runner)
    assert place(writer, runner, RESUME) is not None  # the newer word counts
    assert [one.kind for one in writer.host.markers.list_open()] == [RESUME]
    told = follow(running)
    assert told is not None and told.kind is RESUME and running.answer.state is RunState.RUNNING
    running.move(RunState.STOPPING)
    drain(writer, runner)
    assert follow(running) is None and running.answer.state is RunState.STOPPING
    running.leave(reason="test over")


def test_a_run_started_anew_does_not_drain_for_the_one_before(
    parties: tuple[Party, Party], running: Membership, tmp_path: Path
) -> None:
    writer, runner = parties
    running.move(RunState.RUNNING)
    drain(writer, runner)
    running.leave(reason="killed before it looked")
    after = Party(folder_of(tmp_path))
    member = after.host.enter(run(HOME), answers=False).member
    assert member is not None
    member.move(RunState.RUNNING)
    assert after.host.follow(member) is None and member.answer.state is RunState.RUNNING
    member.leave(reason="test over")


@pytest.mark.parametrize("kind", list(MarkerKind))
def test_a_word_from_another_container_of_the_same_boot_counts(
    parties: tuple[Party, Party], kind: MarkerKind
) -> None:
    """The epoch is that of the target: whoever writes may live under another first process."""
    writer, target = parties
    writer.presence.identity = replace(writer.presence.identity, pid_namespace="pid:[9]+1")
    assert place(writer, target, kind) is not None
    assert [one.kind for one in writer.host.markers.list_open()] == [kind]
    assert target.host.markers.take(kind) is not None
