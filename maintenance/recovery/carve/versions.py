"""Versions of a page that are not its newest: what lies under the frames of a WAL, and frames that no image shows.

Invariant: versions come newest first, and a cell that a newer version has byte for byte comes once. Each is read with
the overflow pages of its own time. Not for: pages without frames; those have one version.

Comparing whole rows was rejected: to know that a cell is unchanged it need not be decoded. A cell with overflow pages
always comes: its own bytes do not say what has become of the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from maintenance.recovery.format.btree import TREE_PAGES, Layout, cell_pointers
from maintenance.recovery.format.header import HEADER_BYTES
from maintenance.recovery.format.image import Image
from maintenance.recovery.format.record import varint
from maintenance.recovery.format.wal import LINK


@dataclass(kw_only=True)
class Version:
    """One version of a page."""

    number: int
    page: bytes
    # see CarvedRow.commit
    commit: int | None
    # where the page's bytes end
    limit: int
    image: Image
    # the frame it is from; None: the main file
    frame: int | None
    # the checksum of the frame does not agree with it
    unproven: bool = False
    # hashes of the cells of newer versions, and of this one as it is read; only of those that are all on the page
    seen: set[int] = field(default_factory=set)
    plain: set[int] = field(default_factory=set)

    def read(self, number: int) -> tuple[bytes, bool]:
        """An overflow page as it was when this version was written."""
        if self.frame is not None:
            page, sure = self.image.page_at(number, self.frame)
            return page, sure and not self.unproven
        page = self.image.main_page(number)
        return page, not any(self.image.frame_page(later) == page for later in self.image.frames_of(number))

    def is_new(self, cell: bytes) -> bool:
        """Whether no newer version has this cell; it counts as seen from now on."""
        known = hash(cell)
        if known in self.seen:
            return False
        if known in self.plain:
            self.seen.add(known)
        return True


def versions_of(image: Image, number: int) -> Iterator[Version]:
    """Versions of a page without its newest one, newest first: frames in no commit, then older commits and the main
    file by their place in the order of commits."""
    frames = image.frames_of(number)
    current = image.frame_of(number)
    # Hashes, not bytes: a page that every commit writes has as many versions as the log has commits.
    seen: set[int] = set()
    contents: set[int] = set()
    newest = image.page(number)
    if newest and (current is not None or number <= image.file_pages):
        contents.add(hash(newest))
        seen.update(_plain_cells(image, newest, number))
    commits = image.wal.commit_of
    in_order = sorted(frames, key=lambda frame: (commits[frame] == 0, commits[frame], frame), reverse=True)
    waiting: list[int | None] = [frame for frame in in_order if frame != current]
    if current is not None and number <= image.file_pages:
        # The main file comes behind the frames of its own generation, and before those of older ones.
        place = next((n for n, frame in enumerate(waiting) if frame is not None and commits[frame] < 0), len(waiting))
        waiting.insert(place, None)
    for frame in waiting:
        page = image.main_page(number) if frame is None else image.frame_page(frame)
        if hash(page) in contents:
            continue
        contents.add(hash(page))
        unproven = frame is not None and image.wal.proofs[frame] < LINK
        commit: int | None = 0 if frame is None else commits[frame] or None
        limit = image.page_size if frame is not None else _real_bytes(image, number)
        yield Version(
            number=number, page=page, commit=commit, limit=limit, image=image, frame=frame, unproven=unproven,
            seen=seen, plain=set(_plain_cells(image, page, number)),
        )  # fmt: skip


def _real_bytes(image: Image, number: int) -> int:
    return min(image.page_size, image.main_bytes - (number - 1) * image.page_size)


def _plain_cells(image: Image, page: bytes, number: int) -> Iterator[int]:
    """Hashes of the cells of a page that have no overflow."""
    base = HEADER_BYTES if number == 1 else 0
    if len(page) < image.usable or page[base] not in TREE_PAGES:
        return
    kind = page[base]
    layout = Layout(usable=image.usable, encoding=image.encoding, pages=image.page_count)
    for start in cell_pointers(page, base, image.usable):
        try:
            payload, at = varint(page, start + (4 if kind == 2 else 0))
            if kind == 13:
                _, at = varint(page, at)
        except IndexError:
            continue
        if layout.local(payload, index=kind != 13) == payload:
            yield hash(page[start : at + payload])
