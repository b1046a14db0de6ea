"""Every name that this program and hermes-agent make beside a store, and what it is.

Invariant: only names are looked at, nothing is opened. What fits no name here is `unknown` when it is called after the
store, and is not listed otherwise. The files of the store itself are never listed, whatever they are called.

Not for: judging. Asking each module for its own leftovers was rejected: half of the names are another program's.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from hermes_state.conversation.search.layout import index_path
from maintenance.leftovers.records import Found

SIDECARS = ("-wal", "-shm", "-journal")
SNAPSHOTS = "state-snapshots"
BACKUPS = "backups"
# What `maintenance.backups` puts beside a backup.
MANIFEST = ".manifest.json"
_HEX = r"[0-9a-f]+"
_HALF_WRITTEN = re.compile(rf"\..*-[0-9]+\.partial|\..*\.manifest\.json\.{_HEX}", re.DOTALL)

# kind -> what it is, for people
KINDS: dict[str, str] = {
    "capture": "WAL of a lost generation",
    "unfinished_capture": "capture that was interrupted",
    "malformed_backup": "copy that hermes-agent made of a store it took for damaged",
    "quarantined": "file that hermes-agent moved aside because it was zeroed or no database",
    "snapshot": "snapshot of hermes-agent before an update, or by hand",
    "emergency_copy": "copy of hermes-agent before an update, when no snapshot could be made",
    "agent_scratch": "working files of hermes-agent",
    "agent_record": "lock file or record of hermes-agent",
    "backup": "backup",
    "original": "file of hermes-agent that was adopted",
    "replaced": "content that was replaced by a restore, an installed recovery or a repair",
    "unfinished_replaced": "copy of the files before a replacement that was interrupted",
    "replacing": "working copy of a replacement",
    "replacement_note": "note of a replacement that runs or was interrupted",
    "repair_work": "working folder of a repair",
    "repair_record": "record or lock of repairs",
    "recovery_work": "working folder of a recovery",
    "recovered": "result of a recovery",
    "recovery_report": "report of a recovery",
    "recovery_apart": "rows that a recovery could not place",
    "damaged_copy": "copy of damaged files, made by hand as doctor says",
    "adopting": "working copy of an adoption",
    "compact_copy": "working copy of an optimize",
    "working": "working file of this program",
    "marks": "pins and archive marks",
    "ledger": "record of deletes",
    "spool": "turns that wait for the store",
    "owners": "lock files of programs that use the store",
    "search_index": "search index of the store",
    "replication": "state of Litestream",
    "unknown": "unknown",
}
# The folder into which a leftover is moved before it goes, and private copies while one is looked into.
DROPPING = ".leftover-"


def listed(store: Path) -> list[Found]:
    """Everything beside the store at `store`, by path. The store need not be there."""
    folder = store.parent
    try:
        names = sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
    own = {store.name, *(f"{store.name}{ending}" for ending in SIDECARS)}
    rules = _rules(store)
    there = set(names)
    found = []
    for name in names:
        if name in own or _belongs_to(name, there - own):
            continue
        kind = next((kind for pattern, kind in rules if pattern.fullmatch(name)), None)
        if kind is not None and not _is_name_of(folder / name, store):
            found.append(_whole(kind, folder / name))
    return sorted([*found, *_inside(folder)], key=lambda one: one.path)


def _rules(store: Path) -> list[tuple[re.Pattern[str], str]]:
    """Patterns of whole names, the first that fits counts."""
    of, stem, index = re.escape(store.name), re.escape(store.stem), re.escape(index_path(store).name)
    return [
        (re.compile(pattern, re.DOTALL), kind)
        for pattern, kind in (
            (rf"{of}.*\.recovering", "recovery_work"),
            (rf"{of}.*\.recovered\.db(\.partial)?", "recovered"),
            (rf"{of}.*\.recovery\.json", "recovery_report"),
            (rf"{of}.*\.recovery-apart\.jsonl", "recovery_apart"),
            (rf"{of}\.retired-wal-.*\.partial", "unfinished_capture"),
            (rf"{of}\.retired-wal-.*", "capture"),
            (rf"{of}\.malformed-backup-.*", "malformed_backup"),
            (rf"{of}\.(zeroed|notadb)-.*\.bak", "quarantined"),
            (rf"{of}\.pre-update-emergency-.*\.bak", "emergency_copy"),
            (rf"({of})?\.repair-scratch.*|\.backup-staging-.*|hermes-session-recovery-.*", "agent_scratch"),
            (rf"{of}\.(fts_rebuild|repair|quarantine|auto-maintenance)\.lock", "agent_record"),
            (rf"{of}\.repair-attempts\.json", "agent_record"),
            (rf"{of}\.adopting-.*", "adopting"),
            (rf"{of}\.adopted-from-hermes-agent-.*\.db", "original"),
            (rf"{of}\.replaced-.*\.partial", "unfinished_replaced"),
            (rf"{of}\.replaced-.*", "replaced"),
            (rf"{of}\.replacing-.*\.db", "replacing"),
            (rf"{of}\.hermes-state\.replacing\.json", "replacement_note"),
            (rf"{of}\.hermes-state\.repairing", "repair_work"),
            (rf"{of}\.hermes-state\.(repairs\.json|repair\.lock)", "repair_record"),
            (rf"{of}\.hermes-state\.json(\.lock)?", "marks"),
            (rf"{of}\.hermes-state\.ledger\.jsonl", "ledger"),
            (rf"{of}\.hermes-state\.spool", "spool"),
            (rf"{of}\.hermes-state\.litestream\..*|\.{of}-litestream", "replication"),
            (rf"{of}\.damaged-copy", "damaged_copy"),
            (rf"{of}\.compact-copy-.*", "compact_copy"),
            (rf"\.{of}\.hermes-state\..*\.{_HEX}(\.{_HEX})?|\.({of}|{index})\.{_HEX}\.new", "working"),
            (rf"\.(capture|leftover|drill)-.*|\.{of}.*\.[0-9]+\.{_HEX}\.partial", "working"),
            (rf"\.{stem}[.\-].*-[0-9]+\.partial", "working"),
            (index, "search_index"),
            (r"owners", "owners"),
            (rf"{of}[.\-_ ~].*", "unknown"),
        )
    ]


def _belongs_to(name: str, there: set[str]) -> bool:
    """Whether this is the -wal, -shm or -journal of another file that is listed."""
    return any(name.endswith(ending) and name.removesuffix(ending) in there for ending in SIDECARS)


def _is_name_of(path: Path, store: Path) -> bool:
    """Whether it is the store's own file under a second name: then it is no leftover, and doctor says so."""
    for mine in (store, *(Path(f"{store}{ending}") for ending in SIDECARS)):
        try:
            if os.path.samefile(path, mine):
                return True
        except OSError:
            continue
    return False


def _whole(kind: str, path: Path) -> Found:
    parts = [path, *(beside for ending in SIDECARS if (beside := Path(f"{path}{ending}")).exists())]
    return Found(kind=kind, path=path, parts=tuple(parts))


def _inside(folder: Path) -> Iterator[Found]:
    """The single snapshots and backups in their folders."""
    for name, kind in ((SNAPSHOTS, "snapshot"), (BACKUPS, "backup")):
        inside = folder / name
        if not inside.is_dir() or inside.is_symlink():
            continue
        there = set(os.listdir(inside))
        for entry in sorted(there):
            if _belongs_to(entry, there):
                continue
            if entry.startswith(DROPPING) or _HALF_WRITTEN.fullmatch(entry):
                yield _whole("working", inside / entry)
            elif not (entry.endswith(MANIFEST) and entry.removesuffix(MANIFEST) in there):
                found = _whole(kind, inside / entry)
                yield replace(found, parts=(*found.parts, *_manifest(found.path)))


def _manifest(backup: Path) -> list[Path]:
    """The manifest beside a backup, when there is one."""
    beside = Path(f"{backup}{MANIFEST}")
    return [beside] if beside.exists() else []
