"""The list of conversations: exact order, one entry each, agreeing with its count, at a cost that stays the same."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes_state.clock import FakeClock
from hermes_state.errors import InvalidInput
from hermes_state.store import Store
from hermes_state.testing import temporary_store

NOW = 1_800_000_000.0


@pytest.fixture
def store(tmp_path: Path, fake_clock: FakeClock) -> Iterator[Store]:
    with temporary_store(tmp_path, clock=fake_clock) as opened:
        yield opened


def ids(store: Store, **filters: Any) -> list[str]:
    found = [one.id for one in store.sessions.list(**filters)]
    if "limit" not in filters and "offset" not in filters:
        assert store.sessions.count(**filters) == len(found)
    return found


def say(store: Store, id_: str, content: object, at: float, role: str = "user") -> int:
    return store.messages.append(id_, role=role, content=content, at=at)


def test_the_order_is_by_the_newest_message_to_the_second(store: Store) -> None:
    for id_, start in (("a", NOW), ("b", NOW + 1), ("c", NOW + 2)):
        store.sessions.create(id=id_, source="cli", started_at=start)
    assert ids(store) == ["c", "b", "a"]
    say(store, "a", "x", NOW + 30)  # within the minute, so the session's row is not written
    with store.core.reader() as reader:
        assert reader.rows("SELECT active_at FROM sessions WHERE id = 'a'") == [(NOW,)]
    assert ids(store) == ["a", "c", "b"]
    say(store, "b", "x", NOW + 31)
    say(store, "a", "late", NOW + 5)  # the newest message, though its clock went back
    assert ids(store) == ["b", "a", "c"]
    assert [one.active_at for one in store.sessions.list()] == [NOW + 31, NOW + 5, NOW + 2]


def test_a_session_that_was_written_to_since_its_stamp_is_not_missed_by_a_short_page(store: Store) -> None:
    for number in range(70):  # more than one chunk of candidates
        store.sessions.create(id=f"s{number:02}", source="cli", started_at=NOW + number / 2)
    assert ids(store, limit=1) == ["s69"]
    say(store, "s00", "x", NOW + 59)
    assert ids(store, limit=1) == ["s00"]
    assert ids(store, limit=2) == ["s00", "s69"]


def test_many_sessions_of_one_minute_are_in_the_order_of_their_newest_messages(store: Store) -> None:
    """More than are read one after the other, some active at the very same moment, and among them what is no entry."""
    store.core.write(lambda tx: tx.executemany(
        "INSERT INTO sessions (id, source, started_at, active_at, relation, parent_no) VALUES (?, ?, ?, ?, ?, ?)",
        [(f"s{n:03}", "cron" if n % 3 else "cli", NOW, NOW + n % 50, "continuation" if n % 7 == 6 else None,
          n if n % 7 == 6 else None) for n in range(700)],
    ))
    for number in range(0, 700, 2):
        say(store, f"s{number:03}", "x", NOW + 50 + number * 37 % 40 / 4)
    whole = store.sessions.list(limit=1000)
    assert [one.active_at for one in whole] == sorted((one.active_at for one in whole), reverse=True)
    assert len({one.id for one in whole}) == len(whole) == store.sessions.count() == 600
    for filters in ({}, {"source": "cli"}, {"source": "cron"}, {"before": NOW + 55.5}):
        expected = ids(store, limit=1000, **filters)
        assert expected == [one.id for one in whole if (
            one.source == filters.get("source", one.source) and one.active_at < filters.get("before", NOW + 999)
        )]
        pages = [ids(store, limit=90, offset=offset, **filters) for offset in range(0, 700, 90)]
        assert [id_ for page in pages for id_ in page] == expected


def test_pages_follow_each_other_without_gap_or_repeat(store: Store) -> None:
    for number in range(25):
        store.sessions.create(id=f"s{number:02}", source="cli", started_at=NOW + number * 7)
    whole = ids(store, limit=100)
    assert [ids(store, limit=10, offset=offset) for offset in (0, 10, 20, 30)] == [
        whole[:10], whole[10:20], whole[20:], [],
    ]
    assert ids(store, limit=0) == []
    for bad in (-1, True, 1.5, None):
        with pytest.raises(InvalidInput):
            store.sessions.list(limit=bad)  # type: ignore[arg-type]


def test_a_compressed_conversation_is_one_entry_with_the_tips_id_and_the_roots_start(store: Store) -> None:
    store.sessions.create(id="a", source="cli", title="Plan", started_at=NOW)
    for text in ("first question", "second"):
        say(store, "a", text, NOW + 10)
    store.sessions.continue_as("a", new_id="b")
    say(store, "b", "summary", NOW + 100, role="system")
    store.sessions.continue_as("b", new_id="c")
    (entry,) = store.sessions.list()
    assert (entry.id, entry.root_id, entry.sessions, entry.title) == ("c", "a", 3, "Plan")
    assert (entry.started_at, entry.message_count, entry.preview) == (NOW, 3, "first question")
    assert (entry.state, entry.relation, entry.parent_id) == ("open", None, None)
    assert store.sessions.count() == 1


def test_delegates_and_others_are_listed_only_when_asked_for_and_so_is_what_continues_them(store: Store) -> None:
    store.sessions.create(id="a", source="cli", started_at=NOW)
    for number, relation in enumerate(("delegate", "other", "reset")):
        store.sessions.create(
            id=relation, source="cli", parent_id="a", relation=relation, started_at=NOW + number + 1  # type: ignore[arg-type]
        )
    store.sessions.branch("a", new_id="branch")
    store.sessions.continue_as("delegate", new_id="delegate2")
    store.sessions.continue_as("reset", new_id="reset2")
    assert set(ids(store)) == {"a", "branch", "reset2"}
    assert set(ids(store, include_children=True)) == {"a", "branch", "reset2", "delegate2", "other"}
    entries = {one.id: one for one in store.sessions.list(include_children=True)}
    assert (entries["delegate2"].relation, entries["delegate2"].parent_id) == ("delegate", "a")
    assert (entries["branch"].relation, entries["branch"].parent_id) == ("branch", "a")


def test_filters_select_and_count_the_same(store: Store) -> None:
    for id_, source, cwd, title in (
        ("a", "cli", "/w/app", "50% done"), ("b", "telegram", "/w/app/x", "Ärger_x"), ("c", "cron", "/w/apple", None),
        ("d", "cli", None, "DONE"),
    ):
        store.sessions.create(id=id_, source=source, cwd=cwd, title=title, started_at=NOW)
    store.sessions.create(id="e", source="cli", git_repo_root="/w/app", display_name="Ann", started_at=NOW)
    store.sessions.archive("d")
    assert set(ids(store, source="cli")) == {"a", "e"}
    assert set(ids(store, source="cli", archived=None)) == {"a", "d", "e"}
    assert set(ids(store, archived=True)) == {"d"}
    assert set(ids(store, exclude_sources=["cron", "cli"])) == {"b"}
    assert set(ids(store, cwd="/w/app")) == {"a", "b", "e"}
    assert set(ids(store, cwd="/w/app/")) == {"a", "b", "e"}
    assert set(ids(store, cwd="/")) == {"a", "b", "c", "e"}
    assert set(ids(store, title="done", archived=None)) == {"a", "d"}
    assert (set(ids(store, title="%")), set(ids(store, title="_"))) == ({"a"}, {"b"})
    assert (set(ids(store, search="ann")), set(ids(store, search="APPLE"))) == ({"e"}, {"c"})
    assert ids(store, title="nothing") == []
    assert store.sessions.count_by_source() == {"cli": 2, "telegram": 1, "cron": 1}
    with pytest.raises(InvalidInput, match="exclude_sources is a list"):
        store.sessions.list(exclude_sources="cron")


def test_bounds_are_of_the_exact_activity(store: Store) -> None:
    for number in range(5):
        store.sessions.create(id=f"s{number}", source="cli", started_at=NOW + number * 10)
    say(store, "s0", "x", NOW + 45)
    assert ids(store, before=NOW + 45) == ["s4", "s3", "s2", "s1"]
    assert ids(store, after=NOW + 30) == ["s0", "s4"]
    assert ids(store, after=NOW + 10, before=NOW + 40) == ["s3", "s2"]


def test_hidden_sessions_are_never_listed(store: Store) -> None:
    store.sessions.create(id="a", source="cli")
    store.core.write(lambda tx: tx.execute("UPDATE sessions SET hidden = 1"))
    assert ids(store, archived=None, include_children=True) == []


@pytest.mark.parametrize(
    ("content", "preview"),
    [
        ("  two\n\nlines\tand \x00 more ", "two lines and more"), ("記憶" * 50, "記憶" * 30), ("", ""), (None, ""),
        ([{"type": "image", "url": "u"}, {"type": "text", "text": "look \"here\"\n"}], "look \"here\""),
        ({"text": "a"}, "a"), (b"\xff\x00", ""), (12.5, "12.5"), ("\x00json:[]", "json:[]"), ("x" * 20_000, "x" * 60),
        ([{"type": "text", "text": "y" * 20_000}], "y" * 60),
    ],
)
def test_the_preview_is_the_first_user_message_whatever_it_holds(store: Store, content: object, preview: str) -> None:
    store.sessions.create(id="a", source="cli")
    say(store, "a", "You are helpful", NOW, role="system")
    say(store, "a", content, NOW)
    say(store, "a", "second", NOW)
    assert store.sessions.list()[0].preview == preview


def test_a_rewound_first_message_is_no_preview_until_it_is_restored(store: Store) -> None:
    store.sessions.create(id="a", source="cli")
    first = say(store, "a", "first", NOW)
    store.messages.rewind("a", first)
    assert store.sessions.list()[0].preview == ""
    say(store, "a", "second", NOW)
    assert store.sessions.list()[0].preview == "second"
    store.messages.restore("a")
    assert store.sessions.list()[0].preview == "first"


def test_a_branch_counts_and_previews_what_it_shares(store: Store) -> None:
    store.sessions.create(id="a", source="cli", started_at=NOW)
    for text in ("one", "two", "three"):
        say(store, "a", text, NOW)
    store.sessions.branch("a", at_message_id=2, new_id="b")
    store.sessions.branch("b", new_id="c")
    say(store, "c", "mine", NOW + 1)
    entries = {one.id: (one.message_count, one.preview) for one in store.sessions.list()}
    assert entries == {"a": (3, "one"), "b": (2, "one"), "c": (3, "mine")}
    store.messages.delete("a", [1], reason="test", actor="test")
    entries = {one.id: one.message_count for one in store.sessions.list()}
    assert entries == {"a": 2, "b": 1, "c": 2}


class Statements:
    """A reader that counts what it is asked."""

    def __init__(self, reader: Any) -> None:
        self.reader, self.count, self.path = reader, 0, reader.path

    def rows(self, sql: str, params: Any = ()) -> Any:
        self.count += 1
        return self.reader.rows(sql, params)

    def row(self, sql: str, params: Any = ()) -> Any:
        self.count += 1
        return self.reader.row(sql, params)

    def iterate(self, sql: str, params: Any = (), *, batch: int = 500) -> Any:
        self.count += 1
        return self.reader.iterate(sql, params, batch=batch)


def test_a_page_is_a_handful_of_statements_however_many_entries_it_has(store: Store) -> None:
    from hermes_state.conversation.listing import Filter, page

    for number in range(40):
        store.sessions.create(id=f"s{number}", source="cli", started_at=NOW + number)
        say(store, f"s{number}", "x", NOW + number)
        if number % 3 == 0:
            store.sessions.continue_as(f"s{number}", new_id=f"s{number}b")
        if number % 3 == 1:
            store.sessions.branch(f"s{number}", new_id=f"s{number}b")
    with store.core.reader() as reader, reader.snapshot():
        counting = Statements(reader)
        assert len(page(counting, Filter.of(), limit=50)) == 50
        assert counting.count <= 5


# --- against an oracle -------------------------------------------------------------------------------------------

_RELATIONS = st.sampled_from([None, None, "continuation", "branch", "delegate", "reset", "other"])
_SESSION = st.tuples(
    st.integers(0, 200), st.integers(0, 30), _RELATIONS, st.booleans(), st.sampled_from(["cli", "cron"]),
    st.sampled_from(["open", "ended", "replaced"]), st.lists(st.integers(0, 59), max_size=3),
)


def _expected(store: Store, *, archived: bool | None, children: bool, source: str | None) -> list[str]:
    """The list by the rules of the lineage, session by session, without the code under test."""
    with store.core.reader() as reader:
        everything = {row[0]: row for row in reader.rows(
            "SELECT s.no, s.id, s.parent_no, s.relation, s.state, s.started_at, s.archived_at, s.source, s.active_at,"
            " (SELECT created_at FROM messages m WHERE m.session_no = s.no ORDER BY seq DESC LIMIT 1) FROM sessions s"
        )}
    found = []
    for no, row in everything.items():
        if row[3] == "continuation" and row[2] is not None:
            continue
        tip, seen = row, {no}
        while True:
            under = [
                one for one in everything.values()
                if one[2] == tip[0] and one[3] == "continuation" and one[0] not in seen
            ]
            if not under:
                break
            tip = max(under, key=lambda one: (
                {"replaced": 2, "open": 1, "ended": 0}[one[4]], one[5] if one[9] is None else one[9], one[5], one[0]
            ))
            seen.add(tip[0])
        if not children and row[3] in ("delegate", "other"):
            continue
        if (archived is not None and (tip[6] is not None) != archived) or source not in (None, tip[7]):
            continue
        found.append((max(tip[8], tip[9] or 0.0), tip[0], tip[1]))
    return [one[2] for one in sorted(found, reverse=True)]


@pytest.mark.slow
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(_SESSION, min_size=1, max_size=14), st.sampled_from([False, True, None]), st.booleans(),
    st.sampled_from([None, "cli"]), st.integers(1, 6),
)
def test_any_family_is_listed_by_the_rules(
    store: Store, sessions: list[Any], archived: bool | None, children: bool, source: str | None, limit: int
) -> None:
    def plant(tx: Any) -> None:
        tx.execute("DELETE FROM messages")
        tx.execute("UPDATE sessions SET parent_no = NULL, relation = NULL")
        tx.execute("DELETE FROM sessions")
        message = 0
        for no, (start, parent, relation, hide, origin, state, messages) in enumerate(sessions, 1):
            parent = parent % no if relation is not None else 0
            tx.execute(
                "INSERT INTO sessions (no, id, source, state, parent_no, relation, started_at, active_at, ended_at,"
                " archived_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (no, f"s{no}", origin, state, parent or None, relation if parent else None, NOW + start,
                 NOW + start, None if state == "open" else NOW, NOW if hide else None),
            )
            for seq, later in enumerate(messages, 1):
                message += 1
                tx.execute(
                    "INSERT INTO messages (id, session_no, seq, role, created_at, row_check)"
                    " VALUES (?, ?, ?, 'user', ?, 0)", (message, no, seq, NOW + start + later),
                )

    store.core.write(plant)
    expected = _expected(store, archived=archived, children=children, source=source)
    filters: dict[str, Any] = {"archived": archived, "include_children": children, "source": source}
    assert [one.id for one in store.sessions.list(limit=100, **filters)] == expected
    assert [one.id for one in store.sessions.list(limit=limit, offset=1, **filters)] == expected[1 : 1 + limit]
    assert store.sessions.count(**filters) == len(expected)
    assert store.sessions.count(after=0, **filters) == len(expected)


@pytest.mark.slow
def test_listing_fifty_costs_the_same_with_a_hundred_sessions_and_with_twenty_thousand(tmp_path: Path) -> None:
    best = {}
    for size in (100, 20_000):
        with temporary_store(tmp_path / str(size)) as store:
            store.core.write(lambda tx, size=size: tx.executemany(
                "INSERT INTO sessions (id, source, started_at, active_at) VALUES (?, 'cli', ?, ?)",
                [(f"s{n}", NOW + 90 * n, NOW + 90 * n) for n in range(size)],
            ))
            taken = []
            for _ in range(60):
                started = time.perf_counter()
                assert len(store.sessions.list(limit=50)) == 50
                taken.append(time.perf_counter() - started)
            best[size] = min(taken)
    assert best[20_000] < 2 * best[100]


@pytest.mark.slow
def test_a_filter_that_matches_next_to_nothing_costs_one_look_at_the_table(store: Store) -> None:
    """With activity in another order than creation, as after years: 20,000 sessions, one of them from a rare source."""
    store.core.write(lambda tx: tx.executemany(
        "INSERT INTO sessions (id, source, started_at, active_at, archived_at) VALUES (?, ?, ?, ?, ?)",
        [(f"s{n}", "rare" if n == 77 else "cli", NOW, NOW + n * 7919 % 20_000 * 90, NOW if n == 99 else None)
         for n in range(20_000)],
    ))
    assert (ids(store, source="rare"), ids(store, archived=True)) == (["s77"], ["s99"])
    for filters in ({"source": "none"}, {"source": "rare"}, {"archived": True}):
        assert _steps(store, lambda filters=filters: store.sessions.list(**filters)) < 15 * 20_000


@pytest.mark.slow
def test_neither_list_nor_counts_read_the_history_of_the_sessions(store: Store) -> None:
    """User reports 183 to 185: lists and counts of 15,000 sessions, and of sessions with long histories."""
    steps = {}
    for size in (2, 200):
        store.core.write(lambda tx, size=size: _plant_histories(tx, sessions=60, messages=size))
        steps[size] = _steps(store, lambda: store.sessions.list(limit=50))
    assert steps[200] < 1.2 * steps[2]
    store.core.write(lambda tx: _plant_histories(tx, sessions=15_000, messages=1))
    assert sum(store.sessions.count_by_source().values()) == store.sessions.count() == 15_000
    assert _steps(store, store.sessions.count_by_source) < 15 * 15_000
    assert _steps(store, lambda: store.sessions.list(limit=50)) < 1.5 * steps[2]


def _plant_histories(tx: Any, *, sessions: int, messages: int) -> None:
    tx.execute("DELETE FROM messages")
    tx.execute("DELETE FROM sessions")
    tx.execute(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)"
        " INSERT INTO sessions (no, id, source, started_at, active_at)"
        " SELECT i, 's' || i, iif(i % 3, 'cli', 'cron'), ?1 + 90 * i, 90 * i FROM n", (sessions,),
    )
    tx.execute(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)"
        " INSERT INTO messages (session_no, seq, role, content_type, content, created_at, row_check)"
        " SELECT s.no, i, 'user', 'text', 'hello', s.active_at, 0 FROM n, sessions s", (messages,),
    )


def _steps(store: Store, call: Callable[[], Any]) -> int:
    """How many tens of SQLite's own instructions a read takes; the same on every machine."""
    taken = 0

    def count() -> bool:
        nonlocal taken
        taken += 1
        return False

    with store.core.reader() as reader:  # a read inside the block uses this reader
        reader.raw_connection.set_progress_handler(count, 10)
        try:
            call()
        finally:
            reader.raw_connection.set_progress_handler(None)
    assert taken
    return taken
