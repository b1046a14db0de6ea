"""Adoption for tests: the verb in a process of its own, and files of layouts that no installable release writes yet.

Invariant: the newer layouts are made from a real 0.19.0 file by the columns, tables and indexes that their facts name;
nothing is imitated but their shape.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import apsw

from lockowners import Scan
from maintenance.interop.adopt import flow
from maintenance.interop.adopt.report import AdoptReport
from maintenance.verbs import VERBS, Access, Verb
from tests.maintenance.damage import change
from tests.maintenance.external_layout import convert
from tests.support.cli import Result, RunCli
from tests.support.space import context

# The same row that the table of verbs has; here for as long as a test runs without it.
ROW = Verb("maintenance.commands.adopt", Access.EXCLUSIVE, "Turn a file of hermes-agent into a native store.")
VERBS.setdefault(flow.VERB, ROW)

_PROMPT = "You are the assistant of a newer release."
_TOOLS = '["read_file","shell"]'


def sha(text: str) -> str:
    """How newer releases name a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def nobody(path: Path, _alone: object = None) -> Scan:
    """A scan that saw every process, and none that has the store open."""
    return Scan(
        path=path, holders=(), hidden=(), excluded_count=0, complete=True, method="procfs", namespace_note="",
        elapsed_seconds=0.0,
    )


def adopt_in_place(db: Path) -> AdoptReport:
    """The work of the verb, on a machine where every process can be seen."""
    ctx = context(db)
    return flow.adopt_in_place(ctx, flow.make_plan(ctx, None), scanner=nobody)


def adopt_to(db: Path, target: Path) -> AdoptReport:
    """The work of the verb with --to."""
    ctx = context(db)
    return flow.adopt_to(ctx, flow.make_plan(ctx, target), target)


def query(db: Path, sql: str, *params: object) -> list[tuple[Any, ...]]:
    """Rows of a private file that nobody has open; no sidecar stays."""
    connection = apsw.Connection(str(db))
    try:
        return connection.execute(sql, params).fetchall()
    finally:
        connection.close()


