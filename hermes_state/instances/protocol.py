"""Protocol versions: negotiated for each connection, carried by every frame and cursor.

Invariant: two ranges agree on the highest version that both have, or are refused with both ranges named. A frame is
read only in the version of its connection; what was stored under another version is read while that version is in our
range, and refused by name, never deleted, when it is not.

Not for: what frames mean. One literal version on both sides was rejected: an update of the server would lock out every
paired plugin at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_state.errors import CursorVersionRefused, FrameRefused, InvalidInput, VersionIncompatible

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction

MOST_CURSOR_CHARACTERS = 4_096


@dataclass(frozen=True, slots=True)
class VersionRange:
    """The versions that one side speaks: all whole numbers from `lowest` to `highest`."""

    lowest: int  # from 1
    highest: int  # not below lowest

    def __post_init__(self) -> None:
        whole = all(isinstance(one, int) and not isinstance(one, bool) for one in (self.lowest, self.highest))
        if not whole or not 1 <= self.lowest <= self.highest < 2**31:
            raise InvalidInput(
                f"A range of protocol versions goes from 1 upwards, not from {self.lowest!r} to {self.highest!r}.",
                argument="versions",
            )

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.lowest <= version <= self.highest

    def __str__(self) -> str:
        return str(self.lowest) if self.lowest == self.highest else f"{self.lowest} to {self.highest}"

    def common(self, other: VersionRange) -> int | None:
        """The highest version of both, or None."""
        version = min(self.highest, other.highest)
        return version if version in self and version in other else None


def negotiate(ours: VersionRange, theirs: VersionRange, *, instance_id: str) -> int:
    """The version of a new connection. Raises `VersionIncompatible`, which names both ranges."""
    version = ours.common(theirs)
    if version is None:
        raise VersionIncompatible(
            f"Instance {instance_id!r} speaks protocol {theirs}; this server speaks {ours}.",
            hint=f"Update the {'plugin' if theirs.highest < ours.lowest else 'server'}.",
            instance_id=instance_id, ours=(ours.lowest, ours.highest), theirs=(theirs.lowest, theirs.highest),
        )
    return version


def rejection(error: VersionIncompatible) -> dict[str, Any]:
    """The frame that refuses a plugin of another version; a plugin of any version can read it."""
    lowest, highest = error.facts["ours"]
    their_lowest, their_highest = error.facts["theirs"]
    return {
        "type": "connection.rejected", "code": error.code, "message": error.message,
        "server_versions": {"lowest": lowest, "highest": highest},
        "plugin_versions": {"lowest": their_lowest, "highest": their_highest},
    }


# --- frames ------------------------------------------------------------------------------------------------------


def stamped(frame: Mapping[str, Any], version: int) -> dict[str, Any]:
    """A frame as it goes out, or is stored, in this version. One that was stored is stamped anew when it goes out."""
    return {**frame, "version": version}


def restamped(frame: Mapping[str, Any], *, agreed: int, ours: VersionRange) -> dict[str, Any]:
    """A stored frame for a connection of version `agreed`. Raises `FrameRefused` when it is of no version of ours."""
    _refuse_frame(frame, frame.get("version") in ours, wanted=str(ours))
    return stamped(frame, agreed)


def refuse_other_version(frame: Mapping[str, Any], *, agreed: int) -> None:
    """Raise `FrameRefused` unless a received frame is of its connection's version."""
    version = frame.get("version")
    _refuse_frame(frame, version == agreed and not isinstance(version, bool), wanted=str(agreed))


def _refuse_frame(frame: Mapping[str, Any], fine: bool, *, wanted: str) -> None:
    if not fine:
        version, kind = frame.get("version"), frame.get("type")
        raise FrameRefused(
            f"A frame of type {kind!r:.60} is of protocol {version!r:.20}; {wanted} was expected.",
            hint="Stamp each frame with the version that its connection agreed on.",
            type=str(kind)[:60], version=version if isinstance(version, int) else None, wanted=wanted,
        )


# --- cursors -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Cursor:
    """How far a reader got in what an instance sends."""

    instance_id: str  # whose frames
    name: str  # of the reader
    version: int  # in which the position was told
    position: str  # opaque, in the sender's words
    saved_at: float  # epoch seconds UTC


def save_cursor(tx: Transaction, instance_id: str, name: str, *, version: int, position: str, at: float) -> None:
    """Keep a position, in the place of the reader's earlier one. Raises `InvalidInput`."""
    VersionRange(version, version)
    if not instance_id or not name or len(position) > MOST_CURSOR_CHARACTERS:
        raise InvalidInput(
            f"A cursor has an instance, a name and a position of at most {MOST_CURSOR_CHARACTERS:,} characters.",
            argument="cursor",
        )
    tx.execute(
        "INSERT INTO gateway_cursors (instance_id, name, protocol_version, position, saved_at) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT (instance_id, name) DO UPDATE SET protocol_version = excluded.protocol_version,"
        " position = excluded.position, saved_at = excluded.saved_at",
        (instance_id, name, version, position, at),
    )


def resume(reader: Reader, instance_id: str, name: str, *, ours: VersionRange) -> Cursor | None:
    """Where to go on, None when nothing was kept. Raises `CursorVersionRefused`; the cursor stays as it is."""
    row = reader.row(
        "SELECT protocol_version, position, saved_at FROM gateway_cursors WHERE instance_id = ? AND name = ?",
        (instance_id, name),
    )
    if row is None:
        return None
    version, position, saved_at = row
    if version not in ours:
        raise CursorVersionRefused(
            f"Cursor {name!r} of instance {instance_id!r} in {reader.path} is of protocol {version};"
            f" this server speaks {ours}.",
            hint="It was kept. Start a server that speaks its version, or save a position of this one.",
            path=reader.path, instance_id=instance_id, name=name, version=version, ours=(ours.lowest, ours.highest),
        )
    return Cursor(instance_id=instance_id, name=name, version=version, position=position, saved_at=saved_at)


def forget_cursors(tx: Transaction, instance_id: str) -> None:
    """Part of removing an instance."""
    tx.execute("DELETE FROM gateway_cursors WHERE instance_id = ?", (instance_id,))
