"""Cron under every fault and power cut: what is claimed, begun and settled stays so, and nothing is there half."""

from __future__ import annotations

from pathlib import Path

from cron_store.cron import Cron
from cron_store.records import Delivery, Failed, Policies, Succeeded
from cron_store.schedule import Interval
from hermes_state import open_store
from hermes_state.clock import clock_from_environment
from maintenance.dialects.native.scheduled import KEYS, rows_of
from tests.faults.operation import STORE, Done, Operation, State, conversation
from tests.maintenance.native_stores import NOW
from tests.support.outbox_rows import outbox_rows

# Who had it, by which clock, differs from run to run.
_LEFT_OUT = frozenset({
    "owner", "waiter", "boot_id", "time_namespace", "claimed_boottime", "expires_boottime", "boottime", "ticker",
})


def jobs(home: Path) -> None:
    """A store with two jobs whose first slot has come, and one whose was missed for a week."""
    conversation(home)
    with open_store(path=home / STORE) as store:
        cron = Cron(store)
        for name, seconds in (("good", 3600), ("bad", 3600), ("late", 60)):
            past = NOW - 7 * 86_400 if name == "late" else NOW - seconds
            cron.add(
                name, Interval(seconds=seconds, anchor=int(past)), fields={"prompt": "word " * 300}, after=past,
                policies=Policies(misfire="coalesce"),
            )


def fire(home: Path, done: Done) -> None:
    """One tick: claims of three jobs; one succeeds and owes its result, one fails, one is given back."""
    with open_store(path=home / STORE, clock=clock_from_environment()) as store:
        cron = Cron(store)
        lease = cron.tick_lease()
        done("leased", "process")
        cron.heartbeat()
        done("heard", "process")
        claims = {claim.job_id: claim for claim in cron.take(lease, room=3).claims}
        done("claimed", "power")
        cron.start(claims["good"])
        done("begun", "power")
        owed = Delivery(
            kind="report", transport="telegram", target="chat", payload={"text": "done"}, policy="at_most_once"
        )
        cron.settle(claims["good"], Succeeded(result={"said": "word " * 300}), deliveries=[owed])
        done("succeeded", "power")
        cron.start(claims["bad"])
        done("begun too", "power")
        cron.settle(claims["bad"], Failed(error="no such host"))
        done("failed", "power")
        cron.release(claims["late"])
        done("given back", "power")
        cron.remove("bad", actor="test", reason="a test")
        done("removed", "power")
        cron.heartbeat(succeeded=True)
        done("heard of success", "process")
        lease.release()
        done("let go", "process")


def shows(home: Path) -> State:
    from hermes_state.engine import open_read
    from tests.faults.judging import sound

    with open_read(home / STORE) as reader:
        told = {
            table: [
                {name: value for name, value in row.items() if name not in _LEFT_OUT}
                for row in rows_of(reader.rows, table)
            ]
            for table in KEYS
        }
        (store_id,) = reader.rows("SELECT store_id FROM store")[0]
    # What a run owes is known by the store that it is of.
    owed = repr(outbox_rows(home / STORE)).replace(store_id, "this store")
    return {**sound(home / STORE), "cron": repr(told), "outbox": owed}


TICKING = (Operation(name="cron", prepare=jobs, run=fire, shows=shows),)
