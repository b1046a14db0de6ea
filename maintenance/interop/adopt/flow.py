"""`sessions adopt`: look, build, verify, and then either name the new file or replace the content of the old one.

Invariant: nothing is replaced before the original is kept aside and verified and the native store is verified; the
replacement is one transaction of SQLite's backup API onto the same inode. A kill at any point leaves the old file or
the new one, whole, and a repeat goes through or says that it is done.

Not for: files that others have open, unless a new file is made of them. Renaming the native store over the old path was
rejected: programs that have the old file open would go on writing into it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_state.engine import open_exclusive, open_read
from hermes_state.engine.connection import back_up
from hermes_state.engine.create import fill_new_store, publish
from hermes_state.engine.filesystem import check_wal_allowed
from hermes_state.engine.schema import STATE
from hermes_state.engine.whole_file import drop_sidecars
from hermes_state.errors import Corrupt, InvalidInput, Refused
from hermes_state.flushing import sync_file
from hermes_state.shell_words import shell_word
from maintenance.dialects.native.shape import native_identity
from maintenance.gate import exclusive, reading
from maintenance.interop.adopt import places
from maintenance.interop.adopt.build import Builder, Built
from maintenance.interop.adopt.report import AdoptPlan, AdoptReport
from maintenance.interop.adopt.source import Source, read_source
from maintenance.interop.adopt.verify import Verified, verify_adopted
from maintenance.interop.convert.convert import convert
from maintenance.marks import read_marks
from maintenance.output.progress import Progress, progress
from maintenance.space.disk import Need, require_room, rooms
from maintenance.space.litestream import litestream
from maintenance.space.sizes import by_object, sizes
from maintenance.space.verify import page_problems, require_same_counts, row_counts, row_tables

if TYPE_CHECKING:
    from hermes_state.engine import ExclusiveStore, Reader
    from maintenance.context import Context
    from maintenance.gate.doors import Scanner
    from maintenance.marks import Marks

VERB = "sessions adopt"
_HINT = "Run `hermes-state doctor --db {path}`; adopt what it recovers."


Step = Callable[[str], None]


def _quietly(_step: str) -> None:
    """Nobody listens."""


@dataclass(frozen=True, kw_only=True)
class Made:
    """A native store that was built and verified, still under its working name."""

    path: Path
    built: Built
    verified: Verified


def make_plan(ctx: Context, target: Path | None) -> AdoptPlan:
    """What an adoption would do. Writes nothing; raises `NotAStore` and `Refused` for files that cannot be adopted."""
    with reading(ctx) as store, store.snapshot():
        native = native_identity(store) is not None
        if native:
            return AdoptPlan.done(ctx.db, target, places.leftovers(ctx.db))
        source = read_source(store)
        found = sizes(store)
        dropped = sum(item.bytes for item in by_object(store) if item.name in source.derived)
        return AdoptPlan(
            path=ctx.db,
            target=target,
            already_done=False,
            schema_version=source.schema_version,
            sessions=source.dialect.session_count(store),
            messages=int(store.rows("SELECT count(*) FROM messages")[0][0]),
            kept_tables=source.kept,
            file_bytes=found.file_bytes + found.wal_bytes,
            native_bytes=native_size(max(found.used_bytes - dropped, 0), source.page_size),
            litestream=litestream(store),
            leftovers=places.leftovers(target or ctx.db),
            name=ctx.profile or ctx.db.name,
        )


def native_size(used_bytes: int, page_size: int) -> int:
    """At most about how large a native store becomes of what takes `used_bytes`, search indexes apart.

    Measured on fixtures of three releases with 72 to 3,340 messages: 0.93 to 0.98 bytes for each, and an empty store.
    """
    return used_bytes + used_bytes // 10 + STATE.most_pages * page_size


def require_plan_room(plan: AdoptPlan) -> None:
    """Refuse when the disk cannot take what the adoption writes."""
    where = (plan.target or plan.path).resolve().parent
    needs = [Need(directory=where, bytes=plan.native_bytes, what="the native store")]
    if plan.target is None:
        needs.append(Need(directory=where, bytes=plan.file_bytes, what="the original kept aside"))
        needs.append(Need(directory=where, bytes=plan.native_bytes, what="the store's log"))
    require_room(
        rooms(needs), what=f"Adopting {plan.path}",
        instead="" if plan.target else "Or make a new file on another disk with --to FILE.",
    )


def refuse_target(ctx: Context, target: Path) -> None:
    """Raise unless a new store may be made at `target`."""
    if target.resolve() == ctx.db:
        raise InvalidInput("--to names the store itself.", hint="Leave --to away to adopt it in place.", option="--to")
    beside = [Path(f"{target}{ending}") for ending in ("", "-wal", "-shm", "-journal")]
    there = next((path for path in beside if path.exists() or path.is_symlink()), None)
    if there is not None:
        raise Refused(f"{there} exists already.", hint="Name a new file with --to.", path=target)
    if not target.parent.is_dir():
        raise InvalidInput(f"The folder {target.parent} does not exist.", hint="Create it first.", path=target.parent)


def adopt_to(ctx: Context, plan: AdoptPlan, target: Path, *, step: Step = _quietly) -> AdoptReport:
    """Make the new native store `target` of the store, which is only read; others may go on using it."""
    started = ctx.clock.monotonic()
    check_wal_allowed(target.parent)
    cleared = clear(target)
    with reading(ctx) as store, store.snapshot():
        source = read_source(store)
        _require_sound(ctx)
        with _native_of(ctx, store, source, beside=target, step=step) as made:
            sync_file(made.path)
            if not publish(made.path, target):
                raise Refused(f"{target} exists already.", hint="Name a new file with --to.", path=target)
            return AdoptReport(
                plan=plan, built=made.built, verified=made.verified, original=None, result=target,
                result_bytes=target.stat().st_size, cleared=cleared, seconds=ctx.clock.monotonic() - started,
                locked_seconds=0.0,
            )


def adopt_in_place(
    ctx: Context, plan: AdoptPlan, *, scanner: Scanner | None = None, step: Step = _quietly
) -> AdoptReport:
    """Replace the content of the store by its native form, alone.

    `scanner` instead of looking at all processes. `step` hears the name of each step that is done.
    """
    started = ctx.clock.monotonic()
    with exclusive(ctx, VERB, replaces_content=True, scanner=scanner) as alone:
        locked = ctx.clock.monotonic()
        store = alone.store
        step("locked")
        cleared = clear(ctx.db)
        if native_identity(store) is not None:  # another run was first
            return AdoptReport.nothing(plan, cleared)
        store.keep_wal = litestream(store, alone.scan).found
        source = read_source(store)
        original = _keep_original(ctx, store, step)
        mode = "wal" if store.journal_mode == "wal" else "delete"
        with _native_of(ctx, store, source, beside=ctx.db, journal_mode=mode, step=step) as made:
            store.promote(made.path)
            step("content replaced")
            _require_replaced(store, made)
            converted = convert(store, ctx.clock)
            step("kept rows converted")
            store.checkpoint("truncate")
            step("checkpointed")
        return AdoptReport(
            plan=plan, built=made.built, verified=made.verified, original=original, result=ctx.db,
            result_bytes=ctx.db.stat().st_size, cleared=cleared, seconds=ctx.clock.monotonic() - started,
            locked_seconds=ctx.clock.monotonic() - locked, converted=converted,
        )


@contextmanager
def _native_of(
    ctx: Context, reader: Reader, source: Source, *, beside: Path, journal_mode: str = "wal", step: Step = _quietly
) -> Iterator[Made]:
    """A native store with everything of the file behind `reader`, verified, under a working name."""
    marks: Marks = read_marks(ctx.db)
    count = int(reader.rows("SELECT count(*) FROM messages")[0][0])
    with places.working_file(beside, ctx.clock, "native") as working, progress(count, "adopting messages") as bar:
        # The backup API keeps page size and journal mode of the file that it writes to.
        fill_new_store(working, clock=ctx.clock, page_size=source.page_size, journal_mode=journal_mode)
        step("store made")
        with open_exclusive(working, clock=ctx.clock) as store:
            built = Builder(reader, source, store, marks, ctx.clock, bar.advance).run()
            store.copy_back()
            step("store filled")
        verified = _verified(reader, source, working, count, bar)
        step("store verified")
        yield Made(path=working, built=built, verified=verified)


def _verified(reader: Reader, source: Source, working: Path, count: int, bar: Progress) -> Verified:
    bar.restart(count, "comparing every row")
    verified = verify_adopted(reader, source, working, bar.advance)
    drop_sidecars(working)
    return verified


def _keep_original(ctx: Context, store: ExclusiveStore, step: Step) -> Path:
    """A verified copy of the file as it is, under a dated name."""
    with places.working_file(ctx.db, ctx.clock, "original") as working, progress(None, "keeping the original aside"):
        working.unlink()  # the backup makes it itself, private as well
        verdict = back_up(store, working)
        step("original copied")
        if verdict != "ok":
            raise Corrupt(
                f"{ctx.db} is damaged: {verdict}. It was not changed.",
                hint=_HINT.format(path=shell_word(ctx.db)), path=ctx.db, search_index=False,
            )
        with open_read(working, clock=ctx.clock) as copy:
            tables = row_tables(store)
            require_same_counts(ctx.db, row_counts(store, tables), row_counts(copy, tables))
        drop_sidecars(working)
        sync_file(working)
        # A run that was killed after this step kept the same file aside: one is enough.
        kept = places.kept_already(ctx.db, working)
        original = places.keep_aside(ctx.db, working, ctx.clock) if kept is None else kept
    step("original kept")
    return original


def _require_sound(ctx: Context) -> None:
    """Refuse to make a store of a damaged file: what its pages say is not what was written."""
    with reading(ctx, search_modules=False) as pages:
        problems = page_problems(pages)
    if problems:
        raise Corrupt(
            f"{ctx.db} is damaged: {problems[0]}. Nothing was made of it.",
            hint=_HINT.format(path=shell_word(ctx.db)), path=ctx.db, search_index=False,
        )


def _require_replaced(store: ExclusiveStore, made: Made) -> None:
    """The content that is in place now must be the one that was verified."""
    identity = native_identity(store)
    found = store.row("SELECT (SELECT count(*) FROM messages), (SELECT count(*) FROM sessions)")
    if identity is None or found != (made.built.messages, made.built.sessions):
        raise Corrupt(
            f"{store.path} does not hold what was put there: {made.built.messages} messages in {made.built.sessions} "
            f"sessions were expected, and {found} were found.",
            hint="The original is kept aside beside it; stop, and check the disk.", path=store.path, search_index=False,
        )


def clear(path: Path) -> tuple[Path, ...]:
    """Remove what killed runs left under working names; what living ones work on stays."""
    found = places.leftovers(path)
    for working in found:
        places.remove(working)
    return found
