"""`merge_wal`: the rows that only captures hold, brought into the live store.

Invariant: nothing is written unless every capture was verified, their order is proven, and no process works on deleted
files of the store; what is written is one transaction for each capture, oldest first, another for what a native one
owes, one for what it says of gateways, one for routing and one for cron; afterwards the store is proven to take
writes. Merging again changes nothing, since every row is found by what it says. Each merged capture gets a note beside
its manifest; the capture itself stays.

Not for: damaged stores (`sessions recover`), nor captures without the store that their WAL belongs to.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_state.clock import SYSTEM, Clock
from hermes_state.engine import open_read
from hermes_state.engine.private import open_private
from hermes_state.errors import CaptureRefused, NotFound
from hermes_state.flushing import sync_file, sync_folder
from hermes_state.shell_words import shell_word
from maintenance.dialects.native.shape import native_identity
from maintenance.doctor.nul_rule import rule_of_store
from maintenance.gate import online, preflight
from maintenance.ledger import deleted_at
from maintenance.recovery.captures import cron, foreign, native, owing, routing, serving, working
from maintenance.recovery.captures.facts import only_in
from maintenance.recovery.captures.manifest import Capture, captures_beside, verify
from maintenance.recovery.captures.order import in_order, require_order
from maintenance.recovery.captures.untaken import Untaken, untaken
from maintenance.recovery.captures.view import View, view_of
from maintenance.space.verify import first_line, page_problems
from maintenance.store_context import Context, context_of

if TYPE_CHECKING:
    from hermes_state.engine import NulRule

VERB = "sessions captures"
NOTE = "merged.json"


@dataclass(frozen=True, kw_only=True)
class CaptureRows:
    """What one capture holds that the store lacks, or brought in."""

    # the capture's folder
    folder: Path
    # rows by table
    rows: dict[str, int]
    # sessions that both have and that differ: id -> columns; the store's row stays
    differing: dict[str, list[str]] = field(default_factory=dict)
    # rows that could not be taken, in words
    refused: tuple[str, ...] = ()
    # rows by table that merging does not bring in, and that the store lacks; named in `refused` too
    left: dict[str, int] = field(default_factory=dict)
    # sessions with facts that the capture alone has: id -> columns; changes of counters and the like are none
    facts: dict[str, list[str]] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """All rows."""
        return sum(self.rows.values())


@dataclass(frozen=True, kw_only=True)
class MergeReport:
    """What `merge_wal` did, or would do."""

    # the store
    store: Path
    # each capture, oldest first
    captures: tuple[CaptureRows, ...]
    # whether anything was written; False for a look
    written: bool
    # whether the store took a write and was found sound afterwards; None for a look
    proven: bool | None


def merge_wal(
    capture: Path | Sequence[Path] | None, store: Path, *, dry_run: bool = False, clock: Clock = SYSTEM
) -> MergeReport:
    """Merge captures into the store at `store`; `None` stands for all finished captures beside it.

    Several must be given oldest first, or not at all. Raises `CaptureRefused` for a capture that is partial, altered,
    of another store or out of order, `GenerationLost` while a process works on deleted files, `StoreHeld`, `Corrupt`.
    """
    ctx = context_of(Path(store), clock)
    return merge(ctx, _chosen(ctx.db, capture), dry_run=dry_run)


def merge(ctx: Context, folders: Sequence[Path], *, dry_run: bool, given: bool = True) -> MergeReport:
    """The same for a command. `given`: a person named the captures, so their order counts."""
    captures = [verify(folder) for folder in folders]
    if given:
        require_order(captures)
    captures = in_order(captures)
    preflight(ctx, VERB, beside=True)
    with open_read(ctx.db, clock=ctx.clock) as reader:
        ours = native_identity(reader) is not None
    if not dry_run:
        _require_sound(ctx)
    done = []
    for capture in captures:
        with view_of(capture, ctx.db.parent) as view:
            rows = _native(ctx, view, dry_run) if ours else _foreign(ctx, view, dry_run)
        done.append(rows)
        if not dry_run:
            _note(ctx, capture, rows)
    proven = None if dry_run else _takes_writes(ctx)
    return MergeReport(store=ctx.db, captures=tuple(done), written=not dry_run, proven=proven)


def _chosen(store: Path, capture: Path | Sequence[Path] | None) -> list[Path]:
    if capture is None:
        found = [folder for folder in captures_beside(store) if not folder.name.endswith(".partial")]
        if not found:
            raise NotFound(f"There is no finished capture beside {store}.", path=store)
        return [one.folder for one in in_order([verify(folder) for folder in found])]
    return [Path(capture)] if isinstance(capture, (str, Path)) else [Path(folder) for folder in capture]


def _native(ctx: Context, view: View, dry_run: bool) -> CaptureRows:
    from hermes_state.store import open_store

    with open_store(path=ctx.db, clock=ctx.clock) as store:
        native.require_same_store(store.core, view, ctx.clock)
        merged = native.merge(store.core, view, ctx.clock, write=not dry_run)
        owed = owing.merge_owed(store.core, view, at=ctx.clock.now(), write=not dry_run)
        served = serving.merge_serving(store.core, view, at=ctx.clock.now(), write=not dry_run)
        routes = routing.merge_routing(store.core, view, at=ctx.clock.now(), write=not dry_run)
        works = working.merge_working(store.core, view, at=ctx.clock.now(), write=not dry_run)
        ran = cron.merge_cron(store.core, view, at=ctx.clock.now(), write=not dry_run)
    left, facts = _stays(ctx, view, ours=True)
    rows = {
        "sessions": merged.sessions_new, "messages": merged.messages_new, "outbox": owed, "gateways": served,
        "beside": works, "routing": routes, "cron": ran,
    }
    return CaptureRows(
        folder=view.capture.folder, rows={name: count for name, count in rows.items() if count},
        refused=(*(problem.reason for problem in merged.problems), *map(str, left)),
        left={one.table: one.rows for one in left}, facts=facts,
    )


def _foreign(ctx: Context, view: View, dry_run: bool) -> CaptureRows:
    with open_read(ctx.db, clock=ctx.clock) as live:
        rule = rule_of_store(live)
        found = _missing(ctx, view, live)
    if not dry_run and found.rows:
        found = _bring_in(ctx, view, rule)
    left, facts = _stays(ctx, view, ours=False)
    return CaptureRows(
        folder=view.capture.folder, rows=found.by_table(), differing=found.differing, refused=tuple(map(str, left)),
        left={one.table: one.rows for one in left}, facts=facts,
    )


def _stays(ctx: Context, view: View, *, ours: bool) -> tuple[list[Untaken], dict[str, list[str]]]:
    """What stays in the capture alone: tables that are not merged, and facts of sessions."""
    with ExitStack() as opened:
        live = opened.enter_context(open_read(ctx.db, clock=ctx.clock))
        whole, before = (
            None if path is None else opened.enter_context(open_private(path, search_modules=False))
            for path in (view.whole, view.before)
        )
        assert whole is not None
        return untaken(whole, before, live, native=ours), only_in(whole, before, live, native=ours)


def _missing(ctx: Context, view: View, live: Any) -> foreign.Missing:
    gone = deleted_at(ctx.db)
    with open_private(view.whole, search_modules=False) as whole:
        _require_related(view, whole, live)
        if view.before is None:
            return foreign.missing(whole, None, live, gone.__contains__)
        with open_private(view.before, search_modules=False) as before:
            return foreign.missing(whole, before, live, gone.__contains__)


def _bring_in(ctx: Context, view: View, rule: NulRule) -> foreign.Missing:
    """Compare again inside the transaction that writes, so that nothing can come in between."""
    with online(ctx, VERB, nul_rule=rule) as opened, opened.store.transaction(durability="power") as tx:
        found = _missing(ctx, view, tx)
        foreign.bring_in(tx, found)
    return found


def _require_related(view: View, whole: Any, live: Any) -> None:
    """A file of hermes-agent has no identity: some session must be in both, unless one of them is empty."""
    mine = {row[0] for row in whole.rows("SELECT id FROM sessions")}
    theirs = {row[0] for row in live.rows("SELECT id FROM sessions")}
    if mine and theirs and not mine & theirs:
        raise CaptureRefused(
            f"The capture {view.capture.folder} shares no session with {live.path}: it is of another store.",
            hint="Bring its rows in with `hermes-state sessions import`, if that is what you want.",
            path=view.capture.folder, kind="other_store",
        )


def _require_sound(ctx: Context) -> None:
    from hermes_state.errors import Corrupt

    with open_read(ctx.db, search_modules=False, clock=ctx.clock) as reader:
        problems = page_problems(reader)
    if problems:
        raise Corrupt(
            f"{ctx.db} is damaged, so nothing is merged into it: {first_line(problems)}.",
            hint=f"Run `hermes-state doctor --db {shell_word(ctx.db)}` first.", path=ctx.db,
        )


def _takes_writes(ctx: Context) -> bool:
    """Commit something that changes nothing, from a new connection, and check the pages."""
    with online(ctx, VERB) as opened, opened.store.transaction(durability="power") as tx:
        tx.execute("UPDATE sessions SET title = title WHERE rowid = (SELECT min(rowid) FROM sessions)")
    with open_read(ctx.db, search_modules=False, clock=ctx.clock) as reader:
        return not page_problems(reader)


def _note(ctx: Context, capture: Capture, rows: CaptureRows) -> None:
    """Say in the capture's folder that and when it was merged."""
    target = capture.folder / NOTE
    when = datetime.fromtimestamp(ctx.clock.now(), UTC).isoformat().replace("+00:00", "Z")
    staged = target.with_name(f".{NOTE}")
    staged.write_text(json.dumps({"merged_at": when, "store": str(ctx.db), "rows": rows.rows}, indent=1))
    sync_file(staged)
    staged.replace(target)  # whoever finds the note finds all of it
    sync_folder(capture.folder)

