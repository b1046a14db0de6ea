"""`sessions scrub`, from looking to the proof.

Invariant: nothing is called gone before the bytes of the store, its WAL and its search index were searched. Beside
other processes rows are redacted at once, in short transactions, and the run says that it is incomplete: free pages,
the WAL and the search index need the store alone.

Not for: backups and other copies, which are named and left to their owner. Only overwriting rows was rejected: deleting
from a contentless index leaves its terms in the file, and a WAL keeps old pages.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_state.conversation.search.layout import index_path
from hermes_state.errors import StoreHeld
from hermes_state.flushing import sync_file, sync_folder
from maintenance.doctor.nul_rule import rule_of_store
from maintenance.gate import exclusive, online, preflight, reading
from maintenance.output.progress import progress
from maintenance.scrub import cells, traces, work
from maintenance.scrub.breathing import breathing
from maintenance.scrub.patterns import Redactor, Rule, literals
from maintenance.space import reclaim
from maintenance.space.disk import require_room, rooms
from maintenance.space.litestream import litestream
from maintenance.space.native_search import tidy_search
from maintenance.space.sizes import sizes
from maintenance.space.verify import check, require_same_counts, require_sound, row_counts, row_tables

if TYPE_CHECKING:
    from hermes_state.engine import NulRule
    from maintenance.context import Context

VERB = "sessions scrub"
# Texts that become equal are stored once, frames of a text that is being received become one, the feed grows, and an
# obligation whose id is replaced makes a horizon.
MAY_SHRINK = frozenset({"bodies", "shared_texts", "stream_frames", "changes", "outbox_horizon"})
INCOMPLETE = (
    "rows are redacted, but free pages, the WAL and the search index may still hold what was replaced, because other "
    "processes have the store open."
)


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a look found."""

    # rows with secrets, by table
    rows: Counter[str]
    # matches by rule
    rules: Counter[str]
    # the secrets themselves, for the proof; never shown
    secrets: frozenset[str]
    # copies beside the store that hold one of them or cannot be looked into
    copies: tuple[traces.Trace, ...]
    # whether the file is a native store
    native: bool
    # how texts of hermes-agent's index must be cut
    nul_rule: NulRule


@dataclass(frozen=True, kw_only=True)
class Scrubbed:
    """What a run did."""

    # rows changed, by table
    rows: Counter[str]
    # matches replaced, by rule
    rules: Counter[str]
    # why it is not finished; "" when it is
    incomplete: str
    # the store's files after it, searched byte by byte
    proof: tuple[traces.Trace, ...]
    # rows in which the patterns still match afterwards, by table
    left: Counter[str]
    # copies beside the store that hold a secret or cannot be looked into
    copies: tuple[traces.Trace, ...]
    # different secrets that the bytes were searched for; 0 when no row matched and no pattern is a plain text
    looked_for: int
    # processes that kept the store open, as text
    holders: tuple[str, ...] = field(default=())

    @property
    def proven(self) -> bool:
        """Whether no byte of the store's own files holds a secret any more."""
        return not self.incomplete and not self.left and all(trace.state == "clean" for trace in self.proof)


def look(ctx: Context, rules: tuple[Rule, ...]) -> Found:
    """Search the rows, and the copies beside the store. Writes nothing."""
    redactor = Redactor(rules)
    with reading(ctx) as reader, progress(None, "searching") as bar, breathing(), reader.snapshot():
        native = work.is_native(reader)
        rows = work.look(reader, redactor, bar.advance, lambda table: bar.restart(None, f"searching {table}"))
        nul_rule = rule_of_store(reader)
    copies = copies_with(ctx.db, redactor.found | literals(rules))
    return Found(
        rows=rows, rules=+redactor.counts, secrets=frozenset(redactor.found), copies=copies, native=native,
        nul_rule=nul_rule,
    )


def copies_with(store: Path, secrets: set[str] | frozenset[str]) -> tuple[traces.Trace, ...]:
    """The copies beside a store that hold one of the secrets, or that nobody can look into."""
    found = traces.look_into(traces.copies_beside(store), secrets)
    return tuple(trace for trace in found if trace.state != "clean")


