"""`hermes outbox`: what people read of obligations, and what they can do about them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from hermes_state.errors import StateError
from hermes_state.outbox import Accepted, Claim, Failed, State, Verdict
from hermes_state.store import open_store
from maintenance.commands.outbox.list import STATES
from maintenance.commands.outbox.shown import MEANING
from tests.support.cli import RunCli

pytestmark = pytest.mark.slow


@pytest.fixture
def db(tmp_path: Path, fake_clock: FakeClock) -> Path:
    """Accepted, unknown, recovered, failed once, and a null that is due later under an id of digits."""
    path = tmp_path / "state.db"
    with open_store(path=path) as store:
        box = store.outbox
        for number, policy in enumerate(("at_most_once", "at_most_once", "at_least_once", "at_least_once")):
            box.append(
                dedupe_id=f"final/{number}", kind="final", transport="telegram", target="chat 7",
                payload={"text": "Grüße \x1b[31m"}, policy=policy,  # type: ignore[arg-type]
            )
        box.append(
            dedupe_id="12345", kind="stop", transport="gateway", payload=None, policy="at_least_once",
            due_at=fake_clock.now() + 7200,
        )

        def breaks(claim: Claim) -> Verdict:
            raise ConnectionResetError("in the middle")

        box.deliver(lambda claim: Accepted(result={"message": 7}), ["telegram"])
        for _ in range(2):
            with pytest.raises(ConnectionResetError):
                box.deliver(breaks, ["telegram"])
        fake_clock.advance(1)
        box.deliver(lambda claim: Failed(why="no route"), ["telegram"], limit=1)
    return path


def test_the_list_says_when_how_often_and_why(db: Path, run_cli: RunCli) -> None:
    ran = run_cli("outbox", "list", "--db", db)
    assert (ran.exit_code, ran.stderr) == (0, "")
    lines = [re.sub(" +", " ", text).strip() for text in ran.stdout.splitlines()]
    shown = [re.sub(r"\S+:\d+:\d+\)$", "PROCESS)", text) for text in lines]
    assert shown == [
        "5 pending stop gateway 12345 due in 1 h, 0 of 10 attempts failed",
        "4 pending final telegram chat 7 final/3 due 1.0 s ago, 0 of 3 attempts failed",
        "3 pending final telegram chat 7 final/2 (recovered) due in 10 s, 1 of 3 attempts failed no route",
        "2 unknown final telegram chat 7 final/1 settled 1.0 s ago, 0 of 3 attempts failed ConnectionResetError: in the"
        " middle (its sender was PROCESS)",
        "1 accepted final telegram chat 7 final/0 settled 1.0 s ago, 0 of 3 attempts failed",
    ]
    page = run_cli("outbox", "list", "--db", db, "--limit", "2")
    assert page.stderr == "There may be more: --before 4 goes on.\n"


def test_one_is_shown_with_what_its_state_means_and_readable_json(db: Path, run_cli: RunCli) -> None:
    shown = run_cli("outbox", "show", "1", "--db", db)
    assert shown.stdout == (
        "number     1\n"
        "dedupe id  final/0\n"
        "state      accepted: the receiver has it\n"
        "policy     at_most_once\n"
        "kind       final\n"
        "transport  telegram\n"
        "target     chat 7\n"
        "attempts   0 of 3 failed\n"
        "made       today 08:00 (1.0 s ago)\n"
        "claimed    today 08:00 (1.0 s ago)\n"
        "settled    today 08:00 (1.0 s ago)\n"
        "Last verdict: Accepted, today 08:00\n"
        "{\n"
        '  "message": 7\n'
        "}\n"
        "Payload (29 bytes):\n"
        "{\n"
        '  "text": "Grüße \\u001b[31m"\n'
        "}\n"
    )
    unknown = run_cli("outbox", "show", "final/1", "--db", db)
    assert "state        unknown: nobody knows whether it went out; it is not sent again by itself\n" in unknown.stdout
    assert "Last verdict: Lost, today 08:00: ConnectionResetError: in the middle\n" in unknown.stdout
    document = run_cli("outbox", "show", "1", "--db", db, "--json").json
    assert document["verdict"] == {
        "verdict": "Accepted", "result": {"message": 7}, "at": "2027-01-15T08:00:00.000Z"
    }


def test_a_null_is_shown_as_one_and_a_dedupe_id_may_be_a_number(db: Path, run_cli: RunCli) -> None:
    shown = run_cli("outbox", "show", "12345", "--db", db)
    assert shown.stdout.endswith("Payload (4 bytes):\nnull\n")
    missing = run_cli("outbox", "show", "99", "--db", db)
    assert missing.exit_code == 1
    assert missing.stderr.startswith(f"Error: There is no obligation '99' in {db}.\n")


def test_a_state_that_there_is_not_is_a_usage_error_that_names_those_there_are(db: Path, run_cli: RunCli) -> None:
    ran = run_cli("outbox", "list", "--state", "pendin", "--db", db)
    assert ran.exit_code == 2
    for state in State:
        assert f"'{state}'" in ran.stderr


def test_the_command_line_knows_every_state() -> None:
    assert tuple(State) == STATES == tuple(MEANING)


def test_a_retry_says_before_what_it_would_do_and_is_made_once(db: Path, run_cli: RunCli) -> None:
    dry = run_cli("outbox", "retry", "2", "--dry-run", "--db", db)
    assert dry.stdout == "final/1 is unknown; it would be owed again under an id of its own.\n"
    for _ in range(2):
        done = run_cli("outbox", "retry", "2", "--db", db)
        assert done.stdout == "final/1 stays unknown; final/1#retry-1 (number 6) is owed.\n"
    with open_store(path=db) as store:
        (claim,) = store.outbox.claim(["telegram"], kinds=["final"])
    busy = run_cli("outbox", "retry", claim.primary.id, "--dry-run", "--db", db)
    assert (busy.exit_code, busy.stdout) == (1, "")
    assert f"Obligation {claim.primary.dedupe_id!r} in {db} is being sent." in busy.stderr


def test_when_one_of_several_cannot_be_dropped_none_is(db: Path, run_cli: RunCli) -> None:
    for more in (["--dry-run"], ["--yes"]):
        ran = run_cli("outbox", "drop", "5", "1", "--reason", "no", *more, "--db", db)
        assert ran.exit_code == 1
        assert f"Obligation 'final/0' in {db} is accepted: only a pending one can be taken back." in ran.stderr
    no_reason = run_cli("outbox", "drop", "5", "--reason", " ", "--yes", "--db", db)
    assert no_reason.exit_code == 2
    with open_store(path=db) as store:
        assert store.outbox.get("12345").state is State.PENDING
    twice = run_cli("outbox", "drop", "5", "12345", "--reason", "no", "--yes", "--db", db)
    assert (twice.exit_code, twice.stdout.splitlines()[-1]) == (0, "Dropped 1 obligation.")


def test_stats_say_from_when_on_ids_are_remembered(db: Path, run_cli: RunCli, fake_clock: FakeClock) -> None:
    fake_clock.advance(1)
    with open_store(path=db) as store:
        store.outbox.upkeep(most_settled=0)
    ran = run_cli("outbox", "stats", "--db", db)
    assert ran.stdout == (
        "final: 2 pending\n"
        "stop: 1 pending\n"
        "1 obligation due and not sent, the oldest 2.0 s ago.\n"
        "Ids are remembered that were made after today 08:00.\n"
    )


def test_a_library_error_names_the_states(db: Path) -> None:
    with open_store(path=db) as store, pytest.raises(StateError) as caught:
        store.outbox.page(states=["pendin"])  # type: ignore[list-item]
    assert str(caught.value) == "'pendin' is no state of an obligation."
