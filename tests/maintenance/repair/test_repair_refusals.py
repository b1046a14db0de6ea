"""What a repair does not do: rows that are damaged, beside others, twice at once, for ever, without room."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from hermes_state.errors import Corrupt, InsufficientSpace, LockTimeout, RepairFailed, RepairStopped, StoreHeld
from hermes_state.testing import corruption
from maintenance.repair import repair
from maintenance.repair.attempts import attempts_path, read_memory
from maintenance.repair.lock import lock_path
from tests.maintenance.damage import change, leaves, overwrite_page
from tests.maintenance.repair.damages import damaged_folders, prints
from tests.support.children import Children
from tests.support.stores import StoreCopy

pytestmark = pytest.mark.slow

HOLDER = """
    import sys, gates
    from hermes_state.engine import open_read
    with open_read(sys.argv[1]) as store:
        gates.reach("open")
        gates.wait("end")
"""


def damaged(store_copy: StoreCopy) -> Path:
    path = store_copy("0.19.0")
    corruption.zero_root(path, "idx_sessions_source")
    return path


def test_damage_of_rows_is_not_repaired_and_the_next_command_is_named(store_copy: StoreCopy) -> None:
    path = damaged(store_copy)
    page = leaves(path, "messages")[-1]
    overwrite_page(path, page)
    before = path.read_bytes()
    for options in ({}, {"check_only": True}, {"dry_run": True}):
        with pytest.raises(Corrupt) as refused:
            repair(path, **options)  # type: ignore[arg-type]
        assert str(refused.value).startswith(
            f"{path} has damage that a repair cannot put right: The table messages is damaged (page {page}); "
        )
        assert refused.value.hint == (
            f"Run `hermes-state sessions recover --source {path}`: it reads the rows into a new file and never writes "
            "to this one."
        )
        assert (refused.value.exit_code, refused.value.facts["objects"]) == (65, ("messages",))
    assert (path.read_bytes(), damaged_folders(path), attempts_path(path).exists()) == (before, [], False)


def test_rows_that_an_index_alone_keeps_the_older_text_of_are_not_built_over(store_copy: StoreCopy) -> None:
    path = store_copy("0.17.0")
    overwrite_page(path, leaves(path, "messages")[-1], b"\xff" * 64, at=2048)
    corruption.damage_fts(path, "blocks", 1)
    with pytest.raises(Corrupt, match="cannot put right"):
        repair(path)


def test_a_holder_is_named_and_nothing_is_changed(store_copy: StoreCopy, child: Children) -> None:
    path = damaged(store_copy)
    before = path.read_bytes()
    holder = child(HOLDER, path)
    holder.wait_for("open")
    for dry in (False, True):
        with pytest.raises(StoreHeld) as refused:
            repair(path, dry_run=dry)
        first, *lines = str(refused.value).splitlines()
        assert first == (
            f"`sessions repair` needs {path} for itself, and 1 other process has it open. Nothing was changed."
        )
        assert any(f"PID {holder.pid} (" in line for line in lines)
    assert repair(path, check_only=True).outcome == "checked"
    assert (path.read_bytes(), damaged_folders(path), read_memory(path).damages) == (before, [], ())


def test_of_two_repairs_at_once_one_runs_and_the_other_names_it(store_copy: StoreCopy, child: Children) -> None:
    path = damaged(store_copy)
    first = child(
        """
        import sys, gates
        from maintenance.repair import repair
        def step(name):
            if name == "locked":
                gates.reach("locked")
                gates.wait("go on")
        print(repair(sys.argv[1], step=step).outcome)
        """,
        path,
    )
    first.wait_for("locked")
    with pytest.raises(LockTimeout) as refused:
        repair(path)
    assert str(refused.value).startswith(f"PID {first.pid} (")
    assert str(refused.value).endswith(
        f"is repairing {path} now, and two repairs at once would undo each other. Nothing was changed."
    )
    assert refused.value.exit_code == 75
    first.release("go on")
    assert first.finish().splitlines() == ["repaired"]


def test_a_lock_file_that_nobody_holds_stops_nobody(store_copy: StoreCopy) -> None:
    """Report 37: presence of a file is no lock."""
    path = damaged(store_copy)
    lock_path(path).write_text('{"pid": 1}')
    assert repair(path).outcome == "repaired"


def test_the_same_damage_is_tried_three_times_with_growing_waits_and_kept_once(
    store_copy: StoreCopy, fake_clock: FakeClock
) -> None:
    path = damaged(store_copy)
    bad = path.read_bytes()
    for attempt in range(1, 4):
        report = repair(path, clock=fake_clock)
        assert (report.outcome, report.attempts, report.kept_before) == ("repaired", attempt, attempt > 1)
        for sidecar in ("-wal", "-shm", "-journal"):
            Path(f"{path}{sidecar}").unlink(missing_ok=True)
        path.write_bytes(bad)
        fake_clock.advance(901.0)
    assert len(damaged_folders(path)) == 1
    with pytest.raises(RepairFailed) as refused:
        repair(path, clock=fake_clock)
    assert str(refused.value) == (
        f"{path} was repaired 3 times for the same damage of idx_sessions_source, and it is there again; it is not "
        "tried again."
    )
    assert refused.value.hint == (
        f"Run `hermes-state sessions recover --source {path}`: it reads the rows into a new file."
    )
    assert path.read_bytes() == bad


def test_a_repair_that_loses_a_row_is_thrown_away(store_copy: StoreCopy, monkeypatch: pytest.MonkeyPatch) -> None:
    from maintenance.repair import steps

    path = damaged(store_copy)
    before, rows = path.read_bytes(), prints(path)
    real = steps.rebuild_index

    def losing(copy: Path, store: Path, name: str) -> object:
        done = real(copy, store, name)
        change(copy, "DELETE FROM messages WHERE id = 1", triggers=False)
        return done

    monkeypatch.setattr(steps, "rebuild_index", losing)
    with pytest.raises(RepairFailed) as refused:
        repair(path)
    assert str(refused.value) == (
        f"The repair of {path} was thrown away: after the step index idx_sessions_source 1 table had other rows than "
        f"before (messages {rows['messages'].rows} -> {rows['messages'].rows - 1}). The store is as it was."
    )
    assert "sessions recover --source" in refused.value.hint
    assert path.read_bytes() == before
    assert read_memory(path).damages[0].attempts[0].result == "failed"


def test_a_key_that_rows_repeat_is_not_built_again(store_copy: StoreCopy) -> None:
    path = store_copy("0.19.0")
    change(path, "CREATE TABLE twice(k TEXT UNIQUE)", "INSERT INTO twice VALUES ('a'), ('b')")
    corruption.zero_root(path, "sqlite_autoindex_twice_1")
    page = leaves(path, "twice")[0]
    raw = path.read_bytes()
    at = raw.rindex(b"b", (page - 1) * 4096, page * 4096)
    path.write_bytes(raw[:at] + b"a" + raw[at + 1 :])
    with pytest.raises(RepairFailed) as refused:
        repair(path)
    assert str(refused.value) == (
        f"The index sqlite_autoindex_twice_1 of {path} cannot be built again: it allows each value once, and rows of "
        "its table repeat one. The store is as it was."
    )


def test_room_is_asked_for_before_anything_is_written(store_copy: StoreCopy, monkeypatch: pytest.MonkeyPatch) -> None:
    from maintenance.repair import work

    path = damaged(store_copy)
    monkeypatch.setattr(work, "SPARE_BYTES", 1 << 60)
    with pytest.raises(InsufficientSpace, match=f"A repair of {path} needs"):
        repair(path)
    assert not path.with_name("state.db.hermes-state.repairing").exists()


def test_a_cancelled_repair_changes_nothing_and_is_no_attempt(store_copy: StoreCopy) -> None:
    path = damaged(store_copy)
    before = path.read_bytes()
    asked: list[bool] = []

    def cancel() -> bool:
        asked.append(True)
        return len(asked) > 1

    with pytest.raises(RepairStopped):
        repair(path, cancel=cancel)
    assert (path.read_bytes(), damaged_folders(path)) == (before, [])
    assert [damage.attempts for damage in read_memory(path).damages] in ([], [()])


def test_copies_of_damaged_states_are_bounded(store_copy: StoreCopy, fake_clock: FakeClock) -> None:
    path = store_copy("0.19.0")
    for index in ("idx_sessions_source", "idx_sessions_parent", "idx_messages_session", "idx_sessions_started"):
        corruption.zero_root(path, index)
        assert repair(path, clock=fake_clock).outcome == "repaired"
        fake_clock.advance(5.0)
        for sidecar in ("-wal", "-shm", "-journal"):
            Path(f"{path}{sidecar}").unlink(missing_ok=True)
    assert len(damaged_folders(path)) == 3


def test_a_sound_store_is_left_alone(store_copy: StoreCopy) -> None:
    path = store_copy("0.19.0")
    before = path.read_bytes()
    assert repair(path).outcome == repair(path, check_only=True).outcome == "sound"
    assert (path.read_bytes(), damaged_folders(path)) == (before, [])
