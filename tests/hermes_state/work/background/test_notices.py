"""Telling of ends: refunds and attempts, siblings, conversations that have ended, display rows, and what is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from hermes_state.engine import Transaction
from hermes_state.errors import IdempotencyConflict
from hermes_state.outbox import Accepted, Claim, Failed, NotAdmitted, State, Verdict
from hermes_state.routing import Home
from hermes_state.store import Store, open_home, open_store
from hermes_state.work.background import Delegation, Process, Tell
from hermes_state.work.background_rows import batch_of
from hermes_state.work.notices import KINDS, Notice
from hermes_state.work.states import Mode
from tests.hermes_state.work.background.conftest import DISPLAY, TURN, Admitting, entry, obligations


@pytest.fixture(name="ended")
def ender(store: Store, home: Home, begin: Callable[..., Process]) -> Callable[..., Process]:
    def ended(process_id: str, tell: Tell = TURN, **fields: object) -> Process:
        process = begin(process_id, tell, **fields)
        return store.work.processes.exited(process, home, exit_code=0, output=f"output of {process_id}")

    return ended


def test_t5_1_fifty_refusals_cost_no_attempt_of_any_sibling(
    store: Store, ended: Callable[..., Process], chat: Admitting, fake_clock: FakeClock
) -> None:
    """T5.1 and T5.2: one claim of five siblings, refused fifty times, then taken once."""
    keys = [ended(f"p{number}").key for number in range(5)]
    chat.verdict = NotAdmitted(why="a turn is running")
    for _ in range(50):
        assert chat.deliver() == keys
        fake_clock.advance(6.0)
    assert {(one.attempts, one.refunds) for one in store.outbox.page()} == {(0, 50)}
    chat.verdict = Accepted()
    assert chat.deliver() == keys
    assert chat.deliver() == []
    assert set(obligations(store).values()) == {"accepted"}


def test_t5_3_a_transport_that_is_down_costs_nothing(
    store: Store, ended: Callable[..., Process], chat: Admitting
) -> None:
    ended("p")
    for _ in range(100):
        assert chat.deliver("discord") == []
    assert [(one.attempts, one.fence) for one in store.outbox.page()] == [(0, 0)]


def test_t5_5_nothing_said_is_no_acceptance(store: Store, ended: Callable[..., Process], chat: Admitting) -> None:
    process = ended("p")
    chat.verdict = None
    chat.deliver()
    assert (store.outbox.get(process.key).state, store.outbox.get(process.key).attempts) == (State.PENDING, 1)


def test_what_ends_within_the_window_is_told_together(
    store: Store, ended: Callable[..., Process], chat: Admitting, fake_clock: FakeClock
) -> None:
    began = fake_clock.now()
    keys = [ended(f"p{number}").key for number in range(12)]
    assert chat.deliver() == keys
    (notice,) = chat.seen
    assert fake_clock.now() == pytest.approx(began + 0.1)
    assert notice.text.count("output of") == 10
    assert notice.text.endswith("\n\n... and 2 more; their results are kept.")


def test_siblings_are_those_of_one_conversation_and_one_way_to_tell(
    ended: Callable[..., Process], chat: Admitting
) -> None:
    keys = [
        ended("a", session_key="k1").key, ended("b", session_key="k2").key,
        ended("c", Tell(mode="turn", transport="telegram", target="other"), session_key="k1").key,  # type: ignore[arg-type]
        ended("d", session_key="k1").key,
    ]
    chat.deliver()
    assert [[work.key for work in notice.works] for notice in chat.seen] == [[keys[0], keys[3]], [keys[1]], [keys[2]]]


def test_a_sibling_that_another_process_has_is_left_out_of_the_text(
    store: Store, ended: Callable[..., Process], chat: Admitting
) -> None:
    first = ended("a")
    (claim,) = store.outbox.claim(["telegram"], kinds=KINDS[Mode.TURN])
    second = ended("b")
    assert chat.deliver() == [second.key]
    store.outbox.settle(claim, Accepted())
    assert [one.key for one in store.work.processes.page()] == [second.key, first.key]


def test_r86_ten_completions_for_the_api_server_are_display_rows_and_no_turn(
    store: Store, ended: Callable[..., Process], chat: Admitting
) -> None:
    keys = [ended(f"p{number}", DISPLAY, session_id="s").key for number in range(10)]
    assert chat.deliver("telegram", "api_server") == []
    assert [one.key for one in store.work.notices.displays(session_id="s")] == keys[::-1]
    assert set(obligations(store).values()) == {"pending"}
    shown: list[Notice] = []

    def show(notice: Notice) -> Verdict:
        shown.append(notice)
        return Accepted()

    store.work.notices.tell(show, ["telegram", "api_server"], limit=10)
    assert shown == []
    store.work.notices.show(show, limit=10)
    assert [work.key for notice in shown for work in notice.works] == keys
    assert len(store.work.notices.displays(session_id="s")) == 10


def test_no_kind_of_the_outbox_is_given_to_two() -> None:
    every = [kind for kinds in KINDS.values() for kind in kinds]
    assert len(set(every)) == len(every)
    assert set(KINDS) == set(Mode) - {Mode.NOBODY}


def test_t5_10_the_result_of_an_old_conversation_is_dropped_and_readable(
    store: Store, home: Home, begin: Callable[..., Process], chat: Admitting
) -> None:
    route = entry(store, store.sessions.create(source="telegram").id)
    process = begin("p", session_key=route.session_key)
    assert (process.session_id, process.generation) == (route.session_id, route.generation)
    store.routing.reset(route, home, store.sessions.create(source="telegram").id, reason="/new")
    store.work.processes.exited(process, home, exit_code=0, output="what it found")
    assert chat.deliver() == []
    owed = store.outbox.get(process.key)
    assert (owed.state, owed.verdict and owed.verdict["why"]) == (
        State.SUPPRESSED, "not told: its chat has begun a new conversation since"
    )
    (left,) = store.work.notices.undelivered()
    assert isinstance(left, Process)
    assert left.output == "what it found"


def test_t5_10_a_new_conversation_after_the_end_drops_it_too(
    store: Store, home: Home, begin: Callable[..., Process], chat: Admitting
) -> None:
    route = entry(store, store.sessions.create(source="telegram").id)
    process = begin("p", session_key=route.session_key)
    store.work.processes.exited(process, home, exit_code=0)
    store.routing.reset(route, home, store.sessions.create(source="telegram").id, reason="/new")
    assert chat.deliver() == []


def test_what_became_of_the_conversation_decides(
    store: Store, home: Home, ended: Callable[..., Process], chat: Admitting
) -> None:
    def new() -> str:
        return store.sessions.create(source="telegram").id

    went_on = entry(store, new(), "1")
    keep = [ended("a", session_key=went_on.session_key).key]
    child = store.sessions.continue_as(went_on.session_id).id
    store.routing.follow(went_on, home, child)
    for chat_id, mark in (("2", store.routing.suspend), ("3", store.routing.expire)):
        route = entry(store, new(), chat_id)
        ended(f"p{chat_id}", session_key=route.session_key)
        mark(route, home, reason="test")
    forgotten = entry(store, new(), "4")
    ended("p4", session_key=forgotten.session_key)
    store.routing.forget(forgotten, home, actor="test", reason="test")
    keep.append(ended("b", session_key="agent:main:telegram:group:5").key)
    deleted = new()
    ended("p6", session_id=deleted)
    store.sessions.delete(deleted, actor="test", reason="test")
    keep.append(ended("c", session_id="never here").key)
    later = entry(store, new(), "7")
    store.routing.forget(later, home, actor="test", reason="test")
    ended("p7", session_key=later.session_key, session_id="another one")
    same = ended("d", session_key=later.session_key, session_id=later.session_id).key
    entry(store, later.session_id, "7")
    assert chat.deliver() == [*keep, same]
    assert chat.seen[0].session_id == child
    assert chat.seen[0].route is not None
    assert {
        one.dedupe_id.split("/")[1]: (one.verdict or {})["why"]
        for one in store.outbox.page() if one.state is State.SUPPRESSED
    } == {
        "p2": "not told: its conversation is suspended", "p3": "not told: its conversation is expired",
        "p4": "not told: its chat was forgotten", "p6": "not told: its session was deleted",
        "p7": "not told: its chat has begun a new conversation since",
    }


def test_t5_9_each_end_is_told_from_its_own_home(
    store: Store, tmp_path: Path, fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process of a secondary profile is recovered by one that runs under the root home."""
    monkeypatch.setenv("HERMES_HOME", str(store.path.parent))
    folder = store.path.parent / "profiles" / "work"
    with open_store(folder, clock=fake_clock) as secondary:
        home = secondary.routing.home
        process = secondary.work.processes.register("p", home, command="make", tell=TURN)
    with open_home(home, clock=fake_clock) as found:
        found.work.processes.exited(process, home, exit_code=0, output="mine")
        assert Admitting(store).deliver() == []
        assert store.work.processes.get("p") is None
        chat = Admitting(found)
        assert chat.deliver() == [process.key]
        assert chat.seen[0].works[0].home == home.store_id != store.store_id


