"""Getting a lease.

Invariant: a lease is had only when the transaction that wrote it committed at `power` durability; every error on the
way means that it is not had. What was judged is what is taken: the row is compared again inside the transaction, so two
contenders that judged the same row get one lease between them. The fence rises by one with every owner, for ever.

Not for: protecting appends, which need no lease. Counting an error as "had it" was rejected: two holders then work at
once. flock alone was rejected: it has no fence, and another machine does not see it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from hermes_state.errors import InvalidInput, LeaseHeld, ReadOnlyStore
from hermes_state.leases import rows
from hermes_state.leases.judging import Judging
from hermes_state.leases.lease import Lease
from hermes_state.leases.rows import LeaseRow, LeaseView
from hermes_state.leases.states import ACQUIRE, Outcome, silence_needed
from hermes_state.owners import Presence, Verdict
from hermes_state.owners.presence import presence_of

if TYPE_CHECKING:
    from hermes_state.engine import Transaction
    from hermes_state.engine.core import Core

_FIRST_NAP, _LONGEST_NAP = 0.01, 0.25  # seconds between two looks of one that waits; doubles


class Leases:
    """The leases of one store. Owners are processes; safe for threads."""

    def __init__(self, core: Core, *, presence: Presence | None = None, judging: Judging | None = None) -> None:
        """`presence` makes another owner than this process of the leases acquired here; for tests.

        `judging`: what was seen of this store's leases before, for one who looks now and then and opens it each time.
        """
        self._core = core
        self._presence = presence
        self._judging = judging or Judging(core)

    def acquire(
        self, name: str, *, term_seconds: float, wait_seconds: float = 0.0, max_life_seconds: float | None = None,
        note: Mapping[str, str] | None = None, given_up: Callable[[], bool] = bool,
    ) -> Lease:
        """Get the lease `name` for `term_seconds`, or raise `LeaseHeld` after `wait_seconds`.

        Taken at once: what is free, what ran out, and what belonged to a process that is provably dead. Nobody else's
        is taken before its expiry; when the holder's clock cannot be compared with ours (another boot, another time
        namespace), this waits until it has itself seen no renewal for the term and a margin, see `silence_needed`.
        `max_life_seconds` ends the lease however often it is renewed; None is for work without an end, such as ticking.
        `note` is what the owner says of itself (a profile, a purpose), shown to whoever does not get it; no secrets.
        `given_up` is asked at least four times a second while this waits: True ends the wait as its end would.
        Raises `LeaseHeld`, `InvalidInput`, `ReadOnlyStore`, `CannotOpen` (no lock file can be made here), and what a
        write raises: after any error the lease is not had.
        """
        for argument, value in (("term_seconds", term_seconds), ("max_life_seconds", max_life_seconds)):
            if value is not None and not 0 < value < float("inf"):
                raise InvalidInput(
                    f"{argument} of lease {name!r} in {self._core.path} was {value}.",
                    hint="Give a finite number of seconds above 0.", path=self._core.path, name=name,
                )
        if self._core.read_only:
            raise ReadOnlyStore(
                f"{self._core.path} was opened for reading only, so lease {name!r} cannot be acquired here.",
                hint="Open it with read_only=False.", path=self._core.path,
            )
        clock = self._core.clock
        presence = self._presence or presence_of(self._core.path.parent, clock=clock)
        deadline = clock.monotonic() + wait_seconds
        nap = _FIRST_NAP
        while True:
            seen = self._read(name)
            view, verdict = self._judging.judge(seen)
            if ACQUIRE[view] is Outcome.TAKE:
                taken = self._take(name, seen, presence, term_seconds, max_life_seconds, note)
                if taken is not None:
                    return taken
                continue  # somebody was faster, so it is held now, or was released again
            left = deadline - clock.monotonic()
            if left <= 0 or given_up():
                raise self._held(seen, verdict)
            clock.sleep(min(nap, left))
            nap = min(2 * nap, _LONGEST_NAP)

    def look(self, name: str) -> LeaseView | None:
        """How a lease stands, None when nobody ever had it."""
        row = self._read(name)
        if row is None:
            return None
        return LeaseView(
            name=name, fence=row.fence, owner=row.identity, is_free=row.owner is None, acquired_at=row.acquired_at,
            expires_in_seconds=None if row.owner is None else self._left(row), note=row.note,
        )

    def _read(self, name: str) -> LeaseRow | None:
        with self._core.reader() as reader:
            return rows.read(reader, name)

    def _take(
        self, name: str, seen: LeaseRow | None, presence: Presence, term_seconds: float,
        max_life_seconds: float | None, note: Mapping[str, str] | None = None,
    ) -> Lease | None:
        """The lease, or None when the row is no longer what was judged."""
        clock = self._core.clock
        life = term_seconds if max_life_seconds is None else min(term_seconds, max_life_seconds)
        owner = rows.owner_text(presence.identity, note)

        def work(tx: Transaction) -> tuple[LeaseRow, str] | None:
            if rows.read(tx, name) != seen:
                return None
            now = clock.boottime()
            row = LeaseRow(
                name=name, fence=1 if seen is None else seen.fence + 1, renewals=0, owner=owner,
                domain=clock.domain(), acquired_boottime=now, expires_boottime=now + life, term_seconds=term_seconds,
                acquired_at=clock.now(),
            )
            rows.write_owner(tx, row)
            return row, rows.incarnation(tx)

        written = self._core.write(work, durability="power")
        if written is None:
            return None
        row, incarnation = written
        return Lease(
            self._core, row, presence.identity, incarnation=incarnation, max_life_seconds=max_life_seconds
        )

    def _left(self, row: LeaseRow) -> float | None:
        clock = self._core.clock
        return row.expires_boottime - clock.boottime() if row.domain.comparable(clock.domain()) else None

    def _held(self, row: LeaseRow | None, verdict: Verdict) -> LeaseHeld:
        assert row is not None  # what nobody has is free
        owner, left = row.identity, self._left(row)
        who = "an owner that this version cannot read" if owner is None else str(owner)
        if row.note:
            who += f" ({', '.join(f'{name} {value}' for name, value in row.note.items())})"
        if left is None:
            until = (
                f"its clock is not ours, so it is free only after it was seen without renewal for"
                f" {silence_needed(row.term_seconds):g} s"
            )
        else:
            until = f"it runs out in {max(left, 0.0):.1f} s unless it is renewed"
        return LeaseHeld(
            f"Lease {row.name!r} in {self._core.path} is held by {who}, not proven dead ({verdict.because}); {until}.",
            hint="Try again then, or stop that process.",
            path=self._core.path, name=row.name, owner=owner, expires_in_seconds=left, note=dict(row.note),
        )
