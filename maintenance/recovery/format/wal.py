"""The frames of a WAL: which of them SQLite would read, and which others prove themselves.

Invariant: a frame is in exactly one generation (the salts it was written under), its commits are numbered in the order
they were made, and each frame says how far it is proven. The newest generation continues the main file, so its commits
are 1 to n; the frames that are left of older ones were copied into the main file before, so theirs are negative.

Not for: reading pages (`image`). Three rules: `sqlite` believes what the header's salts and an unbroken chain of
checksums prove, as SQLite does; `lenient` also takes frames that follow on a broken one, or on a header that is gone,
when their own checksum continues their predecessor's or their page is a sound one; `none` takes no frame.
Reading the whole log into memory was rejected: only four numbers of each frame are kept.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from maintenance.recovery.format.header import HEADER_BYTES, PAGE_SIZES, Bytes, plausible_tree_page

WalRule = Literal["sqlite", "lenient", "none"]
MAGICS = {0x377F0682: "<", 0x377F0683: ">"}
WAL_HEADER_BYTES = 32
FRAME_HEADER_BYTES = 24
# How a frame is proven: by the chain of checksums from the header; by its predecessor's or successor's checksum; by its
# page; not at all.
CHAIN, LINK, PAGE, NOTHING = 3, 2, 1, 0
_MASK = 0xFFFFFFFF
_MOST_CHECKPOINTS_TRIED = 1000
_FRAME = struct.Struct(">IIIIII")


@dataclass(frozen=True, kw_only=True)
class Commit:
    """One commit of a WAL."""

    # its place in the order of commits: 1 to n in the newest generation, -1, -2, ... backwards in older ones
    number: int
    # first and last frame, counted from 0 over the whole file
    first: int
    last: int
    # pages of the database after it
    pages: int
    # the salts it was written under
    salts: tuple[int, int]
    # SQLite itself reads it
    visible: bool


@dataclass(frozen=True, kw_only=True)
class Generation:
    """Frames that were written under the same salts."""

    salts: tuple[int, int]
    # frames it has in the file, and those of them that nothing proves
    frames: int
    unproven: int
    commits: tuple[Commit, ...]
    # commits of this generation continue the main file as it is
    newest: bool


@dataclass(kw_only=True)
class Wal:
    """All frames of one file."""

    page_size: int
    header_whole: bool = False
    # page number, proof and commit number of each frame; a commit number of 0 stands for "in no commit"
    pages: array[int] = field(default_factory=lambda: array("I"))
    proofs: bytearray = field(default_factory=bytearray)
    commit_of: array[int] = field(default_factory=lambda: array("q"))
    generations: list[Generation] = field(default_factory=list)
    # bytes behind the last whole frame
    rest_bytes: int = 0

    def offset(self, frame: int) -> int:
        """Where the page of a frame begins in the file."""
        return WAL_HEADER_BYTES + frame * (FRAME_HEADER_BYTES + self.page_size) + FRAME_HEADER_BYTES

    @property
    def commits(self) -> list[Commit]:
        """All commits, oldest first."""
        return sorted((c for g in self.generations for c in g.commits), key=lambda commit: commit.number)


def checksum(data: bytes, start: tuple[int, int], order: str) -> tuple[int, int]:
    """SQLite's running checksum over `data`, whose length is a multiple of eight."""
    one, two = start
    words = iter(struct.unpack(f"{order}{len(data) // 4}I", data))
    for left, right in zip(words, words, strict=True):
        one = (one + left + two) & _MASK
        two = (two + right + one) & _MASK
    return one, two


def wal_page_size(data: Bytes) -> int | None:
    """The page size in the header of a WAL, else the one at which its frames carry the same salts; None without one."""
    raw = bytes(data[:WAL_HEADER_BYTES])
    if len(raw) < WAL_HEADER_BYTES:
        return None
    magic, _, size = struct.unpack_from(">III", raw)
    size = 65536 if size == 1 else size
    if magic in MAGICS and size in PAGE_SIZES:
        return int(size)
    best, most = None, 0
    for candidate in PAGE_SIZES:
        stride, last, agreeing = candidate + FRAME_HEADER_BYTES, None, 0
        for at in range(WAL_HEADER_BYTES, min(len(data), stride * 64) - stride + 1, stride):
            page, _, *salts = struct.unpack(">IIII", bytes(data[at : at + 16]))
            agreeing += bool(0 < page < 1 << 30 and any(salts) and (last is None or salts == last))
            last = salts
        if agreeing * candidate > most:
            best, most = candidate, agreeing * candidate
    return best


def read_wal(data: Bytes, page_size: int, rule: WalRule) -> Wal:
    """Every frame of the file, proven under `rule`. With `none` no frame is proven; all are there all the same."""
    wal = Wal(page_size=page_size)
    stride = page_size + FRAME_HEADER_BYTES
    frames = max(0, len(data) - WAL_HEADER_BYTES) // stride
    wal.rest_bytes = max(0, len(data) - WAL_HEADER_BYTES - frames * stride)
    head = bytes(data[:WAL_HEADER_BYTES])
    salts, seed, order = (0, 0), None, "<"
    if len(head) == WAL_HEADER_BYTES:
        magic, _, size, _, *rest = struct.unpack(">IIIIIIII", head)
        order = MAGICS.get(magic, "<")
        seed = checksum(head[:24], (0, 0), order)
        salts = (rest[0], rest[1])
        size = 65536 if size == 1 else size
        wal.header_whole = magic in MAGICS and size == page_size and seed == (rest[2], rest[3])
    if not wal.header_whole:
        order = _order_of(data, stride, frames)
        salts, seed = _missing_header(bytes(data[WAL_HEADER_BYTES : WAL_HEADER_BYTES + stride]), page_size, order)
    sizes, where = _prove(wal, data, frames, seed, salts, order, rule)
    _group(wal, sizes, where, salts, rule)
    return wal


