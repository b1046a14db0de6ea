"""What a connection keeps of its files once it sees that they are no longer those of the path.

Invariant: nothing here raises an `OSError`: a capture that could not be made is said in the error that is raised
anyway. Where no descriptor is left, one of this library's own is given back for it; the WAL can be kept with that one,
through the descriptors that SQLite has open, and no copy through the connection is tried then.

Not for: what a capture holds (`capture.py`), or when files count as lost (`generation.py`). A spare descriptor kept
open for this was rejected: each process would have one more for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import apsw

from hermes_state.engine.descriptors import REGISTRY
from hermes_state.engine.translate import missing_descriptor

if TYPE_CHECKING:
    from hermes_state.clock import Clock
    from hermes_state.engine.descriptors import Identity, StoreDescriptors


def keep(
    path: Path, lost: tuple[str, ...], descriptors: StoreDescriptors, identities: tuple[Identity, ...],
    connection: apsw.Connection, copy_whole: Callable[[Path], str], *, may_roll_back: Callable[[], bool], clock: Clock,
) -> tuple[Path | None, str]:
    """The capture, and "" or why there is none, as a sentence that begins with a space."""
    try:
        usable = False
        if missing_descriptor():
            REGISTRY.descriptors.give_back()
        elif not REGISTRY.strangers(path, identities) and may_roll_back():
            # Beside another library, or without our lock, the connection is left as it is: no rollback, no copy.
            usable = True
            with suppress(apsw.Error):  # nothing to roll back is not an error here
                if connection.in_transaction:
                    connection.execute("ROLLBACK").fetchall()
        from hermes_state.engine.capture import capture_generation  # hashing is loaded only when it is needed

        return capture_generation(path, descriptors, lost, copy_whole if usable else None, clock), ""
    except OSError as error:
        return None, f" Capturing failed: {error}."
