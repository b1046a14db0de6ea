"""What `sessions optimize` would do to a store, found out by reading only.

Invariant: making a plan takes no write lock and costs the same for a large store as for a small one: sizes come from
counters and from the indexes' own structure records. What a replica pays is the first thing a plan says.

Not for: promising the size after the merge, which frees pages of its own; the decision to rewrite is made again then.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maintenance.gate import expected_hold_seconds, hold_lines
from maintenance.gate.hold import duration
from maintenance.output.text import human_bytes
from maintenance.plan import Plan
from maintenance.space.disk import Need, Room, rooms
from maintenance.space.litestream import Litestream, litestream
from maintenance.space.merge import PAGES_A_TRANSACTION
from maintenance.space.reclaim import (
    DEFAULT_ABOVE_PERCENT,
    INCREMENTAL,
    STEP_PAGES,
    Decision,
    Method,
    Policy,
    decide,
    leftover_copies,
    needs,
)
from maintenance.space.segments import IndexState, fulltext_tables, index_state
from maintenance.space.sizes import TRASH_PREFIX, Sizes, directory_of, pragma, sizes

if TYPE_CHECKING:
    from hermes_state.engine import ReadStore, Store
    from lockowners import Scan

FORCED_REASON = "rewritten in place beside other processes, as asked with --force"
LEFT_AS_THEY_ARE = "left as they are"


@dataclass(frozen=True, kw_only=True)
class Choices:
    """What the user asked for."""

    # When free pages are returned.
    reclaim: Policy = "auto"
    # The share of free pages, in percent, above which "auto" returns them.
    above_percent: float = DEFAULT_ABOVE_PERCENT
    # How the file is rewritten.
    method: Method = "vacuum"
    # True checks pages only, not the search indexes.
    quick: bool = False


@dataclass(frozen=True, kw_only=True)
class OptimizePlan:
    """What was found and what would be done."""

    # The store.
    path: Path
    # "wal" or a rollback mode.
    journal_mode: str
    # Its size now.
    sizes: Sizes
    # Its full-text indexes.
    indexes: tuple[IndexState, ...]
    # Whether pages would be returned as things stand, before the merge.
    decision: Decision
    # The way the file would be rewritten.
    method: Method
    # Signs of a replica.
    litestream: Litestream
    # File systems that would be written to, with what they need and have.
    rooms: tuple[Room, ...]
    # Planner statistics: "refresh", or why they are left alone.
    statistics: str
    # Value of PRAGMA auto_vacuum.
    auto_vacuum: int
    # Compact copies that a killed run left behind.
    leftovers: tuple[Path, ...]
    # True when a conversion of the search indexes was begun and not finished.
    conversion_pending: bool
    # True when holders leave --force nothing but one VACUUM in place.
    forced: bool = False

    @property
    def to_merge(self) -> tuple[IndexState, ...]:
        """Indexes that a merge would change."""
        return tuple(index for index in self.indexes if index.segments is not None and not index.merged)

    @property
    def rewritten_bytes(self) -> int:
        """Bytes that would be written at most."""
        merged = 0 if self.forced else sum(index.bytes for index in self.to_merge)
        # A copy is written, compared with the store, and written again.
        times = 4 if self.method == "copy" else 1
        return merged + (times * self.sizes.used_bytes if self.decision.runs else 0)

    def beside_holders(self) -> OptimizePlan:
        """What is left of it with --force while others have the store open."""
        decision = Decision(
            runs=True, free_bytes=self.sizes.free_bytes, free_share=self.sizes.free_share, reason=FORCED_REASON
        )
        return replace(self, forced=True, method="vacuum", statistics=LEFT_AS_THEY_ARE, decision=decision)

    def shown(self, *, online: bool) -> Plan:
        """The plan for people and programs."""
        title = f"Rewrite {self.path} in place" if self.forced else f"Optimize {self.path}"
        return Plan(title=title, lines=self._lines(online=online), facts=self._facts(online=online))

    def _lines(self, *, online: bool) -> tuple[str, ...]:
        lines: list[str] = []
        if self.decision.runs and not online:
            lines.extend(self.litestream.cost_lines(self.sizes.used_bytes))
        elif self.litestream.found:
            lines.append(f"Litestream: {self.litestream.signs()}. Small steps only; the replica gets what they change.")
        wal = f", WAL {human_bytes(self.sizes.wal_bytes)}" if self.sizes.wal_bytes else ""
        free = human_bytes(self.sizes.free_bytes)
        lines.append(f"File {human_bytes(self.sizes.file_bytes)}{wal}, of which {free} are free pages.")
        if self.forced:
            lines.extend(self._forced_lines())
            return tuple(lines)
        lines.extend(_index_line(index) for index in self.indexes)
        if online:
            lines.append(self._online_line())
        else:
            verb = "Return free pages" if self.decision.runs else "Return no pages"
            lines.append(f"{verb}: {self.decision.reason}. Decided again after the merge.")
            lines.append(f"Planner statistics: {self.statistics}.")
            lines.extend(hold_lines(self.rewritten_bytes))
        if self.conversion_pending:
            command = "`hermes-state sessions optimize-storage`"
            lines.append(f"A conversion of the search indexes was not finished: run {command}.")
        lines.extend(f"Left over from a killed run, not used: {path}" for path in self.leftovers)
        return tuple(lines)

    def _forced_lines(self) -> tuple[str, ...]:
        seconds = duration(expected_hold_seconds(self.rewritten_bytes))
        # Outside of WAL mode the end of a VACUUM needs the file alone.
        others = "Others can read meanwhile; their writes wait" if self.journal_mode == "wal" else "Others wait"
        return (
            "Other processes have it open, so --force runs one VACUUM in place: free pages are returned whatever their "
            "share, and nothing else is done.",
            "No search index is merged or checked; planner statistics are left as they are.",
            f"{others} for about {seconds}, and hermes-agent may report that the "
            "database is locked.",
        )

    def _online_line(self) -> str:
        if self.auto_vacuum == INCREMENTAL:
            return f"Return free pages in steps of {STEP_PAGES}, between other programs' writes."
        return (
            "Free pages stay in the file: it was created without incremental vacuum, so only a rewrite with nobody "
            "else on the store returns them."
        )

    def _facts(self, *, online: bool) -> dict[str, Any]:
        return {
            "path": str(self.path),
            "journal_mode": self.journal_mode,
            "online": online,
            "forced": self.forced,
            "sizes": self.sizes.document(),
            "indexes": [
                {"name": index.name, "segments": index.segments, "bytes": index.bytes, "problem": index.problem or None}
                for index in self.indexes
            ],
            "reclaim": self.decision.document() | {"method": self.method},
            "statistics": self.statistics,
            "litestream": self.litestream.document(),
            "rooms": [room.document() for room in self.rooms],
            "conversion_pending": self.conversion_pending,
            "leftover_copies": [str(path) for path in self.leftovers],
        }


def look(reader: ReadStore | Store, choices: Choices, scan: Scan | None = None) -> OptimizePlan:
    """Make the plan for the store that `reader` has open."""
    found = sizes(reader)
    indexes = tuple(index_state(reader, name) for name in fulltext_tables(reader))
    decision = decide(found, choices.reclaim, choices.above_percent)
    merge_bytes = sum(index.bytes for index in indexes if not index.merged)
    return OptimizePlan(
        path=reader.path,
        journal_mode=reader.journal_mode,
        sizes=found,
        indexes=indexes,
        decision=decision,
        method=choices.method,
        litestream=litestream(reader, scan),
        rooms=room_for(
            reader.path, found, choices, runs=decision.runs, journal_mode=reader.journal_mode, merge_bytes=merge_bytes
        ),
        statistics=statistics_state(reader),
        auto_vacuum=pragma(reader, "auto_vacuum"),
        leftovers=leftover_copies(reader.path),
        conversion_pending=conversion_pending(reader),
    )


def room_for(
    path: Path, found: Sizes, choices: Choices, *, runs: bool, journal_mode: str, merge_bytes: int
) -> tuple[Room, ...]:
    """The file systems that a run writes to; a merge alone needs room for its own log only."""
    # A merge is committed in batches, and the log of one batch is used again for the next.
    batch = min(merge_bytes, PAGES_A_TRANSACTION * found.page_size * 5 // 4)
    if not runs:
        return rooms([Need(directory=directory_of(path), bytes=2 * batch, what="the store's log")])
    return rooms(needs(path, found, method=choices.method, journal_mode=journal_mode, merge_bytes=batch))


def statistics_state(reader: ReadStore | Store) -> str:
    """"refresh" only when ANALYZE would add no table: the schema of a file that is not ours is never changed."""
    found = {
        str(name)
        for (name,) in reader.rows("SELECT name FROM sqlite_schema WHERE name IN ('sqlite_stat1', 'sqlite_stat4')")
    }
    if found == {"sqlite_stat1", "sqlite_stat4"}:
        return "refresh"
    if found:
        return "left as they are, because refreshing them would add a table to the file"
    return "the file has none, and none are added"


def conversion_pending(reader: ReadStore | Store) -> bool:
    """Whether renamed tables of an older search layout are still there."""
    found = reader.row(
        "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND substr(name, 1, ?) = ?", (len(TRASH_PREFIX), TRASH_PREFIX)
    )
    return found is not None


def _index_line(index: IndexState) -> str:
    if index.problem:
        return f"Leave the search index {index.name} alone: {index.problem}."
    if index.merged:
        return f"The search index {index.name} ({human_bytes(index.bytes)}) is merged already."
    return f"Merge the search index {index.name}: {index.segments} segments, {human_bytes(index.bytes)}."
