"""Whether a leftover may go, and why or why not.

Invariant: a leftover is safe only by proof: it is the same, byte for byte, as a newer one that stays or is itself
proven; or every row in it, and what it says of sessions, was found in a sound store; or it is a working file whose
process is gone and that nobody has touched or opened for a while. What is not known is kept. The ledger, the marks, the
spool, backups and everything of unknown origin are never safe.

Not for: dropping. A limit by age or number was rejected: the newest copy may be the only one that is damaged.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hermes_state.file_lock import CLOSE_ON_EXEC, NO_LINK, try_lock_alone
from maintenance.backups.manifest import manifest_path
from maintenance.leftovers.contents import Live, wal_problem
from maintenance.leftovers.files import File, all_zero, digest, extras, is_alive, open_in, owner_of
from maintenance.leftovers.records import Budget, Found, Holds
from maintenance.output.text import plural
from maintenance.recovery.captures.facts import told

# A working file of a process that is gone here may be in use in another container; then it is touched or open.
QUIET_SECONDS = 3600.0
QUIET_WITHOUT_PID_SECONDS = 86_400.0

COPIES = frozenset({
    "malformed_backup", "quarantined", "snapshot", "emergency_copy", "original", "replaced", "recovered",
    "damaged_copy", "backup",
})
WORKING = frozenset({
    "agent_scratch", "unfinished_replaced", "replacing", "repair_work", "recovery_work", "adopting", "compact_copy",
    "working",
})
KEPT: dict[str, str] = {
    "unfinished_capture": "It may hold rows that are nowhere else, and it cannot be verified.",
    "agent_record": "hermes-agent uses it, and it is small.",
    "replacement_note": "It says what a replacement was doing; the next run of that command removes it.",
    "repair_record": "It says what was tried on which damage; the next repair reads it.",
    "recovery_report": "It is the only record of what a recovery found and lost.",
    "recovery_apart": "It holds rows that a recovery could not place, and they are nowhere else.",
    "marks": "Pins and archive marks are kept nowhere else.",
    "ledger": "It is the record of what was deleted.",
    "spool": "Turns wait there while the store cannot take them.",
    "owners": "Programs that use the store have these locks; those of dead ones are removed when the store is opened.",
    "search_index": "It belongs to the store in use.",
    "replication": "Litestream goes on from it; without it the next start sends the whole store again.",
    "unknown": "Nothing here knows what it is.",
}


@dataclass(frozen=True, kw_only=True)
class Case:
    """Everything that a verdict needs."""

    found: Found
    files: Sequence[File]
    database: Path | None
    holds: Holds | None
    same_as: Path | None
    # the newest of its kind
    newest: bool
    # files of newer leftovers of its kind: name within the leftover -> files
    newer: Mapping[str, Sequence[File]]
    live: Live
    budget: Budget
    now: float


def judge(case: Case) -> tuple[bool, str]:
    """Whether it is safe to drop, and a sentence why."""
    kind = case.found.kind
    strange = next((file for file in case.files if not file.plain), None)
    if strange is not None:
        return False, f"{strange.path} is a link, or another name of the store's own file."
    if kind in KEPT:
        return False, KEPT[kind]
    safe, why = _capture(case) if kind == "capture" else _working(case) if kind in WORKING else _copy(case)
    if safe and case.budget.deep:
        others, _seen = open_in(case.files)
        if others:
            return False, f"It is open in {', '.join(others)}."
    return safe, why


def _capture(case: Case) -> tuple[bool, str]:
    merged = any(file.name == "merged.json" for file in case.files)
    by_rows = _by_rows(case)
    if by_rows is not None:
        return by_rows
    if not merged:
        return False, "Its rows are all in the store, and it was never merged: `sessions captures --merge` notes that."
    return True, "It was merged, and every row in it is in the store."


def _copy(case: Case) -> tuple[bool, str]:
    kind, holds = case.found.kind, case.holds
    if kind == "backup" and (case.same_as is None or not manifest_path(case.same_as).exists()):
        # So the newest verified one always stays: of two that are the same the newer one, with its manifest.
        return False, "Backups are let go by `hermes-state sessions backup --keep N`."
    if case.same_as is not None:
        return True, f"It is the same as {case.same_as.name}, byte for byte, which is newer."
    if kind == "quarantined" and _says_nothing(case):
        return True, "Every byte of it is zero."
    if kind == "original":
        return False, "It is the way back to hermes-agent."
    if kind == "snapshot" and not case.found.path.name.endswith("-pre-update"):
        return False, "It was made by hand."
    if kind in ("snapshot", "emergency_copy") and case.newest:
        return False, "It is the newest one, and the way back from the last update."
    note = _in_note(case)
    if note:
        return False, note
    by_rows = _by_rows(case)
    if by_rows is not None:
        return by_rows
    more = _unmatched(case)
    if more:
        return False, f"It also holds {', '.join(more[:3])}{' and more' if len(more) > 3 else ''}."
    assert holds is not None
    return True, f"Every row in it is in the store ({plural(holds.messages or 0, 'message')})."


def _by_rows(case: Case) -> tuple[bool, str] | None:
    """Why it is not safe by its rows; None when all of them were found in a sound store."""
    holds = case.holds
    if holds is None:
        return False, "There is no database in it that could be compared with the store."
    if holds.lacking_rows:
        return False, f"The store lacks {plural(holds.lacking_rows, 'row')} of it{_least(holds)}."
    if holds.problem:
        return False, f"It cannot be compared with the store: {holds.problem.rstrip('.')}."
    if holds.differing:
        sessions = plural(len(holds.differing), "session")
        return False, f"The store says otherwise of {sessions} in it: {told(holds.differing)}."
    if holds.compared == "counts":
        other = holds.dialect is not None and (holds.dialect == "native") != (case.live.identity is not None)
        how = "its rows cannot be compared, as they are of the other dialect" if other else "--deep compares the rows"
        return False, f"By ids and counts the store has everything in it; {how}."
    if holds.compared == "not":
        return False, "It was not compared with the store."
    if case.database is not None and case.found.kind != "capture" and (problem := wal_problem(case.database)):
        return False, f"It cannot be compared with the store: {problem}."
    if case.live.damage:
        return False, f"The store is damaged ({case.live.damage}), so every copy of it stays."
    return None


def _least(holds: Holds) -> str:
    return "" if holds.compared == "rows" else ", at least" if holds.compared == "counts" else ", which cannot be read"


def _in_note(case: Case) -> str:
    """Whether an unfinished replacement needs it."""
    from maintenance.replacement.marker import unfinished

    found = unfinished(case.live.path)
    if found is None:
        return ""
    if found.note is None or case.found.kind == "replaced" or Path(found.note.new) == case.found.path:
        return f"A replacement of the store did not come to its end: {found.marker.name} speaks of it."
    return ""


def _says_nothing(case: Case) -> bool:
    return case.budget.allows(sum(file.bytes for file in case.files)) and all_zero(case.files)


def _unmatched(case: Case) -> list[str]:
    """Other files in it that no newer one of its kind has with the same content."""
    return [
        file.name for file in extras(case.files, case.database)
        if not any(other.bytes == file.bytes and digest(other.path) == digest(file.path)
                   for other in case.newer.get(file.name, ()) if other.plain)
    ]


def _working(case: Case) -> tuple[bool, str]:
    kind, path = case.found.kind, case.found.path
    pid = owner_of(path)
    if pid is not None and is_alive(pid):
        return False, f"PID {pid}, which made it, is running, or another process has that number now."
    if kind == "recovery_work":
        if _is_locked(path / "lock"):
            return False, "A recovery is running in it."
        if not path.with_name(path.name.removesuffix(".recovering")).exists():
            return False, "A recovery was interrupted; the same command goes on from it."
    if kind == "repair_work":
        from maintenance.repair.lock import running_repair

        if running_repair(case.live.path) is not None:
            return False, "A repair is running in it."
    note = _in_note(case) if kind in ("replacing", "unfinished_replaced") else ""
    if note:
        return False, note
    quiet = case.now - max((file.modified_at for file in case.files), default=_folder_time(path, case.now))
    needed = QUIET_SECONDS if pid is not None else QUIET_WITHOUT_PID_SECONDS
    if quiet < needed:
        return False, f"It was changed less than {'an hour' if pid is not None else 'a day'} ago."
    others, seen = open_in(case.files)
    if others:
        return False, f"It is open in {', '.join(others)}."
    if not seen and pid is None:
        return False, "Not every process can be seen from here, and one of them may use it."
    return True, "It is a working copy of a run that was interrupted; nothing reads it again."


def _folder_time(path: Path, now: float) -> float:
    try:
        return path.lstat().st_mtime
    except FileNotFoundError:
        return now


def _is_locked(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDWR | CLOSE_ON_EXEC | NO_LINK)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # it cannot be told
    try:
        return not try_lock_alone(descriptor)
    finally:
        os.close(descriptor)
