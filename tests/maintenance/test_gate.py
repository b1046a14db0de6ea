"""The gate: what a verb gets, and what it gets refused beside others."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from hermes_state.clock import SYSTEM
from hermes_state.engine import open_read, open_write
from hermes_state.errors import GenerationLost, NotFound, Refused, StoreHeld
from lockowners import Hidden, Holder, Process, Scan
from maintenance.context import Context
from maintenance.gate import (
    Alone,
    Forced,
    VacuumOnly,
    exclusive,
    expected_hold_seconds,
    hold_lines,
    holder_line,
    how_to_stop,
    online,
    reading,
)
from maintenance.gate.rows import ALSO_FORCED, ALSO_ONLINE, require_exclusive, require_online, row_of
from maintenance.verbs import VERBS, Access
from tests.support.children import Children
from tests.support.stores import StoreCopy

IDLE_HOLDER = """
import sys, gates
from hermes_state.engine import open_read
with open_read(sys.argv[1]) as store:
    store.rows("SELECT count(*) FROM sessions")
    gates.reach("ready")
    gates.wait("go")
"""

OPENER = """
import sys
from hermes_state.engine import open_read
from hermes_state.errors import LockTimeout
try:
    with open_read(sys.argv[1], busy_seconds=0.05) as store:
        store.rows("SELECT count(*) FROM sessions")
        print("opened")
except LockTimeout:
    print("kept out")
