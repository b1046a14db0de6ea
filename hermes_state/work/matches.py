"""Matches of a process's output: decided by `watching`, told through the outbox.

Invariant: what is told and what is known of it afterwards are one transaction, and the decision is made inside it. The
number of lines that were held back is in memory until something is told: it is for people, and a kill may lose it.

Not for: matching. Writing every match that is held back was rejected: a chatty process would write without end.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hermes_state.outbox.records import read
from hermes_state.outbox.settling import end_pending
from hermes_state.outbox.states import Event
from hermes_state.work import background_rows as rows
from hermes_state.work.background import Process
from hermes_state.work.states import PROGRESS, WATCH, Mode
from hermes_state.work.watching import ALL_SECONDS, Match, after, decide

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction

# Of one match: lines and characters that are shown (as hermes-agent does).
MOST_LINES, MOST_SHOWN = 20, 2_000
WRITES = frozenset({Match.TELL, Match.STRIKE, Match.DISABLE, Match.TRIP})


@dataclass(frozen=True, kw_only=True)
class Matched:
    """What became of a match."""

    match: Match
    process: Process  # as it is now
    held_back: int = 0  # lines of this process that were not told and are still to be counted


class HeldBack:
    """How many lines of which process were not told since the last that was. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines: dict[str, int] = {}

    def add(self, key: str, lines: int) -> None:
        """Count more."""
        if lines:
            with self._lock:
                self._lines[key] = self._lines.get(key, 0) + lines

    def take(self, key: str) -> int:
        """How many there are; they are counted no more."""
        with self._lock:
            return self._lines.pop(key, 0)


def shown(lines: Sequence[str]) -> str:
    """The lines of one match as they are shown."""
    text = "\n".join(line.rstrip() for line in lines[:MOST_LINES])
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}\n...(truncated)"


def decided(reader: Reader, process: Process, *, at: float) -> Match:
    """What becomes of a match now. The other processes are asked for only where this one would tell of it."""
    alone = decide(process.watch, at=at, ended=process.ended, told_lately=0, tripped_at=None)
    if alone is not Match.TELL:
        return alone
    lately, tripped_at = reader.rows(
        "SELECT count(*) FILTER (WHERE watch_last_at > ?1 AND watch_last_at <= ?2),"
        " max(watch_tripped_at) FILTER (WHERE watch_tripped_at <= ?2) FROM background_work WHERE sort = 'process'",
        (at - ALL_SECONDS, at),
    )[0]
    return decide(process.watch, at=at, ended=process.ended, told_lately=lately, tripped_at=tripped_at)


def act(
    tx: Transaction, process: Process, match: Match, *, pattern: str, text: str, count: int, held_back: int, at: float,
    here: rows.Watcher,
) -> Matched:
    """Do what was decided."""
    if match not in WRITES:
        return Matched(match=match, process=process, held_back=held_back + count)
    now = after(process.watch, match, at=at)
    disabled = match is Match.DISABLE
    # What nobody is to hear of stays so, and a client of the API server never gets a turn.
    promoted = disabled and process.tell.mode is Mode.RECEIPT
    tx.execute(
        "UPDATE background_work SET watch_last_at = ?, watch_strikes = ?, watch_struck = ?, watch_told = ?,"
        " watch_disabled_at = ?, watch_tripped_at = coalesce(?, watch_tripped_at), mode = ? WHERE key = ?",
        (
            now.last_at, now.strikes, int(now.struck), now.told, at if disabled else None,
            at if match is Match.TRIP else None, str(Mode.TURN if promoted else process.tell.mode), process.key,
        ),
    )
    if match is Match.TELL:
        said = {"pattern": pattern, "text": text, "held_back": held_back}
        _say(tx, process, "match", now.told, said, at=at, here=here)
        held_back = 0
    elif disabled:
        _say(
            tx, process, "disabled", now.told, {
                "pattern": pattern, "held_back": held_back + count,
                "text": "Its patterns matched too often and are turned off; its end will be told.",
            }, at=at, here=here,
        )
        held_back = 0
    else:
        held_back += count
    found = rows.need(tx, process.key)
    assert isinstance(found, Process)
    return Matched(match=match, process=found, held_back=held_back)


def _say(
    tx: Transaction, process: Process, what: str, number: int, said: dict[str, object], *, at: float,
    here: rows.Watcher,
) -> None:
    if process.tell.mode is Mode.NOBODY:
        return
    rows.say(tx, process, WATCH, number, {"event": what, **said}, label=what, at=at, here=here)


def suppress_progress(tx: Transaction, process: Process, *, at: float) -> None:
    """It has ended: what it said meanwhile and nobody is sending is not wanted any more."""
    for (number,) in tx.rows(
        # "." is the character after "-".
        "SELECT id FROM outbox WHERE dedupe_id > ?1 || '-' AND dedupe_id < ?1 || '.' AND state = 'pending'",
        (f"{process.key}#{PROGRESS}",),
    ):
        owed = read(tx, number)
        if owed is not None:
            end_pending(tx, owed, Event.SUPPRESS, "its process has ended", at=at)


