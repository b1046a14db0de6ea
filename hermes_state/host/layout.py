"""What kind of file `host.db` is.

Invariant: its mark is not that of a home's store, so neither is ever opened as the other.

Not for: what the tables mean. Tables of the host in a home's store were rejected: one home cannot arbitrate for others.
"""

from __future__ import annotations

from pathlib import Path

from hermes_state.engine.schema import HOST_APPLICATION_ID, Layout

HOST_NAME = "host.db"
HOST = Layout(application_id=HOST_APPLICATION_ID, folder=Path(__file__).parent / "schema")
