"""`store.work.delegations`: work given to sub-agents, from the dispatch to the notice of its end.

Invariant: the first end counts and commits at `power` together with the one obligation that tells of it; the result is
in the row, and stays there until it was taken and is old, or was given up a week ago. There is no number of rows above
which any is taken away: when too many are owed, the next dispatch is refused.

Not for: running sub-agents. A cap on all rows was rejected: it deleted results that nobody had taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from hermes_state import json_values
from hermes_state.errors import InvalidInput
from hermes_state.errors.work import BackgroundWorkFull
from hermes_state.work import background_rows as rows
from hermes_state.work.background import NOBODY, Delegation, Tell, delegation_key, find, has_work, page
from hermes_state.work.group import Group, of_sort, optional
from hermes_state.work.old_delegations import old_delegation, take_in
from hermes_state.work.orphans import as_judged
from hermes_state.work.states import DelegationEvent, DelegationState, Sort, to_event

if TYPE_CHECKING:
    from hermes_state.engine import Transaction
    from hermes_state.routing import Home

# Running or not delivered (facts on gateways, 5: hermes-agent's cap of pending ones).
MOST_OWED = 1000
# Of a task or a result as JSON: what is larger belongs into the session of the sub-agent.
MOST_BYTES = 1_048_576


class Delegations(Group):
    """The delegations of one store. Safe for threads."""

    sort = Sort.DELEGATION

    # --- from the dispatch to the end ------------------------------------------------------------------------

    def dispatch(
        self, delegation_id: str, home: Home, *, task: Any, tell: Tell = NOBODY, session_id: str | None = None,
        session_key: str | None = None, parent_session_id: str | None = None, child_session_id: str | None = None,
    ) -> Delegation:
        """Write down a delegation before its sub-agent begins; the same id and task again is the same delegation.

        `task` is JSON of at most 1 MiB; its "goal" is what people are shown. `session_key` as for processes. Raises
        `BackgroundWorkFull` (1,000 run or are not delivered), `IdempotencyConflict`, `WrongHome`, `HomeRemoved`,
        `InvalidInput`.
        """
        key = delegation_key(delegation_id)
        _json("task", task)
        described = {
            "task": task, "parent_session_id": optional("parent_session_id", parent_session_id),
            "child_session_id": optional("child_session_id", child_session_id),
        }
        for argument, value in (("session_id", session_id), ("session_key", session_key)):
            optional(argument, value)
        here, at = self._watcher(), self._core.clock.now()

        def work(tx: Transaction) -> Delegation:
            if tx.row("SELECT 1 FROM background_work WHERE key = ?", (key,)) is None:
                _refuse_full(tx)
            found, _new = rows.register(
                tx, key, Sort.DELEGATION, home, state=DelegationState.RUNNING, described=described, tell=tell,
                session_id=session_id, session_key=session_key, watched_by=here, at=at,
            )
            return _delegation(found)

        return self._write(home, work)

    def stalling(self, delegation: Delegation, home: Home) -> Delegation:
        """Nothing was heard of it for a while. One that has ended stays so, here and below."""
        return self._move(delegation, home, DelegationEvent.STALL)

    def goes_on(self, delegation: Delegation, home: Home) -> Delegation:
        """It was heard of again."""
        return self._move(delegation, home, DelegationEvent.GO_ON)

    def finalizing(self, delegation: Delegation, home: Home) -> Delegation:
        """Its work is done and its result is being made."""
        return self._move(delegation, home, DelegationEvent.FINALIZE)

    def completed(self, delegation: Delegation, home: Home, result: Any) -> Delegation:
        """It ended well, with a result, at `power`. As often as you like: the first counts.

        `result` is JSON of at most 1 MiB. What is larger, or what JSON cannot say, is kept as a text of it, cut: a
        sub-agent's odd answer does not leave its work running for ever. Raises `BackgroundWorkNotFound`, `WrongHome`,
        `HomeRemoved`.
        """
        return self._end(delegation, home, DelegationEvent.COMPLETE, _result(result), None)

    def failed(self, delegation: Delegation, home: Home, error: str, *, result: Any = None) -> Delegation:
        """It ended in an error. As `completed`."""
        kept = None if result is None else _result(result)
        return self._end(delegation, home, DelegationEvent.FAIL, kept, rows.why("error", error))

    def stalled(self, delegation: Delegation, home: Home, error: str) -> Delegation:
        """It is given up: it was stalling and nothing came. One that is not stalling goes on. As `completed`."""
        return self._end(delegation, home, DelegationEvent.GIVE_UP, None, rows.why("error", error))

    # --- after a restart -------------------------------------------------------------------------------------

    def recover(self, home: Home) -> tuple[Delegation, ...]:
        """End what was run by a process that is gone: `unknown`, and told as every other end; gives those.

        Do it at the start and every 30 s, so that no result waits for a restart. Raises `WrongHome`, `HomeRemoved`,
        `LockTimeout`.
        """
        done, here = [], self._watcher()
        for row, because in self._orphans.found():
            ended = self._write(
                home, _losing(row, because, self._core.clock.now(), here), durability="power"
            )
            if ended is not None:
                done.append(ended)
        return tuple(done)

    def take_in(self, row: Mapping[str, Any], home: Home, *, tell: Tell) -> Delegation:
        """Keep a row of hermes-agent's `async_delegations`, given as a mapping of its columns; it has ended here.

        What is pending there, and not older than 48 h, is owed by `tell`; what was delivered or dropped is not. One
        that is here already stays as it is. `hermes_state.work.old_delegations` keeps the old row whole. Raises
        `InvalidInput`, `WrongHome`, `HomeRemoved`.
        """
        old, at = old_delegation(row), self._core.clock.now()
        return self._write(home, lambda tx: take_in(tx, home, old, tell, at=at), durability="power")

    # --- looking ---------------------------------------------------------------------------------------------

    def get(self, delegation_id: str) -> Delegation | None:
        """One delegation. None: it was never here, or was taken and is forgotten."""
        with self._core.reader() as reader:
            row = find(reader, delegation_key(delegation_id)) if has_work(reader) else None
        return None if row is None else _delegation(row)

    def page(self, **filters: Any) -> list[Delegation]:
        """Up to `limit` delegations, newest first; `before` is the `no` that the last page ended at.

        Filters: `states`, `session_key`, `session_id`, `modes`, `undelivered`. Raises `InvalidInput`.
        """
        with self._core.reader() as reader:
            return [_delegation(row) for row in page(reader, Sort.DELEGATION, **filters)]

    # --- inside ----------------------------------------------------------------------------------------------

    def _move(self, delegation: Delegation, home: Home, event: DelegationEvent) -> Delegation:
        at = self._core.clock.now()

        def work(tx: Transaction) -> Delegation:
            now = _delegation(rows.need(tx, delegation.key))
            state = to_event(now.state, event)
            return now if state is None else _delegation(rows.move(tx, now, state, at=at))

        return self._write(home, work)

    def _end(
        self, delegation: Delegation, home: Home, event: DelegationEvent, result: tuple[str, int] | None,
        error: str | None,
    ) -> Delegation:
        at, here = self._core.clock.now(), self._watcher()
        kept, size = (None, 0) if result is None else result

        def work(tx: Transaction) -> Delegation:
            now = _delegation(rows.need(tx, delegation.key))
            state = to_event(now.state, event)
            if state is None:
                return now
            return _delegation(rows.end(
                tx, now, state, at=at, here=here, result=kept, result_chars=size, error=error
            ))

        return self._write(home, work, durability="power")


def _losing(
    delegation: Delegation, because: str, at: float, here: rows.Watcher
) -> Callable[[Transaction], Delegation | None]:
    """End a delegation whose watcher is gone; None when somebody was there first."""

    def work(tx: Transaction) -> Delegation | None:
        if not as_judged(tx, delegation):
            return None
        state = to_event(delegation.state, DelegationEvent.LOSE)
        assert state is not None  # nothing open refuses to be lost: the table has it
        return _delegation(rows.end(
            tx, delegation, state, at=at, here=here, error=f"whoever ran it is gone: {because}"
        ))

    return work


def _refuse_full(tx: Transaction) -> None:
    (count,) = tx.rows(
        "SELECT count(*) FROM (SELECT 1 FROM background_work WHERE sort = 'delegation' AND (ended_at IS NULL OR EXISTS"
        " (SELECT 1 FROM outbox WHERE dedupe_id = background_work.key AND settled_at IS NULL)) LIMIT ?)",
        (MOST_OWED,),
    )[0]
    if count >= MOST_OWED:
        raise BackgroundWorkFull(
            f"{MOST_OWED:,} delegations of {tx.path} run or are not delivered; that is the most.",
            hint="Deliver what is owed (store.work.notices.deliver); nothing undelivered is ever taken away.",
            path=tx.path, sort=str(Sort.DELEGATION), most=MOST_OWED,
        )


def _json(argument: str, value: Any) -> str:
    """JSON that a row can hold: lone surrogates, as in any program's output, are in it as their escapes."""
    try:
        text = json_values.dump(value)
    except ValueError as error:
        raise InvalidInput(
            f"The {argument} of a delegation cannot be written as JSON: {error}.", argument=argument
        ) from error
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MOST_BYTES:
        raise InvalidInput(
            f"The {argument} of a delegation has {size:,} bytes; {MOST_BYTES:,} is the most.",
            hint="Keep the whole text in the session of the sub-agent, and name that here.", argument=argument,
            size=size,
        )
    return rows.readable(text)


def _result(value: Any) -> tuple[str, int]:
    """What a row keeps of a result, and how many characters that was before it was cut. Refuses nothing."""
    try:
        kept = rows.readable(json_values.dump(value))
    except (ValueError, RecursionError):
        value = _as_text(value)
        kept = json_values.dump(rows.readable(value))
    if len(kept.encode()) <= MOST_BYTES:
        return kept, len(kept)
    size = len(kept)
    plain = rows.readable(value) if isinstance(value, str) else kept
    # Six bytes are the most that a character takes in JSON that is not escaped to ASCII.
    for most in (MOST_BYTES // 2, MOST_BYTES // 6 - 64):
        kept = json_values.dump(rows.cut(plain, most))
        if len(kept.encode()) <= MOST_BYTES:
            break
    return kept, size


def _as_text(value: Any) -> str:
    """What JSON cannot say, as Python shows it."""
    try:
        return repr(value)
    except Exception:  # its own code: too deep, or it cannot even say what it is
        return f"(a result of type {type(value).__name__} that cannot be shown)"


def _delegation(row: Any) -> Delegation:
    return of_sort(row, Delegation)
