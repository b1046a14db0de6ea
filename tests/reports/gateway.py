"""A program that has a hermes-agent store open as a gateway has: the standard library's SQLite, in its own process.

Invariant: it says which of its commits were acknowledged, and only those. Not for: our engine; what is tested here is
what our commands do beside, or after, somebody else's connection.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.children import Child, Children

# Commits "by the gateway <number>" as titles of the first session; "cancelled" closes a raw descriptor of the main
# file first, which drops all of this process's locks on it (the kernel's rule, and how report 1 lost a WAL).
SCRIPT = """
import os, sqlite3, sys, gates
db, *manner = sys.argv[1:]
store = sqlite3.connect(db, isolation_level=None)
store.execute("PRAGMA busy_timeout = 20000")
store.execute("PRAGMA wal_autocheckpoint = 0")
def commit(text):
    store.execute("UPDATE sessions SET display_name = ? WHERE rowid = 1", (text,))
commit("by the gateway 1")
if "cancelled" in manner:
    os.close(os.open(db, os.O_RDONLY))
gates.reach("ready")
gates.wait("write")
try:
    commit("by the gateway 2")
    said = "committed"
except sqlite3.Error as problem:
    said = str(problem)
names = {os.readlink(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")
         if os.path.exists(f"/proc/self/fd/{number}")}
print(said, sum("(deleted)" in name and db in name for name in names))
gates.reach("wrote")
gates.wait("end")
store.close()
"""
SUFFIXES = ("", "-wal", "-shm")


def start(child: Children, db: Path, *manner: str) -> Child:
    """A gateway that has committed once and waits for `write`, then for `end`."""
    gateway = child(SCRIPT, db, *manner, audited=False)
    gateway.wait_for("ready")
    return gateway


def identities(db: Path) -> list[tuple[int, int]]:
    """Device and inode of the store and its sidecars; raises when one is gone."""
    return [(state.st_dev, state.st_ino) for state in (os.stat(f"{db}{suffix}") for suffix in SUFFIXES)]


def finish(gateway: Child) -> str:
    """Let it write once more and end; what it said about that write and how many files it had lost."""
    gateway.release("write")
    gateway.wait_for("wrote")
    gateway.release("end")
    return gateway.finish().strip()


def display_name(db: Path) -> str:
    """What the first session is called, asked of a process of its own after everybody closed."""
    question = (
        "import sqlite3, sys; print(sqlite3.connect(f'file:{sys.argv[1]}?mode=ro', uri=True)"
        ".execute('SELECT display_name FROM sessions WHERE rowid = 1').fetchone()[0])"
    )
    done = subprocess.run([sys.executable, "-c", question, str(db)], capture_output=True, text=True, check=True)
    return done.stdout.strip()
