"""The numbers of `sqlite3 .recover` beside ours, where a shell has it; without one nothing is missing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hermes_state.testing.page_damage import zero_leaves
from maintenance.recovery import recover
from tests.maintenance.recovery.recovering import foreign_store, little_space

__all__ = ["little_space"]
# A shell whose `.recover` knows one row, and whose other call runs what it is given.
SHELL = """#!{python}
import sys
if sys.argv[-1] == ".recover":
    assert "-readonly" in sys.argv
    print("CREATE TABLE messages(id); INSERT INTO messages VALUES(1); CREATE TABLE lost_and_found(a);")
else:
    import sqlite3
    sqlite3.connect(sys.argv[-1]).executescript(sys.stdin.read())
"""


@pytest.mark.slow
@pytest.mark.usefixtures("little_space")
@pytest.mark.parametrize("shell", ["works", "fails", "none"])
def test_numbers_of_another_shell_stand_beside_ours_and_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: str
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    if shell != "none":
        script = folder / "sqlite3"
        script.write_text(SHELL.format(python=sys.executable) if shell == "works" else "#!/bin/sh\nexit 1\n")
        script.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    db = foreign_store(tmp_path / "home", "0.19.0", grown=4)
    zero_leaves(db, "messages", 1, seed=1)
    report = recover(db, allow_partial=True)
    said = report.verified.get("rows_by_sqlite3_recover")
    assert said == ({"messages": 1, "lost_and_found": 0} if shell == "works" else None)
    assert report.table("messages").rows > 200
