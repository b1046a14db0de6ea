"""Which instance serves a thread: the reason why instances are not simply deleted.

Invariant: a thread is bound to one instance until its binding is deleted, and that instance keeps its row (a foreign
key says so) and its tombstone (a reference per binding) until then: an old thread never means another machine.

Not for: turns, and the state of a thread (see `hermes_state.turns`). Letting a removed instance take its bindings with
it was rejected: the threads are the user's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hermes_state.changes.records import record
from hermes_state.errors import InvalidInput, ThreadBound
from hermes_state.instances import registry
from hermes_state.instances.records import Binding
from hermes_state.instances.sanitising import has_surrogate
from hermes_state.instances.states import Event

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction

_COLUMNS = "thread_id, instance_id, session_id, created_at"
# As long as the target of an obligation may be.
_LONGEST = 512


def find(reader: Reader, thread_id: str) -> Binding | None:
    """The binding of a thread, or None."""
    row = reader.row(f"SELECT {_COLUMNS} FROM thread_bindings WHERE thread_id = ?", (thread_id,))
    return None if row is None else _binding(row)


def bind(tx: Transaction, thread_id: str, instance_id: str, session_id: str, *, at: float) -> Binding:
    """Bind a thread to an enrolled instance; the same binding again is the same binding.

    Raises `InvalidInput`, `ThreadBound`, `InstanceNotFound`, `InstanceNotEnrolled`, `InstanceRevoked`,
    `InstanceRemoved`.
    """
    for name, value in (("thread_id", thread_id), ("session_id", session_id)):
        if (
            not isinstance(value, str) or not 0 < len(value) <= _LONGEST or "\0" in value or has_surrogate(value)
        ):
            raise InvalidInput(
                f"{name} is a text of 1 to {_LONGEST} characters without NUL that UTF-8 can say, not {value!r:.80}.",
                argument=name,
            )
    registry.allowed(tx, instance_id, Event.BIND)
    before = find(tx, thread_id)
    if before is not None:
        if (before.instance_id, before.session_id) == (instance_id, session_id):
            return before
        raise ThreadBound(
            f"Thread {thread_id!r} of {tx.path} is bound to session {before.session_id!r} of instance"
            f" {before.instance_id!r} since {registry.shown_time(before.created_at)}.",
            hint="Delete that binding first, or start another thread.", path=tx.path, thread_id=thread_id,
            instance_id=before.instance_id, since=before.created_at,
        )
    tx.execute(
        f"INSERT INTO thread_bindings ({_COLUMNS}) VALUES (?, ?, ?, ?)", (thread_id, instance_id, session_id, at)
    )
    record(tx, "thread_bindings", thread_id, "insert", at)
    return Binding(thread_id=thread_id, instance_id=instance_id, session_id=session_id, created_at=at)


def unbind(tx: Transaction, thread_id: str, *, at: float) -> bool:
    """Delete the binding of a thread; its instance's tombstone has one reference less. False when there was none.

    What runs in the thread goes with it: ask whoever keeps turns first, as `store.instances.unbind` does.
    """
    gone = bool(tx.execute("DELETE FROM thread_bindings WHERE thread_id = ?", (thread_id,)))
    if gone:
        record(tx, "thread_bindings", thread_id, "delete", at)
    return gone


def count(reader: Reader, instance_id: str) -> int:
    """How many threads are bound to an instance."""
    row = reader.row("SELECT count(*) FROM thread_bindings WHERE instance_id = ?", (instance_id,))
    return 0 if row is None else int(row[0])


def page(reader: Reader, instance_id: str, *, limit: int, after: str = "") -> list[Binding]:
    """Up to `limit` bindings of an instance by thread id; `after` is the thread that the last page ended at."""
    return [
        _binding(row)
        for row in reader.rows(
            f"SELECT {_COLUMNS} FROM thread_bindings WHERE instance_id = ? AND thread_id > ?"
            " ORDER BY thread_id LIMIT ?",
            (instance_id, after, limit),
        )
    ]


def _binding(row: tuple[Any, ...]) -> Binding:
    thread_id, instance_id, session_id, created_at = row
    return Binding(thread_id=thread_id, instance_id=instance_id, session_id=session_id, created_at=created_at)
