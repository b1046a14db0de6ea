"""What keeps hermes-agent from writing its tables into a native store.

Invariant: every release known makes the table `schema_version` before anything else. A native store has an index of
that name, so SQLite refuses the statement, the release stops, and not a byte of the file has changed. An index that was
dropped, or a table of hermes-agent beside ours, is a finding.

Not for: telling dialects apart (that is the application id and the identity row). Refusing by file mode was rejected:
root and the owner pass it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hermes_state.engine import Reader

TRIPWIRE = "schema_version"
# Tables that a release would have made, had it come past the tripwire. Ours of the same name are not among them.
INTRUDERS = (
    "schema_version", "session_model_usage", "state_meta", "gateway_routing", "compression_locks", "messages_fts",
)


def tripwire_problem(reader: Reader) -> str:
    """What is wrong with the tripwire of a native store; empty when hermes-agent will stop at it."""
    marks = ", ".join("?" * len(INTRUDERS))
    found = reader.rows(
        f"SELECT type, name FROM sqlite_schema WHERE name = ? OR (type = 'table' AND name IN ({marks}))",
        (TRIPWIRE, *INTRUDERS),
    )
    tables = sorted(str(name) for kind, name in found if kind == "table")
    if tables:
        return f"hermes-agent has made tables of its own in it ({', '.join(tables)})"
    if ("index", TRIPWIRE) not in found:
        return f"its index {TRIPWIRE}, at which hermes-agent stops, is missing"
    return ""
