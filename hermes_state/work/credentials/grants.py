"""What an exchange is given: everything about the credential, and its token only for a mark in the store.

Invariant: the refresh token is handed out once, after the transaction that marks it as being sent was committed at
`power`; so whoever dies with the token in hand has left the mark. What an exchange does before that (names, TLS, its
own imports) costs nothing when it is killed.

Not for: sending. A marker before the exchange is called was rejected: every kill while it connects would count as lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from hermes_state.errors import Refused

if TYPE_CHECKING:
    from hermes_state.work.credentials.records import Credential
    from hermes_state.work.credentials.secrets import Secrets


class Grant:
    """One chance to send one refresh token. Of one rotation, in one thread; no repr shows a secret."""

    def __init__(self, row: Credential, secrets: Secrets, mark: Callable[[], None]) -> None:
        self._secrets, self._mark = secrets, mark
        self.provider: str = row.provider
        self.id: str = row.id
        self.base_url: str | None = row.base_url
        self.extra: Mapping[str, Any] = row.extra
        # What else is secret and may have to be sent with it: a client secret, an id token.
        self.others: Mapping[str, Any] = secrets.others
        # Whether the token was handed out.
        self.revealed = False

    def reveal(self) -> str:
        """The refresh token, for one request, to be sent at once: from here until the answer is kept a kill loses it.

        Raises `Refused` the second time, `LeaseLost`, `StaleFence`, and what a write raises: then do not send.
        """
        if self.revealed:
            raise Refused(
                f"The refresh token of {self.provider} credential {self.id!r} was handed out already.",
                hint="It is for one request. Return Unsure or Postponed, and ask for the token again.",
            )
        self._mark()
        self.revealed = True
        token = self._secrets.refresh_token
        assert token is not None  # no exchange is begun without
        return token

    def __repr__(self) -> str:
        return f"<Grant of {self.provider} credential {self.id!r}{', sent' if self.revealed else ''}>"
