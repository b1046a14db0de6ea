"""The way back: an adopted store as a file of hermes-agent again, and as what its import takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_state import open_store
from hermes_state.engine import open_read
from hermes_state.errors import ForeignStore, Refused
from hermes_state.testing import temporary_store
from maintenance.dialects.detect import dialect_of
from maintenance.interop.give_back import give_back, make_plan
from maintenance.interop.to_hermes_agent import Limits, Record, Tally, files, records
from tests.maintenance.adopting import AdoptCli, adopt_in_place, adopt_to, newest_layout, query, typed
from tests.support.cli import RunCli
from tests.support.generations import SUMMARY, compacted
from tests.support.space import content, context
from tests.support.stores import StoreCopy, versions


def tables_of(db: Path) -> dict[str, list[tuple[object, ...]]]:
    """Every cell of every ordinary table, by the columns' own order; notes about search indexes left out."""
    names = [
        name for (name,) in query(db, "SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage > 0")
        if not name.startswith(("messages_fts", "sqlite_"))
    ]
    found = {name: sorted(typed(db, name)) for name in names}
    notes = {row for row in found["state_meta"] if bytes.fromhex(str(row[1])).startswith(b"fts_")}
    found["state_meta"] = [row for row in found["state_meta"] if row not in notes]
    return found


def exported(native: Path, *ids: str, limits: Limits | None = None) -> tuple[list[list[Record]], Tally]:
    tally = Tally()
    with open_read(native) as store, store.snapshot():
        chosen = ids or tuple(key for (key,) in store.rows("SELECT id FROM sessions ORDER BY no"))
        return list(files(store, dialect_of(store), chosen, limits=limits or Limits(), tally=tally)), tally


@pytest.mark.slow
@pytest.mark.parametrize("version", [*versions(), "newest"])
def test_a_file_that_was_adopted_comes_back_cell_by_cell(version: str, store_copy: StoreCopy) -> None:
    db = newest_layout(store_copy()) if version == "newest" else store_copy(version)
    before = tables_of(db)
    schema = query(db, "SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'messages_fts%'"
                       " AND name NOT LIKE 'sqlite%' ORDER BY name")
    sequences = query(db, "SELECT name, seq FROM sqlite_sequence ORDER BY 1")
    adopt_in_place(db)
    back = db.with_name("back.db")
    report = give_back(context(db), back)
    assert tables_of(back) == before
    assert query(back, "SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite%'"
                       " ORDER BY name") == schema
    assert query(back, "SELECT name, seq FROM sqlite_sequence ORDER BY 1") == sequences
    assert query(back, "PRAGMA integrity_check") == [("ok",)]
    assert (report.written.sessions, report.written.messages) == (12, len(before["messages"]))
    assert back.stat().st_mode & 0o777 == 0o600


def test_what_was_added_since_comes_back_as_well(store_copy: StoreCopy) -> None:
    db = store_copy()
    adopt_in_place(db)
    ((newest,),) = query(db, "SELECT message_floor FROM store")
    with open_store(path=db) as store:
        store.sessions.create(id="later", source="cli", system_prompt="a prompt", title="Later")
        store.messages.append("later", role="user", content=[{"type": "text", "text": "parts"}])
        store.messages.append("later", role="assistant", content="ok", tool_calls=[{"id": "c1"}])
    back = db.with_name("back.db")
    give_back(context(db), back)
    sql = "SELECT id, session_id, role, CAST(content AS BLOB), active, compacted FROM messages WHERE id > ?"
    rows = query(back, sql, newest)
    assert rows == [
        (newest + 1, "later", "user", b'\x00json:[{"type":"text","text":"parts"}]', 1, 0),
        (newest + 2, "later", "assistant", b"ok", 1, 0),
    ]
    assert query(back, "SELECT system_prompt, title, message_count, tool_call_count, archived FROM sessions"
                       " WHERE id = 'later'") == [("a prompt", "Later", 2, 1, 0)]


def test_a_branch_that_shares_messages_gets_copies_of_them(store_copy: StoreCopy) -> None:
    db = store_copy()
    adopt_in_place(db)
    with open_store(path=db) as store:
        store.sessions.create(id="trunk", source="cli")
        for text in ("one", "two", "three"):
            store.messages.append("trunk", role="user", content=text)
        fork = store.sessions.branch("trunk", new_id="fork")
        store.messages.append("fork", role="user", content="four")
        store.messages.append("trunk", role="user", content="elsewhere")
        seen = [row["content"] for row in store.messages.context("fork")]
    assert fork.id == "fork" and seen == ["one", "two", "three", "four"]
    back = db.with_name("back.db")
    give_back(context(db), back)
    sql = "SELECT content FROM messages WHERE session_id = ? ORDER BY id"
    assert query(back, sql, "fork") == [("one",), ("two",), ("three",), ("four",)]
    assert query(back, sql, "trunk") == [("one",), ("two",), ("three",), ("elsewhere",)]
    assert query(back, "SELECT id, message_count FROM sessions WHERE id IN ('trunk', 'fork') ORDER BY id") == [
        ("fork", 4), ("trunk", 4),
    ]
    (batch,), _tally = exported(db, "trunk", "fork")
    assert [[message["content"] for message in record["messages"]] for record in batch] == [
        ["one", "two", "three", "elsewhere"], seen,
    ]


