"""What the doors ask about native stores: whether a file is one, and whether this release may write to it.

Invariant: no verb writes to a store whose ledger of schema steps is not ours: one of a newer release, or with a step
that was changed. Reading is left to the dialect, which adapts to the columns present. Not for: applying steps; the one
verb that does is let in with steps missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_state.engine import APPLICATION_ID, open_read
from hermes_state.errors import LockTimeout, NotAStore, StateError

if TYPE_CHECKING:
    from hermes_state.engine import ReadStore, Store
    from maintenance.context import Context


def is_native(ctx: Context) -> bool:
    """Whether the file carries our mark; False while a holder keeps even readers out, when it cannot be told."""
    try:
        with open_read(ctx.db, busy_seconds=0.2, search_modules=False, clock=ctx.clock) as store:
            return store.row("PRAGMA application_id") == (APPLICATION_ID,)
    except LockTimeout:
        return False


def refuse_other_program(ctx: Context) -> None:
    """Raise NotAStore for a database of another program. What cannot be read is damaged, and left to who asks."""
    from maintenance.dialects.detect import dialect_of

    try:
        with open_read(ctx.db, search_modules=False, clock=ctx.clock) as store:
            dialect_of(store)
    except NotAStore as problem:
        if problem.sqlite_code is None:
            raise
    except StateError:
        return


APPLIES_STEPS = "sessions optimize"


def require_our_release(ctx: Context, verb: str, *, busy_seconds: float) -> None:
    """The same before a question is asked; opens the file for reading only."""
    with open_read(ctx.db, busy_seconds=busy_seconds, search_modules=False, clock=ctx.clock) as store:
        refuse_other_release(store, verb)


def refuse_other_release(store: Store | ReadStore, verb: str) -> None:
    """Raise SchemaTooNew, SchemaTooOld or MigrationFailed when a native store is not of this release's schema."""
    if store.application_id != APPLICATION_ID:
        return
    # Imported here: files of hermes-agent need none of it.
    from hermes_state.engine.migrate import applied, pending, refuse_too_old

    missing = pending(store.path, applied(store))
    if verb != APPLIES_STEPS:
        refuse_too_old(store.path, missing)
