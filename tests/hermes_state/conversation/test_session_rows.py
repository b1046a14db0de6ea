"""Ids and the finding of sessions: made, checked, abbreviated, and remembered too long."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_state.clock import FakeClock
from hermes_state.conversation.session_rows import new_session_id, replaced
from hermes_state.errors import Corrupt, InvalidInput, SessionDeleted, SessionNotFound
from hermes_state.store import Store
from hermes_state.testing import temporary_store


@pytest.fixture
def store(tmp_path: Path, fake_clock: FakeClock) -> Iterator[Store]:
    with temporary_store(tmp_path, clock=fake_clock) as opened:
        yield opened


def test_made_ids_sort_by_time_and_are_never_equal_while_the_clock_stands_still(store: Store) -> None:
    ids = [store.sessions.create(source="cli").id for _ in range(20)]
    assert ids == sorted(ids) and len(set(ids)) == 20
    assert ids[0].startswith("20270115_080000_")
    assert new_session_id(0.0).startswith("19700101_000000_00000")


@pytest.mark.parametrize("bad", ["", "a\nb", "x" * 201, "\ud800", 7])
def test_an_id_that_cannot_be_shown_or_typed_is_refused(store: Store, bad: object) -> None:
    with pytest.raises(InvalidInput):
        store.sessions.create(id=bad, source="cli")  # type: ignore[arg-type]
    assert store.sessions.count(include_children=True) == 0


@pytest.mark.parametrize("at", [float("inf"), float("nan"), -1.0, True, "now"])
def test_a_start_that_is_no_time_is_refused(store: Store, at: object) -> None:
    with pytest.raises(InvalidInput):
        store.sessions.create(source="cli", started_at=at)  # type: ignore[arg-type]


def test_the_beginning_of_an_id_finds_it_only_when_no_other_begins_so(store: Store) -> None:
    for id_ in ("abc1", "abc2", "ab", "a%_", "z"):
        store.sessions.create(id=id_, source="cli")
    assert store.sessions.get("abc1", resolve=True).id == "abc1"
    assert store.sessions.get("ab", resolve=True).id == "ab"
    assert store.sessions.get("a%", resolve=True).id == "a%_"
    with pytest.raises(InvalidInput) as several:
        store.sessions.get("abc", resolve=True)
    assert str(several.value) == f"'abc' begins the ids of several sessions in {store.path}: abc1, abc2."
    for nothing in ("abc3", "", "%", "_"):
        with pytest.raises(SessionNotFound):
            store.sessions.get(nothing, resolve=True)


def test_a_number_remembered_from_before_a_deletion_is_not_taken_for_a_continued_session(store: Store) -> None:
    store.sessions.create(id="a", source="cli")
    no = store.sessions.get("a").no
    message = store.messages.append("a", role="user", content="1")
    store.sessions.branch("a", at_message_id=message, new_id="b")
    store.sessions.delete("a", actor="test", reason="test")
    with store.core.reader() as reader:
        assert reader.rows("SELECT state, hidden FROM sessions WHERE no = ?", (no,)) == [("replaced", 1)]
        assert isinstance(replaced(reader, "a", no), SessionDeleted)


@pytest.mark.parametrize("text", ["{", "[]", "7"])
def test_extra_fields_that_are_no_object_are_an_error_that_names_the_session(store: Store, text: str) -> None:
    store.sessions.create(id="a", source="cli")
    store.core.write(lambda tx: tx.execute("UPDATE sessions SET extra = ?", (text,)))
    with pytest.raises(Corrupt) as damaged:
        store.sessions.get("a")
    assert str(damaged.value) == f"The extra fields of session a in {store.path} are not a JSON object."


# --- what a caller may give --------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", [
    lambda store, id_: store.sessions.get(id_), lambda store, id_: store.sessions.get(id_, resolve=True),
    lambda store, id_: store.sessions.reopen(id_), lambda store, id_: store.sessions.continue_as(id_),
    lambda store, id_: store.sessions.delete([id_], actor="a", reason="r"), lambda store, id_: store.titles.get(id_),
    lambda store, id_: store.messages.append(id_, role="user"), lambda store, id_: store.messages.context(id_),
    lambda store, id_: store.messages.stream(id_), lambda store, id_: store.messages.rewind(id_, 1),
    lambda store, id_: store.messages.find_platform_id(id_, 1), lambda store, id_: store.usage.of_session(id_),
])
def test_what_cannot_be_an_id_is_refused_by_name_everywhere(tmp_path: Path, call: Any) -> None:
    with temporary_store(tmp_path) as store:
        for id_, message in (
            ("\ud800", "'\\ud800' is no text and cannot be a session id."),
            (7, "A session id is a text, not int."), (None, "A session id is a text, not NoneType."),
        ):
            with pytest.raises(InvalidInput) as caught:
                call(store, id_)
            assert str(caught.value) == message


def test_a_platform_id_is_looked_for_as_it_would_be_stored(tmp_path: Path) -> None:
    with temporary_store(tmp_path) as store:
        store.sessions.create(id="s", source="cli")
        first = store.messages.append("s", role="user", platform_message_id="\ud800")
        assert store.messages.find_platform_id("s", "\ud800") == first
        with pytest.raises(InvalidInput) as caught:
            store.messages.find_platform_id("s", 1.5)  # type: ignore[arg-type]
        assert str(caught.value) == "platform_message_id is a text or a whole number, not float."


@pytest.mark.parametrize(("name", "call"), [
    ("message_id", lambda store, no: store.messages.get(no)),
    ("before", lambda store, no: store.messages.history("s", before=no)),
    ("after", lambda store, no: store.messages.history("s", after=no)),
    ("message_id", lambda store, no: store.messages.around("s", no)),
    ("message_id", lambda store, no: store.messages.rewind("s", no)),
    ("edit_id", lambda store, no: store.messages.restore("s", no)),
    ("at_message_id", lambda store, no: store.sessions.branch("s", at_message_id=no)),
])
def test_a_number_that_no_row_can_have_is_refused_by_name(tmp_path: Path, name: str, call: Any) -> None:
    with temporary_store(tmp_path) as store:
        store.sessions.create(id="s", source="cli")
        for wrong, shown in ((2**63, "one of more than 64 bits"), ("abc", "'abc'"), (1.5, "1.5"), (True, "True")):
            with pytest.raises(InvalidInput) as caught:
                call(store, wrong)
            assert str(caught.value) == f"{name} is a whole number, not {shown}."


def test_a_clock_that_is_far_off_is_refused_before_anything_is_stored(tmp_path: Path) -> None:
    clock = FakeClock(tmp_path / "clock", now=1_800_000_000.0)
    with temporary_store(tmp_path, clock=clock) as store:
        store.sessions.create(id="s", source="cli")
        first = store.messages.append("s", role="user")
        clock.advance(1e12)
        for call in (
            lambda: store.sessions.create(source="cli"), lambda: store.sessions.ensure("t", "cli"),
            lambda: store.sessions.end("s", "done"), lambda: store.sessions.branch("s"),
            lambda: store.sessions.continue_as("s"), lambda: store.sessions.pin("s"),
            lambda: store.sessions.delete("s", actor="a", reason="r"), lambda: store.titles.set("s", "T"),
            lambda: store.usage.record("s", model="m"), lambda: store.messages.rewind("s", first),
            lambda: store.messages.delete("s", [first], actor="a", reason="r"),
        ):
            with pytest.raises(InvalidInput) as caught:
                call()
            assert str(caught.value) == "the clock's time is a time in epoch seconds, not 1001800000000.0."
        assert (store.sessions.count(), store.messages.count("s")) == (1, 1)