"""


def context(db: Path, *, profile: str | None = None) -> Context:
    return Context(home=db.parent, profile=profile, db=db, json=False, clock=SYSTEM)


def in_rollback_mode(db: Path) -> Path:
    """The same content in a file in rollback mode, made by a rewrite through SQLite."""
    copy = db.with_name("rollback.db")
    with open_read(db) as store:
        store.backup_to(copy)
    import apsw

    connection = apsw.Connection(str(copy))
    connection.execute("PRAGMA journal_mode=DELETE").fetchall()
    connection.close()
    return copy


def process(role: str = "unknown", **facts: object) -> Process:
    known: dict[str, object] = {
        "pid": 4242, "start_ticks": 7, "uid": 1000, "user": "max", "command": "hermes gateway run", "role": role,
    }
    return Process(**(known | facts))  # type: ignore[arg-type]


# --- rows -----------------------------------------------------------------------------------------------------


def test_every_verb_has_a_row_and_the_extra_rights_name_real_verbs() -> None:
    rows = {verb: row_of(verb) for verb in VERBS}
    assert set(rows) >= ALSO_ONLINE | ALSO_FORCED
    assert all(VERBS[verb].access is Access.EXCLUSIVE for verb in ALSO_ONLINE | ALSO_FORCED)


@pytest.mark.parametrize(
    "verb", [verb for verb, row in VERBS.items() if row.access in (Access.READ, Access.HOST, Access.LOCAL)]
)
def test_verb_that_reads_gets_no_store_that_can_write(verb: str) -> None:
    with pytest.raises(Refused) as beside:
        require_online(verb)
    with pytest.raises(Refused) as alone:
        require_exclusive(verb, force=False)
    assert beside.value.message == f"`{verb}` may not write beside other processes, so it gets no such store."
    assert alone.value.message == f"`{verb}` may not take the exclusive lock, so it gets no such store."


def test_verb_without_a_row_gets_nothing() -> None:
    with pytest.raises(Refused) as refused:
        row_of("sessions explode")
    assert refused.value.message == "`sessions explode` has no row in the table of verbs, so it gets no store."


def test_force_is_only_for_verbs_that_have_it(store_copy: StoreCopy) -> None:
    with pytest.raises(Refused) as refused, exclusive(context(store_copy()), "sessions delete", force=True):
        pass
    assert refused.value.message == "`sessions delete` has no --force."


def test_only_the_gate_opens_stores_for_writing(project: Path) -> None:
    doors = {"open_write", "open_exclusive"}
    users = set()
    for path in (project / "maintenance").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and doors & {name.name for name in node.names}:
                users.add(path.relative_to(project).as_posix())
            if isinstance(node, ast.Attribute) and node.attr in doors:
                users.add(path.relative_to(project).as_posix())
    # These write to a copy or a new file of their own that nobody else knows of, never to the store.
    private = {
        "maintenance/doctor/deep.py", "maintenance/interop/adopt/flow.py", "maintenance/interop/state_db.py",
        "maintenance/replacement/prepare.py", "maintenance/recovery/adopting.py", "maintenance/backups/serving.py",
        "maintenance/backups/routing.py",
        "maintenance/backups/cron.py",
    }
    assert users - private == {"maintenance/gate/doors.py"}


# --- alone ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_exclusive_keeps_every_opener_out_until_it_ends(store_copy: StoreCopy, child: Children) -> None:
    db = store_copy()
    with exclusive(context(db), "sessions prune") as opened:
        assert isinstance(opened, Alone)
        assert not opened.forced
        assert child(OPENER, db).finish() == "kept out\n"
    assert child(OPENER, db).finish() == "opened\n"


def test_missing_store_is_said_and_not_created(tmp_path: Path) -> None:
    db = tmp_path / "state.db"
    for door in (reading(context(db)), online(context(db), "sessions pin")):
        with pytest.raises(NotFound) as missing, door:
            pass
        assert missing.value.message == f"There is no store at {db}."
    with pytest.raises(NotFound):
        exclusive(context(db), "sessions prune")
    assert list(tmp_path.iterdir()) == []


# --- beside holders -------------------------------------------------------------------------------------------


@pytest.fixture
def held_store(store_copy: StoreCopy, child: Children) -> Iterator[tuple[Path, int]]:
    db = store_copy()
    holder = child(IDLE_HOLDER, db)
    holder.wait_for("ready")
    yield db, holder.pid
    holder.release("go")


def test_exclusive_is_refused_beside_an_idle_reader_who_is_named(held_store: tuple[Path, int]) -> None:
    db, pid = held_store
    before = db.read_bytes() if not Path(f"{db}-wal").exists() else None
    with pytest.raises(StoreHeld) as refused, exclusive(context(db), "sessions prune"):
        pass
    first, *lines = refused.value.message.splitlines()
    assert first == f"`sessions prune` needs {db} for itself, and 1 other process has it open. Nothing was changed."
    assert lines[0].startswith(f"PID {pid} (")
    assert lines[0].endswith(": stop that program")
    assert refused.value.hint == (
        "Stop what is listed, then run it again. Or run `hermes-state sessions prune --online`, which works in small "
        "steps beside them."
    )
    assert [holder.process.pid for holder in refused.value.facts["holders"]] == [pid]
    assert refused.value.exit_code == 1
    assert before is None or db.read_bytes() == before


def test_online_work_goes_on_beside_a_holder_who_is_reported(held_store: tuple[Path, int]) -> None:
    db, pid = held_store
    with online(context(db), "sessions prune") as opened:
        assert [holder.process.pid for holder in opened.scan.holders] == [pid]
        with opened.store.transaction() as tx:
            tx.execute("UPDATE sessions SET title = NULL WHERE title IS NOT NULL")
    with open_read(db) as store:
        assert store.rows("SELECT count(*) FROM sessions WHERE title IS NOT NULL") == [(0,)]


def test_force_beside_a_holder_gives_a_store_that_can_only_be_vacuumed(held_store: tuple[Path, int]) -> None:
    db, pid = held_store
    with exclusive(context(db), "sessions optimize", force=True) as opened:
        assert isinstance(opened, Forced)
        assert isinstance(opened.store, VacuumOnly)
        assert not hasattr(opened.store, "transaction")
        assert [holder.process.pid for holder in opened.scan.holders] == [pid]
        assert opened.warning == (
            f"--force: 1 other process keeps {db} open, so only an in-place VACUUM runs. Others wait to write until it "
            "ends, and hermes-agent may report that the database is locked."
        )
        opened.store.vacuum()


def test_force_takes_the_exclusive_lock_when_nobody_is_in_the_way(store_copy: StoreCopy) -> None:
    with exclusive(context(store_copy()), "sessions optimize", force=True) as opened:
        assert isinstance(opened, Alone)


def test_idle_holder_in_rollback_mode_is_found_by_the_scan_and_the_message_says_why(
    store_copy: StoreCopy, child: Children
) -> None:
    db = in_rollback_mode(store_copy())
    holder = child(IDLE_HOLDER, db)
    holder.wait_for("ready")
    with pytest.raises(StoreHeld) as refused, exclusive(context(db), "sessions prune"):
        pass
    assert refused.value.message.splitlines()[-1] == (
        "The store is in rollback mode: a program that has it open and is idle holds no lock there, so only the scan "
        "of open files can see it."
    )
    holder.release("go")


def test_holder_that_comes_after_the_first_scan_is_refused_by_the_second(
    store_copy: StoreCopy, child: Children
) -> None:
    """In rollback mode the exclusive lock is granted beside an idle holder; only the scan under the lock sees it."""
    from lockowners import holders

    db = in_rollback_mode(store_copy())
    started = []

    def scanner(path: Path) -> Scan:
        scan = holders(path)
        if not started:
            started.append(child(IDLE_HOLDER, db))
            started[0].wait_for("ready")
        return scan

    with pytest.raises(StoreHeld) as refused, exclusive(context(db), "sessions prune", scanner=scanner):
        raise AssertionError("the store was handed out")
    assert [holder.process.pid for holder in refused.value.facts["holders"]] == [started[0].pid]
    started[0].release("go")


def unseen(path: Path, *rows: Hidden) -> Scan:
    """What a scan gives that sees nobody and could not look into some processes."""
    return Scan(
        path=path, holders=(), hidden=rows, excluded_count=0, complete=not rows, method="procfs", namespace_note="",
        elapsed_seconds=0.0,
    )


def test_processes_of_root_that_cannot_be_seen_do_not_refuse_a_rewrite_in_place(store_copy: StoreCopy) -> None:
    hidden = Hidden(user="root", count=68, uid=0)
    with exclusive(context(store_copy()), "sessions prune", scanner=lambda path: unseen(path, hidden)) as opened:
        assert opened.verdict.not_visible == "not visible: 68 processes of root"


def test_processes_of_root_that_cannot_be_seen_refuse_whatever_replaces_a_file(store_copy: StoreCopy) -> None:
    db, hidden = store_copy(), Hidden(user="root", count=68, uid=0)
    door = exclusive(context(db), "sessions prune", replaces_content=True, scanner=lambda path: unseen(path, hidden))
    with pytest.raises(StoreHeld) as refused, door:
        pass
    assert refused.value.message.splitlines() == [
        f"`sessions prune` cannot prove that nobody else has {db} open. Nothing was changed.",
        "68 processes of root cannot be looked into, and a file would be replaced",
        "not visible: 68 processes of root",
    ]


def test_processes_of_another_user_that_may_reach_the_file_refuse_a_rewrite(store_copy: StoreCopy) -> None:
    db, hidden = store_copy(), Hidden(user="max", count=2, uid=1000)
    door = exclusive(context(db), "sessions prune", scanner=lambda path: unseen(path, hidden))
    with pytest.raises(StoreHeld) as refused, door:
        pass
    assert refused.value.message.splitlines()[0] == (
        f"`sessions prune` cannot prove that nobody else has {db} open. Nothing was changed."
    )
    assert refused.value.hint == (
        "Run it where every process can be seen. Or run `hermes-state sessions prune --online`, which works in small "
        "steps beside them."
    )


def test_nobody_writes_while_a_process_uses_a_deleted_wal(store_copy: StoreCopy, child: Children) -> None:
    db = store_copy()
    with open_write(db, foreign=True) as store, store.transaction() as tx:
        tx.execute("UPDATE sessions SET title = NULL WHERE title IS NOT NULL")
    holder = child(IDLE_HOLDER, db, audited=False)
    holder.wait_for("ready")
    for suffix in ("-wal", "-shm"):
        os.unlink(f"{db}{suffix}")
    doors = (
        ("sessions prune", lambda: exclusive(context(db), "sessions prune")),
        ("sessions pin", lambda: online(context(db), "sessions pin")),
        ("sessions optimize", lambda: exclusive(context(db), "sessions optimize", force=True)),
    )
    for verb, door in doors:
        with pytest.raises(GenerationLost) as refused, ExitStack() as stack:
            stack.enter_context(door())
        first, line, *unseen = refused.value.message.splitlines()
        assert all(note.startswith("not visible: ") for note in unseen)
        assert first == (
            f"1 process still uses files of {db} that were deleted or replaced (shm, wal), and `{verb}` would write "
            "beside that second version of the store. Nothing was changed."
        )
        assert line.startswith(f"PID {holder.pid} (")
        assert ", still using files that were deleted: after `hermes-state doctor`, stop that program" in line
        assert refused.value.hint == (
            "Run `hermes-state doctor` first: it says what they hold. Stop them only after that."
        )
    holder.release("go")


# --- words ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "profile", "own_uid", "advice"),
    [
        (process("gateway"), None, 1000, "stop it with `hermes gateway stop`"),
        (process("gateway"), "work", 1000, "stop it with `hermes --profile work gateway stop`"),
        (process("gateway"), None, 1001, "ask max to stop it"),
        (process("gateway"), None, 0, "stop it with `hermes gateway stop`"),
        (process("cron"), None, 1000, "let its job end, or stop the scheduler that starts it"),
        (process("desktop"), None, 1000, "quit the desktop app"),
        (process("cli"), None, 1000, "exit that chat session"),
        (process("unknown"), None, 1000, "stop that program"),
        (process("gateway", container="docker 4f1c"), None, 1000, "stop it inside its container (docker 4f1c)"),
    ],
)
def test_each_kind_of_holder_is_told_how_to_stop_it(
    found: Process, profile: str | None, own_uid: int, advice: str
) -> None:
    assert how_to_stop(found, profile=profile, own_uid=own_uid) == advice


def test_holder_line_names_pid_command_user_and_role() -> None:
    holder = Holder(process=process("gateway", command="hermes gateway\x1b[31m run"), via=frozenset({"lock"}))
    assert holder_line(holder, own_uid=1000) == (
        "PID 4242 (hermes gateway [31m run), user max, gateway: stop it with `hermes gateway stop`"
    )


@pytest.mark.parametrize(
    ("size", "seconds", "line"),
    [
        (0, 1, "Holds the store's exclusive lock for about 1 s."),
        (50_000_001, 2, "Holds the store's exclusive lock for about 2 s."),
        (7_000_000_000, 140, "Holds the store's exclusive lock for about 2 min."),
    ],
)
def test_plan_says_how_long_the_lock_is_held_and_what_others_meet(size: int, seconds: int, line: str) -> None:
    assert expected_hold_seconds(size) == seconds
    assert hold_lines(size) == (
        line, "Programs that start meanwhile cannot open the store; hermes-agent gives up after about 2 s.",
    )
