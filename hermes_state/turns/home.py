"""Deliveries that gateways make home: owed by the sender's outbox, shown once by the receiver.

Invariant: a delivery is known by its sender and its id; it becomes visible together with its row, in one transaction,
and only after that commit is it acknowledged. A repeat finds the row and is acknowledged again. Where it is shown is
looked up at the receiver each time, never taken from what arrived. Ids are remembered longer than any sender repeats
them; one that is older than what is remembered is refused by name.

Not for: the text of a frame. Removing a repeat by what is in memory was rejected: after a restart everything was new.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hermes_state import json_values
from hermes_state.changes.records import record
from hermes_state.errors import IdempotencyConflict, InvalidInput, ThreadNotFound, TooOld
from hermes_state.outbox import Policy, Recorded, append
from hermes_state.outbox.inputs import MOST_CHARACTERS, levels, moment, text, whole
from hermes_state.turns.records import HomeDelivery

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction
    from hermes_state.engine.core import Core

KIND = "home"
# What is up while the sender has any connection home.
TRANSPORT = "home"
# Twice as long as an outbox remembers what it sent (7 days), so a sender never repeats what is forgotten here.
KEPT_SECONDS = 14 * 86_400.0
MOST_BYTES = 1_048_576
_COLUMNS = "no, instance_id, delivery_id, thread_id, payload, made_at, received_at"


class Home:
    """Both ends of home deliveries in one store. Safe for threads."""

    def __init__(self, core: Core) -> None:
        self._core = core

    # --- the sender ------------------------------------------------------------------------------------------

    def deliver(self, delivery_id: str, payload: Any, *, made_at: float | None = None) -> Recorded:
        """Owe a delivery, at `power`; it is sent by `store.outbox.deliver(handler, [TRANSPORT])`, at least once.

        Nothing is dropped because there are many. Raises as `Outbox.append`.
        """
        at = self._core.clock.now()
        return self._core.write(
            lambda tx: owe(tx, delivery_id, payload, at=at, made_at=made_at), durability="power"
        )

    # --- the receiver ----------------------------------------------------------------------------------------

    def show_in(self, instance_id: str, thread_id: str) -> None:
        """Say in which thread the deliveries of an instance are shown from now on."""
        self._core.write(
            lambda tx: tx.execute(
                "INSERT INTO home_threads (instance_id, thread_id) VALUES (?, ?)"
                " ON CONFLICT (instance_id) DO UPDATE SET thread_id = excluded.thread_id",
                (instance_id, thread_id),
            ),
            durability="power",
        )

    def receive(
        self, instance_id: str, delivery_id: str, payload: Any, *, made_at: float | None = None,
        show: Callable[[Transaction, HomeDelivery], None] | None = None,
    ) -> tuple[HomeDelivery, bool]:
        """Make a delivery visible, at `power`; gives it, and whether it is new. Acknowledge once this has returned.

        `instance_id` is whose connection it came on. `show(tx, delivery)` writes what a person sees, in the same
        transaction; it is called once a delivery, and what it raises leaves nothing behind. Raises `ThreadNotFound`
        (no thread to show it in), `TooOld`, `IdempotencyConflict`, `InvalidInput`.
        """
        at = self._core.clock.now()
        return self._core.write(
            lambda tx: _receive(tx, instance_id, delivery_id, payload, made_at=made_at, at=at, show=show),
            durability="power",
        )

    def page(self, thread_id: str, *, limit: int = 50, before: int | None = None) -> list[HomeDelivery]:
        """Up to `limit` (1 to 1,000) deliveries of a thread, newest first; `before`: where the last page ended.

        Raises `InvalidInput`.
        """
        whole("limit", limit, 1, 1000)
        with self._core.reader() as reader:
            return [
                _delivery(row)
                for row in reader.rows(
                    f"SELECT {_COLUMNS} FROM home_deliveries WHERE thread_id = ?1 AND (?2 IS NULL OR no < ?2)"
                    " ORDER BY no DESC LIMIT ?3",
                    (thread_id, before, limit),
                )
            ]

    def forget(self, *, kept_seconds: float = KEPT_SECONDS, limit: int = 500) -> int:
        """Forget up to `limit` deliveries that were received longer ago than `kept_seconds`; gives how many.

        What was made before the newest of them is refused from then on. Raises `InvalidInput` for less than 8 days:
        senders remember for 7.
        """
        if kept_seconds < 8 * 86_400.0:
            raise InvalidInput(
                f"Deliveries are kept for 8 days at least, not {kept_seconds:.0f} s.", argument="kept_seconds"
            )
        at = self._core.clock.now()

        def work(tx: Transaction) -> int:
            rows = tx.rows(
                "SELECT no, coalesce(made_at, received_at) FROM home_deliveries WHERE received_at <= ?"
                " ORDER BY received_at LIMIT ?",
                (at - kept_seconds, limit),
            )
            if rows:
                tx.execute(
                    "INSERT INTO home_horizon (one, forgotten_to) VALUES (1, ?)"
                    " ON CONFLICT (one) DO UPDATE SET forgotten_to = max(forgotten_to, excluded.forgotten_to)",
                    (min(max(made for _no, made in rows), at - kept_seconds),),
                )
                tx.executemany("DELETE FROM home_deliveries WHERE no = ?", [(no,) for no, _made in rows])
            return len(rows)

        return self._core.write(work)


def owe(tx: Transaction, delivery_id: str, payload: Any, *, at: float, made_at: float | None = None) -> Recorded:
    """Owe a delivery in the transaction that makes it; the same again is found. When it was made is in the obligation.

    Raises as `hermes_state.outbox.append`.
    """
    refuse_odd(delivery_id, payload, made_at)
    return append(
        tx, dedupe_id=f"{KIND}/{delivery_id}", kind=KIND, transport=TRANSPORT, policy=Policy.AT_LEAST_ONCE, at=at,
        made_at=made_at, payload={"delivery_id": delivery_id, "payload": payload},
    )


def refuse_odd(delivery_id: object, payload: object, made_at: object) -> None:
    """Raise `InvalidInput` for an id, a payload or a time that one of both ends cannot keep or give back."""
    # What the sender's outbox keeps: its id has the kind in front, its payload is one level further in.
    text("delivery_id", delivery_id, most=MOST_CHARACTERS - len(KIND) - 1, of=" of a delivery")
    levels("payload", [payload], of="a delivery")
    if made_at is not None:
        moment("made_at", made_at)


def thread_for(reader: Reader, instance_id: str) -> str:
    """Where the deliveries of an instance are shown now. Raises `ThreadNotFound`."""
    row = reader.row("SELECT thread_id FROM home_threads WHERE instance_id = ?", (instance_id,))
    if row is None:
        raise ThreadNotFound(
            f"Instance {instance_id!r} in {reader.path} has no thread for what it delivers home.",
            hint="Choose one; the gateway keeps the delivery until then.", path=reader.path, thread_id=None,
        )
    return str(row[0])


def _receive(
    tx: Transaction, instance_id: str, delivery_id: str, payload: Any, *, made_at: float | None, at: float,
    show: Callable[[Transaction, HomeDelivery], None] | None,
) -> tuple[HomeDelivery, bool]:
    refuse_odd(delivery_id, payload, made_at)
    try:
        content = json.dumps(payload, ensure_ascii=False, allow_nan=False, sort_keys=True)
        data = content.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"The payload of a delivery is JSON: {error}.", argument="payload") from error
    if len(data) > MOST_BYTES:
        raise InvalidInput(
            f"The payload of delivery {delivery_id!r} has {len(data):,} bytes; {MOST_BYTES:,} is the most.",
            argument="payload", size=len(data),
        )
    check = hashlib.sha256(data).hexdigest()
    row = tx.row(
        f"SELECT {_COLUMNS}, payload_check FROM home_deliveries WHERE instance_id = ? AND delivery_id = ?",
        (instance_id, delivery_id),
    )
    if row is not None:
        if row[-1] != check:
            raise IdempotencyConflict(
                f"Delivery {delivery_id!r} of instance {instance_id!r} is in {tx.path} with another payload.",
                hint="Give every delivery an id of its own.", path=tx.path, key=delivery_id,
            )
        return _delivery(row[:-1]), False
    horizon = tx.row("SELECT forgotten_to FROM home_horizon")
    if horizon is not None and made_at is not None and made_at <= horizon[0]:
        raise TooOld(
            f"Delivery {delivery_id!r} of instance {instance_id!r} was made before what {tx.path} remembers.",
            hint="Look whether it was shown; deliver it under a new id if not.", path=tx.path, dedupe_id=delivery_id,
            made_at=made_at, remembered_from=horizon[0],
        )
    thread_id = thread_for(tx, instance_id)
    tx.execute(
        "INSERT INTO home_deliveries (instance_id, delivery_id, thread_id, payload, payload_check, made_at,"
        " received_at) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (instance_id, delivery_id, thread_id, content, check, made_at, at),
    )
    made = HomeDelivery(
        no=tx.last_insert_rowid(), instance_id=instance_id, delivery_id=delivery_id, thread_id=thread_id,
        payload=payload, made_at=made_at, received_at=at,
    )
    record(tx, "home_deliveries", f"{instance_id}/{delivery_id}", "insert", at)
    if show is not None:
        show(tx, made)
    return made, True


def _read(payload: str) -> Any:
    try:
        return json_values.read(payload)
    except ValueError as error:  # stored by a release without a bound, or damaged
        return {"unreadable": f"its payload cannot be read here: {error}"}


def _delivery(row: tuple[Any, ...]) -> HomeDelivery:
    no, instance_id, delivery_id, thread_id, payload, made_at, received_at = row
    return HomeDelivery(
        no=no, instance_id=instance_id, delivery_id=delivery_id, thread_id=thread_id, payload=_read(payload),
        made_at=made_at, received_at=received_at,
    )
