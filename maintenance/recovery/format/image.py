"""The pages of one database: the main file with the frames of its WAL laid over it.

Invariant: `page(n)` is what SQLite would read under the rule `sqlite`; bytes that are not in the files are zeros and
`real_bytes(n)` says where they begin; nothing raises on what the bytes say. Files are mapped, so memory does not grow
with them, and they must not change meanwhile: a private copy, never a store that anybody has open.

Not for: trees and rows (`carve`). Copying the frames over a copy of the main file was rejected: older versions of a
page would be gone, and they hold what a newer commit deleted.
"""

from __future__ import annotations

import mmap
from array import array
from bisect import bisect_right
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from maintenance.recovery.format.header import (
    HEADER_BYTES,
    LOCK_BYTE,
    Header,
    checked_header,
    guess_header,
    guess_page_size,
    looks_right,
    read_header,
)
from maintenance.recovery.format.wal import LINK, Commit, Generation, Wal, WalRule, read_wal, wal_page_size

# Mapped pages that were read are given back after this many bytes.
_GIVE_BACK_BYTES = 32 << 20
# What the kernel maps around one page that is touched, when the file is in its cache: 16 pages of 4 KiB.
_MAPPED_AROUND = 64 << 10
# A WAL may say that the database has this many pages whatever the size of the files.
_LEAST_LIMIT_PAGES = 1 << 22


