"""`store.work.logins`: sign-ins that are begun in a chat and end somewhere else.

Invariant: one attempt waits at a time, in a home and in a process. The same person's next one supersedes it, another
person's is refused. Whether an attempt is still wanted is read from its row, so that whoever waits in a thread or in
another process learns it. What the server has granted is completed, at the next boot if need be, whatever became of
the attempt meanwhile. Codes, links and tokens are never given to anything here.

Not for: the sign-in and its secrets, which are the caller's: they stay in its memory and its secret file. Storing what
a code is waited for with was rejected: a copy of the store would be a key.
"""

from __future__ import annotations

import os
import secrets
import threading
import weakref
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_state.changes.records import record
from hermes_state.errors import InvalidInput, LoginRefused
from hermes_state.leases import Leases
from hermes_state.outbox.inputs import LATEST, moment, seconds, whole
from hermes_state.owners import OwnerIdentity, provably_dead
from hermes_state.owners.presence import presence_of
from hermes_state.routing.homes import Home, guard, refuse_other_home
from hermes_state.routing.identity import Source
from hermes_state.work import callbacks, login_rows
from hermes_state.work.login_rows import Attempt
from hermes_state.work.login_states import ENDING, LIVE, Failure, LoginEvent, LoginRefusal, LoginState, refusal
from hermes_state.work.sweeping import CachedAgent, GuestModel, Swept, sweep
from hermes_state.work.timed import Timed

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction

# How long one process may take to complete a sign-in: writing a secret file and clearing overrides.
COMPLETE_SECONDS = 300.0
KEPT_SECONDS = 30 * 86_400.0
# How long it may take until a code is there, and until a worker whose code ran out says so: a request of 15 s each, the
# seed's program's time for one, with room.
LONGEST_START_SECONDS, LAST_WORD_SECONDS = 120.0, 60.0
MOST_PAGE = 1000

_HINTS = {
    LoginRefusal.NOT_A_DM: "Begin it in a direct conversation with the bot: what is posted elsewhere is published.",
    LoginRefusal.NOT_ALLOWED: "Ask an administrator of the bot.",
    LoginRefusal.BUSY: "Wait until that attempt ended; its code runs out by itself.",
    LoginRefusal.BUSY_ELSEWHERE: "Wait until that attempt ended: a process has one at a time.",
    LoginRefusal.TRANSFERRED: "Complete it with finish(); store.work.logins.recover() gives it again, at any time.",
}


@dataclass(frozen=True, kw_only=True)
class Completed:
    """A sign-in that is done."""

    attempt: Attempt
    swept: Swept


