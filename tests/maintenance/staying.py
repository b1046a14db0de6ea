"""What is done to a store of which something must stay where it is: sessions moved and deleted, an index repaired."""

from __future__ import annotations

from pathlib import Path

from hermes_state import open_store
from tests.maintenance.backups.making import query, tidy
from tests.support.cli import RunCli


def sent_across(db: Path, folder: Path, run_cli: RunCli, *, never: str) -> Path:
    """A new store that has all sessions, by their lines and straight; `never` is in no line."""
    other = folder / "other" / "state.db"
    with open_store(path=other):
        pass
    lines = folder / "talk.jsonl"
    assert run_cli("sessions", "export", lines, "--all-messages", "--include-archived", "--db", db).exit_code == 0
    assert never not in lines.read_text()
    for source in (lines, db):
        ran = run_cli("sessions", "import", source, "--from", "hermes-state", "--yes", "--db", other, "--json")
        assert ran.exit_code == 0, ran.stderr
    return other


def pruned(db: Path, run_cli: RunCli) -> None:
    """Without sessions, and rewritten."""
    for verb in (("prune", "--older-than", "1", "--yes", "--allow-large"), ("optimize", "--offline")):
        ran = run_cli("sessions", *verb, "--db", db)
        assert ran.exit_code == 0, ran.stderr


def repaired(db: Path, index: str, run_cli: RunCli) -> None:
    """With an index whose root was zeroed, and repaired."""
    (root,) = query(db, f"SELECT rootpage FROM sqlite_schema WHERE name = '{index}'")[0]
    with tidy(db).open("r+b") as file:
        file.seek((root - 1) * 4096)
        file.write(bytes(4096))
    ran = run_cli("sessions", "repair", "--yes", "--db", db, "--json")
    assert ran.exit_code == 0, ran.stderr