def typed(db: Path, table: str, order: str = "1") -> list[tuple[Any, ...]]:
    """Every cell of a table with its type and its bytes in hexadecimal."""
    connection = apsw.Connection(str(db))
    try:
        names = [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")').fetchall()]
        cells = ", ".join(f'typeof("{name}"), hex("{name}")' for name in names)
        return connection.execute(f'SELECT {cells} FROM "{table}" ORDER BY {order}').fetchall()
    finally:
        connection.close()


def newest_layout(db: Path) -> Path:
    """Turn a private copy of the 0.19.0 file into one with schema 31: columns, tables, triggers and search layout."""
    convert(db)
    change(
        db,
        "UPDATE schema_version SET version = 31",
        "CREATE TABLE system_prompts(hash TEXT PRIMARY KEY, prompt TEXT NOT NULL)",
        f"INSERT INTO system_prompts VALUES ('{sha(_PROMPT)}', '{_PROMPT}')",
        f"INSERT INTO system_prompts VALUES ('{sha(_TOOLS)}', '{_TOOLS}')",
        f"INSERT INTO system_prompts VALUES ('{sha('nobody uses this')}', 'nobody uses this')",
        "INSERT INTO system_prompts VALUES ('not-a-hash', 'a prompt under a name of its own')",
        *(
            f"ALTER TABLE sessions ADD COLUMN {column}"
            for column in (
                "created_source TEXT", "system_prompt_hash TEXT REFERENCES system_prompts(hash)", "title_source TEXT",
                "git_metadata_generation INTEGER NOT NULL DEFAULT 0", "last_activity_at REAL",
                "last_activity_description TEXT", "last_activity_provenance TEXT",
                "compression_ineffective_count INTEGER NOT NULL DEFAULT 0", "compression_recovery_deadline REAL",
                "compression_overload_streak INTEGER NOT NULL DEFAULT 0", "transport_profile TEXT",
                "auto_archived INTEGER NOT NULL DEFAULT 0", "pinned INTEGER NOT NULL DEFAULT 0",
                "hidden INTEGER NOT NULL DEFAULT 0", "last_read_at REAL", "tool_names TEXT",
                "runtime_generation INTEGER", "runtime_revision INTEGER",
            )
        ),
        *(
            f"ALTER TABLE messages ADD COLUMN {column}"
            for column in (
                "_compressed_summary INTEGER NOT NULL DEFAULT 0", "display_kind TEXT", "display_metadata TEXT",
                "display_identity BLOB", "display_order INTEGER", "message_uid TEXT", "absorbed_message_uids TEXT",
                "tool_call_uids TEXT", "tool_call_uid TEXT",
            )
        ),
        "CREATE TABLE conversation_generations(source TEXT, session_key TEXT, generation INTEGER NOT NULL,"
        " PRIMARY KEY (source, session_key)) WITHOUT ROWID",
        "INSERT INTO conversation_generations VALUES ('telegram', 'k', 7), ('cli', 'a', 1)",
        "CREATE TABLE gateway_hygiene_state(session_key TEXT PRIMARY KEY, failure_streak INTEGER)",
        "CREATE TABLE gateway_heartbeats(backend_id TEXT PRIMARY KEY, pid INTEGER, started_at REAL,"
        " last_heartbeat REAL, profile TEXT DEFAULT '', host TEXT DEFAULT '')",
        "INSERT INTO gateway_heartbeats VALUES ('b', 4711, 1.5, 2.5, '', 'h')",
        "CREATE TABLE session_turn_leases(conversation_id TEXT PRIMARY KEY, holder TEXT, acquired_at REAL,"
        " expires_at REAL)",
        "CREATE TABLE runtime_epoch(epoch INTEGER, instance_id TEXT)",
        "INSERT INTO runtime_epoch VALUES (3, 'i')",
        "CREATE TABLE session_admissions(seq INTEGER PRIMARY KEY AUTOINCREMENT, admission_id TEXT,"
        " target_session_id TEXT REFERENCES sessions(id) ON DELETE RESTRICT, payload_json TEXT, status TEXT)",
        "INSERT INTO session_admissions SELECT 41, 'adm', id, '{\"a\":1}', 'terminal' FROM sessions LIMIT 1",
        "CREATE TRIGGER sessions_runtime_ledger_delete_guard BEFORE DELETE ON sessions WHEN EXISTS (SELECT 1 FROM"
        " session_admissions WHERE target_session_id = old.id)"
        " BEGIN SELECT RAISE(ABORT, 'a newer Hermes is required'); END",
        "CREATE INDEX idx_sessions_system_prompt_hash ON sessions(system_prompt_hash)",
        f"UPDATE sessions SET system_prompt = NULL, system_prompt_hash = '{sha(_PROMPT)}', tool_names = '{sha(_TOOLS)}'"
        " WHERE rowid <= 4",
        "UPDATE sessions SET system_prompt_hash = 'not-a-hash' WHERE rowid = 5",
        "UPDATE sessions SET system_prompt_hash = 'dangling', system_prompt = 'the fallback' WHERE rowid = 6",
        f"UPDATE sessions SET system_prompt = 'both', system_prompt_hash = '{sha(_PROMPT)}' WHERE rowid = 7",
        "UPDATE sessions SET pinned = 1, title_source = 'llm' WHERE rowid = 1",
        "UPDATE sessions SET hidden = 1, title_source = 'branch_fallback' WHERE rowid = 2",
        "UPDATE sessions SET archived = 1, auto_archived = 1, last_activity_at = 1.9e9 WHERE rowid = 3",
        "UPDATE messages SET display_identity = randomblob(32), display_order = id * 10, display_kind = 'text',"
        " display_metadata = '{\"k\": 1}', message_uid = 'uid-' || id WHERE id % 2",
        "INSERT OR REPLACE INTO state_meta VALUES ('db_file_generation', 'abcdef0123456789')",
        "PRAGMA application_id = 305441741",
    )
    return db


class AdoptCli:
    """`hermes-state sessions adopt …` in a process of its own."""

    def __init__(self, run_cli: RunCli) -> None:
        self._run = run_cli

    def __call__(self, db: Path, *args: object, input: str | None = None) -> Result:
        began = time.perf_counter()
        done = subprocess.run(
            self._command(db, *args), env=self._run.environment(), capture_output=True, timeout=120,
            input=(input or "").encode(),
        )
        return Result(
            exit_code=done.returncode, stdout=done.stdout.decode(), stderr=done.stderr.decode(),
            elapsed_seconds=time.perf_counter() - began,
        )

    def on_a_terminal(self, db: Path, said: str) -> tuple[int, str]:
        """The verb with a terminal for its question, which is answered with `said`; exit status and all it showed."""
        import pty

        ours, theirs = pty.openpty()
        with os.fdopen(ours, "wb", buffering=0) as keyboard:
            running = subprocess.Popen(
                self._command(db), env=self._run.environment(), stdin=theirs, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            os.close(theirs)
            keyboard.write(said.encode() + b"\n")
            shown, _ = running.communicate(timeout=120)
        return running.returncode, shown.decode()

    def _command(self, db: Path, *args: object) -> list[str]:
        start = (
            "import sys; import tests.maintenance.adopting; import maintenance.entry as it;"
            " sys.argv[0] = 'hermes-state'; sys.exit(it.hermes_state())"
        )
        return [sys.executable, "-P", "-c", start, "sessions", "adopt", "--db", str(db), *map(str, args)]


