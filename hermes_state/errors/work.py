"""What background work refuses by name.

Invariant: see the package. Not for: what its notices meet on their way, which is the outbox's.
"""

from __future__ import annotations

from hermes_state.errors.base import NotFound, Refused


class BackgroundWorkNotFound(NotFound):
    """No background process or delegation of that key in this home. Facts: `path`, `key`."""

    code = "background_work_not_found"


class BackgroundWorkFull(Refused):
    """As many processes run, or as many delegations are owed, as one home may have: nothing was begun or taken away.

    Facts: `path`, `sort`, `most`.
    """

    code = "background_work_full"
