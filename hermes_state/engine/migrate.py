"""Bringing a store's schema up to this release, one recorded step at a time.

Invariant: a step runs in one BEGIN IMMEDIATE together with its ledger row, after the ledger was read again inside it,
so two processes that open at once apply it once, and a killed one leaves it pending. A step that was applied with other
content than we know, or that we do not know at all, stops the open: the file belongs to another release.

Not for: steps that rewrite; opening applies only small additive `pre` steps, commands apply the rest. A version number
in `user_version` was rejected: it cannot say which steps were applied nor with what content.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_state.clock import SYSTEM, Clock
from hermes_state.engine.schema import Migration, known_migrations
from hermes_state.errors import MigrationFailed, SchemaTooNew, SchemaTooOld, StatementFailed
from hermes_state.shell_words import shell_word

if TYPE_CHECKING:
    from hermes_state.engine import Reader
    from hermes_state.engine.store import Store
    from hermes_state.engine.transaction import Transaction

Applied = dict[int, tuple[str, str]]  # number -> (name, sha256)


def applied(reader: Reader) -> Applied:
    """The ledger of a store."""
    return {
        number: (name, sha256) for number, name, sha256 in reader.rows("SELECT number, name, sha256 FROM migrations")
    }


def pending(path: Path, ledger: Applied, known: Sequence[Migration] | None = None) -> tuple[Migration, ...]:
    """The steps that a store still lacks. Raises `SchemaTooNew` and `MigrationFailed` when the ledger is not ours."""
    steps = known_migrations() if known is None else known
    newest = steps[-1].number
    for number, (name, sha256) in sorted(ledger.items()):
        ours = next((step for step in steps if step.number == number), None)
        if ours is None:
            raise SchemaTooNew(
                f"{path} has schema step {number} ({name}); this release knows steps up to {newest}.",
                hint="Install the release that wrote it, or a newer one; nothing was changed.",
                path=path, found=number, known=newest,
            )
        if ours.sha256 != sha256:
            raise MigrationFailed(
                f"Schema step {number} ({name}) of {path} was applied with other content than this release has.",
                hint="The file was written by a withdrawn or changed release: use that one, and export from it.",
                path=path, number=number, name=name,
            )
    return tuple(step for step in steps if step.number not in ledger)


def refuse_too_old(path: Path, steps: Sequence[Migration]) -> None:
    """Raise `SchemaTooOld` when steps are missing that an open may not apply."""
    heavy = [step for step in steps if step.phase == "post"]
    if heavy:
        raise SchemaTooOld(
            f"{path} lacks schema step {heavy[0].number} ({heavy[0].name}), which rewrites and is not applied at open.",
            hint=f"Run `hermes-state sessions optimize --db {shell_word(path)}`.",
            path=path, found=heavy[0].number - 1, needed=heavy[0].number,
        )


def migrate(
    store: Store, *, phases: Sequence[str] = ("pre",), clock: Clock = SYSTEM, known: Sequence[Migration] | None = None
) -> tuple[Migration, ...]:
    """Apply the missing steps of these phases, in order; returns the ones that this call applied."""
    done = []
    for step in pending(store.path, applied(store), known):
        if step.phase not in phases:
            continue
        with store.transaction(durability="power") as tx:
            if step.number in applied(tx):
                continue  # another process was faster
            _apply(tx, step, clock)
        done.append(step)
    return tuple(done)


def _apply(tx: Transaction, step: Migration, clock: Clock) -> None:
    from hermes_state import __version__

    try:
        tx.execute(step.sql)
        record(tx, step, clock.now(), __version__)
    except StatementFailed as error:
        raise MigrationFailed(
            f"Schema step {step.number} ({step.name}) did not apply to {tx.path}: {error.message}",
            hint="Nothing was changed. Run `hermes-state doctor` on the store.",
            path=tx.path, number=step.number, name=step.name,
            sqlite_code=error.sqlite_code, sqlite_extended=error.sqlite_extended,
        ) from error


def record(tx: Transaction, step: Migration, at: float, version: str) -> None:
    """Write the ledger row of a step."""
    tx.execute(
        "INSERT INTO migrations (number, name, sha256, applied_at, applied_by) VALUES (?, ?, ?, ?, ?)",
        (step.number, step.name, step.sha256, at, version),
    )
