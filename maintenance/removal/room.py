"""Whether the disk has room for deleting, asked before anything is deleted.

Invariant: what deleting writes before it can return a page is asked for: the log of its largest transaction. A refusal
carries the numbers. Not for: the rewrite afterwards, which is left out when it has no room (`sweep`).

Asking for the log of the whole run was rejected: the log is copied back between transactions, and those who need this
most have no room.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from maintenance.removal.pacing import ALONE_ROWS
from maintenance.space.disk import FreeBytes, Need, Room, free_bytes, require_room, rooms
from maintenance.space.sizes import directory_of

if TYPE_CHECKING:
    from maintenance.removal.choice import Choice

# Beside others a transaction deletes at most 200 rows.
ONLINE_BYTES = 8 * 1024 * 1024
# Pages that one row touches by itself: of its table, of the indexes on it, of the search indexes' row lists.
PAGES_A_ROW = 2
# Deleted text is written again, as entries of the search indexes that say what is gone: one of them by word, one by
# three characters, whose entries are several times the text.
BYTES_A_TEXT_BYTE = 4
# For the ledger, the marks and the WAL index, and for whoever else writes. Small: a delete is what makes room.
DELETE_MARGIN_BYTES = 1024 * 1024


def room_to_delete(choice: Choice, *, beside: bool, free: FreeBytes = free_bytes) -> tuple[Room, ...]:
    """The file systems that deleting `choice` writes to, with what it needs there."""
    needed = _largest_transaction(choice)
    if beside:
        needed = min(needed, ONLINE_BYTES)
    wanted = [Need(directory=directory_of(choice.path), bytes=needed, what="the store's log")]
    return rooms(wanted, free=free, margin_bytes=DELETE_MARGIN_BYTES)


def require_room_to_delete(choice: Choice, *, beside: bool, free: FreeBytes = free_bytes) -> None:
    """Raise InsufficientSpace when the first transactions might not fit."""
    fits_online = all(room.enough for room in room_to_delete(choice, beside=True, free=free))
    instead = "Or add --online, whose steps are smaller." if fits_online and not beside else ""
    require_room(
        room_to_delete(choice, beside=beside, free=free), what=f"Deleting from {choice.path}", instead=instead
    )


def _largest_transaction(choice: Choice) -> int:
    """Bytes of the pages that one transaction may touch: at most every page in use, and what it adds."""
    rows = choice.message_count + len(choice.ids)
    if not rows:
        return 0
    # Text is spread unevenly, so a transaction may have twice its share of it.
    text = min(choice.text_bytes, 2 * choice.text_bytes * ALONE_ROWS // rows)
    touched = BYTES_A_TEXT_BYTE * text + min(rows, ALONE_ROWS) * PAGES_A_ROW * choice.sizes.page_size
    # An eighth more: the file itself grows a little by what the search indexes say is gone (measured: 4 to 5 %).
    return min(touched, choice.sizes.used_bytes * 9 // 8)
