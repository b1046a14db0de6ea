"""Everything beside a store, looked into and judged.

Invariant: nothing is changed. The store is only read, and need not be there or readable: then nothing is safe, and what
copies hold counts as lacking. Without `deep` the cost is bounded: large copies are counted, not compared.

Not for: dropping (`prune`). Remembering an inventory in a file was rejected: it is wrong after the next write.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from hermes_state.clock import SYSTEM, Clock
from hermes_state.engine import open_read
from hermes_state.errors import StateError
from maintenance.leftovers.contents import FOREIGN, NATIVE, Live, look_into
from maintenance.leftovers.files import File, database_in, files_of, twins
from maintenance.leftovers.judging import COPIES, Case, judge
from maintenance.leftovers.names import listed
from maintenance.leftovers.records import Budget, Found, Holds, Leftover


def inventory(
    store: Path | str, *, deep: bool = False, clock: Clock = SYSTEM, budget: Budget | None = None
) -> tuple[Leftover, ...]:
    """Every side file of the store at `store`, by path, with what it could restore and whether it may go.

    `deep` compares all copies row by row, whatever it costs: it reads them and the store once each. Raises OSError when
    the folder cannot be read; what is wrong with a copy or with the store is said of each leftover.
    """
    path = Path(os.path.realpath(store))
    limits = budget or Budget(deep=deep)
    every = [(found, files_of(found, path)) for found in listed(path)]
    same = twins([one for one in every if one[0].kind in COPIES], limits)
    with _live(path, clock, wanted=any(found.kind in (*COPIES, "capture") for found, _files in every)) as live:
        cases = [_case(found, files, every, same, live, limits, clock) for found, files in every]
        return tuple(_judged(case) for case in cases)


@contextmanager
def _live(path: Path, clock: Clock, *, wanted: bool) -> Iterator[Live]:
    """The store to compare with. One that cannot be read is said so and not compared with."""
    if not path.exists():
        yield Live(path=path, reader=None, problem=f"there is no store at {path}")
        return
    if not wanted:
        yield Live(path=path, reader=None, problem="nothing was to compare")
        return
    try:
        reader = open_read(path, search_modules=False, clock=clock)
    except StateError as error:
        yield Live(path=path, reader=None, problem=f"the store cannot be read: {error.message}")
        return
    with reader:
        live = Live(path=path, reader=reader)
        try:
            live.identity, live.counts, live.deleted  # noqa: B018  (read now, so that a damaged store is known)
        except StateError as error:
            live = Live(path=path, reader=None, problem=f"the store cannot be read: {error.message}")
        yield live


def _case(
    found: Found, files: Sequence[File], every: Sequence[tuple[Found, Sequence[File]]], same: dict[Path, Path],
    live: Live, budget: Budget, clock: Clock,
) -> Case:
    newer: dict[str, list[File]] = {}
    newest = True
    for other, its_files in every:
        if other.kind == found.kind and _age_key(other, its_files) > _age_key(found, files):
            newest = False
            for file in its_files:
                newer.setdefault(file.name, []).append(file)
    database = database_in(found, files, live.path)
    openable = all(file.plain for file in files)
    return Case(
        found=found, files=files, database=database, same_as=same.get(found.path), newest=newest, newer=newer,
        holds=_holds(found, files, database, live, budget, clock) if openable else None, live=live, budget=budget,
        now=clock.now(),
    )


def _holds(
    found: Found, files: Sequence[File], database: Path | None, live: Live, budget: Budget, clock: Clock
) -> Holds | None:
    if found.kind == "capture":
        return _capture_holds(found, files, database, live, budget, clock)
    if found.kind not in COPIES or database is None:
        return None
    return look_into(database, live, budget)


def _capture_holds(
    found: Found, files: Sequence[File], database: Path | None, live: Live, budget: Budget, clock: Clock
) -> Holds:
    """A capture is verified and compared by what merging it would bring in."""
    from maintenance.recovery.captures.merge import merge_wal

    size = sum(file.bytes for file in files)
    counted = look_into(database, live, replace(budget, deep=False)) if database is not None else Holds()
    if live.reader is None:
        return counted
    counted = replace(counted, problem="", lacking=None, compared="not")
    if not budget.deep and (size > budget.largest or not budget.allows(3 * size)):
        return replace(counted, problem="comparing it takes long; --deep does it")
    try:
        report = merge_wal(found.path, live.path, dry_run=True, clock=clock)
    except StateError as error:
        return replace(counted, problem=error.message)
    (one,) = report.captures
    return replace(
        counted, dialect=counted.dialect or (FOREIGN if live.identity is None else NATIVE), compared="rows",
        lacking=dict(one.rows) | one.left, differing=one.facts, problem="; ".join(one.refused),
    )


def _judged(case: Case) -> Leftover:
    safe, why = judge(case)
    return Leftover(
        kind=case.found.kind, path=case.found.path, parts=case.found.parts,
        bytes=sum(file.bytes for file in case.files), modified_at=_modified(case.found, case.files),
        holds=case.holds, same_as=case.same_as, safe=safe, why=why,
    )


def _age_key(found: Found, files: Sequence[File]) -> tuple[float, str]:
    return _modified(found, files), found.path.name


def _modified(found: Found, files: Sequence[File]) -> float:
    if files:
        return max(file.modified_at for file in files)
    try:
        return found.path.lstat().st_mtime
    except FileNotFoundError:
        return 0.0
