"""The three ways to get a store: reading, online, exclusive.

Invariant of `exclusive`, in this order: a scan that finds no holder; a WAL that SQLite reads to its end; SQLite's
exclusive lock; a second scan under the lock and the verdict of `lockowners`; the caller's work; the lock is released by
closing. `online` asks for the same WAL: a damaged one is overwritten by whoever writes next. Nobody can come in between
the second scan and the work, because SQLite keeps every other opener out. In rollback mode the exclusive lock is
granted beside an idle holder, and only the scan sees that one: the second scan is what refuses.

Not for: `--dry-run`, which only reads. One scan before the lock was rejected (a program may start after it), and so was
one scan under the lock only (it would wait for the deadline to say what the first scan knows at once). A deadline that
passes is the engine's `LockTimeout`, which logs one WARNING for each process that holds a lock of the writing kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from hermes_state.engine import APPLICATION_ID, NulRule, ReadStore, Store, open_exclusive, open_read, open_write
from hermes_state.errors import LockTimeout, NotFound, StateError, StoreHeld
from maintenance.gate import refusals
from maintenance.gate.native import is_native, refuse_other_release, require_our_release
from maintenance.gate.opened import Alone, Forced, Online, VacuumOnly
from maintenance.gate.rows import GateRow, require_exclusive, require_online, row_of
from maintenance.gate.wal_end import require_readable_wal

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from hermes_state.engine import StoreDescriptors
    from lockowners import Scan
    from maintenance.context import Context

Scanner = Callable[[Path], "Scan"]

LOCK_DEADLINE_SECONDS = 20.0


@contextmanager
def reading(
    ctx: Context, *, nul_rule: NulRule = NulRule.NATIVE, search_modules: bool = True
) -> Iterator[ReadStore]:
    """A read-only store: no write lock, no checkpoint, whoever else has it open. Any verb may read."""
    require_file(ctx.db)
    with open_read(ctx.db, nul_rule=nul_rule, search_modules=search_modules, clock=ctx.clock) as store:
        yield store


@contextmanager
def online(
    ctx: Context,
    verb: str,
    *,
    nul_rule: NulRule = NulRule.NATIVE,
    deadline_seconds: float = LOCK_DEADLINE_SECONDS,
    scanner: Scanner | None = None,
) -> Iterator[Online]:
    """A store for bounded work beside others; refused only when somebody works on deleted files of it."""
    row = require_online(verb)
    require_file(ctx.db)
    scan = (scanner or look)(ctx.db)
    refuse_split(ctx, row, scan)
    require_readable_wal(ctx, row, busy_seconds=deadline_seconds)
    with open_write(
        ctx.db, foreign=True, deadline_seconds=deadline_seconds, nul_rule=nul_rule, clock=ctx.clock
    ) as store:
        refuse_other_release(store, row.verb)
        yield Online(store=store, scan=scan)


def preflight(ctx: Context, verb: str, *, beside: bool, scanner: Scanner | None = None) -> Scan:
    """Refuse now what the door would refuse later, so that nobody answers a question in vain. Writes nothing."""
    row = require_online(verb) if beside else require_exclusive(verb, force=False)
    require_file(ctx.db)
    scan = (scanner or look)(ctx.db)
    refuse_split(ctx, row, scan)
    if scan.holders and not beside:
        raise refusals.held(
            ctx.db, row, scan, profile=ctx.profile, notes=mode_notes(ctx), native=is_native(ctx)
        )
    require_readable_wal(ctx, row, busy_seconds=LOCK_DEADLINE_SECONDS)
    require_our_release(ctx, row.verb, busy_seconds=LOCK_DEADLINE_SECONDS)
    return scan


def readable_wal(ctx: Context, verb: str) -> None:
    """Refuse as the doors would when the WAL holds commits that cannot be seen, for a plan that opens no door."""
    require_readable_wal(ctx, row_of(verb), busy_seconds=LOCK_DEADLINE_SECONDS)


@overload
def exclusive(
    ctx: Context,
    verb: str,
    *,
    force: Literal[False] = False,
    replaces_content: bool = False,
    nul_rule: NulRule = NulRule.NATIVE,
    deadline_seconds: float = LOCK_DEADLINE_SECONDS,
    scanner: Scanner | None = None,
) -> AbstractContextManager[Alone]: ...


@overload
def exclusive(
    ctx: Context,
    verb: str,
    *,
    force: bool,
    replaces_content: bool = False,
    nul_rule: NulRule = NulRule.NATIVE,
    deadline_seconds: float = LOCK_DEADLINE_SECONDS,
    scanner: Scanner | None = None,
) -> AbstractContextManager[Alone | Forced]: ...


def exclusive(
    ctx: Context,
    verb: str,
    *,
    force: bool = False,
    replaces_content: bool = False,
    nul_rule: NulRule = NulRule.NATIVE,
    deadline_seconds: float = LOCK_DEADLINE_SECONDS,
    scanner: Scanner | None = None,
) -> AbstractContextManager[Any]:
    """The store alone, or with `force` and beside holders a store that can only be vacuumed in place.

    `replaces_content` is for verbs that replace a file or all content: then no process may be hidden either.
    """
    row = require_exclusive(verb, force=force)
    require_file(ctx.db)
    return _exclusive(
        ctx,
        row,
        force=force,
        replaces_content=replaces_content,
        nul_rule=nul_rule,
        deadline_seconds=deadline_seconds,
        scanner=scanner,
    )


@contextmanager
def _exclusive(
    ctx: Context,
    row: GateRow,
    *,
    force: bool,
    replaces_content: bool,
    nul_rule: NulRule,
    deadline_seconds: float,
    scanner: Scanner | None,
) -> Iterator[Alone | Forced]:
    scan = (scanner or look)(ctx.db)
    refuse_split(ctx, row, scan)
    if scan.holders and not force:
        raise refusals.held(
            ctx.db, row, scan, profile=ctx.profile, notes=mode_notes(ctx), native=is_native(ctx)
        )
    require_readable_wal(ctx, row, busy_seconds=deadline_seconds)
    with ExitStack() as stack:
        opened = alone_or_refusal(
            ctx,
            row,
            stack,
            replaces_content=replaces_content,
            nul_rule=nul_rule,
            # With holders in sight there is nothing to wait for: one try shows whether they keep the lock from us.
            deadline_seconds=0.1 if scan.holders else deadline_seconds,
            scanner=scanner,
        )
        if isinstance(opened, Alone):
            yield opened
            return
        if not force:
            raise opened
        yield forced(ctx, row, stack, nul_rule=nul_rule, deadline_seconds=deadline_seconds, scanner=scanner)


def alone_or_refusal(
    ctx: Context,
    row: GateRow,
    stack: ExitStack,
    *,
    replaces_content: bool,
    nul_rule: NulRule,
    deadline_seconds: float,
    scanner: Scanner | None,
) -> Alone | StateError:
    """The store with its exclusive lock held and verified until `stack` closes, or why not; then nothing stays open."""
    with ExitStack() as own:
        try:
            store = own.enter_context(
                open_exclusive(
                    ctx.db, foreign=True, deadline_seconds=deadline_seconds, nul_rule=nul_rule, clock=ctx.clock
                )
            )
        except (LockTimeout, StoreHeld) as refusal:
            return refusal
        refuse_other_release(store, row.verb)
        from lockowners import verdict

        scan = scanner(ctx.db) if scanner else look(ctx.db, store.descriptors)
        refuse_split(ctx, row, scan)
        found = verdict(scan, exclusive_obtained=True, replaces_content=replaces_content)
        if not found.allowed:
            notes = (refusals.ROLLBACK_NOTE,) if store.journal_mode != "wal" else ()
            native = store.application_id == APPLICATION_ID
            return refusals.not_proven(ctx.db, row, scan, found, profile=ctx.profile, notes=notes, native=native)
        stack.push(own.pop_all())
        return Alone(store=store, scan=scan, verdict=found)


def forced(
    ctx: Context,
    row: GateRow,
    stack: ExitStack,
    *,
    nul_rule: NulRule,
    deadline_seconds: float,
    scanner: Scanner | None,
) -> Forced:
    """A store in normal locking mode, for one VACUUM."""
    scan = (scanner or look)(ctx.db)
    refuse_split(ctx, row, scan)
    store: Store = stack.enter_context(
        open_write(ctx.db, foreign=True, deadline_seconds=deadline_seconds, nul_rule=nul_rule, clock=ctx.clock)
    )
    refuse_other_release(store, row.verb)
    count = len(scan.holders)
    others = "1 other process keeps" if count == 1 else f"{count} other processes keep" if count else "others may keep"
    return Forced(
        store=VacuumOnly(store),
        scan=scan,
        warning=(
            f"--force: {others} {ctx.db} open, so only an in-place VACUUM runs. Others wait to write until it ends, "
            "and hermes-agent may report that the database is locked."
        ),
    )


def look(path: Path, alone: StoreDescriptors | None = None) -> Scan:
    """Who has the store open. `alone`: SQLite's own descriptors, once this process has the exclusive lock.

    With them the kernel is also asked whether any other open file of the store exists at all, by a file lease: that
    sees what the tables of other processes hide. The import is here because listing sessions needs none of it.
    """
    from lockowners import holders

    return holders(path, descriptors=alone, ask_lease=alone is not None)


def require_file(path: Path) -> None:
    """A missing store is said as such; SQLite would create an empty one."""
    if not path.exists():
        raise NotFound(
            f"There is no store at {path}.",
            hint="Name the home with --home, the profile with --profile, or the file with --db.",
            path=path,
        )


def refuse_split(ctx: Context, row: GateRow, scan: Scan) -> None:
    """Nobody writes while a process still works on deleted files of the same path."""
    if any(holder.stale for holder in scan.holders):
        raise refusals.split(ctx.db, row, scan, profile=ctx.profile)


def mode_notes(ctx: Context) -> tuple[str, ...]:
    """What the journal mode hides from a scan."""
    try:
        with open_read(ctx.db, busy_seconds=0.2, search_modules=False, clock=ctx.clock) as store:
            return () if store.journal_mode == "wal" else (refusals.ROLLBACK_NOTE,)
    except LockTimeout:
        # A holder keeps even readers out, so no holder is idle and there is nothing to add to its name.
        return ()
