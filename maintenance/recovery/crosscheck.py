"""What `sqlite3 .recover` finds in the same copy, where a shell that can do it is installed: numbers beside ours.

Invariant: nothing of the result comes from it; the shell reads the private copy only (`-readonly`) and writes into the
work folder. A shell without the command, and one that fails, say nothing.

Not for: machines without it; most lack it, Debian's among them. Taking rows from it was rejected: it gives rows with
wrong content and rows that were deleted without saying so (measured).
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from hermes_state.engine.salvage import open_salvage
from hermes_state.errors import StateError
from maintenance.quoting import quoted

# Above this the second copy costs more than the numbers are worth.
MOST_BYTES = 1 << 30
SECONDS = 600


def cross_check(copy: Path, folder: Path, tables: Iterable[str]) -> dict[str, int] | None:
    """Rows by table as `.recover` gives them; None when there is no shell that does it."""
    shell = shutil.which("sqlite3")
    if shell is None or not copy.exists() or copy.stat().st_size > MOST_BYTES:
        return None
    target = folder / "cross-check.db"
    target.unlink(missing_ok=True)
    try:
        return _rows(target, tables) if _recovered(shell, copy, target) else None
    finally:
        target.unlink(missing_ok=True)


def _recovered(shell: str, copy: Path, target: Path) -> bool:
    with subprocess.Popen(
        [shell, "-batch", "-readonly", str(copy), ".recover"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as reads:
        try:
            writes = subprocess.run(
                [shell, "-batch", str(target)], stdin=reads.stdout, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, timeout=SECONDS, check=False,
            )
        except subprocess.TimeoutExpired:
            reads.kill()
            return False
    return reads.returncode == 0 and writes.returncode == 0 and target.exists() and target.stat().st_size > 0


def _rows(target: Path, tables: Iterable[str]) -> dict[str, int] | None:
    found = {}
    try:
        with open_salvage(target) as salvage:
            have = {str(name) for (name,) in salvage.rows("SELECT name FROM sqlite_schema WHERE type = 'table'")}
            for name in (*tables, "lost_and_found"):
                if name in have:
                    found[name] = int(salvage.rows(f"SELECT count(*) FROM {quoted(name)}")[0][0])
    except StateError as error:
        if error.retryable:
            raise
        return None
    return found or None
