"""Rows of the table of leases, read and written inside the caller's transaction.

Invariant: one row a name for ever, and no statement here lowers a fence. Times are boot times of the domain in the row.

Not for: deciding who gets a lease (see `states`). Deleting released rows was rejected: the fence would start anew.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hermes_state.clock import ClockDomain
from hermes_state.errors import InvalidInput
from hermes_state.owners import OwnerIdentity

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction


@dataclass(frozen=True, kw_only=True)
class LeaseRow:
    """One row as it stands. Everything from `owner` on means nothing while it is free."""

    name: str  # what is leased
    fence: int  # rises with every owner
    renewals: int  # rises with every renewal, starts at 0 with every owner
    owner: str | None  # JSON of the owner identity; None when free
    domain: ClockDomain  # in which the two times below were read
    acquired_boottime: float  # when this owner got it
    expires_boottime: float  # when it runs out unless it is renewed
    term_seconds: float  # what one renewal gives
    acquired_at: float | None  # epoch seconds UTC; for people only

    @property
    def identity(self) -> OwnerIdentity | None:
        """The owner, or None when the row is free or was written by something that this version cannot read."""
        if self.owner is None:
            return None
        try:
            return OwnerIdentity.from_json(self.owner)
        except InvalidInput:
            return None

    @property
    def note(self) -> Mapping[str, str]:
        """What the owner says of itself; empty when it says nothing."""
        return note_in(self.owner)


@dataclass(frozen=True, kw_only=True)
class LeaseView:
    """A lease as reports show it."""

    name: str  # what is leased
    fence: int  # of the present or the last owner
    owner: OwnerIdentity | None  # None when it is free, or when its owner cannot be read
    is_free: bool  # released; an expired lease is not free, it can be taken
    expires_in_seconds: float | None  # below 0: ran out; None when free or measured on another clock
    acquired_at: float | None  # epoch seconds UTC
    note: Mapping[str, str]  # what its owner says of itself; empty when it says nothing


# The owner's own words stand in the JSON of its identity, whose readers leave out fields that they do not know.
_NOTE = "note"


def owner_text(identity: OwnerIdentity, note: Mapping[str, str] | None) -> str:
    """The owner as it is written: its identity, and what it says of itself."""
    if not note:
        return identity.to_json()
    return json.dumps({**json.loads(identity.to_json()), _NOTE: dict(note)}, sort_keys=True, separators=(",", ":"))


def note_in(owner: str | None) -> Mapping[str, str]:
    """What the owner in a row says of itself."""
    try:
        found = None if owner is None else json.loads(owner).get(_NOTE)
    except (ValueError, AttributeError):
        return {}
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}


_COLUMNS = (
    "name, fence, renewals, owner, boot_id, time_namespace, acquired_boottime, expires_boottime, term_seconds,"
    " acquired_at"
)


def read(reader: Reader, name: str) -> LeaseRow | None:
    """The row of a lease, None when nobody ever had it."""
    found = reader.row(f"SELECT {_COLUMNS} FROM leases WHERE name = ?", (name,))
    if found is None:
        return None
    name, fence, renewals, owner, boot_id, time_namespace, acquired, expires, term, acquired_at = found
    return LeaseRow(
        name=name, fence=fence, renewals=renewals, owner=owner,
        domain=ClockDomain(boot_id=boot_id or "", time_namespace=time_namespace or ""),
        acquired_boottime=acquired or 0.0, expires_boottime=expires or 0.0, term_seconds=term or 0.0,
        acquired_at=acquired_at,
    )


def incarnation(reader: Reader) -> str:
    """Which content this is; another one after every adopt, restore, install and repair."""
    found = reader.row("SELECT incarnation FROM store")
    return "" if found is None else str(found[0])


def write_owner(tx: Transaction, row: LeaseRow) -> None:
    """Put a new owner into the row. The caller has read it in this transaction and raised the fence."""
    tx.execute(
        f"INSERT INTO leases ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET"
        " fence = excluded.fence, renewals = excluded.renewals, owner = excluded.owner, boot_id = excluded.boot_id,"
        " time_namespace = excluded.time_namespace, acquired_boottime = excluded.acquired_boottime,"
        " expires_boottime = excluded.expires_boottime, term_seconds = excluded.term_seconds,"
        " acquired_at = excluded.acquired_at WHERE excluded.fence > fence",
        (
            row.name, row.fence, row.renewals, row.owner, row.domain.boot_id, row.domain.time_namespace,
            row.acquired_boottime, row.expires_boottime, row.term_seconds, row.acquired_at,
        ),
    )


def write_renewal(tx: Transaction, name: str, *, expires_boottime: float, domain: ClockDomain) -> None:
    """One renewal more."""
    tx.execute(
        "UPDATE leases SET renewals = renewals + 1, expires_boottime = ?, boot_id = ?, time_namespace = ?"
        " WHERE name = ?",
        (expires_boottime, domain.boot_id, domain.time_namespace, name),
    )


def write_free(tx: Transaction, name: str) -> None:
    """Take the owner out; the fence stays."""
    tx.execute("UPDATE leases SET owner = NULL, expires_boottime = NULL WHERE name = ?", (name,))


def fences_of(reader: Reader) -> dict[str, int]:
    """The fence of every lease, for whatever is about to replace the content of the store."""
    return {name: fence for name, fence in reader.rows("SELECT name, fence FROM leases")}


def raise_fences(tx: Transaction, fences: Mapping[str, int]) -> None:
    """After content was replaced by older content: no fence may be below what was given out already, and all are free.

    The caller also changes the store's incarnation, which ends every lease that was held over the old content.
    """
    tx.execute("UPDATE leases SET owner = NULL, expires_boottime = NULL")
    tx.executemany(
        "INSERT INTO leases (name, fence) VALUES (?, ?)"
        " ON CONFLICT (name) DO UPDATE SET fence = max(fence, excluded.fence)",
        fences.items(),
    )
