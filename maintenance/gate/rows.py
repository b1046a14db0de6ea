"""Which kind of access each verb may have.

Invariant: a verb without a row, or one that asks for more than its row allows, gets no store. `maintenance.verbs` says
the most a verb may ask for; the sets here say what else some of them offer beside holders.

                     hermes-agent's file                   native store
    prune, delete    alone; --online beside others         beside others; --offline alone
    optimize         alone; --online beside others         beside others; --offline alone, which may rewrite the file
    flags, titles    beside others                         beside others
    storage layout   alone                                 refused: a native store has no such index
    new identity     refused: it has none                  alone

A native store shrinks by incremental vacuum and keeps its search index in a file of its own, so nothing that prune or
optimize must do to it needs the exclusive lock. Only a VACUUM does, which `optimize --offline` runs when the rows lie
scattered or the file was made without incremental vacuum.

Not for: options of a verb. Deriving the rights from the options was rejected: a new option would then grant itself a
write lock.
"""

from __future__ import annotations

from dataclasses import dataclass

from hermes_state.errors import Refused
from maintenance.verbs import VERBS, Access

# Verbs that need the exclusive lock but can also do bounded work beside holders with `--online`.
ALSO_ONLINE = frozenset({"sessions prune", "sessions delete", "sessions optimize", "sessions scrub"})

# Verbs that work beside holders on a native store unless `--offline` asks for the exclusive lock.
NATIVE_ONLINE = frozenset({"sessions prune", "sessions delete", "sessions optimize"})

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
    # Beside others is what it does on a native store unless asked otherwise.
    native_online: bool = False

    def way_beside_holders(self, *, native: bool = False) -> str:
        """The sentence about what this verb can do while others hold the store."""
        if self.verb == "sessions repair":
            return (
                "Beside them `hermes-state sessions repair --check-only` says what is damaged, and `hermes-state "
                "sessions export` reads every conversation; nothing that is stored is lost by waiting."
            )
        if native:
            return (
                f"Or leave --offline away: `hermes-state {self.verb}` works in small steps beside them."
                if self.native_online
                else ""
            )
        said = []
        if self.exclusive and self.online:
            said.append(f"Or run `hermes-state {self.verb} --online`, which works in small steps beside them.")
        if self.forced:
            said.append(f"`hermes-state {self.verb} --force` would only run an in-place VACUUM, and make them wait.")
        return " ".join(said)


# The one option that writes of a verb that only reads.
NEW_IDENTITY = GateRow(verb="doctor --new-identity", online=False, exclusive=True, forced=False)


def row_of(verb: str) -> GateRow:
    """The row of a verb; a verb that is not in the table is refused."""
    if verb == NEW_IDENTITY.verb:
        return NEW_IDENTITY
    entry = VERBS.get(verb)
    if entry is None:
        raise Refused(f"`{verb}` has no row in the table of verbs, so it gets no store.", verb=verb)
    access = entry.access
    return GateRow(
        verb=verb,
        online=access is Access.ONLINE or verb in ALSO_ONLINE,
        exclusive=access is Access.EXCLUSIVE,
        forced=verb in ALSO_FORCED,
        native_online=verb in NATIVE_ONLINE,
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