def _order_of(data: Bytes, stride: int, frames: int) -> str:
    """The byte order of the checksums of a log without a header: the one in which a frame continues another."""
    for frame in range(1, min(frames, 20)):
        at = WAL_HEADER_BYTES + frame * stride
        before = _FRAME.unpack(bytes(data[at - stride : at - stride + 24]))[4:]
        raw = bytes(data[at : at + stride])
        for order in ("<", ">"):
            if checksum(raw[:8] + raw[24:], (before[0], before[1]), order) == _FRAME.unpack(raw[:24])[4:]:
                return order
    return "<"


def _missing_header(first: bytes, page_size: int, order: str) -> tuple[tuple[int, int], tuple[int, int] | None]:
    """Salts and checksum that the header must have had, when one of the first numbers of checkpoints explains them.

    Everything else in a header is known: its salts stand in the first frame, whose checksum continues the header's.
    """
    if len(first) < page_size + FRAME_HEADER_BYTES or not first[0:4].strip(b"\0"):
        return (0, 0), None
    salts, own = _FRAME.unpack_from(first)[2:4], _FRAME.unpack_from(first)[4:]
    magic = next(number for number, name in MAGICS.items() if name == order)
    content = first[:8] + first[24:]
    for checkpoints in range(_MOST_CHECKPOINTS_TRIED):
        header = struct.pack(">IIIIII", magic, 3007000, page_size, checkpoints, *salts)
        seed = checksum(header, (0, 0), order)
        if checksum(content, seed, order) == own:
            return (salts[0], salts[1]), seed
    return (0, 0), None


def _prove(
    wal: Wal, data: Bytes, frames: int, seed: tuple[int, int] | None, salts: tuple[int, int], order: str, rule: WalRule
) -> tuple[array[int], dict[tuple[int, int], array[int]]]:
    """Fill pages and proofs; the size that each frame gives the database, and the frames by salts."""
    sizes = array("I")
    where: dict[tuple[int, int], array[int]] = {}
    stride = wal.page_size + FRAME_HEADER_BYTES
    chain = seed
    stored: tuple[int, int] | None = seed
    computed: tuple[int, int] | None = seed
    last_salts = salts
    for frame in range(frames):
        at = WAL_HEADER_BYTES + frame * stride
        raw = bytes(data[at : at + stride])
        page, commit_pages, salt1, salt2, sum1, sum2 = _FRAME.unpack_from(raw)
        own, content = (sum1, sum2), raw[:8] + raw[24:]
        proof = NOTHING
        # A page of zeros with a header of zeros adds up, and nobody wrote it.
        if page and (salt1, salt2) != (0, 0):
            if (salt1, salt2) != last_salts and frame:
                chain = None
            before = stored if frame == 0 or (salt1, salt2) == last_salts else None
            made = checksum(content, before, order) if before is not None else None
            if chain is not None and made == own and (salt1, salt2) == salts:
                proof, chain = CHAIN, own
            elif made is not None and made == own:
                proof = LINK
            elif computed is not None and computed != before and (salt1, salt2) == last_salts and (
                checksum(content, computed, order) == own
            ):
                # The stored checksum of the frame before was broken, not its page.
                proof, wal.proofs[frame - 1] = LINK, LINK
            elif plausible_tree_page(content[8:], HEADER_BYTES if page == 1 else 0, wal.page_size):
                proof = PAGE
            if proof != CHAIN:
                chain = None
            computed = made
        else:
            chain = computed = None
        stored, last_salts = own, (salt1, salt2)
        wal.pages.append(page)
        wal.proofs.append(proof if rule != "none" else NOTHING)
        wal.commit_of.append(0)
        sizes.append(commit_pages)
        if page:
            where.setdefault((salt1, salt2), array("I")).append(frame)
    return sizes, where


def _group(
    wal: Wal, sizes: array[int], where: dict[tuple[int, int], array[int]], salts: tuple[int, int], rule: WalRule
) -> None:
    """Order generations by their salt, which rises by one at every restart, and number the commits."""
    if not where or rule == "none":
        return
    # Without a header the newest frames are those at the beginning; a whole header may have no frame yet.
    current = salts if wal.header_whole or salts in where else next(iter(where))
    newest_first = sorted(where, key=lambda key: (current[0] - key[0]) & _MASK)
    older = 0
    for key in newest_first:
        is_newest = key == current
        found = list(_commits_of(wal, sizes, where[key], strict=rule == "sqlite" and is_newest))
        commits = []
        for place, (first, last, members, visible) in enumerate(found):
            number = place + 1 if is_newest else place - len(found) - older
            commits.append(
                Commit(
                    number=number, first=first, last=last, pages=sizes[last], salts=key, visible=visible
                )
            )
            for member in members:
                wal.commit_of[member] = number
        if not is_newest:
            older += len(found)
        unproven = sum(wal.proofs[number] == NOTHING for number in where[key])
        wal.generations.append(
            Generation(
                salts=key, frames=len(where[key]), unproven=unproven, commits=tuple(commits), newest=is_newest
            )
        )


def _commits_of(
    wal: Wal, sizes: array[int], frames: array[int], *, strict: bool
) -> Iterator[tuple[int, int, list[int], bool]]:
    """(first frame, last frame, proven frames, whether SQLite reads it) of each commit of a generation."""
    members: list[int] = []
    visible = wal.header_whole
    for number in frames:
        visible = visible and wal.proofs[number] == CHAIN
        if strict and not visible:
            return
        if wal.proofs[number] != NOTHING:
            members.append(number)
            if sizes[number]:
                yield members[0], number, members, visible
                members = []
