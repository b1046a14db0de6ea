"""Files with anything in their cells: no row is lost, and each is given back as it was."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maintenance.interop.foreign_rows import ForeignRows
from maintenance.interop.typed import BadText, from_json, to_json
from tests.maintenance.adopting import adopt_to, query
from tests.support.foreign import Foreign

# SQL expressions: every storage class, text that is no UTF-8, times that are none, JSON that is broken.
CELLS = (
    "NULL", "''", "'plain'", "CAST(x'ff41' AS TEXT)", "CAST(x'4100ff' AS TEXT)", "x''", "x'00ff'", "0", "1", "2", "-7",
    "9223372036854775807", "-9223372036854775808", "0.5", "-1.25", "1e300", "9e999", "-9e999",
    "'{\"_branched_from\": \"a\"}'", "'[]'", "'[{}]'",
    "'\"[{},{}]\"'", "'{broken'", "CAST(x'006A736F6E3A5B315D' AS TEXT)", "CAST(x'006A736F6E3A5B' AS TEXT)", "1.7e9",
    "'1700000000'", "'a'", "'b'", "'\u6f22\u5b57'", "'compression'",
)
SESSION = (
    "title", "model_config", "parent_session_id", "ended_at", "end_reason", "message_count", "archived", "source",
    "started_at", "input_tokens", "estimated_cost_usd", "system_prompt", "user_id", "origin_json",
)
MESSAGE = (
    "content", "role", "timestamp", "tool_calls", "token_count", "active", "compacted", "tool_name", "session_id",
)
# Without NOT NULL, keys and affinities, so that every value arrives as it is written.
LOOSE = f"""
CREATE TABLE sessions(id, {', '.join(SESSION)}, tool_call_count, pinned DEFAULT 0, note DEFAULT 'none');
CREATE TABLE messages(id INTEGER PRIMARY KEY AUTOINCREMENT, {', '.join(MESSAGE)}, observed DEFAULT 0);
CREATE TABLE session_model_usage(session_id, model, task, api_call_count, last_seen, extra_note);
CREATE TABLE unknown(a, b);
CREATE TABLE schema_version(version INTEGER NOT NULL); INSERT INTO schema_version VALUES (22);
"""
cell = st.sampled_from(CELLS)


def row(columns: int) -> st.SearchStrategy[list[str]]:
    return st.lists(cell, min_size=columns, max_size=columns)


def native_cells(native: Path, table: str) -> list[dict[str, object]]:
    """The rows of an adopted store as hermes-agent had them."""
    from hermes_state.engine import open_read

    with open_read(native) as store:
        rows = ForeignRows.of(store)
        messages = list(rows.messages(checked=True))
        return list(messages) if table == "messages" else [cells for _no, cells in rows.sessions()]


SAID = "iif(typeof({0}) IN ('real', 'integer'), quote({0}), hex({0}))"


def raw(db: Path, table: str) -> list[dict[str, tuple[str, str]]]:
    """Type and bytes of every cell, by SQLite itself."""
    connection = apsw.Connection(str(db))
    names = [found[1] for found in connection.execute(f"PRAGMA table_info({table})").fetchall()]
    cells = ", ".join(f"typeof({name}), {SAID.format(name)}" for name in names)
    rows = connection.execute(f"SELECT {cells} FROM {table} ORDER BY rowid").fetchall()
    connection.close()
    return [{name: (values[at * 2], values[at * 2 + 1]) for at, name in enumerate(names)} for values in rows]


def bound(cells: dict[str, object]) -> dict[str, tuple[str, str]]:
    """The same of cells in Python, through a connection of its own."""
    connection = apsw.Connection(":memory:")
    found = {}
    for name, value in cells.items():
        sql = "CAST(? AS TEXT)" if isinstance(value, BadText) else "?"
        (found[name],) = connection.execute(
            f"SELECT typeof(v), {SAID.format('v')} FROM (SELECT {sql} AS v)",
            (value.data if isinstance(value, BadText) else value,),
        ).fetchall()
    connection.close()
    return found


@pytest.mark.slow
@settings(max_examples=12)
@given(
    sessions=st.lists(row(len(SESSION) + 4), max_size=4), messages=st.lists(row(len(MESSAGE) + 1), max_size=6),
    usage=st.lists(row(6), max_size=3), unknown=st.lists(row(2), max_size=3),
)
def test_any_cells_come_through_and_come_back_byte_for_byte(
    sessions: list[list[str]], messages: list[list[str]], usage: list[list[str]], unknown: list[list[str]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        db = Path(folder) / "state.db"
        connection = apsw.Connection(str(db))
        connection.execute(LOOSE).fetchall()
        for table, rows in (("sessions", sessions), ("session_model_usage", usage), ("unknown", unknown)):
            for cells in rows:
                connection.execute(f"INSERT INTO {table} VALUES ({', '.join(cells)})").fetchall()
        for cells in messages:
            connection.execute(f"INSERT INTO messages VALUES (NULL, {', '.join(cells)})").fetchall()
        connection.close()
        native = Path(folder) / "native.db"
        report = adopt_to(db, native)
        assert report.verified is not None
        assert report.verified.messages == len(messages)
        for table in ("sessions", "messages"):
            assert [bound(cells) for cells in native_cells(native, table)] == raw(db, table)
        assert raw(native, "foreign_unknown") == raw(db, "unknown")
        kept = query(native, "SELECT count(*) FROM sqlite_schema WHERE name = 'foreign_session_model_usage'") == [(1,)]
        left = query(native, "SELECT count(*) FROM foreign_session_model_usage") if kept else [(0,)]
        assert query(native, "SELECT count(*) FROM session_usage")[0][0] + left[0][0] == len(usage)


@given(st.one_of(
    st.none(), st.text(), st.binary(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False),
    st.binary(min_size=1).map(lambda data: BadText(b"\xff" + data)),
))
def test_a_cell_survives_json(cell: object) -> None:
    back = from_json(json.loads(json.dumps(to_json(cell))))  # type: ignore[arg-type]
    assert (type(back), back) == (type(cell), cell)


@pytest.fixture
def foreign(tmp_path: Path) -> Foreign:
    return Foreign(tmp_path / "state.db")


def test_a_message_without_a_usable_time_takes_that_of_its_neighbour(foreign: Foreign, tmp_path: Path) -> None:
    foreign.session("a", started_at=50.0)
    for value in (float("inf"), 70.0, "text", -3.0, 80.0):
        foreign.message("a", timestamp=value)
    foreign.close()
    native = tmp_path / "native.db"
    report = adopt_to(foreign.path, native)
    rows = query(native, "SELECT created_at, extra FROM messages ORDER BY id")
    assert rows == [
        (50.0, '{"$original":{"timestamp":{"$real":"Infinity"}}}'), (70.0, None),
        (70.0, '{"$original":{"timestamp":"text"}}'), (70.0, '{"$original":{"timestamp":-3.0}}'), (80.0, None),
    ]
    assert query(native, "SELECT active_at FROM sessions") == [(80.0,)]
    assert report.built is not None and report.built.oddities["times_unreadable"] == 3


def test_messages_of_a_missing_session_get_one(foreign: Foreign, tmp_path: Path) -> None:
    foreign.session("a")
    foreign.run("PRAGMA foreign_keys = OFF")
    foreign.message("gone", "still here", timestamp=1234.0)
    foreign.close()
    native = tmp_path / "native.db"
    report = adopt_to(foreign.path, native)
    assert query(native, "SELECT id, source, started_at, extra FROM sessions ORDER BY no") == [
        ("a", "cli", 1000.0, None),
        ("gone", "unknown", 1234.0, '{"$placeholder":true}'),
    ]
    assert report.built is not None
    assert (report.built.oddities["sessions_missing"], report.built.oddities["messages_without_session"]) == (1, 1)


def test_parents_that_are_gone_or_go_in_a_circle_are_cut_and_remembered(foreign: Foreign, tmp_path: Path) -> None:
    foreign.run("PRAGMA foreign_keys = OFF")
    foreign.session("a", parent_session_id="c")
    foreign.session("b", parent_session_id="a")
    foreign.session("c", parent_session_id="b")
    foreign.session("self", parent_session_id="self")
    foreign.session("orphan", parent_session_id="nobody")
    foreign.close()
    native = tmp_path / "native.db"
    report = adopt_to(foreign.path, native)
    rows = query(
        native, "SELECT s.id, p.id, s.relation, s.extra FROM sessions AS s"
        " LEFT JOIN sessions AS p ON p.no = s.parent_no ORDER BY s.no",
    )
    assert rows == [
        ("a", None, None, '{"$original":{"parent_session_id":"c"}}'), ("b", "a", "other", None),
        ("c", "b", "other", None), ("self", None, None, '{"$original":{"parent_session_id":"self"}}'),
        ("orphan", None, None, '{"$original":{"parent_session_id":"nobody"}}'),
    ]
    assert report.built is not None and report.built.oddities == {"parent_circles": 1, "parents_dangling": 3}


def test_the_newest_of_equal_titles_keeps_it(tmp_path: Path) -> None:
    foreign = Foreign(tmp_path / "state.db", indexes=False)
    for key in ("old", "middle", "new"):
        foreign.session(key, title="Plans")
    foreign.close()
    native = tmp_path / "native.db"
    adopt_to(foreign.path, native)
    assert query(native, "SELECT id, title, extra FROM sessions ORDER BY no") == [
        ("old", None, '{"$original":{"title":"Plans"}}'), ("middle", None, '{"$original":{"title":"Plans"}}'),
        ("new", "Plans", None),
    ]


def test_lineage_follows_markers_reasons_and_routing_keys(foreign: Foreign, tmp_path: Path) -> None:
    foreign.session("root", ended_at=2000.0, end_reason="compression", session_key="k")
    foreign.session("next", parent_session_id="root", ended_at=2100.0, end_reason="session_reset", session_key="k")
    foreign.session("fresh", parent_session_id="next", session_key="k")
    foreign.session("fork", parent_session_id="next", model_config='{"_branched_from": "next"}')
    foreign.session("helper", model_config='{"_delegate_from": "fork"}')
    foreign.session("other", parent_session_id="fork")
    foreign.close()
    native = tmp_path / "native.db"
    adopt_to(foreign.path, native)
    rows = query(
        native, "SELECT s.id, s.state, s.relation, p.id FROM sessions AS s"
        " LEFT JOIN sessions AS p ON p.no = s.parent_no ORDER BY s.no",
    )
    assert rows == [
        ("root", "replaced", None, None), ("next", "ended", "continuation", "root"), ("fresh", "open", "reset", "next"),
        ("fork", "open", "branch", "next"), ("helper", "open", "delegate", "fork"), ("other", "open", "other", "fork"),
    ]


def test_a_message_without_a_flag_is_live_as_hermes_agent_makes_it(foreign: Foreign, tmp_path: Path) -> None:
    foreign.session("a")
    foreign.message("a", active=None)
    foreign.close()
    native = tmp_path / "native.db"
    adopt_to(foreign.path, native)
    assert query(native, "SELECT count(*) FROM view_edits") == [(0,)]
    assert query(native, "SELECT extra FROM messages") == [('{"$original":{"active":null}}',)]
