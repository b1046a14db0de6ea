"""How large a store is, and what in it takes the room.

Invariant: sizes come from `os.stat` and from SQLite's own counters; nothing here opens a file or writes. Pages are
counted with the WAL applied, so a file that has not been checkpointed yet is measured as it will be.

Not for: deciding whether returning pages pays (`reclaim`). Measuring with `os.path.getsize` alone was rejected: it says
nothing about free pages, and a WAL that was copied back keeps its length.
"""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from hermes_state.engine import Reader

ObjectKind = Literal["table", "index", "search index", "leftover", "schema"]

# The tables that FTS5 keeps for one index; `content` only in the inline layout.
SHADOWS = ("data", "idx", "content", "docsize", "config")

# Renamed shadow tables of an older search layout that wait to be torn down.
TRASH_PREFIX = "fts_v22_trash_"


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The size of one store at one moment."""

    # Bytes of the main file as the file system has it.
    file_bytes: int
    # Bytes of the -wal file, 0 when there is none; it does not shrink when its frames are copied.
    wal_bytes: int
    # Bytes of one page.
    page_size: int
    # Pages of the store, its WAL included.
    page_count: int
    # Pages that hold nothing.
    free_pages: int

    @property
    def used_bytes(self) -> int:
        """Bytes of the pages that hold something: about the size after a full rewrite."""
        return (self.page_count - self.free_pages) * self.page_size

    @property
    def free_bytes(self) -> int:
        """Bytes that a full rewrite would return."""
        return self.free_pages * self.page_size

    @property
    def free_share(self) -> float:
        """Free pages as a share of all pages, 0 to 1."""
        return self.free_pages / self.page_count if self.page_count else 0.0

    def document(self) -> dict[str, int | float]:
        """The fields of `--json`."""
        return {
            "file_bytes": self.file_bytes,
            "wal_bytes": self.wal_bytes,
            "page_size": self.page_size,
            "page_count": self.page_count,
            "free_pages": self.free_pages,
            "free_bytes": self.free_bytes,
            "free_share": round(self.free_share, 4),
        }


@dataclass(frozen=True, kw_only=True)
class ObjectSize:
    """What one table or index takes."""

    # Name; a search index stands for all of its shadow tables.
    name: str
    # What it is.
    kind: ObjectKind
    # Bytes of its pages.
    bytes: int
    # Share of all pages in use, 0 to 1.
    share: float


def file_bytes(path: Path) -> int:
    """Bytes of a file, 0 when it does not exist."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def wal_of(path: Path) -> Path:
    """Where SQLite keeps the WAL of a store."""
    return path.with_name(path.name + "-wal")


def sizes(reader: Reader) -> Sizes:
    """The size of the store that `reader` has open."""
    return Sizes(
        file_bytes=file_bytes(reader.path),
        wal_bytes=file_bytes(wal_of(reader.path)),
        page_size=pragma(reader, "page_size"),
        page_count=pragma(reader, "page_count"),
        free_pages=pragma(reader, "freelist_count"),
    )


def pragma(reader: Reader, name: str) -> int:
    """A pragma whose value is a number."""
    found = reader.row(f"PRAGMA {name}")
    return int(found[0]) if found else 0


def by_object(reader: Reader) -> tuple[ObjectSize, ...]:
    """Every table and index by the bytes of its pages, largest first. Reads the whole file once.

    The tables behind a search index are added up under the index's name.
    """
    kinds: dict[str, ObjectKind] = {"sqlite_schema": "schema"}
    owner: dict[str, str] = {}
    for name, kind, sql in reader.rows("SELECT name, type, sql FROM sqlite_schema WHERE type IN ('table', 'index')"):
        kinds[name] = "index" if kind == "index" else "table"
        if str(name).startswith(TRASH_PREFIX):
            kinds[name] = "leftover"
        if kind == "table" and is_fulltext(sql):
            kinds[name] = "search index"
            owner.update({f"{name}_{shadow}": name for shadow in SHADOWS})
    totals: dict[str, int] = defaultdict(int)
    for name, size in reader.rows("SELECT name, pgsize FROM dbstat WHERE aggregate = TRUE"):
        totals[owner.get(name, name)] += int(size)
    used = sum(totals.values()) or 1
    found = [
        ObjectSize(name=name, kind=kinds.get(name, "table"), bytes=size, share=size / used)
        for name, size in totals.items()
    ]
    return tuple(sorted(found, key=lambda item: (-item.bytes, item.name)))


def is_fulltext(sql: str | None) -> bool:
    """Whether a CREATE text declares an FTS5 table."""
    words = (sql or "").lower().split(None, 3)
    return words[:3] == ["create", "virtual", "table"] and "using fts5" in " ".join((sql or "").lower().split())


def directory_of(path: Path) -> Path:
    """The directory whose file system holds a store."""
    return Path(os.path.realpath(path)).parent
