"""`store.work.notices`: telling of background work, and what is kept of it.

Invariant: every notice is an obligation of the outbox, with its claims, refunds, attempts and siblings; here it only
gets its text and the conversation that it is for. What begins a turn, what a person reads and what a client of the API
server shows are given to three different calls, so that none can become another. Nothing whose notice is not settled is
ever deleted.

Not for: sending. A queue of its own was rejected: it would have to learn what the outbox knows about dying senders.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hermes_state.changes.records import record
from hermes_state.errors import InvalidInput
from hermes_state.outbox import Claim, Failed, NotAdmitted, Outbox, Suppressed, Verdict
from hermes_state.outbox.inputs import names, seconds
from hermes_state.outbox.records import read
from hermes_state.outbox.settling import end_pending
from hermes_state.outbox.states import Event
from hermes_state.routing.homes import guard, refuse_other_home, valid_home
from hermes_state.work import callbacks
from hermes_state.work.background import BackgroundWork, Delegation, Process, find, page
from hermes_state.work.background_rows import readable
from hermes_state.work.boundaries import Conversation, conversation_of
from hermes_state.work.states import KIND_OF_END, PROGRESS, WATCH, Mode
from hermes_state.work.verbosity import MOST_SHOWN, Form, Moment, cut, form, told

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction
    from hermes_state.engine.core import Core
    from hermes_state.routing import Home, Route

# The kinds of the outbox that are given to whom; none is in two of them.
KINDS: Mapping[Mode, tuple[str, ...]] = {
    Mode.TURN: (KIND_OF_END[Mode.TURN], WATCH),
    Mode.RECEIPT: (KIND_OF_END[Mode.RECEIPT], PROGRESS),
    Mode.DISPLAY: (KIND_OF_END[Mode.DISPLAY],),
}
ALL_KINDS = tuple(kind for kinds in KINDS.values() for kind in kinds)
# What has to be up for a client of the API server, unless a caller names its own.
API_SERVER = "api_server"
# Numbers of hermes-agent (facts on gateways, 5).
TERM_SECONDS = 300.0  # of a claim
BATCH_SECONDS = 0.1  # what ends within it is told together
REPLAY_SECONDS = 48 * 3600.0  # a notice that is older is not told any more
KEPT_SECONDS = {"process": 1_800.0, "delegation": 7 * 86_400.0}  # since it was taken
KEPT_UNTAKEN_SECONDS = 7 * 86_400.0  # since it was given up
SWEEP_SECONDS, IDLE_SWEEP_SECONDS = 30.0, 60.0
STEP = 500  # rows of one transaction


@dataclass(frozen=True, kw_only=True)
class Notice:
    """What is to be told now, in one text; one verdict settles all of it."""

    claim: Claim  # for `store.outbox.renew`; a sibling that somebody else has is not in it
    works: tuple[Process | Delegation, ...]  # what it is about, each once
    session_id: str | None  # in which the conversation goes on now; None: it has none
    route: Route | None = field(repr=False)  # the chat's entry, for `hermes_state.routing.delivery`; None: no chat
    text: str  # of at most 10, with 800 characters each
    again: bool  # it may have been told before: its sender was lost, or a person owes it again


@dataclass(frozen=True, kw_only=True)
class Swept:
    """What a sweep did."""

    too_old: int  # notices that were given up after 48 h
    forgotten: int  # rows that were taken, or given up, long enough ago
    more: bool  # whether another sweep would do more
    next_seconds: float  # when to sweep again: 30 while anything runs or is owed, else 60


class Notices:
    """The notices of one store. Safe for threads."""

    def __init__(self, core: Core) -> None:
        self._core = core

    # --- telling ---------------------------------------------------------------------------------------------

    def deliver(
        self, admit: Callable[[Notice], Verdict | None], transports: Iterable[str], *, limit: int = 1,
        term_seconds: float = TERM_SECONDS, window_seconds: float = BATCH_SECONDS,
    ) -> list[tuple[Claim, Verdict]]:
        """Begin turns: ends and matches whose mode is "turn", for the transports that are up.

        `admit(notice)` gives the conversation its event and says what came of it: `Accepted` once it was admitted,
        `NotAdmitted` without room, which costs no attempt of any sibling; nothing said is no acceptance. What belongs
        to a conversation that has ended is suppressed and not given to it. Siblings that end within `window_seconds`
        come together. Otherwise as `Outbox.deliver`.
        """
        return self._deliver(admit, transports, Mode.TURN, limit, term_seconds, window_seconds)

    def tell(
        self, send: Callable[[Notice], Verdict | None], transports: Iterable[str], *, limit: int = 1,
        term_seconds: float = TERM_SECONDS, window_seconds: float = BATCH_SECONDS,
    ) -> list[tuple[Claim, Verdict]]:
        """Send people what they read; never a turn. As `deliver`."""
        return self._deliver(send, transports, Mode.RECEIPT, limit, term_seconds, window_seconds)

    def show(
        self, show: Callable[[Notice], Verdict | None], transports: Iterable[str] | None = None, *, limit: int = 1,
        term_seconds: float = TERM_SECONDS,
    ) -> list[tuple[Claim, Verdict]]:
        """Give clients of the API server what they show when they ask; never a turn. As `deliver`.

        `transports` is "api_server" unless other names were given at the registration.
        """
        return self._deliver(show, transports, Mode.DISPLAY, limit, term_seconds, 0.0)

    def prepared(
        self, of: Callable[[Notice], Any], transports: Iterable[str] | None, mode: Mode | str, *,
        term_seconds: float = TERM_SECONDS, window_seconds: float = BATCH_SECONDS,
    ) -> tuple[Callable[[Claim], Any], list[str], tuple[str, ...], float]:
        """What an outbox needs to give `of` the notices of one mode: its handler, transports, kinds and term.

        It waits for the rest of the window of the newest notice. The handler gives what `of` gives, a coroutine too.
        """
        seconds("window_seconds", window_seconds, most=60.0)
        up = names("transports", (API_SERVER,) if transports is None else transports)
        try:
            kinds = KINDS[Mode(mode)]
        except (ValueError, KeyError):
            raise InvalidInput(
                f"{mode!r:.80} is no mode whose ends anybody is told of.", hint=f"It is one of {', '.join(KINDS)}.",
                argument="mode",
            ) from None
        self._wait_for_siblings(up, kinds, window_seconds)
        return lambda claim: self._given(claim, of), up, kinds, term_seconds

    def _deliver(
        self, of: Callable[[Notice], Verdict | None], transports: Iterable[str] | None, mode: Mode, limit: int,
        term_seconds: float, window_seconds: float,
    ) -> list[tuple[Claim, Verdict]]:
        callbacks.plain("handler", of)  # `store.aio` awaits; here nothing would run it
        handler, up, kinds, term = self.prepared(
            of, transports, mode, term_seconds=term_seconds, window_seconds=window_seconds
        )
        return Outbox(self._core).deliver(handler, up, kinds=kinds, limit=limit, term_seconds=term)

    def _given(self, claim: Claim, of: Callable[[Notice], Any]) -> Any:
        with self._core.reader() as reader:
            found = _notice(reader, claim)
        return of(found) if isinstance(found, Notice) else found

    def _wait_for_siblings(self, transports: Sequence[str], kinds: tuple[str, ...], window_seconds: float) -> None:
        """Wait for the rest of the window of the newest notice: what ends together is told together."""
        if not window_seconds:
            return
        now, newest = self._core.clock.now(), 0.0
        with self._core.reader() as reader:
            for transport, kind in itertools.product(transports, kinds):
                row = reader.row(
                    "SELECT due_at FROM outbox INDEXED BY outbox_due_kind WHERE transport = ? AND kind = ?"
                    " AND priority = 0 AND state = 'pending' AND follows = 0 AND due_at <= ? ORDER BY due_at DESC"
                    " LIMIT 1", (transport, kind, now),
                )
                newest = max(newest, 0.0 if row is None else row[0])
        if now - newest < window_seconds:
            self._core.clock.sleep(window_seconds - (now - newest))

    # --- looking ---------------------------------------------------------------------------------------------

    def undelivered(self, *, limit: int = 50, before: int | None = None) -> list[Process | Delegation]:
        """What has ended and nobody has taken the notice of, newest first: owed, given up, or dropped with its
        conversation. Its result is there to be read. Raises `InvalidInput`."""
        with self._core.reader() as reader:
            return page(reader, None, undelivered=True, limit=limit, before=before)

    def displays(
        self, *, session_id: str | None = None, session_key: str | None = None, limit: int = 50,
        before: int | None = None,
    ) -> list[Process | Delegation]:
        """The display rows of a conversation, newest first: what clients of the API server show. Reading them settles
        nothing."""
        with self._core.reader() as reader:
            return page(
                reader, None, modes=[Mode.DISPLAY], session_id=session_id, session_key=session_key, limit=limit,
                before=before,
            )

    # --- keeping ---------------------------------------------------------------------------------------------

    def sweep(self, home: Home) -> Swept:
        """Give up notices that nobody took for 48 h, and forget what was taken long enough ago; in bounded steps.

        A process is kept for 30 minutes after its notice was taken, a delegation for 7 days, and what was given up
        for 7 days; what is owed is never forgotten, whatever its age. A program that runs calls it, after `recover` of
        processes and delegations, as often as `next_seconds` says. Raises `WrongHome`, `HomeRemoved`, `LockTimeout`.
        """
        refuse_other_home(self._core, valid_home("home", home))
        at, now = self._core.clock.now(), _now(self._core)

        def work(tx: Transaction) -> tuple[int, int]:
            guard(tx, home)
            return _give_up(tx, at, now), _forget(tx, at, now)

        too_old, forgotten = self._core.write(work)
        with self._core.reader() as reader:
            busy = reader.row(
                "SELECT 1 FROM background_work WHERE ended_at IS NULL UNION ALL SELECT 1 FROM background_work"
                " JOIN outbox ON dedupe_id = background_work.key WHERE settled_at IS NULL LIMIT 1"
            )
        return Swept(
            too_old=too_old, forgotten=forgotten, more=max(too_old, forgotten) >= STEP,
            next_seconds=IDLE_SWEEP_SECONDS if busy is None else SWEEP_SECONDS,
        )


def _notice(reader: Reader, claim: Claim) -> Notice | Suppressed | NotAdmitted | Failed:
    """What a claim is about; the verdict on it when its conversation has ended, or when it is about nothing here."""
    works: dict[str, Process | Delegation] = {}
    parts = []
    where: Conversation | None = None
    for one in claim:
        key = one.payload.get("work") if isinstance(one.payload, dict) else None
        work = None if not isinstance(key, str) else works.get(key) or find(reader, key)
        if work is None:  # the store's content was replaced by a backup; or it is nothing of ours
            parts.append(f"{one.dedupe_id} has ended; what it came to is not in this store any more.")
            continue
        if one.dedupe_id.partition("#retry-")[0] == work.key and not work.ended:
            # Its row is older than its notice: the store's content was replaced by a backup.
            return NotAdmitted(why=f"{work.key!r} has not ended here yet; recover() will end it")
        works[work.key] = work
        where = where or conversation_of(reader, work)  # siblings are of one conversation, see `batch_of`
        if not where.deliver:
            return Suppressed(why=f"not told: {where.why}")
        parts.append(_part(work, one.payload))
    if where is None:
        return Failed(why="it is about no background work that is here", for_good=True)
    text = "\n\n".join(part for part in parts[:MOST_SHOWN] if part)
    if len(parts) > MOST_SHOWN:
        text += f"\n\n... and {len(parts) - MOST_SHOWN} more; their results are kept."
    return Notice(
        claim=claim, works=tuple(works.values()), session_id=where.session_id, route=where.route,
        text=readable(text),
        again=any(one.recovered or one.retry_of is not None for one in claim),
    )


def _part(work: BackgroundWork, payload: dict[str, Any]) -> str:
    """The text of one obligation."""
    if "text" in payload:
        held_back = payload.get("held_back") or 0
        more = f"({held_back} earlier lines were not told.)" if held_back else ""
        return "\n".join(part for part in (work.headline, cut(str(payload["text"])), more) if part)
    if work.tell.mode is Mode.RECEIPT:
        return told(work, form(work.tell.verbosity, Moment.FAILED if work.failed else Moment.ENDED))
    return told(work, Form.OUTPUT)


@dataclass(frozen=True, kw_only=True)
class _Boot:
    """Now, on the clock of this boot, which nobody sets: what is young by it is so although the other one jumped."""

    boot_id: str
    time_namespace: str
    boottime: float


def _now(core: Core) -> _Boot:
    domain = core.clock.domain()
    return _Boot(boot_id=domain.boot_id, time_namespace=domain.time_namespace, boottime=core.clock.boottime())


def _give_up(tx: Transaction, at: float, now: _Boot) -> int:
    """Suppress what nobody took for 48 h."""
    marks = ", ".join("?" * len(ALL_KINDS))
    rows = tx.rows(
        f"SELECT id FROM outbox INDEXED BY outbox_waiting WHERE state = 'pending' AND kind IN ({marks})"
        " AND made_at < ? AND retry_of IS NULL AND NOT iif(json_valid(payload), coalesce(payload ->> '$.made[0]' = ?"
        " AND payload ->> '$.made[1]' = ? AND payload ->> '$.made[2]' > ?, 0), 0) LIMIT ?",
        (
            *ALL_KINDS, at - REPLAY_SECONDS, now.boot_id, now.time_namespace, now.boottime - REPLAY_SECONDS, STEP,
        ),
    )
    for (number,) in rows:
        owed = read(tx, number)
        if owed is not None:
            end_pending(tx, owed, Event.SUPPRESS, "nobody took it for 48 h", at=at)
    return len(rows)


_FORGOTTEN = """
SELECT no, key FROM background_work w LEFT JOIN outbox o ON o.dedupe_id = w.key
WHERE w.ended_at <= ?1 AND NOT EXISTS (
    SELECT 1 FROM outbox r WHERE r.dedupe_id > w.key || '#' AND r.dedupe_id < w.key || '$' AND r.settled_at IS NULL
) AND CASE
    WHEN o.id IS NOT NULL AND o.settled_at IS NULL THEN 0
    -- It ended less than that ago on a clock that nobody sets, so it was not taken longer ago either.
    WHEN w.boot_id = ?5 AND w.time_namespace = ?6 AND w.ended_boottime > ?7 - iif(
        coalesce(o.state, w.delivery, 'accepted') <> 'accepted', ?8, iif(w.sort = 'process', ?9, ?10)
    ) THEN 0
    WHEN coalesce(o.state, w.delivery, 'accepted') <> 'accepted' THEN coalesce(o.settled_at, w.delivery_at) <= ?3
    WHEN w.sort = 'process' THEN coalesce(o.settled_at, w.delivery_at, w.ended_at) <= ?1
    ELSE coalesce(o.settled_at, w.delivery_at, w.ended_at) <= ?2
END LIMIT ?4
"""


def _forget(tx: Transaction, at: float, now: _Boot) -> int:
    """Delete rows that were taken, or given up, long enough ago."""
    rows = tx.rows(
        _FORGOTTEN,
        (
            at - KEPT_SECONDS["process"], at - KEPT_SECONDS["delegation"], at - KEPT_UNTAKEN_SECONDS, STEP,
            now.boot_id, now.time_namespace, now.boottime, KEPT_UNTAKEN_SECONDS, KEPT_SECONDS["process"],
            KEPT_SECONDS["delegation"],
        ),
    )
    for number, key in rows:
        tx.execute("DELETE FROM background_work WHERE no = ?", (number,))
        record(tx, "background_work", key, "delete", at)
    return len(rows)


