"""Two files with one identity, and giving one of them an identity of its own.

Invariant: a copy is told by the random id inside it, never by its path. A new identity is given under the exclusive
lock, and the incarnation changes with it, so that derived files start anew. Not for: moved stores, which keep their
identity.

Looking through the whole disk was rejected: the homes of one installation and the folder of the store are where a copy
gets used by mistake.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from hermes_state.engine import APPLICATION_ID, is_open, open_read
from hermes_state.engine.stale import has_sidecars
from hermes_state.errors import InvalidInput, StateError
from hermes_state.location import PROFILES, STORE_NAME, root_of
from maintenance.dialects.native.shape import Identity, native_identity
from maintenance.doctor.findings import Finding, Severity, command
from maintenance.doctor.identity import HEADER_BYTES, MAGIC
from maintenance.gate import exclusive
from maintenance.leftovers.names import listed

if TYPE_CHECKING:
    from hermes_state.clock import Clock
    from maintenance.context import Context

VERB = "doctor --new-identity"
MOST_LOOKED_AT = 200
ROOTS_WITHIN = 2_000  # pages
_TABLE_LEAF = 13


def twin_findings(path: Path, identity: Identity, clock: Clock) -> list[Finding]:
    """Other stores of the same installation or folder that carry the same identity."""
    twins = [other for other in _others(path) if _carries(other, identity.store_id, clock)]
    if not twins:
        sentence = "No other store of this installation or folder has the same identity."
        return [Finding(code="identity_single", severity=Severity.OK, object=str(path), sentence=sentence)]
    return [
        Finding(
            code="identity_conflict",
            severity=Severity.WARNING,
            object=str(twin),
            sentence=f"{twin} has the same identity as this store: it is a copy. If it is used and not a backup, rows "
            "and keys of both will be taken for one another.",
            facts={"store_id": identity.store_id, "other": str(twin)},
            next_command=command("doctor", twin, "--new-identity"),
        )
        for twin in twins
    ]


def new_identity(ctx: Context) -> tuple[Identity, Identity]:
    """Give the store a new identity; returns the old and the new one. Raises StoreHeld, InvalidInput."""
    with exclusive(ctx, VERB) as alone:
        before = native_identity(alone.store)
        if before is None:
            raise InvalidInput(
                f"{ctx.db} is a file of hermes-agent, which has no identity.", hint="Only native stores have one."
            )
        with alone.store.transaction(durability="power") as tx:
            tx.execute(
                "UPDATE store SET store_id = ?, incarnation = ? WHERE one = 1", (uuid.uuid4().hex, uuid.uuid4().hex)
            )
        after = native_identity(alone.store)
        alone.store.checkpoint("truncate")
    assert after is not None
    return before, after


def _others(path: Path) -> list[Path]:
    root = root_of(path.parent, os.environ)
    places = [root / STORE_NAME, *sorted((root / PROFILES).glob(f"*/{STORE_NAME}")), *sorted(path.parent.glob("*.db"))]
    real = Path(os.path.realpath(path))
    # What this program makes beside a store is a copy, and nobody takes it for a store in use.
    known = {one.path for one in listed(real) if one.kind not in ("unknown", "search_index")}
    found: dict[Path, None] = {}
    for place in places:
        other = Path(os.path.realpath(place))
        if other != real and other not in known and other.is_file() and not is_open(other):
            found[other] = None
    return list(found)[:MOST_LOOKED_AT]


def _carries(path: Path, store_id: str, clock: Clock) -> bool:
    """Whether a file has this identity. Looking leaves nothing beside it.

    SQLite would make -wal and -shm beside a store in WAL mode that nobody has open. Of such a one the row is looked for
    in the bytes: a page of one row with the id in it, near the beginning, where incremental vacuum keeps the roots of
    all tables. Nothing in this process has the file open, so to close it drops no lock.
    """
    if has_sidecars(path):
        return _store_id(path, clock) == store_id
    try:
        with path.open("rb") as content:
            head = content.read(HEADER_BYTES)
            ours = head.startswith(MAGIC) and head[68:72] == APPLICATION_ID.to_bytes(4, "big")
            if ours and head[18:20] == b"\x02\x02":
                page_size = int.from_bytes(head[16:18], "big")
                content.seek(0)
                return _row_is_in(content, store_id.encode(), 65536 if page_size == 1 else page_size)
    except OSError:
        return False  # its own doctor says what is wrong with it
    return ours and _store_id(path, clock) == store_id


def _row_is_in(content: BinaryIO, store_id: bytes, page_size: int) -> bool:
    for _ in range(ROOTS_WITHIN):
        page = content.read(page_size)
        if not page:
            break
        if page[0] == _TABLE_LEAF and page[3:5] == b"\0\1" and store_id in page:
            return True
    return False


def _store_id(path: Path, clock: Clock) -> str | None:
    """The identity of a file, None when it is no native store or cannot be read now."""
    try:
        with open_read(path, busy_seconds=0.2, search_modules=False, clock=clock) as store:
            if store.row("PRAGMA application_id") != (APPLICATION_ID,):
                return None
            found = native_identity(store)
            return None if found is None else found.store_id
    except StateError:
        return None  # what it is was asked to tell copies from others; its own doctor says what is wrong with it
