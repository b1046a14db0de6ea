"""Which tree every page belongs to.

Invariant: a page belongs to at most one tree; what is reached from a root counts more than what a lost page says, and
a page is called free only when the list of free pages says so and no tree has it. Five bytes for each page are kept.

Not for: which table a lost tree is (`lost`). Asking the pointer map alone was rejected: most stores have none, and it
is as easily damaged as what it describes; here it names the tree of a page that nothing else names.
"""

from __future__ import annotations

import re
import struct
from array import array
from collections.abc import Iterable

from maintenance.recovery.format.btree import TABLE_INTERIOR, TREE_PAGES, children
from maintenance.recovery.format.header import HEADER_BYTES
from maintenance.recovery.format.image import Image

UNKNOWN, LINKED, FREE, TRUNK, MAP = 0, 1, 2, 3, 4
# Deeper than any b-tree that fits in a file.
_MOST_LEVELS = 40


class PageMap:
    """Tree and state of each page of an image."""

    def __init__(self, image: Image, roots: Iterable[int]) -> None:
        """Walks the trees of `roots`, the list of free pages, and the interior pages that are left."""
        self._image = image
        self.kinds = image.page_types()
        count = image.page_count
        # Root of a linked page; of another page the interior page that points to it, 0 for none.
        self._above = array("I", bytes(4 * (count + 1)))
        self.states = bytearray(count + 1)
        # root -> pages that its tree names and that are of a kind which it cannot have, and are in no other tree
        self.strangers: dict[int, int] = {}
        self._roots = {root for root in roots if 0 < root <= count}
        self._mark_maps()
        for root in sorted(self._roots):
            self._walk(root)
        self._mark_free()
        # Free pages that the list names, its trunks included.
        self.listed_free = self.states.count(FREE) + self.states.count(TRUNK)
        self._join_lost()

    def root_of(self, number: int) -> int:
        """The root of a linked page; of another one the topmost page above it that is known, or itself."""
        if number >= len(self.states):
            return number
        if self.states[number] == LINKED:
            return self._above[number]
        top = number
        for _ in range(_MOST_LEVELS):
            above = self._above[top]
            if not above or self.states[top] == LINKED:
                break
            top = above
        return self._above[top] if self.states[top] == LINKED else top

    def is_map(self, number: int) -> bool:
        """Whether the page is a page of the pointer map, or the one that is never used."""
        return number < len(self.states) and self.states[number] == MAP

    def _mark_maps(self) -> None:
        image = self._image
        if image.lock_page <= image.page_count:
            self.states[image.lock_page] = MAP
        if image.header.auto_vacuum:
            for number in range(2, image.page_count + 1, image.usable // 5 + 1):
                self.states[number + (number == image.lock_page)] = MAP

    def _walk(self, root: int) -> None:
        """Mark the tree below `root`; pages that are marked already keep their tree."""
        states, kinds, above = self.states, self.kinds, self._above
        usable, count = self._image.usable, self._image.page_count
        if kinds[root] not in TREE_PAGES or states[root]:
            return
        states[root], above[root] = LINKED, root
        # Interior kinds are even less than leaf kinds by 8: a tree has one family of them.
        family = (kinds[root], kinds[root] + 8 if kinds[root] < 8 else kinds[root])
        waiting = [root]
        while waiting:
            number = waiting.pop()
            if kinds[number] != family[0] or kinds[number] > TABLE_INTERIOR:
                continue
            page = self._image.page(number)
            if len(page) < usable:
                continue
            for child in children(page, HEADER_BYTES if number == 1 else 0, usable, count):
                if states[child] != UNKNOWN or child in self._roots:
                    continue
                if kinds[child] in family or kinds[child] not in TREE_PAGES:
                    states[child], above[child] = LINKED, root
                    waiting.append(child)
                else:
                    self.strangers[root] = self.strangers.get(root, 0) + 1
            self._image.give_back()

    def _mark_free(self) -> None:
        """The list of free pages as the header begins it; without a header, the pages that look like its trunks."""
        image = self._image
        if image.header.whole:
            self._mark_trunks(image.header.freelist)
        elif image.page_count > 2:
            for match in re.finditer(b"\0", self.kinds):
                number = match.start()
                if number > 1 and self.states[number] == UNKNOWN and self._leaves_of_trunk(number, strict=True):
                    self._mark_trunk(number)
        if any(commit.number > 0 for commit in image.wal.commits):
            # A commit of the WAL may have made the database shorter: what lies behind its end is given up.
            for number in range(image.size_in_pages + 1, image.page_count + 1):
                if self.states[number] == UNKNOWN:
                    self.states[number] = FREE

    def _mark_trunks(self, number: int) -> None:
        while 2 <= number <= self._image.page_count and self.states[number] in (UNKNOWN, FREE):
            self._mark_trunk(number)
            number = int.from_bytes(self._image.page(number)[:4], "big")

    def _mark_trunk(self, number: int) -> None:
        leaves = self._leaves_of_trunk(number, strict=False)
        self.states[number] = TRUNK
        for leaf in leaves:
            if self.states[leaf] == UNKNOWN:
                self.states[leaf] = FREE

    def _leaves_of_trunk(self, number: int, *, strict: bool) -> list[int]:
        """Free pages that a trunk page lists. `strict`: none when anything in it is not as in a trunk page."""
        page, count = self._image.page(number), self._image.page_count
        listed = int.from_bytes(page[4:8], "big")
        if listed > self._image.usable // 4 - 2 or len(page) < self._image.usable:
            return []
        found = struct.unpack_from(f">{listed}I", page, 8)
        good = [leaf for leaf in found if 2 <= leaf <= count]
        if strict:
            following = int.from_bytes(page[:4], "big")
            sound = len(good) == listed == len(set(good)) and following <= count and number not in good
            return good if sound and (following or listed) else []
        return good

    def _join_lost(self) -> None:
        """Let interior pages that no root reaches name what they point to; then ask the pointer map."""
        states, kinds, above = self.states, self.kinds, self._above
        usable, count = self._image.usable, self._image.page_count
        for match in re.finditer(b"[\x02\x05]", kinds):
            number = match.start()
            if states[number] != UNKNOWN:
                continue
            page, leaf = self._image.page(number), kinds[number] + 8
            for child in children(page, HEADER_BYTES if number == 1 else 0, usable, count):
                if states[child] == UNKNOWN and not above[child] and kinds[child] in (kinds[number], leaf):
                    above[child] = number
            self._image.give_back()
        self._cut_cycles()
        if self._image.header.auto_vacuum:
            for match in re.finditer(b"[\x02\x05\x0a\x0d]", kinds):
                number = match.start()
                if states[number] == UNKNOWN and not above[number]:
                    above[number] = self._root_by_map(number)

    def _cut_cycles(self) -> None:
        """A page that is above itself is above nothing."""
        for number in range(1, len(self._above)):
            if not self._above[number] or self.states[number] == LINKED:
                continue
            top, levels = number, 0
            while self._above[top] and self.states[top] != LINKED and levels < _MOST_LEVELS:
                top, levels = self._above[top], levels + 1
            if levels == _MOST_LEVELS:
                self._above[number] = 0

    def _root_by_map(self, number: int) -> int:
        """The known root above a page by the pointer map; 0 when the map names none."""
        at, seen = number, 0
        while seen < _MOST_LEVELS:
            kind, above = self._map_entry(at)
            if kind == 1:
                return at if at in self._roots and at != number else 0
            if kind != 5 or not 2 <= above <= self._image.page_count or above == number:
                return 0
            if self.states[above] == LINKED:
                return self._above[above]
            at, seen = above, seen + 1
        return 0

    def _map_entry(self, number: int) -> tuple[int, int]:
        image = self._image
        step = image.usable // 5 + 1
        page = (number - 2) // step * step + 2
        page += page == image.lock_page
        at = (number - page - 1) * 5
        raw = image.page(page)[at : at + 5] if at >= 0 else b""
        return (raw[0], int.from_bytes(raw[1:5], "big")) if len(raw) == 5 else (0, 0)

