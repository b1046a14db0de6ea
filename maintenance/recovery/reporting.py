"""The report of a recovery, from the notes that were made while the file was filled.

Invariant: every number is counted in the result or in the notes, after the last row was put in; the report is a new
file and never replaces one. What was kept apart is written beside it, one JSON line each, private (0600).

Not for: printing. Writing the report while rows come was rejected: a later rung may prove what an earlier one doubted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from hermes_state.engine.salvage import Building
from hermes_state.errors import Refused
from hermes_state.flushing import sync_folder
from maintenance.quoting import quoted
from maintenance.recovery.filling import TableFiller
from maintenance.recovery.notes import Notes
from maintenance.recovery.reading import LARGEST, SMALLEST
from maintenance.recovery.records import MOST_LISTED, TableReport
from maintenance.recovery.schema import Schema


def forget_what_was_found(notes: Notes, db: Building, filler: TableFiller) -> None:
    """Before counting: keys that were listed as missing, or seen as remains, and are in the result after all."""
    table = filler.table
    if table.rowid is None:
        return

    def present(notes_about: str) -> str:
        # Named in full: the table may have a column `key` of its own.
        rows = f"SELECT 1 FROM {quoted(table.name)} AS t WHERE t.{table.rowid} = {notes_about}.key"
        return f"EXISTS ({rows})"

    for name in ("_recovery_listed", "_recovery_remains"):
        db.execute(f"DELETE FROM {name} WHERE tab = ? AND {present(name)}", (filler.number,))
    name = "_recovery_apart"
    db.execute(
        f"DELETE FROM {name} WHERE tab = ? AND reason IN ('cut off', 'only its text is left, in the search "
        f"index') AND {present(name)}", (filler.number,),
    )
    name = "_recovery_uncertain"
    db.execute(f"DELETE FROM {name} WHERE tab = ? AND NOT {present(name)}", (filler.number,))


def table_report(notes: Notes, db: Building, filler: TableFiller, facts: dict[str, Any]) -> TableReport:
    """One table's part. `facts`: what the run knows of it (complete, seconds, confirmed)."""
    table, tab = filler.table, filler.number
    rows = int(db.rows(f"SELECT count(*) FROM {quoted(table.name)}")[0][0])
    placeholders = notes.count("_recovery_made", tab)
    uncertain = notes.count("_recovery_uncertain", tab)
    report = TableReport(
        name=table.name, rows=rows, certain=rows - placeholders - uncertain, uncertain=uncertain,
        placeholders=placeholders,
        confirmed=int(facts.get("confirmed", filler.state["proven"])), apart=notes.count("_recovery_apart", tab),
        deleted_remains=notes.count("_recovery_remains", tab), lost_keys=notes.count("_recovery_listed", tab),
        duplicate_rows=notes.count("_recovery_versions", tab), rungs=dict(filler.state["rungs"]),
        complete=bool(facts.get("complete", True)),
        unreadable=bool(facts.get("unreadable")), seconds=dict(facts.get("seconds", {})),
    )
    for name in ("_recovery_uncertain", "_recovery_apart"):
        for reason, count in notes.each(f"SELECT reason, count(*) FROM {name} WHERE tab = ? GROUP BY reason", (tab,)):
            report.reasons[str(reason)] = report.reasons.get(str(reason), 0) + int(count)
    report.uncertain_keys = list(islice(_runs(notes, tab), MOST_LISTED))
    made = notes.each(f"SELECT key FROM _recovery_made WHERE tab = ? ORDER BY key LIMIT {MOST_LISTED}", (tab,))
    report.placeholder_keys = [key for (key,) in made]
    sql = f"SELECT key, said FROM _recovery_listed WHERE tab = ? ORDER BY key LIMIT {MOST_LISTED}"
    listed = notes.each(sql, (tab,))
    report.lost = [{"key": key, **json.loads(said)} for key, said in listed]
    versions = notes.each(f"SELECT said FROM _recovery_versions WHERE tab = ? LIMIT {MOST_LISTED}", (tab,))
    report.duplicates = [json.loads(said) for (said,) in versions]
    if not facts.get("listed"):
        report.lost_ranges = list(_lost_ranges(notes, db, filler))
    return report


