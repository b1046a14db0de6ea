"""`store.work`: the groups of what goes on beside a conversation.

Invariant: each member is a group of its own, safe for threads, imported and made when it is first used; once the store
is closed, a member that somebody kept refuses as every other group does.

Not for: doing anything itself. Ten groups on the store were rejected: nobody finds anything in a list of twenty.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hermes_state.engine.core import Core
    from hermes_state.work.credentials import Credentials
    from hermes_state.work.delegations import Delegations
    from hermes_state.work.lanes import Lanes
    from hermes_state.work.logins import Logins
    from hermes_state.work.models import Models
    from hermes_state.work.notices import Notices
    from hermes_state.work.processes import Processes
    from hermes_state.work.streams import Streams
    from hermes_state.work.targets import Targets
    from hermes_state.work.usage_windows import UsageWindows


class Work:
    """The members of one store. Safe for threads. Each keeps the core as `_core`."""

    def __init__(self, core: Core) -> None:
        self._held = core

    @property
    def _core(self) -> Core:
        return self._held

    @_core.setter
    def _core(self, core: Any) -> None:
        """The store is closed: `core` is what refuses from now on, in every member that was used."""
        self._held = core
        for name, member in list(self.__dict__.items()):
            if name != "_held":
                member._core = core

    @functools.cached_property
    def processes(self) -> Processes:
        """Background processes: registered, watched, ended, and who is told."""
        from hermes_state.work.processes import Processes

        return Processes(self._core)

    @functools.cached_property
    def delegations(self) -> Delegations:
        """Work that was given to a sub-agent: its states, its result, and who is told."""
        from hermes_state.work.delegations import Delegations

        return Delegations(self._core)

    @functools.cached_property
    def notices(self) -> Notices:
        """Telling of background work, and what is kept of it."""
        from hermes_state.work.notices import Notices

        return Notices(self._core)

    @functools.cached_property
    def streams(self) -> Streams:
        """Streamed replies: one seal a turn, edits in place of second sends."""
        from hermes_state.work.streams import Streams

        return Streams(self._core)

    @functools.cached_property
    def lanes(self) -> Lanes:
        """What waits for the end of a turn, in order."""
        from hermes_state.work.lanes import Lanes

        return Lanes(self._core)

    @functools.cached_property
    def logins(self) -> Logins:
        """Login attempts, one a process."""
        from hermes_state.work.logins import Logins

        return Logins(self._core)

    @functools.cached_property
    def targets(self) -> Targets:
        """Targets of deliveries that are dead until one delivery succeeds."""
        from hermes_state.work.targets import Targets

        return Targets(self._core)

    @functools.cached_property
    def credentials(self) -> Credentials:
        """Credentials whose tokens are rotated by one process at a time."""
        from hermes_state.work.credentials import Credentials

        return Credentials(self._core)

    @functools.cached_property
    def models(self) -> Models:
        """What is known of models, by layers."""
        from hermes_state.work.models import Models

        return Models(self._core)

    @functools.cached_property
    def usage(self) -> UsageWindows:
        """What providers say is left of an account, with the time it was said."""
        from hermes_state.work.usage_windows import UsageWindows

        return UsageWindows(self._core)
