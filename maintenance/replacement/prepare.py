"""The private copy of the new content, made ready to take the store's place.

Invariant: what has to be true of the content once it is in place is true of the copy before: a native store has
another incarnation, no fence lower than one that was given out, and no message id that was given out already; it owes
nothing that the old content has sent (`owing`), lets in nobody whom that had put out (`serving`), routes no chat back
to where it was before (`routing`), knows which tokens that has sent (`rotating`), takes or seals nothing twice
(`working`), and runs no slot of cron that ran there (`cron`). Where the old store cannot be read, its fences are
unknown, and every fence rises by more than any store ever gave out.

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
from maintenance.dialects.native import scheduled
from maintenance.dialects.native import serving as serving_tables
from maintenance.dialects.native.owed import Carried
from maintenance.dialects.native.routed import Moved
from maintenance.dialects.native.scheduled import Kept
from maintenance.dialects.native.serving import SERVER_LEASE, Brought
from maintenance.replacement import cron, owing, rotating, routing, serving, working
from maintenance.replacement.child import run
from maintenance.replacement.cron import old_cron
from maintenance.replacement.old import Old
from maintenance.replacement.owing import FENCE_LEAP, old_owed
from maintenance.replacement.rotating import old_rotating
from maintenance.replacement.routing import old_routing
from maintenance.replacement.serving import old_serving
from maintenance.replacement.working import old_working

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
    routing: Old | None = None  # its chats and who is paired; None: as for `owed`
    rotating: Old | None = None  # its credentials; None: as for `owed`
    working: Old | None = None  # its replies, lanes, logins and dead targets; None: as for `owed`
    cron: Old | None = None  # its jobs and what became of their slots; None: as for `owed`


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """The file whose pages go into the store."""

    path: Path  # private, one file, in rollback mode
    incarnation: str | None  # new, None for a foreign file
    fences: int  # how many were raised
    obligations: Carried  # what became of them
    gateways: Brought  # what became of instances, turns and questions
    routing: Moved  # what became of chats and of who is paired
    cron: Kept  # what became of jobs and slots


def old_facts(store: Replacement, *, own_rows: bool = False, hidden: bool = False) -> OldFacts:
    """What the locked store has given out, as far as it can be read.

    `own_rows`: the new content was made of this content, which nobody has changed since. `hidden`: commits may stand
    in its WAL that SQLite does not see.
    """
    owed = None if own_rows else old_owed(store.old, hidden=hidden)
    serves = None if own_rows else old_serving(store.old, hidden=hidden)
    routes = None if own_rows else old_routing(store.old, hidden=hidden)
    rotates = None if own_rows else old_rotating(store.old, hidden=hidden)
    works = None if own_rows else old_working(store.old, hidden=hidden)
    runs = None if own_rows else old_cron(store.old, hidden=hidden)
    try:
        tables = {str(name) for (name,) in store.old("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        if not {"store", "leases", "messages"} <= tables:
            return OldFacts(
                readable=bool(tables), owed=owed, serving=serves, routing=routes, rotating=rotates, working=works,
                cron=runs,
            )
        identity = store.old(
            "SELECT store_id, max(message_floor, coalesce((SELECT max(id) FROM messages), 0)) FROM store"
        )
        fences = {str(name): int(fence) for name, fence in store.old("SELECT name, fence FROM leases")}
    except StorageError:
        return OldFacts(
            readable=False, owed=owed, serving=serves, routing=routes, rotating=rotates, working=works, cron=runs
        )
    store_id, highest = identity[0] if identity else (None, 0)
    return OldFacts(
        readable=True, fences=fences, highest_id=int(highest), store_id=store_id, owed=owed, serving=serves,
        routing=routes, rotating=rotates, working=works, cron=runs,
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
        incarnation, fences, obligations, gateways, moved, kept = _rename_content(path, old, clock)
        settle_private(path)
    except BaseException:
        if not private:
            remove_working(path)
        raise
    return Prepared(
        path=path, incarnation=incarnation, fences=fences, obligations=obligations, gateways=gateways,
        routing=moved, cron=kept,
    )


def remove_working(path: Path) -> None:
    """Remove a private copy and what SQLite made beside it."""
    for ending in ("", "-wal", "-shm", "-journal"):
        Path(f"{path}{ending}").unlink(missing_ok=True)


def _rename_content(path: Path, old: OldFacts, clock: Clock) -> tuple[str | None, int, Carried, Brought, Moved, Kept]:
    """Give native content another incarnation, and let no fence and no id fall."""
    with open_exclusive(path, foreign=True, clock=clock) as store:
        tables = {str(name) for (name,) in store.rows("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        if store.application_id != APPLICATION_ID or not {"store", "leases", "messages"} <= tables:
            return None, 0, Carried(), Brought(), Moved(), Kept()
        fences = dict(fences_of(store))
        if old.readable:
            fences = {name: max(fences.get(name, 0), fence) for name, fence in {**fences, **old.fences}.items()}
        else:
            # A server may have been started for the first time since: its epoch is a fence as well.
            first = {SERVER_LEASE: 0} if serving_tables.anybody(store.rows) else {}
            if scheduled.has_cron(store.rows) and scheduled.any_cron(store.rows):  # the same of its first ticker
                first[scheduled.TICK_LEASE] = 0
            fences = {name: fence + FENCE_LEAP for name, fence in (first | fences).items()}
        incarnation, obligations, gateways = uuid.uuid4().hex, Carried(), Brought()
        moved, kept = Moved(), Kept()
        owes = old.owed is not None and owing.make_room(store, old.owed, clock)
        serves = old.serving is not None and serving.make_room(store, old.serving, clock)
        routes = old.routing is not None and routing.make_room(store, old.routing, clock, readable=old.readable)
        rotates = old.rotating is not None and rotating.make_room(store, old.rotating, clock)
        works = old.working is not None and working.make_room(store, old.working, clock)
        runs = old.cron is not None and cron.make_room(store, old.cron, clock)
        with store.transaction(durability="power") as tx:
            raise_fences(tx, fences)
            tx.execute(
                "UPDATE store SET incarnation = ?, message_floor = max(message_floor, ?)",
                (incarnation, old.highest_id),
            )
            (mine,) = tx.rows("SELECT store_id FROM store")[0]
            same, at = mine == old.store_id, clock.now()
            if owes and old.owed is not None:
                obligations = owing.carry_over(tx, old.owed, same_store=same, at=at)
            if serves and old.serving is not None:
                gateways = serving.carry_over(tx, old.serving, same_store=same, at=at)
            if routes and old.routing is not None:
                moved = routing.carry_over(tx, old.routing, same_store=same, readable=old.readable, at=at)
            if rotates and old.rotating is not None:
                rotating.carry_over(tx, old.rotating, same_store=same)
            if works and old.working is not None:
                working.carry_over(tx, old.working, same_store=same, at=at)
            if runs and old.cron is not None:
                kept = cron.carry_over(tx, old.cron, same_store=same, at=at)
        return incarnation, len(fences), obligations, gateways, moved, kept
