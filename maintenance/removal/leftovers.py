"""What a killed run left: files of sessions whose rows are gone, and a ledger run without its last line.

Invariant: only sessions that a ledger line of this store names and that the store no longer has lose their files and
marks. Sessions that are still there are left to the filters: nothing is deleted because an old run meant to.

Not for: files that no ledger line explains. Settling without the ledger, by looking for files without a row, was
rejected: hermes-agent writes a session's file before its row when the store is busy.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from maintenance.dialects.cells import chunks
from maintenance.marks import forget_sessions
from maintenance.output.text import plural
from maintenance.removal.files import SessionFiles
from maintenance.removal.record import Interrupted, Record, interrupted_runs

if TYPE_CHECKING:
    from hermes_state.clock import Clock
    from hermes_state.engine import Reader
    from maintenance.dialects.base import Dialect


@dataclass(frozen=True, kw_only=True)
class Settled:
    """What was settled."""

    # Interrupted runs that got their last line.
    runs: int = 0
    # Files beside the store that went.
    files: int = 0
    # Files that could not be removed, with the reason.
    files_left: tuple[str, ...] = ()


def settle_interrupted(reader: Reader, dialect: Dialect, clock: Clock) -> Settled:
    """Finish what interrupted runs had committed. Call it with the store open for a verb that deletes."""
    runs = interrupted_runs(reader.path)
    left: list[str] = []
    files = sum(_settle(reader, dialect, clock, run, left) for run in runs)
    return Settled(runs=len(runs), files=files, files_left=tuple(left))


def _settle(reader: Reader, dialect: Dialect, clock: Clock, run: Interrupted, left: list[str]) -> int:
    here: set[str] = set()
    for some in chunks(run.sessions):
        here.update(dialect.sessions(reader, some))
    gone = [key for key in run.sessions if key not in here]
    forget_sessions(reader.path, gone)
    beside = SessionFiles(reader.path, partial(dialect.ids_with_prefix, reader))
    files = sum(beside.remove(key, left) for key in gone)
    record = Record(db=reader.path, verb=run.verb, reason="", filters={}, clock=clock, run=run.run)
    record.close(f"interrupted; of {plural(len(run.sessions), 'session')} named, {len(gone)} gone")
    return files
