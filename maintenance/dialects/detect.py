"""Which dialect a file speaks.

Invariant: native is a file with our application_id and an identity row, whatever it is called and whatever other tables
it has; a file with one of the two is neither. Any other is foreign when it shows the tables of hermes-agent, so a
copied, renamed or recovered file is recognised; else it is NotAStore. Not for: opening files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_state.errors import NotAStore
from maintenance.dialects.base import Dialect
from maintenance.dialects.foreign.dialect import ForeignDialect
from maintenance.dialects.native.shape import native_identity

if TYPE_CHECKING:
    from hermes_state.engine import Reader

NEEDED_SESSION_COLUMNS = frozenset({"id", "source", "started_at", "ended_at"})
NEEDED_MESSAGE_COLUMNS = frozenset({"id", "session_id", "role", "content", "timestamp"})


def dialect_of(reader: Reader) -> Dialect:
    """The dialect of the file behind `reader`. Raises NotAStore, ForeignStore, SchemaTooNew, SchemaTooOld."""
    if native_identity(reader) is not None:
        # Imported here: a listing of a foreign file needs none of it.
        from maintenance.dialects.native.dialect import NativeDialect

        return NativeDialect.of(reader)
    dialect = ForeignDialect.of(reader)
    missing = [
        *(f"sessions.{name}" for name in sorted(NEEDED_SESSION_COLUMNS - {*dialect.shape.session_columns})),
        *(f"messages.{name}" for name in sorted(NEEDED_MESSAGE_COLUMNS - {*dialect.shape.message_columns})),
    ]
    if missing:
        raise NotAStore(
            f"{reader.path} is not a session store: it has no {', '.join(missing)}.",
            hint="Name the state.db itself with --db, or its folder with --home.",
            path=str(reader.path),
        )
    return dialect
