"""What a person is told of a claim, a lane and a repetition, and what then can be done about them."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from hermes_state.clock import FakeClock
from hermes_state.errors import IdempotencyConflict, Refused
from hermes_state.outbox import Accepted, Outbox, Recorded, State
from hermes_state.store import Store
from tests.hermes_state.outbox.conftest import Sender
from tests.support.cli import RunCli

Owe = Callable[..., Recorded]
NewSender = Callable[[], Sender]
ONCE, LEAST = "at_most_once", "at_least_once"


def shown(text: str) -> list[str]:
    return [re.sub(r"pid \d+", "pid N", re.sub(" +", " ", line)).strip() for line in text.splitlines()]


@pytest.mark.parametrize(("policy", "state"), [(ONCE, State.UNKNOWN), (LEAST, State.PENDING)])
@pytest.mark.parametrize("lost", ["gone", "past its term"])
def test_a_claim_whose_sender_was_lost_can_be_retried_and_dropped(
    box: Outbox, owe: Owe, sender: NewSender, fake_clock: FakeClock, policy: str, state: State, lost: str
) -> None:
    for name in ("again", "away"):
        owe(name, policy)
    other = sender()
    assert len(other.box.claim(["telegram"], limit=2, term_seconds=3000)) == 2
    seen = box.look("again").sender
    assert seen is not None and (seen.gone, seen.lost, seen.until) == ("", False, fake_clock.now() + 3000)
    with pytest.raises(Refused):
        box.retry("again")
    with pytest.raises(Refused):
        box.drop("away", reason="x")
    if lost == "gone":
        other.die()
    else:
        fake_clock.advance(3000)
    seen = box.look("again").sender
    assert seen is not None and seen.lost and bool(seen.gone) is (lost == "gone")
    assert box.counts().left == 2
    made = box.retry("again")
    again = box.get("again")
    assert (again.state, again.recovered) == (state, True)
    assert (made.dedupe_id, made.state) == ("again#retry-1" if policy == ONCE else "again", State.PENDING)
    dropped = box.drop("away", reason="x")
    assert dropped.state is (State.UNKNOWN if policy == ONCE else State.DROPPED)
    assert box.counts().left == 0


def test_who_was_sending_what_is_unknown_is_kept(
    box: Outbox, owe: Owe, sender: NewSender, run_cli: RunCli, store: Store
) -> None:
    owe("one", ONCE)
    other = sender()
    (claim,) = other.box.claim(["telegram"])
    other.die()
    box.claim(["nothing"])
    verdict = box.get("one").verdict
    assert verdict is not None and verdict["sender"] == claim.owner
    who = str(other.presence.identity)
    listed = run_cli("outbox", "list", "--state", "unknown", "--db", store.path).stdout
    assert listed.rstrip().endswith(f"(its sender was {who})")
    assert f"Its sender was {who}.\n" in run_cli("outbox", "show", "one", "--db", store.path).stdout
    assert run_cli("outbox", "show", "one", "--db", store.path, "--json").json["verdict"]["sender"] == who


@pytest.mark.slow
def test_the_commands_say_of_a_sender_whether_it_lives_and_until_when_its_term_lasts(
    store: Store, owe: Owe, sender: NewSender, run_cli: RunCli
) -> None:
    db = ("--db", store.path)
    for name, policy in (("once", ONCE), ("least", LEAST)):
        owe(name, policy)
    other = sender()
    other.box.claim(["telegram"], limit=2, term_seconds=3000)
    assert "claimed 0.0 s ago, its term ends in 50 min" in run_cli("outbox", "list", *db).stdout
    assert "term its term ends in 50 min, today 08:50" in shown(run_cli("outbox", "show", "1", *db).stdout)
    other.die()
    gone = "its sender is gone (pid N: nobody holds its lock file)"
    assert [f"claimed 0.0 s ago, {gone}" in line for line in shown(run_cli("outbox", "list", *db).stdout)] == [True] * 2
    assert f"term {gone}; the next claim settles it, as retry and drop do" in shown(
        run_cli("outbox", "show", "1", *db).stdout
    )
    document = run_cli("outbox", "show", "1", *db, "--json").json
    assert (document["sender_gone"], document["sender_lost"], document["term_until"]) == (
        "nobody holds its lock file", True, "2027-01-15T08:50:00.000Z"
    )
    assert run_cli("outbox", "stats", *db).stdout == (
        "final: 2 claimed\n"
        "2 obligations claimed by a sender that is gone or past its term: the next claim settles them, by their"
        " policy.\n"
    )
    assert run_cli("outbox", "retry", "1", "--dry-run", *db).stdout == (
        "once is claimed by a process that is gone or late; it would be unknown, and be owed again under an id of its"
        " own.\n"
    )
    dropped = run_cli("outbox", "drop", "1", "2", "--reason", "closed", "--yes", *db)
    assert dropped.stdout.splitlines()[-2:] == [
        "once is unknown: its sender was lost, and nobody knows whether it went out; it is not sent again.",
        "Dropped 1 obligation.",
    ]
    assert run_cli("outbox", "retry", "1", *db).stdout == "once stays unknown; once#retry-1 (number 3) is owed.\n"


@pytest.mark.slow
def test_what_waits_behind_another_says_behind_which(
    store: Store, box: Outbox, owe: Owe, run_cli: RunCli, fake_clock: FakeClock
) -> None:
    db = ("--db", store.path)
    owe("first", lane="thread", due_at=fake_clock.now() + 7200)
    owe("second", lane="thread")
    owe("other")
    behind = box.look("second").behind
    assert behind is not None and behind.dedupe_id == "first" and box.look("first").behind is None
    waits = "waits behind number 1 (pending, due in 2 h)"
    assert shown(run_cli("outbox", "list", "--lane", "thread", *db).stdout) == [
        f"2 pending final telegram second {waits}, 0 of 3 attempts failed",
        "1 pending final telegram first due in 2 h, 0 of 3 attempts failed",
    ]
    assert "waits behind number 1 (pending, due in 2 h)" in shown(run_cli("outbox", "show", "2", *db).stdout)
    assert run_cli("outbox", "stats", *db).stdout == (
        "final: 3 pending\n"
        "1 obligation due and not sent, the oldest 0.0 s ago.\n"
        "1 obligation due and behind something of the same lane.\n"
    )
    assert run_cli("outbox", "retry", "second", *db).stdout == f"second is due now. It {waits}.\n"
    assert run_cli("outbox", "show", "2", *db, "--json").json["waits_behind"] == 1


def test_a_repetition_that_was_asked_for_by_its_id_is_found_also_once_the_payload_is_blanked(
    box: Outbox, owe: Owe, fake_clock: FakeClock
) -> None:
    owe("one")
    owe("other")
    box.deliver(lambda claim: Accepted(), ["telegram"], limit=2)
    made = box.retry("one", dedupe_id="x2")
    fake_clock.advance(2 * 86_400)
    box.upkeep()
    assert box.get("one").blanked
    assert box.retry("one", dedupe_id="x2") == box.get("x2") == box.get(made.id)
    with pytest.raises(Refused):
        box.retry("one", dedupe_id="x3")
    with pytest.raises(IdempotencyConflict):
        box.retry("other", dedupe_id="x2")


@pytest.mark.slow
def test_a_dry_retry_tells_of_the_repetition_that_is_owed_already(
    store: Store, box: Outbox, owe: Owe, run_cli: RunCli
) -> None:
    db = ("--db", store.path)
    owe("one")
    box.deliver(lambda claim: Accepted(), ["telegram"])
    box.retry("one")
    assert run_cli("outbox", "retry", "one", "--dry-run", *db).stdout == (
        "one is accepted; one#retry-1 (number 2) repeats it already and is pending; that one would be due now.\n"
    )
    assert "repeated by number 2, which is pending" in shown(run_cli("outbox", "show", "one", *db).stdout)
    box.claim(["telegram"])
    assert run_cli("outbox", "retry", "one", "--dry-run", *db).exit_code == 1


@pytest.mark.slow
def test_a_drop_without_a_reason_says_so_in_its_usage(store: Store, owe: Owe, run_cli: RunCli) -> None:
    owe("one", payload=1)
    ran = run_cli("outbox", "drop", "1", "--yes", "--db", store.path)
    assert (ran.exit_code, ran.stderr.splitlines()[0]) == (2, "Error: Missing option '--reason'.")
    assert "outbox drop --reason TEXT [OPTIONS] ID..." in run_cli("outbox", "drop", "--help").stdout
    assert run_cli("outbox", "show", "1", "--db", store.path).stdout.endswith("Payload (1 byte):\n1\n")
