"""Names of tables and columns inside SQL, and inside the pragmas that take no bound values.

Not for: values; those are bound.
"""

from __future__ import annotations


def quoted(name: str) -> str:
    """`name` as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """`text` as an SQL string, for `PRAGMA quick_check('…')`."""
    return "'" + text.replace("'", "''") + "'"
