"""`open_host`: the state that arbitrates between the homes of one OS user, and what it gives.

Invariant: the folder is this user's and private before anything in it is opened; the file is opened by the engine's
one door under all of its rules. What another user wrote is refused by name, never believed.

Not for: facts of one home, which are in that home's store and do not depend on this one.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable
from dataclasses import replace as with_changes
from pathlib import Path
from typing import TYPE_CHECKING, Self

from hermes_state.clock import Clock, clock_from_environment
from hermes_state.engine.core import acquire, release
from hermes_state.engine.files import closed_here
from hermes_state.errors import StateError, StorageError, UnsafeProcess
from hermes_state.host import ownership, starts, status
from hermes_state.host.asking import ask
from hermes_state.host.entering import Entered, Entering, Signal
from hermes_state.host.facts import Seen
from hermes_state.host.folder import host_folder, prepare, refuse_foreign
from hermes_state.host.layout import HOST, HOST_NAME, advise
from hermes_state.host.probe import Asker, HostView, Probe, Request, Waits
from hermes_state.host.states import PlatformState, SessionStore

if TYPE_CHECKING:
    from hermes_state.engine.core import Core
    from hermes_state.host.code import StaleRun
    from hermes_state.host.converge import Step
    from hermes_state.host.everyone import ForHomes
    from hermes_state.host.living import Judged
    from hermes_state.host.markers import Marker, Markers
    from hermes_state.host.ownership import Membership, Run
    from hermes_state.leases import TokenLocks
    from hermes_state.owners import Presence


def open_host(
    folder: str | os.PathLike[str] | None = None, *, read_only: bool = False, clock: Clock | None = None,
    presence: Presence | None = None, asker: Asker = ask, waits: Waits | None = None,
) -> Host:
    """Open the host of this user, made where it is not there unless `read_only`.

    `folder`: by default `$XDG_STATE_HOME/hermes`, as the environment says now. `presence` makes another owner than
    this process of what is done here, for tests; `asker` and `waits` say how others are asked and for how long.
    Raises `HostNotOurs`, `CannotOpen`, and what opening a store raises.
    """
    place = host_folder(os.environ) if folder is None else Path(folder)
    if read_only:
        refuse_foreign(place)
        repaired: tuple[str, ...] = ()
    else:
        repaired = prepare(place)
    try:
        core = acquire(
            place / HOST_NAME, read_only=read_only, create=not read_only, clock=clock or clock_from_environment(),
            layout=HOST,
        )
    except StateError as error:
        advise(error, place / HOST_NAME)
        raise
    return Host(core, presence=presence, asker=asker, waits=waits, repaired=repaired)


class Host:
    """The open host: a context manager, safe for threads."""

    def __init__(
        self, core: Core, *, presence: Presence | None = None, asker: Asker = ask, waits: Waits | None = None,
        repaired: tuple[str, ...] = (),
    ) -> None:
        self._core: Core | None = core
        self._presence = presence
        self.path: Path = core.path
        self.folder: Path = core.path.parent
        # What was made private at this open, a sentence each.
        self.repaired = repaired
        # What went wrong when it was closed; None: nothing, or it is open.
        self.close_failure: StateError | None = None
        self.probe = Probe(core, self.folder, core.clock, asker=asker, waits=waits, presence=presence)

    @property
    def core(self) -> Core:
        """The engine's side. Raises `StateError` once it is closed."""
        if self._core is None:
            raise closed_here(self.path)
        return self._core

    # --- who runs --------------------------------------------------------------------------------------------

    def host_gateway(self) -> HostView:
        """Who owns the host and whom it serves by its own live answer; remembered for 2 s."""
        return self.probe.host_gateway()

    def enter(
        self, run: Run, *, replace: bool = False, force: bool = False, standalone: bool = False, answers: bool = True,
        rescan: Callable[[], Iterable[str]] | None = None, signal: Signal = os.kill,
    ) -> Entered:
        """Start a gateway: decide, and become what was decided. See `hermes_state.host.decision` for the verdicts.

        `replace`: a person wants the owner replaced; a supervised start never does. `force`: start whoever runs, and
        ask nobody. `standalone`: this home is configured to have a gateway of its own. `answers`: say who this is to
        whoever asks; `rescan` gives all homes that are served after a look for new ones.
        """
        request = Request(
            home=run.home, supervisor=run.supervisor, replace=replace, force=force, standalone=standalone, kind=run.kind
        )
        entering = Entering(self.core, self.probe, presence=self._presence, signal=signal)
        return entering.enter(run, request, answers=answers, rescan=rescan)

    def retract_dead(self) -> str | None:
        """Take away the record of an owner that is proven dead; gives the proof, or None."""
        self.probe.forget()
        return ownership.retract_dead(self.core)

    def gateways(self) -> list[Judged]:
        """Every run that is not known to have ended, and whether it may live; oldest first."""
        return ownership.gateways(self.core)

    def follow(self, member: Membership) -> Marker | None:
        """Do what a drain or resume for this run says: it is taken and the run is in that state, in one transaction.

        Call it every few seconds while the run serves. None when nothing is to be done; what comes while the run starts
        waits, and what comes while it ends is left. Raises `HostLost`.
        """
        from hermes_state.host.markers import follow

        return follow(self.markers, member)

    def stale_code(self) -> list[StaleRun]:
        """Live runs that execute other code than lies on disk, with how to start each again."""
        from hermes_state.host.code import stale_runs

        return stale_runs(self.gateways())

    def plan_multiplex(self, homes: Iterable[str], *, whole: bool = False) -> list[Step]:
        """The next steps to one gateway that serves `homes`, or all of them in their order; nothing is done here."""
        from hermes_state.host.converge import plan, plan_whole

        view, unseen, rows = self.host_gateway(), self._unseen(), self.gateways()
        owner = None if view.owner is None else view.owner.gateway_no
        if view.seen is Seen.LIVE and view.answer is None:
            unseen = f"{view.owner} owns it and does not answer"
        elif view.seen is Seen.LIVE and view.answer is not None:
            # Whom the owner serves is what it says, and nobody is drained for what a record says of it.
            said = view.answer
            rows = [
                one if one.gateway.no != owner else with_changes(one, gateway=with_changes(
                    one.gateway, multiplex=said.multiplex, served=said.served, state=said.state
                ))
                for one in rows
            ]
        return (plan_whole if whole else plan)(rows, owner, homes, unseen=unseen)

    def start_all(self, homes: Iterable[str]) -> list[ForHomes]:
        """What starting a gateway for each of these homes means now, as a list; nobody is started or ended here."""
        from hermes_state.host.everyone import start_all

        return start_all(self.probe.ask_all(), homes, unseen=self._unseen())

    def restart_all(self, home: str) -> list[ForHomes]:
        """What restarting everything means when the profile of `home` asks for it, as a list."""
        from hermes_state.host.everyone import restart_all

        return restart_all(self.probe.ask_all(), home, unseen=self._unseen())

    def _unseen(self) -> str:
        view = self.host_gateway()
        return "; ".join(view.because) if view.seen in (Seen.UNKNOWN, Seen.UNRECORDED) else ""

    # --- status ----------------------------------------------------------------------------------------------

    def report(
        self, member: Membership, *, home: str, platform: str, state: PlatformState, error_code: str | None = None,
        error_message: str | None = None, needs_attention: str | None = None, ingress_url: str | None = None,
        listener_base: str | None = None,
    ) -> None:
        """Say how a platform of a home is connected in this process's run."""
        status.report(
            member, self.core, home=home, platform=platform, state=state, error_code=error_code,
            error_message=error_message, needs_attention=needs_attention, ingress_url=ingress_url,
            listener_base=listener_base,
        )

    def report_store(self, member: Membership, *, home: str, state: SessionStore) -> None:
        """Say whether the store of a home opens in this process's run."""
        status.report_store(member, self.core, home=home, state=state)

    def statuses(self) -> list[status.RunStatus]:
        """Every run that is not known to have ended, with its platforms and how fresh it is."""
        return status.run_statuses(self.core)

    # --- guards ----------------------------------------------------------------------------------------------

    def guards(self, home: str) -> starts.Guards:
        """Whether this is a restart loop or a start storm, and who starts that home."""
        return starts.guards(self.core, home)

    def note_interrupted(self, entered: Entered, home: str, sessions: Iterable[str]) -> list[str]:
        """Say which sessions were active when the run before ended; gives those that are suspended as stuck now."""
        if entered.start_id is None:
            return []
        return starts.note_interrupted(self.core, home, entered.start_id, sessions)

    def note_progress(self, home: str, session: str) -> bool:
        """A turn of that session ended, so it is not stuck."""
        return starts.note_progress(self.core, home, session)

    # --- groups ----------------------------------------------------------------------------------------------

    @functools.cached_property
    def markers(self) -> Markers:
        """Takeover, planned stop and drain."""
        from hermes_state.host.markers import Markers

        return Markers(self.core, presence=self._presence)

    @functools.cached_property
    def tokens(self) -> TokenLocks:
        """One holder for each credential, whichever home of this user it belongs to."""
        from hermes_state.leases import TokenLocks

        return TokenLocks(self.core, presence=self._presence)

    def close(self) -> None:
        """Give the file back. Safe to call twice. A membership stays what it is: `leave` it first.

        What fails then is `close_failure`: it is closed all the same, what was committed is in its WAL for whoever
        opens it next, and no verdict may be lost for a disk that is full.
        """
        core, self._core = self._core, None
        if core is not None:
            try:
                release(core)
            except (StorageError, UnsafeProcess) as error:
                self.close_failure = error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, failure: BaseException | None, trace: object) -> None:
        if isinstance(failure, StateError):
            advise(failure, self.path)
        self.close()
