"""A process that does to a store exactly what it is told, one step at a time, and answers each step.

Run as `python puppet.py KIND DATABASE PATIENCE`, the last in seconds. KIND is `ours`, `reader` or `exclusive` (the
engine's three doors), `apsw` or `stdlib` (plain connections that close as SQLite closes by default). Commands come as
JSON lists on standard input, answers go as JSON objects to standard output: {"ok": value} or {"error": class, "named":
whether it is one of hermes_state.errors, ...}.

Not for: deciding anything. The test that pulls the strings knows which commits were acknowledged.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sys
from pathlib import Path
from typing import Any

INSERT = "INSERT INTO state_meta (key, value) VALUES (?, '1')"
# Eight megabytes: four times the page cache, so that SQLite may write pages of the open transaction to the files.
BULK = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 8)
INSERT INTO state_meta (key, value) SELECT ? || '/' || i, hex(randomblob(500000)) FROM n
"""


PATIENCE = float(sys.argv[3]) if len(sys.argv) > 3 else 2.0


class NothingOpen(Exception):
    """The step made no sense after an earlier refusal; it says nothing about the engine."""


class Plain:
    """A connection of another program: apsw or the standard library, with every default of SQLite."""

    def __init__(self, kind: str, db: str) -> None:
        if kind == "apsw":
            import apsw

            self.con: Any = apsw.Connection(db)
            self.con.set_busy_timeout(int(PATIENCE * 1000))
        else:
            import sqlite3

            self.con = sqlite3.connect(db, timeout=PATIENCE, isolation_level=None)
        self._drain("SELECT count(*) FROM state_meta")

    def _drain(self, sql: str, params: tuple[Any, ...] = ()) -> None:
        self.con.execute(sql, params).fetchall()

    def begin(self) -> None:
        self._drain("BEGIN IMMEDIATE")

    def insert(self, key: str) -> None:
        self._drain(INSERT, (key,))

    def insert_big(self, key: str) -> None:
        self._drain(INSERT, (key,))
        self._drain(BULK, (key,))

    def commit(self) -> None:
        self._drain("COMMIT")

    def to_rollback_mode(self) -> None:
        self._drain("PRAGMA journal_mode=DELETE")

    def rollback(self) -> None:
        self._drain("ROLLBACK")

    def undo(self) -> None:
        """Leave no transaction open after a failed step."""
        if self.con.in_transaction:
            self._drain("ROLLBACK")

    def read(self) -> None:
        self._drain("SELECT count(*) FROM state_meta")

    def close(self) -> None:
        self.con.close()


class Ours:
    """The engine under test, through one of its three doors."""

    def __init__(self, kind: str, db: str) -> None:
        from hermes_state import engine

        if kind == "reader":
            self.store: Any = engine.open_read(Path(db), busy_seconds=PATIENCE)
        else:
            door = engine.open_exclusive if kind == "exclusive" else engine.open_write
            self.store = door(Path(db), foreign=True, deadline_seconds=PATIENCE)
        self.block: Any = None
        self.transaction: Any = None

    def begin(self) -> None:
        block = self.store.transaction()
        self.transaction = block.__enter__()
        self.block = block

    def insert(self, key: str) -> None:
        if self.block is None:
            raise NothingOpen("no transaction is open, because its begin was refused")
        self.transaction.execute(INSERT, (key,))

    def insert_big(self, key: str) -> None:
        self.insert(key)
        self.transaction.execute(BULK, (key,))

    def commit(self) -> None:
        block, self.block = self.block, None
        if block is None:
            raise NothingOpen("no transaction is open, because its begin was refused")
        block.__exit__(None, None, None)

    def rollback(self) -> None:
        block, self.block = self.block, None
        if block is None:
            raise NothingOpen("no transaction is open, because its begin was refused")
        self.block = block
        self.rollback_quietly()

    def undo(self) -> None:
        """Leave no transaction open after a failed step."""
        if self.block is not None:
            self.rollback_quietly()

    def rollback_quietly(self) -> None:
        block, self.block = self.block, None
        with contextlib.suppress(RuntimeError):
            failure = RuntimeError("told to roll back")
            block.__exit__(RuntimeError, failure, None)

    def read(self) -> None:
        self.store.rows("SELECT count(*) FROM state_meta")

    def reopen(self) -> None:
        self.store.reopen()

    def checkpoint(self) -> None:
        self.store.checkpoint()

    def vacuum(self) -> None:
        self.store.vacuum()

    def close(self) -> None:
        self.undo()
        self.store.close()


