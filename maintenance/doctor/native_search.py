"""The search index beside a native store: whose it is, how far it is, and whether it holds the rows it should.

Invariant: the index is opened for reading only and never changed; whatever is wrong with it is derived damage, because
every search reads what the index does not have. Not for: rebuilding it (the next search does).
"""

from __future__ import annotations

from pathlib import Path

from hermes_state.clock import Clock
from hermes_state.errors import SearchUnavailable
from hermes_state.store import open_store
from maintenance.doctor.findings import Finding, Severity, command, repair_command
from maintenance.output.text import human_bytes, plural


def index_findings(path: Path, clock: Clock) -> list[Finding]:
    """What can be said of the index without writing."""
    with open_store(path=path, read_only=True, clock=clock) as store:
        search = store.search
        index, size = search.path, search.size()
        if not index.exists():
            sentence = "There is no search index beside the store; the next search builds one."
            return [Finding(code="no_search_index", severity=Severity.INFO, object=str(index), sentence=sentence)]
        try:
            found = search.verify()
            with store.core.reader() as reader:
                total = int(reader.rows("SELECT count(*) FROM messages")[0][0])
        except SearchUnavailable as problem:
            return [
                Finding(
                    code="search_index_unusable",
                    severity=Severity.WARNING,
                    object=index.name,
                    sentence=f"{problem.message} {problem.hint} No message is affected.",
                    facts={"bytes": size, "reason": str(problem.facts.get("reason", ""))},
                    next_command=repair_command(path),
                    derived=True,
                )
            ]
        finally:
            search.close()
    waiting = max(total - found.messages, 0)
    facts = {
        "bytes": size, "messages": found.messages, "not_indexed": waiting, "entries": found.entries,
        "missing": list(found.missing), "stale": list(found.stale),
    }
    if found.missing or found.damage:
        return [
            Finding(
                code="search_rows_differ",
                severity=Severity.DAMAGE,
                object=index.name,
                sentence=f"The search index {index.name} lacks messages that it should have (the first: "
                f"{', '.join(map(str, found.missing[:3])) or found.damage}). Delete it, and the next search "
                "builds it anew; no message is affected.",
                facts=facts,
                next_command=repair_command(path),
                derived=True,
            )
        ]
    stale = f"; {plural(len(found.stale), 'entry', 'entries')} of deleted messages, never shown" if found.stale else ""
    read = (
        f"; {plural(waiting, 'message')} {'is' if waiting == 1 else 'are'} not indexed yet and read directly"
        if waiting else ""
    )
    return [
        Finding(
            code="search_index",
            severity=Severity.OK,
            object=index.name,
            sentence=f"The search index {index.name} ({human_bytes(size)}) has "
            f"{plural(found.messages, 'message')}{read}{stale}.",
            facts=facts,
            next_command=command("sessions optimize", path) if found.stale else "",
        )
    ]
