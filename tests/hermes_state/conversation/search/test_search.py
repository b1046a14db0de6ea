"""What a search finds, whichever way it goes, and how it is ordered."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from hermes_state import open_store
from hermes_state.clock import FakeClock
from hermes_state.conversation.bodies import compress_rows
from hermes_state.errors import InvalidInput, SessionNotFound
from hermes_state.store import Store
from tests.hermes_state.conversation.search.support import chat, found, ids, prepared

EVERYDAY = {
    "it's": "I think it's broken again",
    "src/app/main.py": "see src/app/main.py for that",
    "~/notes.md": "it is in ~/notes.md now",
    "me@example.org": "write to me@example.org please",
    "50%": "about 50% of them",
    "wrong-book": "that was the wrong-book error",
    "a:b": "the pair a:b here",
    "(x)": "call f(x) twice",
    "C++": "written in C++ mostly",
    "snake_case_name": "a snake_case_name there",
    "v1.2.3": "release v1.2.3 is out",
    "don't-stop": "we don't-stop now",
    "*bold*": "some *bold* text",
}


@pytest.mark.parametrize("word", EVERYDAY)
def test_an_everyday_string_finds_its_text_and_no_other(store: Store, ways: str, word: str) -> None:
    """Reports 176 and 177: thirteen strings that FTS5's own syntax takes for something else."""
    _, numbers = chat(store, *EVERYDAY.values())
    prepared(store, ways)
    assert found(store, word) == {numbers[list(EVERYDAY).index(word)]}
    assert found(store, f"nothing-here OR {word}") == {numbers[list(EVERYDAY).index(word)]}


@pytest.mark.parametrize("query", [
    "", " ", '"', '""', '"open', "'", "-", "--", "OR", "OR OR", "AND", "NOT", "NEAR(a b)", "*", "a*", "^a", "(", ")",
    "a:", ":", "source:", "after:never", "before:", "\0", "a\0b", "\ud800", "{a b}:c", "%", "_", "\\", ";--",
    "x" * 5000, "word " * 3000, '"' * 3000, "-" * 3000, "语" * 3000, "\u202e", "🎉",
])
def test_no_query_raises_for_what_it_says(store: Store, ways: str, query: str) -> None:
    chat(store, "a b c", "语言")
    prepared(store, ways)
    result = store.search(query)
    assert (result.complete, result.degraded) == (True, "")


@pytest.mark.parametrize(("query", "texts"), [
    ("记忆断裂", {0}), ("昨晚", {1}), ("记", {0, 3}), ("裂", {0}), ("忆断", {0}), ("断忆", set()),
    ("GPT模型", {2}), ("gpt", {2}), ("模型", {2}), ("模", {2}), ("gpt模", {2}), ("日本語", {4}), ("本語の", {4}),
    ("テスト", {4}), ("한국", {5}), ("국어", {5}), ("-记 断", set()), ("记 OR 昨晚", {0, 1, 3}),
    ("人々", {6}), ("々", {6}),
])
def test_chinese_japanese_and_korean_are_found_from_one_character_on(
    store: Store, ways: str, query: str, texts: set[int]
) -> None:
    """Reports 172 and 174: a run of CJK is one token to SQLite, and three characters are the least for trigrams."""
    _, numbers = chat(
        store, "我们讨论了记忆断裂的问题", "昨晚很冷。", "新的GPT模型很好", "笔记", "日本語のテストです",
        "한국어 문장", "人々が",
    )
    prepared(store, ways)
    assert found(store, query) == {numbers[at] for at in texts}


def test_words_are_joined_by_and_phrases_hold_together_and_or_unites(store: Store, ways: str) -> None:
    _, (first, second, third) = chat(store, "red apple pie", "apple red wine", "green pear")
    prepared(store, ways)
    assert found(store, "red apple") == {first, second}
    assert found(store, '"red apple"') == {first}
    assert found(store, "wine OR pear") == {second, third}
    assert found(store, "apple wine OR pie") == {first, second}
    assert found(store, "apple -wine") == {first}
    assert found(store, 'apple -"red apple"') == {second}
    assert found(store, "-apple") == {third}
    assert found(store, "appl") == set()


def test_case_and_accents_do_not_matter(store: Store, ways: str) -> None:
    _, (number,) = chat(store, "Das Café in ÅRHUS, naïve")
    prepared(store, ways)
    for query in ("cafe", "CAFÉ", "århus", "arhus", "naive", "cafe\u0301"):
        assert found(store, query) == {number}, query


def test_decoration_is_no_part_of_a_word(store: Store, ways: str) -> None:
    """SQLite's tables of letters are older than many emoji, and count private-use characters as letters."""
    _, (first, second) = chat(store, "done🤖 ✅ok\ue0b0next", "don\u2019t")
    prepared(store, ways)
    for query in ("done", "ok", "next", "🤖", "done🤖", '"ok next"'):
        assert found(store, query) == {first}, query
    assert found(store, "don't") == {second}


