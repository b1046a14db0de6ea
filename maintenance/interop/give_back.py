"""`sessions adopt --back`: the steps around making a file of hermes-agent of a native store.

Invariant: the store is only read; the new file gets its name when it is whole and was compared, and never one that
something has already. Not for: what is in the file (`state_db.py`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_state.engine.create import publish
from hermes_state.engine.files import foreign_store
from hermes_state.engine.whole_file import drop_sidecars
from hermes_state.errors import Refused
from hermes_state.flushing import sync_file
from maintenance.dialects.native.owed import has_outbox
from maintenance.dialects.native.routed import has_routing
from maintenance.dialects.native.scheduled import has_cron
from maintenance.dialects.native.serving import has_instances
from maintenance.dialects.native.shape import native_identity
from maintenance.gate import reading
from maintenance.interop.adopt import places
from maintenance.interop.convert.back import owed_in_both
from maintenance.interop.state_db import Written, write_state_db
from maintenance.output.progress import progress
from maintenance.output.text import human_bytes, plural
from maintenance.plan import Plan
from maintenance.space.disk import Need, require_room, rooms
from maintenance.space.sizes import sizes

if TYPE_CHECKING:
    from hermes_state.engine import Reader
    from maintenance.context import Context


@dataclass(frozen=True, kw_only=True)
class BackReport:
    """What was made."""

    path: Path  # the store
    result: Path  # the file of hermes-agent
    written: Written  # its rows
    result_bytes: int  # its size
    owed: int  # obligations that are not settled: they stay in the store, and hermes-agent sends none of them
    owed_in_both: int  # of them, those that hermes-agent finds in its own tables as well, and sends
    instances: int  # gateway instances that are not removed: they stay in the store, with their threads and turns
    routes: int  # chats whose routing stays in the store: hermes-agent's index says where they go on there
    cron_jobs: int  # cron jobs that are not paused: they stay in the store, where a ticker goes on to run them

    def document(self) -> dict[str, Any]:
        """The fields of `--json`."""
        return {
            "path": str(self.path),
            "result": str(self.result),
            "sessions": self.written.sessions,
            "messages": self.written.messages,
            "other_rows": self.written.other_rows,
            "result_bytes": self.result_bytes,
            "still_owed": self.owed,
            "owed_in_both": self.owed_in_both,
            "instances": self.instances,
            "routes": self.routes,
            "cron_jobs": self.cron_jobs,
        }

    def line(self) -> str:
        """The report for people."""
        rows = f"{plural(self.written.sessions, 'session')}, {plural(self.written.messages, 'message')}"
        return (
            f"{self.result} is a file of hermes-agent: {rows}, {human_bytes(self.result_bytes)}, compared row by row. "
            f"hermes-agent builds its search indexes when it first opens it."
            f"{_owed_line(self.owed, self.owed_in_both)}{_instances_line(self.instances)}{_routes_line(self.routes)}"
            f"{_cron_line(self.cron_jobs)}"
        )


def make_plan(ctx: Context, target: Path) -> Plan:
    """What would be made. Raises `ForeignStore` for a file that is none of ours."""
    with reading(ctx) as store, store.snapshot():
        if native_identity(store) is None:
            raise foreign_store(ctx.db)
        counts = store.rows("SELECT (SELECT count(*) FROM sessions), (SELECT count(*) FROM messages)")[0]
        owed, both = _still_owed(store), _owed_in_both(store)
        instances, routes, jobs = _instances(store), _routes(store), _cron_jobs(store)
    facts = {
        "path": str(ctx.db), "target": str(target), "sessions": counts[0], "messages": counts[1], "still_owed": owed,
        "owed_in_both": both, "instances": instances, "routes": routes, "cron_jobs": jobs,
    }
    what = f"{plural(counts[0], 'session')} with {plural(counts[1], 'message')}"
    title = f"Make {target}, a file of hermes-agent, of {ctx.db}, which is only read"
    said = (_owed_line(owed, both), _instances_line(instances), _routes_line(routes), _cron_line(jobs))
    lines = (what, *(line.strip() for line in said if line))
    return Plan(title=title, lines=lines, facts=facts)


def _still_owed(store: Reader) -> int:
    """Obligations that nobody has settled."""
    if not has_outbox(store.rows):
        return 0
    return int(store.rows("SELECT count(*) FROM outbox WHERE settled_at IS NULL")[0][0])


def _owed_in_both(store: Reader) -> int:
    """Of them, those that were converted from tables of hermes-agent and are owed there as well."""
    row = store.row("SELECT adopted_from FROM store")
    return owed_in_both(store, None if row is None or row[0] is None else json.loads(row[0]))


def _owed_line(owed: int, both: int) -> str:
    if not owed:
        return ""
    stay = f" {plural(owed, 'obligation')} that nobody has sent stay{'s' if owed == 1 else ''} in the store: "
    if not both:
        return f"{stay}send or drop them here, since hermes-agent sends none of them."
    return (
        f"{stay}hermes-agent finds {both} of them in its own tables and sends {'it' if both == 1 else 'them'}, so drop "
        f"{'it' if both == 1 else 'those'} here before it starts; the others it never sends."
    )


def _instances(store: Reader) -> int:
    """Gateway instances that are not removed."""
    if not has_instances(store.rows):
        return 0
    return int(store.rows("SELECT count(*) FROM gateway_instances WHERE removed_at IS NULL")[0][0])


def _instances_line(instances: int) -> str:
    if not instances:
        return ""
    return (
        f" {plural(instances, 'gateway instance')} stay{'s' if instances == 1 else ''} in the store, with the threads "
        "that are bound: hermes-agent knows none of it, so enroll the gateways with whatever serves them next."
    )


def _routes(store: Reader) -> int:
    """Chats that are routed here."""
    if not has_routing(store.rows):
        return 0
    return int(store.rows("SELECT count(*) FROM routing_entries")[0][0])


def _routes_line(routes: int) -> str:
    if not routes:
        return ""
    return (
        f" The routing of {plural(routes, 'chat')} stays in the store, with who is paired: hermes-agent goes by its own"
        " index and begins a new session where that has no entry."
    )


def _cron_jobs(store: Reader) -> int:
    """Cron jobs that would fire."""
    if not has_cron(store.rows):
        return 0
    return int(store.rows("SELECT count(*) FROM cron_runtime WHERE state IN ('scheduled', 'error')")[0][0])


def _cron_line(jobs: int) -> str:
    if not jobs:
        return ""
    return (
        f" {plural(jobs, 'cron job')} stay{'s' if jobs == 1 else ''} in the store, and a ticker goes on to run"
        f" {'it' if jobs == 1 else 'them'} there: hermes-agent keeps its jobs in files of its own, so pause here what"
        " it is to run."
    )


def give_back(ctx: Context, target: Path) -> BackReport:
    """Make the file."""
    for working in places.leftovers(target):
        places.remove(working)
    with reading(ctx) as store, store.snapshot():
        # Bodies may be compressed here, and are not there; tool output was measured at a third of its size.
        need = Need(directory=target.resolve().parent, bytes=3 * sizes(store).used_bytes, what="the new file")
        require_room(rooms([need]), what=f"Making {target}")
        owed, both = _still_owed(store), _owed_in_both(store)
        instances, routes, jobs = _instances(store), _routes(store), _cron_jobs(store)
        with places.working_file(target, ctx.clock, "back") as working, progress(None, "writing rows"):
            written = write_state_db(store, working, ctx.clock)
            drop_sidecars(working)
            sync_file(working)
            if not publish(working, target):
                raise Refused(f"{target} exists already.", hint="Name a new file with --to.", path=target)
    return BackReport(
        path=ctx.db, result=target, written=written, result_bytes=target.stat().st_size, owed=owed,
        owed_in_both=both, instances=instances, routes=routes, cron_jobs=jobs,
    )
