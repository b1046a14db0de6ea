"""What is known of one leftover.

Not for: finding or judging.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Compared = Literal["rows", "counts", "not"]


@dataclass(frozen=True, kw_only=True)
class Found:
    """A leftover by its name alone."""

    # which kind, a word of `names.KINDS`
    kind: str
    # the file or folder that it is called by
    path: Path
    # everything of it: that file with its -wal, -shm and -journal, or the folder
    parts: tuple[Path, ...]


@dataclass(frozen=True, kw_only=True)
class Holds:
    """What the database in a leftover holds, and whether the store has it."""

    # "native", "hermes-agent", or None when it cannot be told
    dialect: str | None = None
    # sessions and messages in it, None when they cannot be counted
    sessions: int | None = None
    messages: int | None = None
    # time of the newest message, epoch seconds UTC
    newest_at: float | None = None
    # how it was compared with the store: row by row, by session ids and counts, or not at all
    compared: Compared = "not"
    # rows of it that the store lacks, by table; None when it was not compared. By counts: at least so many
    lacking: dict[str, int] | None = None
    # sessions of which it has facts that the store has differently: id -> columns. Told by rows only
    differing: dict[str, list[str]] = field(default_factory=dict)
    # why it was not looked into or compared, or what is damaged; "" otherwise
    problem: str = ""

    @property
    def lacking_rows(self) -> int:
        """All rows that the store lacks, as far as is known."""
        return sum((self.lacking or {}).values())

    @property
    def all_in_store(self) -> bool | None:
        """Whether everything in it is in the store; None when that was not proven row by row."""
        if self.lacking_rows or self.differing:
            return False
        return True if self.compared == "rows" and not self.problem else None


@dataclass(frozen=True, kw_only=True)
class Leftover:
    """One file or folder beside a store."""

    # which kind, a word of `names.KINDS`
    kind: str
    # the file or folder
    path: Path
    # everything of it: that file with its -wal, -shm and -journal, or the folder
    parts: tuple[Path, ...]
    # bytes of all files in it
    bytes: int
    # newest change of a file in it, epoch seconds UTC
    modified_at: float
    # what its database holds; None when it has none
    holds: Holds | None
    # the newer leftover that is the same byte for byte, or None
    same_as: Path | None
    # whether it may be dropped
    safe: bool
    # why, or why not: a whole sentence
    why: str

    @property
    def could_restore(self) -> bool:
        """Whether rows are in it that the store lacks, as far as is known."""
        return self.holds is not None and self.holds.lacking_rows > 0 and self.same_as is None


@dataclass(frozen=True, kw_only=True)
class Pruned:
    """What `prune` did."""

    # the store
    store: Path
    # what went
    dropped: tuple[Leftover, ...]
    # what was to go and stays, with the reason in `why`
    kept: tuple[Leftover, ...]
    # the ledger that has the line of it, None when nothing went
    ledger: Path | None = None

    @property
    def bytes(self) -> int:
        """Bytes that were returned."""
        return sum(one.bytes for one in self.dropped)


@dataclass(kw_only=True)
class Budget:
    """How much a look may cost before it is left to `deep`."""

    # bytes that may still be read for hashes and verifying
    bytes: int = 2 << 30
    # the largest copy that is copied or compared
    largest: int = 256 << 20
    # seconds for the counts of one copy
    seconds: float = 2.0
    # whether nothing is left out
    deep: bool = field(default=False)

    def allows(self, size: int) -> bool:
        """Whether `size` more bytes may be read; counts them."""
        if self.deep:
            return True
        if size > self.bytes:
            return False
        self.bytes -= size
        return True