def test_a_notice_that_nobody_took_for_48_h_is_given_up_and_readable(
    store: Store, home: Home, ended: Callable[..., Process], chat: Admitting, fake_clock: FakeClock
) -> None:
    process = ended("p")
    fake_clock.advance(48 * 3600.0)
    assert store.work.notices.sweep(home).too_old == 0
    fake_clock.advance(1.0)
    swept = store.work.notices.sweep(home)
    assert (swept.too_old, swept.forgotten, swept.next_seconds) == (1, 0, 60.0)
    assert chat.deliver() == []
    assert [one.key for one in store.work.notices.undelivered()] == [process.key]
    store.outbox.retry(process.key)
    store.work.notices.sweep(home)
    assert chat.deliver() == [process.key]


def test_what_was_taken_is_forgotten_in_time_and_what_is_owed_never(
    store: Store, home: Home, ended: Callable[..., Process], dispatch: Callable[..., Delegation], chat: Admitting,
    fake_clock: FakeClock,
) -> None:
    taken, delegation = ended("taken"), dispatch("d")
    store.work.delegations.completed(delegation, home, 1)
    chat.deliver()
    ended("dropped")
    store.outbox.drop(store.work.processes.get("dropped").key, reason="test")  # type: ignore[union-attr]
    owed = ended("owed")
    steps = []
    for seconds in (1_799.0, 1.0, 7 * 86_400.0 - 1_801.0, 1.0, 1.0):
        fake_clock.advance(seconds)
        store.work.notices.sweep(home)
        works = [*store.work.processes.page(), *store.work.delegations.page()]
        steps.append({one.key.split("/")[1] for one in works})
    everything = {"taken", "d", "dropped", "owed"}
    assert steps[0] == everything
    assert steps[1] == everything - {"taken"}
    assert steps[2] == everything - {"taken"}
    assert steps[4] == {"owed"}
    assert store.work.processes.get("owed").key == owed.key  # type: ignore[union-attr]
    with pytest.raises(IdempotencyConflict) as caught:
        store.work.processes.register("taken", home, command="make", tell=TURN, epoch=taken.epoch)
    assert str(caught.value) == (
        f"{taken.key!r} was registered in {store.path} before; it has ended, was told of, and is forgotten."
    )


