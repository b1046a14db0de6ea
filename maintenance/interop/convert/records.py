"""One kept row on its way, what became of it, and what a conversion did.

Invariant: every kept row has exactly one outcome, and one that stays has its reason. Not for: reading or writing rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from maintenance.output.text import plural

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction

THERE, STAYS = "there", "stays"
# Outcomes that are kept in the store by name; the rest of them only as a count.
MOST_NAMED = 1000
_NAMED_FOR_PEOPLE = 20


@dataclass(frozen=True, kw_only=True)
class Ready:
    """A kept row that was read and checked, and what is to be done with it."""

    table: str  # of hermes-agent
    key: str  # its own, for people
    into: str  # the table here
    there: Callable[[Reader], bool]  # whether it, or what it says, is here already
    refuse: Callable[[Reader], None]  # raises a `StateError` that says why it stays
    write: Callable[[Transaction, float], None]  # writes it, at that time
    differs: Callable[[Reader], tuple[str, ...]]  # columns of it that the row here does not give back


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of one kept row."""

    table: str
    key: str
    became: str  # the table here, "there": it was here already, or "stays"
    why: str = ""  # of one that stays

    def document(self) -> dict[str, str]:
        """The fields of `--json`."""
        said = {"table": self.table, "key": self.key, "became": self.became}
        return said | {"why": self.why} if self.why else said


@dataclass(frozen=True, kw_only=True)
class Conversion:
    """What was done, or would be."""

    # rows of each kept table that has any
    rows: Mapping[str, int]
    # of each row; after the first run those that stayed, at most `MOST_NAMED`
    outcomes: tuple[Outcome, ...]
    # by table, what its rows became and how many of them
    counts: Mapping[str, Mapping[str, int]]
    # it was done before, and nothing was done now
    already_done: bool
    # why nothing is converted here at all; "" when it is
    refused: str = ""

    @property
    def pending(self) -> bool:
        """Whether rows wait to be converted."""
        return bool(self.rows) and not self.already_done and not self.refused

    def document(self) -> dict[str, Any]:
        """The fields of `--json`: every count, and each row that stays by name."""
        return {
            "already_done": self.already_done,
            "rows": dict(self.rows),
            "became": {table: dict(found) for table, found in self.counts.items()},
            "stays": [one.document() for one in self.outcomes if one.became == STAYS],
            "refused": self.refused or None,
        }

    def lines(self, *, done: bool) -> tuple[str, ...]:
        """For people; nothing where nothing was kept, or all was done before."""
        if self.refused and self.rows:
            return (f"Kept rows of hermes-agent stay as they are: {self.refused}.",)
        if not self.rows or self.already_done:
            return ()
        said = [
            f"{'Converted' if done else 'Convert'} what adoption kept of {table}, {plural(self.rows[table], 'row')}: "
            f"{', '.join(_as(became, count) for became, count in sorted(self.counts[table].items()))}."
            for table in self.rows
        ]
        stay = [one for one in self.outcomes if one.became == STAYS]
        said += [f"Stays: {one.table} {one.key}: {one.why}" for one in stay[:_NAMED_FOR_PEOPLE]]
        if len(stay) > _NAMED_FOR_PEOPLE:
            said.append(f"{len(stay) - _NAMED_FOR_PEOPLE} more stay; --json names each.")
        said.append("The kept rows stay beside them, so that `sessions adopt --back` gives them back.")
        return tuple(said)


def counted(outcomes: tuple[Outcome, ...]) -> dict[str, dict[str, int]]:
    """Outcomes by table."""
    counts: dict[str, Counter[str]] = {}
    for one in outcomes:
        counts.setdefault(one.table, Counter())[one.became] += 1
    return {table: dict(sorted(found.items())) for table, found in counts.items()}


def _as(became: str, count: int) -> str:
    if became == STAYS:
        return f"{count} stay{'s' if count == 1 else ''}"
    return f"{count} here already" if became == THERE else f"{count} to {became}"
