"""How much one transaction may delete, and how long to rest before the next.

Invariant: beside other processes a transaction stays near its time budget, and after it the store is left alone for at
least as long as it was held, longer when others were already waiting. Alone there is nobody to yield to.

Not for: deadlines of locks. A fixed pause was rejected: it is too long for a quiet store and too short for a busy one.
"""

from __future__ import annotations

from dataclasses import dataclass

from hermes_state.clock import Clock

# Beside others: about 10 ms a transaction, never more than 200 rows, so that a writer whose naps grow to 100 ms (the
# standard library's) finds the store free long before its first second is over.
ONLINE_ROWS = 200
ONLINE_FIRST_ROWS = 50
ONLINE_LEAST_ROWS = 10
ONLINE_BUDGET_SECONDS = 0.010
ONLINE_LONGEST_REST_SECONDS = 1.0

# Alone: large transactions, because a full-text index writes one segment for each of them; small enough that the WAL of
# one stays in the tens of megabytes and that an interrupted run loses little.
ALONE_ROWS = 5000


@dataclass
class Pace:
    """The bound of the next transaction, kept by the removal while it runs."""

    # Upper bound of rows that a transaction may delete.
    most_rows: int
    # Rows that the next transaction may delete.
    rows: int
    # Seconds that a transaction should take; None when nobody is to be yielded to.
    budget_seconds: float | None
    # Deadline for the write lock of each transaction.
    deadline_seconds: float

    @classmethod
    def online(cls, *, deadline_seconds: float = 20.0) -> Pace:
        """Beside other processes."""
        return cls(
            most_rows=ONLINE_ROWS,
            rows=ONLINE_FIRST_ROWS,
            budget_seconds=ONLINE_BUDGET_SECONDS,
            deadline_seconds=deadline_seconds,
        )

    @classmethod
    def alone(cls, *, deadline_seconds: float = 20.0) -> Pace:
        """Under the exclusive lock."""
        return cls(most_rows=ALONE_ROWS, rows=ALONE_ROWS, budget_seconds=None, deadline_seconds=deadline_seconds)

    def rest(self, clock: Clock, *, waited_seconds: float, held_seconds: float) -> None:
        """Adapt the bound to the transaction that just ended, and leave the store to others for a while."""
        if self.budget_seconds is None:
            return
        if held_seconds > 0:
            wanted = round(self.rows * self.budget_seconds / held_seconds)
            # At most double, so that one lucky transaction does not make the next one long.
            self.rows = max(ONLINE_LEAST_ROWS, min(self.most_rows, self.rows * 2, wanted))
        # Who waited while we held the lock waited at most that long; our own wait shows how busy the others are.
        clock.sleep(min(ONLINE_LONGEST_REST_SECONDS, 2 * held_seconds + waited_seconds))
