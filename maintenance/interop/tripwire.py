"""What keeps hermes-agent from writing its tables into a native store.

Invariant: every release known makes the table `schema_version` before anything else, and its modules that open the
file by themselves begin with a table of theirs. A native store has indexes of these names, so SQLite refuses the
statement, the release stops, and not a byte of the file has changed. An index that was
dropped, or a table of hermes-agent beside ours, is a finding.

Not for: telling dialects apart (that is the application id and the identity row). Refusing by file mode was rejected:
root and the owner pass it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hermes_state.engine import Reader

TRIPWIRE = "schema_version"
# The others are what two modules of hermes-agent begin with that open the file by themselves.
TRIPWIRES = (TRIPWIRE, "async_delegations", "delivery_obligations")
# Tables that a release would have made, had it come past the tripwire. Ours of the same name are not among them.
INTRUDERS = (
    "schema_version", "session_model_usage", "state_meta", "gateway_routing", "compression_locks", "messages_fts",
    "async_delegations", "delivery_obligations",
)


def tripwire_problem(reader: Reader) -> str:
    """What is wrong with the tripwire of a native store; empty when hermes-agent will stop at it."""
    marks = ", ".join("?" * len(INTRUDERS))
    found = reader.rows(
        f"SELECT type, name FROM sqlite_schema WHERE type = 'index' OR (type = 'table' AND name IN ({marks}))",
        INTRUDERS,
    )
    tables = sorted(str(name) for kind, name in found if kind == "table")
    if tables:
        return f"hermes-agent has made tables of its own in it ({', '.join(tables)})"
    missing = [name for name in TRIPWIRES if ("index", name) not in found]
    return f"its index {missing[0]}, at which hermes-agent stops, is missing" if missing else ""
