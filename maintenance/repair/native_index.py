"""The search index of a native store: a file of its own, emptied and filled anew by the library.

Invariant: the index holds nothing that the store has not, so no copy is made and nothing is kept of it; the store's
rows are only read. Not for: indexes inside a foreign file (`search_step`).
"""

from __future__ import annotations

from pathlib import Path

from hermes_state.clock import Clock
from hermes_state.engine import APPLICATION_ID, open_read
from hermes_state.errors import RepairFailed, StateError
from hermes_state.store import open_store
from maintenance.doctor.findings import Finding, Severity
from maintenance.doctor.native_search import index_findings
from maintenance.repair.report import Step

# Filling is given this long at a time; it goes on until nothing is left.
BUDGET_SECONDS = 30.0


def is_native_index(finding: Finding) -> bool:
    """Whether a finding is about the index file beside a native store."""
    return finding.object.endswith("search.db")


def native_index_findings(db: Path, clock: Clock) -> tuple[Finding, ...]:
    """What is wrong with the index beside a native store; nothing for other files and those that cannot be read."""
    try:
        with open_read(db, search_modules=False, clock=clock) as store:
            native = store.application_id == APPLICATION_ID
        return tuple(one for one in index_findings(db, clock) if one.severity >= Severity.WARNING) if native else ()
    except StateError:
        return ()  # the store itself is damaged: its index is looked at once that is repaired


def rebuild_native_index(db: Path, findings: tuple[Finding, ...], clock: Clock) -> tuple[Step, ...]:
    """Empty the index and fill it from the rows. Raises `RepairFailed` when it cannot be written."""
    with open_store(path=db, clock=clock) as store:
        work = store.search.rebuild()
        while not work.degraded and work.pending:
            before = work.pending
            work = store.search.catch_up(BUDGET_SECONDS)
            if work.pending >= before:
                break
        name = store.search.path.name
    if work.degraded:
        raise RepairFailed(
            f"The search index beside {db} could not be built again: {work.degraded}. No message is affected.",
            hint="Searches read the messages meanwhile. Check that this user may write to the folder.", path=db,
            step=f"search index {name}",
        )
    return tuple(Step(kind="search index", object=name, how="made anew") for _finding in findings[:1])
