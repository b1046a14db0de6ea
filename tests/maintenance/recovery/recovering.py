"""Stores to damage and recover, what is in them, and how a result compares with that.

Invariant: the same arguments give the same rows. Not for: damage itself (`hermes_state.testing.corruption`).
"""

from __future__ import annotations

import functools
import os
import random
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw
import pytest

from hermes_state import open_store
from hermes_state.clock import CLOCK_FILE_VARIABLE
from hermes_state.conversation.row_check import row_check
from hermes_state.engine import APPLICATION_ID, Transaction
from hermes_state.testing.damage_cases import CASES
from hermes_state.testing.page_damage import Damage
from hermes_state.testing.pages import DatabaseFile
from maintenance.interop.typed import CellReader
from maintenance.recovery import run
from maintenance.recovery.records import Report
from tests.support.generations import SHORT, compacted, failed
from tests.support.space import grow
from tests.support.stores import unpack

WORDS = ("lamp", "harbour", "gravel", "sail", "tarn", "moss", "flint", "brook", "stead", "wick")
Key = tuple[str, Any]
Row = tuple[Any, ...]


def native_store(folder: Path, *, sessions: int = 24, messages: int = 14, seed: int = 5) -> Path:
    """A native store with all that a recovery must join again: bodies, texts, edits, branches, usage, compactions.

    It is made once in a process, and copied for those that ask for the same: the copies are one store.
    """
    folder.mkdir(parents=True, exist_ok=True)
    db = folder / "state.db"
    db.write_bytes(_native_content(sessions, messages, seed, os.environ.get(CLOCK_FILE_VARIABLE)))
    db.chmod(0o600)
    return db


@functools.cache
def _native_content(sessions: int, messages: int, seed: int, _clock: str | None) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return _make_native(Path(folder) / "state.db", sessions, messages, seed).read_bytes()


