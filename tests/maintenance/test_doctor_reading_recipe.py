"""The recipe of docs/reading-safely.md does what the page promises beside a live writer."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from tests.maintenance.damage import examined
from tests.support.children import Children
from tests.support.stores import StoreCopy

WRITER = """
import sys, gates
from hermes_state.engine import open_write
with open_write(sys.argv[1], foreign=True) as store:
    with store.transaction(durability="process") as tx:
        tx.execute("UPDATE sessions SET title = 'by the writer' WHERE rowid = 1")
    gates.reach("wrote")
    gates.wait("end")
"""
READER = """
for path in sys.argv[1:2]:
    connection = open_for_reading(path)
    print(connection.execute("SELECT title FROM sessions WHERE rowid = 1").fetchall()[0][0])
    try:
        connection.execute("UPDATE sessions SET title = NULL")
    except sqlite3.OperationalError as refused:
        print(refused)
    connection.close()
    copy_of(path, sys.argv[2])
"""


@pytest.mark.slow
def test_the_recipe_sees_the_newest_commit_and_leaves_every_inode_in_place(
    project: Path, store_copy: StoreCopy, child: Children, tmp_path: Path
) -> None:
    page = (project / "docs" / "reading-safely.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    path = store_copy("0.17.0")
    writer = child(WRITER, path)
    writer.wait_for("wrote")
    sidecars = [path, Path(f"{path}-wal"), Path(f"{path}-shm")]
    before = [(os.stat(item).st_ino, os.stat(item).st_size) for item in sidecars]
    # An interpreter without our packages: the page is for other programs.
    recipe = "\n\n".join(["import sys", *blocks, READER])
    reader = child(recipe, path, tmp_path / "copy.db", python=sys.executable, own_packages=False)
    assert reader.finish().splitlines() == ["by the writer", "attempt to write a readonly database"]
    assert [(os.stat(item).st_ino, os.stat(item).st_size) for item in sidecars] == before
    writer.kill()
    assert examined(tmp_path / "copy.db").exit_code == 0
