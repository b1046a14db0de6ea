"""The running row: who may begin, who has to wait, and what becomes of a maker that is gone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_state import open_store
from hermes_state.clock import ClockDomain, FakeClock
from hermes_state.compaction.generations import (
    Watch,
    begin,
    commit,
    fail,
    generations_of,
    renew,
    running_of,
    settle_stale,
)
from hermes_state.compaction.generations.states import NEXT, Event
from hermes_state.errors import CompactionLost, CompactionRunning, InvalidInput, SessionGuarded, ViewMoved
from hermes_state.owners import Presence
from hermes_state.store import Store
from tests.support.compacting import begun, compact, contents, draft, made, talk, view_of


@pytest.fixture
def store(tmp_path: Path, fake_clock: FakeClock) -> Iterator[Store]:
    with open_store(path=tmp_path / "state.db") as opened:
        talk(opened, 6)
        yield opened


def error_of(store: Store, number: int) -> dict[str, object]:
    with store.core.reader() as reader:
        return dict(next(one.error or {} for one in generations_of(reader, 1) if one.generation == number))


def test_a_running_row_changes_nothing_that_is_seen(store: Store) -> None:
    before = store.messages.context("s")
    running = begun(store, "s", 4)
    assert (running.generation.state, running.source) == ("running", (1, 2, 3))
    assert store.messages.context("s") == before


def test_the_second_to_begin_is_told_who_is_at_work(store: Store) -> None:
    running = begun(store, "s", 4)
    with pytest.raises(CompactionRunning) as caught:
        begun(store, "s", 5)
    owner = running.generation.owner
    assert owner is not None
    assert caught.value.message == (
        f"Session 's' of {store.path} is being compacted by process {owner.pid} on {owner.host}"
        " since 2027-01-15T08:00:00Z."
    )
    assert caught.value.hint == "Go on without; the pass of that process is seen as soon as it is done."
    assert (caught.value.facts["pid"], caught.value.exit_code) == (owner.pid, 75)


def test_a_maker_whose_lease_ran_out_is_given_up_by_the_next(store: Store, fake_clock: FakeClock) -> None:
    begun(store, "s", 4)
    fake_clock.advance(61)
    second = begun(store, "s", 5)
    assert second.generation.generation == 2
    error = error_of(store, 1)
    assert (error["code"], error["message"]) == ("maker_gone", "Generation 1 was not finished: its lease ran out.")


def test_a_renewal_gives_another_term(store: Store, fake_clock: FakeClock) -> None:
    running = begun(store, "s", 4)
    fake_clock.advance(50)
    running = renew(store.core, running)
    fake_clock.advance(50)
    with pytest.raises(CompactionRunning):
        begun(store, "s", 5)
    assert running.generation.renewals == 1
    assert commit(store.core, running, made("S")).state == "done"


def test_a_maker_that_is_dead_is_given_up_at_once(store: Store) -> None:
    other = Presence(store.path.parent, clock=store.core.clock)
    begun(store, "s", 4, watch=Watch(store.core, presence=other))
    with pytest.raises(CompactionRunning):
        begun(store, "s", 5)
    other.end()
    assert begun(store, "s", 5).generation.generation == 2
    assert error_of(store, 1)["message"] == (
        "Generation 1 was not finished: its maker is dead: nobody holds its lock file."
    )


def test_a_maker_of_another_clock_is_given_up_after_its_term_of_silence(
    store: Store, fake_clock: FakeClock
) -> None:
    running = begun(store, "s", 4)
    elsewhere = ClockDomain(boot_id="another", time_namespace="another")
    owner = json.loads(running.generation.owner_text or "") | {"boot_id": "another", "nonce": "0" * 32}
    store.core.write(lambda tx: tx.execute(
        "UPDATE compactions SET boot_id = ?, time_namespace = ?, owner = ?",
        (elsewhere.boot_id, elsewhere.time_namespace, json.dumps(owner)),
    ))
    watch = Watch(store.core)
    assert settle_stale(store.core, watch) == ()
    fake_clock.advance(65)
    assert settle_stale(store.core, watch) == ()  # 60 s and a tenth
    fake_clock.advance(2)
    (settled,) = settle_stale(store.core, watch)
    assert (settled.state, dict(settled.error or {})["message"]) == (
        "failed", "Generation 1 was not finished: it was not renewed for its term and a margin."
    )


def test_settling_a_store_ends_every_pass_whose_maker_is_gone_and_no_other(store: Store, fake_clock: FakeClock) -> None:
    talk(store, 4, "t")
    begun(store, "s", 4)
    fake_clock.advance(61)
    begun(store, "t", 3)
    watch = Watch(store.core)
    assert [(one.session_no, one.state) for one in settle_stale(store.core, watch)] == [(1, "failed")]
    assert settle_stale(store.core, watch) == ()
    with store.core.reader() as reader:
        assert running_of(reader, 1) is None
        assert running_of(reader, 2) is not None


def test_a_pass_that_fails_says_why_and_lets_the_next_begin(store: Store) -> None:
    running = begun(store, "s", 4)
    ended = fail(store.core, running, TimeoutError("the summariser took 300 s"))
    assert ended is not None
    assert (ended.state, dict(ended.error or {})) == (
        "failed",
        {"code": "summarizer_failed", "message": "the summariser took 300 s", "type": "TimeoutError"},
    )
    assert fail(store.core, running, TimeoutError("again")) == ended
    with pytest.raises(CompactionLost) as caught:
        renew(store.core, running)
    assert caught.value.message == f"Generation 1 of a session of {store.path} has ended: it is failed."
    assert compact(store, "s", 4, summary="S").generation == 2


def test_a_pass_cannot_begin_on_a_view_that_is_no_longer_there(store: Store) -> None:
    view = view_of(store, "s")
    compact(store, "s", 3, summary="S")
    with pytest.raises(ViewMoved) as caught:
        begin(store.core, view, draft(5), watch=Watch(store.core))
    assert caught.value.message == (
        f"Session 's' of {store.path} is no longer seen as it was planned on:"
        " it is seen through another generation now."
    )
    assert caught.value.facts["because"] == "head_moved"


@pytest.mark.parametrize(("cut_at", "anchors", "message"), [
    (8, (), "A tail cannot begin at position 8: the view has 3 to 7."),
    (2, (), "A tail cannot begin at position 2: the view has 3 to 7."),
    (5, (2,), "Position 2 cannot be an anchor: it is no message of the view before 5."),
    (5, (5,), "Position 5 cannot be an anchor: it is no message of the view before 5."),
])
def test_a_draft_that_does_not_fit_the_view_is_refused(
    store: Store, cut_at: int, anchors: tuple[int, ...], message: str
) -> None:
    compact(store, "s", 3, summary="S")
    with pytest.raises(InvalidInput) as caught:
        begun(store, "s", cut_at, anchors)
    assert caught.value.message == message


def test_a_session_that_is_being_compacted_is_not_deleted(store: Store, fake_clock: FakeClock) -> None:
    begun(store, "s", 4)
    with pytest.raises(SessionGuarded) as caught:
        store.sessions.delete("s", actor="test", reason="a test")
    assert "is in use (a compaction that " in caught.value.message
    fake_clock.advance(61)
    store.sessions.delete("s", actor="test", reason="a test")
    assert contents_of_table(store) == []


def contents_of_table(store: Store) -> list[tuple[int, ...]]:
    with store.core.reader() as reader:
        return reader.rows("SELECT id FROM compactions")


def test_every_state_and_event_has_its_outcome_and_the_schema_agrees(store: Store) -> None:
    states = ("running", "done", "failed", "superseded")
    # Only a deletion reaches what is done: nobody commits, fails or settles it again.
    assert {pair for pair in ((state, event) for state in states for event in Event)} - set(NEXT) == {
        ("done", event) for event in Event if event is not Event.MESSAGE_DELETED
    }
    assert contents(store)
