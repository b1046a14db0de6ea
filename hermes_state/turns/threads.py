"""The row that says how a thread stands with its gateway.

Invariant: `running` is stored exactly together with the id of the active turn (the file checks it too), and only for a
provider that knows ids of turns: for others the status stays as it is and the id stays null.

Not for: which gateway serves a thread (its binding says so). A status that each caller writes was rejected: one of them
wrote `running` without a turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_state.changes.records import record
from hermes_state.errors import InstanceRevoked, ThreadNotFound, ThreadStopped
from hermes_state.turns.records import Thread, find_thread, need_thread, told
from hermes_state.turns.states import ThreadEvent, ThreadStatus, to_event

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction


def open_thread(tx: Transaction, thread_id: str, *, turn_ids: bool = True) -> Thread:
    """The state of a bound thread, made when it has none. `turn_ids`: whether its provider knows ids of turns.

    Raises `ThreadNotFound` when it is not bound.
    """
    found = find_thread(tx, thread_id)
    if found is not None:
        return found
    bound = tx.row("SELECT instance_id, session_id FROM thread_bindings WHERE thread_id = ?", (thread_id,))
    if bound is None:
        raise ThreadNotFound(
            f"No gateway serves thread {thread_id!r} in {tx.path}.", hint="Bind it to an instance first.",
            path=tx.path, thread_id=thread_id,
        )
    # An earlier binding of the same session may have left a stop that is owed: it is the session's, not the binding's.
    owed = tx.row(
        "SELECT 1 FROM stops WHERE thread_id = ? AND instance_id = ? AND session_id = ? AND state = 'pending'",
        (thread_id, *bound),
    )
    tx.execute(
        "INSERT INTO thread_states (thread_id, turn_ids, status) VALUES (?, ?, ?)",
        (thread_id, int(turn_ids), str(ThreadStatus.READY if owed is None else ThreadStatus.STOP_PENDING)),
    )
    return need_thread(tx, thread_id)


def move(
    tx: Transaction, thread: Thread, event: ThreadEvent, *, at: float, turn_id: str | None = None,
    error: str | None = None,
) -> ThreadStatus | None:
    """What becomes of the status of a thread; None when the event is rejected, and nothing changes.

    `thread` is as read in this transaction; `turn_id` names the turn that runs, `error` why it crashed.
    """
    status = to_event(thread.status, event)
    if status is None:
        return None
    active = None
    if status is ThreadStatus.RUNNING:
        active = turn_id or thread.active_turn_id
        if not thread.turn_ids:
            status = ThreadStatus.READY
            active = None
    why = told(error) if error is not None and status is ThreadStatus.ERROR else None
    why = thread.error if status is thread.status and why is None else why
    if (status, active, why) == (thread.status, thread.active_turn_id, thread.error):
        return status
    tx.execute(
        "UPDATE thread_states SET status = ?, active_turn_id = ?, error = ? WHERE thread_id = ?",
        (str(status), active, why, thread.thread_id),
    )
    record(tx, "thread_states", thread.thread_id, "update", at)
    return status


def adopt(tx: Transaction, thread: Thread, session_id: str, *, at: float) -> None:
    """Take the session id that the gateway gave; the active turn goes on in it, a new history begins."""
    if session_id == thread.session_id:
        return
    tx.execute("UPDATE thread_bindings SET session_id = ? WHERE thread_id = ?", (session_id, thread.thread_id))
    tx.execute(
        "UPDATE turns SET session_id = ? WHERE thread_id = ? AND state IN ('starting', 'running')",
        (session_id, thread.thread_id),
    )
    tx.execute("UPDATE thread_states SET history_rows = 0 WHERE thread_id = ?", (thread.thread_id,))
    record(tx, "thread_bindings", thread.thread_id, "update", at)


def refuse_stopped(reader: Reader, thread: Thread) -> None:
    """Raise `ThreadStopped` when a stop of its session is owed or done: nothing else goes out for it before."""
    if thread.status in (ThreadStatus.STOP_PENDING, ThreadStatus.STOPPED):
        raise ThreadStopped(
            f"The session of thread {thread.thread_id!r} in {reader.path} is {thread.status}.",
            hint="Ensure its session first.", path=reader.path, thread_id=thread.thread_id,
            status=str(thread.status),
        )
    # Of an earlier binding of the thread to that gateway: what the gateway hears of a thread begins with its stops.
    owed = reader.row(
        "SELECT session_id FROM stops WHERE thread_id = ? AND instance_id = ? AND state = 'pending' LIMIT 1",
        (thread.thread_id, thread.instance_id),
    )
    if owed is not None:
        raise ThreadStopped(
            f"A stop of session {owed[0]!r} of thread {thread.thread_id!r} in {reader.path} is owed to instance"
            f" {thread.instance_id!r}.",
            hint="Send what is owed to that gateway, or wait until it is connected; the stop goes out first.",
            path=reader.path, thread_id=thread.thread_id, status=str(ThreadStatus.STOP_PENDING),
        )


def is_out(reader: Reader, instance_id: str) -> str | None:
    """`revoked` or `removed` for an instance that may not connect; None for one that may."""
    row = reader.row("SELECT state FROM gateway_instances WHERE instance_id = ?", (instance_id,))
    return row[0] if row is not None and row[0] in ("revoked", "removed") else None


def refuse_out(reader: Reader, thread: Thread) -> None:
    """Raise `InstanceRevoked` when the gateway of a thread was revoked or removed: it cannot be asked for anything."""
    out = is_out(reader, thread.instance_id)
    if out is not None:
        again = "Enroll it again, or unbind" if out == "revoked" else "Unbind"
        raise InstanceRevoked(
            f"Instance {thread.instance_id!r}, which serves thread {thread.thread_id!r} of {reader.path}, is {out}.",
            hint=f"{again} the thread and bind it to another instance.", path=reader.path,
            instance_id=thread.instance_id, since=None,
        )


def reject(tx: Transaction, thread_id: str) -> None:
    """Count an end of a turn that was not the active one."""
    tx.execute("UPDATE thread_states SET rejected = rejected + 1 WHERE thread_id = ?", (thread_id,))
