"""Is a database file as long as what it holds?

Invariant: a file is called cut only when pages that the store counts are in neither the file nor the WAL. SQLite rounds
a file that ends within a page up and reads the missing bytes as zeros, and beside the WAL of a newer file it believes
the page count of an older one (both measured); whole pages that are missing otherwise it notices itself. Only SQLite's
own descriptors are read. Not for: what the missing pages held (`maintenance.recovery`).

Padding was rejected, as SQLite's answer is: the zeros look like rows that never were.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hermes_state.engine.wal_index import has_frame_of, read_guard_numbers
from hermes_state.errors import Corrupt
from hermes_state.shell_words import shell_word

if TYPE_CHECKING:
    from hermes_state.engine.link import Link

_CORRUPT = 11  # SQLITE_CORRUPT
_LOCKS_AT = 0x40000000  # the page with SQLite's lock bytes is never written anywhere
_LOOKS = 3  # another process may be copying its WAL into the file right now


def refuse_cut(store: Link) -> None:
    """Raise `Corrupt` and close the store when its file is cut. About 3 microseconds for one that is whole."""
    main, shm = store.descriptors.main, store.descriptors.shm
    if main is None or not _looks_cut(main, shm):
        return
    try:
        with store.snapshot():  # without a WAL this keeps writers out
            count = store.page_count
            pages = [_cut_from(store, main, count) for _ in range(_LOOKS)]
            if not all(pages):
                return
            size, page_size, count = os.fstat(main).st_size, store.page_size, pages[-1]
    except BaseException:
        store.close()
        raise
    path = store.path
    store.close()
    how = "it was cut" if size % page_size else "it was cut, or an older copy of it was put there beside a newer WAL"
    raise Corrupt(
        f"The database file {path} is damaged: {how}. It has {size} bytes, and its {count} pages of {page_size} "
        f"bytes take {count * page_size}.",
        hint=f"Run `hermes-state doctor --db {shell_word(path)}`; it says what can be recovered and changes nothing.",
        path=path, search_index=False, sqlite_code=_CORRUPT, sqlite_extended=_CORRUPT,
    )


def missing_page(main: int, shm: int, page_size: int) -> int:
    """The first page behind the end of the file when the WAL index counts it and no frame still to be copied holds it.

    0 when all are there, or while somebody else is changing the numbers. Takes no lock.
    """
    before = read_guard_numbers(shm)
    frames, pages, _salt, copied, wal_page_size = before
    first = os.fstat(main).st_size // page_size + 1
    if first == _LOCKS_AT // page_size + 1:
        first += 1
    if first > pages or frames == 0 or wal_page_size != page_size:
        return 0
    return first if not has_frame_of(shm, first, copied, frames) and read_guard_numbers(shm) == before else 0


def _looks_cut(main: int, shm: int | None) -> bool:
    """Whether a closer look is worth it: the length is no whole number of pages, or a page is missing."""
    size, page_size = os.fstat(main).st_size, _page_size(main)
    if not page_size:
        return False
    return size % page_size != 0 or (shm is not None and missing_page(main, shm, page_size) != 0)


def _cut_from(store: Link, main: int, count: int) -> int:
    """How many pages there should be, when the first one that is not whole is in neither; else 0."""
    shm, wal = store.descriptors.shm, store.descriptors.wal
    if shm is None and wal is not None and os.fstat(wal).st_size:
        return 0  # SQLite has an index of its own: which frames are valid cannot be seen
    frames, pages, _salt, _copied, page_size = read_guard_numbers(shm) if shm is not None else (0, 0, b"", 0, 0)
    page_size = page_size or _page_size(main)
    if frames and shm is not None:
        return pages if missing_page(main, shm, page_size) else 0
    return count if os.fstat(main).st_size // page_size < count else 0


def _page_size(main: int) -> int:
    size = int.from_bytes(os.pread(main, 2, 16), "big")
    return 65536 if size == 1 else size
