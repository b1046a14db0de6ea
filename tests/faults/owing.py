"""The outbox under every fault and power cut: what was recorded is owed, what was settled stays settled."""

from __future__ import annotations

from pathlib import Path

from hermes_state import open_store
from hermes_state.engine import Transaction
from hermes_state.outbox import Accepted, Failed, NotAdmitted, append
from tests.faults.operation import STORE, Done, Operation, State, conversation
from tests.support.outbox_rows import outbox_rows


def owed(home: Path) -> None:
    """A store that owes three things, two of them siblings."""
    conversation(home)
    with open_store(path=home / STORE) as store:
        for number, policy in enumerate(("at_most_once", "at_least_once", "at_least_once")):
            store.outbox.append(
                dedupe_id=f"owed {number}", kind="final", transport="telegram", payload={"text": "word " * 300},
                policy=policy, batch="run" if number else None,  # type: ignore[arg-type]
            )


def send(home: Path, done: Done) -> None:
    """One claim of each policy, refunded, failed and accepted; and a change that owes something."""
    with open_store(path=home / STORE) as store:

        def work(tx: Transaction) -> None:
            tx.execute("UPDATE sessions SET title = 'told' WHERE id = 'talk'")
            append(
                tx, dedupe_id="with its change", kind="stop", transport="gateway", payload=1, policy="at_most_once",
                at=store.core.clock.now(),
            )

        store.core.write(work, durability="power")
        done("owed with its change", "power")
        first, siblings = store.outbox.claim(["telegram"], limit=3)
        done("claimed", "power")
        store.outbox.settle(first, Accepted(result={"id": 7}))
        done("accepted", "power")
        store.outbox.settle(siblings, NotAdmitted(why="busy", retry_after=0.0))
        done("refunded", "power")
        (siblings,) = store.outbox.claim(["telegram"], limit=3)
        done("claimed again", "process")
        store.outbox.settle(siblings, Failed(why="no"))
        done("failed", "power")
        store.outbox.upkeep(blank_after_seconds=0.0, most_settled=0)
        done("forgotten", "process")


def shows(home: Path) -> State:
    from tests.faults.judging import sound

    return {**sound(home / STORE), "outbox": repr(outbox_rows(home / STORE))}


OWING = (Operation(name="outbox", prepare=owed, run=send, shows=shows),)
