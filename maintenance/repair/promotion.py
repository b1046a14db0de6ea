"""Who may be there when the store is replaced, what is kept of it, and the replacement itself.

Invariant: of one damage one copy is kept, and of all damages a bounded number: the oldest whose store was repaired goes
first, and where none may go the repair is refused. The store is replaced only while it still is what was copied: by
size, time and inode, looked at under the exclusive lock.

Not for: how content is replaced (`maintenance.replacement`). Keeping every copy was rejected: users found 29 of 900 MB.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_state.clock import Clock
from hermes_state.errors import LockTimeout, Refused
from hermes_state.shell_words import shell_word
from maintenance.gate.rows import require_exclusive
from maintenance.repair.attempts import REPAIRED, Damage, Memory
from maintenance.replacement import Replaced, replace_content
from maintenance.replacement.alone import require_nobody
from maintenance.replacement.aside import PARTIAL
from maintenance.replacement.marker import remove_note, unfinished
from maintenance.replacement.prepare import remove_working

if TYPE_CHECKING:
    from maintenance.recovery.records import FileFacts, Source

VERB = "sessions repair"
MOST_KEPT = 3
KEPT = ".replaced-damage-"
LOCKED = "locked"


@dataclass(frozen=True, kw_only=True)
class Target:
    """What the gate and the replacement are told of a store."""

    db: Path
    clock: Clock
    # Nobody said which profile it is of, so advice names none.
    profile: str | None = None


def refuse_holders(target: Target) -> None:
    """Raise `StoreHeld` or `GenerationLost` with the names of those who have the store open."""
    require_nobody(target, require_exclusive(VERB, force=False), target.db, None)


def kept_copy(db: Path, damage: Damage, memory: Memory) -> tuple[Path, bool]:
    """Where the damaged store is kept, and whether an earlier attempt at this damage has done so already."""
    folder = damage.kept or db.with_name(f"{db.name}{KEPT}{damage.fingerprint[:12]}")
    found = unfinished(db)
    if found is not None and found.note is not None and not found.running and found.note.state == "kept":
        remove_note(db)  # nothing was changed then, and the copy that the note names is kept for the damage
    if folder.is_dir():
        return folder, True  # a copy has its name only once it is whole
    unfinished_copy = folder.with_name(folder.name + PARTIAL)
    if unfinished_copy.exists():
        shutil.rmtree(unfinished_copy)
    _make_place(db, memory)
    return folder, False


def _make_place(db: Path, memory: Memory) -> None:
    """Let go of the oldest kept copy of a repaired store while there are too many."""
    kept = sorted(db.parent.glob(f"{db.name}{KEPT}*"), key=lambda item: item.stat().st_mtime)
    repaired = {
        damage.kept for damage in memory.damages if damage.attempts and damage.attempts[-1].result == REPAIRED
    }
    for item in list(kept):
        if len(kept) < MOST_KEPT:
            return
        if item in repaired:
            shutil.rmtree(item)
            kept.remove(item)
    if len(kept) >= MOST_KEPT:
        raise Refused(
            f"{len(kept)} copies of damaged states of {db} are kept beside it, and none of them may go by itself.",
            hint=f"Look at them with `hermes-state sessions leftovers --db {shell_word(db)}` and remove what is not "
            "needed.",
            path=db, kept=tuple(kept),
        )


def promote(
    target: Target,
    new: Path,
    source: Source,
    facts: tuple[FileFacts, ...],
    *,
    aside: Path,
    step: Callable[[str], None] = lambda _done: None,
) -> Replaced:
    """Put the proved working file in the store's place. Raises `LockTimeout` when the store changed since the copy.

    `aside` gets the damaged files; `step` hears the name of each step of the replacement.
    """
    from maintenance.recovery.copying import is_unchanged

    # The lock itself writes and removes a journal, and whatever a real one undoes is undone in the database file.
    source = replace(source, journal=None)
    facts = tuple(one for one in facts if one.part != "journal")

    def at(done: str) -> None:
        if done == LOCKED and not is_unchanged(source, facts):
            raise LockTimeout(
                f"{target.db} was written to while its copy was repaired. Nothing was changed.",
                hint="Stop what writes to it, then run the same command again.",
                path=target.db, holders=(), waited_seconds=0.0,
            )
        step(done)

    # `at` has seen to it that nothing was sent since the copy was made: the rows are the store's own.
    return replace_content(target, VERB, new, aside=aside, private=True, own_rows=lambda _kept: True, step=at)


def settle_killed(db: Path) -> bool:
    """Put away the note of a repair that was killed, once the store was found sound: it held the new content already.

    True when there was one. Only under the repair lock.
    """
    found = unfinished(db)
    if found is None or found.note is None or found.running or found.note.verb != VERB:
        return False
    if found.note.working is not None:
        remove_working(Path(found.note.working))
    remove_note(db)
    return True