class Logins(Timed):
    """The login attempts of one home. Safe for threads."""

    # --- an attempt --------------------------------------------------------------------------------------------

    def begin(self, source: Source, home: Home, *, admins: Collection[str] | None = None) -> Attempt:
        """Begin a sign-in from a direct conversation, at `power`; give its id to whoever waits for the server.

        An attempt of the same person in the same chat is superseded: `is_wanted` of it is false from now on; so is one
        of a process that is gone, or whose code ran out a minute ago without a word. `admins`: who may, by user id;
        None or empty: whoever may write to the bot. Raises `LoginRefused`, `WrongHome`,
        `HomeRemoved`.
        """
        core = self._core
        refuse_other_home(core, home)
        identity = source.platform, source.chat_id, source.user_id
        why = refusal(source, admins)
        if why is not None:
            raise self._refused(why)
        owner = presence_of(core.path.parent, clock=core.clock).identity.to_json()
        with core.reader() as reader:
            gone = {one.attempt_id for one in login_rows.open_ones(reader) if self._is_gone(one)}
        attempt_id, at = secrets.token_hex(8), core.clock.now()

        def work(tx: Transaction) -> Attempt:
            guard(tx, home)
            there = login_rows.open_ones(tx)
            granted = next((one for one in there if one.state is LoginState.TRANSFERRED), None)
            if granted is not None:
                raise self._refused(LoginRefusal.TRANSFERRED, granted.attempt_id)
            for one in there:
                if one.state in LIVE:
                    if one.identity != identity and one.attempt_id not in gone and not _lapsed(one, at):
                        raise self._refused(LoginRefusal.BUSY)
                    login_rows.move(tx, one, LoginEvent.SUPERSEDE, at=at)
            return login_rows.insert(tx, attempt_id, home.store_id, identity, owner, at=at)

        with _LOCK:
            if _of_process.is_live_elsewhere(self):
                raise self._refused(LoginRefusal.BUSY_ELSEWHERE)
            made = core.write(work, durability="power")
            _of_process.keep(self, made.attempt_id)
        return made

    def is_wanted(self, attempt_id: str) -> bool:
        """Whether its worker is to go on; ask at least once a second. False: stop waiting, and say `ended`.

        Raises `LoginNotFound`.
        """
        with self._core.reader() as reader:
            return login_rows.need(reader, attempt_id).state in (*LIVE, LoginState.TRANSFERRED)

    def code_shown(self, attempt_id: str, home: Home, *, expires_at: float) -> Attempt:
        """Its person was sent link and code, which run out at `expires_at` (epoch seconds UTC). Raises `LoginEnded`."""
        return self._move(attempt_id, home, LoginEvent.SHOW_CODE, expires_at=moment("expires_at", expires_at))

    def waiting(self, attempt_id: str, home: Home) -> Attempt:
        """The server is asked whether the person approved. Raises `LoginEnded`."""
        return self._move(attempt_id, home, LoginEvent.WAIT)

    def transferred(self, attempt_id: str, home: Home) -> Attempt:
        """The server granted it, at `power`; also when it was superseded or cancelled meanwhile. Then call `finish`.

        Another attempt that waits fails: its home is signed in. Raises `LoginEnded` for one that ended.
        """
        def work(tx: Transaction, at: float) -> Attempt:
            made = login_rows.move(tx, login_rows.need(tx, attempt_id), LoginEvent.TRANSFER, at=at)
            for one in login_rows.open_ones(tx):
                if one.attempt_id != attempt_id and one.state in LIVE:
                    login_rows.move(tx, one, LoginEvent.FAIL, at=at, reason=str(Failure.SIGNED_IN))
            return made

        return self._write_at(home, work)

    def failed(self, attempt_id: str, home: Home, why: Failure) -> Attempt:
        """It failed, for one of a few reasons; what the server said is not kept. Raises `LoginEnded`."""
        if not isinstance(why, Failure):
            raise InvalidInput(  # without the value: it may have the code in it
                "Why a login failed is one of the words of Failure.", hint=f"They are {', '.join(Failure)}.",
                argument="why",
            )
        return self._move(attempt_id, home, LoginEvent.FAIL, reason=str(why))

    def expired(self, attempt_id: str, home: Home) -> Attempt:
        """Its code ran out. Raises `LoginEnded`."""
        return self._move(attempt_id, home, LoginEvent.EXPIRE)

    def ended(self, attempt_id: str, home: Home) -> Attempt:
        """The last word of a worker that stopped waiting: the server had granted nothing. Raises `LoginEnded`."""
        return self._move(attempt_id, home, LoginEvent.END)

    def shutdown(self, home: Home) -> list[Attempt]:
        """This process stops: cancel its attempts that wait. They push nothing; gives them as they are now.

        Their workers say `ended`, or `transferred` when the server had granted it by then.
        """
        mine = presence_of(self._core.path.parent, clock=self._core.clock).identity.to_json()

        def work(tx: Transaction, at: float) -> list[Attempt]:
            return [
                login_rows.move(tx, one, LoginEvent.CANCEL, at=at, quiet=1)
                for one in login_rows.open_ones(tx)
                if one.owner == mine and one.state in (*LIVE, *ENDING)
            ]

        return self._write_at(home, work)

    # --- completing --------------------------------------------------------------------------------------------

    def finish(
        self, attempt_id: str, home: Home, *, persist: Callable[[Attempt], None], guest: GuestModel,
        cached: Iterable[CachedAgent] = (), evict: Callable[[str], None] | None = None,
    ) -> Completed:
        """Complete what was transferred: keep the account, let every chat leave the guests' model, say that it is done.

        `persist(attempt)`, a plain function, writes the account into the caller's secret file and settings; a kill may
        make it be called again, so it does the same then. Overrides are cleared before agents are evicted; how many
        chats kept theirs is counted in the attempt. What `persist` raises leaves the attempt transferred: mend it and
        call this again, with what `recover` gives. One process at a time: raises `LeaseHeld`, and `InvalidInput`,
        `LoginEnded`, `LoginNotFound`, `WrongHome`, `HomeRemoved`.
        """
        core = self._core
        refuse_other_home(core, home)
        callbacks.plain("persist", persist)
        callbacks.plain("evict", evict)
        with Leases(core).acquire("login", term_seconds=COMPLETE_SECONDS) as lease:
            with core.reader() as reader:
                attempt = login_rows.need(reader, attempt_id)
            swept = Swept(cleared=(), evicted=())
            if attempt.state is LoginState.TRANSFERRED:
                callbacks.run("persist", persist, attempt)
                swept = sweep(core, home, guest, cached=cached, evict=evict)

            def work(tx: Transaction, at: float) -> Attempt:
                lease.guard(tx)
                now = login_rows.need(tx, attempt_id)
                return login_rows.move(tx, now, LoginEvent.COMPLETE, at=at, kept=len(swept.kept))

            return Completed(attempt=self._write_at(home, work), swept=swept)

    def recover(self, home: Home, ask: Callable[[Attempt], bool | None]) -> list[Attempt]:
        """Find out what became of the attempts of processes that are gone; gives those to `finish`. At boot.

        An attempt of this process that was transferred and is not completed is given as well: its `persist` failed.
        Call it again then; of two that finish one attempt, the second is refused by name. `ask(attempt)`, a plain
        function, asks the server, with what the caller's secret file has of it, whether it granted the attempt:
        True, False, or None when nobody can say now (it is asked again at the next call). What was transferred is not
        asked for. Raises what `ask` raises, and `InvalidInput` for any other answer of it.
        """
        refuse_other_home(self._core, home)
        callbacks.plain("ask", ask)
        mine = presence_of(self._core.path.parent, clock=self._core.clock).identity.to_json()
        with self._core.reader() as reader:
            found = login_rows.open_ones(reader) if has_logins(reader) else []
        granted: list[Attempt] = []
        for one in found:
            if not self._is_gone(one) and not (one.state is LoginState.TRANSFERRED and one.owner == mine):
                continue
            said = True if one.state is LoginState.TRANSFERRED else callbacks.run("ask", ask, one)
            if said is not None and not isinstance(said, bool):
                raise InvalidInput(  # without the value, which may have the code in it
                    f"ask says True, False or None of a login attempt, not {type(said).__name__}.", argument="ask"
                )
            if said is None:
                continue
            if said:
                granted.append(
                    one if one.state is LoginState.TRANSFERRED else self.transferred(one.attempt_id, home)
                )
                continue
            ran_out = one.expires_at is not None and one.expires_at <= self._core.clock.now()
            self._move(one.attempt_id, home, LoginEvent.EXPIRE if ran_out else LoginEvent.END)
        return granted

    # --- reading -----------------------------------------------------------------------------------------------

    def get(self, attempt_id: str) -> Attempt:
        """One attempt. Raises `LoginNotFound`."""
        with self._core.reader() as reader:
            return login_rows.need(reader, attempt_id)

    def live(self) -> Attempt | None:
        """The attempt that waits in this home, None when there is none."""
        with self._core.reader() as reader:
            found = login_rows.open_ones(reader) if has_logins(reader) else []
        return next((one for one in found if one.state in LIVE), None)

    def page(self, *, limit: int = 50) -> list[Attempt]:
        """Up to `limit` attempts (1 to 1000), newest first."""
        whole("limit", limit, 1, MOST_PAGE)
        with self._core.reader() as reader:
            return [
                login_rows.attempt_of(row) for row in reader.rows(
                    f"SELECT {login_rows.COLUMNS} FROM login_attempts ORDER BY started_at DESC, attempt_id LIMIT ?",
                    (limit,),
                )
            ] if has_logins(reader) else []

    def forget(self, *, kept_seconds: float = KEPT_SECONDS, limit: int = 500) -> int:
        """Forget up to `limit` attempts that ended `kept_seconds` ago; gives how many."""
        seconds("kept_seconds", kept_seconds, most=LATEST)
        whole("limit", limit, 1, MOST_PAGE)
        at = self._core.clock.now()

        def work(tx: Transaction) -> int:
            rows = tx.rows(
                "SELECT attempt_id FROM login_attempts WHERE ended_at <= ? ORDER BY ended_at LIMIT ?",
                (at - kept_seconds, limit),
            )
            for (attempt_id,) in rows:
                tx.execute("DELETE FROM login_attempts WHERE attempt_id = ?", (attempt_id,))
                record(tx, "login_attempts", attempt_id, "delete", at)
            return len(rows)

        return self._core.write(work)

    # --- inside ------------------------------------------------------------------------------------------------

    def _move(self, attempt_id: str, home: Home, event: LoginEvent, **changes: Any) -> Attempt:
        return self._write_at(home, lambda tx, at: login_rows.move(
            tx, login_rows.need(tx, attempt_id), event, at=at, **changes
        ))

    def _is_gone(self, attempt: Attempt) -> bool:
        owner = OwnerIdentity.from_json(attempt.owner)
        return provably_dead(owner, self._core.path.parent, clock=self._core.clock).dead

    def _refused(self, why: LoginRefusal, attempt_id: str | None = None) -> LoginRefused:
        said = {
            LoginRefusal.NOT_A_DM: "it is no direct conversation of two people",
            LoginRefusal.NOT_ALLOWED: "the person is not one of its administrators",
            LoginRefusal.BUSY: "an attempt of somebody else waits",
            LoginRefusal.BUSY_ELSEWHERE: "an attempt of this process waits in another home",
            LoginRefusal.TRANSFERRED: f"attempt {attempt_id!r} was granted and is not completed yet",
        }[why]
        return LoginRefused(
            f"No login is begun in {self._core.path}: {said}.", hint=_HINTS[why], path=self._core.path, reason=why
        )


