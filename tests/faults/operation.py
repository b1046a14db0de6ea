"""What an operation under test is, and the stores that most of them begin with."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import apsw

from hermes_state import open_store
from hermes_state.clock import CLOCK_FILE_VARIABLE, FakeClock
from hermes_state.errors import StateError
from maintenance.cli import root_command
from tests.maintenance.native_stores import NOW
from tests.support.stores import unpack

Durability = Literal["process", "power"]
Done = Callable[[str, Durability], None]
STORE = "state.db"
# What a user can see of the store, by session and by what is not of a session.
State = Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One row of the table."""

    name: str
    # makes what is there before; nothing is open afterwards
    prepare: Callable[[Path], None]
    # works in the home and says what is done; nothing is open afterwards
    run: Callable[[Path, Done], None]
    # True: each state between is that before or after a step. False: that holds for each session by itself
    whole: bool = True
    # what the store is: before and after
    dialects: frozenset[str] = frozenset({"native"})
    # whether the old file must be aside, byte for byte, once the content is another one
    keeps_old: bool = False
    # looks at what is beside the store, given how many steps must be there; raises `AssertionError`
    also: Callable[[Path, int], None] = lambda _home, _steps: None
    # errors that a store may be refused with after a fault, by code, when the old content is aside
    refusals: frozenset[str] = frozenset()
    # what is there, without changing it, for stores that may be damaged and for results beside them; None: as usual
    shows: Callable[[Path], State] | None = None
    # whether doing it once more after any accident must lead to the last state (or to one of `refusals`)
    repeats: bool = False


def begin(home: Path, operation: Operation, done: Done) -> None:
    """Run an operation at the same time as ever: commands wait, and the fake clock goes on by that."""
    start_clock()
    operation.run(home, done)


def start_clock() -> None:
    FakeClock(Path(os.environ[CLOCK_FILE_VARIABLE]), now=NOW)


def verb(home: Path, *words: str) -> None:
    """Run a command in this process on the home's store. Raises what it raises; a status other than 0 is an error."""
    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
        arguments = [*words, "--db", str(home / STORE)]
        status = root_command().main(arguments, prog_name="hermes-state", standalone_mode=False)
    if status:
        raise StateError(f"{' '.join(words)} ended with {status}: {told.getvalue()}")


def conversation(home: Path) -> None:
    """A store with one session of four messages, WAL and all."""
    with open_store(path=home / STORE) as store:
        store.sessions.create(id="talk", source="cli", title="A talk")
        for number in range(4):
            store.messages.append("talk", role="user" if number % 2 == 0 else "assistant", content=f"line {number}")
        store.messages.settle("talk")


def foreign(home: Path) -> None:
    """The file of the newest release of hermes-agent that there is a fixture of."""
    unpack("0.19.0", home / STORE)


def settled(path: Path) -> Path:
    """Bring everything into the one file, which nobody has open."""
    connection = apsw.Connection(str(path))
    connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()  # before a read no WAL is known of
    connection.wal_checkpoint("main", apsw.SQLITE_CHECKPOINT_TRUNCATE)
    connection.close()
    assert not Path(f"{path}-wal").exists()
    return path
