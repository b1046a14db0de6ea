"""Putting a recovered file in the place of the damaged store.

Invariant: `maintenance.replacement` does it: the damaged bytes are copied aside and verified first, nobody else may
have the store open, the content goes in through SQLite onto the same inode, and a kill leaves one of the two, whole.
Only a result that was verified is installed; a partial one only when that was agreed to.

Not for: recovering. Renaming the result over the store was rejected: a program that has it open would go on writing
into the old one.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_state.errors import InvalidInput, Refused, StateError
from hermes_state.shell_words import shell_word
from maintenance.recovery.records import Progress, Report, Source, Step

if TYPE_CHECKING:
    from maintenance.gate.doors import Scanner
    from maintenance.replacement.aside import Aside
    from maintenance.replacement.replace import Replaced
    from maintenance.replacement.where import Where

VERB = "sessions recover"


def store_of(source: Source, store: Path) -> Path:
    """The store that --install replaces: the damaged file itself, or for a folder of files the store that was named."""
    if source.kind in ("directory", "capture"):
        return store
    if source.main is None:
        raise InvalidInput(
            f"{source.name} is a WAL without its database, so there is no store to install into.",
            hint="Recover without --install, and look at the result first.", path=source.name,
        )
    return source.main


def require_free(ctx: Where, *, scanner: Scanner | None = None) -> None:
    """Raise `StoreHeld` or `GenerationLost` when a process has the store open: its result could not be installed."""
    from maintenance.gate.rows import require_exclusive
    from maintenance.replacement.alone import require_nobody

    require_nobody(ctx, require_exclusive(VERB, force=False), Path(os.path.realpath(ctx.db)), scanner)


def restore_command(recovered: Path, store: Path) -> str:
    """What a person types to put a recovered file in a store's place."""
    return f"hermes-state sessions restore {shell_word(recovered)} --db {shell_word(store)}"


def install(
    ctx: Where, report: Report, *, progress: Progress | None = None, scanner: Scanner | None = None
) -> Replaced:
    """Replace the content of `ctx.db` by the recovered file, the damaged one kept aside.

    Raises `Refused` for a partial result, and what `replace_content` raises.
    """
    from maintenance.replacement.replace import replace_content

    if report.partial:
        raise Refused(
            f"{report.output} lacks rows that are known to be lost, so it was not installed over {ctx.db}.",
            hint=f"Read {report.report_path}; --allow-partial installs it all the same.", path=ctx.db,
        )

    def say(doing: str, done: int, total: int | None) -> None:
        if progress is not None:
            progress(Step(doing=doing, done=done, total=total, unit="bytes"))

    def is_as_it_was(kept: Aside) -> bool:
        """Whether the store is byte for byte what the rows were recovered from, so that nothing was sent since."""
        found = {name: said["sha256"] for name, said in kept.files.items() if said["bytes"]}
        return bool(report.files) and found == {
            one.path.name: one.sha256 for one in report.files if one.size_bytes
        }

    try:
        return replace_content(
            ctx, VERB, report.output, progress=say, scanner=scanner, own_rows=is_as_it_was
        )
    except StateError as error:
        # The recovery is not to be done again: what it made is there.
        later = f"The recovered file is {report.output}; then `{restore_command(report.output, ctx.db)}` installs it."
        error.hint = f"{error.hint} {later}".strip()
        raise
