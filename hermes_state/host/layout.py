"""What kind of file `host.db` is, and what to do when it is not one any more.

Invariant: its mark is not that of a home's store, so neither is ever opened as the other.

Not for: what the tables mean. Tables of the host in a home's store were rejected: one home cannot arbitrate for others.
"""

from __future__ import annotations

from pathlib import Path

from hermes_state.engine.schema import HOST_APPLICATION_ID, Layout
from hermes_state.errors import Corrupt, ForeignStore, GenerationLost, NotAStore, StateError

HOST_NAME = "host.db"
HOST = Layout(application_id=HOST_APPLICATION_ID, folder=Path(__file__).parent / "schema")
_TO_BE_MADE_ANEW = (Corrupt, ForeignStore, GenerationLost, NotAStore)


def advise(error: StateError, path: Path) -> None:
    """Say what helps with a host's file, where the engine advises what helps with a home's store.

    Nothing in it has to be kept: who runs is written anew by whoever starts.
    """
    if isinstance(error, _TO_BE_MADE_ANEW) or path.is_dir():
        error.hint = (
            f"Stop all gateways of this user, remove {path}, {path.name}-wal and {path.name}-shm, and start them again:"
            " nothing in it is needed after that."
        )


def problem_of(error: StateError, path: Path) -> str:
    """What keeps that file from being used, with what to do, for people."""
    advise(error, path)
    said = str(error.facts.get("operator_detail") or error.message)
    return f"{said} {error.hint}".strip()
