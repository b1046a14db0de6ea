"""Pragmas, set and read back.

Invariant: a pragma counts as set only when SQLite's own answer says so; SQLite ignores many silently. Results are
always drained. Not for: journal mode changes, which rewrite the file's header and belong to a maintenance command.
"""

from __future__ import annotations

from pathlib import Path

import apsw

from hermes_state.errors import InvalidInput, PragmaRefused

SYNCHRONOUS = {"process": 1, "power": 2}  # NORMAL survives kill -9 of any process; FULL syncs the WAL at that commit
DURABILITIES = tuple(SYNCHRONOUS)


def unknown_durability(said: object, path: Path) -> InvalidInput:
    """The error for a durability that is neither."""
    return InvalidInput(f"durability is 'process' or 'power', not {said!r}.", durability=said, path=path)


def read_pragma(connection: apsw.Connection, name: str) -> object:
    """The value of a pragma."""
    rows = connection.execute(f"PRAGMA {name}").fetchall()
    return rows[0][0] if rows else None


def set_pragma(connection: apsw.Connection, path: Path, name: str, value: int | str) -> None:
    """Set a pragma and raise `PragmaRefused` unless it reads back as set."""
    connection.execute(f"PRAGMA {name} = {value}").fetchall()
    got = read_pragma(connection, name)
    wanted = value.lower() if isinstance(value, str) else value
    if (got.lower() if isinstance(got, str) else got) != wanted:
        raise PragmaRefused(
            f"SQLite kept {name} = {got} of {path} although {value} was asked for.",
            hint="This SQLite cannot give the durability or locking that was asked for; nothing was written.",
            path=path, pragma=name, wanted=value, got=got,
        )
