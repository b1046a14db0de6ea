"""Background processes: registered, running, ended once, whoever says it and however often."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from hermes_state.errors import HomeRemoved, IdempotencyConflict, InvalidInput, StateError, WrongHome
from hermes_state.errors.work import BackgroundWorkFull, BackgroundWorkNotFound
from hermes_state.routing import Home
from hermes_state.store import Store, open_store
from hermes_state.work.background import NOBODY, Process, Tell
from hermes_state.work.processes import MOST_RUNNING
from hermes_state.work.states import ProcessState, Reason
from tests.hermes_state.work.background.conftest import DISPLAY, RECEIPT, TURN, Admitting, obligations


def test_a_process_is_registered_runs_and_ends_with_one_notice(
    store: Store, home: Home, begin: Callable[..., Process], chat: Admitting
) -> None:
    process = begin("p", cwd="/srv", task_id="t", session_id="s")
    assert (process.state, process.delivery) == (ProcessState.REGISTERED, None)
    running = store.work.processes.running(process, home, 77, scope="sandbox")
    assert (running.state, running.pid, running.pid_scope) == (ProcessState.RUNNING, 77, "sandbox")
    ended = store.work.processes.exited(running, home, exit_code=3, output="no\n", ended_by="the test")
    assert (ended.state, ended.exit_code, ended.reason, ended.ended_by) == (
        ProcessState.EXITED, 3, Reason.EXITED, "the test"
    )
    assert obligations(store) == {process.key: "pending"}
    assert chat.deliver() == [process.key]
    assert store.work.processes.get("p") == store.work.processes.page()[0]
    assert store.work.processes.get("p").delivered  # type: ignore[union-attr]
    assert chat.deliver() == []


@pytest.mark.parametrize("started", [False, True], ids=["before it was said to run", "while it runs"])
def test_t5_8_the_first_end_counts_and_owes_once(
    store: Store, home: Home, begin: Callable[..., Process], started: bool
) -> None:
    process = begin("p")
    if started:
        store.work.processes.running(process, home, 77, scope="sandbox")
    first = store.work.processes.exited(process, home, exit_code=0, output="a")
    assert store.work.processes.exited(process, home, exit_code=9, output="b", reason=Reason.KILLED) == first
    assert store.work.processes.running(process, home, 78) == first
    assert obligations(store) == {process.key: "pending"}


def test_the_same_registration_is_found_and_another_one_refused(store: Store, begin: Callable[..., Process]) -> None:
    process = begin("p", epoch="e")
    assert begin("p", epoch="e") == process
    with pytest.raises(IdempotencyConflict) as caught:
        begin("p", epoch="e", command="rm")
    assert str(caught.value) == f"'process/p/e' in {store.path} was registered before, for something else."
    with pytest.raises(IdempotencyConflict):
        begin("p", RECEIPT, epoch="e")


def test_a_spawn_is_known_by_its_id_and_epoch(store: Store, home: Home, begin: Callable[..., Process]) -> None:
    first, second, other = begin("p"), begin("p"), begin("p2")
    store.work.processes.exited(first, home, exit_code=0)
    assert store.work.processes.get("p") == second
    assert store.work.processes.get("p", first.epoch).ended  # type: ignore[union-attr]
    assert store.work.processes.get("p2") == other
    assert store.work.processes.get("none") is None


def test_64_run_and_the_next_is_refused(store: Store, home: Home, begin: Callable[..., Process]) -> None:
    every = [begin(f"p{number}", NOBODY) for number in range(MOST_RUNNING)]
    with pytest.raises(BackgroundWorkFull) as caught:
        begin("more")
    assert f"{caught.value} {caught.value.hint}" == (
        f"64 background processes run for {store.path}; 64 is the most. Wait until one has ended, or end one; what"
        " runs is never taken away."
    )
    assert begin("p0", NOBODY, epoch=every[0].epoch) == every[0]
    store.work.processes.exited(every[0], home, exit_code=0)
    begin("more")


def test_a_day_old_process_does_not_keep_its_conversation(
    store: Store, begin: Callable[..., Process], fake_clock: FakeClock
) -> None:
    old = begin("old", session_key="k")
    assert store.work.processes.active(session_key="k") == [old]
    fake_clock.advance(86_401.0)
    young = begin("young", session_key="k")
    begin("other", session_key="another")
    assert store.work.processes.active(session_key="k") == [young]


def test_a_process_that_never_started_ends_as_such(store: Store, home: Home, begin: Callable[..., Process]) -> None:
    ended = store.work.processes.exited(begin("p"), home, exit_code=None, reason=Reason.FAILED_START)
    assert ended.headline == "Background process p (make) could not be started."
    assert ended.failed


def test_output_of_any_bytes_is_kept(store: Store, home: Home, begin: Callable[..., Process]) -> None:
    ended = store.work.processes.exited(begin("p"), home, exit_code=0, output="a\0b\udcff")
    assert ended.output == "a\\0b\\udcff"


def test_nobody_is_told_of_what_nobody_wants_to_hear(store: Store, home: Home, begin: Callable[..., Process]) -> None:
    ended = store.work.processes.exited(begin("p", NOBODY), home, exit_code=1)
    assert (ended.delivery, obligations(store)) == (None, {})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"process_id": "a/b"}, "process_id of background work is 'a/b'; neither / nor # may be in it."),
        ({"epoch": "a#b"}, "epoch of background work is 'a#b'; neither / nor # may be in it."),
        ({"patterns": "ERR"}, "patterns is a list of names, not 'ERR'."),
        (
            {"command": ""},
            "command of a process is a text, not empty, not ''.",
        ),
    ],
)
def test_what_cannot_be_kept_is_refused(
    store: Store, home: Home, fields: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        store.work.processes.register(
            **{"process_id": "p", "home": home, "command": "make"} | fields  # type: ignore[arg-type]
        )
    assert str(caught.value) == message


def test_who_is_told_is_said_in_words_that_are_known() -> None:
    with pytest.raises(InvalidInput) as caught:
        Tell(mode="shout")  # type: ignore[arg-type]
    assert f"{caught.value} {caught.value.hint}" == (
        "'shout' is no way to tell of an end. It is one of turn, receipt, display, nobody."
    )
    with pytest.raises(InvalidInput):
        Tell(mode="turn")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput):
        Tell(mode="nobody", transport="telegram")  # type: ignore[arg-type]
    assert {TURN.mode, RECEIPT.mode, DISPLAY.mode, NOBODY.mode} == {"turn", "receipt", "display", "nobody"}


def test_no_process_is_lost_by_word_of_mouth(store: Store, home: Home, begin: Callable[..., Process]) -> None:
    with pytest.raises(InvalidInput) as caught:
        store.work.processes.exited(begin("p"), home, exit_code=None, reason=Reason.LOST)
    assert str(caught.value) == "<Reason.LOST: 'lost'> is no reason for which a process exits."


def test_an_end_of_what_is_not_here_is_refused(store: Store, home: Home, begin: Callable[..., Process]) -> None:
    process = begin("p", NOBODY)
    store.work.processes.exited(process, home, exit_code=0)
    store.core.write(lambda tx: tx.execute("DELETE FROM background_work"))
    with pytest.raises(BackgroundWorkNotFound) as caught:
        store.work.processes.exited(process, home, exit_code=0)
    assert str(caught.value) == f"There is no {process.key!r} in {store.path}."


def test_t4_11_no_write_for_another_home_or_a_removed_one(
    store: Store, home: Home, begin: Callable[..., Process], tmp_path: Path, fake_clock: FakeClock
) -> None:
    process = begin("p")
    with open_store(tmp_path / "other", clock=fake_clock) as other:
        with pytest.raises(WrongHome):
            store.work.processes.register("q", other.routing.home, command="make")
        with pytest.raises(WrongHome):
            other.work.processes.exited(process, home, exit_code=0)
    store.routing.remove_home(home, actor="test", reason="test")
    for late in (
        lambda: begin("q"), lambda: store.work.processes.exited(process, home, exit_code=0),
        lambda: store.work.processes.renew(home), lambda: store.work.notices.sweep(home),
    ):
        with pytest.raises(HomeRemoved):
            late()
    assert obligations(store) == {}


def test_every_member_is_awaited_too(store: Store, home: Home) -> None:
    async def play() -> bool:
        process = await store.aio.work.processes.register("p", home, command="make", tell=TURN)
        await store.aio.work.processes.exited(process, home, exit_code=0)
        with pytest.raises(AttributeError, match="work has no group 'nothing'"):
            store.aio.work.nothing  # noqa: B018
        return bool((await store.aio.work.processes.get("p")).ended)

    assert asyncio.run(play())


def test_a_member_that_was_kept_refuses_once_the_store_is_closed(tmp_path: Path, fake_clock: FakeClock) -> None:
    with open_store(tmp_path / "closed", clock=fake_clock) as store:
        processes = store.work.processes
        notices = store.work.notices
    for use in (processes.page, notices.undelivered, notices.displays):
        with pytest.raises(StateError) as caught:
            use()
        assert str(caught.value) == f"The store {tmp_path / 'closed' / 'state.db'} is closed here."
