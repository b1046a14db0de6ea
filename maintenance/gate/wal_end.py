"""No verb writes while the WAL holds commits that SQLite cannot see.

Invariant: before a door hands out a store that can write, the end of its WAL is looked at the way `doctor` looks at it.
SQLite itself takes a damaged WAL for an empty one, and the next checkpoint or commit overwrites what is in it.

Not for: deciding what is damaged (`doctor.wal`). Reading the WAL as a file was rejected: with other holders a frame
that is being written looks like a damaged one, and closing a file of a store that is open here cancels SQLite's locks.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hermes_state.engine import open_read
from hermes_state.errors import Corrupt
from hermes_state.shell_words import shell_word

if TYPE_CHECKING:
    from lockowners import LockReport
    from maintenance.context import Context
    from maintenance.gate.rows import GateRow

# A WAL that is no longer than its header holds no frame.
_HEADER_BYTES = 32


def require_readable_wal(ctx: Context, row: GateRow, *, busy_seconds: float) -> None:
    """Raise Corrupt when committed frames may stand where SQLite does not read. Writes nothing."""
    try:
        size = os.stat(f"{os.path.realpath(ctx.db)}-wal").st_size
    except FileNotFoundError:
        return
    if size <= _HEADER_BYTES:
        return
    # Imported here: only a store whose WAL is in use pays for them.
    from lockowners import lock_owners
    from maintenance.doctor.findings import Severity, copy_command
    from maintenance.doctor.wal import end_findings

    with open_read(ctx.db, busy_seconds=busy_seconds, search_modules=False, clock=ctx.clock) as store:

        def owners() -> LockReport:
            return lock_owners(ctx.db, descriptors=store.descriptors)

        damage = [finding for finding in end_findings(store, owners) if finding.severity is Severity.DAMAGE]
    if damage:
        raise Corrupt(
            f"{damage[0].sentence} `{row.verb}` would write over that WAL, so it was refused. Nothing was changed in "
            f"{ctx.db}.",
            hint=f"Copy what is there: `{copy_command(ctx.db)}`. Then run `hermes-state doctor --db "
            f"{shell_word(ctx.db)}`.",
            path=ctx.db,
            finding=damage[0].code,
            search_index=False,
        )