def test_filters_of_the_query_and_of_the_call_hold_together(store: Store, ways: str) -> None:
    one, (first,) = chat(store, "plan", source="telegram")
    _, (second,) = chat(store, "plan", source="cli")
    third = store.messages.append(one, role="tool", content="plan", tool_call_id="c", tool_name="read")
    prepared(store, ways)
    assert found(store, "plan source:cli") == {second}
    assert found(store, "plan", source="cli") == {second}
    assert found(store, "plan source:cli", source="telegram") == set()
    assert found(store, "plan source:cli source:telegram") == {first, second, third}
    assert found(store, "plan role:tool") == {third}
    assert found(store, "plan -role:tool") == {first, second}
    assert found(store, "plan -source:cli") == {first, third}
    assert found(store, "plan", exclude_sources=["telegram"]) == {second}
    assert found(store, "plan", session_id=one) == {first, third}
    assert found(store, "plan", role=["user"], session_id=one) == {first}
    assert found(store, "source:cli") == {second}


def test_times_include_the_beginning_and_not_the_end(store: Store, ways: str) -> None:
    """Report 181."""
    session = store.sessions.create(source="cli").id
    days = [datetime(2026, 3, day, tzinfo=UTC).timestamp() for day in (1, 2, 3)]
    one, two, three = (store.messages.append(session, role="user", content="word", at=day) for day in days)
    prepared(store, ways)
    assert found(store, "word", since=days[1]) == {two, three}
    assert found(store, "word", until=days[1]) == {one}
    assert found(store, "word", since=days[0], until=days[2]) == {one, two}
    assert found(store, "word", since=datetime(2026, 3, 2, tzinfo=UTC)) == {two, three}
    assert found(store, "word after:2026-03-02 before:2026-03-03") == {two}
    assert found(store, "word after:2026-02 before:2026-04") == {one, two, three}
    assert found(store, "word before:2026") == set()


def test_times_go_by_the_message_not_by_its_place(store: Store, ways: str) -> None:
    """An import brings old messages with new ids."""
    session = store.sessions.create(source="cli").id
    new = store.messages.append(session, role="user", content="word", at=1_700_000_000.0)
    old = store.messages.append(session, role="user", content="word", at=1_000_000_000.0)
    prepared(store, ways)
    assert found(store, "word before:2010") == {old}
    assert found(store, "word after:2010") == {new}


def test_one_person_comes_before_any_number_of_cron_runs(store: Store, ways: str) -> None:
    """Reports 178 and 179."""
    _, (person,) = chat(store, "the nightly report is broken, look at the backup")
    for _ in range(12):
        chat(store, *["nightly report backup " * 5] * 10, source="cron")
    prepared(store, ways)
    result = store.search("nightly report backup", limit=5)
    assert ids(result)[0] == person
    assert [hit.source for hit in result] == ["telegram", *["cron"] * 4]


def test_better_matches_come_first_and_equal_ones_newest_first(store: Store, ways: str) -> None:
    long = "apple " + "and much other text that is not about it " * 5
    _, numbers = chat(store, "apple", long, "apple apple apple", "apple")
    prepared(store, ways)
    assert ids(store.search("apple")) == [numbers[2], numbers[3], numbers[0], numbers[1]]


def test_newest_goes_by_insertion_alone(store: Store, ways: str) -> None:
    _, people = chat(store, "apple apple", "apple")
    _, cron = chat(store, "apple", source="cron")
    prepared(store, ways)
    assert ids(store.search("apple", order="newest")) == [*cron, *reversed(people)]
    assert ids(store.search("apple", order="newest", limit=2)) == [*cron, people[1]]


def test_what_came_after_the_index_is_found_with_what_is_in_it(store: Store) -> None:
    session, (first,) = chat(store, "apple")
    store.search.index_idle()
    second = store.messages.append(session, role="user", content="apple apple")
    result = store.search("apple")
    assert ids(result) == [second, first]
    assert (result.complete, result.degraded, result.indexed_to, result.scanned) == (True, "", first, 1)
    assert ids(store.search("apple", order="newest")) == [second, first]


def test_sub_agents_are_searched_only_when_asked_for(store: Store, ways: str) -> None:
    """Report 182."""
    parent, (person,) = chat(store, "apple")
    child, (inner,) = chat(store, "apple", source="telegram", parent_id=parent, relation="delegate")
    _, (agent,) = chat(store, "apple", source="subagent")
    prepared(store, ways)
    assert found(store, "apple") == {person}
    assert found(store, "apple", include_children=True) == {person, inner, agent}
    assert found(store, "apple", source="subagent") == {agent}
    assert found(store, "apple", session_id=child) == {inner}
    assert ids(store.search("apple", include_children=True))[0] == person


def test_archived_sessions_are_searched_only_when_asked_for(store: Store, ways: str) -> None:
    session, (number,) = chat(store, "apple")
    prepared(store, ways)
    store.sessions.archive(session)
    assert found(store, "apple") == set()
    assert found(store, "apple", include_archived=True) == {number}
    assert found(store, "apple", session_id=session) == {number}


