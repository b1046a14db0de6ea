"""What a hit says about its message: place in the chain, what hides it, neighbours, snippet."""

from __future__ import annotations

from hermes_state.store import Store
from tests.hermes_state.conversation.search.support import chat, found, ids, prepared


def compact(store: Store, session_id: str, first: int, last: int) -> int:
    """A view edit that hides these numbers from the model's context."""
    def work(tx):
        tx.execute(
            "INSERT INTO view_edits (session_no, action, from_seq, to_seq, made_at)"
            " SELECT no, 'compact', ?, ?, 1.0 FROM sessions WHERE id = ?", (first, last, session_id)
        )
        return tx.last_insert_rowid()

    return store.core.write(work)


def test_a_rewound_message_is_not_found_until_it_is_restored(store: Store, ways: str) -> None:
    """Invariant 15, first half."""
    session, numbers = chat(store, "apple", "apple", "apple")
    prepared(store, ways)
    store.messages.rewind(session, numbers[1])
    assert found(store, "apple") == {numbers[0]}
    assert found(store, "apple", order="newest") == {numbers[0]}
    store.messages.restore(session)
    assert found(store, "apple") == set(numbers)


def test_a_compacted_message_is_found_and_says_what_hides_it(store: Store, ways: str) -> None:
    """Invariant 15, second half."""
    session, numbers = chat(store, "apple", "apple", "apple")
    edit = compact(store, session, 1, 2)
    prepared(store, ways)
    hits = {hit.message_id: (hit.hidden, hit.hidden_by) for hit in store.search("apple")}
    assert hits == {numbers[0]: ("compact", edit), numbers[1]: ("compact", edit), numbers[2]: (None, None)}


def test_a_hit_names_the_root_and_the_tip_of_its_conversation(store: Store, ways: str) -> None:
    first, (number,) = chat(store, "apple")
    second = store.sessions.continue_as(first).id
    third = store.sessions.continue_as(second).id
    prepared(store, ways)
    (hit,) = store.search("apple")
    assert (hit.message_id, hit.session_id, hit.root_id, hit.tip_id) == (number, first, first, third)
    last = store.messages.append(third, role="user", content="pear")
    (hit,) = store.search("pear")
    assert (hit.message_id, hit.session_id, hit.root_id, hit.tip_id) == (last, third, first, third)


def test_neighbours_go_by_insertion_although_the_clock_went_back(store: Store, ways: str) -> None:
    """Defect H.23: neighbours by time, hidden ones among them, and one query a hit."""
    session = store.sessions.create(source="cli").id
    texts = ["before", "needle", "after"]
    numbers = [
        store.messages.append(session, role="user", content=text, at=at)
        for text, at in zip(texts, (900.0, 500.0, 700.0), strict=True)
    ]
    prepared(store, ways)
    (hit,) = store.search("needle")
    assert (hit.before.message_id, hit.before.preview) == (numbers[0], "before")
    assert (hit.after.message_id, hit.after.preview) == (numbers[2], "after")


def test_neighbours_are_never_rewound_ones(store: Store, ways: str) -> None:
    session, numbers = chat(store, "one", "needle", "two", "three")
    store.messages.rewind(session, numbers[2])
    last = store.messages.append(session, role="user", content=[{"type": "text", "text": "four " * 100}])
    prepared(store, ways)
    (hit,) = store.search("needle")
    assert hit.after.message_id == last
    assert hit.after.preview == ("four " * 100)[:200]
    (first,) = store.search("one")
    assert first.before is None


def test_a_deleted_message_leaves_the_results_at_once(store: Store, ways: str) -> None:
    session, numbers = chat(store, "apple", "apple")
    prepared(store, ways)
    store.messages.delete(session, [numbers[0]], reason="test", actor="test")
    assert found(store, "apple") == {numbers[1]}
    store.sessions.delete(session, reason="test", actor="test")
    assert found(store, "apple") == set()


def test_many_deleted_or_archived_messages_do_not_hide_older_ones(store: Store) -> None:
    """The newest candidates are all gone: the search goes on behind them."""
    _, (old,) = chat(store, "apple")
    gone, _ = chat(store, *["apple"] * 700)
    archived, _ = chat(store, *["apple"] * 700)
    store.search.index_idle(100)
    store.sessions.delete(gone, reason="test", actor="test")
    store.sessions.archive(archived)
    assert found(store, "apple") == {old}
    assert found(store, "apple", order="newest") == {old}


def test_a_machine_that_fills_the_window_does_not_hide_a_person(store: Store) -> None:
    """Report 179 at a size that no window covers."""
    _, (person,) = chat(store, "apple")
    chat(store, *["apple"] * 1500, source="cron")
    store.search.index_idle(100)
    assert ids(store.search("apple", limit=3))[0] == person


def test_a_word_counts_alike_whatever_else_the_query_says(store: Store) -> None:
    """Alone, with a filter that the index knows, and with a word that may not be there."""
    chat(store, *["apple " * (number % 3 + 1) + "word " * (number * 40) for number in range(12)])
    store.search.index_idle(100)
    alone, filtered, without = (
        [(hit.message_id, hit.score) for hit in store.search(query)]
        for query in ("apple", "apple source:telegram", "apple -pear")
    )
    assert len(alone) == 12
    assert alone == filtered == without


def test_more_hits_than_are_ranked_for_a_page_are_found_and_in_order(store: Store) -> None:
    chat(store, *["apple " * (number % 3 + 1) for number in range(900)])
    store.search.index_idle(100)
    hits = store.search("apple", limit=400)
    assert len(hits) == 400
    assert [(hit.score, hit.message_id) for hit in hits] == sorted(
        ((hit.score, hit.message_id) for hit in hits), reverse=True
    )


def test_snippets_show_forty_words_around_the_match_on_one_line(store: Store, ways: str) -> None:
    text = " ".join(f"w{number}" for number in range(100)) + "\nthe needle\there " + " ".join(["end"] * 100)
    chat(store, text)
    prepared(store, ways)
    (hit,) = store.search("needle", markers=("[", "]"))
    words = hit.snippet.split(" ")
    assert words[:3] == ["\u2026w91", "w92", "w93"]
    assert 35 <= len(words) <= 45
    assert hit.snippet.endswith("\u2026")


def test_every_match_in_a_snippet_is_marked_in_the_original_letters(store: Store, ways: str) -> None:
    chat(store, "Cafe\u0301 und CAFÉ, ﬁne: café!", "我在北京的北京大学")
    prepared(store, ways)
    assert store.search("cafe")[0].snippet == ">>>Cafe\u0301<<< und >>>CAFÉ<<<, ﬁne: >>>café<<<!"
    assert store.search("北京")[0].snippet == "我在>>>北京<<<的>>>北京<<<大学"


def test_a_short_text_is_shown_whole(store: Store, ways: str) -> None:
    chat(store, "  one needle  ")
    prepared(store, ways)
    assert store.search("needle")[0].snippet == "one >>>needle<<<"
