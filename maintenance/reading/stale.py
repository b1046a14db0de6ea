"""Processes that still work on deleted files of a store, for verbs whose result those files would belong to.

Invariant: found by one look at the holders, beside the work; nothing is opened and nothing stops. What such a process
saves reaches no reader of the path, so a result that was checked against the file can still miss it.

Not for: refusing to write beside them (see `maintenance.gate`). Looking in every reading verb was rejected: it would
cost a listing more than its reading.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lockowners import Holder, holders
from maintenance.output.processes import process_document
from maintenance.output.text import plural


def stale_holders(db: Path) -> tuple[Holder, ...]:
    """Who works on files of this store that were deleted or replaced."""
    return tuple(holder for holder in holders(db).holders if holder.stale)


def stale_warning(stale: tuple[Holder, ...], what: str) -> str:
    """The sentence for people: what the result, called `what`, may miss."""
    names = ", ".join(f"PID {holder.process.pid} ({holder.process.command})" for holder in stale)
    works = plural(len(stale), "process works", "processes work")
    return (
        f"{works} on deleted files of this store, and what was saved there is not in {what}: {names}. "
        "Do not delete anything; `hermes-state doctor` says what to do."
    )


def stale_documents(stale: tuple[Holder, ...]) -> list[dict[str, Any]]:
    """The fields of `--json`."""
    return [
        {
            "process": process_document(holder.process),
            "deleted": sorted({file.kind for file in holder.files if file.deleted}),
        }
        for holder in stale
    ]
