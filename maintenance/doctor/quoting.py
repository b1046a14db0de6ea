"""Names of tables and columns inside SQL, and inside the pragmas that take no bound values.

Not for: values; those are bound.
"""

from __future__ import annotations


def literal(text: str) -> str:
    """`text` as an SQL string, for `PRAGMA quick_check('…')`."""
    return "'" + text.replace("'", "''") + "'"


def name(text: str) -> str:
    """`text` as an SQL identifier."""
    return '"' + text.replace('"', '""') + '"'