class Image:
    """Pages of one database. Make it with `read`, close it, or use it in a `with`."""

    # What the file says or shows about itself.
    header: Header
    # Pages that can be asked for: those of the main file and of commits, also behind the end that the header says.
    page_count: int
    # Bytes of the main file, and the pages that these are, a cut one included.
    main_bytes: int
    file_pages: int
    # Pages that the database has in the end: by its last commit, else by its header, else by its size.
    size_in_pages: int

    def __init__(self, main: mmap.mmap | bytes, log: mmap.mmap | bytes, header: Header, wal: Wal) -> None:
        """Use `read`: this only puts the parts together."""
        self._main, self._log, self.header, self.wal = main, log, header, wal
        self.page_size = header.page_size
        self.usable = header.usable
        self.encoding = header.encoding
        self.header_whole = header.whole
        self._read_bytes = 0
        self.main_bytes = len(main)
        self.file_pages = -(-len(main) // self.page_size)
        newest = [commit for commit in wal.commits if commit.number > 0]
        # Commit -> (first frame of its generation, its last frame).
        self._spans = {
            commit.number: (generation.commits[0].first, commit.last)
            for generation in wal.generations
            for commit in generation.commits
        }
        # No frame is believed that makes the database absurdly long: some bytes are kept for each page.
        most = max(_LEAST_LIMIT_PAGES, 4 * (self.file_pages + len(wal.pages)))
        self._frames = _frames_by_page(wal, most)
        # Page -> frame of its newest version in the image.
        self._current = _current(wal, newest, most)
        self.page_count = max([self.file_pages, *self._current])
        self.size_in_pages = newest[-1].pages if newest else header.pages or self.file_pages

    @classmethod
    def read(
        cls, main: Path | None, wal: Path | None = None, *, wal_rule: WalRule = "sqlite", page_size: int | None = None
    ) -> Image:
        """Map the files of one database.

        main: the database file, or None when there is only a WAL. wal: its WAL; None or a path without a file: there
        is none. wal_rule: see `format.wal`. page_size: bytes, for a file whose header is gone; found by trying when
        it is not given. Raises OSError when a file cannot be read, and nothing else.
        """
        data, log = _mapped(main), _mapped(wal)
        found = read_header(data)
        if page_size is None:
            page_size = found.page_size if found else wal_page_size(log) or guess_page_size(data)
            if found and not looks_right(data, page_size):
                page_size = guess_page_size(data)
        image = cls(data, log, _blank(page_size), read_wal(log, page_size, wal_rule))
        header = read_header(image.page(1)) or found
        if header is None or header.page_size != page_size:
            image._set(guess_header(image.page, image.page_count, page_size))
        else:
            image._set(checked_header(header, image.page, image.page_count))
        return image

    def _set(self, header: Header) -> None:
        self.header, self.usable, self.encoding = header, header.usable, header.encoding
        self.header_whole = header.whole
        if not any(commit.number > 0 for commit in self.wal.commits):
            self.size_in_pages = header.pages or self.file_pages

    @property
    def commits(self) -> tuple[Commit, ...]:
        """Commits of the WAL, oldest first; those numbered from 1 on are laid over the main file."""
        return tuple(self.wal.commits)

    @property
    def generations(self) -> tuple[Generation, ...]:
        """The WAL's frames by salts, newest generation first."""
        return tuple(self.wal.generations)

    @property
    def lock_page(self) -> int:
        """The page that is never used, at 1 GiB."""
        return LOCK_BYTE // self.page_size + 1

    def page(self, number: int) -> bytes:
        """The newest version of a page, `page_size` bytes; empty when there is no such page."""
        frame = self._current.get(number)
        return self.main_page(number) if frame is None else self.frame_page(frame)

    def main_page(self, number: int) -> bytes:
        """The page as the main file has it; zeros behind the end of a file that is cut within it."""
        at = (number - 1) * self.page_size
        raw = self._main[at : at + self.page_size] if number > 0 else b""
        self._read_bytes += max(len(raw), _MAPPED_AROUND)
        return raw if len(raw) == self.page_size or not raw else raw.ljust(self.page_size, b"\0")

    def frame_page(self, frame: int) -> bytes:
        """The page in a frame of the WAL."""
        at = self.wal.offset(frame)
        self._read_bytes += max(self.page_size, _MAPPED_AROUND)
        return self._log[at : at + self.page_size]

    def real_bytes(self, number: int) -> int:
        """How many bytes of the newest version of a page are in a file."""
        if number in self._current:
            return self.page_size
        return max(0, min(self.page_size, len(self._main) - (number - 1) * self.page_size))

    def commit_of(self, number: int) -> int:
        """The commit that wrote the newest version of a page; 0: it is the main file's."""
        frame = self._current.get(number)
        return 0 if frame is None else self.wal.commit_of[frame]

    def frame_of(self, number: int) -> int | None:
        """The frame that has the newest version of a page, if not the main file."""
        return self._current.get(number)

    def proven(self, number: int) -> bool:
        """Whether the newest version of a page is the main file's, or in a frame whose checksum agrees with it."""
        frame = self._current.get(number)
        return frame is None or self.wal.proofs[frame] >= LINK

    def frames_of(self, number: int) -> list[int]:
        """Every frame of the WAL with this page, in file order, whatever proves it."""
        return list(self._frames.get(number, ()))

    def pages_in_wal(self) -> list[int]:
        """The pages that have frames."""
        return sorted(self._frames)

    def page_at(self, number: int, frame: int) -> tuple[bytes, bool]:
        """A page as it was when `frame` was written, and whether that is certain.

        Not certain: an older generation's page that has no frame of its own there, and a page of the main file that
        a later frame may already have been copied over.
        """
        # Frames of one commit are written in order of page number, so the end of the commit counts.
        first, last = self._spans.get(self.wal.commit_of[frame], (frame, frame))
        frames = self._frames.get(number)
        if frames is not None:
            place = bisect_right(frames, last)
            if place and frames[place - 1] >= first:
                return self.frame_page(frames[place - 1]), True
        page = self.main_page(number)
        if self.wal.commit_of[frame] <= 0:
            return page, False
        return page, not any(self.frame_page(later) == page for later in frames or ())

    def page_types(self) -> bytearray:
        """The first byte of the newest version of each page, and of page 1 the byte behind the header; [0] is 0."""
        kinds = bytearray(1)
        # Looking at one byte of each page maps all of them, so it is done in parts.
        window = max(1, _GIVE_BACK_BYTES // self.page_size) * self.page_size
        for at in range(0, len(self._main), window):
            kinds += self._main[at : at + window : self.page_size]
            self._read_bytes += window
            self.give_back()
        kinds.extend(bytes(self.page_count + 1 - len(kinds)))
        for number in self._current:
            kinds[number] = self.frame_page(self._current[number])[0]
        first = self.page(1)
        if self.page_count:
            kinds[1] = first[HEADER_BYTES] if len(first) > HEADER_BYTES else 0
        return kinds

    def give_back(self) -> None:
        """Let the kernel take back mapped pages when many were read. Call it now and then in a long loop."""
        if self._read_bytes >= _GIVE_BACK_BYTES:
            self._read_bytes = 0
            for data in (self._main, self._log):
                if isinstance(data, mmap.mmap) and hasattr(data, "madvise"):
                    data.madvise(mmap.MADV_DONTNEED)

    def close(self) -> None:
        """Unmap the files."""
        for data in (self._main, self._log):
            if isinstance(data, mmap.mmap):
                data.close()
        self._main = self._log = b""

    def __enter__(self) -> Image:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _mapped(path: Path | None) -> mmap.mmap | bytes:
    if path is None:
        return b""
    try:
        with path.open("rb") as file:
            # A mapping of nothing is refused by the system.
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if path.stat().st_size else b""
    except FileNotFoundError:
        return b""


def _blank(page_size: int) -> Header:
    return replace(_NOTHING_KNOWN, page_size=page_size)


def _frames_by_page(wal: Wal, most: int) -> dict[int, array[int]]:
    found: dict[int, array[int]] = {}
    for frame, number in enumerate(wal.pages):
        if 0 < number <= most:
            found.setdefault(number, array("I")).append(frame)
    return found


def _current(wal: Wal, newest: list[Commit], most: int) -> dict[int, int]:
    """Page -> frame of its newest version, for the commits that continue the main file."""
    if not newest:
        return {}
    size = min(newest[-1].pages, most)
    return {
        number: frame
        for frame, number in enumerate(wal.pages)
        if wal.commit_of[frame] > 0 and 0 < number <= size
    }


_NOTHING_KNOWN = Header(
    page_size=4096, reserved=0, encoding="utf-8", pages=0, freelist=0, free_pages=0, auto_vacuum=False, whole=False
)
