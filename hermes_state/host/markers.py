"""Words from one process to another that outlive the writer: takeover, planned stop, drain.

Invariant: a takeover or a planned stop is for one process, by its identity; it counts once, for 60 s of its machine's
boot time, and never after the machine started anew. A drain is for whoever runs the home and counts until it is taken
back or the machine starts anew; one whose epoch nobody can tell counts. One open marker of a kind for a target.

Not for: signals. Files with a pid in them were rejected: pids are used again, and a restart leaves the file behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_state.errors import InvalidInput
from hermes_state.host.records import identity_of
from hermes_state.host.states import MarkerEnd, MarkerKind
from hermes_state.owners.presence import presence_of

if TYPE_CHECKING:
    from hermes_state.clock import Clock
    from hermes_state.engine import Reader, Transaction
    from hermes_state.engine.core import Core
    from hermes_state.owners import OwnerIdentity, Presence

TTL_SECONDS = 60.0
_COLUMNS = (
    "id, kind, home, target, writer, reason, quiet, epoch, boot_id, time_namespace, expires_boottime, written_at,"
    " ended_at, ended"
)


@dataclass(frozen=True, kw_only=True)
class Marker:
    """One marker."""

    id: int
    kind: MarkerKind
    home: str
    target: OwnerIdentity | None  # None: whoever runs the home
    writer: OwnerIdentity | None  # None when this version cannot read it
    reason: str
    quiet: bool  # people are not told
    epoch: str  # boot and first process of the writer's machine; "" when not known
    written_at: float  # epoch seconds UTC
    ended: MarkerEnd | None  # None while it is open


def epoch_of(identity: OwnerIdentity) -> str:
    """What ends when the machine, or the container, starts anew; "" where the platform does not say."""
    if not identity.boot_id or not identity.pid_namespace:
        return ""
    return f"{identity.boot_id}+{identity.pid_namespace}"


class Markers:
    """The markers of one host. Safe for threads."""

    def __init__(self, core: Core, *, presence: Presence | None = None) -> None:
        """`presence` makes another writer and target than this process; for tests."""
        self._core = core
        self._presence = presence

    def place(
        self, kind: MarkerKind, *, home: str, target: OwnerIdentity | None = None, reason: str, quiet: bool = False,
        ttl_seconds: float = TTL_SECONDS,
    ) -> Marker | None:
        """Leave a marker; None when one of that kind is open for the same target: somebody was faster.

        Raises `InvalidInput` for a takeover or a planned stop without a target.
        """
        if (target is None) != (kind is MarkerKind.DRAIN):
            raise InvalidInput(
                f"A marker {kind} needs {'no target' if target is not None else 'a target'} in {self._core.path}.",
                hint="A drain is for a home; the others are for one process.", path=self._core.path, kind=str(kind),
            )
        clock, me = self._core.clock, self._me()
        domain = clock.domain()
        text = None if target is None else target.to_json()

        def work(tx: Transaction) -> Marker | None:
            if self._open(tx, kind, home, text) is not None:
                return None
            tx.execute(
                "INSERT INTO markers (kind, home, target, writer, reason, quiet, epoch, boot_id, time_namespace,"
                " expires_boottime, written_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    kind, home, text, me.to_json(), reason, int(quiet), epoch_of(me), domain.boot_id,
                    domain.time_namespace, None if kind is MarkerKind.DRAIN else clock.boottime() + ttl_seconds,
                    clock.now(),
                ),
            )
            return _one(tx, tx.last_insert_rowid())

        return self._core.write(work, durability="power")

    def take(self, kind: MarkerKind) -> Marker | None:
        """The open marker of this kind for this process, which counts once: it is consumed. None when there is none."""
        text, at = self._me().to_json(), self._core.clock.now()
        with self._core.reader() as reader:
            waiting = reader.rows(
                "SELECT home FROM markers WHERE kind = ? AND target = ? AND ended IS NULL", (kind, text)
            )
        if not waiting:
            return None

        def work(tx: Transaction) -> Marker | None:
            for (home,) in waiting:
                number = self._open(tx, kind, home, text)
                if number is not None:
                    _end(tx, number, MarkerEnd.CONSUMED, at)
                    return _one(tx, number)
            return None

        return self._core.write(work, durability="power")

    def draining(self, home: str) -> Marker | None:
        """The drain that counts for a home now."""
        here = epoch_of(self._me())
        with self._core.reader() as reader:
            row = reader.row(
                f"SELECT {_COLUMNS} FROM markers WHERE kind = 'drain' AND home = ? AND ended IS NULL", (home,)
            )
        if row is None:
            return None
        found = _marker(row)
        return None if _is_stale(found, here) else found

    def withdraw(self, marker: Marker) -> bool:
        """Take it back; False when it ended before."""
        at = self._core.clock.now()
        return self._core.write(lambda tx: _end(tx, marker.id, MarkerEnd.WITHDRAWN, at))

    def end_drain(self, home: str) -> bool:
        """The home takes work again; False when it was not draining."""
        at = self._core.clock.now()
        return self._core.write(
            lambda tx: tx.execute(
                "UPDATE markers SET ended = ?, ended_at = ? WHERE kind = 'drain' AND home = ? AND ended IS NULL",
                (MarkerEnd.WITHDRAWN, at, home),
            ) > 0
        )

    def list_open(self) -> list[Marker]:
        """Every marker that is not known to have ended, oldest first."""
        with self._core.reader() as reader:
            rows = reader.rows(f"SELECT {_COLUMNS} FROM markers WHERE ended IS NULL ORDER BY id")
        return [_marker(row) for row in rows]

    def _me(self) -> OwnerIdentity:
        return (self._presence or presence_of(self._core.path.parent, clock=self._core.clock)).identity

    def _open(self, tx: Transaction, kind: MarkerKind, home: str, target: str | None) -> int | None:
        """The one that counts; what does not count any more is ended on the way."""
        here, clock = epoch_of(self._me()), self._core.clock
        at, now, domain = clock.now(), clock.boottime(), clock.domain()
        row = tx.row(
            f"SELECT {_COLUMNS} FROM markers WHERE kind = ? AND home = ? AND coalesce(target, '') = ?"
            " AND ended IS NULL", (kind, home, target or ""),
        )
        if row is None:
            return None
        marker = _marker(row)
        if _is_stale(marker, here):
            _end(tx, marker.id, MarkerEnd.STALE, at)
            return None
        if _is_expired(row, now, domain.boot_id, domain.time_namespace):
            _end(tx, marker.id, MarkerEnd.EXPIRED, at)
            return None
        return marker.id


def is_marked(reader: Reader, target: OwnerIdentity, clock: Clock) -> bool:
    """Whether somebody is replacing that process now."""
    domain = clock.domain()
    rows = reader.rows(
        f"SELECT {_COLUMNS} FROM markers WHERE kind = 'takeover' AND target = ? AND ended IS NULL", (target.to_json(),)
    )
    return any(not _is_expired(row, clock.boottime(), domain.boot_id, domain.time_namespace) for row in rows)


def _is_stale(marker: Marker, here: str) -> bool:
    # Without an epoch on either side, or with one that is none, nobody can tell that it is old.
    return "+" in marker.epoch and bool(here) and marker.epoch != here


def _is_expired(row: Sequence[Any], now: float, boot_id: str, time_namespace: str) -> bool:
    expires = row[10]
    if expires is None:
        return False
    if (row[8], row[9]) != (boot_id, time_namespace):
        return True  # measured on another clock: 60 s that nobody can count are over
    return bool(now >= expires)


def _one(tx: Transaction, number: int) -> Marker:
    row = tx.row(f"SELECT {_COLUMNS} FROM markers WHERE id = ?", (number,))
    assert row is not None  # written or read in this transaction
    return _marker(row)


def _end(tx: Transaction, number: int, how: MarkerEnd, at: float) -> bool:
    return tx.execute(
        "UPDATE markers SET ended = ?, ended_at = ? WHERE id = ? AND ended IS NULL", (how, at, number)
    ) > 0


def _marker(row: Sequence[Any]) -> Marker:
    number, kind, home, target, writer, reason, quiet, epoch, _boot, _namespace, _expires, written_at, _at, ended = row
    return Marker(
        id=number, kind=MarkerKind(kind), home=home, target=None if target is None else identity_of(target),
        writer=identity_of(writer), reason=reason, quiet=bool(quiet), epoch=epoch, written_at=written_at,
        ended=None if ended is None else MarkerEnd(ended),
    )
