"""Nobody goes on writing while another process still has a lost generation of the store open.

Invariant: an open for writing looks at every visible process once and is refused while one of them holds an unlinked
or replaced file of the store: its next checkpoint, at the latest at its close, would overwrite what we commit
(measured), and no lock shows it. Not for: readers, which lose nothing, and the append path.

The kernel's lock table alone was rejected: a process whose locks were cancelled is not in it and still writes.
"""

from __future__ import annotations

from pathlib import Path

from hermes_state.engine.generation import user_sentence
from hermes_state.errors import GenerationLost


def refuse_stale_holders(path: Path) -> None:
    """Raise `GenerationLost` naming the processes that hold a lost generation of the store at `path`."""
    from lockowners import holders

    stale = tuple(holder for holder in holders(path).holders if holder.stale)
    if not stale:
        return
    pids = ", ".join(f"PID {holder.process.pid}" for holder in stale)
    detail = f"{pids} still has replaced or unlinked files of {path} open."
    raise GenerationLost(
        f"{user_sentence()} {detail}",
        hint=f"Stop {pids}, then repeat; `hermes doctor --db {path}` shows when none is left.",
        path=path, lost=("wal",), capture=None, committed=False,
        user_sentence=user_sentence(), operator_detail=detail, holders=stale,
    )
