"""Claims that lost their sender: found, and given back or ended.

Invariant: a dead owner's claims are found however many a living one has: owners are judged, not rows, the one that was
looked at longest ago first. What ran out has a question of its own. What was judged lost is what is settled: the row is
compared again inside.

Bounds of one call: up to 50 lock files, 200 rows of other clocks from where the last call ended, 500 lost claims; the
rest is for the next call. Reading goes over the claimed rows, by their index, and is one seek for each owner.

Not for: claiming (see `claims`). Judging the first rows of a list was rejected: who has many claims and lives hides who
is dead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hermes_state.clock import ClockDomain
from hermes_state.leases.judging import Judging
from hermes_state.leases.rows import LeaseRow
from hermes_state.leases.states import ACQUIRE, Outcome, Standing
from hermes_state.outbox.records import read
from hermes_state.outbox.settling import lose
from hermes_state.owners import Verdict

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction
    from hermes_state.engine.core import Core

MOST_OWNERS = 50
MOST_FOREIGN = 200
MOST_LOST = 500
# For how long an owner that was found alive is believed: a dead one is noticed so much later, and eight senders that
# claim as fast as they can do not open each other's lock files for every claim.
ALIVE_SECONDS = 1.0

_COLUMNS = "id, fence, renewals, owner, boot_id, time_namespace, expires_boottime, term_seconds, claimed_at"
# By the index of claimed rows, which are few: without saying so the order by id would read the whole table.
_HELD = f"SELECT {_COLUMNS} FROM outbox INDEXED BY outbox_claimed WHERE state = 'claimed'"
# Whose boot times can be compared with ours; one whose clock is unknown is so only when it is our own.
_SHARED = "(owner = ?1 OR (boot_id = ?2 AND time_namespace = ?3 AND ?2 <> '' AND ?3 <> ''))"


class Watch:
    """What one process remembers of the owners of claims in one store. Safe for threads: forgetting costs a look."""

    def __init__(self, core: Core) -> None:
        self._judging = Judging(core)
        self._looked: dict[str, float] = {}  # owner -> boot time of the last look at its lock file
        self._passed = 0  # the id of the last row of another clock that was looked at

    def lost(self, reader: Reader, *, own: str, now: float, domain: ClockDomain) -> list[LeaseRow]:
        """Claims whose sender is gone, or let them run out, as seen; at most `MOST_LOST`.

        `now` is the boot time of `domain`, `own` the JSON of who asks. It looks into lock files: not in a transaction.
        """
        who = (own, domain.boot_id, domain.time_namespace)
        found = [
            _lease_row(row)
            for row in reader.rows(
                f"{_HELD} AND {_SHARED} AND expires_boottime <= ?4 ORDER BY id LIMIT ?5", (*who, now, MOST_LOST)
            )
        ]
        for owner in self._dead(reader, who, now, domain):
            found += [
                _lease_row(row)
                for row in reader.rows(
                    f"{_HELD} AND owner = ? AND expires_boottime > ? ORDER BY id LIMIT ?",
                    (owner, now, MOST_LOST - len(found)),
                )
            ]
        found += self._silent(reader, who)
        return found[:MOST_LOST]

    def claim_of(self, reader: Reader, number: int) -> tuple[LeaseRow, Standing, Verdict] | None:
        """The claim of one row, how it stands, and why its owner counts as dead or alive; None: nobody has it."""
        row = reader.row(f"SELECT {_COLUMNS} FROM outbox WHERE id = ? AND state = 'claimed'", (number,))
        if row is None:
            return None
        claim = _lease_row(row)
        return claim, *self._judging.judge(claim)

    def _dead(self, reader: Reader, who: tuple[str, str, str], now: float, domain: ClockDomain) -> list[str]:
        """Owners on our clock that are provably dead, of those whose turn it is."""
        claims: dict[str, LeaseRow] = {}  # one of each owner; one seek an owner, however many claims it has
        last = ""
        while (row := reader.row(f"{_HELD} AND owner > ? ORDER BY owner LIMIT 1", (last,))) is not None:
            last, claim = str(row[3]), _lease_row(row)
            if last != who[0] and claim.domain.comparable(domain):
                claims[last] = claim
        looked = {owner: self._looked[owner] for owner in claims if owner in self._looked}
        # A boot time after now is of another boot.
        due = [owner for owner in claims if owner not in looked or not 0 <= now - looked[owner] < ALIVE_SECONDS]
        due.sort(key=lambda owner: looked.get(owner, -1.0))
        dead = []
        for owner in due[:MOST_OWNERS]:
            if self._judging.judge(claims[owner])[1].dead:
                dead.append(owner)
                looked.pop(owner, None)
            else:
                looked[owner] = now
        self._looked = looked
        return dead

    def _silent(self, reader: Reader, who: tuple[str, str, str]) -> list[LeaseRow]:
        """Claims of other clocks that were seen silent for long enough, of those whose turn it is."""
        rows = reader.rows(
            f"{_HELD} AND NOT {_SHARED} AND id > ?4 ORDER BY id LIMIT ?5", (*who, self._passed, MOST_FOREIGN)
        )
        self._passed = rows[-1][0] if len(rows) == MOST_FOREIGN else 0
        seen = [_lease_row(row) for row in rows]
        return [row for row in seen if ACQUIRE[self._judging.judge(row)[0]] is Outcome.TAKE]


def settle_lost(tx: Transaction, seen: Sequence[LeaseRow], *, at: float) -> int:
    """Give back or end what lost its sender, unless its row has changed since it was judged; returns how many."""
    count = 0
    for judged in seen:
        number = int(judged.name.removeprefix("outbox "))
        row = tx.row(f"SELECT {_COLUMNS} FROM outbox WHERE id = ? AND state = 'claimed'", (number,))
        if row is None or _lease_row(row) != judged:
            continue
        held = read(tx, number)
        assert held is not None
        lose(tx, held, "its sender died or went silent between claim and verdict", at=at)
        count += 1
    return count


def _lease_row(row: Sequence[Any]) -> LeaseRow:
    number, fence, renewals, owner, boot_id, time_namespace, expires, term, claimed_at = row
    return LeaseRow(
        name=f"outbox {number}", fence=fence, renewals=renewals, owner=owner,
        domain=ClockDomain(boot_id=boot_id or "", time_namespace=time_namespace or ""),
        acquired_boottime=expires - term, expires_boottime=expires, term_seconds=term, acquired_at=claimed_at,
    )
