"""What is not served: dropped events, told once, and seen until it is served.

Invariant: one row a platform and profile, written by one statement here and by nothing else. What begins to be unserved
is told to exactly one caller, whichever process it is in and however often it comes; a connection of that profile takes
the mark away, after which it may be told again. No event of it gets a key.

Not for: deciding that something is unserved (see `resolving`). Logging here was rejected: the caller has the log, and
gets what to say.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hermes_state.changes.records import record
from hermes_state.outbox.inputs import MOST_REASON, text
from hermes_state.routing.homes import Home, guard, refuse_other_home, valid_home
from hermes_state.routing.records import has_routing

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction
    from hermes_state.engine.core import Core

TABLE_NAME = "routing_unserved"
# Events that are dropped again and again are counted in memory, and written at most so often.
WRITE_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Attention:
    """One profile that a bot was asked for and that is not served on that platform."""

    platform: str
    profile: str  # the one that is not served; "?" where nobody can say which bot was asked
    home: str  # store_id of the home whose bot was asked
    reason: str  # of the newest time
    needs_attention: bool  # False: it is served now
    dropped: int  # events; those of the last minute may be missing
    warnings: int  # how often it was told
    since_at: float  # epoch seconds UTC: when it began the newest time
    last_at: float
    served_at: float | None  # when a bot of it connected last

    @property
    def warning(self) -> str:
        """What to tell a person, once."""
        return (
            f"Profile {self.profile!r} is not served on {self.platform}: {self.reason}. What it is sent is dropped"
            " until a process serves it."
        )


@dataclass(frozen=True, kw_only=True)
class Noted:
    """What came of noting it."""

    attention: Attention
    warning: str | None  # to be logged by the caller; None: somebody was told before


class Unserveds:
    """The marks of one store, as one process writes them. Safe for threads."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._lock = threading.Lock()
        self._seen: dict[tuple[str, str], tuple[float, int]] = {}  # when written (monotonic), dropped since

    def note(self, platform: str, profile: str, reason: str, home: Home, *, dropped: int) -> Noted:
        """Set the mark and count what was dropped. Raises `WrongHome`, `HomeRemoved`, `InvalidInput`."""
        for name, value in (("platform", platform), ("profile", profile)):
            text(name, value, of="")
        text("reason", reason, most=MOST_REASON, of="")
        refuse_other_home(self._core, valid_home("home", home))
        key, monotonic = (platform, profile), self._core.clock.monotonic()
        with self._lock:
            written, waiting = self._seen.get(key, (None, 0))
            total = waiting + dropped
            with self._core.reader() as reader:
                guard(reader, home)  # also where nothing is to be written
                there = read(reader, platform, profile)
            told = there is not None and there.needs_attention
            if there is not None and told and written is not None and monotonic - written < WRITE_SECONDS:
                self._seen[key] = (written, total)
                return Noted(attention=there, warning=None)
            at = self._core.clock.now()
            began, now = self._core.write(lambda tx: _write(tx, home, platform, profile, reason, total, at))
            self._seen[key] = (monotonic, 0)
        return Noted(attention=now, warning=now.warning if began else None)

    def served(self, platform: str, profile: str, home: Home) -> Attention | None:
        """A bot of that profile connected: take the mark away. None when there never was one."""
        refuse_other_home(self._core, valid_home("home", home))
        with self._lock:
            with self._core.reader() as reader:
                guard(reader, home)  # also where nothing is to be written
                there = read(reader, platform, profile)
            if there is None or not there.needs_attention:
                return there
            at = self._core.clock.now()
            waiting = self._seen.pop((platform, profile), (0.0, 0))[1]

            def work(tx: Transaction) -> Attention | None:
                guard(tx, home)
                tx.execute(
                    "UPDATE routing_unserved SET needs_attention = 0, served_at = ?1, dropped = dropped + ?2"
                    " WHERE platform = ?3 AND profile = ?4 AND needs_attention = 1",
                    (at, waiting, platform, profile),
                )
                record(tx, TABLE_NAME, f"{platform}/{profile}", "update", at)
                return read(tx, platform, profile)

            return self._core.write(work)


def _write(
    tx: Transaction, home: Home, platform: str, profile: str, reason: str, dropped: int, at: float
) -> tuple[bool, Attention]:
    """The one statement that sets a mark; whether it began now."""
    guard(tx, home)
    before = read(tx, platform, profile)
    began = before is None or not before.needs_attention
    tx.execute(
        "INSERT INTO routing_unserved (platform, profile, home, reason, needs_attention, dropped, warnings, since_at,"
        " last_at) VALUES (?1, ?2, ?3, ?4, 1, ?5, 1, ?6, ?6) ON CONFLICT (platform, profile) DO UPDATE SET"
        " reason = excluded.reason, dropped = dropped + excluded.dropped, last_at = excluded.last_at,"
        " warnings = warnings + (needs_attention = 0), since_at = iif(needs_attention, since_at, excluded.since_at),"
        " needs_attention = 1",
        (platform, profile, home.store_id, reason, dropped, at),
    )
    if began:
        record(tx, TABLE_NAME, f"{platform}/{profile}", "insert" if before is None else "update", at)
    now = read(tx, platform, profile)
    assert now is not None
    return began, now


_COLUMNS = "platform, profile, home, reason, needs_attention, dropped, warnings, since_at, last_at, served_at"


def read(reader: Reader, platform: str, profile: str) -> Attention | None:
    """One mark."""
    row = reader.row(
        f"SELECT {_COLUMNS} FROM routing_unserved WHERE platform = ? AND profile = ?", (platform, profile)
    )
    return None if row is None else _attention(row)


def listed(reader: Reader, *, served_too: bool) -> list[Attention]:
    """All that needs attention; with `served_too` also what did once. One a platform and profile: few."""
    if not has_routing(reader):
        return []
    return [
        _attention(row)
        for row in reader.rows(
            f"SELECT {_COLUMNS} FROM routing_unserved WHERE needs_attention OR ? ORDER BY platform, profile",
            (int(served_too),),
        )
    ]


def _attention(row: tuple[object, ...]) -> Attention:
    named = dict(zip(_COLUMNS.split(", "), row, strict=True))
    return Attention(**named | {"needs_attention": bool(named["needs_attention"])})  # type: ignore[arg-type]
