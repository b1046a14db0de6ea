"""`sessions optimize-storage`: checks, the exclusive lock, the conversion, and proof that the new indexes are right.

Invariant: the store is alone and was checked in exactly the state the lock found; the new indexes are compared with the
text they index before the run reports success; rows of no other table change in number. Killed at any point, the next
run goes on.

Not for: the steps themselves (`convert`). The connection reads trigrams up to the first NUL, as the SQLite that
hermes-agent ships with does; under this SQLite's own rule the check would call a right index damaged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_state.engine import NulRule
from hermes_state.errors import Corrupt
from hermes_state.shell_words import shell_word
from maintenance.gate import reading
from maintenance.output.progress import progress
from maintenance.output.text import human_bytes, plural
from maintenance.quoting import quoted
from maintenance.space import reclaim
from maintenance.space.disk import require_room
from maintenance.space.litestream import WAL_KEPT
from maintenance.space.merge import merge_alone
from maintenance.space.optimize import BYTES_A_CALL, Times, check_after, checked_and_alone
from maintenance.space.segments import index_state
from maintenance.space.sizes import Sizes, sizes
from maintenance.space.storage import convert
from maintenance.space.storage.layout import ALL_TRIGGERS, INDEXES, VIEWS
from maintenance.space.storage.plan import StorageChoices, StoragePlan, again, look, nothing_to_do
from maintenance.space.storage.state import StorageState, storage_state
from maintenance.space.verify import Verdict, require_same_counts, row_counts, row_tables

if TYPE_CHECKING:
    from hermes_state.engine import ExclusiveStore
    from lockowners import Scan
    from maintenance.context import Context

VERB = "sessions optimize-storage"


@dataclass(frozen=True, kw_only=True)
class StorageReport:
    """What a run did."""

    # What was planned.
    plan: StoragePlan
    # The search layout at the end.
    state: StorageState
    # Size at the end.
    sizes: Sizes
    # Rows that each index holds.
    indexed_rows: dict[str, int]
    # Page check before; None when there was nothing to do.
    before: Verdict | None
    # Page check after.
    after: Verdict | None
    # Seconds by phase.
    times: Times
    # Sentences that the user has to know.
    warnings: tuple[str, ...] = ()

    @property
    def already_done(self) -> bool:
        """Whether there was nothing to do."""
        return self.plan.nothing_to_do

    def document(self) -> dict[str, Any]:
        """The fields of `--json`."""
        return {
            "path": str(self.plan.path),
            "mode": "exclusive",
            "already_done": self.already_done,
            "state_before": self.plan.state.document(),
            "state_after": self.state.document(),
            "sizes_before": self.plan.sizes.document(),
            "sizes_after": self.sizes.document(),
            "estimate_bytes": self.plan.estimate_bytes,
            "indexed_rows": self.indexed_rows,
            "checks_before": self.before.document() if self.before else None,
            "checks_after": self.after.document() if self.after else None,
            "seconds": self.times.document(),
            "warnings": list(self.warnings),
        }

    def lines(self) -> tuple[str, ...]:
        """The report for people."""
        if self.already_done:
            return (f"Nothing to do: {self.plan.path} has the smaller search layout already.",)
        rows = ", ".join(f"{index} {plural(count, 'row')}" for index, count in self.indexed_rows.items())
        lines = [
            f"Converted the search indexes of {self.plan.path} in {self.times.locked:.1f} s.",
            f"Size: {human_bytes(self.plan.sizes.file_bytes)} before, {human_bytes(self.sizes.file_bytes)} after.",
            f"Indexes compared with the messages, word by word: {rows}.",
            "The layout is the one that hermes-agent's newer releases define (storage version 3); it was not run "
            "against a release newer than 0.19.0.",
        ]
        if self.plan.litestream.found and self.sizes.wal_bytes:
            lines.append(WAL_KEPT)
        if not self.state.trigram:
            lines.append("The trigram index is off: hermes-agent finds no CJK text and no parts of words.")
        return tuple(lines)


def make_plan(ctx: Context, choices: StorageChoices, scan: Scan | None = None) -> StoragePlan:
    """Read the store and say what would be done."""
    with reading(ctx) as reader, progress(None, "adding up what the new indexes need"):
        return look(reader, choices, scan)


def already_done(ctx: Context, choices: StorageChoices) -> bool:
    """Whether there is nothing to do; costs a look at the schema, and no lock."""
    with reading(ctx) as reader:
        return nothing_to_do(storage_state(reader), choices)


def optimize_storage(ctx: Context, plan: StoragePlan) -> StorageReport:
    """Carry the plan out, alone on the store."""
    times = Times()
    if plan.nothing_to_do:
        return StorageReport(
            plan=plan, state=plan.state, sizes=plan.sizes, indexed_rows={}, before=None, after=None, times=times
        )
    clock = ctx.clock
    with checked_and_alone(ctx, VERB, times, quick=True, nul_rule=NulRule.CUT) as (alone, before):
        store = alone.store
        started = clock.monotonic()
        now = again(store, plan)
        store.keep_wal = now.litestream.found
        require_room(now.rooms, what="Converting the search indexes")
        # `state_meta` holds the marks of the conversion itself.
        tables = tuple(name for name in row_tables(store) if name != "state_meta")
        rows = row_counts(store, tables)
        Conversion(ctx, store, now).run(times)
        with progress(None, "comparing the new indexes with the messages"):
            indexed = {index: compare(store, index) for index in INDEXES}
        require_same_counts(store.path, rows, row_counts(store, tables))
        _give_back(ctx, store, now, times)
        state, size = storage_state(store), sizes(store)
        times.locked = clock.monotonic() - started
    after = check_after(ctx, times, quick=True, what="the conversion")
    return StorageReport(
        plan=plan, state=state, sizes=size, indexed_rows=indexed, before=before, after=after, times=times
    )


class Conversion:
    """The steps from where the file is to where it should be."""

    def __init__(
        self, ctx: Context, store: ExclusiveStore, plan: StoragePlan, *, between: Callable[[str], None] | None = None
    ) -> None:
        self._ctx = ctx
        self._store = store
        self._plan = plan
        # Called with the name of each finished step; tests stop there.
        self._between = between or (lambda _step: None)

    def run(self, times: Times) -> None:
        """Go on from wherever the file is."""
        started = self._ctx.clock.monotonic()
        trigram = self._plan.trigram_after
        if self._plan.switches:
            (convert.trigram_on if trigram else convert.trigram_off)(self._store)
            self._between("trigram switched")
        else:
            self._convert(trigram)
        self._tear_down()
        for index in INDEXES:
            self._merge(index)
            self._between("index merged")
        times.merge = self._ctx.clock.monotonic() - started

    def _merge(self, index: str) -> None:
        state, page = index_state(self._store, index), self._store.page_size
        with progress(state.bytes, f"merging {index}") as bar:
            merge_alone(self._store, state, self._ctx.clock, lambda pages: bar.advance(pages * page))

    def _convert(self, trigram: bool) -> None:
        state = self._plan.state
        # Begun for the other kind of trigram index, or with triggers or a mark gone: it starts anew.
        other_layout = state.layout != "external" or state.trigram != trigram
        incomplete = state.triggers < len(ALL_TRIGGERS) or (state.high_water is None) != (state.progress is None)
        # Without marks the indexes must be complete; a conversion that died before it set them left them empty.
        unmarked = state.high_water is None and not (state.pending and self._complete())
        if self._plan.choices.rebuild or other_layout or incomplete or unmarked:
            convert.stage(self._store, trigram=trigram)
            self._between("staged")
        # First of all the old tables go: the new ones then fill their pages instead of growing the file.
        self._tear_down()
        with progress(self._plan.texts.everything, "indexing messages") as bar:
            while (done := convert.backfill_step(self._store, trigram=trigram)) is not None:
                bar.advance(done)
                self._between("some rows indexed")
        convert.finish(self._store)
        self._between("all rows indexed")

    def _complete(self) -> bool:
        return all(held == wanted for held, wanted in (held_and_wanted(self._store, index) for index in INDEXES))

    def _tear_down(self) -> None:
        with progress(None, "removing the old indexes") as bar:
            while (gone := convert.teardown_step(self._store)) is not None:
                bar.advance(gone)
                self._between("some of the old index gone")


def compare(store: ExclusiveStore, index: str) -> int:
    """Compare an index with the text it indexes, row by row and word by word; gives its rows."""
    held, wanted = held_and_wanted(store, index)
    if held != wanted:
        raise _wrong(store, index, f"it holds {held} rows of {wanted}")
    try:
        with store.transaction() as tx:
            tx.execute(f"INSERT INTO {quoted(index)}({quoted(index)}, rank) VALUES ('integrity-check', 1)")
    except Corrupt as error:
        raise _wrong(store, index, "it does not agree with the text") from error
    return held


def held_and_wanted(store: ExclusiveStore, index: str) -> tuple[int, int]:
    """Rows that an index holds, and rows that it should hold."""
    docsize, view = quoted(f"{index}_docsize"), quoted(VIEWS[index])
    found = store.row(f"SELECT (SELECT count(*) FROM {docsize}), (SELECT count(*) FROM {view})")
    held, wanted = found or (0, 0)
    return int(held), int(wanted)


def _wrong(store: ExclusiveStore, index: str, what: str) -> Corrupt:
    return Corrupt(
        f"The new search index {index} of {store.path} is not right: {what}. No message was changed.",
        hint=f"Run `hermes-state doctor --db {shell_word(store.path)}`.",
        path=store.path,
        search_index=True,
    )


def _give_back(ctx: Context, store: ExclusiveStore, plan: StoragePlan, times: Times) -> None:
    started = ctx.clock.monotonic()
    if plan.choices.vacuum:
        found = sizes(store)
        with progress(found.used_bytes, "returning free pages") as bar:
            reclaim.vacuum(store, found, lambda _step: bar.advance(BYTES_A_CALL))
    times.reclaim = ctx.clock.monotonic() - started
    started = ctx.clock.monotonic()
    store.checkpoint("truncate")
    times.checkpoint = ctx.clock.monotonic() - started

