"""`store.work.targets`: chats that a bot cannot reach, until one message arrives there.

Invariant: only what means that the whole chat is unreachable makes it dead, by the table here; one success makes it
alive, however often it failed before. What one bot cannot reach another one may. Nothing is written for a success in a
chat that is not dead.

Not for: attempts and schedules of what is owed, which the outbox has. A count of failures before a chat is dead was
rejected: "forbidden" is no accident, and every further try is held against the bot by its platform.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from hermes_state.changes.records import record
from hermes_state.errors import InvalidInput
from hermes_state.outbox.inputs import text, whole
from hermes_state.routing.homes import Home, guard, valid_profile
from hermes_state.work.background_rows import readable
from hermes_state.work.guarded import Guarded

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction

MOST_REASON = 200  # characters of a platform's words that are kept
MOST_PAGE = 1000


class SendFailure(StrEnum):
    """Why a platform did not take a message."""

    FORBIDDEN = "forbidden"  # the bot was blocked, removed, or may not write there
    CHAT_NOT_FOUND = "chat_not_found"  # the chat is gone
    THREAD_NOT_FOUND = "thread_not_found"  # a topic of it is gone; the chat is not
    MESSAGE_NOT_FOUND = "message_not_found"  # what was to be edited or replied to is gone
    TOO_LONG = "too_long"
    BAD_FORMAT = "bad_format"
    RATE_LIMITED = "rate_limited"
    TRANSIENT = "transient"
    UNKNOWN = "unknown"


# Whether a failure means that the whole chat is unreachable.
DEADLY: Mapping[SendFailure, bool] = {
    SendFailure.FORBIDDEN: True,
    SendFailure.CHAT_NOT_FOUND: True,
    SendFailure.THREAD_NOT_FOUND: False,
    SendFailure.MESSAGE_NOT_FOUND: False,
    SendFailure.TOO_LONG: False,
    SendFailure.BAD_FORMAT: False,
    SendFailure.RATE_LIMITED: False,
    SendFailure.TRANSIENT: False,
    SendFailure.UNKNOWN: False,
}


@dataclass(frozen=True, kw_only=True)
class DeadTarget:
    """A chat that a bot cannot reach."""

    platform: str
    transport_profile: str  # whose bot cannot
    chat_id: str
    home: str  # store_id
    failure: SendFailure
    reason: str  # in the platform's words, the newest
    failures: int  # how often, since it is dead
    since: float  # epoch seconds UTC
    last: float  # epoch seconds UTC


class Targets(Guarded):
    """The dead targets of one home. Safe for threads."""

    def failed(
        self, platform: str, chat_id: str | int, home: Home, failure: SendFailure, *,
        transport_profile: str = "default", reason: str = "",
    ) -> DeadTarget | None:
        """A message did not arrive; gives the target if it is dead now. Writes nothing for what does not make it dead.

        Raises `InvalidInput`, `WrongHome`, `HomeRemoved`.
        """
        if not DEADLY[_failure(failure)]:
            return self.get(platform, chat_id, transport_profile=transport_profile)
        at = self._core.clock.now()
        return self._write(home, lambda tx: failed(
            tx, platform, chat_id, home, failure, transport_profile=transport_profile, reason=reason, at=at
        ), power=False)

    def succeeded(self, platform: str, chat_id: str | int, home: Home, *, transport_profile: str = "default") -> bool:
        """A message arrived: the chat is alive. True when it was dead. Mostly no write."""
        if self.get(platform, chat_id, transport_profile=transport_profile) is None:
            return False
        at = self._core.clock.now()
        return self._write(
            home, lambda tx: succeeded(tx, platform, chat_id, home, transport_profile=transport_profile, at=at),
            power=False,
        )

    def get(self, platform: str, chat_id: str | int, *, transport_profile: str = "default") -> DeadTarget | None:
        """The target when it is dead: do not send there what nobody waits for, such as a delivery of cron."""
        key = _key(platform, transport_profile, chat_id)
        with self._core.reader() as reader:
            return _find(reader, key) if has_targets(reader) else None

    def page(self, *, platform: str | None = None, limit: int = 50) -> list[DeadTarget]:
        """Up to `limit` dead targets (1 to 1000), of a platform or of all, by name."""
        whole("limit", limit, 1, MOST_PAGE)
        with self._core.reader() as reader:
            return [
                _target(row) for row in reader.rows(
                    f"SELECT {_COLUMNS} FROM dead_targets WHERE ?1 IS NULL OR platform = ?1"
                    " ORDER BY platform, transport_profile, chat_id LIMIT ?2", (platform, limit),
                )
            ] if has_targets(reader) else []


def failed(
    tx: Transaction, platform: str, chat_id: str | int, home: Home, failure: SendFailure, *, transport_profile: str,
    reason: str, at: float,
) -> DeadTarget | None:
    """As `Targets.failed`, in the caller's transaction, such as the one that settles an obligation.

    `reason` is whatever the platform said: it is escaped and cut, and never undoes that transaction.
    """
    guard(tx, home)
    key = _key(platform, transport_profile, chat_id)
    if DEADLY[_failure(failure)]:
        said = "" if reason is None else readable(str(reason))[:MOST_REASON]
        tx.execute(
            "INSERT INTO dead_targets (platform, transport_profile, chat_id, home, failure, reason, since_at, last_at)"
            " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7) ON CONFLICT (platform, transport_profile, chat_id) DO UPDATE"
            " SET home = ?4, failure = ?5, reason = ?6, failures = failures + 1, last_at = ?7",
            (*key, home.store_id, str(failure), said, at),
        )
        found = _find(tx, key)
        assert found is not None
        record(tx, "dead_targets", "/".join(key), "insert" if found.failures == 1 else "update", at)
        return found
    return _find(tx, key)


def succeeded(
    tx: Transaction, platform: str, chat_id: str | int, home: Home, *, transport_profile: str, at: float
) -> bool:
    """As `Targets.succeeded`, in the caller's transaction."""
    guard(tx, home)
    key = _key(platform, transport_profile, chat_id)
    gone = tx.execute("DELETE FROM dead_targets WHERE platform = ? AND transport_profile = ? AND chat_id = ?", key)
    if gone:
        record(tx, "dead_targets", "/".join(key), "delete", at)
    return bool(gone)