def _make_native(db: Path, sessions: int, messages: int, seed: int) -> Path:
    chance = random.Random(seed)

    def text(words: int) -> str:
        return " ".join(f"{chance.choice(WORDS)}{chance.randrange(999)}" for _ in range(words))

    with open_store(path=db) as store:
        for number in range(sessions):
            name = f"s{number}"
            store.sessions.create(
                id=name, source="cli", title=f"Title {number}", model="model-a", system_prompt=f"Be {text(300)}"
            )
            last = None
            for turn in range(messages):
                size = chance.choice((5, 20, 60, 200))
                role = ("user", "assistant")[turn % 2]
                last = store.messages.append(name, role=role, content=text(size), client_key=f"{name}-{turn}")
            calls = [{"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}]
            store.messages.append(name, role="assistant", tool_calls=calls)
            body = text(3000)
            store.messages.append(name, role="tool", content=body, tool_call_id="call_1", tool_name="look")
            store.usage.record(name, model="model-a", input_tokens=number, output_tokens=5)
            if number % 5 == 2 and last is not None:
                store.messages.rewind(name, store.messages.append(name, role="user", content="no"), reason="typo")
            if number % 7 == 3:
                store.sessions.branch(name, new_id=f"{name}-side")
            if number % 3 == 1 and messages > 8:
                compacted(store, name, cut_at=5, anchors=(1,), clips={8: SHORT}, summary=f"Summary of {name}.")
                failed(store, name, cut_at=7)
        store.core.write(_what_models_take)
    copy_back(db)
    return db


def _what_models_take(tx: Transaction) -> None:
    tx.execute("INSERT INTO model_windows VALUES ('model-a', 'http://here', 'served', 8192, '{}', 1.8e9)")
    tx.execute("INSERT INTO token_factors VALUES ('model-a', 'http://here', 'estimate', 1.25, 7, 1.8e9)")


def copy_back(db: Path) -> None:
    """Put everything of the WAL into the main file."""
    connection = apsw.Connection(str(db))
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        connection.close()


def leave_wal(db: Path, *, commits: int = 12) -> None:
    """Add messages to the first session, one a commit, and leave them in the WAL."""
    connection = apsw.Connection(str(db))
    try:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.wal_autocheckpoint(0)
        connection.execute("PRAGMA journal_mode = wal").fetchall()
        native = connection.execute("PRAGMA application_id").fetchall() == [(APPLICATION_ID,)]
        for number in range(commits):
            if native:
                (newest,) = connection.execute("SELECT max(id) FROM messages").fetchall()[0]
                (seq,) = connection.execute("SELECT max(seq) FROM messages WHERE session_no = 1").fetchall()[0]
                text, at = f"in the WAL {number}", 1.8e9 + number
                check = row_check(1, "user", "text", text, *(None,) * 8, at, None)
                connection.execute(
                    "INSERT INTO messages (id, session_no, seq, calls, role, content_type, content, created_at, "
                    "row_check) VALUES (?, 1, ?, 1, 'user', 'text', ?, ?, ?)",
                    (int(str(newest)) + 1, int(str(seq)) + 1, text, at, check),
                ).fetchall()
            else:
                connection.execute(
                    "INSERT INTO messages (session_id, role, content, timestamp) SELECT id, 'user', ?, ? FROM sessions "
                    "ORDER BY rowid LIMIT 1", (f"in the WAL {number}", 1.8e9 + number),
                ).fetchall()
    finally:
        connection.close()


def foreign_store(folder: Path, version: str, *, grown: int = 0) -> Path:
    """The fixture of a release, with more sessions when asked."""
    if not grown:
        return unpack(version, folder / "state.db")
    folder.mkdir(parents=True, exist_ok=True)
    db = folder / "state.db"
    db.write_bytes(_grown_content(version, grown))
    return db


@functools.cache
def _grown_content(version: str, sessions: int) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        db = unpack(version, Path(folder) / "state.db")
        grow(db, sessions=sessions)
        return db.read_bytes()


def everything(path: Path) -> dict[Key, Row]:
    """Every row of a sound file, search indexes left out, by table and key."""
    found: dict[Key, Row] = {}
    connection = apsw.Connection(str(path))
    try:
        names = connection.execute(
            "SELECT name, wr FROM pragma_table_list WHERE schema = 'main' AND type = 'table'"
            " AND name NOT LIKE 'sqlite_%' AND name NOT LIKE '%\\_fts%' ESCAPE '\\'"
        ).fetchall()
        for name, without_rowid in names:
            info = connection.execute(f'PRAGMA table_info("{name}")').fetchall()
            cells = CellReader([row[1] for row in info])
            if without_rowid:
                key = [row[1] for row in info if row[5]]
                for row in connection.execute(f'SELECT {cells.sql} FROM "{name}"'):
                    values = cells.named(row)
                    found[name, tuple(values[column] for column in key)] = tuple(values.values())
            else:
                for row in connection.execute(f'SELECT {cells.sql}, rowid FROM "{name}"'):
                    found[name, row[-1]] = tuple(cells.cells(row))
    finally:
        connection.close()
    return found


@dataclass(kw_only=True)
class Outcome:
    """A recovered file beside what was there before the damage."""

    report: Report
    before: dict[Key, Row]
    after: dict[Key, Row]
    # keys of rows that are as they were
    equal: set[Key] = field(default_factory=set)
    # keys of rows that are there with another content
    wrong: set[Key] = field(default_factory=set)
    # keys that were not there before
    invented: set[Key] = field(default_factory=set)
    # what was done to the file
    damage: Damage | None = None

    @property
    def percent(self) -> float:
        """Share of rows that are as they were."""
        return 100 * len(self.equal) / len(self.before)

    def percent_of(self, table: str) -> float:
        """The same for one table."""
        keys = [key for key in self.before if key[0] == table]
        return 100 * sum(key in self.equal for key in keys) / len(keys)

    def flagged(self, key: Key) -> bool:
        """Whether the report says of a row of the result that it may not be what it was."""
        name, rowid = key
        table = self.report.table(name)
        if rowid in table.placeholder_keys:
            return True
        if any(_within(rowid, run) for run in table.uncertain_keys):
            return True
        return any(said.get("table") == name and said.get("key") == rowid for said in self.report.decisions)

    @property
    def unflagged(self) -> list[Key]:
        """Rows that were not there, or were other ones, and that the report calls certain."""
        return sorted(key for key in self.wrong | self.invented if not self.flagged(key))

    @property
    def missed(self) -> set[Key]:
        """Rows from before the damage that are not in the result as they were."""
        return set(self.before) - self.equal


def _within(key: Any, run: dict[str, Any]) -> bool:
    if isinstance(run["first"], int) and isinstance(key, int):
        return bool(run["first"] <= key <= run["last"])
    return bool(key == run["first"])


def compare(report: Report, before: dict[Key, Row], *, ignoring: tuple[str, ...] = ("store", "migrations")) -> Outcome:
    """Hold the result against the rows from before the damage."""
    after = {key: row for key, row in everything(report.output).items() if key[0] not in ignoring}
    before = {key: row for key, row in before.items() if key[0] not in ignoring}
    return Outcome(
        report=report, before=before, after=after,
        equal={key for key, row in before.items() if after.get(key) == row},
        wrong={key for key, row in after.items() if key in before and before[key] != row},
        invented={key for key in after if key not in before},
    )


def untouched(db: Path, table: str, pages: set[int]) -> set[Key]:
    """Rows of a table none of whose bytes lie on the given pages, in a file without a WAL."""
    with DatabaseFile(db) as file:
        found = set()
        for leaf in file.tree(file.object(table).root).leaves:
            for cell in file.cells(leaf):
                if not pages & {page for page, _at, _size in file.spans(cell)}:
                    found.add((table, cell.rowid))
    return found


def damaged_and_recovered(
    db: Path, case: str, *, table: str = "messages", seed: int = 1, native: bool = False
) -> Outcome:
    """Damage a store by name of the case, and recover it."""
    whole = db.with_name("whole.db")
    shutil.copy(db, whole)
    wal = Path(f"{db}-wal")
    if wal.exists():
        shutil.copy(wal, f"{whole}-wal")
    before = everything(whole)
    damage = CASES[case].apply(db, table, seed)
    report = run.recover(db, db.with_name("out.db"), allow_partial=True, native=native)
    outcome = compare(report, before)
    outcome.damage = damage
    return outcome


@pytest.fixture
def little_space(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests need no reserve of 256 MiB on the disk."""
    monkeypatch.setattr(run, "MARGIN_BYTES", 1 << 20)