def test_a_store_that_began_here_and_a_file_of_hermes_agent_are_refused(store_copy: StoreCopy, tmp_path: Path) -> None:
    with temporary_store() as store:
        path = store.path
        with pytest.raises(Refused) as refused:
            give_back(context(path), tmp_path / "back.db")
        assert refused.value.message == (
            f"{path} was never a file of hermes-agent, so there is no schema to give it back in."
        )
    with pytest.raises(ForeignStore):
        make_plan(context(store_copy()), tmp_path / "back.db")
    assert not list(tmp_path.glob("back.db*"))


@pytest.mark.slow
def test_the_verb_makes_the_file_and_never_over_another(store_copy: StoreCopy, run_cli: RunCli) -> None:
    db = store_copy()
    rows = content(db)
    adopt_in_place(db)
    adopt = AdoptCli(run_cli)
    target = db.with_name("back.db")
    made = adopt(db, "--back", "--to", target, "--json")
    assert made.exit_code == 0, made.stderr
    assert made.json["messages"] == len(rows["messages"])
    assert adopt(db, "--back", "--to", target).exit_code == 1
    without = adopt(db, "--back")
    assert (without.exit_code, without.stderr.splitlines()[0]) == (
        2, "Error: --back makes a new file and needs its name."
    )


def test_a_session_beyond_the_limits_of_the_import_is_left_out_and_named(store_copy: StoreCopy) -> None:
    db = store_copy()
    native = db.with_name("native.db")
    adopt_to(db, native)
    counts = dict(query(
        native, "SELECT s.id, count(*) FROM sessions AS s JOIN messages AS m ON m.session_no = s.no"
        " WHERE NOT EXISTS (SELECT 1 FROM view_edits AS e WHERE e.session_no = s.no) GROUP BY 1",
    ))
    most = max(counts, key=lambda key: counts[key])
    made, tally = exported(native, limits=Limits(session_messages=counts[most] - 1))
    assert [item.id for item in tally.too_large] == [key for key in counts if counts[key] == counts[most]]
    assert most not in {record["id"] for batch in made for record in batch}


@pytest.mark.slow
def test_files_hold_no_more_than_one_call_takes_and_keep_parents_before_children(store_copy: StoreCopy) -> None:
    db = store_copy()
    native = db.with_name("native.db")
    adopt_to(db, native)
    small = Limits(messages=20, session_messages=20)
    for limits in (Limits(sessions=1), Limits(sessions=2), small, Limits(bytes=20_000)):
        made, tally = exported(native, limits=limits)
        assert tally.sessions == sum(map(len, made)) and tally.missing == []
        seen: set[str] = set()
        for batch in made:
            assert len(batch) <= limits.sessions
            assert len(batch) == 1 or sum(len(record["messages"]) for record in batch) <= limits.messages
            names = {record["id"] for record in batch}
            for record in batch:
                parent = record["parent_session_id"]
                left_out = {item.id for item in tally.too_large}
                assert parent is None or parent in seen | names | left_out
            seen |= names


def test_hidden_messages_are_left_out_and_counted_and_unknown_ids_are_named(store_copy: StoreCopy) -> None:
    db = store_copy()
    native = db.with_name("native.db")
    adopt_to(db, native)
    ((hidden,),) = query(native, "SELECT sum(to_seq - from_seq + 1) FROM view_edits")
    made, tally = exported(native, *(key for (key,) in query(native, "SELECT id FROM sessions")), "nobody")
    assert (tally.hidden, tally.missing) == (hidden, ["nobody"])
    assert tally.messages == sum(len(record["messages"]) for batch in made for record in batch) == 72 - hidden


def test_a_file_of_hermes_agent_itself_is_exported_in_the_same_shape(store_copy: StoreCopy) -> None:
    db = store_copy()
    native = db.with_name("native.db")
    adopt_to(db, native)
    with open_read(db) as store, store.snapshot():
        ids = [key for (key,) in store.rows("SELECT id FROM sessions ORDER BY rowid")]
        direct = list(records(store, dialect_of(store), ids))
    with open_read(native) as store, store.snapshot():
        adopted = list(records(store, dialect_of(store), ids))
    assert [record["id"] for record in adopted] == [record["id"] for record in direct]
    for one, other in zip(adopted, direct, strict=True):
        assert one == other


@pytest.mark.parametrize("branched", [False, True])
def test_what_was_compacted_here_resumes_there_with_summary_and_tail(branched: bool, store_copy: StoreCopy) -> None:
    db = store_copy()
    adopt_in_place(db)
    with open_store(path=db) as store:
        store.sessions.create(id="long", source="cli")
        for number in range(1, 9):
            store.messages.append("long", role="user" if number % 2 else "assistant", content=f"row {number}")
        name = store.sessions.branch("long", new_id="fork").id if branched else "long"
        compacted(store, name, cut_at=-2 if branched else 6, anchors=(-6,) if branched else (2,))
        seen = [(row["role"], row["content"]) for row in store.messages.context(name)]
    assert seen[:3] == [("user", SUMMARY), ("assistant", "row 2"), ("assistant", "row 6")]
    back = db.with_name("back.db")
    give_back(context(db), back)
    rows = query(back, "SELECT role, content, active, compacted FROM messages WHERE session_id = ? ORDER BY id", name)
    assert [row[:2] for row in rows if row[2] == 1] == seen
    assert [row[1:] for row in rows[:8]] == [(f"row {number}", 0, 1) for number in range(1, 9)]
    assert query(back, "SELECT message_count FROM sessions WHERE id = ?", name) == [(len(seen),)]
    if branched:
        assert query(back, "SELECT count(*), sum(active) FROM messages WHERE session_id = 'long'") == [(8, 8)]
