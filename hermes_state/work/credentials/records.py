"""A credential as its row stands, and what a caller gets to use.

Invariant: no field here is a secret but `Served.access_token` and `Served.agent_key`, which no repr shows; digests are
compared in constant time, under the key of their row.

Not for: changing rows (see `rows`). A record that loads its secrets by itself was rejected: it would be printed.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from hermes_state.work.credentials.secrets import Secrets
from hermes_state.work.credentials.states import DUE_SECONDS, LEAST_SECONDS, Held, Rotation, Status

# Sources with a meaning here.
MANUAL, SHARED = "manual", "shared"
_SHARED_OWNER = "shared:"
# Half of a digest is kept of a token that is spent: 128 bits, so that two never meet.
SPENT_BYTES = 16
# Spent tokens that a row remembers, the newest: a copy of the secret file older than that many rotations is unlikely.
MOST_SPENT = 64


@dataclass(frozen=True, kw_only=True)
class Credential:
    """One row."""

    provider: str
    id: str
    home: str  # store_id of the home that it belongs to
    label: str
    auth_type: str  # api_key, oauth_device_code, ...
    source: str  # manual, shared, or who brought it
    priority: int  # the least is used first
    base_url: str | None
    single_use: bool  # a refresh token of it works once
    status: Status
    status_at: float  # epoch seconds UTC
    error_code: str | None  # of the newest refusal
    error_reason: str | None
    error_message: str | None
    reset_at: float | None  # exhausted: when it may be used again
    expires_at: float | None  # of the access token; None: nobody said
    agent_key_expires_at: float | None
    rotate_after: float | None  # not before this is a token renewed that still works; None: when it is due
    refreshed_at: float | None  # of the newest rotation
    request_count: int
    used_order: int  # rises with every use of any credential of the provider
    extra: Mapping[str, Any]  # what else the provider says
    rotation: Rotation
    rotation_fence: int  # of the lease under which the token was sent last
    rotation_at: float | None  # since when it is being sent, or may be lost
    created_at: float
    updated_at: float
    salt: bytes = field(repr=False)  # key of the digests
    access_digest: bytes | None = field(repr=False)
    refresh_digest: bytes | None = field(repr=False)
    rotation_digest: bytes | None = field(repr=False)  # of the token that is being sent, or may be lost
    spent: bytes = field(repr=False)  # halves of digests of spent tokens, newest last

    def digest(self, token: str | None) -> bytes | None:
        """The keyed digest of a token."""
        return digest(self.salt, token)

    def has_spent(self, token: str | None) -> bool:
        """Whether this refresh token was used up before."""
        if token is None:
            return False
        made = digest(self.salt, token)
        assert made is not None
        return any(
            hmac.compare_digest(made[:SPENT_BYTES], self.spent[at : at + SPENT_BYTES])
            for at in range(0, len(self.spent), SPENT_BYTES)
        )

    def held(self, secrets: Secrets | None) -> Held:
        """What the secret file has, beside what this row says of it."""
        if secrets is None or (secrets.access_token is None and secrets.refresh_token is None):
            return Held.NOTHING
        if same(self.access_digest, self.digest(secrets.access_token)) and same(
            self.refresh_digest, self.digest(secrets.refresh_token)
        ):
            # A provider may give the same tokens a later end. A store that does not keep times says nothing of it.
            told = secrets.written_at is not None and secrets.expires_at != self.expires_at
            return Held.NEWER if told else Held.SAME
        return Held.SPENT if self.has_spent(secrets.refresh_token) else Held.NEWER

    def cooling(self, now: float) -> bool:
        """Whether it is to be left alone now. A clock that was set back does not make that longer."""
        return self.reset_at is not None and self.status_at <= now < self.reset_at

    def due(self, now: float) -> bool:
        """Whether its access token ends too soon to be used, or is to be renewed before it does."""
        if self.expires_at is None or self.expires_at - now > DUE_SECONDS:
            return False
        return self.rotate_after is None or now >= self.rotate_after or not self.works(now)

    def works(self, now: float) -> bool:
        """Whether its access token lasts long enough for one request."""
        return self.expires_at is None or self.expires_at - now > LEAST_SECONDS

    def was_sent(self, secrets: Secrets) -> bool:
        """Whether these have the token that the marker is about, and not as what came of sending it.

        The one who rotates writes the file after the marker: a file that is older, or does not say, is a copy.
        """
        if not self.single_use or self.rotation is Rotation.WHOLE or self.rotation_digest is None:
            return False
        if not same(self.rotation_digest, self.digest(secrets.refresh_token)):
            return False
        return secrets.written_at is None or self.rotation_at is None or secrets.written_at <= self.rotation_at


@dataclass(frozen=True, kw_only=True, repr=False)
class Served:
    """A token to use now."""

    access_token: str
    agent_key: str | None
    base_url: str | None
    expires_at: float | None  # epoch seconds UTC; None: nobody said
    # current: it was there; adopted: another process or program had got it; rotated: it was got just now
    how: Literal["current", "adopted", "rotated"]
    fence: int  # of the newest rotation that this store knows
    # rotated here: seconds from the marker's commit until the new token was kept, when a kill loses the grant
    window_seconds: float | None

    def __repr__(self) -> str:
        return f"<Served {self.how} until {self.expires_at}, fence {self.fence}>"


def owner_name(store_id: str, provider: str, name: str, *, shared: bool = False) -> str:
    """A row as a secret file names it; `shared`: the one that rotates it for all homes that share the file."""
    return f"{_SHARED_OWNER if shared else ''}{store_id}/{provider}/{name}"


def is_shared_owner(name: str | None) -> bool:
    """Whether a secret file belongs to a store that homes share."""
    return name is not None and name.startswith(_SHARED_OWNER)


def digest(salt: bytes, token: str | None) -> bytes | None:
    """HMAC-SHA-256 of a token under the key of a row; None without one."""
    return None if token is None else hmac.digest(salt, token.encode(), hashlib.sha256)


def same(one: bytes | None, other: bytes | None) -> bool:
    """Whether two digests are equal, or both are of nothing."""
    return one is other is None if one is None or other is None else hmac.compare_digest(one, other)


COLUMNS = (
    "provider, id, home, label, auth_type, source, priority, base_url, single_use, status, status_at, error_code,"
    " error_reason, error_message, reset_at, expires_at, agent_key_expires_at, rotate_after, refreshed_at,"
    " request_count, used_order, extra, rotation, rotation_fence, rotation_at, created_at, updated_at, salt,"
    " access_digest, refresh_digest, rotation_digest, spent"
)


def credential(row: tuple[Any, ...]) -> Credential:
    """A row of `COLUMNS`."""
    named = dict(zip(COLUMNS.replace(" ", "").split(","), row, strict=True))
    extra = json.loads(named.pop("extra"))
    return Credential(
        single_use=bool(named.pop("single_use")), status=Status(named.pop("status")),
        rotation=Rotation(named.pop("rotation")), extra=extra if isinstance(extra, dict) else {}, **named,
    )