def has_targets(reader: Reader) -> bool:
    """Whether the store has the table: it comes with a schema step that a read-only open does not make."""
    return reader.row("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'dead_targets'") is not None


_COLUMNS = "platform, transport_profile, chat_id, home, failure, reason, failures, since_at, last_at"


def _key(platform: str, transport_profile: str, chat_id: str | int) -> tuple[str, str, str]:
    """Names of platforms are written in either case; chats are not, and some platforms number them."""
    return (
        text("platform", platform, of=" of a target").strip().lower(),
        valid_profile("transport_profile", transport_profile),
        text("chat_id", str(chat_id) if type(chat_id) is int else chat_id, of=" of a target").strip(),
    )


def _failure(given: SendFailure) -> SendFailure:
    try:
        return SendFailure(given)
    except ValueError:
        raise InvalidInput(
            f"{given!r:.80} is no failure of a send.", hint=f"The failures are {', '.join(SendFailure)}.",
            argument="failure",
        ) from None


def _find(reader: Reader, key: tuple[str, str, str]) -> DeadTarget | None:
    row = reader.row(
        f"SELECT {_COLUMNS} FROM dead_targets WHERE platform = ? AND transport_profile = ? AND chat_id = ?", key
    )
    return None if row is None else _target(row)


def _target(row: tuple[object, ...]) -> DeadTarget:
    platform, transport_profile, chat_id, home, failure, reason, failures, since, last = row
    return DeadTarget(
        platform=str(platform), transport_profile=str(transport_profile), chat_id=str(chat_id), home=str(home),
        failure=SendFailure(str(failure)), reason=str(reason), failures=int(str(failures)), since=float(str(since)),
        last=float(str(last)),
    )
