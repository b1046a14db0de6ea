"""A repair from the first look to the last proof.

Invariant: the store is touched once, at the end, by one replacement of its content under the exclusive lock, with a
file that was proved to have the same rows; until then everything happens on a private copy that a child process made.
A kill at any point leaves the store as it was or repaired. Holders, lack of room and a store that changed meanwhile end
a run without counting as an attempt.

Not for: damage of rows (`sessions recover`). Repairing in place was rejected: half a repair is a second damage.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_state.clock import SYSTEM, Clock
from hermes_state.errors import NotFound, RecoveryStopped, RepairFailed, StateError
from maintenance.doctor.findings import Finding, recover_command
from maintenance.gate.native import refuse_other_program
from maintenance.repair import attempts
from maintenance.repair.diagnosis import Diagnosis, diagnose, fingerprint, require_checked, require_derived
from maintenance.repair.lock import repair_lock
from maintenance.repair.native_index import is_native_index, native_index_findings, rebuild_native_index
from maintenance.repair.promotion import Target, kept_copy, promote, refuse_holders, settle_killed
from maintenance.repair.report import Cancel, Doing, Progress, RepairReport
from maintenance.repair.steps import Mending, stopped
from maintenance.repair.work import require_room_for, working
from maintenance.store_context import context_of

if TYPE_CHECKING:
    from maintenance.recovery.records import FileFacts, Source

def repair(
    path: Path | str,
    *,
    progress: Progress | None = None,
    cancel: Cancel | None = None,
    check_only: bool = False,
    dry_run: bool = False,
    clock: Clock = SYSTEM,
    step: Callable[[str], None] = lambda _done: None,
) -> RepairReport:
    """Build again what is damaged in the store at `path` and can be built from its rows.

    `check_only` looks and says what is damaged; `dry_run` also refuses what a run would refuse at once. Neither writes.
    `progress` gets a `Doing` now and then; `cancel` is asked between steps and ends the run with `RepairStopped`;
    `step` hears the name of each step that is done.

    Raises `Corrupt` (exit 65) when rows themselves are damaged, `StoreHeld` while others have the store open,
    `LockTimeout` while another repair runs or the lock does not come, `RepairFailed` when the copy did not become sound
    or would lose rows, `Refused` before the next try at the same damage is due, `InsufficientSpace`, `NotFound`.
    """
    db = Path(os.path.realpath(path))
    if not db.exists():
        raise NotFound(f"There is no store at {path}.", hint="Name the file, or its home with --home.", path=db)
    refuse_other_program(context_of(db, clock))
    run = _Run(db, clock, progress or (lambda _doing: None), cancel or (lambda: False), step)
    if check_only or dry_run:
        return run.look(planned=dry_run and not check_only)
    with repair_lock(db):
        return run.repair()


class _Run:
    """One call of `repair`."""

    def __init__(
        self, db: Path, clock: Clock, say: Progress, stopped: Cancel, step: Callable[[str], None]
    ) -> None:
        self._db = db
        self._clock = clock
        self._target = Target(db=db, clock=clock)
        self._say = say
        self._stopped = stopped
        self._step = step
        self._began = clock.monotonic()

    def look(self, *, planned: bool) -> RepairReport:
        """Only look. A plan also meets what would stop the run."""
        if planned:
            refuse_holders(self._target)
        self._say(Doing(doing="checking"))
        found = diagnose(self._db, self._db.parent, self._clock)
        require_derived(self._db, found)
        if not found.derived:
            require_checked(self._db, found)
            return self._report("sound")
        if planned:
            require_room_for(self._db, keeps=True)
        return self._report("planned" if planned else "checked", found)

    def repair(self) -> RepairReport:
        """The whole run, under the repair lock."""
        from maintenance.recovery.copying import copy_source
        from maintenance.recovery.sources import find_source

        refuse_holders(self._target)
        require_room_for(self._db, keeps=True)
        with working(self._db) as folder:
            self._say(Doing(doing="copying"))
            source = find_source(self._db)
            try:
                facts = copy_source(source, folder, cancel=self._stopped)
            except RecoveryStopped as error:
                raise stopped(self._db) from error
            beside = native_index_findings(self._db, self._clock)
            copy = folder / "source.db"
            self._say(Doing(doing="checking"))
            found = diagnose(copy, self._db.parent, self._clock, named=self._db)
            require_derived(self._db, found)
            found = replace(found, derived=tuple(one for one in found.derived if not is_native_index(one)))
            if not found.derived:
                require_checked(self._db, found)
                return self._index_only(beside)
            report = self._attempt(found, copy, source, facts)
        if beside:
            report = replace(report, steps=(*report.steps, *rebuild_native_index(self._db, beside, self._clock)))
        return report

    def _attempt(
        self, found: Diagnosis, copy: Path, source: Source, facts: tuple[FileFacts, ...]
    ) -> RepairReport:
        """One attempt at the damage of the copy, remembered before and after."""
        print_ = fingerprint(copy, _page_size(copy), found.derived)
        memory = attempts.read_memory(self._db)
        damage = memory.of(print_)
        attempts.refuse_hopeless(self._db, damage, self._clock.now())
        before = damage
        damage = attempts.began(damage, found.objects, self._clock.now())
        attempts.write_memory(self._db, memory.with_damage(damage))

        def note(ended: attempts.Damage) -> None:
            attempts.write_memory(self._db, memory.with_damage(ended))

        try:
            mending = Mending(copy, self._db, self._say, self._stopped)
            ready = mending.run(found)
            self._prove(ready, found)
            kept, kept_before = kept_copy(self._db, damage, memory)
            damage = replace(damage, kept=kept)
            note(damage)
            self._say(Doing(doing="replacing the content of the store"))
            # A second copy of the same damage is only there for as long as the replacement takes.
            aside = copy.with_name("aside") if kept_before else kept
            promote(self._target, ready, source, facts, aside=aside, step=self._step)
        except RepairFailed as problem:
            note(attempts.ended(damage, attempts.FAILED, self._clock.now(), problem.message))
            raise
        except (StateError, OSError, KeyboardInterrupt):
            # It ended for a reason outside the damage: that is no attempt.
            attempts.write_memory(self._db, memory.with_damage(before) if before.attempts else memory)
            raise
        note(attempts.ended(damage, attempts.REPAIRED, self._clock.now()))
        return replace(
            self._report("repaired", found),
            steps=tuple(mending.steps), fingerprint=print_, attempts=len(damage.attempts), kept=kept,
            kept_before=kept_before, tables=mending.tables,
        )

    def _settle(self) -> None:
        """The store is sound: end what a killed run has left open."""
        settle_killed(self._db)
        memory = attempts.read_memory(self._db)
        last = memory.damages[-1] if memory.damages else None
        if last is not None and last.attempts and last.attempts[-1].result == attempts.RUNNING:
            repaired = attempts.ended(last, attempts.REPAIRED, self._clock.now())
            attempts.write_memory(self._db, memory.with_damage(repaired))

    def _prove(self, ready: Path, found: Diagnosis) -> None:
        """The copy is sound by every check of the doctor, its slow ones included."""
        self._say(Doing(doing="verifying"))
        left = diagnose(ready, self._db.parent, self._clock, named=self._db)
        wrong: list[Finding] = [*left.canonical, *(one for one in left.derived if not is_native_index(one))]
        if wrong:
            raise RepairFailed(
                f"The repair of {self._db} did not make it sound, and was thrown away: {wrong[0].sentence} The store "
                "is as it was.",
                hint=f"Run `{recover_command(self._db)}`: it reads the rows into a new file.",
                path=self._db, step="verifying", objects=tuple(one.object for one in wrong),
            )
        require_checked(self._db, left, found)

    def _index_only(self, beside: tuple[Finding, ...]) -> RepairReport:
        self._settle()
        if not beside:
            return self._report("sound")
        steps = rebuild_native_index(self._db, beside, self._clock)
        return replace(self._report("repaired"), findings=beside, steps=steps)

    def _report(self, outcome: str, found: Diagnosis | None = None) -> RepairReport:
        return RepairReport(
            path=self._db,
            outcome=outcome,  # type: ignore[arg-type]
            findings=found.derived if found else (),
            steps=found.steps() if found else (),
            seconds=self._clock.monotonic() - self._began,
        )


def _page_size(copy: Path) -> int:
    """By the header of the raw copy, which nobody has open."""
    with open(copy, "rb") as file:
        size = int.from_bytes(file.read(18)[16:18], "big")
    return 65536 if size == 1 else size


