"""Pairing: a stranger gets a code from the bot, and the bot's owner lets them in by it.

Invariant: a code is known to the person it was shown to, and kept as a salted digest only. It works once, for an hour,
on its platform and in its home. Wrong codes are counted in the row of their platform, so no number of processes has
more tries than one; after five nothing is looked at for an hour, not even the right code. Every count and mark is read
and written in one transaction.

Not for: who may talk to a bot without pairing. Lists that are filtered by the reader's own profile were rejected:
hermes-agent 0.19 shows none of another profile's requests unless the platform is named too (measured: 0 of 1).
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hermes_state.changes.records import record
from hermes_state.errors import InvalidInput, PairingRefused
from hermes_state.outbox.inputs import text
from hermes_state.routing.homes import Home, guard, refuse_other_home, valid_home
from hermes_state.routing.records import has_routing

if TYPE_CHECKING:
    from hermes_state.engine import Transaction
    from hermes_state.engine.core import Core

# The numbers are hermes-agent's (0.19.0, gateway/pairing.py).
ALPHABET = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"  # 32, none that is taken for another
CODE_CHARACTERS = 8
CODE_SECONDS = 3600.0
REQUEST_SECONDS = 600.0  # between two requests of one person
MOST_PENDING = 3  # of a platform
MOST_FAILURES = 5
LOCKED_SECONDS = 3600.0
# A request whose code works at ?1. One from further ahead than a code lasts was made before the clock was set back:
# nobody knows how old it is.
_GOOD = f"expires_at > ?1 AND requested_at < ?1 + {CODE_SECONDS}"


@dataclass(frozen=True, kw_only=True)
class Pending:
    """Somebody who asked and was not let in yet."""

    platform: str
    user_id: str
    user_name: str
    home: str  # store_id
    requested_at: float  # epoch seconds UTC
    expires_at: float  # when the code stops working


@dataclass(frozen=True, kw_only=True)
class Paired:
    """Somebody who may talk to the bots of a platform."""

    platform: str
    user_id: str
    user_name: str
    home: str  # store_id
    approved_at: float  # epoch seconds UTC
    approved_by: str


class Pairing:
    """The pairing of one home. Safe for threads."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def request(self, platform: str, user_id: str, home: Home, *, user_name: str = "") -> str:
        """A code to show to that person. Raises `PairingRefused` (they just asked; too many wait; locked), `WrongHome`.

        A new code replaces the person's earlier one.
        """
        _named(platform=platform, user_id=user_id)
        text("user_name", user_name, empty=True, of="")
        refuse_other_home(self._core, valid_home("home", home))
        code = "".join(secrets.choice(ALPHABET) for _ in range(CODE_CHARACTERS))
        salt, at = secrets.token_bytes(16), self._core.clock.now()

        def work(tx: Transaction) -> PairingRefused | None:
            guard(tx, home)
            if (locked := self._locked(tx, platform, at)) is not None:
                return locked
            tx.execute(
                "UPDATE pairing_requests SET code_digest = NULL, salt = NULL, expires_at = NULL"
                f" WHERE code_digest NOT NULL AND NOT ({_GOOD})", (at,),
            )
            tx.execute(
                "DELETE FROM pairing_requests WHERE code_digest IS NULL AND requested_at NOT BETWEEN ? AND ?",
                (at - REQUEST_SECONDS, at),
            )
            row = tx.row(
                "SELECT requested_at FROM pairing_requests WHERE platform = ? AND user_id = ?", (platform, user_id)
            )
            # A request that a clock which was ahead wrote does not count for ever.
            if row is not None and 0 <= at - row[0] < REQUEST_SECONDS:
                raise self._refused(platform, "that person asked a moment ago", row[0] + REQUEST_SECONDS)
            waiting = tx.rows(
                "SELECT expires_at FROM pairing_requests WHERE platform = ? AND user_id <> ? AND code_digest NOT NULL"
                " ORDER BY expires_at", (platform, user_id),
            )
            if len(waiting) >= MOST_PENDING:
                raise self._refused(platform, f"{len(waiting)} people wait there already", waiting[0][0])
            tx.execute(
                "INSERT INTO pairing_requests (platform, user_id, home, user_name, requested_at, salt, code_digest,"
                " expires_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (platform, user_id) DO UPDATE SET"
                " home = ?3, user_name = ?4, requested_at = ?5, salt = ?6, code_digest = ?7, expires_at = ?8",
                (
                    platform, user_id, home.store_id, user_name, at, salt, _digest(salt, platform, code),
                    at + CODE_SECONDS,
                ),
            )
            record(tx, "pairing_requests", f"{platform}/{user_id}", "insert", at)
            return None

        refused = self._core.write(work)
        if refused is not None:
            raise refused
        return code

    def approve(self, platform: str, code: str, home: Home, *, by: str) -> Paired | None:
        """Let in who was shown that code; None when nobody was, which counts as a failure. At `power`.

        Raises `PairingRefused` once five failures were made, none an hour after the one before, for an hour from then
        on.
        """
        _named(platform=platform, by=by)
        refuse_other_home(self._core, valid_home("home", home))
        if not isinstance(code, str):
            raise InvalidInput("code is a text.", argument="code")  # which says nothing of the value
        given, at = code.strip().upper(), self._core.clock.now()

        def work(tx: Transaction) -> Paired | PairingRefused | None:
            guard(tx, home)
            if (locked := self._locked(tx, platform, at)) is not None:
                return locked
            for user_id, user_name, salt, digest in tx.rows(
                "SELECT user_id, user_name, salt, code_digest FROM pairing_requests"
                f" WHERE platform = ?2 AND {_GOOD}", (at, platform),
            ):
                if hmac.compare_digest(_digest(salt, platform, given), digest):
                    return self._let_in(tx, platform, user_id, user_name, home, by, at)
            self._failed(tx, platform, at)
            return None

        found = self._core.write(work, durability="power")
        if isinstance(found, PairingRefused):
            raise found  # only now: what was written about the lock counts
        return found

    def revoke(self, platform: str, user_id: str, home: Home) -> bool:
        """Take it back, at `power`; False when that person was not paired."""
        _named(platform=platform, user_id=user_id)
        refuse_other_home(self._core, valid_home("home", home))
        at = self._core.clock.now()

        def work(tx: Transaction) -> bool:
            guard(tx, home)
            gone = tx.execute("DELETE FROM pairing_users WHERE platform = ? AND user_id = ?", (platform, user_id))
            if gone:
                record(tx, "pairing_users", f"{platform}/{user_id}", "delete", at)
            return bool(gone)

        return self._core.write(work, durability="power")

    def is_paired(self, platform: str, user_id: str) -> bool:
        """Whether that person may talk to the bots of that platform here."""
        with self._core.reader() as reader:
            return has_routing(reader) and reader.row(
                "SELECT 1 FROM pairing_users WHERE platform = ? AND user_id = ?", (platform, user_id)
            ) is not None

    def pending(self, platform: str | None = None) -> list[Pending]:
        """Who waits, with a platform or of all of them; codes are not here."""
        with self._core.reader() as reader:
            if not has_routing(reader):
                return []
            return [
                Pending(
                    platform=row[0], user_id=row[1], user_name=row[2], home=row[3], requested_at=row[4],
                    expires_at=row[5],
                )
                for row in reader.rows(
                    "SELECT platform, user_id, user_name, home, requested_at, expires_at FROM pairing_requests"
                    f" WHERE {_GOOD} AND (?2 IS NULL OR platform = ?2) ORDER BY platform, requested_at",
                    (self._core.clock.now(), platform),
                )
            ]

    def paired(self, platform: str | None = None, *, limit: int = 1000) -> list[Paired]:
        """Up to `limit` people who may talk to the bots here, with a platform or of all of them."""
        with self._core.reader() as reader:
            if not has_routing(reader):
                return []
            return [
                Paired(
                    platform=row[0], user_id=row[1], user_name=row[2], home=row[3], approved_at=row[4],
                    approved_by=row[5],
                )
                for row in reader.rows(
                    "SELECT platform, user_id, user_name, home, approved_at, approved_by FROM pairing_users"
                    " WHERE ?1 IS NULL OR platform = ?1 ORDER BY platform, user_id LIMIT ?2", (platform, limit),
                )
            ]

    # --- inside ------------------------------------------------------------------------------------------------

    def _let_in(
        self, tx: Transaction, platform: str, user_id: str, user_name: str, home: Home, by: str, at: float
    ) -> Paired:
        tx.execute("DELETE FROM pairing_requests WHERE platform = ? AND user_id = ?", (platform, user_id))
        tx.execute("DELETE FROM pairing_failures WHERE platform = ?", (platform,))
        tx.execute(
            "INSERT INTO pairing_users (platform, user_id, home, user_name, approved_at, approved_by)"
            " VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (platform, user_id) DO UPDATE SET home = ?3, user_name = ?4,"
            " approved_at = ?5, approved_by = ?6",
            (platform, user_id, home.store_id, user_name, at, by),
        )
        record(tx, "pairing_users", f"{platform}/{user_id}", "insert", at)
        return Paired(
            platform=platform, user_id=user_id, user_name=user_name, home=home.store_id, approved_at=at, approved_by=by
        )

    def _failed(self, tx: Transaction, platform: str, at: float) -> None:
        # The hour counts from the newest failure on: no hour has more than five; setting a clock back ends none.
        row = tx.row("SELECT failures, first_at FROM pairing_failures WHERE platform = ?", (platform,))
        failures = row[0] + 1 if row is not None and at - row[1] < LOCKED_SECONDS else 1
        tx.execute(
            "INSERT INTO pairing_failures (platform, failures, first_at, locked_until) VALUES (?1, ?2, ?3, ?4)"
            " ON CONFLICT (platform) DO UPDATE SET failures = ?2, first_at = ?3, locked_until = ?4",
            (platform, failures, at, at + LOCKED_SECONDS if failures >= MOST_FAILURES else None),
        )

    def _locked(self, tx: Transaction, platform: str, at: float) -> PairingRefused | None:
        """Why nothing is looked at now. A clock that was set back leaves at most the whole time to wait."""
        row = tx.row("SELECT locked_until FROM pairing_failures WHERE platform = ?", (platform,))
        if row is None or row[0] is None:
            return None
        until = min(row[0], at + LOCKED_SECONDS)
        if at >= until:
            tx.execute("DELETE FROM pairing_failures WHERE platform = ?", (platform,))
            return None
        if until != row[0]:
            tx.execute("UPDATE pairing_failures SET locked_until = ? WHERE platform = ?", (until, platform))
        return self._refused(platform, f"{MOST_FAILURES} wrong codes were tried", until)

    def _refused(self, platform: str, reason: str, retry_at: float) -> PairingRefused:
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(retry_at))
        return PairingRefused(
            f"No pairing on {platform} in {self._core.path} before {when}: {reason}.", hint="Try again then.",
            path=self._core.path, platform=platform, reason=reason, retry_at=retry_at,
        )


def _named(**values: str) -> None:
    for name, value in values.items():
        text(name, value, of="")


def _digest(salt: bytes, platform: str, code: str) -> bytes:
    return hmac.digest(salt, f"{platform}\0{code}".encode("utf-8", "surrogatepass"), hashlib.sha256)
