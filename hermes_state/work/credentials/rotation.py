"""One process gets the token of a credential: it is there, somebody else got it, or it is got now.

Invariant: nothing of the provider's or of the secret file happens in a transaction. The order is: lease, read again,
marker, exchange, secret file, row, release; each step leaves what the next owner needs to go on or to know that it must
not. Two leases are only ever taken in one order: that of the home, then that of the store which homes share.

Not for: deciding (see `states`). Holding the write lock of the store over the exchange was rejected: everybody else of
the home would wait for the network.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeVar

from hermes_state.errors import (
    CredentialCooling,
    CredentialDead,
    CredentialExpired,
    InvalidInput,
    LeaseHeld,
    RotationFailed,
    SecretMissing,
)
from hermes_state.routing.homes import Home, guard
from hermes_state.work.credentials import rows
from hermes_state.work.credentials.records import Credential, Served
from hermes_state.work.credentials.secrets import Secrets
from hermes_state.work.credentials.sending import Sending
from hermes_state.work.credentials.states import WITH_LEASE, Event, Held, Rotation, Situation, Step, decide

if TYPE_CHECKING:
    from hermes_state.engine import Transaction
    from hermes_state.engine.core import Core
    from hermes_state.leases import Lease, Leases
    from hermes_state.work.credentials.credentials import Shared
    from hermes_state.work.credentials.secret_file import SecretStore
    from hermes_state.work.credentials.verdicts import Exchange

Result = TypeVar("Result")

# Least seconds that one waits for the lease, and that it lasts; beyond it the exchange's own time and a reserve.
LEAST_WAIT_SECONDS = 15.0
RESERVE_SECONDS = 5.0
# While somebody else has the lease, the token is looked at after these, doubling: eight that wait need no lease each.
_LOOK_AGAIN_SECONDS, _LONGEST_LOOK_SECONDS = 0.05, 0.25
# Looks under one lease; each but the last one changes the row, and a program that writes the file all the time ends it.
_MOST_LOOKS = 8

_here = threading.local()


def wait_of(timeout_seconds: float) -> float:
    """Seconds for which one waits for the lease: the larger of 15 and the exchange's time and 5 more."""
    return max(LEAST_WAIT_SECONDS, timeout_seconds + RESERVE_SECONDS)


@contextmanager
def in_order(rank: int, name: str) -> Iterator[None]:
    """Refuse a lease that this thread may not take now: own (1) before shared (2), and one of each."""
    held: list[int] = getattr(_here, "ranks", [])
    if held and rank <= held[-1]:
        raise InvalidInput(
            f"This thread asked for {name} while it rotates another credential.",
            hint="Ask for one token after the other, not from within an exchange: two could wait for each other.",
            name=name,
        )
    _here.ranks = [*held, rank]
    try:
        yield
    finally:
        _here.ranks = held