def has_logins(reader: Reader) -> bool:
    """Whether the store has the table: it comes with a schema step that a read-only open does not make."""
    return reader.row("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'login_attempts'") is not None


def _lapsed(attempt: Attempt, at: float) -> bool:
    """Whether its worker can only have stopped without a word: its code ran out a while ago, or was never shown."""
    until = attempt.started_at + LONGEST_START_SECONDS if attempt.expires_at is None else attempt.expires_at
    return at > until + LAST_WORD_SECONDS


class _OfProcess:
    """The newest attempt of this process, in whichever home it is; a forked child has none."""

    def __init__(self) -> None:
        self._pid = 0
        self._group: weakref.ref[Logins] | None = None
        self._path: object = None
        self._attempt_id = ""

    def keep(self, group: Logins, attempt_id: str) -> None:
        self._pid, self._group, self._path = os.getpid(), weakref.ref(group), group._core.path
        self._attempt_id = attempt_id

    def is_live_elsewhere(self, asking: Logins) -> bool:
        """Whether it waits in another home than that of `asking`; one whose store was closed here does not."""
        group = None if self._group is None or self._pid != os.getpid() else self._group()
        if group is None or self._path == asking._core.path:
            return False
        core = group._core
        if not hasattr(type(core), "reader"):
            return False  # its store was closed: nobody here waits for it
        with core.reader() as reader:
            found = login_rows.find(reader, self._attempt_id)
        return found is not None and found.state in LIVE


_LOCK = threading.Lock()
_of_process = _OfProcess()
