"""The generation of a connection: which start of the server, and which connection of that start.

Invariant: generations of one store only rise, over restarts and restores too, and each is given out once. The epoch is
the fence of the lease `gateway server`: durable, raised once by every start, and never lowered when older content is
restored. The number within it is in memory, so that a connect commits nothing.

Not for: deciding which connection lives (see `connections`). A counter that starts anew with the process was rejected:
a frame of a connection from before the restart would pass for one of now.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hermes_state.clock import SYSTEM, Clock
from hermes_state.errors import InvalidInput
from hermes_state.leases import rows as lease_rows

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction
    from hermes_state.owners import OwnerIdentity

# The lease whose fence is the epoch, and whose owner is the process of the server. It runs out as it is written: it
# says who serves, and keeps nobody from starting another one.
SERVER_LEASE = "gateway server"


@dataclass(frozen=True, order=True, slots=True)
class Generation:
    """Which connection. Ordered: a later one is greater, whatever instance it belongs to."""

    epoch: int  # which start of the server, from 1
    number: int  # which connection of that start, from 1

    def __str__(self) -> str:
        return f"{self.epoch}.{self.number}"


def parse(text: str) -> Generation:
    """A generation from what `str` gives and frames carry. Raises `InvalidInput`."""
    epoch, dot, number = text.partition(".") if isinstance(text, str) else ("", "", "")
    plain = all(part.isascii() and part.isdigit() and len(part) < 19 for part in (epoch, number))
    if not dot or not plain or int(epoch) < 1 or int(number) < 1:
        raise InvalidInput(
            f"A generation is <epoch>.<number>, such as 3.17, not {text!r:.60}.", argument="generation"
        )
    return Generation(int(epoch), int(number))


def refuse_no_generation(value: object) -> None:
    """Raise `InvalidInput` for what is no generation, such as its text."""
    if not isinstance(value, Generation):
        raise InvalidInput(
            f"A generation is what accept gave, not {value!r:.60}.",
            hint="Use generations.parse for the text of one." if isinstance(value, str) else "", argument="generation",
        )


def raise_epoch(tx: Transaction, *, owner: OwnerIdentity | None = None, clock: Clock = SYSTEM) -> int:
    """One start of the server more; gives its epoch. Every server of an earlier epoch is refused from then on.

    `owner` is the process that serves, for whoever asks; None leaves it unsaid.
    """
    now, domain = clock.boottime(), clock.domain()
    tx.execute(
        "INSERT INTO leases (name, fence, owner, boot_id, time_namespace, acquired_boottime, expires_boottime,"
        " term_seconds, acquired_at) VALUES (?1, 1, ?2, ?3, ?4, ?5, CASE WHEN ?2 IS NOT NULL THEN ?5 END, 0.0, ?6)"
        " ON CONFLICT (name) DO UPDATE SET fence = fence + 1, renewals = 0, owner = excluded.owner,"
        " boot_id = excluded.boot_id, time_namespace = excluded.time_namespace,"
        " acquired_boottime = excluded.acquired_boottime, expires_boottime = excluded.expires_boottime,"
        " term_seconds = excluded.term_seconds, acquired_at = excluded.acquired_at",
        (
            SERVER_LEASE, None if owner is None else owner.to_json(), domain.boot_id, domain.time_namespace, now,
            clock.now(),
        ),
    )
    return current_epoch(tx)


def let_go(tx: Transaction, epoch: int) -> bool:
    """The server of this epoch ended: nobody serves now. False, and nothing changed, when another one was started."""
    return bool(
        tx.execute(
            "UPDATE leases SET owner = NULL, expires_boottime = NULL WHERE name = ? AND fence = ?",
            (SERVER_LEASE, epoch),
        )
    )


def current_epoch(reader: Reader) -> int:
    """The epoch of the server that was started last; 0 when none ever was."""
    row = lease_rows.read(reader, SERVER_LEASE)
    return 0 if row is None else row.fence
