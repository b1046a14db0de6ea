"""Matches of a process's output: how often they are told, and what turns them off."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from hermes_state.clock import FakeClock
from hermes_state.errors import InvalidInput
from hermes_state.routing import Home
from hermes_state.store import Store
from hermes_state.work.background import NOBODY, Process
from hermes_state.work.states import Mode
from hermes_state.work.watching import ALL_MOST, MOST_STRIKES, Match, Watch, after, decide
from tests.hermes_state.work.background.conftest import DISPLAY, RECEIPT, Admitting, obligations

AT = 1_800_000_000.0


def watch(**fields: object) -> Watch:
    return Watch(**{  # type: ignore[arg-type]
        "last_at": None, "strikes": 0, "struck": False, "told": 0, "disabled": False, **fields
    })


def test_every_case_of_a_match_has_its_outcome() -> None:
    last = {"never": None, "15 s ago": AT - 15, "just now": AT - 14.9, "later than now": AT + 5}
    for (when, last_at), strikes, struck, ended, disabled, lately, tripped in itertools.product(
        last.items(), (0, MOST_STRIKES - 1), (False, True), (False, True), (False, True), (0, ALL_MOST),
        (None, AT - 30, AT - 29.9),
    ):
        found = decide(
            watch(last_at=last_at, strikes=strikes, struck=struck, disabled=disabled), at=AT, ended=ended,
            told_lately=lately, tripped_at=tripped,
        )
        if ended or disabled:
            wanted = Match.IGNORE
        elif when == "just now":
            wanted = Match.DROP if struck else Match.DISABLE if strikes else Match.STRIKE
        elif tripped == AT - 29.9:
            wanted = Match.DROP
        else:
            wanted = Match.TRIP if lately else Match.TELL
        assert found is wanted, (when, strikes, struck, ended, disabled, lately, tripped)


def test_a_window_without_a_strike_ends_the_row_of_strikes() -> None:
    assert after(watch(last_at=AT, strikes=2), Match.TELL, at=AT + 15).strikes == 0
    assert after(watch(last_at=AT, strikes=2, struck=True), Match.TELL, at=AT + 15).strikes == 2
    assert after(watch(), Match.DROP, at=AT) == watch()


def test_a_match_is_told_at_most_once_in_15_s_and_what_was_held_back_is_counted(
    store: Store, home: Home, begin: Callable[..., Process], fake_clock: FakeClock, chat: Admitting
) -> None:
    process = begin("p", patterns=["ERR"])

    def match() -> Match:
        return store.work.processes.matched(process, home, "ERR", ["ERR 1", "ERR 2"]).match

    assert [match(), match(), match()] == [Match.TELL, Match.STRIKE, Match.DROP]
    fake_clock.advance(15.0)
    assert match() is Match.TELL
    assert list(obligations(store)) == [f"{process.key}#match-2", f"{process.key}#match-1"]
    chat.deliver()
    assert [notice.text for notice in chat.seen] == [
        "Background process p (make) is registered.\nERR 1\nERR 2",
        "Background process p (make) is registered.\nERR 1\nERR 2\n(4 earlier lines were not told.)",
    ]
    assert [notice.claim.primary.payload["event"] for notice in chat.seen] == ["match", "match"]


def test_three_struck_windows_turn_the_patterns_off_and_the_end_begins_a_turn(
    store: Store, home: Home, begin: Callable[..., Process], fake_clock: FakeClock, chat: Admitting
) -> None:
    process = begin("p", RECEIPT, patterns=["ERR"])
    seen = []
    for _window in range(MOST_STRIKES):
        seen += [store.work.processes.matched(process, home, "ERR", ["ERR"]) for _ in range(2)]
        fake_clock.advance(15.0)
    assert [one.match for one in seen] == [
        Match.TELL, Match.STRIKE, Match.TELL, Match.STRIKE, Match.TELL, Match.DISABLE,
    ]
    assert seen[-1].process.tell.mode is Mode.TURN
    assert store.work.processes.matched(process, home, "ERR", ["ERR"]).match is Match.IGNORE
    assert begin("p", RECEIPT, patterns=["ERR"], epoch=process.epoch).watch.disabled
    assert f"{process.key}#disabled-3" in obligations(store)
    store.work.processes.exited(process, home, exit_code=0)
    assert process.key in chat.deliver()


def test_the_16th_match_of_all_in_10_s_is_held_back_and_for_30_s_every_other(
    store: Store, home: Home, begin: Callable[..., Process], fake_clock: FakeClock
) -> None:
    every = [begin(f"p{number}", patterns=["ERR"]) for number in range(ALL_MOST + 2)]

    def match(process: Process) -> Match:
        return store.work.processes.matched(process, home, "ERR", ["ERR"]).match

    assert [match(one) for one in every] == [Match.TELL] * ALL_MOST + [Match.TRIP, Match.DROP]
    fake_clock.advance(29.0)
    assert match(every[-1]) is Match.DROP
    fake_clock.advance(1.0)
    assert match(every[-1]) is Match.TELL
    assert not any(one.watch.strikes for one in store.work.processes.page(limit=100))


@pytest.mark.parametrize(
    ("tell", "kinds"), [(RECEIPT, {"receipt"}), (DISPLAY, {"display"}), (NOBODY, set())], ids=str
)
def test_a_match_begins_a_turn_only_where_the_end_does(
    store: Store, home: Home, begin: Callable[..., Process], chat: Admitting, tell: object, kinds: set[str]
) -> None:
    store.work.processes.matched(begin("p", tell, patterns=["ERR"]), home, "ERR", ["ERR"])
    assert {one.kind for one in store.outbox.page()} == kinds
    assert chat.deliver("telegram", "api_server") == []


def test_what_is_held_back_makes_no_write(store: Store, home: Home, begin: Callable[..., Process]) -> None:
    process = begin("p", patterns=["ERR"])
    for _ in range(2):
        store.work.processes.matched(process, home, "ERR", ["ERR"])
    before = store.work.processes.get("p")
    with store.core.reader() as reader:
        entries = reader.row("SELECT max(id) FROM changes")
    assert store.work.processes.matched(process, home, "ERR", ["ERR"]).match is Match.DROP
    with store.core.reader() as reader:
        assert reader.row("SELECT max(id) FROM changes") == entries
    assert store.work.processes.get("p") == before


def test_a_match_after_the_end_is_noise(store: Store, home: Home, begin: Callable[..., Process]) -> None:
    process = begin("p", NOBODY, patterns=["ERR"])
    store.work.processes.exited(process, home, exit_code=0)
    assert store.work.processes.matched(process, home, "ERR", ["ERR"]).match is Match.IGNORE


def test_interim_notices_never_stand_for_the_end(
    store: Store, home: Home, begin: Callable[..., Process]
) -> None:
    tell = type(RECEIPT)(mode=Mode.RECEIPT, transport="telegram", verbosity="all")  # type: ignore[arg-type]
    process = begin("p", tell)
    assert store.work.processes.update(process, home, "half", 1)
    assert store.work.processes.update(process, home, "half", 1)
    store.work.processes.exited(process, home, exit_code=0)
    assert obligations(store) == {process.key: "pending", f"{process.key}#progress-1": "suppressed"}
    assert not store.work.processes.update(process, home, "late", 2)
    with pytest.raises(InvalidInput):
        store.work.processes.update(process, home, "x", -1)
