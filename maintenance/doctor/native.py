"""All checks that only a native store has, in the order in which their answers matter.

Invariant: a check that fails is a finding, and the next one still runs. Not for: pages, WAL, holders and foreign keys,
which are the same for any file (`examine`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_state.engine.schema import HOST_APPLICATION_ID
from hermes_state.errors import ForeignStore, NotAStore
from hermes_state.host.layout import HOST
from maintenance.dialects.native.shape import Identity, native_identity
from maintenance.doctor import native_identity as identities
from maintenance.doctor.findings import Finding, Severity, recover_command
from maintenance.doctor.native_compactions import compaction_findings
from maintenance.doctor.native_cron import cron_findings
from maintenance.doctor.native_gateways import gateway_findings
from maintenance.doctor.native_outbox import outbox_findings
from maintenance.doctor.native_routing import routing_findings
from maintenance.doctor.native_rows import row_findings
from maintenance.doctor.native_search import index_findings
from maintenance.doctor.native_store import store_findings
from maintenance.doctor.native_working import working_findings

if TYPE_CHECKING:
    from hermes_state.clock import Clock
    from hermes_state.engine import ReadStore
    from maintenance.output.progress import Progress

# The code of the finding that a file is a host's: it has no sessions, and is compared with no backup.
HOST_FILE = "host_file"
# Runs a check, and makes a finding of its failure.
Guarded = Callable[[str, Path, Callable[[], Iterable[Finding]]], list[Finding]]


def identity_of(store: ReadStore) -> Identity | Finding | None:
    """The identity of a native store; None for a file of hermes-agent; a finding for half of one, or a host's file."""
    if (host := host_finding(store)) is not None:
        return host
    try:
        return native_identity(store)
    except (NotAStore, ForeignStore) as problem:
        return Finding(
            code="identity_incomplete",
            severity=Severity.DAMAGE,
            object=str(store.path),
            sentence=f"{problem.message} {problem.hint}",
            facts={"code": problem.code},
            next_command=recover_command(store.path),
        )


def host_finding(store: ReadStore) -> Finding | None:
    """What the file of a host is, and of which schema; None for any other file."""
    if store.row("PRAGMA application_id") != (HOST_APPLICATION_ID,):
        return None
    known = {step.number for step in HOST.steps}
    here = {int(number) for (number,) in store.rows("SELECT number FROM migrations")}
    said = (
        f"This is the file of a host, schema step {max(here, default=0)}: it holds who serves which homes of one user, "
        "and no session. Its pages and references are checked like those of any store."
    )
    if later := sorted(here - known):
        said += f" Steps {', '.join(map(str, later))} are of another release: use that one."
    if older := sorted(known - here):
        said += f" Steps {', '.join(map(str, older))} come with the next gateway that starts."
    return Finding(
        code=HOST_FILE, severity=Severity.WARNING if later else Severity.INFO, object=str(store.path), sentence=said,
        facts={"steps": sorted(here)}, next_command="hermes-state host status",
    )


def native_findings(
    store: ReadStore, identity: Identity, *, quick: bool, deep: bool, clock: Clock, guarded: Guarded, bar: Progress
) -> list[Finding]:
    """Every check of a native store."""
    path = store.path
    bar.restart(None, "looking at identity and owners")
    found = guarded("identity and owners", path, lambda: list(store_findings(store, identity, clock)))
    found += guarded("copies", path, lambda: identities.twin_findings(path, identity, clock))
    if quick:
        return found
    bar.restart(None, "checking messages")
    found += guarded("messages", path, lambda: list(row_findings(store, deep=deep, advance=bar.advance)))
    bar.restart(None, "checking compactions")
    found += guarded("compactions", path, lambda: list(compaction_findings(store, clock, deep=deep)))
    bar.restart(None, "checking the outbox")
    found += guarded("the outbox", path, lambda: list(outbox_findings(store, clock, deep=deep)))
    bar.restart(None, "checking gateways")
    found += guarded("gateways", path, lambda: list(gateway_findings(store, clock)))
    bar.restart(None, "checking routing")
    found += guarded("routing", path, lambda: list(routing_findings(store, clock, deep=deep)))
    bar.restart(None, "checking background work")
    found += guarded("background work", path, lambda: list(working_findings(store, clock)))
    bar.restart(None, "checking cron")
    found += guarded("cron", path, lambda: list(cron_findings(store, clock, deep=deep)))
    bar.restart(None, "checking the search index")
    found += guarded("the search index", path, lambda: index_findings(path, clock))
    return found
