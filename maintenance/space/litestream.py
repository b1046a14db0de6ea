"""Whether Litestream replicates a store, and what a rewrite would cost the replica.

Invariant: only names are looked at: the directory that Litestream keeps beside a store, the tables it adds, and the
command of a process that a scan found. Nothing of Litestream's is opened or changed.

Not for: driving Litestream. Refusing beside it was rejected: measured with Litestream 0.5.17, an in-place rewrite
restores exactly; what it costs is one transfer of the whole compact file and one long write lock.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from maintenance.output.text import human_bytes

if TYPE_CHECKING:
    from hermes_state.engine import Reader
    from lockowners import Process, Scan

# Said when a WAL stays as large as a rewrite made it.
WAL_KEPT = "The WAL was copied and not emptied, because Litestream reads it; new writes use its room."

TABLES = ("_litestream_lock", "_litestream_seq")


@dataclass(frozen=True, kw_only=True)
class Litestream:
    """What shows that a store is replicated."""

    # The directory beside the store, or None.
    directory: Path | None
    # Process ids of Litestream processes that hold the store.
    pids: tuple[int, ...]
    # Litestream's tables in the store.
    tables: tuple[str, ...]

    @property
    def found(self) -> bool:
        """Whether anything shows a replica."""
        return bool(self.directory or self.pids or self.tables)

    @property
    def running(self) -> bool:
        """Whether a Litestream process holds the store now."""
        return bool(self.pids)

    def cost_lines(self, rewritten_bytes: int) -> tuple[str, ...]:
        """What a plan says first; empty when there is no replica."""
        if not self.found:
            return ()
        return (
            f"Litestream: {self.signs()}. A full rewrite makes it send the whole compact file "
            f"({human_bytes(rewritten_bytes)}) to the replica, and holds one long write lock.",
            "`--online` sends about half of that, in small steps, where the file allows them.",
        )

    def signs(self) -> str:
        """The signs in words."""
        said = []
        if self.directory is not None:
            said.append(f"{self.directory.name} is beside the store")
        if self.pids:
            said.append("process " + ", ".join(str(pid) for pid in self.pids) + " holds it")
        if self.tables:
            said.append("it has the table " + " and ".join(self.tables))
        return "; ".join(said)

    def document(self) -> dict[str, object]:
        """The fields of `--json`."""
        return {
            "found": self.found,
            "directory": str(self.directory) if self.directory else None,
            "pids": list(self.pids),
            "tables": list(self.tables),
        }


def litestream(reader: Reader, scan: Scan | None = None) -> Litestream:
    """Look for a replica of the store that `reader` has open."""
    beside = reader.path.with_name(f".{reader.path.name}-litestream")
    marks = ", ".join("?" for _ in TABLES)
    tables = reader.rows(
        f"SELECT name FROM sqlite_schema WHERE type = 'table' AND name IN ({marks}) ORDER BY name", TABLES
    )
    holders = scan.holders if scan is not None else ()
    return Litestream(
        directory=beside if beside.is_dir() else None,
        pids=tuple(holder.process.pid for holder in holders if is_litestream(holder.process)),
        tables=tuple(str(name) for (name,) in tables),
    )


def is_litestream(process: Process) -> bool:
    """Whether a process is Litestream, by its program's name."""
    program = PurePath(process.argv[0]).name if process.argv else process.command
    return program == "litestream"