def scrub(ctx: Context, rules: tuple[Rule, ...], before: Found) -> Scrubbed:
    """Redact everything that matches, and prove it. Raises `Corrupt` before anything is written to a damaged store."""
    verdict, _stamp = check(ctx, quick=True)
    require_sound(ctx.db, verdict, when="before anything was changed")
    redactor = Redactor(rules)
    search = index_path(ctx.db) if before.native else None
    incomplete = ""
    holders: tuple[str, ...] = ()
    try:
        rows = _alone(ctx, redactor, before, search)
    except StoreHeld as held:
        rows = _beside(ctx, redactor, before)
        # The message's first line says that nothing was changed, which is no longer so.
        incomplete, holders = INCOMPLETE, tuple(line.strip() for line in held.message.splitlines()[1:])
    secrets = before.secrets | redactor.found | literals(rules)
    with reading(ctx) as reader, progress(None, "searching again"), breathing(), reader.snapshot():
        left = work.look(reader, Redactor(rules)) + cells.still_found(reader, secrets)
    # Nothing of ours is open now: reading bytes takes no lock away.
    proof = () if incomplete else _proof(ctx, search, secrets)
    return Scrubbed(
        rows=rows, rules=+redactor.counts, incomplete=incomplete, proof=proof, left=left,
        copies=copies_with(ctx.db, secrets), looked_for=len(secrets), holders=holders,
    )


def _alone(ctx: Context, redactor: Redactor, before: Found, search: Path | None) -> Counter[str]:
    """Rows, indexes, free pages and WAL, under the exclusive lock; then the search index anew."""
    with exclusive(ctx, VERB, nul_rule=before.nul_rule) as alone, progress(None, "redacting") as bar, breathing():
        store = alone.store
        found = sizes(store)
        store.keep_wal = litestream(store).found
        require_room(
            rooms(reclaim.needs(
                ctx.db, found, method="vacuum", journal_mode=store.journal_mode, merge_bytes=found.used_bytes
            )),
            what="Scrubbing this store",
        )
        if search is not None and search.exists():
            _require_index_alone(ctx, search)
        made_anew = MAY_SHRINK | cells.old_index_tables(store)
        counts = row_counts(store, [name for name in row_tables(store) if name not in made_anew])
        store.tune(secure_delete=1)
        rows = work.replace(store, redactor, ctx.clock, bar.advance)
        bar.restart(None, "building the search indexes anew")
        work.rebuild_indexes(store)
        bar.restart(None, "rewriting the file")
        reclaim.vacuum(store, found)
        require_same_counts(ctx.db, counts, row_counts(store, tuple(counts)))
        if search is not None:
            traces.destroy(search)
        store.checkpoint("truncate")
    if search is not None:
        tidy_search(ctx)
    verdict, _stamp = check(ctx, quick=True)
    require_sound(ctx.db, verdict, when="after the work")
    return rows


def _proof(ctx: Context, search: Path | None, secrets: frozenset[str] | set[str]) -> tuple[traces.Trace, ...]:
    """What the bytes say, once they are what a power cut would leave: SQLite empties a WAL without a sync."""
    files = traces.files_of(ctx.db, search)
    for file in files:
        sync_file(file)
    sync_folder(ctx.db.parent)
    return tuple(traces.look_into(files, secrets))


def _beside(ctx: Context, redactor: Redactor, before: Found) -> Counter[str]:
    preflight(ctx, VERB, beside=True)
    with online(ctx, VERB, nul_rule=before.nul_rule) as opened, progress(None, "redacting") as bar, breathing():
        return work.replace(opened.store, redactor, ctx.clock, bar.advance)


def _require_index_alone(ctx: Context, search: Path) -> None:
    """Nobody may have the index open: its bytes are overwritten by name."""
    from lockowners import holders
    from maintenance.gate import refusals
    from maintenance.gate.rows import row_of

    scan = holders(search)
    if scan.holders:
        raise refusals.held(search, row_of(VERB), scan, profile=ctx.profile, native=True)


def document(ctx: Context, found: Found, done: Scrubbed | None) -> dict[str, Any]:
    """The fields of `--json`."""
    last = done or found
    return {
        "path": str(ctx.db),
        "rows": dict(last.rows),
        "row_count": sum(last.rows.values()),
        "rules": dict(last.rules),
        "match_count": sum(last.rules.values()),
        "copies": [
            {"path": str(trace.path), "state": trace.state, "secrets": trace.secrets} for trace in last.copies
        ],
        "complete": None if done is None else done.proven,
        "incomplete": None if done is None else done.incomplete or None,
        "holders": [] if done is None else list(done.holders),
        "proof": [] if done is None else [{"path": str(t.path), "state": t.state} for t in done.proof],
        "rows_left": {} if done is None else dict(done.left),
    }
