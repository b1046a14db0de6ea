"""A process that does to a store exactly what it is told, one step at a time, and answers each step.

Run as `python puppet.py KIND DATABASE PATIENCE [write]`, the third in seconds. KIND is `ours`, `reader` or `exclusive`
(the engine's three doors), `apsw` or `stdlib` (plain connections that close as SQLite closes by default). With `write`
every transaction of the engine goes through `Store.write` instead of a `with` block. Commands come as JSON lists on
standard input, answers go as JSON objects to standard output: {"ok": value} or {"error": class, "named": whether it is
one of hermes_state.errors, ...}.

Not for: deciding anything. The test that pulls the strings knows which commits were acknowledged.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import queue
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

INSERT = "INSERT INTO state_meta (key, value) VALUES (?, '1')"
# Eight megabytes: four times the page cache, so that SQLite may write pages of the open transaction to the files.
BULK = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 8)
INSERT INTO state_meta (key, value) SELECT ? || '/' || i, hex(randomblob(500000)) FROM n
"""


PATIENCE = float(sys.argv[3]) if len(sys.argv) > 3 else 2.0
THROUGH_WRITE = sys.argv[4:] == ["write"]


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


class Block:
    """One transaction of the engine in a `with` block, step by step."""

    def __init__(self, store: Any) -> None:
        self._block = store.transaction()
        self._transaction = self._block.__enter__()

    def step(self, work: Callable[[Any], None]) -> None:
        """Do something inside it."""
        work(self._transaction)

    def commit(self) -> None:
        self._block.__exit__(None, None, None)

    def fail(self, failure: BaseException) -> None:
        """Leave it with an error."""
        self._block.__exit__(type(failure), failure, None)


class Function:
    """One `Store.write`, whose function runs in a thread and does a step whenever it is told to."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._pid = os.getpid()
        self._steps: queue.SimpleQueue[Callable[[Any], None] | BaseException | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()
        self._answer()

    def _run(self) -> None:
        try:
            self._store.write(self._work)
        except BaseException as error:
            self._answers.put(error)
        else:
            self._answers.put(None)
        if os.getpid() != self._pid:
            os._exit(0)

    def _work(self, transaction: Any) -> None:
        self._answers.put(None)
        while (step := self._steps.get()) is not None:
            if isinstance(step, BaseException):
                raise step
            try:
                step(transaction)
            except Exception as error:
                self._answers.put(error)
            else:
                self._answers.put(None)

    def _answer(self) -> None:
        error = self._answers.get()
        if error is not None:
            raise error

    def step(self, work: Callable[[Any], None]) -> None:
        """Do something inside it."""
        self._steps.put(work)
        self._answer()

    def commit(self) -> None:
        self._steps.put(None)
        self._answer()

    def fail(self, failure: BaseException) -> None:
        """Leave it with an error."""
        self._steps.put(failure)
        self._answer()

    def leave(self, failure: BaseException | None) -> None:
        """In a child that the function forked: the function ends here."""
        self._steps = queue.SimpleQueue()
        self._steps.put(failure)


class Ours:
    """The engine under test, through one of its three doors."""

    def __init__(self, kind: str, db: str) -> None:
        from hermes_state import engine

        if kind == "reader":
            self.store: Any = engine.open_read(Path(db), busy_seconds=PATIENCE)
        else:
            door = engine.open_exclusive if kind == "exclusive" else engine.open_write
            self.store = door(Path(db), foreign=True, deadline_seconds=PATIENCE)
        self.open: Block | Function | None = None

    def begin(self) -> None:
        self.open = (Function if THROUGH_WRITE else Block)(self.store)

    def _ended(self) -> Block | Function:
        ended, self.open = self.open, None
        if ended is None:
            raise NothingOpen("no transaction is open, because its begin was refused")
        return ended

    def insert(self, key: str) -> None:
        if self.open is None:
            raise NothingOpen("no transaction is open, because its begin was refused")
        self.open.step(lambda transaction: transaction.execute(INSERT, (key,)))

    def insert_big(self, key: str) -> None:
        self.insert(key)
        assert self.open is not None
        self.open.step(lambda transaction: transaction.execute(BULK, (key,)))

    def put(self, key: str) -> None:
        """One whole transaction."""
        if THROUGH_WRITE:
            self.store.write(lambda transaction: transaction.execute(INSERT, (key,)))
        else:
            whole_transaction(self, key)

    def commit(self) -> None:
        self._ended().commit()

    def rollback(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._ended().fail(RuntimeError("told to roll back"))

    def undo(self) -> None:
        """Leave no transaction open after a failed step."""
        if self.open is not None:
            self.rollback()

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


def put(side: Any, key: str) -> None:
    """One whole transaction, as that side makes it."""
    side.put(key) if isinstance(side, Ours) else whole_transaction(side, key)


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
        put(self.main, key)

    def twin_open(self) -> None:
        """The engine opens the store once more in this process."""
        self.twin = Ours("ours", self.db)

    def twin_do(self, name: str, *arguments: str) -> None:
        if name == "put":
            put(self.twin, *arguments)
        else:
            getattr(self.twin, name)(*arguments)

    def fork(self, how: str) -> None:
        """A forked child ends with what it inherited: by leaving the block, an error in it, or an orderly exit."""
        sys.stdout.flush()
        inside = getattr(self.main, "open", None)
        if isinstance(inside, Function):
            inside.step(lambda _transaction: self._fork(how, inside))
        else:
            self._fork(how, None)

    def _fork(self, how: str, function: Function | None) -> None:
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            return
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if function is not None and how in ("exit", "commit", "raise"):
            ends = {"exit": SystemExit(0), "raise": RuntimeError("an error in the child")}
            return function.leave(ends.get(how))
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
