"""Two real processes and one conversation: the second waits, the dead are replaced at once, the stale commit nothing.

T4.8 and R98 with real kills. The clock is the test's: nothing waits for a term.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from hermes_state.errors import LeaseHeld
from hermes_state.store import open_store
from tests.support.children import Children

pytestmark = pytest.mark.slow

# One program in the gateway, the other at the terminal: both only know the store and the session.
WORKER = """
    import sys, gates
    from hermes_state.errors import StateError
    from hermes_state.store import open_store

    home, session, name, wait = sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4])
    with open_store(home) as store:
        gates.reach("open")
        gates.wait("begin")
        try:
            turn = store.turn(session, term_seconds=60, wait_seconds=wait)
        except StateError as error:
            gates.reach("has it", type(error).__name__)
            sys.exit()
        gates.reach("has it", str(turn.lease.fence))
        step = 0
        while True:
            word = gates.wait(f"step {step}", 600)
            if word == "end":
                break
            try:
                turn.messages.append(session, role="assistant", content=f"{name} {word}")
                gates.reach(f"did {step}", "committed")
            except StateError as error:
                gates.reach(f"did {step}", type(error).__name__)
            step += 1
        turn.end()
        gates.reach("ended")
"""


@pytest.fixture(name="session")
def session_of_home(tmp_path: Path) -> str:
    with open_store(tmp_path / "home") as store:
        return store.sessions.create(source="telegram").id


def texts(home: Path, session: str) -> list[str]:
    with open_store(home, read_only=True) as store:
        return [str(one["content"]) for one in store.messages.context(session)]


def test_t4_8_the_command_line_waits_for_the_gateway_and_goes_on_after_it(
    child: Children, tmp_path: Path, session: str
) -> None:
    home = tmp_path / "home"
    gateway, terminal = (child(WORKER, home, session, name, 600) for name in ("gateway", "terminal"))
    gateway.release("begin")
    assert gateway.wait_for("has it") == "1"
    terminal.wait_for("open")
    terminal.release("begin")
    gateway.release("step 0", "one")
    assert gateway.wait_for("did 0") == "committed"
    assert not terminal.reached("has it")
    gateway.release("step 1", "end")
    gateway.wait_for("ended")
    assert terminal.wait_for("has it") == "2"
    terminal.release("step 0", "two")
    assert terminal.wait_for("did 0") == "committed"
    assert texts(home, session) == ["gateway one", "terminal two"]


def test_t4_8_a_killed_holder_is_replaced_at_once(child: Children, tmp_path: Path, session: str) -> None:
    home = tmp_path / "home"
    gateway, terminal = (child(WORKER, home, session, name, 600) for name in ("gateway", "terminal"))
    gateway.release("begin")
    gateway.wait_for("has it")
    terminal.release("begin")
    terminal.wait_for("open")
    gateway.kill()
    assert terminal.wait_for("has it") == "2"
    with open_store(home) as store, pytest.raises(LeaseHeld) as caught:
        store.turn(session, wait_seconds=0)
    assert caught.value.owner.pid == terminal.pid  # type: ignore[attr-defined]


def test_t4_8_one_that_was_stopped_past_its_term_commits_nothing_once_another_has_the_turn(
    child: Children, tmp_path: Path, session: str, fake_clock: FakeClock
) -> None:
    home = tmp_path / "home"
    gateway, terminal = (child(WORKER, home, session, name, 0) for name in ("gateway", "terminal"))
    gateway.release("begin")
    gateway.wait_for("has it")
    terminal.wait_for("open")
    gateway.freeze()
    fake_clock.advance(61)
    terminal.release("begin")
    assert terminal.wait_for("has it") == "2"
    gateway.thaw()
    gateway.release("step 0", "late")
    assert gateway.wait_for("did 0") == "LeaseLost"
    terminal.release("step 0", "on time")
    assert terminal.wait_for("did 0") == "committed"
    terminal.release("step 1", "end")
    terminal.wait_for("ended")
    gateway.release("step 1", "later still")
    assert gateway.wait_for("did 1") == "LeaseLost"
    assert texts(home, session) == ["terminal on time"]


def test_one_that_does_not_wait_is_refused_while_the_other_works(
    child: Children, tmp_path: Path, session: str
) -> None:
    home = tmp_path / "home"
    gateway, terminal = (child(WORKER, home, session, name, 0) for name in ("gateway", "terminal"))
    gateway.release("begin")
    gateway.wait_for("has it")
    terminal.release("begin")
    assert terminal.wait_for("has it") == "LeaseHeld"


# Both want one turn for each message of a list; whoever has it adds the next number.
COUNTER = """
    import sys, gates
    from hermes_state.store import open_store

    home, session, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
    with open_store(home) as store:
        gates.reach("open")
        gates.wait("begin")
        for _ in range(rounds):
            with store.turn(session, wait_seconds=600) as turn:
                count = store.messages.count(session)
                turn.messages.append(session, role="user", content=str(count))
        gates.reach("done")
"""


def test_turns_of_two_processes_never_overlap(child: Children, tmp_path: Path, session: str) -> None:
    """Reading the count and appending it are two steps: without the turn, numbers repeat."""
    home = tmp_path / "home"
    both = [child(COUNTER, home, session, 25) for _ in range(2)]
    for one in both:
        one.wait_for("open")
    for one in both:
        one.release("begin")
    for one in both:
        one.wait_for("done", 300)
    assert texts(home, session) == [str(number) for number in range(50)]
