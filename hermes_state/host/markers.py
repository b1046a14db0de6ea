"""Words from one process to another that outlive the writer: takeover, planned stop, drain, resume.

Invariant: each is for one process, by its identity; it counts once, for 60 s of the machine's boot time from the moment
at which it was written, and never after the machine or the target's container started anew. A time that cannot be
compared, or lies before that moment, counts as over; the wall clock is not asked. One open marker of a kind for a
target. An epoch that nobody can tell makes no marker old.

Not for: signals. A drain for whoever runs a home was rejected: the run after a restart drained for ever. Files with a
pid in them were rejected: pids are used again, and a restart leaves the file behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_state.host.records import identity_of
from hermes_state.host.states import MarkerEnd, MarkerKind, RunState
from hermes_state.owners.presence import presence_of

if TYPE_CHECKING:
    from hermes_state.clock import Clock
    from hermes_state.engine import Reader, Transaction
    from hermes_state.engine.core import Core
    from hermes_state.host.ownership import Membership
    from hermes_state.owners import OwnerIdentity, Presence

TTL_SECONDS = 60.0
_COLUMNS = (
    "id, kind, home, target, writer, reason, quiet, epoch, boot_id, time_namespace, written_boottime, written_at,"
    " ended_at, ended"
)
# What takes the word back that is open: the newer one counts.
_CANCELS = {MarkerKind.DRAIN: MarkerKind.RESUME, MarkerKind.RESUME: MarkerKind.DRAIN}
# In which state of a run which kind says what to be next.
_FOLLOWS = {
    RunState.RUNNING: (MarkerKind.DRAIN, RunState.DRAINING), RunState.DRAINING: (MarkerKind.RESUME, RunState.RUNNING),
}


@dataclass(frozen=True, kw_only=True)
class Marker:
    """One marker."""

    id: int
    kind: MarkerKind
    home: str  # that the target was started for
    target: OwnerIdentity | None  # None when this version cannot read it
    writer: OwnerIdentity | None  # None when this version cannot read it
    reason: str
    quiet: bool  # people are not told
    epoch: str  # boot and first process of the target's machine; "" when not known
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
        self, kind: MarkerKind, *, home: str, target: OwnerIdentity, reason: str, quiet: bool = False
    ) -> Marker | None:
        """Leave a marker for that process; None when one of that kind is open for it: somebody was faster.

        `home` is the one that it was started for. A drain takes an open resume back, and the other way round.
        """
        clock, me = self._core.clock, self._me()
        domain, text = clock.domain(), target.to_json()

        def work(tx: Transaction) -> Marker | None:
            if self._open(tx, kind, text) is not None:
                return None
            if kind in _CANCELS and (before := self._open(tx, _CANCELS[kind], text)) is not None:
                _end(tx, before, MarkerEnd.WITHDRAWN, clock.now())
            tx.execute(
                "INSERT INTO markers (kind, home, target, writer, reason, quiet, epoch, boot_id, time_namespace,"
                " written_boottime, written_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    kind, home, text, me.to_json(), reason, int(quiet), epoch_of(target), domain.boot_id,
                    domain.time_namespace, clock.boottime(), clock.now(),
                ),
            )
            return _one(tx, tx.last_insert_rowid())

        return self._core.write(work, durability="power")

    def take(self, kind: MarkerKind) -> Marker | None:
        """The open marker of this kind for this process, which counts once: it is consumed. None when there is none."""
        return self._core.write(lambda tx: self.take_in(tx, kind), durability="power") if self.waits(kind) else None

    def waits(self, *kinds: MarkerKind) -> bool:
        """Whether a marker of one of these kinds is open for this process; takes nothing and writes nothing."""
        text = self._me().to_json()
        with self._core.reader() as reader:
            rows = reader.rows("SELECT kind FROM markers WHERE target = ? AND ended IS NULL", (text,))
        return any(kind in kinds for (kind,) in rows)

    def take_in(self, tx: Transaction, kind: MarkerKind) -> Marker | None:
        """`take` within a transaction of the caller."""
        number = self._open(tx, kind, self._me().to_json())
        if number is None:
            return None
        _end(tx, number, MarkerEnd.CONSUMED, self._core.clock.now())
        return _one(tx, number)

    def withdraw(self, marker: Marker) -> bool:
        """Take it back; False when it ended before."""
        at = self._core.clock.now()
        return self._core.write(lambda tx: _end(tx, marker.id, MarkerEnd.WITHDRAWN, at))

    def list_open(self) -> list[Marker]:
        """Every marker that counts now, oldest first."""
        clock = self._core.clock
        with self._core.reader() as reader:
            rows = reader.rows(f"SELECT {_COLUMNS} FROM markers WHERE ended IS NULL ORDER BY id")
        return [_marker(row) for row in rows if _end_of(row, clock) is None]

    def _me(self) -> OwnerIdentity:
        return (self._presence or presence_of(self._core.path.parent, clock=self._core.clock)).identity

    def _open(self, tx: Transaction, kind: MarkerKind, target: str) -> int | None:
        """The one that counts; what does not count any more is ended on the way."""
        row = tx.row(f"SELECT {_COLUMNS} FROM markers WHERE kind = ? AND target = ? AND ended IS NULL", (kind, target))
        if row is None:
            return None
        number, over = int(row[0]), _end_of(row, self._core.clock)
        if over is not None:
            _end(tx, number, over, self._core.clock.now())
            return None
        return number


def follow(markers: Markers, member: Membership) -> Marker | None:
    """Take the drain or resume that is for this run, and be in the state that it says."""
    found: list[Marker] = []

    def take(tx: Transaction) -> bool:
        marker = markers.take_in(tx, kind)
        if marker is not None:
            found.append(marker)
        return marker is not None

    state = member.answer.state
    if state not in _FOLLOWS:
        return None
    kind, after = _FOLLOWS[state]
    if not markers.waits(kind) or not member.move(after, first=take):
        return None
    return found[-1]  # the transaction may have been begun more than once


def is_marked(reader: Reader, target: OwnerIdentity, clock: Clock) -> bool:
    """Whether somebody is replacing that process now."""
    rows = reader.rows(
        f"SELECT {_COLUMNS} FROM markers WHERE kind = 'takeover' AND target = ? AND ended IS NULL", (target.to_json(),)
    )
    return any(_end_of(row, clock) is None for row in rows)


def _end_of(row: Sequence[Any], clock: Clock) -> MarkerEnd | None:
    """Why it does not count any more; None while it does."""
    target, epoch, boot_id, time_namespace, written = row[3], row[7], row[8], row[9], row[10]
    domain = clock.domain()
    boot, plus, first = str(epoch).partition("+")
    # Without an epoch on either side, or with one that is none, nobody can tell that it is old.
    if plus and domain.boot_id and (boot != domain.boot_id or not _is_of(target, first)):
        return MarkerEnd.STALE
    if (boot_id, time_namespace) != (domain.boot_id, domain.time_namespace):
        return MarkerEnd.EXPIRED  # measured on another clock: 60 s that nobody can count are over
    return None if 0 <= clock.boottime() - written < TTL_SECONDS else MarkerEnd.EXPIRED


def _is_of(target: str, first: str) -> bool:
    """Whether the target's container is the one of that first process; an identity that nobody can read is of any."""
    identity = identity_of(target)
    return identity is None or not identity.pid_namespace or identity.pid_namespace == first


def _one(tx: Transaction, number: int) -> Marker:
    row = tx.row(f"SELECT {_COLUMNS} FROM markers WHERE id = ?", (number,))
    assert row is not None  # written or read in this transaction
    return _marker(row)


def _end(tx: Transaction, number: int, how: MarkerEnd, at: float) -> bool:
    return tx.execute(
        "UPDATE markers SET ended = ?, ended_at = ? WHERE id = ? AND ended IS NULL", (how, at, number)
    ) > 0


def _marker(row: Sequence[Any]) -> Marker:
    number, kind, home, target, writer, reason, quiet, epoch, _boot, _namespace, _written, written_at, _at, ended = row
    return Marker(
        id=number, kind=MarkerKind(kind), home=home, target=identity_of(target),
        writer=identity_of(writer), reason=reason, quiet=bool(quiet), epoch=epoch, written_at=written_at,
        ended=None if ended is None else MarkerEnd(ended),
    )
