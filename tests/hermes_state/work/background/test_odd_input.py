"""Names that are no UTF-8, rows of the other sort, rows that another program wrote, clocks that were ahead."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest

from hermes_state.clock import FakeClock
from hermes_state.engine import Transaction
from hermes_state.errors import InvalidInput
from hermes_state.outbox import Accepted, State
from hermes_state.routing import Home
from hermes_state.store import Store
from hermes_state.work.background import Delegation, Process
from hermes_state.work.verbosity import Verbosity
from tests.hermes_state.work.background.conftest import RECEIPT, Admitting, entry, obligations

DAY = 86_400.0
RECEIPT_ALL = replace(RECEIPT, verbosity=Verbosity.ALL)


def test_a_command_and_a_folder_that_are_no_utf8_are_registered_and_told(
    store: Store, home: Home, begin: Callable[..., Process], chat: Admitting
) -> None:
    process = begin("p", command="cat \udcff" + "x" * 200_000, cwd="/tmp/\udcff", patterns=["\udcff"])
    assert (process.command[:10], process.cwd, process.patterns) == (r"cat \udcff", r"/tmp/\udcff", (r"\udcff",))
    assert process.command.endswith("x... (200,010 characters)")
    store.work.processes.exited(process, home, exit_code=0)
    assert chat.deliver() == [process.key]


def test_the_same_number_is_told_once_whatever_it_says(store: Store, home: Home, begin: Callable[..., Process]) -> None:
    process = begin("p", RECEIPT_ALL)
    assert store.work.processes.update(process, home, "10 %", 1)
    assert store.work.processes.update(process, home, "12 %", 1)
    (owed,) = store.outbox.page()
    assert owed.payload["text"] == "10 %"


def test_a_row_of_the_other_sort_and_a_mode_that_tells_nobody_are_refused_by_name(
    store: Store, home: Home, begin: Callable[..., Process], dispatch: Callable[..., Delegation]
) -> None:
    process, given = begin("p", epoch="1"), dispatch("d")
    with pytest.raises(InvalidInput) as caught:
        store.work.processes.exited(given, home, exit_code=0)  # type: ignore[arg-type]
    assert str(caught.value) == "'delegation/d' is a delegation, not a process."
    with pytest.raises(InvalidInput) as caught:
        store.work.delegations.completed(process, home, "x")  # type: ignore[arg-type]
    assert str(caught.value) == "'process/p/1' is a process, not a delegation."
    async def admit(_notice: object) -> Accepted:
        raise AssertionError

    with pytest.raises(InvalidInput) as caught:
        store.work.notices.deliver(admit, ["telegram"])  # type: ignore[arg-type]
    assert str(caught.value) == "handler is a plain function, not a coroutine function."
    with pytest.raises(InvalidInput) as caught:
        store.work.notices.prepared(lambda _notice: Accepted(), ["telegram"], "nobody")
    assert str(caught.value) == "'nobody' is no mode whose ends anybody is told of."
    assert caught.value.hint == "It is one of turn, receipt, display."


def test_a_result_that_another_program_wrote_too_deep_hides_no_other_row(
    store: Store, home: Home, dispatch: Callable[..., Delegation], chat: Admitting
) -> None:
    deep = "[" * 900 + "]" * 900
    for name in ("a", "b"):
        store.work.delegations.completed(dispatch(name), home, "fine")

    def write(tx: Transaction) -> None:
        tx.execute("DROP TRIGGER background_work_ends_once")
        tx.execute("UPDATE background_work SET result = ? WHERE key = 'delegation/a'", (deep,))

    store.core.write(write)

    def deeper(levels: int) -> list[str]:
        return deeper(levels - 1) if levels else [one.delegation_id for one in store.work.delegations.page()]

    assert deeper(300) == ["b", "a"]
    assert chat.deliver() == ["delegation/a", "delegation/b"]


def test_a_clock_that_was_ahead_gives_up_no_young_notice_and_forgets_no_young_row(
    store: Store, home: Home, begin: Callable[..., Process], dispatch: Callable[..., Delegation], chat: Admitting,
    fake_clock: FakeClock,
) -> None:
    """One sweep meanwhile was enough to suppress what had just ended."""
    process, given = begin("p"), dispatch("d")
    store.work.processes.matched(process, home, "E", ["E: 1"])
    store.work.processes.exited(process, home, exit_code=0)
    fake_clock.step_wall(30 * DAY)
    swept = store.work.notices.sweep(home)
    assert (swept.too_old, swept.forgotten) == (0, 0)
    fake_clock.step_wall(-30 * DAY)
    assert chat.deliver() == [process.key] * 2  # the match, and the end
    store.work.delegations.completed(given, home, "x")
    chat.deliver()
    fake_clock.step_wall(30 * DAY)
    assert store.work.notices.sweep(home).forgotten == 0
    fake_clock.step_wall(-30 * DAY)
    assert {key: str(state) for key, state in obligations(store).items()} == {
        process.key: "accepted", f"{process.key}#match-1": "accepted", given.key: "accepted"
    }
    fake_clock.advance(7 * DAY + 1)
    assert store.work.notices.sweep(home).forgotten == 2


def test_what_is_old_on_every_clock_is_given_up(
    store: Store, home: Home, begin: Callable[..., Process], chat: Admitting, fake_clock: FakeClock
) -> None:
    process = begin("p")
    store.work.processes.exited(process, home, exit_code=0)
    damaged = begin("damaged")
    store.work.processes.exited(damaged, home, exit_code=0)
    store.core.write(lambda tx: tx.execute("UPDATE outbox SET payload = '{' WHERE dedupe_id = ?", (damaged.key,)))
    fake_clock.advance(2 * DAY + 1)
    assert store.work.notices.sweep(home).too_old == 2
    assert obligations(store) == {process.key: str(State.SUPPRESSED), damaged.key: str(State.SUPPRESSED)}


def test_an_end_is_told_in_the_session_that_its_conversation_goes_on_in(
    store: Store, home: Home, begin: Callable[..., Process], chat: Admitting
) -> None:
    """A compacted session takes nothing."""
    for keyed, followed in ((True, True), (True, False), (False, False)):
        first = store.sessions.create(source="telegram").id
        route = entry(store, first, f"{keyed} {followed}") if keyed else None
        process = begin("p", session_id=first, session_key=None if route is None else route.session_key)
        tip = store.sessions.continue_as(first).id
        if route is not None and followed:
            store.routing.follow(route, home, tip)
        store.work.processes.exited(process, home, exit_code=0)
        assert chat.deliver() == [process.key]
        assert chat.seen[-1].session_id == tip


def test_an_end_whose_session_was_deleted_is_told_nowhere(
    store: Store, home: Home, begin: Callable[..., Process], chat: Admitting
) -> None:
    for keyed, continued in itertools.product((True, False), (True, False)):
        last = store.sessions.create(source="telegram").id
        route = entry(store, last, f"{keyed} {continued}") if keyed else None
        process = begin("p", session_id=last, session_key=None if route is None else route.session_key)
        if continued:
            last = store.sessions.continue_as(last).id
        store.sessions.delete(last, actor="test", reason="test")
        store.work.processes.exited(process, home, exit_code=0)
        assert chat.deliver() == [], (keyed, continued)
        newest = store.work.notices.undelivered()[0]
        assert (newest.key, newest.delivery) == (process.key, State.SUPPRESSED)
