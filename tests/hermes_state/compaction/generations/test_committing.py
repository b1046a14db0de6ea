"""The commit: everything or a superseded row, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hermes_state import open_store
from hermes_state.clock import FakeClock
from hermes_state.compaction.generations import (
    Generation,
    Watch,
    commit,
    fail,
    generations_of,
    rollback,
    rotate,
    verify,
)
from hermes_state.errors import InvalidInput
from hermes_state.owners import Presence
from hermes_state.store import Store
from tests.support.compacting import begun, compact, contents, made, talk, view_of


@pytest.fixture
def store(tmp_path: Path, fake_clock: FakeClock) -> Iterator[Store]:
    with open_store(path=tmp_path / "state.db") as opened:
        talk(opened, 8)
        compact(opened, "s", 3, summary="old")
        yield opened


def ended(store: Store, number: int = 2) -> Generation:
    with store.core.reader() as reader:
        return next(one for one in generations_of(reader, 1) if one.generation == number)


def test_a_commit_moves_the_head_and_is_in_the_feed(store: Store) -> None:
    position = store.changes.position()
    done = compact(store, "s", 6, summary="S")
    assert (done.state, done.summary, done.form, done.tokens_after) == ("done", "S", "model", 300)
    assert [(change.table_name, change.key, change.operation) for change in store.changes.since(position).changes] == [
        ("compactions", "s", "update")
    ]
    assert view_of(store, "s").head_moves == 2


def test_messages_that_are_appended_meanwhile_are_in_the_tail_in_order(store: Store) -> None:
    running = begun(store, "s", 7)
    for text in ("URGENT", "and more"):
        store.messages.append("s", role="user", content=text)
    assert commit(store.core, running, made("S")).state == "done"
    assert contents(store) == ["S\n\nm7", "m8", "URGENT", "and more"]


REWOUND = "Generation 2 came too late: messages were taken back or brought back."
MISSES: dict[str, tuple[Callable[[Store], object], str, str]] = {
    "rewind": (
        lambda store: store.messages.rewind("s", store.messages.history("s").messages[6].id), "view_edited", REWOUND
    ),
    "rollback": (
        lambda store: rollback(store.core, "s", 0), "head_moved",
        "Generation 2 came too late: it is seen through another generation now.",
    ),
    "model": (
        lambda store: store.sessions.set_model("s", "small"), "model_changed",
        "Generation 2 came too late: its model is small now and was None.",
    ),
    "rotation": (
        lambda store: rotate(store.core, "s", "next"), "session_replaced",
        "Generation 2 came too late: another session goes on for it.",
    ),
}


@pytest.mark.parametrize("name", MISSES)
def test_a_commit_that_comes_too_late_changes_nothing_and_keeps_its_summary(store: Store, name: str) -> None:
    happens, code, message = MISSES[name]
    running = begun(store, "s", 6)
    happens(store)
    before = contents(store)
    late = commit(store.core, running, made("S"))
    assert (late.state, late.summary) == ("superseded", "S")
    assert dict(late.error or {}) == {"code": code, "message": message}
    assert contents(store) == before
    assert commit(store.core, running, made("S")) == late


def test_a_clear_meanwhile_is_a_rewind_and_its_restore_another_edit(store: Store) -> None:
    running = begun(store, "s", 6)
    store.messages.rewind("s", store.messages.history("s").messages[0].id)
    store.messages.restore("s")
    assert commit(store.core, running, made("S")).state == "superseded"


def test_a_lease_that_ran_out_is_too_late_though_nobody_took_over(store: Store, fake_clock: FakeClock) -> None:
    running = begun(store, "s", 6)
    fake_clock.advance(61)
    late = commit(store.core, running, made("S"))
    assert (late.state, late.summary) == ("superseded", "S")
    assert dict(late.error or {})["code"] == "lease_lost"


def test_of_two_makers_of_one_parent_one_is_done_and_the_other_superseded(store: Store, fake_clock: FakeClock) -> None:
    slow = begun(store, "s", 6, watch=Watch(store.core, presence=Presence(store.path.parent, clock=store.core.clock)))
    fake_clock.advance(61)
    quick = begun(store, "s", 7)
    assert ended(store).state == "failed"
    assert commit(store.core, quick, made("quick")).state == "done"
    assert commit(store.core, slow, made("slow")).state == "superseded"
    assert (ended(store).summary, ended(store, 3).summary) == ("slow", "quick")
    assert contents(store) == ["quick\n\nm7", "m8"]


def test_a_message_that_goes_while_its_summary_is_made_ends_the_pass_without_its_text(store: Store) -> None:
    running = begun(store, "s", 6)
    store.messages.delete("s", [store.messages.history("s").messages[3].id], actor="test", reason="a secret")
    late = commit(store.core, running, made("with the secret"))
    assert (late.state, late.summary) == ("superseded", None)
    assert dict(late.error or {}) == {
        "code": "message_deleted", "message": "A message that generation 2 covers was deleted.",
    }
    assert contents(store) == ["old\n\nm3", "m5", "m6", "m7", "m8"]


def test_a_message_of_the_tail_that_goes_meanwhile_is_no_obstacle(store: Store) -> None:
    running = begun(store, "s", 6)
    store.messages.delete("s", [store.messages.history("s").messages[6].id], actor="test", reason="a secret")
    assert commit(store.core, running, made("S")).state == "done"
    assert contents(store) == ["S", "m6", "m8"]


@pytest.mark.parametrize("summary", [None, ""])
def test_nothing_leaves_a_view_without_something_that_stands_for_it(store: Store, summary: str | None) -> None:
    running = begun(store, "s", 6)
    with pytest.raises(InvalidInput) as caught:
        commit(store.core, running, made(summary))
    assert caught.value.message in (
        "3 messages would leave the view with nothing that stands for them.",
        "A generation that summarises has a summary.",
    )
    assert commit(store.core, running, made("S")).state == "done"


def test_a_summary_that_ends_in_half_a_character_is_stored(store: Store) -> None:
    assert compact(store, "s", 6, summary="cut off \ud83d").summary == "cut off \ufffd"
    running = begun(store, "s", 7)
    assert dict((fail(store.core, running, RuntimeError("\ud83d")) or ended(store)).error or {})["message"] == "\ufffd"


def test_a_commit_writes_a_row_a_head_and_a_change_however_much_is_archived(store: Store) -> None:
    def written(session_id: str, messages: int) -> int:
        talk(store, messages, session_id)
        running = begun(store, session_id, messages - 2)
        before = store.core.writer.rows("SELECT total_changes()")[0][0]
        assert commit(store.core, running, made("S")).state == "done"
        return int(store.core.writer.rows("SELECT total_changes()")[0][0]) - before

    assert written("small", 10) == written("large", 1000) == 3


def test_the_digest_shows_a_message_that_is_not_what_it_was(store: Store) -> None:
    compact(store, "s", 6, summary="S")
    compact(store, "s", 7, summary="S2")
    with store.core.reader() as reader:
        assert verify(reader, 1, 3).ok
        assert verify(reader, 1, 3).rows == 6
    store.core.write(lambda tx: tx.execute("DROP TRIGGER messages_are_immutable"))
    store.core.write(lambda tx: tx.execute("UPDATE messages SET row_check = row_check + 1 WHERE seq = 4"))
    with store.core.reader() as reader:
        checked = verify(reader, 1, 3)
        assert (checked.ok, checked.because) == (
            False, "the messages that generation 2 took up are not what they were"
        )
        assert verify(reader, 1, 1).ok
    store.core.write(lambda tx: tx.execute("DELETE FROM messages WHERE seq = 1"))
    with store.core.reader() as reader:
        assert verify(reader, 1, 1).because == "generation 1 took up 2 messages, and 1 are there"
