"""What a query says, and that the index and the check on canonical text agree about it."""

from __future__ import annotations

import apsw
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hermes_state.conversation.search.query import MOST_TERMS, moment_in, parse, substring
from hermes_state.conversation.search.ranking import expression
from hermes_state.conversation.search.text import fold, fold_positions, segment

NOW = 1_790_000_000.0


def words(query: str) -> list[list[tuple[str, ...]]]:
    return [[term.parts for term in clause] for clause in parse(query, now=NOW).clauses]


@pytest.mark.parametrize(("query", "clauses"), [
    ("red apple", [[("red",)], [("apple",)]]),
    ('"red apple" pie', [[("red", "apple")], [("pie",)]]),
    ("a OR b c", [[("a",), ("b",)], [("c",)]]),
    ("a OR b OR c", [[("a",), ("b",), ("c",)]]),
    ("OR a", [[("or",)], [("a",)]]),
    ("a OR", [[("a",)], [("or",)]]),
    ("a or b", [[("a",)], [("or",)], [("b",)]]),
    ('say "open', [[("say",)], [("open",)]]),
    ("wrong-book", [[("wrong", "book")]]),
    ("a - b", [[("a",)], [("b",)]]),
    ("--force", [[("force",)]]),
    ("source:", [[("source",)]]),
    ("Source:cli", [[("source", "cli")]]),
    ("after:soon", [[("after", "soon")]]),
    ("-title:x y", [[("y",)]]),
    ("***", [[("***",)]]),
    ("*** a", [[("a",)]]),
    ("GPT模型", [[("gpt", "模型")]]),
])
def test_what_is_not_a_form_is_taken_literally(query: str, clauses: list[list[tuple[str, ...]]]) -> None:
    assert words(query) == clauses


def test_filters_are_read_with_and_without_quotes_and_negated() -> None:
    query = parse('source:cli source:"my app" -source:cron role:user -role:tool title:"a b" title:c', now=NOW)
    assert (query.sources, query.without_sources) == (("cli", "my app"), ("cron",))
    assert (query.roles, query.without_roles, query.titles) == (("user",), ("tool",), ("a b", "c"))
    assert query.clauses == ()
    assert not query.empty
    assert parse("", now=NOW).empty


@pytest.mark.parametrize(("value", "moment"), [
    ("2026", 1767225600.0), ("2026-02", 1769904000.0), ("2026-02-03", 1770076800.0),
    ("2026-02-03T04:05:06", 1770091506.0), ("2026-02-03T04:05:06+01:00", 1770087906.0), ("20260203", 1770076800.0),
    ("7d", NOW - 604_800), ("90m", NOW - 5400), ("2w", NOW - 1_209_600), ("12h", NOW - 43_200),
    ("0000", None), ("2026-13", None), ("2026-02-30", None), ("yesterday", None), ("7y", None), ("", None),
    ("9999-12-31T23:59:59", 253402300799.0), ("-1d", None),
])
def test_moments_are_utc_and_anything_else_is_none(value: str, moment: float | None) -> None:
    assert moment_in(value, NOW) == moment


def test_the_narrower_of_two_times_counts() -> None:
    query = parse("after:2025 after:2026 before:2028 before:2027", now=NOW)
    assert (query.after, query.before) == (moment_in("2026", NOW), moment_in("2027", NOW))


def test_a_very_long_query_is_cut() -> None:
    query = parse(" ".join(f"w{number}" for number in range(5000)), now=NOW)
    assert len(query.clauses) == MOST_TERMS
    assert parse("a" * 10_000, now=NOW).terms[0].parts == ("a" * 2048,)


@pytest.mark.parametrize(("text", "spread"), [
    ("plain text", "plain text"), ("记忆断裂", " 记忆 忆断 断裂 裂 "), ("好", " 好 "), ("GPT模型v2", "GPT 模型 型 v2"),
])
def test_cjk_is_written_as_pairs_and_the_last_character(text: str, spread: str) -> None:
    assert segment(text) == spread


LETTERS = "abAé\u0301ñİßﬁ9_-. '\"\n模型记忆のテ한글々・ー\uff0cΩд🎉٣²ﾃ\u00a0\ue0b0ςΣÅ🤖½"
TEXTS = st.text(alphabet=LETTERS, max_size=14)


def matching(texts: list[str], match: str) -> set[int]:
    """What FTS5 finds, in a table like that of the index."""
    database = apsw.Connection(":memory:")
    database.execute(
        "CREATE VIRTUAL TABLE terms USING fts5(text, content='', contentless_delete=1,"
        " tokenize='unicode61 remove_diacritics 2')"
    ).fetchall()
    for number, text in enumerate(texts):
        database.execute("INSERT INTO terms (rowid, text) VALUES (?, ?)", (number, segment(text))).fetchall()
    return {row[0] for row in database.execute("SELECT rowid FROM terms WHERE terms MATCH ?", (match,)).fetchall()}


@settings(max_examples=400)
@given(texts=st.lists(TEXTS, min_size=1, max_size=6), query=TEXTS)
@example(texts=["a模b", "大模b"], query="模b")
@example(texts=["模型", "型模"], query="型")
@example(texts=["a_b", "ab", "a b"], query="a_b")
def test_whatever_the_index_finds_the_check_finds_and_the_other_way_round(texts: list[str], query: str) -> None:
    """Reading the rest and asking the index must not differ, and the check may drop nothing that the index found."""
    parsed = parse(query, now=NOW)
    if not parsed.indexable:
        return
    by_check = {number for number, text in enumerate(texts) if parsed.matches(fold(text))}
    assert matching(texts, expression(parsed, [])) == by_check


@settings(max_examples=300)
@given(text=st.text(max_size=40))
def test_any_text_can_be_asked_for_and_is_found_by_itself(text: str) -> None:
    quoted = '"' + text.replace('"', " ") + '"'
    for query in (parse(text, now=NOW), parse(quoted, now=NOW), substring(text)):
        if query.indexable:
            matching(["x"], expression(query, []))
    phrase = parse(quoted, now=NOW)
    if phrase.indexable:
        assert phrase.matches(fold(text))
    if text:
        assert substring(text).matches(fold(text))


@given(text=st.text(max_size=60))
def test_each_folded_letter_has_a_place_in_the_text(text: str) -> None:
    places = fold_positions(text)
    assert len(places) == len(fold(text)) + 1
    assert places == sorted(places)
