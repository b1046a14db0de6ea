"""The refusals of the gate, as errors.

Invariant: the first line of a message says what was refused and for which file; the lines after it name the holders.
Nothing decides anything by this text: the holders are the fact `holders`. Not for: deciding whether to refuse.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_state.errors import GenerationLost, StoreHeld
from maintenance.gate.advice import holder_lines
from maintenance.gate.rows import GateRow

if TYPE_CHECKING:
    from lockowners import Scan, Verdict

ROLLBACK_NOTE = (
    "The store is in rollback mode: a program that has it open and is idle holds no lock there, so only the scan of "
    "open files can see it."
)


def held(
    path: Path, row: GateRow, scan: Scan, *, profile: str | None, notes: Iterable[str] = (), native: bool = False
) -> StoreHeld:
    """Other processes have the store open, so nothing was started."""
    count = len(scan.holders)
    who = "1 other process has it open" if count == 1 else f"{count} other processes have it open"
    first = f"`{row.verb}` needs {path} for itself, and {who}. Nothing was changed."
    return StoreHeld(
        "\n".join((first, *holder_lines(scan, profile=profile), *notes)),
        hint=sentences("Stop what is listed, then run it again.", row.way_beside_holders(native=native)),
        path=path,
        holders=scan.holders,
        scan=scan,
    )


def not_proven(
    path: Path,
    row: GateRow,
    scan: Scan,
    verdict: Verdict,
    *,
    profile: str | None,
    notes: Iterable[str] = (),
    native: bool = False,
) -> StoreHeld:
    """The exclusive lock was obtained, but the scan under it does not allow a rewrite."""
    if scan.holders:
        return held(path, row, scan, profile=profile, notes=notes, native=native)
    first = f"`{row.verb}` cannot prove that nobody else has {path} open. Nothing was changed."
    return StoreHeld(
        "\n".join((first, *verdict.reasons, *holder_lines(scan, profile=profile), *notes)),
        hint=sentences("Run it where every process can be seen.", row.way_beside_holders(native=native)),
        path=path,
        holders=scan.holders,
        scan=scan,
    )


def split(path: Path, row: GateRow, scan: Scan, *, profile: str | None) -> GenerationLost:
    """A process still uses a deleted WAL, WAL index or main file of this path: any write would make it worse."""
    stale = tuple(holder for holder in scan.holders if holder.stale)
    kinds = tuple(sorted({file.kind for holder in stale for file in holder.files if file.deleted}))
    who = "1 process still uses" if len(stale) == 1 else f"{len(stale)} processes still use"
    first = (
        f"{who} files of {path} that were deleted or replaced ({', '.join(kinds)}), and `{row.verb}` would write "
        "beside that second version of the store. Nothing was changed."
    )
    return GenerationLost(
        "\n".join((first, *holder_lines(scan, profile=profile))),
        hint="Run `hermes-state doctor` first: it says what they hold. Stop them only after that.",
        path=path,
        lost=kinds,
        capture=None,
        committed=False,
        user_sentence="The session store is in use through files that were deleted; nothing was changed.",
        operator_detail=first,
        holders=stale,
        scan=scan,
    )


def sentences(*parts: str) -> str:
    """The parts that say something, on one line."""
    return " ".join(part for part in parts if part)
