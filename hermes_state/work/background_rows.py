"""Writing background work, in the caller's transaction: registered, moved, ended together with what that makes owed.

Invariant: how the end is told is in the row from its registration on, and the row that ends and the one obligation that
tells of it are one transaction. So there is nothing to be armed later, and nothing that could end before it is armed.
What has ended stays: a second end finds the first.

Not for: deciding what is dead (see `orphans`), and sending (see `notices`). An obligation that carries the result was
rejected: the outbox forgets, and a result that nobody took must stay readable.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_state.changes.records import record
from hermes_state.errors import IdempotencyConflict, InvalidInput
from hermes_state.errors.work import BackgroundWorkNotFound
from hermes_state.outbox import SCHEDULES, Policy, append
from hermes_state.outbox.records import read_by_dedupe_id
from hermes_state.work.background import TERM_SECONDS, BackgroundWork, Delegation, Process, Tell, find
from hermes_state.work.states import KIND_OF_END, PROGRESS, DelegationState, Mode, ProcessState, Sort
from hermes_state.work.verbosity import Form, Moment, form

if TYPE_CHECKING:
    from hermes_state.clock import Clock
    from hermes_state.engine import Reader, Transaction
    from hermes_state.routing import Home

TABLE = "background_work"
# Eight attempts, whatever the kind (facts on gateways, 5).
SCHEDULE = SCHEDULES["completion"]
# A reason or an error, for people.
MOST_WHY = 4_000


@dataclass(frozen=True, kw_only=True)
class Watcher:
    """Who watches over a row from now on, and until when unless it renews."""

    owner: str  # JSON of the owner identity
    boot_id: str
    time_namespace: str
    expires_boottime: float

    @property
    def boottime(self) -> float:
        """Now, on the clock of the boot."""
        return self.expires_boottime - TERM_SECONDS


def watcher(owner: str, clock: Clock) -> Watcher:
    """This process, for a term from now."""
    domain = clock.domain()
    return Watcher(
        owner=owner, boot_id=domain.boot_id, time_namespace=domain.time_namespace,
        expires_boottime=clock.boottime() + TERM_SECONDS,
    )


def register(
    tx: Transaction, key: str, sort: Sort, home: Home, *, state: ProcessState | DelegationState,
    described: Mapping[str, Any], tell: Tell, session_id: str | None, session_key: str | None, watched_by: Watcher,
    at: float,
) -> tuple[Process | Delegation, bool]:
    """Write a row, or find it registered before; whether it is new.

    Raises `IdempotencyConflict`: the key is another work's, or one's whose end was told and forgotten.
    """
    text = readable(json.dumps(described, ensure_ascii=False, separators=(",", ":"), sort_keys=True))
    before = tx.row(f"SELECT described, session_key FROM {TABLE} WHERE key = ?", (key,))
    if before is not None:
        found = need(tx, key)
        same_tell = found.tell == tell or (isinstance(found, Process) and found.watch.disabled)
        if before != (text, session_key) or not same_tell:
            raise IdempotencyConflict(
                f"{key!r} in {tx.path} was registered before, for something else.",
                hint="Give every process, spawn and delegation an id of its own.", path=tx.path, key=key,
            )
        return found, False
    if read_by_dedupe_id(tx, key) is not None:
        raise IdempotencyConflict(
            f"{key!r} was registered in {tx.path} before; it has ended, was told of, and is forgotten.",
            hint="Give every process, spawn and delegation an id of its own.", path=tx.path, key=key,
        )
    generation = None
    if session_key is not None:
        entry = tx.row("SELECT generation, session_id FROM routing_entries WHERE session_key = ?", (session_key,))
        if entry is not None:
            generation, session_id = entry[0], session_id or entry[1]
    tx.execute(
        f"INSERT INTO {TABLE} (key, sort, home, state, session_id, session_key, generation, described, mode, verbosity,"
        " transport, target, owner, boot_id, time_namespace, expires_boottime, registered_at, started_at, state_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            key, str(sort), home.store_id, str(state), session_id, session_key, generation, text, str(tell.mode),
            str(tell.verbosity), tell.transport, tell.target, watched_by.owner, watched_by.boot_id,
            watched_by.time_namespace, watched_by.expires_boottime, at,
            None if state is ProcessState.REGISTERED else at, at,
        ),
    )
    record(tx, TABLE, key, "insert", at)
    return need(tx, key), True


def need(reader: Reader, key: str) -> Process | Delegation:
    """One row. Raises `BackgroundWorkNotFound`."""
    found = find(reader, key)
    if found is None:
        raise BackgroundWorkNotFound(
            f"There is no {key!r} in {reader.path}.",
            hint="It was never registered in this home, or was told of and is forgotten.", path=reader.path, key=key,
        )
    return found


def move(
    tx: Transaction, work: BackgroundWork, state: ProcessState | DelegationState, *, at: float,
    columns: Mapping[str, Any] | None = None,
) -> Process | Delegation:
    """A state that is not the end, with other columns that change with it."""
    extra = dict(columns or {})
    sets = "".join(f", {name} = ?" for name in extra)
    tx.execute(
        f"UPDATE {TABLE} SET state = ?, state_at = ?{sets} WHERE key = ?", (str(state), at, *extra.values(), work.key)
    )
    record(tx, TABLE, work.key, "update", at)
    return need(tx, work.key)


def end(
    tx: Transaction, work: BackgroundWork, state: ProcessState | DelegationState, *, at: float, here: Watcher,
    result: str | None = None, result_chars: int = 0, error: str | None = None,
    columns: Mapping[str, Any] | None = None,
) -> Process | Delegation:
    """The end of a row and what is owed for it. The caller has asked the table of states. `here` is who says so."""
    extra = dict(columns or {})
    sets = "".join(f", {name} = ?" for name in extra)
    tx.execute(
        f"UPDATE {TABLE} SET state = ?, state_at = ?, ended_at = ?, owner = NULL, expires_boottime = NULL, boot_id = ?,"
        f" time_namespace = ?, ended_boottime = ?, result = ?, result_chars = ?, error = ?{sets} WHERE key = ?",
        (
            str(state), at, at, here.boot_id, here.time_namespace, here.boottime, result,
            result_chars, error, *extra.values(), work.key,
        ),
    )
    record(tx, TABLE, work.key, "update", at)
    owe_end(tx, need(tx, work.key), at=at, here=here)
    return need(tx, work.key)


def owe_end(tx: Transaction, ended: BackgroundWork, *, at: float, here: Watcher | None = None) -> None:
    """Owe the one notice of an end, where it is told. One that was settled before a backup was restored is the same."""
    if tells(ended) and read_by_dedupe_id(tx, ended.key) is None:
        append(
            tx, dedupe_id=ended.key, kind=KIND_OF_END[ended.tell.mode], transport=ended.tell.transport,
            target=ended.tell.target, batch=batch_of(ended), policy=Policy.AT_LEAST_ONCE, schedule=SCHEDULE,
            payload={"work": ended.key} | _made(here), at=at,
        )


def tells(work: BackgroundWork) -> bool:
    """Whether the end of this one is told. A receipt that says nothing is none; a turn begins at any verbosity."""
    match work.tell.mode:
        case Mode.NOBODY:
            return False
        case Mode.RECEIPT:
            moment = Moment.FAILED if work.failed else Moment.ENDED
            return form(work.tell.verbosity, moment) is not Form.NOTHING
        case Mode.TURN | Mode.DISPLAY:
            return True


def batch_of(work: BackgroundWork) -> str:
    """What its siblings have in common: the conversation, its generation, and how they are told."""
    parts = (work.session_key, work.session_id, work.generation, str(work.tell.mode), work.tell.target)
    return f"background/{hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]}"


def say(
    tx: Transaction, work: BackgroundWork, kind: str, number: int, said: Mapping[str, Any], *, label: str | None = None,
    at: float, here: Watcher,
) -> None:
    """Owe what is told before the end: it has an id of its own and never stands for the end. Each number once.

    Only where the end begins a turn may this begin one.
    """
    chosen = kind if work.tell.mode is Mode.TURN or kind == PROGRESS else KIND_OF_END[work.tell.mode]
    dedupe_id = f"{work.key}#{label or kind}-{number}"
    if read_by_dedupe_id(tx, dedupe_id) is None:
        append(
            tx, dedupe_id=dedupe_id, kind=chosen, transport=work.tell.transport, target=work.tell.target,
            policy=Policy.AT_LEAST_ONCE, schedule=SCHEDULE, payload={"work": work.key, **said} | _made(here), at=at,
        )


def _made(here: Watcher | None) -> dict[str, Any]:
    """When a notice is made, on the clock of the boot: what is young by it is not given up when the other one jumps."""
    return {} if here is None else {"made": [here.boot_id, here.time_namespace, here.boottime]}


def new_epoch() -> str:
    """A random name for one spawn."""
    return secrets.token_hex(8)


def why(argument: str, value: str | None) -> str | None:
    """A text for people, cut where it is too long and with what no file can hold escaped. Raises `InvalidInput`."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise InvalidInput(f"{argument} is a text, not {value!r:.80}.", argument=argument)
    return cut(value, MOST_WHY)


def cut(value: str, most: int) -> str:
    """The beginning of a text, readable, and how long it was where that is not all."""
    plain = readable(value)
    return plain if len(plain) <= most else f"{plain[:most]}... ({len(plain):,} characters)"


def readable(value: str) -> str:
    """A text that a file can hold: NUL and lone surrogates, as in the output of any program, become their escapes."""
    return value.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()
