"""The files that hermes-agent keeps beside a store for one session.

Invariant: files are removed only after the commit that removed their session, and only those whose whole name says
that they belong to it. Not for: finding files without a session. A glob was rejected: ids are opaque and may hold
wildcards, and a dump of session `a_b` would match those of session `a`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from maintenance.dialects.cells import decode_key, key_bytes

if TYPE_CHECKING:
    from hermes_state.engine import Reader

DUMP_PREFIX = "request_dump_"
FOLDER = "sessions"


class SessionFiles:
    """The `sessions` folder next to a store."""

    def __init__(self, store: Path) -> None:
        self.folder = store.parent / FOLDER
        self._dumps: list[str] | None = None

    def of(self, session_id: str, *, others: Callable[[str], Iterable[str]]) -> list[Path]:
        """Existing files of one session. `others` gives the ids of a store that begin with this one and go on."""
        if not is_a_file_name(session_id):
            return []
        names = [f"{session_id}.json", f"{session_id}.jsonl", f"session_{session_id}.json"]
        found = [self.folder / name for name in names if os.path.lexists(self.folder / name)]
        own = f"{DUMP_PREFIX}{session_id}_"
        dumps = [name for name in self._dump_names() if name.startswith(own) and name.endswith(".json")]
        if dumps:
            foreign = tuple(f"{DUMP_PREFIX}{other}_" for other in others(session_id))
            found += [self.folder / name for name in dumps if not (foreign and name.startswith(foreign))]
        return found

    def remove(self, session_id: str, *, others: Callable[[str], Iterable[str]]) -> int:
        """Remove the files of one session; how many went. One that is already gone counts as nothing."""
        removed = 0
        for path in self.of(session_id, others=others):
            try:
                path.unlink()
            except FileNotFoundError:
                continue
            removed += 1
        return removed

    def _dump_names(self) -> list[str]:
        if self._dumps is None:
            try:
                with os.scandir(self.folder) as entries:
                    self._dumps = sorted(entry.name for entry in entries if entry.name.startswith(DUMP_PREFIX))
            except FileNotFoundError:
                self._dumps = []
        return self._dumps


def is_a_file_name(session_id: str) -> bool:
    """Whether an id can be part of a file's name at all."""
    return bool(session_id) and "/" not in session_id and "\0" not in session_id and os.sep not in session_id


def longer_ids(reader: Reader, session_id: str) -> list[str]:
    """Sessions of the store whose id begins with this one and an underscore: their dumps are not ours to remove."""
    low = key_bytes(f"{session_id}_")
    # The byte after "_" ends the range; ids compare as bytes.
    high = low[:-1] + bytes([low[-1] + 1])
    rows = reader.rows(
        "SELECT CAST(id AS BLOB) FROM sessions WHERE id >= CAST(? AS TEXT) AND id < CAST(? AS TEXT)", (low, high)
    )
    return [decode_key(row[0]) for row in rows]
