"""A header for a private copy whose own is gone, so that SQLite can read the rest.

Invariant: only the first 100 bytes of the private copy are written, only when they are no header, and only with what
the pages themselves say (size, reserved bytes, encoding, whether there are pointer maps). The source is never touched.

Not for: a first page that is gone with the schema in it; the carver reads such files. Leaving all header damage to the
carver was rejected: with a header SQLite proves every page of every tree.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

from maintenance.recovery.carving import open_image
from maintenance.recovery.format.header import HEADER_BYTES, MAGIC, plausible_tree_page

_ENCODINGS = {"utf-8": 1, "utf-16-le": 2, "utf-16-be": 3}
SQLITE_VERSION = 3_040_001  # who is said to have written it last; any that knows WAL will do


def mend_header(copy: Path, wal: Path) -> bool:
    """Write a header into the copy when it has none and its first page still is one; whether that was done."""
    if not copy.exists() or copy.stat().st_size < HEADER_BYTES:
        return False
    with open_image(copy, wal, rule="none") as image:
        if image.header_whole:
            return False
        found, first, pages = image.header, image.page(1), image.file_pages
        usable = image.usable
    if not plausible_tree_page(first, HEADER_BYTES, usable):
        return False
    size = 1 if found.page_size == 65536 else found.page_size
    raw = bytearray(HEADER_BYTES)
    raw[:16] = MAGIC
    struct.pack_into(">HBBBBBB", raw, 16, size, 2, 2, found.reserved, 64, 32, 32)
    struct.pack_into(">II", raw, 24, 1, pages)
    struct.pack_into(">I", raw, 44, 4)
    # The largest root page; any number but 0 says that there are pointer maps.
    struct.pack_into(">I", raw, 52, 1 if found.auto_vacuum else 0)
    struct.pack_into(">I", raw, 56, _ENCODINGS.get(found.encoding, 1))
    struct.pack_into(">II", raw, 92, 1, SQLITE_VERSION)
    with copy.open("r+b") as file:
        file.write(raw)
        file.flush()
        os.fsync(file.fileno())
    return True
