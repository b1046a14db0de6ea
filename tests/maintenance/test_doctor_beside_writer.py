"""Beside a writing gateway the doctor finds nothing wrong and takes no lock that the writer could meet."""

from __future__ import annotations

from pathlib import Path

import pytest

from maintenance.doctor.findings import Severity
from tests.maintenance.damage import examined, worse_than
from tests.support.children import Children
from tests.support.stores import StoreCopy

WRITER = """
import os, sys, gates
from pathlib import Path
from hermes_state.engine import open_write, NulRule
with open_write(sys.argv[1], foreign=True, nul_rule=NulRule.CUT) as store:
    session = store.rows("SELECT id FROM sessions LIMIT 1")[0][0]
    gates.reach("writing")
    written = 0
    while not Path(sys.argv[2]).exists():
        with store.transaction(durability="process") as tx:
            text = f"row {written} with some words" + (chr(0) + "json: tail" if written % 3 == 0 else "")
            tx.execute("INSERT INTO messages(session_id, role, content, timestamp) VALUES (?, 'user', ?, 1.0)",
                       (session, text))
            if written % 5 == 4:
                tx.execute("DELETE FROM messages WHERE id = (SELECT max(id) - 3 FROM messages)")
        written += 1
        if written % 50 == 0:
            store.checkpoint("passive")
    print(written)
"""


def runs(store_copy: StoreCopy, child: Children, tmp_path: Path, many: int) -> None:
    path = store_copy("0.17.0")
    stop = tmp_path / "stop"
    writer = child(WRITER, path, stop)
    writer.wait_for("writing")
    files = [path, Path(f"{path}-wal"), Path(f"{path}-shm")]
    inodes = [file.stat().st_ino for file in files]
    for _ in range(many):
        found = examined(path)
        assert worse_than(found, Severity.INFO) == []
    stop.touch()
    assert int(writer.finish()) > many
    assert [file.stat().st_ino for file in files] == inodes


@pytest.mark.slow
def test_runs_beside_a_writer_find_nothing_wrong_and_leave_every_inode(
    store_copy: StoreCopy, child: Children, tmp_path: Path
) -> None:
    runs(store_copy, child, tmp_path, 5)


@pytest.mark.campaign
def test_a_hundred_runs_beside_a_writer_find_nothing_wrong(
    store_copy: StoreCopy, child: Children, tmp_path: Path
) -> None:
    runs(store_copy, child, tmp_path, 100)
