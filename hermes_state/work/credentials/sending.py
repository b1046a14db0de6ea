"""One refresh token is sent once: the marker, the exchange, and keeping what comes back, whatever hinders it.

Invariant: once the provider has given a new token, it is written to the secret file unless somebody has written a newer
one there; nothing that goes wrong here (a file that others can read now, a full disk, a lease that ran out) throws it
away, short of the end of the lease. What an exchange says that sent nothing is written only while the row has the
tokens that it began with.

Not for: deciding whether to send (see `rotation`). Reading the file as a condition of keeping the answer was rejected:
the row says as well whether a login came between, and cannot be made unreadable by a `chmod`.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hermes_state.errors import (
    CredentialExpired,
    GrantMayBeLost,
    InvalidInput,
    LeaseLost,
    RotationFailed,
    SecretFileRefused,
    StaleFence,
    StateError,
)
from hermes_state.work.credentials import rows
from hermes_state.work.credentials.answers import MOST_OTHERS_BYTES, merged
from hermes_state.work.credentials.grants import Grant
from hermes_state.work.credentials.records import SHARED, Credential, Served, owner_name
from hermes_state.work.credentials.secrets import MOST_EXTRA_BYTES, Secrets, mentions
from hermes_state.work.credentials.states import UNAUTHORISED_SECONDS, UNSENT_SECONDS, Event, Rotation, rest_until
from hermes_state.work.credentials.verdicts import Ended, Postponed, Rotated, Unsure, Verdict

if TYPE_CHECKING:
    from hermes_state.engine import Transaction
    from hermes_state.leases import Lease
    from hermes_state.work.credentials.rotation import Asking

# With less of the term left than this, an answer is not kept before the lease is had anew.
_LEAST_LEFT_SECONDS = 1.0
# Seconds between two tries to write the secret file; doubles.
_FIRST_NAP, _LONGEST_NAP = 0.05, 1.0
# For so long without a lease, which could not be had.
_WITHOUT_LEASE_SECONDS = 5.0


class Sending:
    """One exchange, under one lease. Of one thread."""

    def __init__(self, asking: Asking, lease: Lease, row: Credential, secrets: Secrets) -> None:
        # Sorted, because another program may have left a secret among the extras of the file.
        self._asking, self._lease, self._row, self._secrets = asking, lease, row, secrets.sorted()
        self._sent_at = self._marked_at = 0.0
        self._grant = Grant(row, self._secrets, self._mark)
        self._owner = owner_name(row.home, row.provider, row.id, shared=row.source == SHARED)

    def run(self) -> Served | None:
        """Send the token and keep what comes back; None when the row is somebody else's by now: look again."""
        self._refuse_anothers()
        try:
            return self._run()
        finally:
            release = getattr(self._asking.secrets, "release", None)
            if release is not None:
                release()

    def _run(self) -> Served | None:
        grant = self._grant
        verdict: Any
        try:
            verdict = self._asking.exchange(grant)
        except (LeaseLost, StaleFence, GrantMayBeLost):
            if grant.revealed:
                self._fail(Unsure(reason="the exchange lost its lease"))
            raise
        except Exception as error:
            return self._fail(Unsure(reason=f"the exchange ended with {type(error).__name__}"), error)
        except BaseException as error:
            if grant.revealed:
                self._settle(Unsure(reason=f"the exchange ended with {type(error).__name__}"))
            raise
        if isinstance(verdict, Mapping):  # the answer itself: what it has may not be lost for that
            verdict = Rotated.of(verdict, now=self._asking.now()) or Unsure(reason="an answer without a token")
        if not isinstance(verdict, Verdict):
            if inspect.iscoroutine(verdict):
                verdict.close()
            if grant.revealed:
                self._settle(Unsure(reason="the exchange gave no verdict"))
            raise InvalidInput(
                f"An exchange of {self._row.provider} gave {type(verdict).__name__}, which is no verdict.",
                hint="Give Rotated, Ended, Postponed, Unsure or None, from a plain function.", argument="exchange",
            )
        return self._keep(verdict) if isinstance(verdict, Rotated) else self._fail(verdict)

    def _refuse_anothers(self) -> None:
        """Refuse a file that another row rotates, unless that one was of this store and is gone."""
        owner, row, asking = self._secrets.belongs_to, self._row, self._asking
        if owner in (None, self._owner) or not row.single_use or row.source == SHARED:
            return
        with asking.core.reader() as reader:
            here = {owner_name(one.home, one.provider, one.id) for one in rows.all_of(reader)}
        assert owner is not None
        if owner.startswith(f"{row.home}/") and owner not in here:
            return
        raise InvalidInput(
            f"The secrets in {asking.secrets!r} are rotated by {owner} and not by {row.provider} credential"
            f" {row.id!r} of {asking.core.path}.",
            hint="Give `shared=`, or log in with a file of its own: two that send one token burn it.",
            argument="secrets",
        )

    def _mark(self) -> None:
        asking, token = self._asking, self._secrets.refresh_token
        assert token is not None
        reserve = getattr(asking.secrets, "reserve", None)
        if reserve is not None:
            reserve()  # a full disk is told now
        self._marked_at = asking.now()
        asking.write(
            functools.partial(rows.mark, row=self._row, token=token, fence=self._lease.fence, at=self._marked_at),
            self._lease,
        )
        self._sent_at = asking.core.clock.monotonic()

    # --- a new token -------------------------------------------------------------------------------------------

    def _keep(self, verdict: Rotated) -> Served | None:
        if _left(self._lease) >= _LEAST_LEFT_SECONDS:
            return self._keep_held(verdict, self._lease)
        # It took longer than the lease. Nobody else sends the token, but somebody may log in: first have it again.
        from hermes_state.work.credentials.rotation import LEAST_WAIT_SECONDS, wait_of

        try:
            again = self._asking.lease(self._lease.name, LEAST_WAIT_SECONDS, wait_of(self._asking.timeout_seconds))
        except StateError:
            return self._keep_held(verdict, None)  # the row says whether somebody has logged in
        with again:
            return self._keep_held(verdict, again)

    def _keep_held(self, verdict: Rotated, lease: Lease | None) -> Served | None:
        asking, row, new = self._asking, self._row, self._new(verdict)
        assert new.access_token is not None
        if self._is_overtaken():
            return None
        error = self._store(new, lease)
        if error is not None:
            why = type(error).__name__ if not isinstance(error, OSError) else error.strerror or type(error).__name__
            return self._fail(Unsure(reason=f"a new token came, and the secret file cannot be written: {why}"), error)
        window = asking.core.clock.monotonic() - self._sent_at if self._grant.revealed else None
        base_url = verdict.base_url if not mentions(verdict.base_url or "", self._secrets, new) else None

        def work(tx: Transaction) -> None:
            if not self._grant.revealed:  # the exchange knew the token from elsewhere: there is no marker to go by
                rows.adopt(tx, rows.read(tx, row.provider, row.id), new, at=asking.now())
                return
            rows.rotated(tx, row, new, fence=self._lease.fence, base_url=base_url, at=asking.now())

        asking.write(work)
        if new.expires_at is not None and new.expires_at <= asking.now():
            self._rest_over()
            raise CredentialExpired(
                f"The new token of {row.provider} credential {row.id!r} in {asking.core.path} is over already; it is"
                " kept and not used.", hint="Compare this machine's clock with the provider's.",
                path=asking.core.path, provider=row.provider, credential=row.id, expired_at=new.expires_at,
            )
        return Served(
            access_token=new.access_token, agent_key=new.agent_key, base_url=base_url or row.base_url,
            expires_at=new.expires_at, how="rotated", fence=self._lease.fence, window_seconds=window,
        )

    def _new(self, verdict: Rotated) -> Secrets:
        before, row, now = self._secrets, self._row, self._asking.now()
        going_on = None if verdict.ended_refresh else before.refresh_token
        others = dict(verdict.others)
        if verdict.base_url is not None and mentions(
            verdict.base_url, before, Secrets(access_token=verdict.access_token, refresh_token=verdict.refresh_token)
        ):
            others["base_url"] = verdict.base_url
        new = Secrets(
            access_token=verdict.access_token, refresh_token=verdict.refresh_token or going_on,
            agent_key=verdict.agent_key or before.agent_key,
            others=merged(before.others, others, MOST_OTHERS_BYTES, newest_first=False),
            expires_at=verdict.expires_at, agent_key_expires_at=(
                row.agent_key_expires_at if verdict.agent_key is None else verdict.agent_key_expires_at
            ),
            # Always later than the marker, also by a clock that was set back: that is how a copy is told from it.
            written_at=max(now, math.nextafter(self._marked_at, math.inf)), belongs_to=self._owner,
            extra=verdict.extra,
        ).sorted(before)
        return new.keeping(merged(row.extra, new.extra or {}, MOST_EXTRA_BYTES, newest_first=True))

    def _is_overtaken(self) -> bool:
        """Whether the row or the file has newer tokens than the answer in hand: a login's, or another program's."""
        row = self._row
        try:
            with self._asking.core.reader() as reader:
                now = rows.find(reader, row.provider, row.id)
        except StateError:  # a store that cannot be read now: then the file says it
            return not self._has_what_was_sent()
        if now is None:
            return True
        if self._grant.revealed:
            if now.rotation is Rotation.WHOLE or now.rotation_fence != self._lease.fence:
                return True
        elif now.rotation_fence != row.rotation_fence or now.refresh_digest != row.refresh_digest:
            return True
        try:
            there = self._asking.secrets.load()
        except (OSError, SecretFileRefused):
            return False  # the row says that nobody came between
        token = None if there is None else there.refresh_token
        return token is not None and token != self._secrets.refresh_token and not now.has_spent(token)

    def _has_what_was_sent(self) -> bool:
        there = self._asking.secrets.load()
        return there is not None and there.refresh_token == self._secrets.refresh_token

    def _store(self, new: Secrets, lease: Lease | None) -> Exception | None:
        """Write the file, again and again while the lease lasts; what the last try came to."""
        clock, nap = self._asking.core.clock, _FIRST_NAP
        deadline = clock.monotonic() + _WITHOUT_LEASE_SECONDS
        while True:
            try:
                self._asking.secrets.store(new)
                return None
            except Exception as error:  # whatever it is, the answer is in nobody else's hand
                left = deadline - clock.monotonic() if lease is None else _left(lease) - _LEAST_LEFT_SECONDS
                if left < nap:
                    return error
            clock.sleep(nap)
            nap = min(2 * nap, _LONGEST_NAP)

    def _rest_over(self) -> None:
        """A token that was over when it came is not asked for again at once."""
        at = self._asking.now()
        self._asking.write(lambda tx: rows.judge(
            tx, rows.read(tx, self._row.provider, self._row.id), Event.LIMIT, code=None,
            reason="the new token was over when it came", message=None, reset_at=at + UNAUTHORISED_SECONDS, at=at,
        ))

    # --- none --------------------------------------------------------------------------------------------------

    def _fail(
        self, verdict: Ended | Postponed | Unsure | None, cause: BaseException | None = None
    ) -> Served | None:
        """Say what an exchange without a new token means; None when others have changed the row: look again."""
        asking = self._asking
        if isinstance(cause, Exception) and not self._grant.revealed:
            served = self._go_on(verdict)
            if served is not None:
                return served
        settled = self._settle(verdict)
        if settled is None:
            return None
        event, lost, until, why = settled
        with asking.core.reader() as reader:
            now = rows.read(reader, asking.provider, asking.id)
        if event is Event.END:
            from hermes_state.work.credentials.rotation import dead

            raise dead(asking.core, now) from cause
        if lost:
            raise rows.may_be_lost(asking.core.path, now, why) from cause
        raise RotationFailed(
            f"No new token for {asking.provider} credential {asking.id!r} in {asking.core.path}: {why}.",
            hint="It is tried again after its rest; other credentials of the provider can be used meanwhile.",
            path=asking.core.path, provider=asking.provider, credential=asking.id, retry_at=until,
        ) from cause

    def _go_on(self, verdict: Ended | Postponed | Unsure | None) -> Served | None:
        """The token that is there, where nothing was sent and it still works; the row says why, and until when."""
        at, row, secrets = self._asking.now(), self._row, self._secrets
        token = secrets.access_token
        if token is None or token == self._asking.rejected or not row.works(at):
            return None
        why = self._why(verdict)
        if not self._asking.write(lambda tx: rows.wait(tx, row, until=at + UNSENT_SECONDS, reason=why, at=at)):
            return None
        return Served(
            access_token=token, agent_key=secrets.agent_key, base_url=row.base_url, expires_at=row.expires_at,
            how="current", fence=row.rotation_fence, window_seconds=None,
        )

    def _why(self, verdict: Ended | Postponed | Unsure | None) -> str:
        reason = "it gave nothing" if verdict is None else verdict.reason
        return self._secrets.without(reason) or "no reason was given"

    def _settle(
        self, verdict: Ended | Postponed | Unsure | None
    ) -> tuple[Event, bool, float | None, str] | None:
        """Write what an exchange that gave no token means; None when others have changed the row."""
        at, revealed = self._asking.now(), self._grant.revealed
        code = verdict.code if isinstance(verdict, (Ended, Postponed)) else None
        why = self._why(verdict)
        event = Event.END if isinstance(verdict, Ended) else Event.LIMIT
        unsure = verdict is None or isinstance(verdict, Unsure)
        lost = self._row.single_use and revealed and unsure
        until = None
        if event is not Event.END:
            until = at + UNSENT_SECONDS if unsure and not revealed else rest_until(
                at, code, verdict.reset_at if isinstance(verdict, Postponed) else None
            )
        written = self._asking.write(lambda tx: rows.came_to_nothing(
            tx, self._row, event, fence=self._lease.fence if revealed else None,
            code=self._secrets.without(None if code is None else str(code), most=100), reason=why, reset_at=until,
            lost=lost, at=at,
        ))
        return (event, lost, until, why) if written else None


def _left(lease: Lease) -> float:
    """Seconds of the lease that are left; 0 where the store does not say."""
    with contextlib.suppress(StateError):
        return lease.expires_in_seconds()
    return 0.0
