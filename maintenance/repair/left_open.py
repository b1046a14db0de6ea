"""Whether a killed repair left something behind that the next one has to end, although the store is sound.

Invariant: only the files that a repair leaves are looked at.

Not for: ending it (`flow`), which looks at the store again under the repair lock.
"""

from __future__ import annotations

from pathlib import Path

from maintenance.repair import attempts
from maintenance.repair.promotion import VERB
from maintenance.repair.work import work_folder
from maintenance.replacement.marker import unfinished


def left_open(db: Path) -> bool:
    """A note of its replacement, its working folder, or an attempt of which no end is known."""
    found = unfinished(db)
    noted = found is not None and found.note is not None and found.note.verb == VERB and not found.running
    if noted or work_folder(db).exists():
        return True
    damages = attempts.read_memory(db).damages
    return bool(damages and damages[-1].attempts and damages[-1].attempts[-1].result == attempts.RUNNING)
