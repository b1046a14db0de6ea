"""What `sessions optimize` would do to a native store, found out by reading only.

Invariant: making a plan takes no write lock. How much is cold is counted from record headers in one pass over the
messages; nothing is unpacked. Not for: promising the size afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maintenance.interop.convert.convert import look
from maintenance.interop.convert.records import Conversion
from maintenance.output.text import human_bytes, plural
from maintenance.plan import Plan
from maintenance.space.compress import Compress, cutoff, how_much
from maintenance.space.litestream import Litestream, litestream
from maintenance.space.reclaim import INCREMENTAL, STEP_PAGES, Policy
from maintenance.space.sizes import Sizes, file_bytes, pragma, sizes

if TYPE_CHECKING:
    from hermes_state.engine import Reader, ReadStore
    from lockowners import Scan

# From here on a rewrite pays: a third of the file would go, and new rows do not fill the holes of old pages.
SLACK_SHARE = 0.33
SLACK_BYTES = 16 << 20


@dataclass(frozen=True, kw_only=True)
class NativePlan:
    """What was found and what would be done."""

    path: Path  # the store
    sizes: Sizes  # its size now
    search_bytes: int  # of the search index beside it, without its WAL
    compress: Compress  # cold, always or never
    cold_before: float | None  # epoch seconds: sessions last active before are compressed; None: none
    cold_days: float  # as asked
    cold_messages: int  # messages that would be looked at
    cold_bytes: int  # bytes of their bodies
    reclaim: Policy  # whether free pages are returned
    auto_vacuum: int  # value of PRAGMA auto_vacuum
    litestream: Litestream  # signs of a replica
    conversion: Conversion  # of what adoption kept of hermes-agent's gateway
    offline: bool  # whether a rewrite alone on the store was asked for as well

    @property
    def rewrites(self) -> bool:
        """Whether a rewrite was asked for, or is needed so that the file can shrink while it is in use."""
        return self.offline and self.reclaim != "never" and (
            self.reclaim == "always" or self.auto_vacuum != INCREMENTAL
        )

    def search_size(self) -> int:
        """Bytes of the search index now."""
        return search_size(self.path)

    def shown(self) -> Plan:
        """The plan for people and programs."""
        return Plan(title=f"Optimize {self.path}", lines=self._lines(), facts=self._facts())

    def _lines(self) -> tuple[str, ...]:
        found = self.sizes
        wal = f", WAL {human_bytes(found.wal_bytes)}" if found.wal_bytes else ""
        lines = [
            f"File {human_bytes(found.file_bytes)}{wal}, of which {human_bytes(found.free_bytes)} are free pages; "
            f"search index {human_bytes(self.search_bytes)}."
        ]
        if self.litestream.found:
            lines.append(f"Litestream: {self.litestream.signs()}. Small steps; the replica gets what they change.")
        lines += self.conversion.lines(done=False)
        if self.compress == "never":
            lines.append("Compress nothing, as asked with --compress never.")
        else:
            which = "all sessions" if self.compress == "always" else f"sessions idle for {self.cold_days:g} days"
            lines.append(
                f"Compress {plural(self.cold_messages, 'message')} of {which}, {human_bytes(self.cold_bytes)}; each is "
                "read back and checked before its old body goes."
            )
        if self.reclaim != "never":
            lines.append(f"Return free pages in steps of {STEP_PAGES}, between other programs' writes.")
        lines.append("Beside other programs: transactions of about 10 ms, with rests between them.")
        if self.offline:
            when = "in any case" if self.rewrites else "if a third of the room inside its pages is unused"
            lines.append(f"Then, alone on the store: rewrite it {when}.")
        return tuple(lines)

    def _facts(self) -> dict[str, Any]:
        return {
            "path": str(self.path),
            "online": not self.offline,
            "sizes": self.sizes.document(),
            "search_bytes": self.search_bytes,
            "compress": {
                "mode": self.compress,
                "cold_days": self.cold_days,
                "message_count": self.cold_messages,
                "bytes": self.cold_bytes,
            },
            "reclaim": self.reclaim,
            "conversion": self.conversion.document(),
            "litestream": self.litestream.document(),
        }


def look_native(
    reader: ReadStore,
    *,
    compress: Compress,
    cold_days: float,
    reclaim: Policy,
    offline: bool,
    now: float,
    scan: Scan | None = None,
) -> NativePlan:
    """Make the plan for the native store that `reader` has open."""
    before = cutoff(compress, cold_days, now)
    messages, size = how_much(reader, before) if before is not None else (0, 0)
    return NativePlan(
        path=reader.path,
        sizes=sizes(reader),
        search_bytes=search_size(reader.path),
        compress=compress,
        cold_before=before,
        cold_days=cold_days,
        cold_messages=messages,
        cold_bytes=size,
        reclaim=reclaim,
        auto_vacuum=pragma(reader, "auto_vacuum"),
        litestream=litestream(reader, scan),
        conversion=look(reader),
        offline=offline,
    )


def search_size(path: Path) -> int:
    """Bytes of the search index beside a store, without its WAL, which is used again; 0 when there is none."""
    from hermes_state.conversation.search.layout import index_path

    return file_bytes(index_path(path))


@dataclass(frozen=True, kw_only=True)
class Slack:
    """Room inside the pages of tables and indexes that holds nothing."""

    bytes: int  # of it
    share: float  # of all pages in use, 0 to 1

    @property
    def pays(self) -> bool:
        """Whether a rewrite would return enough; small files are mostly pages that are not full yet."""
        return self.share > SLACK_SHARE and self.bytes > SLACK_BYTES


def slack(reader: Reader) -> Slack:
    """How much room is unused. Reads the whole file once."""
    row = reader.row("SELECT total(pgsize), total(unused) FROM dbstat WHERE aggregate = TRUE")
    size, unused = (float(row[0]), float(row[1])) if row else (0.0, 0.0)
    return Slack(bytes=int(unused), share=unused / size if size else 0.0)
