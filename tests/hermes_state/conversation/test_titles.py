"""Titles: kept clean, unique, with the conversation, and never taken from a person."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_state.conversation.titles import LONGEST, sanitize
from hermes_state.errors import InvalidInput, Refused, TitleTaken
from hermes_state.store import Store
from hermes_state.testing import temporary_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with temporary_store(tmp_path) as opened:
        for id_ in ("a", "b"):
            opened.sessions.create(id=id_, source="cli")
        yield opened


@pytest.mark.parametrize(
    ("given_title", "kept"),
    [
        ("  a \t b\n\nc ", "a b c"), ("a\x00b\x07c\x7f", "abc"), ("\u200ba\u202eb\ufeff", "ab"), ("\u2066\ufffc", None),
        ("", None), ("   ", None), (None, None), ("計画 #2", "計画 #2"), ("x" * 100, "x" * 100), ("\ud800", "\ufffd"),
    ],
)
def test_a_title_is_kept_without_what_nobody_sees(given_title: str | None, kept: str | None) -> None:
    assert sanitize(given_title) == kept


@given(st.text(max_size=LONGEST))
def test_a_sanitized_title_stays_as_it_is(title: str) -> None:
    once = sanitize(title)
    assert sanitize(once) == once


def test_a_title_of_more_than_a_hundred_characters_is_refused_not_cut() -> None:
    with pytest.raises(InvalidInput) as refused:
        sanitize("x" * 101)
    assert str(refused.value) == "The title has 101 characters; at most 100 are kept."
    with pytest.raises(InvalidInput, match="A title is a text, not int"):
        sanitize(7)  # type: ignore[arg-type]


def test_a_taken_title_is_an_error_that_names_who_has_it(store: Store) -> None:
    store.titles.set("a", "Plan")
    with pytest.raises(TitleTaken) as taken:
        store.sessions.rename("b", " Plan ")
    assert str(taken.value) == f"The title 'Plan' belongs to session a in {store.path}."
    assert (taken.value.facts["title"], taken.value.facts["session_id"]) == ("Plan", "a")
    with pytest.raises(TitleTaken):
        store.sessions.create(id="c", source="cli", title="Plan")
    assert store.sessions.count() == 2
    store.sessions.rename("a", None)
    assert store.sessions.rename("b", "Plan").title == "Plan"
    assert store.titles.get("a") is None


def test_a_title_stays_with_the_conversation(store: Store) -> None:
    store.titles.set("a", "Plan")
    store.sessions.continue_as("a", new_id="a2")
    assert (store.titles.get("a"), store.titles.get("a2")) == ("Plan", "Plan")
    assert store.titles.by_title("Plan").id == "a2"  # type: ignore[union-attr]
    # A program that knows only the old id names the conversation, which is named at its tip.
    assert store.sessions.rename("a", "New plan").id == "a2"
    assert store.titles.by_title("Plan") is None


def test_a_title_left_on_an_earlier_session_moves_to_the_one_that_asks(store: Store) -> None:
    store.sessions.continue_as("a", new_id="a2")
    store.core.write(lambda tx: tx.execute("UPDATE sessions SET title = 'Plan' WHERE id = 'a'"))
    assert store.titles.set("a2", "Plan").id == "a2"
    assert store.sessions.get("a").title is None
    with pytest.raises(TitleTaken):
        store.titles.set("b", "Plan")


def test_an_automatic_title_never_overwrites_a_better_one(store: Store) -> None:
    assert store.titles.set_auto_if_empty("a", "first words", source="derived") is True
    assert store.titles.set_auto_if_empty("a", "other words", source="derived") is False
    assert store.titles.set_auto_if_empty("a", "A summary", source="llm") is True
    assert store.titles.set_auto_if_empty("a", "derived again", source="derived") is False
    assert store.titles.set_auto_if_empty("a", "Better", source="llm", expected="A summary") is True
    assert store.titles.set_auto_if_empty("a", "Late", source="llm", expected="A summary") is False
    store.sessions.rename("a", "Mine")
    assert store.titles.set_auto_if_empty("a", "A summary", source="llm", expected="Better") is False
    assert (store.titles.get("a"), store.sessions.get("a").title_source) == ("Mine", "user")
    assert store.titles.set_auto_if_empty("b", "\u200b") is False


def test_a_title_of_unknown_source_counts_as_a_persons(store: Store) -> None:
    store.core.write(lambda tx: tx.execute("UPDATE sessions SET title = 'Old' WHERE id = 'a'"))
    assert store.titles.set_auto_if_empty("a", "New", source="llm") is False
    with pytest.raises(InvalidInput, match="A title comes from derived, llm or user, not from 'me'"):
        store.titles.set("a", "x", source="me")  # type: ignore[arg-type]


def test_an_automatic_title_that_is_taken_is_said_and_has_a_next_one(store: Store) -> None:
    store.titles.set("a", "Hello")
    with pytest.raises(TitleTaken):
        store.titles.set_auto_if_empty("b", "Hello")
    assert store.titles.set_auto_if_empty("b", store.titles.next_in_lineage("Hello")) is True
    assert store.titles.get("b") == "Hello #2"


def test_the_next_title_of_a_lineage_is_one_more_than_the_highest(store: Store) -> None:
    assert store.titles.next_in_lineage("plan") == "plan"
    assert store.titles.next_in_lineage("plan #7") == "plan"
    store.titles.set("a", "plan")
    assert store.titles.next_in_lineage("plan") == "plan #2"
    taken = ("plan #2", "plan #10", "plan #010", "plan #9b", "planet #70", "plan # 80", "PLAN #90")
    for number, title in enumerate(taken):
        store.sessions.create(id=f"s{number}", source="cli", title=title)
    assert store.titles.next_in_lineage("plan") == "plan #11"
    assert store.titles.next_in_lineage("plan #3") == "plan #11"
    with pytest.raises(InvalidInput, match="An empty title has no next one"):
        store.titles.next_in_lineage(" ")


def test_a_next_title_fits_into_a_hundred_characters(store: Store) -> None:
    long = "x" * 100
    store.titles.set("a", long)
    assert store.titles.next_in_lineage(long) == "x" * 97 + " #2"
    store.titles.set("b", "x" * 97 + " #2")
    assert store.titles.next_in_lineage(long) == "x" * 97 + " #3"


def test_a_title_without_number_means_the_newest_of_its_lineage(store: Store) -> None:
    store.titles.set("a", "plan")
    assert store.titles.resolve("plan").id == "a"  # type: ignore[union-attr]
    store.titles.set("b", "plan #2")
    assert store.titles.resolve("plan").id == "b"  # type: ignore[union-attr]
    store.sessions.continue_as("b", new_id="b2")
    assert store.titles.resolve("plan").id == "b2"  # type: ignore[union-attr]
    store.sessions.create(id="c", source="cli", title="plan #10")
    assert store.titles.resolve("plan").id == "c"  # type: ignore[union-attr]
    assert store.titles.resolve("plan #2").id == "b2"  # type: ignore[union-attr]
    assert store.titles.by_title("plan").id == "a"  # type: ignore[union-attr]
    assert (store.titles.resolve("nothing"), store.titles.resolve(""), store.titles.by_title("x")) == (None, None, None)


def test_wildcards_in_a_title_are_just_characters(store: Store) -> None:
    store.titles.set("a", "50% [x]*")
    store.titles.set("b", "50% [x]* #2")
    store.sessions.create(id="c", source="cli", title="50Z x #99")
    assert store.titles.next_in_lineage("50% [x]*") == "50% [x]* #3"


def test_the_hidden_chat_keeps_its_title_until_it_is_archived(store: Store) -> None:
    store.titles.set("a", "Bot Chat")
    store.core.write(lambda tx: tx.execute("UPDATE sessions SET hidden = 1 WHERE id = 'a'"))
    with pytest.raises(Refused) as fixed:
        store.sessions.rename("a", "Mine")
    assert str(fixed.value) == (
        f"Session 'a' of {store.path} is a hidden one with a fixed title; it was not renamed."
    )
    assert store.titles.set_auto_if_empty("a", "Auto", source="user", expected="Bot Chat") is False
    store.sessions.archive("a")
    assert store.sessions.rename("b", "Bot Chat").title == "Bot Chat"
