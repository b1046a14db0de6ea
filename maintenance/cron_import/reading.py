"""What hermes-agent kept of its cron: jobs.json and executions.db of one home.

Invariant: both are read as they are and nothing is written; jobs.json is kept as its bytes, so that a later look can
say whether it is still the same. What has another shape than releases up to 0.19.0 write is refused with what was
found.

Not for: what a record means here (see `translating`). Asking hermes-agent to read its own files was rejected: it may be
gone from the machine, and its reading repairs and rewrites them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hermes_state.clock import Clock
from hermes_state.engine import open_read
from hermes_state.errors import InvalidInput, NotFound, Refused

JOBS, EXECUTIONS, LATER = "jobs.json", "executions.db", "runtime.db"
_COLUMNS = ("id", "job_id", "source", "status", "claimed_at", "started_at", "finished_at", "error", "pid")


@dataclass(frozen=True, kw_only=True)
class Kept:
    """What there is."""

    folder: Path  # <home>/cron
    content: bytes  # of jobs.json
    document: Any  # the same, parsed: {"jobs": [...]}, or a bare list
    records: list[Any]  # its jobs, as they stand there
    executions: list[dict[str, Any]]  # rows of executions.db, oldest first; none when there is no such file


def read(home: Path, clock: Clock) -> Kept:
    """Read a home's cron. Raises `NotFound` (it has none), `Refused`, `InvalidInput` (no jobs.json of such a kind)."""
    folder = home / "cron"
    path = folder / JOBS
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise NotFound(
            f"There are no cron jobs of hermes-agent in {home}: {path} does not exist.",
            hint="Name the home that has them with --from.", path=path,
        ) from None
    if (folder / LATER).exists():
        raise Refused(
            f"{folder / LATER} is of a hermes-agent later than 0.19.0, which keeps the state of its jobs there.",
            hint="Only the jobs.json and executions.db of releases up to 0.19.0 can be brought in.",
            path=folder / LATER,
        )
    document = _parse(path, content)
    records = document.get("jobs", []) if isinstance(document, dict) else document
    if not isinstance(records, list):
        raise _shape(path, "it has no list of jobs")
    return Kept(
        folder=folder, content=content, document=document, records=records,
        executions=_executions(folder / EXECUTIONS, clock),
    )


def _parse(path: Path, content: bytes) -> Any:
    try:
        # As hermes-agent reads it: a byte order mark and bare control characters are let pass.
        document = json.loads(content.decode("utf-8-sig"), strict=False)
    except ValueError as error:
        raise _shape(path, f"it is no JSON ({error})") from error
    except RecursionError as error:
        raise _shape(path, "it is nested too deeply") from error
    if not isinstance(document, dict | list):
        raise _shape(path, "it has no list of jobs")
    return document


def _executions(path: Path, clock: Clock) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    with open_read(path, search_modules=False, clock=clock) as store:
        there = {str(row[1]) for row in store.rows("PRAGMA table_info(executions)")}
        if not there:
            return []
        missing = [name for name in _COLUMNS if name not in there]
        if missing:
            raise Refused(
                f"{path} has no column {missing[0]}, which the history of hermes-agent up to 0.19.0 has.",
                hint="Import without it: move the file away, and back afterwards.", path=path,
            )
        rows = store.rows(f"SELECT {', '.join(_COLUMNS)} FROM executions ORDER BY claimed_at, id")
        return [dict(zip(_COLUMNS, row, strict=True)) for row in rows]


def _shape(path: Path, why: str) -> InvalidInput:
    return InvalidInput(
        f"{path} cannot be read as hermes-agent's jobs: {why}.",
        hint="`hermes cron list` repairs what it can when it reads the file; then import again.", path=path,
    )