@dataclass(frozen=True, kw_only=True)
class Asking:
    """One call for a token, and everything that it was given."""

    core: Core
    leases: Leases
    provider: str
    id: str
    home: Home
    secrets: SecretStore
    exchange: Exchange
    rejected: str | None = field(repr=False)  # an access token that the server has refused
    timeout_seconds: float
    shared: Shared | None
    rank: int  # 1: the home's own lease, 2: that of the shared store

    def serve(self) -> Served:
        """The token. See `Credentials.token` for what is raised."""
        clock, name, wait = self.core.clock, rows.lease_name(self.provider, self.id), wait_of(self.timeout_seconds)
        term = wait if self.shared is None else 2 * wait + RESERVE_SECONDS
        deadline, pause = clock.monotonic() + wait, _LOOK_AGAIN_SECONDS
        while True:
            row, secrets, step = self._look()
            if step not in WITH_LEASE:  # mostly: it is good, or whoever had the lease has just got it
                return self._act(row, secrets, step, how="current")
            with in_order(self.rank, name):
                left = deadline - clock.monotonic()
                try:
                    lease = self.lease(name, term, max(min(pause, left), 0.0))
                except LeaseHeld:
                    if left <= pause:
                        raise
                    pause = min(2 * pause, _LONGEST_LOOK_SECONDS)
                    continue
                with lease:
                    return self._under(lease)

    def _under(self, lease: Lease) -> Served:
        how: Literal["current", "adopted"] = "current"
        got: Served | None = None
        for _ in range(_MOST_LOOKS):
            row, secrets, step = self._look()
            if step is Step.ADOPT:
                assert secrets is not None
                self.write(functools.partial(rows.adopt, row=row, secrets=secrets, at=self.now()), lease)
                how = "adopted"
            elif step is Step.LOSE:
                self.write(functools.partial(rows.lose, row=row, at=self.now()), lease)
            elif step is Step.POST and self.shared is not None:
                if got is not None and secrets is not None and got.access_token == secrets.access_token:
                    return replace(got, how=how, fence=row.rotation_fence, window_seconds=None)  # there is none newer
                got = self._share(row, lease)
            elif step is Step.POST:
                assert secrets is not None
                served = Sending(self, lease, row, secrets).run()
                if served is not None:
                    return served
            else:
                return self._act(row, secrets, step, how=how)
        raise RotationFailed(
            f"The secrets of {self.provider} credential {self.id!r} changed {_MOST_LOOKS} times while they were read.",
            hint="Something else writes them all the time: stop it.", path=self.core.path, provider=self.provider,
            credential=self.id, retry_at=self.now(),
        )

    # --- looking -----------------------------------------------------------------------------------------------

    def _look(self) -> tuple[Credential, Secrets | None, Step]:
        # The row first: a file that was written in between is newer than it, which is only ever looked at again.
        with self.core.reader() as reader:
            row = rows.read(reader, self.provider, self.id)
        secrets, now = self.secrets.load(), self.now()
        held = row.held(secrets)
        token = None if secrets is None else secrets.access_token
        return row, secrets, decide(Situation(
            held=held, status=row.status, cooling=row.cooling(now),
            rotation=row.rotation if row.single_use else Rotation.WHOLE,
            usable=token is not None and token != self.rejected and not row.due(now),
            renewable=secrets is not None and secrets.refresh_token is not None,
        ))

    def _act(
        self, row: Credential, secrets: Secrets | None, step: Step, *, how: Literal["current", "adopted"]
    ) -> Served:
        if step is Step.SERVE:
            assert secrets is not None and secrets.access_token is not None
            return Served(
                access_token=secrets.access_token, agent_key=secrets.agent_key, base_url=row.base_url,
                expires_at=row.expires_at, how=how, fence=row.rotation_fence, window_seconds=None,
            )
        if step is Step.LOST:
            if row.held(secrets) is Held.SPENT:
                why = "the secret file has a token that is spent, as an old copy of it would"
            else:
                why = "its token was sent, and whoever sent it did not keep what came back"
            raise rows.may_be_lost(self.core.path, row, why)
        if step is Step.DEAD:
            raise dead(self.core, row)
        if step is Step.COOLING:
            raise cooling(self.core, row)
        facts = {"path": self.core.path, "provider": self.provider, "credential": self.id}
        if step is Step.MISSING:
            raise SecretMissing(
                f"{self.provider} credential {self.id!r} of {self.core.path} has no secrets: {self.secrets!r} is"
                " empty.",
                hint="Log in anew.", **facts,
            )
        raise CredentialExpired(
            f"The token of {self.provider} credential {self.id!r} in {self.core.path} is over, and it has none to get"
            " another one with.", hint="Log in anew.", expired_at=row.expires_at, **facts,
        )

    def _share(self, row: Credential, lease: Lease) -> Served:
        """Let the shared store rotate; what it keeps in the file is adopted at the next look."""
        assert self.shared is not None
        asking = replace(
            self, core=self.shared.credentials.core, leases=self.shared.credentials.leases, home=self.shared.home,
            shared=None, rank=self.rank + 1,
        )
        try:
            return asking.serve()
        except CredentialDead as error:
            reason = str(error.facts.get("reason", ""))
            self.write(lambda tx: rows.came_to_nothing(
                tx, row, Event.END, fence=None, code=None, reason=reason, reset_at=None, lost=False, at=self.now()
            ), lease)
            raise

    # --- inside ------------------------------------------------------------------------------------------------

    def lease(self, name: str, term: float, wait: float) -> Lease:
        """The lease of that name, waited for."""
        return self.leases.acquire(
            name, term_seconds=term, wait_seconds=wait, note={"purpose": "token rotation"}
        )

    def now(self) -> float:
        """Epoch seconds UTC."""
        return self.core.clock.now()

    def write(self, work: Callable[[Transaction], Result], lease: Lease | None = None) -> Result:
        """Write for the home, at `power`, and under the lease where it is given."""

        def guarded(tx: Transaction) -> Result:
            guard(tx, self.home)
            if lease is not None:
                lease.guard(tx)
            return work(tx)

        return self.core.write(guarded, durability="power")


def dead(core: Core, row: Credential) -> CredentialDead:
    """The error of a grant that the provider has ended."""
    reason = " ".join(part for part in (row.error_reason, row.error_code) if part)
    return CredentialDead(
        f"The grant of {row.provider} credential {row.id!r} in {core.path} is over:"
        f" {reason or 'the provider said so'}.",
        hint="Log in anew; until then it is not used.", path=core.path, provider=row.provider, credential=row.id,
        reason=reason,
    )


def cooling(core: Core, row: Credential) -> CredentialCooling:
    """The error of a credential that rests."""
    reason = " ".join(part for part in (row.error_reason, row.error_code) if part)
    return CredentialCooling(
        f"{row.provider} credential {row.id!r} in {core.path} rests until {row.reset_at:.0f} (epoch seconds UTC)"
        f"{f': {reason}' if reason else ''}.",
        hint="Use another credential of the provider, or wait.", path=core.path, provider=row.provider,
        credential=row.id, retry_at=row.reset_at,
    )
