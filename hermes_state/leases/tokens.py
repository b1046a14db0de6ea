"""Locks on credentials: one bot token, one holder, whichever profiles, processes and homes want it.

Invariant: a lock is a lease whose name is a keyed digest of the credential; the credential is in no row, message or
error. It is taken by the compare-and-set of every lease, so of two that find the same stale one, one gets it. Who has
it is in the row, and is said to whoever does not get it.

Not for: one home alone: put them where all homes of the user meet. Files named after the digest, as hermes-agent has
them, were rejected: two that judge one stale file unlink and create one after the other, and both have it (measured).
"""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING

from hermes_state.errors import InvalidInput
from hermes_state.leases.lease import Lease
from hermes_state.leases.leases import Leases
from hermes_state.leases.rows import LeaseView

if TYPE_CHECKING:
    from hermes_state.engine.core import Core
    from hermes_state.owners import Presence

PREFIX = "token"
# How long a lock lasts unless it is renewed. A holder that died is found out at once; this is for those that cannot be
# judged from here: other machines and containers, and holders that hang.
TERM_SECONDS = 300.0
_DIGITS = 32  # of 64 hexadecimal digits: 128 bits, so that two credentials never meet
_MOST = 512


class TokenLocks:
    """The locks on credentials that are kept in one store. Safe for threads."""

    def __init__(self, core: Core, *, presence: Presence | None = None) -> None:
        """`presence` makes another owner than this process of the locks acquired here; for tests."""
        self._core = core
        self._leases = Leases(core, presence=presence)

    def name(self, scope: str, credential: str) -> str:
        """The name of the lease: scope and digest, keyed with the store's id, so that no list of digests fits two.

        What people add without meaning it makes no other lock: space around either, and capitals of the scope.
        """
        for what, value in (("scope", scope), ("credential", credential)):
            if not isinstance(value, str) or not value.strip() or "\0" in value or (
                what == "scope" and (":" in value or len(value) > _MOST)
            ):
                raise InvalidInput(  # which says nothing of the value
                    f"The {what} of a lock on a credential is a text that is not empty"
                    f"{', of one word' if what == 'scope' else ''}.",
                    argument=what,
                )
        scope = scope.strip().casefold()
        content = f"{scope}\0{credential.strip()}".encode("utf-8", "surrogatepass")
        digest = hmac.new(self._core.store_id.encode(), content, hashlib.sha256).hexdigest()[:_DIGITS]
        return f"{PREFIX}:{scope}:{digest}"

    def acquire(
        self, scope: str, credential: str, *, profile: str, home: str = "", kind: str = "gateway",
        term_seconds: float = TERM_SECONDS, wait_seconds: float = 0.0,
    ) -> Lease:
        """The lock on a credential of `scope` (telegram, ...), for `profile`; renew it more often than its term.

        `home` and `kind` are said, with the profile, to those that are refused. A second profile of the same process
        is refused like everybody else. Raises `LeaseHeld` (its `note` names the holder), and what `Leases.acquire`
        raises: after any error do not connect.
        """
        note = {"profile": profile, "home": home, "kind": kind}
        for what, value in note.items():
            if not isinstance(value, str) or len(value) > _MOST:
                raise InvalidInput(f"{what} of a lock on a credential is a text.", argument=what)
        return self._leases.acquire(
            self.name(scope, credential), term_seconds=term_seconds, wait_seconds=wait_seconds,
            note={what: value for what, value in note.items() if value},
        )

    def look(self, scope: str, credential: str) -> LeaseView | None:
        """How the lock on a credential stands; None when nobody ever had it."""
        return self._leases.look(self.name(scope, credential))

    def all(self) -> list[LeaseView]:
        """Every lock that was ever had here, by name; whose credential it is cannot be told."""
        with self._core.reader() as reader:
            names = [
                str(name)
                for (name,) in reader.rows(
                    "SELECT name FROM leases WHERE name >= ? AND name < ? ORDER BY name", (f"{PREFIX}:", f"{PREFIX};")
                )
            ]
        return [view for view in map(self._leases.look, names) if view is not None]
