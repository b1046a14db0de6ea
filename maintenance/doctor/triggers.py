"""Whether the store takes writes: triggers that refer to something that is not there make every insert fail.

Invariant: nothing is written; SQLite compiles the statements that a program would run, triggers included, and says
what it cannot resolve. Not for: what a trigger does. Reading trigger texts was rejected: only SQLite knows all they
refer to.
"""

from __future__ import annotations

from collections.abc import Iterator

from hermes_state.engine import Reader
from hermes_state.errors import StatementFailed
from maintenance.doctor.findings import Finding, Severity, recover_command
from maintenance.quoting import quoted


def trigger_findings(reader: Reader) -> Iterator[Finding]:
    """Tables into which nothing can be written any more."""
    tables = reader.rows(
        "SELECT DISTINCT t.name FROM sqlite_schema AS t JOIN sqlite_schema AS g ON g.type = 'trigger'"
        " AND g.tbl_name = t.name WHERE t.type = 'table' ORDER BY t.name"
    )
    for (name,) in tables:
        first = reader.row("SELECT name FROM pragma_table_info(?) LIMIT 1", (name,))
        if first is None:
            continue  # a definition that SQLite cannot use is a finding of its own
        column = str(first[0])
        for verb, sql in (
            ("inserted into", f"INSERT INTO {quoted(name)} DEFAULT VALUES"),
            ("changed in", f"UPDATE {quoted(name)} SET {quoted(column)} = {quoted(column)}"),
            ("deleted from", f"DELETE FROM {quoted(name)}"),
        ):
            try:
                reader.rows(f"EXPLAIN {sql}")
            except StatementFailed as problem:
                cause = str(problem.__cause__ or problem).removeprefix("SQLError: ")
                yield Finding(
                    code="trigger_broken",
                    severity=Severity.DAMAGE,
                    object=str(name),
                    sentence=f"Nothing can be {verb} the table {name}: a trigger of it refers to something that is not "
                    f"there ({cause}). The rows are whole.",
                    facts={"table": str(name), "cause": cause},
                    next_command=recover_command(reader.path),
                    derived=True,
                )
                break
