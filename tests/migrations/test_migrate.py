"""Schema steps: recorded, applied once, whole or not at all; and the shape they lead to."""

from __future__ import annotations

import hashlib
from pathlib import Path

import apsw
import pytest

from hermes_state import open_store
from hermes_state.engine import Store, open_write
from hermes_state.engine.create import create_store
from hermes_state.engine.migrate import applied, migrate, pending, refuse_too_old
from hermes_state.engine.schema import Migration, known_migrations, schema_sql
from hermes_state.errors import MigrationFailed, SchemaTooNew, SchemaTooOld


def step(number: int, sql: str, phase: str = "pre") -> Migration:
    return Migration(
        number=number, name=f"{number:04}_{phase}_add_note", phase=phase, sql=sql,  # type: ignore[arg-type]
        sha256=hashlib.sha256(sql.encode()).hexdigest(),
    )


ADD_NOTE = (*known_migrations(), step(9001, "CREATE TABLE note (id INTEGER PRIMARY KEY) STRICT;"))


def schema_of(sql: str) -> list[tuple[object, ...]]:
    connection = apsw.Connection(":memory:")
    connection.execute(sql).fetchall()
    return connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name").fetchall()


@pytest.fixture
def store(tmp_path: Path):
    create_store(tmp_path / "state.db")
    with open_write(tmp_path / "state.db") as writer:
        yield writer


def test_all_steps_together_are_the_schema() -> None:
    assert schema_of("".join(known.sql for known in known_migrations())) == schema_of(schema_sql())


def test_steps_are_numbered_without_gaps() -> None:
    assert [known.number for known in known_migrations()] == list(range(1, len(known_migrations()) + 1))


def test_a_new_store_has_every_step_in_its_ledger(store: Store) -> None:
    assert applied(store) == {known.number: (known.name, known.sha256) for known in known_migrations()}


def test_a_small_step_is_applied_once(store: Store) -> None:
    assert [done.number for done in migrate(store, known=ADD_NOTE)] == [9001]
    assert migrate(store, known=ADD_NOTE) == ()
    assert store.row("SELECT count(*) FROM note") == (0,)


def test_a_step_that_fails_leaves_the_store_as_it_was(store: Store) -> None:
    broken = (*known_migrations(), step(9001, "CREATE TABLE note (id INTEGER) STRICT; CREATE TABLE sessions (id);"))
    with pytest.raises(MigrationFailed) as caught:
        migrate(store, known=broken)
    assert (caught.value.number, caught.value.name) == (9001, "9001_pre_add_note")
    assert store.rows("SELECT name FROM sqlite_schema WHERE name = 'note'") == []
    assert 9001 not in applied(store)


def test_a_newer_store_is_refused_with_what_to_do(store: Store) -> None:
    migrate(store, known=ADD_NOTE)
    newest = known_migrations()[-1].number
    with pytest.raises(SchemaTooNew) as caught:
        pending(store.path, applied(store))
    assert str(caught.value) == (
        f"{store.path} has schema step 9001 (9001_pre_add_note); this release knows steps up to {newest}."
    )
    assert caught.value.hint == "Install the release that wrote it, or a newer one; nothing was changed."


def test_a_newer_store_is_refused_at_open(store: Store) -> None:
    migrate(store, known=ADD_NOTE)
    for read_only in (True, False):
        with pytest.raises(SchemaTooNew):
            open_store(path=store.path, read_only=read_only)


def test_report_220_a_step_applied_with_other_content_stops_the_open(store: Store) -> None:
    migrate(store, known=ADD_NOTE)
    changed = (*known_migrations(), step(9001, "CREATE TABLE note (id INTEGER PRIMARY KEY, body TEXT) STRICT;"))
    with pytest.raises(MigrationFailed) as caught:
        pending(store.path, applied(store), changed)
    assert str(caught.value) == (
        f"Schema step 9001 (9001_pre_add_note) of {store.path} was applied with other content than this release has."
    )


def test_a_step_that_rewrites_is_not_applied_at_open(store: Store) -> None:
    heavy = (*known_migrations(), step(9001, "CREATE TABLE note (id INTEGER) STRICT;", "post"))
    assert migrate(store, known=heavy) == ()
    with pytest.raises(SchemaTooOld) as caught:
        refuse_too_old(store.path, pending(store.path, applied(store), heavy))
    assert caught.value.hint == f"Run `hermes-state sessions optimize --db {store.path}`."
    assert [done.number for done in migrate(store, phases=("pre", "post"), known=heavy)] == [9001]


CHILD = """
import hashlib, sys, gates
from hermes_state.engine import open_write
from hermes_state.engine import migrate as it
from hermes_state.engine.schema import Migration, known_migrations
sql = "CREATE TABLE note (id INTEGER PRIMARY KEY) STRICT;"
note = Migration(number=9001, name="9001_pre_add_note", phase="pre", sql=sql,
                 sha256=hashlib.sha256(sql.encode()).hexdigest())
store = open_write(sys.argv[1])
"""


@pytest.mark.slow
def test_two_processes_that_race_apply_a_step_once(child, tmp_path: Path) -> None:
    create_store(tmp_path / "state.db")
    code = CHILD + """
gates.reach("ready"); gates.wait("go")
print(len(it.migrate(store, known=(*known_migrations(), note))))
"""
    children = [child(code, str(tmp_path / "state.db")) for _ in range(2)]
    for one in children:
        one.wait_for("ready")
    for one in children:
        one.release("go")
    assert sorted(one.finish().strip() for one in children) == ["0", "1"]


@pytest.mark.slow
def test_a_process_killed_inside_a_step_leaves_it_pending(child, tmp_path: Path) -> None:
    create_store(tmp_path / "state.db")
    code = CHILD + """
def stop(*_):
    gates.reach("inside"); gates.wait("never")
it.record = stop
it.migrate(store, known=(*known_migrations(), note))
"""
    one = child(code, str(tmp_path / "state.db"))
    one.wait_for("inside")
    one.kill()
    with open_write(tmp_path / "state.db") as writer:
        assert 9001 not in applied(writer)
        assert writer.rows("SELECT name FROM sqlite_schema WHERE name = 'note'") == []
        assert [done.number for done in migrate(writer, known=ADD_NOTE)] == [9001]
