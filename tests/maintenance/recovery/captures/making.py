"""Captures as real accidents leave them: ours by the library's own guard, hermes-agent's laid out as its docs say."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.children import Children

# Writes rows that stay in the WAL, and copies main file and WAL while it has them open.
CAPTURING = """
import shutil, sqlite3, sys
db, folder, prefix, count, session = sys.argv[1:6]
store = sqlite3.connect(db)
store.execute("PRAGMA journal_mode = wal")
store.execute("PRAGMA wal_autocheckpoint = 0")
for number in range(int(count)):
    store.execute(
        "INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, 'user', ?, ?)",
        (session, f"{prefix} {number}", 1800000000.0 + number),
    )
    store.commit()
if prefix.startswith("new"):
    store.execute("INSERT INTO sessions (id, source, started_at) VALUES ('captured-session', 'cli', 1800000000.0)")
    store.execute(
        "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('captured-session', 'user', 'hello', 1.0)"
    )
    store.commit()
shutil.copyfile(db, folder + "/state.db")
shutil.copyfile(db + "-wal", folder + "/state.db-wal")
"""


def write_manifest(folder: Path, captured_at: str, files: Sequence[str] = ("state.db", "state.db-wal")) -> None:
    told: dict[str, Any] = {
        "version": 1, "captured_at": captured_at,
        "files": [
            {"name": name, "size": (folder / name).stat().st_size, "sha256": digest(folder / name)} for name in files
        ],
    }
    (folder / "manifest.json").write_text(json.dumps(told))


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def foreign_capture(
    db: Path, child: Children, *, prefix: str = "new", count: int = 3, stamp: str = "20260913T101500Z",
    captured_at: str = "2026-09-13T10:15:00Z", session: str = "",
) -> Path:
    """A capture of rows that never came to the file at `db`, which stays as it was."""
    folder = db.with_name(f"{db.name}.retired-wal-{stamp}-4711")
    folder.mkdir()
    private = folder / "working.db"
    shutil.copyfile(db, private)
    child(CAPTURING, private, folder, prefix, count, session, audited=False).finish()
    for name in ("working.db", "working.db-wal", "working.db-shm"):
        (folder / name).unlink(missing_ok=True)
    write_manifest(folder, captured_at)
    return folder


# A gateway of the library whose WAL is unlinked; it notices at its next write and leaves a capture.
LOSING = """
import sys
import gates
from hermes_state.errors import GenerationLost
from hermes_state.store import open_store

store = open_store(path=sys.argv[1])
store.messages.append_many("s", [{"role": "user", "content": f"only in the lost WAL {n}"} for n in range(5)])
store.sessions.create(id="lost-session", source="cli")
store.messages.append("lost-session", role="user", content="a session of its own")
gates.reach("written")
gates.wait("go")
try:
    store.messages.append("s", role="user", content="never")
except GenerationLost as error:
    gates.reach("lost", str(error.capture))
    gates.wait("end")
"""
