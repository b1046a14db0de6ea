"""Rows of cron whose texts have something beside them: JSON that is read again, an id that is made of a text.

Invariant: a job can be read afterwards: its fields are an object, its version counts one more, so that nobody writes
back what he read before. An incident takes the id that belongs to its new text, since the old one is a digest of the
secret; its state stays. What decides what runs stays: ids, schedules, slots, states, times, budgets.

Not for: texts that stand alone (`cells`), nor ids of jobs: a secret in one of those is listed as not gone, since slots,
runs and obligations are known by it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from maintenance.dialects.native import scheduled
from maintenance.scrub.cells import still_json, unlocked

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction
    from maintenance.scrub.patterns import Redactor

# By table, the texts that are replaced together with what belongs to them.
TEXTS: Mapping[str, tuple[str, ...]] = {
    "cron_jobs": ("name", "fields"),
    "cron_executions": ("error", "failure_type", "interrupted_reason", "result"),
    "cron_incidents": ("error", "failure_type"),
    "cron_events": ("detail",),
}
# In tables that are searched cell by cell: what is a word of ours, or says who and which.
FIXED: Mapping[str, frozenset[str]] = {
    "cron_schedules": frozenset({"job_id", "schedule"}),
    "cron_runtime": frozenset({"job_id", "tz_version", "last_state", "session_id"}),
    "cron_occurrences": frozenset({"job_id", "reason"}),
    "cron_home": frozenset({"boot_id", "time_namespace", "ticker"}),
}
# Kinds of tombstones that keep nobody out without their key.
KIND = scheduled.KIND
ROWS_A_STEP = 50
_JSON = frozenset({"fields", "result", "detail"})


def rows(reader: Reader, redactor: Redactor, table: str) -> Iterator[list[dict[str, Any]]]:
    """The rows of a table with secrets in them as they should become, in portions; nothing where it has no table."""
    if not scheduled.has_cron(reader.rows):
        return
    (key,), names = scheduled.KEYS[table], TEXTS[table]
    more = ", job_id" if table == "cron_incidents" else ""
    last: Any = None
    while found := reader.rows(
        f"SELECT {key}, {', '.join(names)}{more} FROM {table} WHERE ?1 IS NULL OR {key} > ?1 ORDER BY {key}"
        f" LIMIT {ROWS_A_STEP}", (last,)
    ):
        last = found[-1][0]
        portion = []
        for number, *values in found:
            old = dict(zip(names, values, strict=False))
            new = {
                name: _json(redactor, name, value) if name in _JSON else redactor.cell(value)
                for name, value in old.items()
            }
            if new != old:
                portion.append({key: number} | new | ({"job_id": values[-1]} if more else {}))
        if portion:
            yield portion


def replace(tx: Transaction, table: str, portion: list[dict[str, Any]], at: float) -> int:
    """Write rows with their new texts; returns how many. The triggers that keep what has ended are away."""
    (key,) = scheduled.KEYS[table]
    with unlocked(tx, table):
        for new in portion:
            said = {name: new[name] for name in TEXTS[table]}
            if table == "cron_incidents":
                said["incident_id"] = _free_id(tx, new)
            sets = ", ".join(f"{name} = ?" for name in said)
            tx.execute(f"UPDATE {table} SET {sets} WHERE {key} = ?", [*said.values(), new[key]])
            if table == "cron_jobs":
                tx.execute(
                    "UPDATE cron_jobs SET version = version + 1, updated_at = ? WHERE job_id = ?", (at, new[key])
                )
                tx.execute("UPDATE cron_runtime SET revision = revision + 1 WHERE job_id = ?", (new[key],))
    return len(portion)


def _free_id(tx: Transaction, new: Mapping[str, Any]) -> str:
    """The id of an incident with this text; another incident may have it, which said the same but for its secret."""
    from cron_store.incidents import signature

    number, made = 1, signature(new["job_id"], new["error"])
    while tx.row(
        "SELECT 1 FROM cron_incidents WHERE incident_id = ? AND incident_id <> ?", (made, new["incident_id"])
    ) is not None:
        number += 1
        made = f"{signature(new['job_id'], new['error'])}-{number}"
    return made


def _json(redactor: Redactor, name: str, text: str | None) -> str | None:
    """JSON without secrets, which stays JSON, and an object where one is read again."""
    if text is None or (new := redactor.text(text)) == text:
        return text
    new = still_json(new)
    if name == "result" or isinstance(json.loads(new), dict):
        return new
    return json.dumps({"redacted": json.loads(new)}, ensure_ascii=False, separators=(",", ":"))
