"""The manifest beside a backup: what it is, what is in it, and the hashes that prove both.

Invariant: a manifest is written after its backup was verified and has its name, whole and synced; so a backup with a
manifest is a verified one. Not for: message text. Nothing of a conversation is in it but ids, so that it may lie beside
an encrypted backup.
"""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hermes_state.errors import BackupDamaged
from hermes_state.flushing import sync_folder
from maintenance.backups.content import Content, TableContent

FORMAT = 1
ENDING = ".manifest.json"


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What is known of one backup."""

    file: str  # its name, without a folder
    bytes: int  # its size
    sha256: str  # of the file as it lies there
    sealed: bool  # whether it is encrypted
    plain_bytes: int  # size of the database file inside; the same as `bytes` unless sealed
    plain_sha256: str  # of the database file inside
    created_at: float  # epoch seconds UTC: the state of the store at that moment
    store: str  # path of the store that it was made from
    page_size: int  # bytes
    journal_mode: str  # of the store
    foreign_key_problems: int  # rows that refer to a row that is not there, in the store as in the backup
    compared: bool  # whether every table was compared with the store; False for one in rollback mode
    tool_version: str  # release of hermes-state that made it
    content: Content  # what is in it
    # Ids of sessions whose pin or archive mark lies beside the store, because its file has no column for it.
    pinned: tuple[str, ...] = ()
    archived: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """The file's JSON, and what `--json` shows."""
        return {"format": FORMAT, **asdict(self)}


def manifest_path(backup: Path) -> Path:
    """The manifest of a backup."""
    return backup.with_name(f"{backup.name}{ENDING}")


def read_manifest(backup: Path) -> Manifest | None:
    """The manifest of a backup, None when there is none. Raises `BackupDamaged` for one that cannot be read."""
    path = manifest_path(backup)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    try:
        found: dict[str, Any] = json.loads(text)
        if found.pop("format") != FORMAT:
            raise ValueError(f"its format is not {FORMAT}")
        content: dict[str, Any] = found.pop("content")
        tables = {name: TableContent(**table) for name, table in content.pop("tables").items()}
        found |= {mark: tuple(map(str, found.get(mark, ()))) for mark in ("pinned", "archived")}
        return Manifest(content=Content(tables=tables, **content), **found)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BackupDamaged(
            f"The manifest {path} cannot be read: {error}.",
            hint="Move it away to restore the backup without it: everything but its hashes is checked then.", path=path,
        ) from error


def write_manifest(backup: Path, manifest: Manifest) -> None:
    """Put the manifest beside its backup."""
    target = manifest_path(backup)
    staged = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        with os.fdopen(os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as out:
            json.dump(manifest.document(), out, indent=1)
            out.flush()
            os.fsync(out.fileno())
        os.replace(staged, target)
    finally:
        staged.unlink(missing_ok=True)
    sync_folder(target.parent)