def test_what_became_of_a_notice_outlives_the_outbox(
    store: Store, home: Home, dispatch: Callable[..., Delegation], chat: Admitting, fake_clock: FakeClock
) -> None:
    store.work.delegations.completed(dispatch("d"), home, 1)
    chat.deliver()
    fake_clock.advance(8 * 86_400.0)
    store.outbox.upkeep()
    assert obligations(store) == {}
    assert store.work.delegations.get("d").delivered  # type: ignore[union-attr]
    assert store.work.notices.sweep(home).forgotten == 1


def test_an_obligation_of_our_kind_about_nothing_stops_nobody(
    store: Store, ended: Callable[..., Process], chat: Admitting
) -> None:
    store.outbox.append(
        dedupe_id="strange", kind="completion", transport="telegram", payload={}, policy="at_least_once"
    )
    process = ended("p")
    assert chat.deliver() == [process.key]
    assert store.outbox.get("strange").state is State.FAILED


def test_after_a_restore_a_notice_without_its_work_takes_no_sibling_along(
    store: Store, home: Home, ended: Callable[..., Process], begin: Callable[..., Process], chat: Admitting
) -> None:
    """Notices that were recorded since the backup stay; rows of background work are those of the backup."""
    lost, kept = ended("lost"), ended("kept")

    def restored(tx: Transaction) -> None:
        tx.execute("DROP TRIGGER background_work_keeps_what_is_owed")
        tx.execute("DELETE FROM background_work WHERE key = ?", (lost.key,))

    store.core.write(restored)
    assert chat.deliver() == [kept.key]
    assert chat.seen[0].text == (
        f"{lost.key} has ended; what it came to is not in this store any more.\n\n"
        "Background process kept (make) has ended with exit code 0.\noutput of kept"
    )
    early = begin("early")
    store.outbox.append(
        dedupe_id=early.key, kind="completion", transport="telegram", target="chat 7", policy="at_least_once",
        payload={"work": early.key}, batch=batch_of(early),
    )
    assert chat.deliver() == []
    assert store.outbox.get(early.key).refunds == 1
    assert store.work.processes.exited(early, home, exit_code=0).ended
    assert obligations(store)[early.key] == "pending"


def test_an_asynchronous_conversation_is_awaited(store: Store, ended: Callable[..., Process]) -> None:
    process = ended("p")

    async def admit(notice: Notice) -> Verdict:
        await asyncio.sleep(0)
        return Accepted(result={"of": notice.works[0].key})

    shown = ended("q", DISPLAY)

    async def play() -> list[tuple[Claim, Verdict]]:
        notices = store.aio.work.notices
        assert await notices.tell(admit, ["telegram", "api_server"]) == []
        return [*await notices.deliver(admit, ["telegram"]), *await notices.show(admit)]

    assert [verdict for _claim, verdict in asyncio.run(play())] == [
        Accepted(result={"of": process.key}), Accepted(result={"of": shown.key})
    ]
    assert store.work.processes.get("p").delivered  # type: ignore[union-attr]
    assert asyncio.run(store.aio.work.notices.undelivered()) == []


def test_a_failure_of_one_spends_one_attempt_of_each_sibling(
    store: Store, ended: Callable[..., Process], chat: Admitting
) -> None:
    for number in range(3):
        ended(f"p{number}")
    chat.verdict = Failed(why="no")
    chat.deliver()
    assert {one.attempts for one in store.outbox.page()} == {1}
