"""Credentials of instances: made once, kept as a keyed digest, compared in constant time.

Invariant: the bytes of a credential are in no file and in no error; the store has HMAC-SHA-256 of it under a key of its
own, bound to the instance, so a digest moved to another row or store opens nothing. An instance has one credential or
none: a new enrollment ends the old one with its own commit. Checking one writes nothing.

Not for: tokens (see `enrollment`). A slow password hash was rejected: 32 random bytes cannot be guessed, and a check
would hold up every connect.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import TYPE_CHECKING, Any, Literal

from hermes_state.errors import InstanceRevoked, InvalidAuthentication
from hermes_state.instances import registry
from hermes_state.instances.records import Instance
from hermes_state.instances.states import State

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction

SECRET_BYTES = 32
# Longest text that is hashed at all: ours have 43 characters.
LONGEST_SECRET = 1024
_NOBODY = bytes(32)


def new_secret() -> str:
    """32 random bytes as base64url, 43 characters; none begins with a dash, which programs take for an option."""
    while (made := secrets.token_urlsafe(SECRET_BYTES)).startswith("-"):
        continue
    return made


def digest(reader: Reader, purpose: Literal["token", "credential"], secret: Any, *, of: str = "") -> bytes | None:
    """The keyed digest of a secret; None for what cannot be one, or when the store has no key yet."""
    row = reader.row("SELECT digest_key FROM gateway_digest_key")
    if row is None or not isinstance(secret, str) or not 0 < len(secret) <= LONGEST_SECRET:
        return None
    try:
        # Lengths first: no two inputs are the same bytes.
        text = f"{purpose}\0{len(of)}\0{of}\0{secret}".encode()
    except UnicodeEncodeError:
        return None
    return hmac.digest(bytes(row[0]), text, hashlib.sha256)


def ensure_key(tx: Transaction) -> None:
    """Make the store's key, once."""
    if tx.row("SELECT 1 FROM gateway_digest_key") is None:
        tx.execute(
            "INSERT INTO gateway_digest_key (one, digest_key) VALUES (1, ?)", (secrets.token_bytes(SECRET_BYTES),)
        )


def keep(tx: Transaction, instance_id: str, credential: str, *, at: float) -> None:
    """Make this the one credential of an enrolled instance."""
    ensure_key(tx)
    drop(tx, instance_id)
    tx.execute(
        "INSERT INTO gateway_credentials (instance_id, credential_digest, issued_at) VALUES (?, ?, ?)",
        (instance_id, digest(tx, "credential", credential, of=instance_id), at),
    )


def drop(tx: Transaction, instance_id: str) -> bool:
    """End the credential of an instance; False when it had none."""
    return bool(tx.execute("DELETE FROM gateway_credentials WHERE instance_id = ?", (instance_id,)))


def is_of(reader: Reader, instance_id: str, kept: bytes) -> bool:
    """Whether this digest is of the credential that the instance has now; for who was let in with it before."""
    row = reader.row("SELECT credential_digest FROM gateway_credentials WHERE instance_id = ?", (instance_id,))
    return row is not None and hmac.compare_digest(bytes(row[0]), kept)


def still_in(reader: Reader, instance_id: str, kept: bytes) -> bool:
    """Whether who was let in with the credential of this digest still is: one short read. Raises `InstanceRevoked`."""
    row = reader.row(
        "SELECT i.state, i.state_at, c.credential_digest FROM gateway_instances AS i LEFT JOIN gateway_credentials AS c"
        " ON c.instance_id = i.instance_id WHERE i.instance_id = ?",
        (instance_id,),
    )
    if row is None or row[0] in (State.REVOKED, State.REMOVED):
        raise InstanceRevoked(
            f"Instance {instance_id!r} of {reader.path} was {State.REMOVED if row is None else row[0]} while it was"
            " connected.",
            hint="Close its socket with 4003; it stays out until it is enrolled again.", path=reader.path,
            instance_id=instance_id, since=None if row is None else row[1],
        )
    return row[2] is not None and hmac.compare_digest(bytes(row[2]), kept)


def authenticate(reader: Reader, instance_id: str, credential: str) -> Instance:
    """The instance whose credential this is. Reads only.

    Raises `InstanceRevoked`, and `InvalidAuthentication` for everything else: a wrong credential, one that another
    enrollment ended, an instance that is removed, or unknown.
    """
    row = reader.row("SELECT credential_digest FROM gateway_credentials WHERE instance_id = ?", (instance_id,))
    given = digest(reader, "credential", credential, of=instance_id)
    same = hmac.compare_digest(_NOBODY if row is None else bytes(row[0]), _NOBODY if given is None else given)
    found = registry.find(reader, instance_id)
    if found is not None and found.state is State.REVOKED:
        raise InstanceRevoked(
            f"Instance {instance_id!r} of {reader.path} is {registry.stands(found)}.",
            hint="It stays out until it is enrolled again.", path=reader.path, instance_id=instance_id,
            since=found.state_at,
        )
    if row is None or given is None or not same or found is None or found.state is not State.ENROLLED:
        raise InvalidAuthentication(
            f"{instance_id!r:.80} did not prove to be an instance of {reader.path}.",
            hint="Enroll it again: a new enrollment ends the credential from before.",
            path=reader.path, instance_id=instance_id,
        )
    return found
