"""`sessions restore --drill`: proof that a backup gives a store back, without touching the live one.

Invariant: the backup goes the whole way of a restore, into a folder of its own beside the backup, is opened through the
library, examined by `doctor`, and every table is compared with the manifest; the folder is gone afterwards, whatever
happened. Not for: the live store, which is not even looked at.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_state.clock import SYSTEM, Clock
from hermes_state.engine import open_read
from hermes_state.errors import BackupDamaged
from maintenance.backups.catalog import PARTIAL, alive
from maintenance.backups.content import content_of
from maintenance.backups.making import hearing
from maintenance.backups.restoring import VERB
from maintenance.backups.staging import staged
from maintenance.replacement.replace import replace_content
from maintenance.replacement.where import Place

if TYPE_CHECKING:
    from maintenance.gate.doors import Scanner
    from maintenance.replacement.replace import Progress

# What a restore changes on purpose: incarnation and id floors, and the fences of leases.
CHANGED = frozenset({"store", "leases"})


@dataclass(frozen=True, kw_only=True)
class Drilled:
    """What the drill showed."""

    backup: Path  # which one
    verified: bool  # whether a manifest proved it; without one the file speaks for itself
    sessions: int  # session rows that came back
    messages: int  # message rows that came back
    tables: int  # tables compared
    findings: tuple[str, ...]  # problems that doctor sees in it, such as a search index; none is damage of rows
    seconds: float  # in all

    def document(self) -> dict[str, Any]:
        """The fields of `--json`."""
        return {
            "backup": str(self.backup), "verified_by_manifest": self.verified, "sessions": self.sessions,
            "messages": self.messages, "tables": self.tables, "findings": list(self.findings),
            "seconds": round(self.seconds, 3),
        }


def drill(
    backup: Path | str, *, passphrase: str | Callable[[], str] | None = None, progress: Progress | None = None,
    cancel: Callable[[], bool] | None = None, clock: Clock = SYSTEM, scanner: Scanner | None = None,
) -> Drilled:
    """Restore `backup` into a temporary folder beside it and check everything.

    Raises `BackupDamaged` (65) when what comes back is not what was backed up, and what `restore` raises.
    """
    started = clock.monotonic()
    source = Path(os.path.abspath(backup))
    say = hearing(source, progress, cancel)
    folder = source.with_name(f".{source.name}-drill-{os.getpid()}{PARTIAL}")
    _remove_killed(source)
    with staged(source, source.with_name(f"{source.name}-drill"), passphrase=passphrase, say=say) as found:
        folder.mkdir(mode=0o700)
        try:
            db = folder / "state.db"
            replace_content(
                Place(db=db, clock=clock), VERB, found.path, private=True, progress=say, scanner=scanner or _nobody,
                own_rows=lambda _kept: True,  # nothing is sent from here, and what it owes is compared
            )
            findings = _examined(db, source, clock)
            with open_read(db, clock=clock) as store:
                content = content_of(store, lambda rows: say("comparing what came back", rows, None))
            wanted = found.content
            for name in wanted.tables.keys() - CHANGED:
                if content.tables.get(name) != wanted.tables[name]:
                    raise _not_given_back(source, f"the table {name} came back with other content")
            if wanted.dialect == "native":
                _opened(db)
        finally:
            shutil.rmtree(folder)
    return Drilled(
        backup=source, verified=found.manifest is not None, sessions=content.sessions, messages=content.messages,
        tables=len(content.tables), findings=findings, seconds=clock.monotonic() - started,
    )


def _examined(db: Path, backup: Path, clock: Clock) -> tuple[str, ...]:
    from maintenance.doctor.examine import Options, examine
    from maintenance.doctor.findings import Severity

    found = examine(db, db.parent, Options(), clock=clock)
    # A search index is as it was in the store: it can be built anew, and says nothing about what came back.
    damage = [item for item in found.findings if item.severity is Severity.DAMAGE and not item.derived]
    if damage:
        raise _not_given_back(backup, damage[0].sentence.replace(str(db), "the restored store"))
    return tuple(
        finding.sentence.replace(str(db), "the restored store") for finding in found.findings
        if finding.severity >= Severity.WARNING
    )


def _opened(db: Path) -> None:
    """Through the library, as a program would."""
    from hermes_state.store import open_store

    open_store(path=db).close()


def _not_given_back(backup: Path, what: str) -> BackupDamaged:
    return BackupDamaged(
        f"{backup} does not give the store back: {what}.", hint="Make a new backup now, and drill that.", path=backup
    )


def _remove_killed(source: Path) -> None:
    """Folders of drills that were killed."""
    literal = "".join(f"[{letter}]" if letter in "*?[" else letter for letter in source.name)
    for folder in source.parent.glob(f".{literal}-drill-*{PARTIAL}"):
        pid = folder.name.removesuffix(PARTIAL).rpartition("-")[2]
        if pid.isdigit() and not alive(int(pid)):
            shutil.rmtree(folder)


def _nobody(path: Path, _alone: object = None) -> Any:
    """The temporary store is in a folder that was made just now; nobody else knows it."""
    from lockowners import Scan

    return Scan(
        path=path, holders=(), hidden=(), excluded_count=0, complete=True, method="procfs", namespace_note="",
        elapsed_seconds=0.0,
    )