def test_titles_are_filters_and_hits_of_their_own(store: Store, ways: str) -> None:
    first, (number,) = chat(store, "apple", title="My Budget 100%")
    chat(store, "apple", title="Holiday")
    prepared(store, ways)
    assert found(store, "apple title:budget") == {number}
    assert found(store, 'apple title:"my budget"') == {number}
    assert found(store, "apple title:%") == {number}
    assert found(store, "apple title:missing") == set()
    (hit,) = store.search("title:BUDGET")
    assert (hit.message_id, hit.session_id, hit.snippet, hit.title) == (
        None, first, "My >>>Budget<<< 100%", "My Budget 100%"
    )


def test_an_exact_text_is_found_inside_words_and_with_its_punctuation(store: Store, ways: str) -> None:
    _, (first, second) = chat(store, "concatenate C++ 50%", "cat ++")
    prepared(store, ways)
    assert found(store, "cat", exact=True) == {first, second}
    assert found(store, "c++", exact=True) == {first}
    assert found(store, "-50% OR", exact=True) == set()
    assert found(store, "++") == {first, second}


def test_tool_names_and_calls_are_searched_and_reasoning_is_not(store: Store, ways: str) -> None:
    session = store.sessions.create(source="cli").id
    calls = [{"id": "c1", "type": "function", "function": {
        "name": "web_fetch", "arguments": '{"url": "https://example.org/\\u8bb0\\u5fc6"}',
    }}]
    call = store.messages.append(session, role="assistant", tool_calls=calls, reasoning="ponderous")
    answer = store.messages.append(session, role="tool", content="pear", tool_call_id="c1", tool_name="web_fetch")
    prepared(store, ways)
    assert found(store, "web_fetch") == {call, answer}
    assert found(store, "记忆") == {call}
    assert found(store, "ponderous") == set()


def test_structured_content_is_searched_by_its_text_parts(store: Store, ways: str) -> None:
    session = store.sessions.create(source="cli").id
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "QUJD" * 500}}
    number = store.messages.append(
        session, role="user", content=[{"type": "text", "text": "look at this Überraschung"}, picture]
    )
    prepared(store, ways)
    assert found(store, "uberraschung") == {number}
    assert found(store, "QUJD", exact=True) == set()
    assert found(store, "image_url") == set()
    assert store.search("surprise OR look")[0].snippet == ">>>look<<< at this Überraschung"


def test_large_and_compressed_bodies_are_searched_whole(store: Store, ways: str) -> None:
    session = store.sessions.create(source="cli").id
    text = "filler words here\n" * 4000 + "needle at the end"
    number = store.messages.append(session, role="tool", content=text, tool_call_id="c", tool_name="read")
    prepared(store, ways)
    assert found(store, "needle") == {number}
    store.core.write(lambda tx: compress_rows(tx, [number]))
    assert found(store, "needle") == {number}
    assert store.search("needle")[0].snippet.endswith("here >>>needle<<< at the end read")


def test_a_hit_says_which_store_it_is_from(tmp_path: Path, fake_clock: FakeClock) -> None:
    """Report 126: rows of another profile than the one that was asked."""
    for name in ("a", "b"):
        with open_store(path=tmp_path / name / "state.db", clock=fake_clock) as store:
            chat(store, f"apple {name}")
            (hit,) = store.search("apple")
            assert (hit.store_path, hit.store_id) == (tmp_path / name / "state.db", store.store_id)
            assert hit.snippet == f">>>apple<<< {name}"


@pytest.mark.parametrize(("options", "message"), [
    ({"limit": 0}, "limit is a number from 1 to 1000, not 0."),
    ({"limit": True}, "limit is a number from 1 to 1000, not True."),
    ({"order": "best"}, "order is 'rank' or 'newest', not 'best'."),
    ({"since": 2.0, "until": 1.0}, "since (2.0) is after until (1.0)."),
    ({"since": "yesterday"}, "since is a time in epoch seconds or a datetime with a time zone, not 'yesterday'."),
    ({"until": datetime(2026, 1, 1)}, "until is a time in epoch seconds or a datetime with a time zone, not "
        "datetime.datetime(2026, 1, 1, 0, 0)."),
    ({"until": float("nan")}, "until is a time in epoch seconds or a datetime with a time zone, not nan."),
    ({"source": 7}, "source is a text or a list of texts, not 7."),
    ({"markers": "<>"}, "markers are two texts, not '<>'."),
])
def test_an_argument_that_cannot_be_used_is_named(store: Store, options: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        store.search("word", **options)
    assert caught.value.message == message


def test_a_query_must_be_a_text_and_a_session_must_exist(store: Store) -> None:
    with pytest.raises(InvalidInput) as caught:
        store.search(b"bytes")
    assert caught.value.message == "A query is a text, not bytes."
    with pytest.raises(SessionNotFound):
        store.search("word", session_id="nobody")
