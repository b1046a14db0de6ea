"""The state engine of Hermes agents: every fact of an installation in WAL SQLite, through one door.

Invariant: importing this package opens nothing and loads nothing heavy; `hermes_state.engine` is where stores are
opened. hermes-agent has a module of the same name: every attribute that is not ours is that module's when it is
installed beside us, for reading, assigning and deleting (see `coexist.py`).

Not for: command lines (see `maintenance`), or re-exporting the engine: a name here would hide one of hermes-agent's.
"""

from __future__ import annotations

from hermes_state import coexist as coexist

__version__ = "0.8.0"

coexist.install(__name__)
