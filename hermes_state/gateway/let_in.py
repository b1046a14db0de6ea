"""By what each connection was let in, and whether that still holds.

Invariant: a connection is known here from before its credential was looked at for the last time until it ends, so a
revocation is seen either by that look or by a later `judge`, and by `refuse` at once, in the transaction of whatever
the connection wants. In memory; of a credential only the digest that the store has.

Not for: ending connections (see `server`). Leaving it to `judge` was rejected: until the next look a revoked instance
got turns and permissions, and nobody ended them.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from hermes_state.errors import StaleGeneration
from hermes_state.instances import credentials, registry
from hermes_state.instances.close_codes import CloseCode
from hermes_state.instances.connection_records import Connection
from hermes_state.instances.states import State

if TYPE_CHECKING:
    from collections.abc import Iterable, Set

    from hermes_state.engine import Reader
    from hermes_state.instances.generations import Generation
    from hermes_state.instances.records import Instance


@dataclass(frozen=True, kw_only=True)
class LetIn:
    """By what one connection was let in, and what its instance was called."""

    connection: Connection
    digest: bytes = field(repr=False)  # of its credential, as the store keeps it
    nickname: str | None = None  # None until it was read


class EveryoneLetIn:
    """The connections of one server. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, LetIn] = {}

    def add(self, one: LetIn) -> None:
        """Know a connection, in the place of an earlier one of its instance, or know more of it."""
        name = one.connection.instance_id
        with self._lock:
            before = self._known.get(name)
            if before is None or before.connection.generation <= one.connection.generation:
                self._known[name] = one

    def drop(self, instance_id: str, generation: Generation) -> None:
        """It ended. Nothing happens to a later connection of the instance."""
        with self._lock:
            known = self._known.get(instance_id)
            if known is not None and known.connection.generation == generation:
                del self._known[instance_id]

    def refuse(self, reader: Reader, connection: Connection) -> None:
        """Raise `InstanceRevoked`, or `StaleGeneration` when its instance was enrolled again, or is not let in yet."""
        name = connection.instance_id
        with self._lock:
            known = self._known.get(name)
        if known is None or known.connection.generation != connection.generation:
            why, hint = "is being let in", "Try again once accept has returned."
        elif not credentials.still_in(reader, name, known.digest):
            why, hint = "was enrolled again, which ended this connection", "Drop it; close its socket with 4001."
        else:
            return
        raise StaleGeneration(
            f"Instance {name!r} of {reader.path} {why}; this is of connection {connection.generation}.", hint=hint,
            path=reader.path, instance_id=name, generation=str(connection.generation), current=None,
        )

    def judge(
        self, reader: Reader, changed: Set[str] | None
    ) -> tuple[list[tuple[Connection, CloseCode]], list[Instance]]:
        """Whom what changed keeps out, with the code for it, and who has another nickname: tell `renamed` of those.

        `changed`: ids of instances; None: any of them may have.
        """
        with self._lock:
            names = self._known if changed is None else [name for name in changed if name in self._known]
            known = [self._known[name] for name in names]
        out: list[tuple[Connection, CloseCode]] = []
        renamed = []
        for one in known:
            name = one.connection.instance_id
            instance = registry.find(reader, name)
            if instance is None or instance.state in (State.REVOKED, State.REMOVED):
                out.append((one.connection, CloseCode.REFUSED))
            elif not credentials.is_of(reader, name, one.digest):
                out.append((one.connection, CloseCode.REPLACED))
            elif instance.nickname != one.nickname:
                renamed.append(instance)
        return out, renamed

    def renamed(self, instances: Iterable[Instance]) -> None:
        """Know their nicknames, so that each is told once."""
        with self._lock:
            for one in instances:
                if (known := self._known.get(one.instance_id)) is not None:
                    self._known[one.instance_id] = replace(known, nickname=one.nickname)
