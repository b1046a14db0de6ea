"""Dropping leftovers that are proven safe at this moment.

Invariant: before anything goes, everything is looked at again with `deep`; each leftover gets a line in the ledger
first, then leaves its name in one step, and only then its bytes go. A kill leaves it where it was, or a working folder
that a later run removes. Nothing goes while a process works on deleted files of the store.

Not for: deciding (`judging`).
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from hermes_state.clock import SYSTEM, Clock
from hermes_state.flushing import sync_folder
from maintenance import ledger
from maintenance.gate import preflight
from maintenance.leftovers.inventory import inventory
from maintenance.leftovers.names import DROPPING, KINDS
from maintenance.leftovers.records import Leftover, Pruned
from maintenance.removal.record import new_run
from maintenance.store_context import Context, context_of

VERB = "sessions leftovers"


def prune(store: Path | str, chosen: Collection[Path] | None = None, *, clock: Clock = SYSTEM) -> Pruned:
    """Drop the leftovers at the paths `chosen`, or all that are safe; what is not safe by now stays, with the reason.

    Raises `NotFound` without a store, `GenerationLost`, `Corrupt` for a store whose WAL cannot be read, `LedgerDamaged`
    when the record cannot be written, OSError when a file cannot be moved.
    """
    return drop(context_of(Path(store), clock), chosen)


def drop(ctx: Context, chosen: Collection[Path] | None) -> Pruned:
    """The same for a command."""
    preflight(ctx, VERB, beside=True)
    wanted = None if chosen is None else {Path(os.path.abspath(path)) for path in chosen}
    now = inventory(ctx.db, deep=True, clock=ctx.clock)
    # Oldest first, so that of two that are the same the newer one is there while the older one goes.
    picked = sorted(
        (one for one in now if (one.safe if wanted is None else one.path in wanted)), key=lambda one: one.modified_at
    )
    dropped, kept, run = [], [], new_run()
    for one in picked:
        reason = "" if one.safe and _unchanged(one) else one.why if not one.safe else "It was changed just now."
        if reason:
            kept.append(replace(one, safe=False, why=reason))
            continue
        _record(ctx, one, run)
        _remove(one)
        dropped.append(one)
    return Pruned(
        store=ctx.db, dropped=tuple(dropped), kept=tuple(kept), ledger=ledger.ledger_path(ctx.db) if dropped else None
    )


def _unchanged(one: Leftover) -> bool:
    """Whether it still has the size it was judged with, and its newer twin is still there."""
    size = 0
    for part in one.parts:
        if not part.exists():
            return False
        walked = (Path(root) / name for root, _folders, names in os.walk(part) for name in names)
        size += sum(path.lstat().st_size for path in walked) if part.is_dir() else part.lstat().st_size
    return size == one.bytes and (one.same_as is None or one.same_as.exists())


def _record(ctx: Context, one: Leftover, run: str) -> None:
    ledger.append(
        ctx.db,
        ledger.new_entry(
            verb=VERB, reason=f"{KINDS[one.kind]} dropped: {one.why}",
            filters={"kind": one.kind, "path": str(one.path), "bytes": one.bytes}, sessions=(), messages=0, run=run,
            now=ctx.clock.now(),
        ),
    )


def _remove(one: Leftover) -> None:
    """Move it out of its name first: a half removed copy must not look like a copy."""
    working = Path(tempfile.mkdtemp(prefix=f"{DROPPING}{os.getpid()}-", dir=one.path.parent))
    # The file itself last: without it nobody would know what its -wal was.
    for part in reversed(one.parts):
        os.rename(part, working / part.name)
    sync_folder(one.path.parent)
    shutil.rmtree(working)
    sync_folder(one.path.parent)
