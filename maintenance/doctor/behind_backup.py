"""A whole store that holds less than its newest verified backup: an older file stands in its place, or rows are gone.

Invariant: ids of messages never go back in a store that is written to, so one that never reached the highest id of its
own backup is not the store that was backed up. That is said as a problem; fewer sessions than that backup only as a
note, since hermes-agent deletes sessions without a record. What a restore, a recovery or a repair put there on purpose
is not compared with a backup of before.

Not for: damage inside a file, and what the backup holds (`backups.content`): only its manifest is read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from hermes_state.clock import Clock
from hermes_state.engine import Reader
from hermes_state.errors import BackupDamaged, LedgerDamaged
from hermes_state.shell_words import shell_word
from maintenance.backups.catalog import backups_of
from maintenance.backups.manifest import Manifest, read_manifest
from maintenance.dialects.native.shape import native_identity
from maintenance.doctor.findings import Finding, Severity, command
from maintenance.ledger import deleted_at
from maintenance.output.text import human_time, plural, rfc3339
from maintenance.replacement.aside import MARK


def behind_findings(reader: Reader, clock: Clock) -> Iterator[Finding]:
    """What the store lacks that its newest backup has."""
    found = _newest(reader.path)
    if found is None:
        return
    backup, manifest = found
    if not _still_the_same(reader, manifest):
        return
    made = human_time(manifest.created_at, clock)
    highest, reached = manifest.content.highest_message_id or 0, _reached(reader)
    if reached < highest:
        yield Finding(
            code="behind_backup",
            severity=Severity.WARNING,
            object=str(reader.path),
            sentence=f"The store never had a message with an id above {reached:,}, and its backup of {made} has one "
            f"with {highest:,}: an older copy stands in its place, or its newest rows were lost.",
            facts={"backup": str(backup), "highest_in_backup": highest, "highest_here": reached},
            next_command=command("sessions restore", reader.path, shell_word(backup), "--dry-run"),
        )
        return
    rows = reader.row("SELECT count(*) FROM sessions")
    have = int(rows[0]) if rows else 0
    gone = _deleted_since(reader, manifest)
    missing = manifest.content.sessions - gone - have
    if missing > 0:
        yield Finding(
            code="fewer_than_backup",
            severity=Severity.INFO,
            object="sessions",
            sentence=f"The store has {plural(missing, 'session')} fewer than its backup of {made}, and no record of a "
            "delete says why; hermes-agent keeps none of what it prunes.",
            facts={"backup": str(backup), "sessions_in_backup": manifest.content.sessions, "sessions_here": have,
                   "deleted_since": gone},
            next_command=command("sessions leftovers", reader.path, "--deep"),
        )


def _newest(store: Path) -> tuple[Path, Manifest] | None:
    """The newest backup whose manifest can be read."""
    for backup in reversed(backups_of(store)):
        try:
            manifest = read_manifest(backup)
        except (BackupDamaged, OSError):
            continue
        if manifest is not None:
            return backup, manifest
    return None


def _still_the_same(reader: Reader, manifest: Manifest) -> bool:
    """Whether nothing replaced the content on purpose after the backup: its numbers hold for this store."""
    identity = native_identity(reader)
    if (identity is None) != (manifest.content.dialect == "hermes-agent"):
        return False
    if identity is not None:
        return (identity.store_id, identity.incarnation) == (manifest.content.store_id, manifest.content.incarnation)
    real = Path(os.path.realpath(reader.path))
    return not any(
        item.stat().st_mtime >= manifest.created_at for item in real.parent.glob(f"{_literal(real.name)}{MARK}*")
    )


def _literal(name: str) -> str:
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def _reached(reader: Reader) -> int:
    """The highest id that a message of the store ever had, as far as the store knows."""
    numbers = ["SELECT max(id) FROM messages"]
    if native_identity(reader) is not None:
        numbers.append("SELECT message_floor FROM store")
    elif reader.row("SELECT 1 FROM sqlite_schema WHERE name = 'sqlite_sequence'"):
        numbers.append("SELECT seq FROM sqlite_sequence WHERE name = 'messages'")
    rows = [reader.row(sql) for sql in numbers]
    return max((row[0] for row in rows if row is not None and isinstance(row[0], int)), default=0)


def _deleted_since(reader: Reader, manifest: Manifest) -> int:
    """Sessions that a record says were deleted after the backup."""
    if native_identity(reader) is not None:
        row = reader.row(
            "SELECT sum(json_array_length(keys)) FROM deletions WHERE kind = 'session' AND made_at >= ?",
            (manifest.created_at,),
        )
        return int(row[0] or 0) if row else 0
    since = rfc3339(manifest.created_at) or ""
    try:
        return sum(at >= since for at in deleted_at(reader.path).values())
    except LedgerDamaged:
        return 0  # said by the look at the files beside the store