def whole_transaction(side: Any, key: str) -> None:
    """Begin, insert, commit; nothing stays open after a failed step."""
    side.begin()
    try:
        side.insert(key)
        side.commit()
    except BaseException:
        side.undo()
        raise


class Puppet:
    """Carries out commands by name."""

    def __init__(self, kind: str, db: str) -> None:
        self.kind, self.db = kind, db
        self.main: Any = None
        self.second: Any = None
        self.twin: Any = None

    def open(self) -> None:
        self.main = Plain(self.kind, self.db) if self.kind in ("apsw", "stdlib") else Ours(self.kind, self.db)

    def put(self, key: str) -> None:
        """One whole transaction."""
        if self.main is None:
            raise NothingOpen("the store is not open, because its open was refused")
        whole_transaction(self.main, key)

    def twin_open(self) -> None:
        """The engine opens the store once more in this process."""
        self.twin = Ours("ours", self.db)

    def twin_do(self, name: str, *arguments: str) -> None:
        if name == "put":
            whole_transaction(self.twin, *arguments)
        else:
            getattr(self.twin, name)(*arguments)

    def fork(self, how: str) -> None:
        """A forked child ends with what it inherited: by leaving the block, an error in it, or an orderly exit."""
        sys.stdout.flush()
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            return
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if how == "exit":
            sys.exit(0)
        with contextlib.suppress(BaseException):
            if how == "commit":
                self.main.commit()
            elif how == "raise":
                self.main.undo()
            elif how == "close":
                self.main.store.close()
            else:
                self.main = None
                gc.collect()
        os._exit(0)

    def raw(self, suffix: str) -> None:
        """Open and close a descriptor of a store file, as a program that hashes or copies it does."""
        descriptor = os.open(self.db + suffix, os.O_RDONLY)
        os.read(descriptor, 100)
        os.close(descriptor)

    def second_touch(self) -> None:
        """Another SQLite library in this process connects, reads and closes."""
        touched = Plain("stdlib", self.db)
        touched.close()

    def second_open(self) -> None:
        """Another SQLite library in this process connects, reads and stays."""
        self.second = Plain("stdlib", self.db)

    def second_do(self, name: str, *arguments: str) -> None:
        getattr(self.second, name)(*arguments)

    def carry_out(self, command: list[str]) -> None:
        name, arguments = command[0], command[1:]
        if self.main is None and not hasattr(self, name):
            raise NothingOpen("the store is not open, because its open was refused")
        own = getattr(self, name, None)
        (own or getattr(self.main, name))(*arguments)


def describe(error: BaseException) -> dict[str, Any]:
    """What the test needs to know of an error."""
    from hermes_state.errors import StateError

    named = isinstance(error, StateError)
    capture = getattr(error, "capture", None) if named else None
    return {
        "error": type(error).__name__,
        "named": named,
        "text": str(error)[:400],
        "committed": bool(getattr(error, "committed", False)) if named else None,
        "capture": None if capture is None else str(capture),
    }


def main() -> None:
    puppet = Puppet(sys.argv[1], sys.argv[2])
    for line in sys.stdin:
        command = json.loads(line)
        if command[0] == "end":
            break
        try:
            puppet.carry_out(command)
        except Exception as error:  # every failure is an answer here, none is the puppet's own
            print(json.dumps(describe(error)), flush=True)
        else:
            print(json.dumps({"ok": True}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
