"""Markers: addressed, once, for sixty seconds, of this start of the machine (T2.14, R57)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from hermes_state.errors import InvalidInput
from hermes_state.host import MarkerKind
from hermes_state.host.markers import Marker
from hermes_state.host.states import MarkerEnd
from tests.hermes_state.host.hosts import Party, folder_of

HOME = "/h/a"
TAKEOVER, PLANNED, DRAIN = MarkerKind.TAKEOVER, MarkerKind.PLANNED_STOP, MarkerKind.DRAIN


@pytest.fixture(name="parties")
def two_parties(tmp_path: Path, fake_clock: FakeClock) -> tuple[Party, Party]:
    return Party(folder_of(tmp_path)), Party(folder_of(tmp_path))


def place(writer: Party, target: Party, kind: MarkerKind = TAKEOVER) -> Marker | None:
    return writer.host.markers.place(kind, home=HOME, target=target.presence.identity, reason="a test")


@pytest.mark.parametrize("kind", [TAKEOVER, PLANNED])
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


@pytest.mark.parametrize(("seconds", "counts"), [(59.9, True), (60.1, False)])
def test_it_counts_for_sixty_seconds_of_the_boot_clock(
    parties: tuple[Party, Party], fake_clock: FakeClock, seconds: float, counts: bool
) -> None:
    writer, target = parties
    assert place(writer, target) is not None
    fake_clock.step_wall(-3600.0)  # setting the clock changes nothing
    fake_clock.advance(seconds)
    assert (target.host.markers.take(TAKEOVER) is not None) is counts


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


def drain(party: Party, epoch: str | None = None) -> None:
    marker = party.host.markers.place(DRAIN, home=HOME, reason="an update", quiet=True)
    assert marker is not None and marker.quiet
    if epoch is not None:
        party.host.core.write(lambda tx: tx.execute("UPDATE markers SET epoch = ?", (epoch,)))


def test_t2_14_the_same_epoch_drains_however_long_it_takes(
    parties: tuple[Party, Party], fake_clock: FakeClock
) -> None:
    writer, runner = parties
    drain(writer)
    fake_clock.advance(3600.0)
    assert runner.host.markers.draining(HOME) is not None
    assert runner.host.markers.draining("/h/other") is None
    assert writer.host.markers.end_drain(HOME)
    assert runner.host.markers.draining(HOME) is None


def test_t2_14_another_epoch_does_not_drain(parties: tuple[Party, Party]) -> None:
    writer, runner = parties
    drain(writer, "another boot+pid:1")
    assert runner.host.markers.draining(HOME) is None
    drain(writer)  # and does not keep a new one away
    assert runner.host.markers.draining(HOME) is not None


@pytest.mark.parametrize("epoch", ["", "cut of"])
def test_t2_14_no_epoch_or_a_damaged_one_drains(parties: tuple[Party, Party], epoch: str) -> None:
    writer, runner = parties
    drain(writer, epoch)
    assert runner.host.markers.draining(HOME) is not None


def test_a_drain_is_for_a_home_and_the_others_are_for_a_process(parties: tuple[Party, Party]) -> None:
    writer, target = parties
    with pytest.raises(InvalidInput) as wrong:
        writer.host.markers.place(TAKEOVER, home=HOME, reason="a test")
    assert wrong.value.message == f"A marker takeover needs a target in {writer.host.path}."
    with pytest.raises(InvalidInput):
        place(writer, target, DRAIN)
