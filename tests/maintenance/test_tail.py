"""`sessions tail`: the newest of a store, native or hermes-agent's, and what any process commits after."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hermes_state import changes
from hermes_state.clock import FakeClock
from hermes_state.engine import open_read, open_write
from hermes_state.store import Store
from hermes_state.testing import temporary_store
from maintenance.dialects.detect import dialect_of
from maintenance.reading.tail import BATCH, Event, Tail
from maintenance.reading.tail_output import event_document, event_line
from tests.support.foreign import Foreign
from tests.support.stores import StoreCopy

PROGRAM = """
import sys
from maintenance.commands.tail import command
command(sys.argv[1:])
"""


@pytest.fixture
def store(tmp_path: Path, fake_clock: FakeClock) -> Any:
    with temporary_store(tmp_path, clock=fake_clock) as opened:
        yield opened


def said(events: Any) -> list[tuple[str | None, str | None]]:
    """Session and words of the messages among them."""
    return [(event.session_id, event.preview) for event in events if event.kind == "message"]


def changed(events: Any) -> list[tuple[str | None, str | None, str | None]]:
    return [(event.table, event.key, event.operation) for event in events if event.kind == "change"]


def speak(store: Store, session: str, *texts: str) -> None:
    for text in texts:
        store.messages.append(session, role="user", content=text)


def test_newest_messages_come_oldest_first(store: Store) -> None:
    session = store.sessions.create(source="cli").id
    speak(store, session, *map(str, range(8)))
    with open_read(store.path) as reader:
        tail = Tail(reader, dialect_of(reader))
        assert said(tail.recent(3)) == [(session, "5"), (session, "6"), (session, "7")]
        assert tail.recent(0) == []
        assert len(said(Tail(reader, dialect_of(reader)).recent(1000))) == 8


def test_news_of_a_native_store_are_its_changes_and_messages(store: Store) -> None:
    session = store.sessions.create(source="cli").id
    with open_read(store.path) as reader:
        tail = Tail(reader, dialect_of(reader))
        tail.recent(10)
        assert (tail.moved(), list(tail.news())) == (False, [])
        speak(store, session, "one")
        store.core.write(lambda tx: changes.record(tx, "sessions", session, "update", 7.0))
        assert tail.moved()
        events = list(tail.news())
        assert (changed(events), said(events)) == ([("sessions", session, "update")], [(session, "one")])
        assert (tail.moved(), list(tail.news())) == (False, [])


def test_more_than_a_batch_comes_whole_and_once(store: Store) -> None:
    session = store.sessions.create(source="cli").id
    with open_read(store.path) as reader:
        tail = Tail(reader, dialect_of(reader))
        tail.recent(0)
        rows = [{"role": "user", "content": str(number)} for number in range(2 * BATCH + 1)]
        store.messages.append_many(session, rows)
        assert [words for _, words in said(tail.news())] == [row["content"] for row in rows]
        assert not tail.moved()


def test_gap_is_said_and_what_follows_is_shown(store: Store, fake_clock: FakeClock) -> None:
    session = store.sessions.create(source="cli").id
    with open_read(store.path) as reader:
        tail = Tail(reader, dialect_of(reader))
        tail.recent(0)
        store.core.write(lambda tx: tx.execute("UPDATE store SET incarnation = 'restored'"))
        events = list(tail.news())
        assert [event.kind for event in events] == ["gap"]
        assert event_line(events[0], fake_clock).startswith("-- some changes are no longer in the feed")
        speak(store, session, "after")
        assert said(tail.news()) == [(session, "after")]


@pytest.mark.slow
@pytest.mark.parametrize("version", ["0.13.0", "0.16.0", "0.19.0"])
def test_store_of_hermes_agent_is_followed_by_its_message_ids(store_copy: StoreCopy, version: str) -> None:
    path = store_copy(version)
    with open_write(path, foreign=True) as writer, open_read(path) as reader:
        tail = Tail(reader, dialect_of(reader))
        newest = tail.recent(5)
        assert [event.id for event in newest] == [
            number for (number,) in reversed(reader.rows("SELECT id FROM messages ORDER BY id DESC LIMIT 5"))
        ]
        session = newest[-1].session_id
        with writer.transaction() as tx:
            tx.execute(
                "INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, 'user', 'fresh', 5.0)",
                (session,),
            )
        assert tail.moved()
        assert said(tail.news()) == [(session, "fresh")]
        assert (tail.moved(), list(tail.news())) == (False, [])


def test_holes_between_ids_hide_nothing_of_the_newest(tmp_path: Path) -> None:
    made = Foreign(tmp_path / "state.db")
    made.session("one")
    for number in (1, 1000, 500_000):
        made.message("one", f"message {number}", id=number)
    made.close()
    with open_read(tmp_path / "state.db") as reader:
        assert [event.id for event in Tail(reader, dialect_of(reader)).recent(3)] == [1, 1000, 500_000]


def test_lines_cannot_harm_a_terminal_and_are_cut(fake_clock: FakeClock) -> None:
    event = Event(
        kind="message", id=1, at=None, session_id="a\x1b[31m", role="tool", tool_name="sh\nell", preview="x" * 500
    )
    line = event_line(event, fake_clock)
    assert "\x1b" not in line and "\n" not in line
    assert len(line) < 200


def test_every_kind_has_the_same_fields() -> None:
    kinds = [Event(kind=kind, id=1, at=5.0, session_id=None) for kind in ("message", "change", "gap")]
    assert {tuple(event_document(event)) for event in kinds} == {
        ("kind", "id", "at", "session_id", "role", "tool_name", "preview", "table", "key", "operation")
    }


def until(found: Callable[[], bool]) -> None:
    """What another process prints has no gate of its own."""
    deadline = time.monotonic() + 60
    while not found():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.005)


@pytest.mark.slow
def test_program_prints_one_document_and_ends(store: Store, child) -> None:
    session = store.sessions.create(source="cli").id
    speak(store, session, "hello")
    printed = json.loads(child(PROGRAM, "--db", store.path, "--json").finish())
    assert printed["path"] == str(store.path)
    message = printed["events"][-1]
    assert (message["kind"], message["session_id"], message["preview"]) == ("message", session, "hello")
    text = child(PROGRAM, "--db", store.path).finish()
    assert text.splitlines()[-1].endswith(f"{session}  user: hello")


@pytest.mark.slow
def test_program_follows_what_another_process_commits(store: Store, child) -> None:
    session = store.sessions.create(source="cli").id
    speak(store, session, "before")
    # The machine's clock: a fake one stands still, and this program is not told to move it.
    following = child(PROGRAM, "--db", store.path, "-f", "--limit", "1", "--json", env={"HERMES_STATE_CLOCK": ""})
    plain = child(PROGRAM, "--db", store.path, "-f", env={"HERMES_STATE_CLOCK": ""})
    until(lambda: "before" in plain.stdout and "before" in following.stdout)
    speak(store, session, "first", "second")
    until(lambda: "second" in plain.stdout)
    speak(store, session, "third")
    until(lambda: "third" in plain.stdout and "third" in following.stdout)
    lines = [json.loads(line) for line in following.stdout.splitlines()]
    assert [line["preview"] for line in lines if line["kind"] == "message"] == ["before", "first", "second", "third"]
    assert following.process.poll() is None


@pytest.mark.slow
def test_program_that_is_interrupted_leaves_nothing_behind(store: Store, child) -> None:
    speak(store, store.sessions.create(source="cli").id, "before")
    plain = child(PROGRAM, "--db", store.path, "-f", env={"HERMES_STATE_CLOCK": ""})
    until(lambda: "before" in plain.stdout)
    plain.process.send_signal(2)
    assert plain.wait() == 1  # click's own; the program's entry makes 130 of it
    assert "Traceback" not in plain.stderr
