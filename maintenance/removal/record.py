"""The ledger lines of one run of a deleting verb.

Invariant: before a transaction that deletes, a line with all its sessions is on the disk; so every delete that
happened has a line, whatever is killed and when. A session that was named and stays after all, or that something else
deleted first, gets a second line that says so. The last line of a run names no session; a run without one was
interrupted, and its last delete may have happened or not: the store knows.

Not for: the file's format (`maintenance.ledger`). A closing line for each transaction was rejected: it doubles the
syncs and tells nothing that the rows in the store do not.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maintenance import ledger
from maintenance.dialects.base import Deed

if TYPE_CHECKING:
    from hermes_state.clock import Clock


def new_run() -> str:
    """A name for one run that no other run has."""
    return secrets.token_hex(8)


def deed_of(verb: str, clock: Clock, reason: str) -> Deed:
    """Who, when and why, as a native store's ledger and feed of changes keep it."""
    return Deed(at=clock.now(), actor=f"hermes-state {verb}, PID {os.getpid()}", reason=reason or verb)


@dataclass(frozen=True, kw_only=True)
class Record:
    """Who deletes, and why; writes the lines."""

    # The store.
    db: Path
    # The verb, as in `maintenance.verbs`.
    verb: str
    # Why, in words.
    reason: str
    # The filters as given.
    filters: Mapping[str, Any]
    # The only source of time.
    clock: Clock
    # The same for all lines of this run.
    run: str = field(default_factory=new_run)

    def deed(self) -> Deed:
        """The same for a ledger that the store itself keeps."""
        return deed_of(self.verb, self.clock, self.reason)

    def before(self, sessions: Sequence[str], messages: int, *, note: str = "") -> None:
        """These go in the transaction that begins next."""
        self._line(f"{self.reason}; {note}" if note else self.reason, sessions, messages)

    def kept(self, sessions: Sequence[str], reason: str) -> None:
        """These were named by an earlier line and stay."""
        self._line(f"kept: {reason}", sessions, 0)

    def gone(self, sessions: Sequence[str]) -> None:
        """These were named by an earlier line; something else deleted them before this run could."""
        self._line("not deleted by this run: already gone", sessions, 0)

    def close(self, outcome: str) -> None:
        """The run has ended."""
        self._line(outcome, (), 0)

    def _line(self, reason: str, sessions: Sequence[str], messages: int) -> None:
        entry = ledger.new_entry(
            verb=self.verb,
            reason=reason,
            filters=self.filters,
            sessions=sessions,
            messages=messages,
            run=self.run,
            now=self.clock.now(),
        )
        ledger.append(self.db, entry)


@dataclass(frozen=True, kw_only=True)
class Interrupted:
    """A run that has no last line."""

    # Its name.
    run: str
    # Its verb.
    verb: str
    # Every session that its lines name.
    sessions: tuple[str, ...]


def interrupted_runs(db: Path) -> tuple[Interrupted, ...]:
    """Runs without a last line whose process has ended; one that still works beside us is not interrupted."""
    open_runs: dict[str, tuple[str, object, dict[str, None]]] = {}
    for line in ledger.read(db):
        run, sessions = str(line.get("run", "")), line.get("sessions") or []
        if not sessions:
            open_runs.pop(run, None)
            continue
        _verb, _pid, named = open_runs.setdefault(run, (str(line.get("verb", "")), line.get("pid"), {}))
        named.update(dict.fromkeys(map(str, sessions)))
    return tuple(
        Interrupted(run=run, verb=verb, sessions=tuple(named))
        for run, (verb, pid, named) in open_runs.items()
        if not _runs_elsewhere(pid)
    )


def _runs_elsewhere(pid: object) -> bool:
    """Whether another process has this number now. A number that was given away again only puts the settling off."""
    if not isinstance(pid, int) or not 0 < pid < 2**31 or pid == os.getpid():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
