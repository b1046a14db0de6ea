"""`store.work.credentials`: who may use which credential now, and one process at a time that gets its next token.

Invariant: every write names its home; a credential is only ever that of the home whose store has it. Secrets pass
through to the caller's secret file and are in no row, message, error or change.

Not for: talking to providers: the caller's exchange does. Reading tokens from the environment or from a profile's
neighbour was rejected: a home without a credential is refused before anybody is asked.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hermes_state import deletions
from hermes_state.changes.records import record
from hermes_state.errors import CredentialCooling, CredentialNotFound, InvalidInput, SecretFileRefused, SecretMissing
from hermes_state.leases import Leases
from hermes_state.outbox.inputs import text, whole
from hermes_state.routing.homes import Home
from hermes_state.work.credentials import rows
from hermes_state.work.credentials.answers import MOST_ADDRESS, is_address
from hermes_state.work.credentials.choosing import Strategy, choose
from hermes_state.work.credentials.records import MANUAL, SHARED, Credential, Served, is_shared_owner, owner_name, same
from hermes_state.work.credentials.rotation import Asking, cooling, dead, in_order, wait_of
from hermes_state.work.credentials.secrets import Secrets, checked_moment, extra_text, mentions, split
from hermes_state.work.credentials.states import DEAD_KEPT_SECONDS, Event, Status, rest_until
from hermes_state.work.guarded import Guarded

if TYPE_CHECKING:
    from hermes_state.engine import Transaction
    from hermes_state.engine.core import Core
    from hermes_state.leases import Lease
    from hermes_state.owners import Presence
    from hermes_state.work.credentials.secret_file import SecretStore
    from hermes_state.work.credentials.verdicts import Exchange

# How long an exchange with a provider may take, unless the caller says.
TIMEOUT_SECONDS = 20.0
MOST_TIMEOUT_SECONDS = 600.0


@dataclass(frozen=True, kw_only=True)
class Shared:
    """The store that several homes share one grant in: the rotation is that store's row's."""

    credentials: Credentials  # of the shared store
    home: Home  # of the shared store


class Credentials(Guarded):
    """The credentials of one home. Safe for threads."""

    def __init__(self, core: Core, *, presence: Presence | None = None) -> None:
        """`presence` makes another owner than this process of the leases acquired here; for tests."""
        super().__init__(core)
        self._presence = presence

    @property
    def core(self) -> Core:
        """The engine's side of the store."""
        return self._core

    @property
    def leases(self) -> Leases:
        """The leases under which tokens are rotated."""
        return Leases(self._core, presence=self._presence)

    # --- reading -----------------------------------------------------------------------------------------------

    def get(self, provider: str, id: str) -> Credential:
        """The row. Raises `CredentialNotFound`, also for one of another home, `InvalidInput`."""
        _named(provider, id)
        with self._core.reader() as reader:
            return rows.read(reader, provider, id)

    def all(self, provider: str | None = None) -> list[Credential]:
        """Every credential of a provider, or of all, by provider, priority and name."""
        with self._core.reader() as reader:
            return rows.all_of(reader, provider)

    # --- logging in --------------------------------------------------------------------------------------------

    def log_in(
        self, provider: str, id: str, home: Home, *, secrets: SecretStore, new: Secrets | None = None, auth_type: str,
        label: str = "", source: str = MANUAL, priority: int = 0, base_url: str | None = None, single_use: bool = True,
        shared: Shared | None = None,
    ) -> Credential:
        """Keep a credential: the first of its name, or a new grant for it, whatever its status was. At `power`.

        `new` is stored with `secrets` first; None: `secrets` has it already. What of the extras may be a secret is in
        no row. `single_use`: its refresh tokens work once (False: one that was sent may be sent again). `shared`: the
        store in which homes that share the secret file rotate it. Waits for a rotation that is running. Raises
        `GrantMayBeLost` for a token that was sent before, `SecretMissing`, `LeaseHeld`, `WrongHome`, `HomeRemoved`,
        `InvalidInput`, also for a file that another credential rotates.
        """
        _named(provider, id)
        for name, value, empty in (("auth_type", auth_type, False), ("source", source, False), ("label", label, True)):
            text(name, value, empty=empty, of=" of a credential")
        whole("priority", priority, -(2**31), 2**31)
        self.refuse(home)
        if shared is not None:
            self._refuse_shared(provider, id, source, shared)
        owner = owner_name(home.store_id, provider, id, shared=source == SHARED)
        with self._login_leases(provider, id, source, shared) as held:
            given = secrets.load() if new is None else new
            if given is None or (given.access_token is None and given.refresh_token is None):
                raise SecretMissing(
                    f"There is no token to log in to {provider} credential {id!r} with: {secrets!r} is empty.",
                    hint="Give the new secrets, or write the file first.", path=self._core.path, provider=provider,
                    credential=id,
                )
            if base_url is not None:
                _address(base_url, given)
            if new is not None:
                extra_text(split(new.extra or {}, new)[0])
                if single_use and source != SHARED:
                    owner = self._owner(secrets, owner, shared, provider, id)
            given = given.sorted()
            for group in (self, *(() if shared is None else (shared.credentials,))):
                with group.core.reader() as reader:
                    before = rows.find(reader, provider, id)
                    if before is not None and single_use and before.single_use:
                        rows.refuse_spent(reader, before, given)
            if new is not None:
                given = replace(given, belongs_to=owner)
                secrets.store(given)

            def work(tx: Transaction) -> Credential:
                held.guard(tx)
                return rows.put(
                    tx, provider, id, home=home.store_id, label=label, auth_type=auth_type, source=source,
                    priority=priority, base_url=base_url, single_use=single_use, secrets=given,
                    extra=given.extra or {}, at=self._core.clock.now(),
                )

            return self._write(home, work)

    # --- using -------------------------------------------------------------------------------------------------

    def token(
        self, provider: str, id: str, home: Home, *, secrets: SecretStore, exchange: Exchange,
        rejected: str | None = None, timeout_seconds: float = TIMEOUT_SECONDS, shared: Shared | None = None,
    ) -> Served:
        """A token that can be used now: the one that is there, another process's new one, or a new one got here.

        `rejected`: an access token that the server has refused though it was not due; it is not given again.
        `exchange(grant)` sends `grant.reveal()` and returns its verdict; it is called at most once, outside of any
        transaction, by one process at a time. `timeout_seconds`: how long it takes at most; others wait for
        max(15, that and 5) seconds. `shared`: the store in which homes that share a secret file rotate it.

        Raises `CredentialNotFound` and `SecretMissing` before anybody is asked; `CredentialDead`, `CredentialCooling`,
        `CredentialExpired`; `RotationFailed` (tried again after its rest); `GrantMayBeLost` once a token that works
        once was sent and what came back is not known; `LeaseHeld` (75), `WrongHome`, `HomeRemoved`, `InvalidInput`.
        """
        _named(provider, id)
        if isinstance(timeout_seconds, bool) or not 0 < timeout_seconds <= MOST_TIMEOUT_SECONDS:
            raise InvalidInput(
                f"timeout_seconds is a number above 0 and at most {MOST_TIMEOUT_SECONDS:.0f},"
                f" not {timeout_seconds!r:.40}.",
                argument="timeout_seconds",
            )
        self.refuse(home)
        rank = 1
        with self._core.reader() as reader:
            source = rows.read(reader, provider, id).source
        if source == SHARED:
            rank = 2
        if shared is not None:
            self._refuse_shared(provider, id, source, shared)
        return Asking(
            core=self._core, leases=self.leases, provider=provider, id=id, home=home, secrets=secrets,
            exchange=exchange, rejected=rejected, timeout_seconds=timeout_seconds, shared=shared, rank=rank,
        ).serve()

    def pick(
        self, provider: str, home: Home, *, strategy: Strategy = "fill_first", chance: random.Random | None = None
    ) -> Credential:
        """The credential to use for the next request, counted as used. Raises `CredentialNotFound` when there is none.

        `CredentialCooling` names the first that may be used again, `CredentialDead` one of those that are all dead.
        """
        text("provider", provider, of=" of a credential")
        self.refuse(home)
        now = self._core.clock.now()

        def work(tx: Transaction) -> Credential:
            found = rows.all_of(tx, provider)
            chosen = choose(found, strategy, now=now, chance=chance)
            if chosen is None:
                raise self._nothing_usable(provider, found, now)
            rows.count_use(tx, chosen)
            return chosen

        return self._write(home, work, power=False)

    def report(
        self, provider: str, id: str, home: Home, *, code: str | int | None = None, reason: str | None = None,
        message: str | None = None, reset_at: float | None = None, access_token: str | None = None,
    ) -> Credential:
        """What a request with it came to: nothing given is success, else it rests, at `power` when that changes it.

        `code`: the HTTP status: 401 rests 5 minutes, all else 1 hour, unless `reset_at` (epoch seconds UTC, the
        provider's word) is later than now. `access_token`: the one that was used; a report about one that has been
        replaced changes nothing. No part of it may be in `reason` and `message`: the parts that are, are left out.
        """
        _named(provider, id)
        checked_moment("reset_at", reset_at)
        self.refuse(home)
        used = Secrets(access_token=access_token)
        failed = any(one is not None for one in (code, reason, message, reset_at))
        at = self._core.clock.now()

        def work(tx: Transaction) -> Credential:
            row = rows.read(tx, provider, id)
            if access_token is not None and not same(row.access_digest, row.digest(access_token)):
                return row
            if not failed and row.status is Status.OK and row.error_code is None:
                return row
            rows.judge(
                tx, row, Event.LIMIT if failed else Event.WORK, code=used.without(None if code is None else str(code)),
                reason=used.without(reason), message=used.without(message),
                reset_at=rest_until(at, code, reset_at) if failed else None, at=at,
            )
            return rows.read(tx, provider, id)

        return self._write(home, work)

    # --- ending ------------------------------------------------------------------------------------------------

    def remove(self, provider: str, id: str, home: Home, *, actor: str, reason: str) -> None:
        """Forget a credential, at `power`, with a line in the ledger of deletions; the secret file is the caller's."""
        _named(provider, id)
        self.refuse(home)

        def work(tx: Transaction) -> None:
            _delete(tx, [rows.read(tx, provider, id)], actor=actor, reason=reason, at=self._core.clock.now())

        self._write(home, work)

    def prune(self, home: Home, *, actor: str) -> list[Credential]:
        """Forget those that a person added and that have been dead for a day; returns them."""
        self.refuse(home)
        at = self._core.clock.now()

        def work(tx: Transaction) -> list[Credential]:
            gone = [
                row for row in rows.all_of(tx)
                if row.status is Status.DEAD and row.source == MANUAL and at - row.status_at >= DEAD_KEPT_SECONDS
            ]
            if gone:
                _delete(tx, gone, actor=actor, reason="dead for a day", at=at)
            return gone

        return self._write(home, work)

    # --- inside ------------------------------------------------------------------------------------------------

    def _refuse_shared(self, provider: str, id: str, source: str, shared: Shared) -> None:
        if shared.credentials.core.path == self._core.path:
            raise InvalidInput(
                f"The shared store is the home's own, {self._core.path}.", hint="Leave `shared` out.",
                argument="shared",
            )
        shared.credentials.refuse(shared.home)
        if source == SHARED:
            raise InvalidInput(
                f"{provider} credential {id!r} of {self._core.path} is itself shared.",
                hint="The store that homes share asks nobody else.", argument="shared",
            )

    @contextmanager
    def _login_leases(self, provider: str, id: str, source: str, shared: Shared | None) -> Iterator[Lease]:
        """The lease of the credential, and that of the shared store after it: whoever rotates has one of them."""
        name, wait = rows.lease_name(provider, id), wait_of(TIMEOUT_SECONDS)
        with ExitStack() as opened:
            taken = [(2 if source == SHARED else 1, self.leases)]
            taken += [] if shared is None else [(2, shared.credentials.leases)]
            held = []
            for rank, leases in taken:
                opened.enter_context(in_order(rank, name))
                held.append(opened.enter_context(
                    leases.acquire(name, term_seconds=2 * wait, wait_seconds=wait, note={"purpose": "login"})
                ))
            yield held[0]

    def _owner(self, secrets: SecretStore, own: str, shared: Shared | None, provider: str, id: str) -> str:
        """Who rotates the file from now on. Raises `InvalidInput` for a shared store that the caller did not name."""
        try:
            there = secrets.load()
        except SecretFileRefused:
            there = None  # a new login writes it anew
        mine = own if shared is None else owner_name(shared.home.store_id, provider, id, shared=True)
        before = None if there is None else there.belongs_to
        if is_shared_owner(before) and before != mine:
            raise InvalidInput(
                f"The secrets in {secrets!r} are rotated by {before}, and this login is of {mine}.",
                hint="Give `shared=`, with the store that homes share; if that store is gone, move the secrets aside.",
                argument="secrets",
            )
        return mine

    def _nothing_usable(self, provider: str, found: list[Credential], now: float) -> Exception:
        resting = [row for row in found if row.cooling(now)]
        if resting:
            first: CredentialCooling = cooling(self._core, min(resting, key=lambda row: row.reset_at or now))
            return first
        lost = [row for row in found if row.status is not Status.DEAD]
        if lost:
            return rows.may_be_lost(self._core.path, lost[0], "its token was sent, and what came back was not kept")
        if found:
            return dead(self._core, found[0])
        return CredentialNotFound(
            f"{self._core.path} has no credential of {provider}; the provider was not asked.",
            hint="Log in in this home; a credential of another home is not used here.", path=self._core.path,
            provider=provider, credential=None,
        )


def _named(provider: str, id: str) -> None:
    for name, value in (("provider", provider), ("id", id)):
        text(name, value, of=" of a credential")


def _address(base_url: str, given: Secrets) -> None:
    text("base_url", base_url, most=MOST_ADDRESS, of=" of a credential")
    if not is_address(base_url) or mentions(base_url, given):
        raise InvalidInput("base_url of a credential is an address without a password or token.", argument="base_url")


def _delete(tx: Transaction, gone: list[Credential], *, actor: str, reason: str, at: float) -> None:
    keys = [f"{row.provider}/{row.id}" for row in gone]
    tx.executemany("DELETE FROM credentials WHERE provider = ? AND id = ?", [(row.provider, row.id) for row in gone])
    deletions.record(tx, actor=actor, reason=reason, kind="credential", keys=keys, rows=len(gone), at=at)
    for key in keys:
        record(tx, "credentials", key, "delete", at)
