"""What is stored of an instance's connections: the version and the boot id of the last one that changed them.

Invariant: written only by a connect that changed one of the two, in the commit that applies its recovery.

Not for: whether an instance is connected, which is never stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hermes_state.instances import last_seen
from hermes_state.instances.failures import attended
from hermes_state.instances.protocol import forget_cursors

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction


@dataclass(frozen=True, kw_only=True)
class Remembered:
    """What is stored of an instance's connections."""

    protocol_version: int  # negotiated last
    boot_id: str  # of the plugin's process whose recovery was applied last
    changed_at: float  # epoch seconds UTC, when one of the two changed


def read(reader: Reader, instance_id: str) -> Remembered | None:
    """What is stored of an instance's connections; None before its first one."""
    row = reader.row(
        "SELECT protocol_version, boot_id, changed_at FROM gateway_links WHERE instance_id = ?", (instance_id,)
    )
    return None if row is None else Remembered(protocol_version=row[0], boot_id=row[1], changed_at=row[2])


def write(tx: Transaction, instance_id: str, *, protocol_version: int, boot_id: str, at: float) -> None:
    """Remember a connect that changed one of the two."""
    tx.execute(
        "INSERT INTO gateway_links (instance_id, protocol_version, boot_id, changed_at) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (instance_id) DO UPDATE SET protocol_version = excluded.protocol_version,"
        " boot_id = excluded.boot_id, changed_at = excluded.changed_at",
        (instance_id, protocol_version, boot_id, at),
    )


def forget(tx: Transaction, instance_id: str) -> None:
    """Part of removing an instance: everything that is stored of its connections."""
    tx.execute("DELETE FROM gateway_links WHERE instance_id = ?", (instance_id,))
    last_seen.forget(tx, instance_id)
    forget_cursors(tx, instance_id)
    attended(tx, instance_id)
