"""Which of several captures is older.

Invariant: an order is proven or refused. Two WALs of one file tell it by themselves: each time SQLite begins a WAL anew
it counts its first salt and its checkpoint number up by one. Otherwise the manifests' times decide; when both speak and
contradict each other, or a caller gives another order than the proven one, nothing is merged.

Not for: the names of folders. A clock that went back would order them wrongly, and people rename folders.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hermes_state.errors import CaptureRefused
from maintenance.recovery.captures.manifest import Capture

# A WAL that was begun anew so often is taken for another file's: salts of another file are random.
_MOST_RESTARTS = 1 << 20


def in_order(captures: Sequence[Capture]) -> list[Capture]:
    """The captures, oldest first. Raises `CaptureRefused` when their order cannot be told or the evidence disagrees."""
    if len(captures) < 2:
        return list(captures)
    without = [capture for capture in captures if capture.captured_at is None]
    if without:
        raise CaptureRefused(
            f"The order of {len(captures)} captures cannot be told: {without[0].folder} does not say when it was made.",
            hint="Merge one, look at the result, then the next.", path=without[0].folder, kind="order",
        )
    ordered = sorted(captures, key=lambda capture: (capture.captured_at or 0.0, capture.checkpoints or 0))
    for older, newer in pairwise(ordered):
        if _begun_later(older, newer):
            raise CaptureRefused(
                f"The order of {older.folder} and {newer.folder} is in doubt: by their times the first is older, by "
                "their WALs the second.",
                hint="Merge one, look at the result, then the next.", path=older.folder, kind="order",
            )
    return ordered


def require_order(captures: Sequence[Capture]) -> None:
    """Refuse captures that a caller gives in another order than the proven one. Raises `CaptureRefused`."""
    ordered = in_order(captures)
    for given, proven in zip(captures, ordered, strict=True):
        if given.folder != proven.folder:
            raise CaptureRefused(
                f"The captures are given in the wrong order: {proven.folder} is older than {given.folder}.",
                hint="Give the oldest first, or none: then they are put in order.", path=proven.folder, kind="order",
            )


def _begun_later(one: Capture, other: Capture) -> bool:
    """Whether both are of one WAL file and the first was begun anew after the second."""
    if one.salts is None or other.salts is None or one.checkpoints is None or other.checkpoints is None:
        return False
    restarts = (one.salts[0] - other.salts[0]) & 0xFFFFFFFF
    return 0 < restarts < _MOST_RESTARTS and restarts == one.checkpoints - other.checkpoints
