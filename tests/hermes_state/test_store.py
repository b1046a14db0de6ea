"""`open_store`: which file, shared by whom, and what it refuses."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hermes_state import open_store
from hermes_state.engine import open_write
from hermes_state.errors import (
    ForeignStore,
    GenerationLost,
    IdentityConflict,
    InvalidInput,
    NotAStore,
    NotFound,
    ReadOnlyStore,
    StateError,
)


def add_session(store, name: str) -> None:
    store.core.write(lambda tx: tx.execute(
        "INSERT INTO sessions (id, source, started_at, active_at) VALUES (?, 'cli', 1, 1)", (name,)
    ))


def ids(store) -> list[str]:
    with store.core.reader() as reader:
        return [name for (name,) in reader.rows("SELECT id FROM sessions ORDER BY no")]


def test_the_home_is_looked_up_at_each_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports 122 to 127: a path frozen at import puts rows into another profile's store."""
    for name in ("a", "b"):
        monkeypatch.setenv("HERMES_HOME", str(tmp_path / name))
        with open_store() as store:
            assert store.path == tmp_path / name / "state.db"
            add_session(store, name)
    with open_store(tmp_path / "a") as store:
        assert ids(store) == ["a"]


def test_a_home_given_wins_over_environment_and_sticky_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "root"
    (root / "profiles" / "private").mkdir(parents=True)
    (root / "active_profile").write_text("private")
    monkeypatch.setenv("HERMES_HOME", str(root))
    with open_store() as store:
        assert store.path == root / "profiles" / "private" / "state.db"
    with open_store(root) as store:
        assert store.path == root / "state.db"


def test_two_opens_of_one_file_share_one_writer_until_the_last_closes(tmp_path: Path) -> None:
    first = open_store(path=tmp_path / "state.db")
    with open_store(path=tmp_path / "state.db") as second:
        assert second.core is first.core
    add_session(first, "still open")
    core = first.core
    first.close()
    first.close()
    with open_store(path=tmp_path / "state.db") as third:
        assert third.core is not core
        assert ids(third) == ["still open"]


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = open_store(path=tmp_path / "state.db")
    store.close()
    with pytest.raises(StateError) as caught:
        add_session(store, "late")
    assert str(caught.value) == f"The store {tmp_path / 'state.db'} is closed here."


def test_a_group_that_was_kept_past_its_store_says_so_while_others_use_the_file(tmp_path: Path) -> None:
    """G.9: an append after close raises a clear error and does not bring the store back."""
    with open_store(path=tmp_path / "state.db") as other:
        store = open_store(path=tmp_path / "state.db")
        groups = (store.sessions, store.messages, store.usage, store.titles, store.changes, store.leases, store.search)
        store.sessions.create(id="one", source="cli")
        store.close()
        for call in (
            lambda: groups[0].count(), lambda: groups[1].append("one", role="user", content="late"),
            lambda: groups[2].total(), lambda: groups[3].get("one"), lambda: groups[4].position(),
            lambda: groups[5].look("x"), lambda: groups[6]("word"),
        ):
            with pytest.raises(StateError) as caught:
                call()
            assert str(caught.value) == f"The store {tmp_path / 'state.db'} is closed here."
        assert other.messages.count("one") == 0


def test_reading_only_makes_nothing_and_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(NotFound) as caught:
        open_store(path=tmp_path / "state.db", read_only=True)
    assert str(caught.value) == f"There is no store at {tmp_path / 'state.db'}."
    assert list(tmp_path.iterdir()) == []
    with open_store(path=tmp_path / "state.db") as store:
        add_session(store, "one")
    with open_store(path=tmp_path / "state.db", read_only=True) as store:
        assert ids(store) == ["one"]
        with pytest.raises(ReadOnlyStore) as refused:
            add_session(store, "two")
        assert str(refused.value) == f"{tmp_path / 'state.db'} was opened for reading only."


def test_a_file_of_hermes_agent_is_refused_with_the_command_that_adopts_it(store_copy) -> None:
    path = store_copy("0.19.0")
    for read_only in (True, False):
        with pytest.raises(ForeignStore) as caught:
            open_store(path=path, read_only=read_only)
        assert str(caught.value) == f"{path} was written by hermes-agent or another program, not by this library."
        assert "hermes-state sessions adopt" in caught.value.hint


def test_our_mark_without_an_identity_row_is_not_a_store(tmp_path: Path) -> None:
    with open_store(path=tmp_path / "state.db"):
        pass
    with open_write(tmp_path / "state.db") as writer, writer.transaction() as tx:
        tx.execute("DELETE FROM store")
    with pytest.raises(NotAStore) as caught:
        open_store(path=tmp_path / "state.db")
    assert str(caught.value) == f"{tmp_path / 'state.db'} carries this library's mark, but has no identity row."


def test_a_copy_is_refused_while_its_original_is_open(tmp_path: Path) -> None:
    with open_store(path=tmp_path / "state.db") as store:
        add_session(store, "one")
    shutil.copy(tmp_path / "state.db", tmp_path / "copy.db")
    shutil.copy(tmp_path / "state.db-wal", tmp_path / "copy.db-wal")
    with open_store(path=tmp_path / "state.db") as store:
        with pytest.raises(IdentityConflict) as caught:
            open_store(path=tmp_path / "copy.db")
        assert str(caught.value) == (
            f"{tmp_path / 'copy.db'} is a copy of {tmp_path / 'state.db'}, which is open here: both say they are store "
            f"{store.store_id}."
        )
        assert f"doctor --new-identity --db {tmp_path / 'copy.db'}" in caught.value.hint
    with open_store(path=tmp_path / "copy.db") as moved:
        assert ids(moved) == ["one"]


def test_the_most_durable_wish_counts_for_all_users_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with open_store(path=path) as store:
        assert store.core.forced is None
        with open_store(path=path, durability="power"):
            assert store.core.forced == "power"
        assert store.core.forced is None
    with open_store(path=path, durability="process") as store:
        assert store.core.forced == "process"


def test_bad_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as caught:
        open_store(tmp_path, path=tmp_path / "state.db")
    assert str(caught.value) == "home names a folder and path names a file: give only one of them."
    with pytest.raises(InvalidInput) as caught:
        open_store(path=tmp_path / "state.db", durability="disk")  # type: ignore[arg-type]
    assert str(caught.value) == "durability is 'process' or 'power', not 'disk'."
    assert list(tmp_path.iterdir()) == []


def test_report_5_after_a_lost_wal_the_next_write_opens_again_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with open_store(path=path) as store:
        add_session(store, "before")
        store.core.writer.checkpoint()
        for suffix in ("-wal", "-shm"):
            (tmp_path / f"state.db{suffix}").unlink()
        with pytest.raises(GenerationLost):
            add_session(store, "lost")
        epoch = store.core.epoch
        add_session(store, "after")
        assert store.core.epoch == epoch + 1
        assert ids(store) == ["before", "after"]


@pytest.mark.parametrize("name", ["home", "path"])
def test_a_name_that_no_file_can_have_is_refused_by_name(name: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        open_store(**{name: "a\0b"})  # type: ignore[arg-type]
    assert str(caught.value) == f"{name} has a NUL character, which no file name can have."
