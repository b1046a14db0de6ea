"""Enrollment: a token is minted, carried by a person to a plugin, and redeemed once for a credential.

Invariant: of an instance's tokens only the newest is good, until it is redeemed or its time is over, across restarts.
Redeeming is one compare-and-set with the credential and the instance's row in one transaction: all of it or nothing, so
a token is never spent without a credential. Minting ends the old credential in its own commit. The table has at most
two rows an instance, whoever mints in a loop.

Not for: what a plugin is asked before it is let in: that is done between `check` and `consume`, outside of any
transaction. Ending the old credential when the token is redeemed was rejected: people enroll again because they do not
trust it any more.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Any

from hermes_state.changes.records import record
from hermes_state.errors import EnrollmentExpired, InvalidInput
from hermes_state.instances import credentials, failures, registry
from hermes_state.instances.records import Enrollment, Issued, Swept
from hermes_state.instances.states import Event, TokenEvent, TokenState, expired, token_to_event
from hermes_state.shell_words import shell_word

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction

# How long a token is good: time for a person to go to the other machine, as in the contracts these come from.
TTL_SECONDS = 600.0
# The longest that can be asked for.
LONGEST_TTL_SECONDS = 86_400.0
# Rows in one transaction of a sweep.
STEP = 500


def mint(tx: Transaction, instance_id: str, *, at: float, ttl_seconds: float = TTL_SECONDS) -> tuple[str, float]:
    """A new token and until when it is good. Earlier tokens and the credential of the instance end with this commit.

    Raises `InvalidInput`, `InstanceNotFound`, `InstanceRemoved`.
    """
    number = isinstance(ttl_seconds, (int, float)) and not isinstance(ttl_seconds, bool)
    if not number or not 0 < ttl_seconds <= LONGEST_TTL_SECONDS:
        raise InvalidInput(
            f"A token is good for more than 0 and at most {LONGEST_TTL_SECONDS:.0f} seconds, not {ttl_seconds!r}.",
            argument="ttl_seconds",
        )
    registry.allowed(tx, instance_id, Event.MINT)
    credentials.ensure_key(tx)
    credentials.drop(tx, instance_id)
    # One settled row an instance is kept, so that a loop of mints does not fill the table.
    tx.execute("DELETE FROM enrollment_tokens WHERE instance_id = ? AND state <> 'pending'", (instance_id,))
    _settle(tx, instance_id, TokenEvent.SUPERSEDE, at=at)
    token = credentials.new_secret()
    tx.execute(
        "INSERT INTO enrollment_tokens (token_digest, instance_id, created_at, expires_at) VALUES (?, ?, ?, ?)",
        (credentials.digest(tx, "token", token), instance_id, at, at + ttl_seconds),
    )
    record(tx, registry.TABLE, instance_id, "update", at)
    return token, at + ttl_seconds


def check(reader: Reader, token: str, *, at: float) -> Enrollment:
    """What a token stands for, if it is good now. Changes nothing. Raises `EnrollmentExpired`."""
    given = credentials.digest(reader, "token", token)
    row = None if given is None else reader.row(
        "SELECT token_digest, instance_id, created_at, expires_at, state FROM enrollment_tokens WHERE token_digest = ?",
        (given,),
    )
    if row is None or given is None or not hmac.compare_digest(bytes(row[0]), given):
        raise _expired(reader)
    if not _good(row[2], row[3], row[4], at):
        raise _expired(reader)
    return Enrollment(instance_id=row[1], created_at=row[2], expires_at=row[3])


def consume(tx: Transaction, token: str, *, at: float, actor: str) -> Issued:
    """Redeem a token: it is spent, the instance is enrolled, and its new credential is given, in one transaction.

    `at` is read inside the transaction: waiting for the lock may have taken the last of its time. Raises
    `EnrollmentExpired` (nothing changed), which is also what the second of two gets.
    """
    found = check(tx, token, at=at)
    won = tx.execute(
        "UPDATE enrollment_tokens SET state = 'consumed', settled_at = ?1 WHERE token_digest = ?2"
        " AND state = 'pending' AND expires_at >= ?1 AND created_at - (expires_at - created_at) <= ?1",
        (at, credentials.digest(tx, "token", token)),
    )
    if won != 1:
        raise _expired(tx)
    before = registry.allowed(tx, found.instance_id, Event.ENROLL)
    registry.enter(tx, before, Event.ENROLL, actor=actor, reason="a token was redeemed", at=at)
    credential = credentials.new_secret()
    credentials.keep(tx, found.instance_id, credential, at=at)
    failures.attended(tx, found.instance_id)  # a person acted: the plugin may connect again
    return Issued(instance=registry.get(tx, found.instance_id), credential=credential)


def take_back(tx: Transaction, token: str, issued: Issued, *, at: float) -> bool:
    """Make a token good again whose credential nobody got, and end that credential; the instance stays enrolled.

    False, and nothing changed, when the credential is not the instance's any more: it was revoked or enrolled since.
    """
    name = issued.instance.instance_id
    ours = credentials.digest(tx, "credential", issued.credential, of=name)
    spent = credentials.digest(tx, "token", token)
    row = tx.row(
        "SELECT created_at, expires_at FROM enrollment_tokens WHERE token_digest = ? AND instance_id = ?"
        " AND state = 'consumed'",
        (spent, name),
    )
    pending = tx.row("SELECT 1 FROM enrollment_tokens WHERE instance_id = ? AND state = 'pending'", (name,))
    if ours is None or row is None or pending is not None or not credentials.is_of(tx, name, ours):
        return False
    credentials.drop(tx, name)
    tx.execute("DELETE FROM enrollment_tokens WHERE token_digest = ?", (spent,))  # a spent row never changes
    tx.execute(
        "INSERT INTO enrollment_tokens (token_digest, instance_id, created_at, expires_at) VALUES (?, ?, ?, ?)",
        (spent, name, *row),
    )
    record(tx, registry.TABLE, name, "update", at)
    return True


def forget(tx: Transaction, instance_id: str, *, at: float) -> bool:
    """End the pending token of an instance that is revoked or removed; False when there was none."""
    tx.execute("DELETE FROM enrollment_tokens WHERE instance_id = ? AND state <> 'pending'", (instance_id,))
    return _settle(tx, instance_id, TokenEvent.FORGET, at=at)


def sweep(tx: Transaction, *, at: float, limit: int = STEP) -> Swept:
    """Take out up to `limit` tokens whose time is over, the oldest first."""
    due = tx.rows(
        "SELECT token_digest, state FROM enrollment_tokens WHERE expires_at < ?1 OR created_at > ?2"
        " ORDER BY expires_at LIMIT ?3",
        (at, at + LONGEST_TTL_SECONDS, limit + 1),  # the latter by a clock that was ahead: they are good at no time
    )
    gone = due[:limit]
    tx.executemany("DELETE FROM enrollment_tokens WHERE token_digest = ?", [(digest,) for digest, _state in gone])
    pending = sum(TokenState(state) is TokenState.PENDING for _digest, state in gone)
    return Swept(expired=pending, settled=len(gone) - pending, more=len(due) > limit)


def _settle(tx: Transaction, instance_id: str, event: TokenEvent, *, at: float) -> bool:
    state = token_to_event(TokenState.PENDING, event)
    return bool(
        tx.execute(
            "UPDATE enrollment_tokens SET state = ?, settled_at = ? WHERE instance_id = ? AND state = 'pending'",
            (str(state), at, instance_id),
        )
    )


def _good(created_at: float, expires_at: float, state: Any, at: float) -> bool:
    """A token is good from when it was minted; a clock may be set back since by no more than what it is good for."""
    ahead = created_at - at > expires_at - created_at
    return TokenState(state) is TokenState.PENDING and not expired(expires_at, at) and not ahead


def _expired(reader: Reader) -> EnrollmentExpired:
    return EnrollmentExpired(
        f"The enrollment token opens nothing in {reader.path}: it was used or replaced, its time is over, or"
        " it is none.",
        hint=f"Mint another one with `hermes-state instances enroll ID --db {shell_word(reader.path)}`.",
        path=reader.path,
    )
