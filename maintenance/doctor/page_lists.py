"""What is wrong with the use of pages when every tree is whole by itself: the freelist, the pointer map, or neither.

Invariant: decided by reading the lists themselves (https://www.sqlite.org/fileformat2.html#the_freelist and
#pointer_map_or_ptrmap_pages), never by SQLite's words. Nothing in these lists is content, so the damage is derived: a
rewrite of the file makes them anew.

Not for: trees (`pages`). Blaming the freelist whenever no tree is hit was rejected: a page that two trees share is
found the same way, and it is not derived.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from hermes_state.errors import StateError
from maintenance.doctor.findings import Finding, Severity, repair_command
from maintenance.doctor.page_source import StorePages
from maintenance.output.text import plural

if TYPE_CHECKING:
    from hermes_state.engine import ReadStore

FREE = 2
POINTER_BYTES = 5
# What dbstat calls a page, and the kinds that the pointer map may give it (root, first overflow, overflow, tree).
KINDS: dict[str, set[int]] = {"internal": {1, 5}, "leaf": {1, 5}, "overflow": {3, 4}}
MOST_NAMED = 8


def list_finding(store: ReadStore, facts: Mapping[str, object]) -> Finding:
    """The one finding for a file whose page check fails although each table and index is whole."""
    with store.snapshot():
        pages = StorePages(store)
        if not pages.readable:
            return _finding("page_list_damaged", "use of pages", store, _UNKNOWN, facts)
        free, wrong = free_pages(pages)
        users = _users(store, pages.page_count)
        if not any(users):
            return _finding("page_list_damaged", "use of pages", store, _UNKNOWN, facts)
        wrong |= {page for page in range(pages.page_count + 1) if free[page] and users[page]}
        if wrong:
            words = (
                f"The freelist is damaged ({_numbers(wrong)}); every table and index is whole by itself. SQLite may "
                "refuse changes, or write over pages that are in use."
            )
            return _finding("freelist_damaged", "freelist", store, words, {**facts, "pages": sorted(wrong)[:1000]})
        if _has_pointer_map(pages) and (wrong := _wrong_pointers(pages, free, users)):
            words = f"The pointer map is damaged ({_numbers(wrong)}); every table and index is whole by itself."
            return _finding(
                "pointer_map_damaged", "pointer map", store, words, {**facts, "pages": sorted(wrong)[:1000]}
            )
        maps = set(_pointer_pages(pages))
        lost = {
            page for page in range(2, pages.page_count + 1)
            if not free[page] and not users[page] and page not in maps
        }
    if lost:
        words = (
            f"{plural(len(lost), 'page')} of the file {'belongs' if len(lost) == 1 else 'belong'} to no table, no "
            f"index and no list ({_numbers(lost)}); what the tables hold is whole."
        )
        return _finding("page_list_damaged", "use of pages", store, words, {**facts, "pages": sorted(lost)[:1000]})
    return _finding("page_list_damaged", "use of pages", store, _UNKNOWN, facts)


_UNKNOWN = "Every table and index is whole by itself, but the list of free pages or the use of pages is not."


def free_pages(pages: StorePages) -> tuple[bytearray, set[int]]:
    """A mark for each page that the freelist names, and those of its pages that cannot be right.

    One byte a page, since a file of 10 GB has 2.6 million of them.
    """
    head = pages.page(1)
    trunk, count = int.from_bytes(head[32:36], "big"), int.from_bytes(head[36:40], "big")
    free = bytearray(pages.page_count + 1)
    wrong: set[int] = set()
    trunks: set[int] = set()
    before = 1  # the page that names the trunk: the header for the first
    while trunk:
        if not 2 <= trunk <= pages.page_count or trunk in trunks:
            wrong.add(before)
            break
        trunks.add(trunk)
        free[trunk] = 1
        raw = pages.page(trunk)
        number = int.from_bytes(raw[4:8], "big")
        if len(raw) < pages.page_size or number > pages.page_size // 4 - 2:
            wrong.add(trunk)
            break
        leaves = [int.from_bytes(raw[at : at + 4], "big") for at in range(8, 8 + 4 * number, 4)]
        for leaf in leaves:
            if not 2 <= leaf <= pages.page_count or free[leaf]:
                wrong.add(trunk)
            else:
                free[leaf] = 1
        before, trunk = trunk, int.from_bytes(raw[:4], "big")
    if not wrong and sum(free) != count:
        wrong.add(1)
    return free, wrong


def shared_pages(store: ReadStore) -> dict[int, list[str]]:
    """Pages that more than one tree, or one tree twice, says to be its own; by page, with the names of the trees."""
    seen = bytearray(store.page_count + 1)
    shared: dict[int, list[str]] = {}
    try:
        for (page,) in store.iterate("SELECT pageno FROM dbstat"):
            if page < len(seen):
                if seen[page]:
                    shared[int(page)] = []
                seen[page] = 1
        if shared:
            for page, name in store.iterate("SELECT pageno, CAST(name AS BLOB) FROM dbstat"):
                if page in shared:
                    shared[page].append(bytes(name).decode(errors="replace"))
    except StateError:
        return {}
    return shared


def _users(store: ReadStore, page_count: int) -> bytearray:
    """Kind of each page that a tree uses: its place in `KINDS` from 1, 0 for a page that none uses."""
    kinds = {name: number for number, name in enumerate(KINDS, 1)}
    users = bytearray(page_count + 1)
    try:
        for page, kind in store.iterate("SELECT pageno, pagetype FROM dbstat"):
            if page <= page_count:
                users[page] = kinds.get(str(kind), len(kinds) + 1)
    except StateError:
        return bytearray(page_count + 1)
    return users


def _has_pointer_map(pages: StorePages) -> bool:
    return pages.page(1)[52:56] != b"\0\0\0\0"


def _pointer_pages(pages: StorePages) -> Iterator[int]:
    """Page numbers of the pointer map, and the page that holds the lock bytes."""
    lock_page = (1 << 30) // pages.page_size + 1
    if lock_page <= pages.page_count:
        yield lock_page
    if not _has_pointer_map(pages):
        return
    entries = pages.page_size // POINTER_BYTES
    for number in range(2, pages.page_count + 1, entries + 1):
        yield number + 1 if number == lock_page else number


def _wrong_pointers(pages: StorePages, free: bytearray, users: bytearray) -> set[int]:
    """Pages whose entry in the pointer map is not of the kind that they are."""
    allowed_kinds: list[set[int]] = [set(), *KINDS.values(), set()]
    wrong: set[int] = set()
    per = pages.page_size // POINTER_BYTES
    maps = set(_pointer_pages(pages))
    for number in sorted(maps):
        raw = pages.page(number)
        for slot in range(min(per, len(raw) // POINTER_BYTES)):
            page = number + 1 + slot
            if page > pages.page_count or page in maps:
                continue
            kind = raw[slot * POINTER_BYTES]
            allowed = {FREE} if free[page] else allowed_kinds[users[page]]
            if allowed and kind not in allowed:
                wrong.add(page)
    return wrong


def _numbers(pages: set[int]) -> str:
    shown = ", ".join(map(str, sorted(pages)[:MOST_NAMED]))
    more = ", …" if len(pages) > MOST_NAMED else ""
    return f"{'page' if len(pages) == 1 else 'pages'} {shown}{more}"


def _finding(code: str, what: str, store: ReadStore, sentence: str, facts: Mapping[str, object]) -> Finding:
    return Finding(
        code=code,
        severity=Severity.DAMAGE,
        object=what,
        sentence=sentence,
        facts=facts,
        next_command=repair_command(store.path),
        derived=True,
    )
