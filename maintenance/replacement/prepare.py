"""The private copy of the new content, made ready to take the store's place.

Invariant: what has to be true of the content once it is in place is true of the copy before: a native store has
another incarnation, no fence lower than one that was given out, and no message id that was given out already; it owes
nothing that the old content has sent (`owing`), lets in nobody whom that had put out (`serving`), and runs no slot of
cron that ran there (`cron`). Where the old store cannot be read, its fences are unknown, and every fence rises by more
than any store ever gave out.

Not for: the caller's file, which is only read unless it is a working file of the caller's own. Doing this after the
replacement was rejected: a kill between the two would leave old ids and fences in force.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_state.engine import APPLICATION_ID, open_exclusive
from hermes_state.engine.whole_file import settle_private
from hermes_state.errors import StorageError
from hermes_state.leases import fences_of, raise_fences
from hermes_state.routing.changing import highest_generation, raise_generations
from hermes_state.routing.records import has_routing
from maintenance.dialects.native import scheduled
from maintenance.dialects.native import serving as serving_tables
from maintenance.dialects.native.owed import Carried
from maintenance.dialects.native.scheduled import Kept
from maintenance.dialects.native.serving import SERVER_LEASE, Brought
from maintenance.replacement import cron, owing, serving
from maintenance.replacement.child import run
from maintenance.replacement.cron import old_cron
from maintenance.replacement.old import Old
from maintenance.replacement.owing import FENCE_LEAP, old_owed
from maintenance.replacement.serving import old_serving

if TYPE_CHECKING:
    from hermes_state.clock import Clock
    from hermes_state.engine.replace import Replacement

WORKING = ".replacing-"

@dataclass(frozen=True, kw_only=True)
class OldFacts:
    """What the content that goes away has given out."""

    readable: bool  # False when the old content is damaged; the rest is then unknown
    fences: Mapping[str, int] = field(default_factory=dict)  # of its leases
    highest_id: int = 0  # message ids up to here were given out
    store_id: str | None = None  # its identity, None for a file that is not native
    owed: Old | None = None  # its obligations; None: those of the new content are the store's own, as they are
    serving: Old | None = None  # its gateway instances and turns; None: as for `owed`
    cron: Old | None = None  # its jobs and what became of their slots; None: as for `owed`


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """The file whose pages go into the store."""

    path: Path  # private, one file, in rollback mode
    incarnation: str | None  # new, None for a foreign file
    fences: int  # how many were raised
    obligations: Carried  # what became of them
    gateways: Brought  # what became of instances, turns and questions
    cron: Kept  # what became of jobs and slots


def old_facts(store: Replacement, *, own_rows: bool = False, hidden: bool = False) -> OldFacts:
    """What the locked store has given out, as far as it can be read.

    `own_rows`: the new content was made of this content, which nobody has changed since. `hidden`: commits may stand
    in its WAL that SQLite does not see.
    """
    owed = None if own_rows else old_owed(store.old, hidden=hidden)
    serves = None if own_rows else old_serving(store.old, hidden=hidden)
    runs = None if own_rows else old_cron(store.old, hidden=hidden)
    try:
        tables = {str(name) for (name,) in store.old("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        if not {"store", "leases", "messages"} <= tables:
            return OldFacts(readable=bool(tables), owed=owed, serving=serves, cron=runs)
        identity = store.old(
            "SELECT store_id, max(message_floor, coalesce((SELECT max(id) FROM messages), 0)) FROM store"
        )
        fences = {str(name): int(fence) for name, fence in store.old("SELECT name, fence FROM leases")}
    except StorageError:
        return OldFacts(readable=False, owed=owed, serving=serves, cron=runs)
    store_id, highest = identity[0] if identity else (None, 0)
    return OldFacts(
        readable=True, fences=fences, highest_id=int(highest), store_id=store_id, owed=owed, serving=serves,
        cron=runs,
    )


def prepare(
    db: Path, new: Path, old: OldFacts, *, clock: Clock, private: bool, page_size: int | None
) -> Prepared:
    """Make `new`, or a private copy of it beside the store, ready. Raises what copying raises."""
    path = new
    if not private:
        path = db.with_name(f"{db.name}{WORKING}{os.getpid()}-{uuid.uuid4().hex[:8]}.db")
        run("copy", db, names=[new.name], source=str(new.parent), to=str(db.parent), target=path.name)
    try:
        settle_private(path, page_size=page_size)
        incarnation, fences, obligations, gateways, kept = _rename_content(path, old, clock)
        settle_private(path)
    except BaseException:
        if not private:
            remove_working(path)
        raise
    return Prepared(
        path=path, incarnation=incarnation, fences=fences, obligations=obligations, gateways=gateways,
        cron=kept,
    )


def remove_working(path: Path) -> None:
    """Remove a private copy and what SQLite made beside it."""
    for ending in ("", "-wal", "-shm", "-journal"):
        Path(f"{path}{ending}").unlink(missing_ok=True)


def _rename_content(path: Path, old: OldFacts, clock: Clock) -> tuple[str | None, int, Carried, Brought, Kept]:
    """Give native content another incarnation, and let no fence and no id fall."""
    with open_exclusive(path, foreign=True, clock=clock) as store:
        tables = {str(name) for (name,) in store.rows("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        if store.application_id != APPLICATION_ID or not {"store", "leases", "messages"} <= tables:
            return None, 0, Carried(), Brought(), Kept()
        fences = dict(fences_of(store))
        if old.readable:
            fences = {name: max(fences.get(name, 0), fence) for name, fence in {**fences, **old.fences}.items()}
        else:
            # A server may have been started for the first time since: its epoch is a fence as well.
            first = {SERVER_LEASE: 0} if serving_tables.anybody(store.rows) else {}
            if scheduled.has_cron(store.rows) and scheduled.any_cron(store.rows):  # the same of its first ticker
                first[scheduled.TICK_LEASE] = 0
            fences = {name: fence + FENCE_LEAP for name, fence in (first | fences).items()}
        incarnation, obligations, gateways, kept = uuid.uuid4().hex, Carried(), Brought(), Kept()
        owes = old.owed is not None and owing.make_room(store, old.owed, clock)
        serves = old.serving is not None and serving.make_room(store, old.serving, clock)
        runs = old.cron is not None and cron.make_room(store, old.cron, clock)
        with store.transaction(durability="power") as tx:
            raise_fences(tx, fences)
            tx.execute(
                "UPDATE store SET incarnation = ?, message_floor = max(message_floor, ?)",
                (incarnation, old.highest_id),
            )
            (mine,) = tx.rows("SELECT store_id FROM store")[0]
            same, at = mine == old.store_id, clock.now()
            if old.owed is not None and has_routing(tx):
                # Only whether it is the same one is ever asked of a generation: what was given out is not looked for.
                raise_generations(tx, highest_generation(tx) + FENCE_LEAP)
            if owes and old.owed is not None:
                obligations = owing.carry_over(tx, old.owed, same_store=same, at=at)
            if serves and old.serving is not None:
                gateways = serving.carry_over(tx, old.serving, same_store=same, at=at)
            if runs and old.cron is not None:
                kept = cron.carry_over(tx, old.cron, same_store=same, at=at)
        return incarnation, len(fences), obligations, gateways, kept
