"""Which kind of access each verb may have.

Invariant: a verb without a row, or one that asks for more than its row allows, gets no store. `maintenance.verbs` says
the most a verb may ask for; the two sets here say what else some of them offer beside holders.

Not for: options of a verb. Deriving the rights from the options was rejected: a new option would then grant itself a
write lock.
"""

from __future__ import annotations

from dataclasses import dataclass

from hermes_state.errors import Refused
from maintenance.verbs import VERBS, Access

# Verbs that need the exclusive lock but can also do bounded work beside holders with `--online`.
ALSO_ONLINE = frozenset({"sessions prune", "sessions delete", "sessions optimize"})

# Verbs whose `--force` may run an in-place VACUUM beside holders.
ALSO_FORCED = frozenset({"sessions optimize", "sessions optimize-storage"})


@dataclass(frozen=True, kw_only=True)
class GateRow:
    """What the gate may give to one verb."""

    # The verb as a person types it, without the program's name.
    verb: str
    # A connection that can write, in short transactions beside others.
    online: bool
    # The exclusive lock.
    exclusive: bool
    # One in-place VACUUM beside others.
    forced: bool

    @property
    def way_beside_holders(self) -> str:
        """The sentence about what this verb can do while others hold the store."""
        said = []
        if self.exclusive and self.online:
            said.append(f"Or run `hermes-state {self.verb} --online`, which works in small steps beside them.")
        if self.forced:
            said.append(f"`hermes-state {self.verb} --force` would only run an in-place VACUUM, and make them wait.")
        return " ".join(said)


def row_of(verb: str) -> GateRow:
    """The row of a verb; a verb that is not in the table is refused."""
    entry = VERBS.get(verb)
    if entry is None:
        raise Refused(f"`{verb}` has no row in the table of verbs, so it gets no store.", verb=verb)
    access = entry.access
    return GateRow(
        verb=verb,
        online=access is Access.ONLINE or verb in ALSO_ONLINE,
        exclusive=access is Access.EXCLUSIVE,
        forced=verb in ALSO_FORCED,
    )


def require_online(verb: str) -> GateRow:
    """The row, when the verb may write beside others."""
    row = row_of(verb)
    if not row.online:
        raise Refused(f"`{verb}` may not write beside other processes, so it gets no such store.", verb=verb)
    return row


def require_exclusive(verb: str, *, force: bool) -> GateRow:
    """The row, when the verb may take the exclusive lock, and may be forced if that is asked."""
    row = row_of(verb)
    if not row.exclusive:
        raise Refused(f"`{verb}` may not take the exclusive lock, so it gets no such store.", verb=verb)
    if force and not row.forced:
        raise Refused(f"`{verb}` has no --force.", verb=verb)
    return row
