"""The hundred bytes at the start of a database, and how to do without them.

Invariant: a field is believed only when the others agree with it; what the header does not say is measured from the
pages (size, reserved bytes, encoding), and `whole` tells the two apart.

Not for: schema. Refusing a file without a header was rejected: every row of such a file can be had.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from maintenance.recovery.format.record import serial_types, sizes, varint

MAGIC = b"SQLite format 3\0"
HEADER_BYTES = 100
# The page with this byte is never used: file locks are taken there.
LOCK_BYTE = 0x40000000
PAGE_SIZES = (4096, 1024, 8192, 2048, 512, 16384, 32768, 65536)
ENCODINGS = {1: "utf-8", 2: "utf-16-le", 3: "utf-16-be"}
# How much of a file is looked at to find its page size, in bytes, and how many pages for everything else.
_LOOKED_AT_BYTES = 8 << 20
_SAMPLED_PAGES = 200
LEAST_USABLE = 480
_LEAST_TEXTS = 8


class Bytes(Protocol):
    """The file, mapped or read."""

    def __getitem__(self, where: slice, /) -> bytes: ...
    def __len__(self) -> int: ...


@dataclass(frozen=True, kw_only=True)
class Header:
    """What is known about the file as a whole."""

    page_size: int
    # bytes at the end of each page that SQLite leaves alone
    reserved: int
    # Python's name of the encoding of its texts
    encoding: str
    # pages that the file says it has; 0 when it does not say
    pages: int
    # first trunk page of the freelist, and how many free pages there should be; 0 for none
    freelist: int
    free_pages: int
    # there are pointer-map pages
    auto_vacuum: bool
    # all of this was read from an intact header
    whole: bool

    @property
    def usable(self) -> int:
        """Bytes of a page that hold content."""
        return self.page_size - self.reserved


def read_header(data: Bytes) -> Header | None:
    """The header, when its fields make sense together."""
    raw = bytes(data[:HEADER_BYTES])
    if len(raw) < HEADER_BYTES or raw[:16] != MAGIC:
        return None
    (size,) = struct.unpack_from(">H", raw, 16)
    size = 65536 if size == 1 else size
    encoding = struct.unpack_from(">I", raw, 56)[0]
    # A database in which nothing was ever created has no encoding yet.
    encoding = encoding or 1
    if size not in PAGE_SIZES or raw[21:24] != b"\x40\x20\x20" or encoding not in ENCODINGS:
        return None
    reserved = raw[20]
    if size - reserved < LEAST_USABLE:
        return None
    changes, pages, trunk, free = struct.unpack_from(">IIII", raw, 24)
    largest_root, valid_for = struct.unpack_from(">I", raw, 52)[0], struct.unpack_from(">I", raw, 92)[0]
    return Header(
        page_size=size, reserved=reserved, encoding=ENCODINGS[encoding], pages=pages if changes == valid_for else 0,
        freelist=trunk, free_pages=free, auto_vacuum=largest_root != 0, whole=True,
    )  # fmt: skip


def plausible_tree_page(page: bytes, at: int, usable: int) -> bool:
    """Whether the b-tree page header at `at` and all its cell pointers make sense. An empty page does not count."""
    if len(page) < at + 12:
        return False
    kind = page[at]
    if kind not in (2, 5, 10, 13):
        return False
    freeblock, count, content = struct.unpack_from(">HHH", page, at + 1)
    first = at + (8 if kind >= 10 else 12)
    content = content or 65536
    if not count or first + 2 * count > content or content > usable or (freeblock and freeblock < content):
        return False
    if page[at + 7] > 60 or freeblock >= usable or len(page) < first + 2 * count:
        return False
    pointers = struct.unpack_from(f">{count}H", page, first)
    return bool(min(pointers) >= content and max(pointers) <= usable - 3 and len(set(pointers)) == count)


def guess_page_size(data: Bytes) -> int:
    """The page size at which most pages of the file are sound b-tree pages; 4096 when none is.

    Pages are counted, not bytes: at twice the true size every second page still looks sound.
    """
    best, most = PAGE_SIZES[0], 0
    looked_at = min(len(data), _LOOKED_AT_BYTES)
    for size in PAGE_SIZES:
        sound = 0
        for at in range(0, looked_at - size + 1, size):
            page = bytes(data[at : at + size])
            sound += plausible_tree_page(page, 0 if at else HEADER_BYTES, size) or page[:8] == _empty_leaf(page, size)
        if sound > most:
            best, most = size, sound
    return best


def looks_right(data: Bytes, size: int) -> bool:
    """Whether the first pages of a file are, at this page size, b-tree pages more often than chance."""
    first = [bytes(data[at : at + size]) for at in range(size, min(len(data), size * 65) - size + 1, size)]
    trees = [page for page in first if page[0] in (2, 5, 10, 13)]
    sound = sum(plausible_tree_page(page, 0, size) or page[:8] == _empty_leaf(page, size) for page in trees)
    return sound * 4 >= len(trees) or bool(
        plausible_tree_page(bytes(data[:size]), HEADER_BYTES, size) and not trees
    )


def _empty_leaf(page: bytes, size: int) -> bytes:
    """The first bytes of a leaf page of a tree without rows; of an index when `page` is none of a table."""
    return struct.pack(">BHHHB", 13 if page[:1] == b"\x0d" else 10, 0, 0, size & 0xFFFF, 0)


def guess_header(read: Callable[[int], bytes], pages: int, page_size: int) -> Header:
    """What the pages themselves say. `read(n)` gives page n."""
    ends, texts = _evidence(read, pages, page_size)
    most = max(ends, default=page_size)
    reserved = page_size - most if ends[most] > 2 and 0 < page_size - most < 256 else 0
    encoding = max(texts, key=lambda name: texts[name]) if texts else "utf-8"
    return Header(
        page_size=page_size, reserved=reserved, encoding=encoding, pages=0, freelist=0, free_pages=0,
        auto_vacuum=is_pointer_map(read(2), pages, page_size - reserved), whole=False,
    )  # fmt: skip


def checked_header(header: Header, read: Callable[[int], bytes], pages: int) -> Header:
    """The header, with the fields that the pages contradict put right; then it is not whole any more.

    A single wrong bit there makes every text garbage, or every long row, and leaves a header that looks good.
    """
    ends, texts = _evidence(read, pages, header.page_size)
    found = header
    if texts.total() >= _LEAST_TEXTS and texts[header.encoding] * 4 < texts.total():
        found = replace(found, encoding=max(texts, key=lambda name: texts[name]), whole=False)
    if sum(count for end, count in ends.items() if end > header.usable) * 2 > ends.total():
        found = replace(found, reserved=header.page_size - max(ends), whole=False)
    is_map = is_pointer_map(read(2), pages, found.usable)
    if pages > _LEAST_TEXTS and is_map != header.auto_vacuum and (is_map or not _maybe_map(read(2))):
        found = replace(found, auto_vacuum=is_map, whole=False)
    return found


def _maybe_map(page: bytes) -> bool:
    """Whether page 2 may be a damaged pointer map: it is no page of a tree, or begins with sound entries."""
    return not plausible_tree_page(page, 0, len(page))


def _evidence(read: Callable[[int], bytes], pages: int, page_size: int) -> tuple[Counter[int], Counter[str]]:
    """Where the last cells of pages end, and which encodings texts have, with how often."""
    ends: Counter[int] = Counter()
    texts: Counter[str] = Counter()
    for page, base in _sample(read, pages, page_size):
        ends.update(_cell_ends(page, base, page_size))
        texts.update(_encodings(page, base, page_size))
    return ends, texts


def _sample(read: Callable[[int], bytes], pages: int, page_size: int) -> Iterator[tuple[bytes, int]]:
    """Sound table leaves, spread over the file, and where the header of each begins."""
    for number in range(1, pages + 1, max(1, pages // _SAMPLED_PAGES)):
        page, base = read(number), HEADER_BYTES if number == 1 else 0
        if len(page) > base and page[base] == 13 and plausible_tree_page(page, base, page_size):
            yield page, base


def _pointers(page: bytes, base: int) -> tuple[int, ...]:
    (count,) = struct.unpack_from(">H", page, base + 3)
    return struct.unpack_from(f">{count}H", page, base + 8)


def _cell_ends(page: bytes, base: int, page_size: int) -> list[int]:
    """Where the last cell of a table leaf ends, when it has no overflow."""
    try:
        payload, at = varint(page, max(_pointers(page, base)))
        _, at = varint(page, at)
    except IndexError:
        return []
    return [at + payload] if payload <= page_size - 35 - 255 and at + payload <= page_size else []


def _encodings(page: bytes, base: int, page_size: int) -> list[str]:
    """Guesses from the texts of the first cells of a table leaf."""
    found = []
    for start in _pointers(page, base)[:8]:
        try:
            payload, at = varint(page, start)
            _, at = varint(page, at)
        except IndexError:
            continue
        header = serial_types(page, at, min(at + payload, page_size))
        if header is None:
            continue
        serials, position = header
        for serial in serials:
            size = sizes([serial])
            raw = page[position : position + size]
            position += size
            if serial >= 13 and serial & 1 and size >= 4 and len(raw) == size:
                found.append(_encoding_of(raw))
    return found


def _encoding_of(text: bytes) -> str:
    """The encoding of one text: letters have a zero byte on one side in UTF-16, and in UTF-8 none."""
    odd, even = text[1::2].count(0), text[0::2].count(0)
    if max(odd, even) * 4 > len(text):
        return "utf-16-le" if odd > even else "utf-16-be"
    try:
        text.decode()
    except UnicodeDecodeError:
        return "utf-16-le" if odd > even else "utf-16-be" if even > odd else "utf-8"
    return "utf-8"


def is_pointer_map(page: bytes, pages: int, usable: int) -> bool:
    """Whether page 2 is the first pointer map: five bytes for each of the pages from 3 on."""
    entries = min(pages - 2, usable // 5)
    if entries < 1 or len(page) < entries * 5:
        return False
    for number in range(entries):
        kind, parent = page[number * 5], int.from_bytes(page[number * 5 + 1 : number * 5 + 5], "big")
        if not 1 <= kind <= 5 or parent >> 31 or (kind <= 2) != (parent == 0):
            return False
    return True
