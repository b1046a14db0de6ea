"""Exports for hermes-agent's own import: within its limits, in files to import one after the other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hermes_state.engine import open_read
from hermes_state.store import open_store
from maintenance.dialects.detect import dialect_of
from maintenance.interop.to_hermes_agent import Limits, Tally
from maintenance.lineage import Forest
from maintenance.reading.export.for_hermes_agent import Handed
from maintenance.reading.export.items import Chosen
from tests.support.cli import RunCli

pytestmark = pytest.mark.slow


@pytest.fixture
def db(tmp_path: Path) -> Path:
    path = tmp_path / "home" / "state.db"
    with open_store(path=path) as store:
        for name, count in (("a", 2), ("b", 2), ("c", 4)):
            store.sessions.create(id=name, source="cli")
            for number in range(count):
                store.messages.append(name, role="user", content=f"{name} {number}")
        store.messages.append("a", role="assistant", content=None, tool_calls=[{"id": "c1", "type": "function"}])
        store.messages.rewind("b", 4)
    return path


def test_lines_are_what_the_import_takes_and_hidden_messages_are_counted(
    db: Path, run_cli: RunCli, tmp_path: Path
) -> None:
    target = tmp_path / "out.jsonl"
    told = run_cli("sessions", "export", target, "--format", "hermes-agent")
    assert (told.exit_code, told.stderr) == (0, "1 rewound or compacted message left out.\n")
    assert told.stdout.startswith(f"Wrote 3 sessions, 8 messages to {target} (")
    found = {line["id"]: line for line in map(json.loads, target.read_text().splitlines())}
    assert [message["content"] for message in found["b"]["messages"]] == ["b 0"]
    assert found["a"]["messages"][-1]["tool_calls"] == [{"id": "c1", "type": "function"}]
    assert (found["a"]["message_count"], found["a"]["tool_call_count"]) == (3, 1)
    piped = run_cli("sessions", "export", "-", "--format", "hermes-agent")
    assert piped.stdout == target.read_text()


def test_more_than_one_import_takes_becomes_numbered_files_and_too_large_sessions_are_named(
    db: Path, tmp_path: Path
) -> None:
    with open_read(db) as store:
        dialect, tally = dialect_of(store), Tally()
        chosen = Chosen(forest=Forest([]), ids=("a", "b", "c"))
        handed = Handed(
            store=store,
            dialect=dialect,
            chosen=chosen,
            redactor=None,
            tally=tally,
            limits=Limits(sessions=1, session_messages=3),
        )
        files = handed.write(tmp_path / "out.jsonl", db, force=False)
    assert [file.path.name for file in files] == ["out.jsonl", "out-2.jsonl"]
    assert [json.loads(file.path.read_text())["id"] for file in files] == ["a", "b"]
    assert [(one.id, one.messages) for one in tally.too_large] == [("c", 4)]


@pytest.mark.parametrize(
    "options", [("--all-messages",), ("--only", "user-prompts"), ("--lineage", "logical"), ("--since-id", "0")]
)
def test_it_takes_whole_sessions_only(options: tuple[str, ...], db: Path, run_cli: RunCli) -> None:
    refused = run_cli("sessions", "export", "-", "--format", "hermes-agent", *options)
    assert refused.exit_code == 2
    assert refused.stderr.splitlines()[0].startswith(f"Error: --format hermes-agent does not go with {options[0]}")
