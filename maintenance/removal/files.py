"""The files that hermes-agent keeps beside a store for one session.

Invariant: files are removed only after the commit that removed their session, and only those whose whole name says
that they belong to it. Not for: finding files without a session. A glob was rejected: ids are opaque and may hold
wildcards, and a dump of session `a_b` would match those of session `a`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

DUMP_PREFIX = "request_dump_"
FOLDER = "sessions"


class SessionFiles:
    """The `sessions` folder next to a store."""

    def __init__(self, store: Path, ids_with_prefix: Callable[[str], Iterable[str]]) -> None:
        """`ids_with_prefix` gives the ids of the store that begin with a text."""
        self.folder = store.parent / FOLDER
        self._ids_with_prefix = ids_with_prefix
        self._dumps: list[str] | None = None

    def of(self, session_id: str) -> list[Path]:
        """Existing files of one session."""
        if not is_a_file_name(session_id):
            return []
        names = [f"{session_id}.json", f"{session_id}.jsonl", f"session_{session_id}.json"]
        found = [self.folder / name for name in names if os.path.lexists(self.folder / name)]
        own = f"{DUMP_PREFIX}{session_id}_"
        dumps = [name for name in self._dump_names() if name.startswith(own) and name.endswith(".json")]
        if dumps:
            # Dumps of a session whose id begins with this one and goes on are not this one's.
            others = tuple(f"{DUMP_PREFIX}{other}_" for other in self._ids_with_prefix(f"{session_id}_"))
            found += [self.folder / name for name in dumps if not name.startswith(others)]
        return found

    def remove(self, session_id: str, left: list[str]) -> int:
        """Remove the files of one session; how many went. One that is already gone counts as nothing.

        One that cannot be removed is added to `left` with the reason: its session is gone, and stopping here would stop
        every later run at the same file.
        """
        removed = 0
        for path in self.of(session_id):
            try:
                path.unlink()
            except FileNotFoundError:
                continue
            except OSError as problem:
                left.append(f"{path}: {problem.strerror}")
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
