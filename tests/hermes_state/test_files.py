"""Files that cannot be used as asked, each with its own error; the file and its folder stay as they are."""

from __future__ import annotations

import os
from pathlib import Path

import apsw
import pytest

from hermes_state import errors
from hermes_state.engine import open_read, open_write
from tests.support.native import make_store


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_store_that_this_user_may_not_write_is_said_to_be_read_only(child, tmp_path_factory) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        store = make_store(Path(folder) / "state.db")
        os.chmod(store, 0o644)
        writer = child(
            """
            import os, sys
            from hermes_state.engine import open_write
            from hermes_state.errors import ReadOnlyStore
            os.setgid(65534)
            os.setuid(65534)
            try:
                open_write(sys.argv[1])
            except ReadOnlyStore as refused:
                print(refused)
            """,
            store,
        )
        assert writer.finish().strip() == (
            f"{store} or its folder cannot be written by this user."
        )
        assert os.listdir(folder) == ["state.db"]


def test_schema_text_that_is_not_utf_8_is_damage_and_no_traceback(tmp_path: Path) -> None:
    store = make_store(tmp_path / "state.db")
    connection = apsw.Connection(str(store))
    connection.execute("CREATE TABLE plain(a /* note */)").fetchall()
    connection.execute("PRAGMA journal_mode = delete").fetchall()
    connection.close()
    raw = store.read_bytes()
    assert raw.count(b"CREATE TABLE plain(a /* note */)") == 1
    store.write_bytes(raw.replace(b"/* note */", b"/* n\xffte */"))
    with open_read(store) as reader, pytest.raises(errors.Corrupt) as refused:
        reader.rows("SELECT sql FROM sqlite_schema")
    assert str(refused.value) == (
        f"{store} holds text that is not UTF-8 where it must be: reading failed at byte 25 of "
        "b'CREATE TABLE plain(a /* n\\xffte */)'."
    )


def test_failed_transaction_leaves_no_large_wal_behind_an_exclusive_store(tmp_path: Path) -> None:
    from hermes_state.engine import open_exclusive

    store = make_store(tmp_path / "state.db")
    with open_exclusive(store) as alone:
        alone.tune(cache_size=20)
        alone.rows(f"PRAGMA max_page_count = {alone.page_count + 300}")
        with pytest.raises(errors.DiskFull), alone.transaction() as transaction:
            transaction.executemany("INSERT INTO note(body) VALUES(?)", (("x" * 4000,) for _ in range(2000)))
    assert os.stat(f"{store}-wal").st_size == 0


def test_file_that_may_not_be_written_can_still_be_read_beside_a_writer(tmp_path: Path) -> None:
    store = make_store(tmp_path / "state.db")
    with open_write(store), open_read(store) as reader:
        assert reader.row("SELECT count(*) FROM note") == (0,)
