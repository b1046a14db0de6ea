"""Login attempts as rows, in the caller's transaction.

Invariant: an attempt moves by the table of `login_states` alone. Entering a terminal state owes one notice to its own
chat, in the same transaction and under the attempt's id, unless a shutdown cancelled it. No column and no notice has a
code, a link or a token: notices are words that the sender makes a text of.

Not for: deciding who may begin one (see `logins`). Keeping the attempt in memory was rejected: a kill after the server
granted it leaves an account that nobody knows of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_state.changes.records import record
from hermes_state.errors import LoginEnded, LoginNotFound
from hermes_state.outbox import Policy, append
from hermes_state.work.login_states import TABLE, TERMINAL, Failure, LoginEvent, LoginState, Refusal

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction

KIND = "login"
COLUMNS = (
    "attempt_id, home, platform, chat_id, user_id, owner, state, quiet, started_at, expires_at, transferred_at,"
    " ended_at, reason, kept"
)


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One row."""

    attempt_id: str
    home: str  # store_id of the home that is signed in
    platform: str
    chat_id: str
    user_id: str
    owner: str  # JSON, the owner identity of the process that waits for it
    state: LoginState
    quiet: bool  # a shutdown cancelled it: its chat is told nothing
    started_at: float  # epoch seconds UTC
    expires_at: float | None  # of its code, epoch seconds UTC; None: none was shown
    transferred_at: float | None  # since when it cannot be undone, epoch seconds UTC
    ended_at: float | None  # epoch seconds UTC
    reason: Failure | None  # why it failed
    kept: int | None  # of a completed one: chats whose model override could not be cleared

    @property
    def identity(self) -> tuple[str, str, str]:
        """Who began it, and where: the same one supersedes it."""
        return self.platform, self.chat_id, self.user_id


def find(reader: Reader, attempt_id: str) -> Attempt | None:
    """One attempt."""
    row = reader.row(f"SELECT {COLUMNS} FROM login_attempts WHERE attempt_id = ?", (attempt_id,))
    return None if row is None else attempt_of(row)


def need(reader: Reader, attempt_id: str) -> Attempt:
    """As `find`. Raises `LoginNotFound`."""
    found = find(reader, attempt_id)
    if found is None:
        raise LoginNotFound(
            f"There is no login attempt {attempt_id!r:.80} in {reader.path}.", hint="It was never begun here.",
            path=reader.path, attempt_id=attempt_id,
        )
    return found


def open_ones(reader: Reader) -> list[Attempt]:
    """Those that have not ended, oldest first."""
    return [
        attempt_of(row) for row in reader.rows(
            f"SELECT {COLUMNS} FROM login_attempts WHERE ended_at IS NULL ORDER BY started_at, attempt_id"
        )
    ]


def insert(
    tx: Transaction, attempt_id: str, home: str, identity: tuple[str, str, str], owner: str, *, at: float
) -> Attempt:
    """A new one."""
    tx.execute(
        "INSERT INTO login_attempts (attempt_id, home, platform, chat_id, user_id, owner, started_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)", (attempt_id, home, *identity, owner, at),
    )
    record(tx, "login_attempts", attempt_id, "insert", at)
    return need(tx, attempt_id)


def move(tx: Transaction, attempt: Attempt, event: LoginEvent, *, at: float, **changes: Any) -> Attempt:
    """What an event makes of an attempt; what changes nothing writes nothing. Raises `LoginEnded`."""
    state = Refusal.ENDED if attempt.state in TERMINAL else TABLE[attempt.state, event]
    if isinstance(state, Refusal):
        raise LoginEnded(
            f"Login attempt {attempt.attempt_id!r} in {tx.path} is {attempt.state}: it cannot {event}.",
            hint="Begin another one, if it is still wanted.", path=tx.path, attempt_id=attempt.attempt_id,
            state=attempt.state, event=event,
        )
    if state is LoginState.FAILED:
        changes.setdefault("reason", str(Failure.INTERRUPTED))
    else:
        changes.pop("reason", None)
    if state is LoginState.TRANSFERRED and attempt.transferred_at is None:
        changes["transferred_at"] = at
    if state in TERMINAL:
        changes["ended_at"] = at
    if state is attempt.state and not changes:
        return attempt
    changes["state"] = str(state)
    tx.execute(
        f"UPDATE login_attempts SET {', '.join(f'{name} = ?' for name in changes)} WHERE attempt_id = ?",
        (*changes.values(), attempt.attempt_id),
    )
    record(tx, "login_attempts", attempt.attempt_id, "update", at)
    now = need(tx, attempt.attempt_id)
    if state in TERMINAL and not now.quiet:
        append(
            tx, dedupe_id=f"{KIND}/{now.attempt_id}", kind=KIND, transport=now.platform, target=now.chat_id,
            policy=Policy.AT_LEAST_ONCE, at=at,
            payload={
                "attempt_id": now.attempt_id, "notice": str(now.state), "user_id": now.user_id,
                "reason": None if now.reason is None else str(now.reason), "kept": now.kept,
            },
        )
    return now


def attempt_of(row: Sequence[Any]) -> Attempt:
    """A row of `COLUMNS`."""
    (
        attempt_id, home, platform, chat_id, user_id, owner, state, quiet, started_at, expires_at, transferred_at,
        ended_at, reason, kept,
    ) = row
    return Attempt(
        attempt_id=attempt_id, home=home, platform=platform, chat_id=chat_id, user_id=user_id, owner=owner,
        state=LoginState(state), quiet=bool(quiet), started_at=started_at, expires_at=expires_at,
        transferred_at=transferred_at, ended_at=ended_at, reason=None if reason is None else Failure(reason), kept=kept,
    )
