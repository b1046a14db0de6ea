"""A store with gateway instances in each state, and threads with what a gateway does in them."""

from __future__ import annotations

from hermes_state.engine import Transaction
from hermes_state.instances import credentials
from hermes_state.outbox import Accepted
from hermes_state.store import Store
from hermes_state.turns import Frame, FrameKind, operations

CREDENTIAL = "the credential of laptop"
BOOT = "boot-1"


def frame(kind: FrameKind, thread_id: str, turn_id: str | None, **fields: object) -> Frame:
    """A frame of `laptop`."""
    return Frame(
        kind=kind, instance_id="laptop", thread_id=thread_id, session_id=f"session of {thread_id}", turn_id=turn_id,
        fields=fields,
    )


def enrolled(store: Store, instance_id: str, credential: str = CREDENTIAL) -> None:
    """An instance that has this credential."""
    minted = store.instances.enroll(instance_id, nickname=instance_id.capitalize(), actor="test")
    store.instances.redeem(minted.token, actor="plugin")
    store.core.write(lambda tx: credentials.keep(tx, instance_id, credential, at=store.core.clock.now()))


def thread(store: Store, thread_id: str, instance_id: str = "laptop") -> None:
    """A thread that an instance serves."""
    store.instances.bind(thread_id, instance_id, f"session of {thread_id}")


def run(store: Store, thread_id: str, turn_id: str) -> None:
    """Start a turn of a thread."""
    store.turns.start(thread_id, lambda _turn: None, turn_id=turn_id)


def ask(store: Store, thread_id: str, turn_id: str, request_id: str) -> int:
    """The gateway asks for an approval; the number of the question."""
    got = store.turns.receive(
        frame(
            FrameKind.APPROVAL, thread_id, turn_id, request_id=request_id, request_type="exec_command_approval",
            args={"command": "make test"},
        ),
        boot_id=BOOT,
    )
    assert got.interaction is not None
    return got.interaction.id


def complete(store: Store, thread_id: str, turn_id: str) -> None:
    """The gateway ends the turn in order."""
    store.turns.receive(frame(FrameKind.TURN_COMPLETED, thread_id, turn_id, state="completed"), boot_id=BOOT)


def hear(store: Store, instance_id: str = "laptop") -> list[tuple[str, str]]:
    """A gateway takes everything that it is owed: kind and thread of each."""
    return [
        (claim.primary.kind, claim.primary.payload["thread_id"])
        for claim, _verdict in store.turns.send(instance_id, lambda _claim: Accepted(result={"outcome": "stopped"}))
    ]


def at_work(store: Store, instance_id: str = "laptop") -> None:
    """An instance with something of all that ends with it: turns, a question, a decision, an ensure, a stop."""
    enrolled(store, instance_id)
    for name in ("runs", "asks", "answered", "ensured", "stops"):
        thread(store, name, instance_id)
        run(store, name, f"turn of {name}")
    ask(store, "asks", "turn of asks", "r1")
    store.turns.answer(ask(store, "answered", "turn of answered", "r2"), "accept")
    store.turns.ensure("ensured")
    store.turns.stop("stops")
    store.core.write(
        lambda tx: operations.admit(
            tx, "operation", "turn.start", instance_id=instance_id, thread_id="runs", request={}, epoch=1,
            at=store.core.clock.now(),
        )
    )


def serve(store: Store) -> None:
    """Something of everything that there is of instances and turns."""
    instances = store.instances
    instances.add("desk", nickname="Desk", connector_url="ws://desk:1", actor="test")
    instances.enroll("shelf", nickname="Shelf", actor="test")
    enrolled(store, "laptop")
    enrolled(store, "lost")
    enrolled(store, "sold")
    thread(store, "of sold", "sold")
    instances.revoke("lost", actor="test", reason="stolen")
    instances.revoke("sold", actor="test", reason="sold")
    instances.remove("sold", actor="test", reason="sold")
    for name in ("runs", "asks", "answered", "ended", "stops", "stopped"):
        thread(store, name)
        run(store, name, f"turn of {name}")
    ask(store, "asks", "turn of asks", "r1")
    store.turns.answer(ask(store, "answered", "turn of answered", "r2"), "accept")
    item = frame(FrameKind.ITEM, "ended", "turn of ended", item_type="status_text", text="Looking at the files.")
    store.turns.receive(item, boot_id=BOOT)
    complete(store, "ended", "turn of ended")
    store.turns.stop("stopped")
    hear(store)
    store.turns.stop("stops")
    store.turns.home.show_in("laptop", "home")
    store.turns.home.receive("laptop", "delivery 1", {"text": "Good morning."})
    store.core.write(lambda tx: _rows(tx, store.core.clock.now()))


def _rows(tx: Transaction, at: float) -> None:
    for number in ("1", "2"):
        operations.admit(
            tx, f"operation {number}", "turn.start", instance_id="laptop", thread_id="runs", request={}, epoch=1, at=at
        )
    operations.complete(tx, "operation 2", {"started": True}, at=at)
    tx.execute("INSERT INTO gateway_links VALUES ('laptop', 2, ?, ?)", (BOOT, at))
    tx.execute("INSERT INTO gateway_last_seen VALUES ('laptop', ?)", (at,))
    tx.execute("INSERT INTO gateway_attention VALUES ('lost', 'revoked', ?, '')", (at,))
    tx.execute("INSERT INTO gateway_cursors VALUES ('laptop', 'events', 2, '17', ?)", (at,))
    tx.execute("INSERT INTO home_horizon VALUES (1, 7.0)")
    tx.execute("INSERT INTO leases (name, fence) VALUES ('gateway server', 3)")
