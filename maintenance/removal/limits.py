"""Applying --keep-last and --max-size to a prune.

Invariant: limits change only which conversations that may go do go: what is pinned, open, guarded or archived stays
as with any prune, and the newest `keep_last` stay too. For a size the oldest go first, and what they free is
estimated from the bytes of their rows, scaled so that all rows together make up the pages in use; a twentieth more is
taken, so that the run ends below the limit.

Not for: deleting. Deleting until the file is small enough, without a plan, was rejected: nobody could be shown what
goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from maintenance.dialects.base import Dialect
from maintenance.lineage import KeptUnit, Unit, Units
from maintenance.marks import Marks
from maintenance.output.text import human_bytes, plural
from maintenance.selection import Filters, Limits, Selection, prune_filters, removal_units, select
from maintenance.space.sizes import sizes

if TYPE_CHECKING:
    from hermes_state.engine import ReadStore

# Taken from the estimate, because pages empty later than their rows.
CERTAIN_SHARE = 0.95


@dataclass(frozen=True, kw_only=True)
class Goal:
    """What a size limit comes to."""

    max_bytes: int  # as asked
    used_before: int  # bytes of the pages in use
    used_after: int  # the same after the run, estimated
    reachable: bool  # False when what may go is not enough

    def line(self) -> str:
        """For the plan."""
        words = (
            f"--max-size {human_bytes(self.max_bytes)}: {human_bytes(self.used_before)} are in use, about "
            f"{human_bytes(self.used_after)} afterwards"
        )
        return f"{words}." if self.reachable else f"{words}; the rest may not go, so it stays above the limit."

    def document(self) -> dict[str, Any]:
        """For programs."""
        return {
            "max_bytes": self.max_bytes,
            "used_bytes_before": self.used_before,
            "used_bytes_after_estimate": self.used_after,
            "reachable": self.reachable,
        }


def effective_filters(filters: Filters, limits: Limits) -> Filters:
    """The filters of a prune: a limit without an age replaces the 90 days, as any other filter does."""
    return filters if limits.given and not filters.has_age else prune_filters(filters)


def within_limits(
    store: ReadStore, dialect: Dialect, marks: Marks, selection: Selection, limits: Limits, now: float
) -> tuple[Units, Goal | None]:
    """The units of `selection` that go under `limits`. Call it in the snapshot that `select` ran in."""
    filters = selection.filters
    pool = select(store, dialect, marks, _ageless(filters), now) if filters.has_age else selection
    spared = {entry.id for entry in pool.conversations[: limits.keep_last or 0]}
    by_age = removal_units(store, dialect, marks, selection, now, deletes=True)
    # Without an age the size alone says what goes.
    due = () if limits.max_bytes is not None and not filters.has_age else _unspared(by_age.removable, spared)
    kept = [*by_age.kept, *_spared(by_age.removable, spared, limits)]
    if limits.max_bytes is None:
        return Units(removable=due, kept=tuple(kept)), None
    found = by_age if pool is selection else removal_units(store, dialect, marks, pool, now, deletes=True)
    candidates = _oldest_first(_unspared(found.removable, spared), pool)
    more, goal = _for_size(store, dialect, due, candidates, limits.max_bytes)
    return Units(removable=(*due, *more), kept=tuple(kept)), goal


def _ageless(filters: Filters) -> Filters:
    return replace(filters, older_than=None, newer_than=None, before=None, after=None)


def _unspared(units: Iterable[Unit], spared: set[str]) -> tuple[Unit, ...]:
    return tuple(unit for unit in units if unit.tip not in spared)


def _spared(units: Iterable[Unit], spared: set[str], limits: Limits) -> list[KeptUnit]:
    reason = f"it is among the last {plural(limits.keep_last or 0, 'conversation')} (--keep-last)"
    return [KeptUnit(unit=unit, session_id=unit.tip, reason=reason) for unit in units if unit.tip in spared]


def _oldest_first(units: Iterable[Unit], pool: Selection) -> list[Unit]:
    """What cannot be dated goes last: nothing says that it is old."""
    activity = {key: facts.last_activity_at for key, facts in pool.facts.items()}

    def age(unit: Unit) -> tuple[bool, float]:
        at = activity.get(unit.tip)
        return (at is None, at or 0.0)

    return sorted(units, key=age)


def _for_size(
    store: ReadStore, dialect: Dialect, due: tuple[Unit, ...], oldest_first: list[Unit], max_bytes: int
) -> tuple[list[Unit], Goal]:
    stored = dialect.stored_bytes(store)
    now = sizes(store)
    used = now.used_bytes
    # The first page of each table and index stays, whatever goes.
    (trees,) = store.rows("SELECT count(*) FROM sqlite_schema WHERE rootpage > 0")[0]
    share = max(0, used - trees * now.page_size) / max(1, sum(stored.values()))
    going = {key for unit in due for key in unit.ids}
    freed = _bytes_of(going, stored) * share * CERTAIN_SHARE
    more: list[Unit] = []
    for unit in oldest_first:
        if used - freed <= max_bytes:
            break
        if unit.tip in going:
            continue
        fresh = [key for key in unit.ids if key not in going]
        going.update(fresh)
        freed += _bytes_of(fresh, stored) * share * CERTAIN_SHARE
        more.append(unit)
    after = max(0, round(used - freed))
    return more, Goal(max_bytes=max_bytes, used_before=used, used_after=after, reachable=after <= max_bytes)


def _bytes_of(keys: Iterable[str], stored: Mapping[str, int]) -> int:
    return sum(stored.get(key, 0) for key in keys)