def _runs(notes: Notes, tab: int) -> Iterator[dict[str, Any]]:
    """Uncertain rows of one reason, in runs of neighbouring keys."""
    run: dict[str, Any] | None = None
    for key, reason in notes.each("SELECT key, reason FROM _recovery_uncertain WHERE tab = ? ORDER BY key", (tab,)):
        if run is not None and isinstance(key, int) and run["reason"] == reason and run["last"] == key - 1:
            run["last"] = key
            continue
        if run is not None:
            yield run
        run = {"first": key, "last": key, "reason": reason}
    if run is not None:
        yield run


def _lost_ranges(notes: Notes, db: Building, filler: TableFiller) -> Iterator[tuple[int, int | None]]:
    """Ranges that could not be read and in which no other rung found a row either; None: nobody knows how far."""
    table = filler.table
    if table.rowid is None:
        return
    name = quoted(table.name)
    for first, last in notes.each(
        "SELECT first, last FROM _recovery_unread WHERE tab = ? ORDER BY first", (filler.number,)
    ):
        if first == SMALLEST:
            continue  # all of it: what was found elsewhere says more than these numbers
        at = int(first)
        rows = db.iterate(
            f"SELECT {table.rowid} FROM {name} WHERE {table.rowid} BETWEEN ? AND ? ORDER BY 1", (first, last)
        )
        for (key,) in rows:
            if key > at and last != LARGEST:
                yield at, int(key) - 1
            at = int(key) + 1
        if last == LARGEST:
            # Rows found beyond it on pages of their own show how far the table went.
            if at == first:
                yield at, None
        elif at <= last:
            yield at, int(last)


def time_gaps(db: Building, schema: Schema) -> list[dict[str, Any]]:
    """Neighbouring messages whose ids jump: what is between them was deleted or is lost."""
    messages = schema.tables.get("messages")
    if messages is None:
        return []
    time = next((name for name in ("timestamp", "created_at") if messages.has(("id", name))), None)
    if time is None:
        return []
    gaps: list[dict[str, Any]] = []
    sql = (
        f"SELECT before, id, was, {time} FROM (SELECT id, {time}, lag(id) OVER w AS before, lag({time}) OVER w AS was "
        "FROM messages WINDOW w AS (ORDER BY id)) WHERE id > before + 1"
    )
    for before, after, was, now in db.iterate(sql):
        gaps.append({
            "after_id": before, "before_id": after, "ids": after - before - 1, "from": was, "to": now,
            "seconds": round(now - was, 3) if isinstance(was, float) and isinstance(now, float) else None,
        })
    return gaps


def write_apart(notes: Notes, target: Path) -> int:
    """Write what was kept apart to a new file; how many lines. No file is made for none."""
    if next(iter(notes.each("SELECT 1 FROM _recovery_apart LIMIT 1")), None) is None:
        return 0
    count = 0
    with new_file(target) as out:
        for (said,) in notes.each("SELECT said FROM _recovery_apart ORDER BY tab, key"):
            out.write(f"{said}\n")
            count += 1
        out.flush()
        os.fsync(out.fileno())
    return count


def write_report(document: dict[str, Any], target: Path, *, ours: bool = False) -> None:
    """Write the report to a new file, and make its name durable.

    `ours`: a killed run of the same recovery may have written it, whole or in part; it is then replaced at once.
    Raises `Refused` when something else has the name.
    """
    staged = target.with_name(f".{target.name}.new") if ours else target
    if ours:
        staged.unlink(missing_ok=True)
    with new_file(staged) as out:
        json.dump(document, out, indent=1, ensure_ascii=False)
        out.write("\n")
        out.flush()
        os.fsync(out.fileno())
    if ours:
        staged.replace(target)
    sync_folder(target.parent)


def new_file(target: Path) -> Any:
    """A new private text file. Raises `Refused` when something has the name."""
    try:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise Refused(
            f"{target} exists already.", hint="Name another report with --report FILE.", path=target
        ) from error
    return os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogatepass")
